"""How far one record moves each sum that inference releases: never more than (P-10) says, and nearly so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvedp.domain import Domain
from curvedp.losses import Huber, Logistic, Poisson, Squared
from curvedp.rows import DenseRows
from curvedp.rows.contrasts import ContrastRows, contrasts

B, Y, D, N = 1.7, 0.8, 4, 8
BLOCKS = ((1, 2, 3),)
BASIS = contrasts(D, BLOCKS)  # (4, 3)
LOSSES = [Squared(), Logistic(), Huber(0.3), Poisson(max_margin=1.0)]
EDGES = np.array([0.05, 0.2, 0.7, 1.5])
BOUND, CLIP = 0.9, 0.6


def sums(table, domain, loss, theta, A):
    """Every sum that inference adds, in the metric A of the contrasts."""
    view = ContrastRows(DenseRows(*table, domain), BASIS)
    short, seen = view.in_metric(A, math.sqrt(BOUND)), view.in_metric(A)
    return {
        "second": A @ short.moments().xx @ A.T,
        "bread": A @ seen.curvature_sum(loss, theta, BOUND, CLIP) @ A.T,
        "meat": A @ seen.score_sum(loss, theta, CLIP) @ A.T,
        "gradient": A @ seen.gradient_sum(loss, theta, CLIP),
        "histogram": seen.gradient_norm_histogram(loss, theta, EDGES),
    }


def allowed(domain):
    """What (P-10) says: matrices by their bound, √2 of it where two differ; gradients by c or 2c."""
    k = domain.neighbours
    return {
        "second": k.gram_factor * BOUND,
        "bread": k.gram_factor * BOUND,
        "meat": k.gram_factor * CLIP**2,
        "gradient": k.sum_factor * CLIP,
        "histogram": k.histogram_factor,
    }


def changes(left, right, domain, loss, theta, A):
    before, after = (sums(table, domain, loss, theta, A) for table in (left, right))
    return {name: float(np.linalg.norm(after[name] - before[name])) for name in before}


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_record_moves_a_sum_by_more(loss, adjacency, data):
    number = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e150, np.nan, np.inf])
    record = st.lists(number, min_size=D + 1, max_size=D + 1)
    domain = Domain(B, Y, adjacency)
    rows = data.draw(st.lists(record, min_size=1, max_size=6))
    other = [*rows, data.draw(record)] if adjacency == "add_remove" else [data.draw(record), *rows[1:]]
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    A = random.normal(size=(3, 3)) * 10.0 ** random.uniform(-2, 2)
    theta = random.normal(size=(3, 1)) * 10.0 ** random.uniform(-2, 1)
    tables = [(np.array(t)[:, :D], np.array(t)[:, D]) for t in (rows, other)]
    moved, bounds = changes(*tables, domain, loss, theta, A), allowed(domain)
    for name, bound in bounds.items():
        assert moved[name] <= bound * (1 + 1e-9), name


def corner(random):
    """A record at the edge of the domain."""
    x = random.normal(size=D)
    return B * x / np.linalg.norm(x)


def label(random, x, theta):
    """The far end of the targets, or one beside the margin, which no clip keeps out of the bread."""
    s = float(x @ BASIS @ theta[:, 0])
    return float(np.clip(random.choice([-Y, Y, s + 0.02]), -Y, Y))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.3)], ids=lambda loss: loss.name)
def test_some_pair_comes_within_three_percent_of_every_bound(loss, adjacency):
    random, domain = np.random.default_rng(1), Domain(B, Y, adjacency)
    bounds, worst = allowed(domain), dict.fromkeys(allowed(domain), 0.0)
    for _ in range(400):
        A = 6.0 * random.normal(size=(3, 3))
        theta = random.choice([0.3, 2.0]) * random.normal(size=(3, 1))
        X, y = 0.3 * random.normal(size=(N, D)), random.uniform(-Y, Y, N)
        x = corner(random)
        left, right = (X, y), (np.vstack([X, x]), np.append(y, label(random, x, theta)))
        if adjacency == "replace":
            # Farthest from x in the metric: its opposite for gradients, one across it for matrices.
            seen = A @ BASIS.T @ x
            across = np.linalg.lstsq(A @ BASIS.T, np.linalg.svd(seen[None])[2][-1], rcond=None)[0]
            back = [-x, B * across / np.linalg.norm(across)][int(random.integers(2))]
            left = (np.vstack([X, back]), np.append(y, label(random, back, theta)))
        moved = changes(left, right, domain, loss, theta, A)
        worst = {name: max(worst[name], moved[name]) for name in worst}
    for name, bound in bounds.items():
        assert worst[name] <= bound * (1 + 1e-9), name
        assert worst[name] >= 0.97 * bound, name


def test_a_bound_that_is_too_small_is_exceeded():
    """The tests above can fail: records shortened to √b where b is meant move a sum by more."""
    random, domain = np.random.default_rng(2), Domain(B, Y, "add_remove")
    A, x = 6.0 * random.normal(size=(3, 3)), corner(random)
    X, y = 0.3 * random.normal(size=(N, D)), random.uniform(-Y, Y, N)
    views = [
        ContrastRows(DenseRows(*table, domain), BASIS).in_metric(A, BOUND**0.25)
        for table in ((X, y), (np.vstack([X, x]), np.append(y, Y)))
    ]
    grams = [A @ view.moments().xx @ A.T for view in views]
    assert np.linalg.norm(grams[1] - grams[0]) > allowed(domain)["second"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_positive_semidefinite_terms_are_at_most_root_two_apart(seed):
    """‖P − P'‖² = ‖P‖² + ‖P'‖² − 2⟨P, P'⟩ and ⟨P, P'⟩ ≥ 0: the factor √2 in the place of 2."""
    random = np.random.default_rng(seed)
    P, Q = (np.outer(v, v) / (v @ v) for v in random.normal(size=(2, 3)))
    assert np.linalg.norm(P - Q) <= math.sqrt(2.0) + 1e-12
