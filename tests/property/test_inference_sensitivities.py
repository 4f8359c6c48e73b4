"""How far one record moves each sum at the end of a walk: never more than (P-10) says, and nearly so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvedp.data.rows import ArrayRows
from curvedp.postprocess.inference import BEYOND
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Poisson, Quantile, Squared

B, Y, D, N = 1.7, 0.8, 4, 8
LOSSES = [Squared(), Logistic(), Huber(0.3), Quantile(0.3, quantile=0.8), Poisson(max_margin=1.0)]
EDGES = np.array([0.05, 0.2, 0.7, 1.5])
BOUND, CLIP = 0.9, 0.6


def sums(table, domain, loss, theta, A):
    """Every sum that intervals add, in the metric A."""
    seen = ArrayRows(*table, domain).in_metric(A)
    wider, own = (seen.gradient_sum(loss, theta, CLIP * by) for by in (1.0 + BEYOND, 1.0))
    return {
        "bread": A @ seen.curvature_sum(loss, theta, BOUND, CLIP) @ A.T,
        "tail": seen.gradient_norm_histogram(loss, theta, EDGES),
        "meat": A @ seen.score_sum(loss, theta, CLIP) @ A.T,
        "beyond": A @ (wider - own) / (BEYOND * CLIP),
    }


def allowed(domain):
    """What (P-10) says: matrices by their bound, √2 of it where two differ; directions by 1 or 2."""
    k = domain.neighbours
    return {
        "bread": k.gram_factor * BOUND,
        "tail": k.histogram_factor,
        "meat": k.gram_factor * CLIP**2,
        "beyond": k.sum_factor,
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
    A = random.normal(size=(D, D)) * 10.0 ** random.uniform(-2, 2)
    theta = random.normal(size=(D, 1)) * 10.0 ** random.uniform(-2, 1)
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
    s = float(x @ theta[:, 0])
    return float(np.clip(random.choice([-Y, Y, s + 0.02]), -Y, Y))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.3)], ids=lambda loss: loss.name)
def test_some_pair_comes_within_three_percent_of_every_bound(loss, adjacency):
    random, domain = np.random.default_rng(1), Domain(B, Y, adjacency)
    bounds, worst = allowed(domain), dict.fromkeys(allowed(domain), 0.0)
    for _ in range(400):
        A = 6.0 * random.normal(size=(D, D))
        theta = random.choice([0.3, 2.0]) * random.normal(size=(D, 1))
        X, y = 0.3 * random.normal(size=(N, D)), random.uniform(-Y, Y, N)
        x = corner(random)
        left, right = (X, y), (np.vstack([X, x]), np.append(y, label(random, x, theta)))
        if adjacency == "replace":
            # Farthest from x in the metric: its opposite for gradients, one across it for matrices.
            across = np.linalg.solve(A, np.linalg.svd((A @ x)[None])[2][-1])
            back = [-x, B * across / np.linalg.norm(across)][int(random.integers(2))]
            left = (np.vstack([X, back]), np.append(y, label(random, back, theta)))
        moved = changes(left, right, domain, loss, theta, A)
        worst = {name: max(worst[name], moved[name]) for name in worst}
    for name, bound in bounds.items():
        assert worst[name] <= bound * (1 + 1e-9), name
        assert worst[name] >= 0.97 * bound, name


def test_a_ramp_that_is_too_steep_moves_by_more():
    """The tests above can fail: (G(c(1+h)) − G(c))/(ch) in units of half of h is twice as long as one."""
    random, domain = np.random.default_rng(2), Domain(B, Y, "add_remove")
    A, x, theta = 6.0 * random.normal(size=(D, D)), corner(random), np.zeros((D, 1))
    X, y = 0.3 * random.normal(size=(N, D)), random.uniform(-Y, Y, N)
    tables = (X, y), (np.vstack([X, x]), np.append(y, Y))
    found = [sums(table, domain, Squared(), theta, A)["beyond"] for table in tables]
    assert 0.99 <= np.linalg.norm(found[1] - found[0]) <= 1 + 1e-9
    assert np.linalg.norm(2.0 * (found[1] - found[0])) > allowed(domain)["beyond"]


def test_beyond_is_the_direction_of_what_the_clip_shortens():
    """Nothing of a gradient within the clip, part of one on the ramp, all of the direction beyond."""
    domain, loss, A = Domain(10.0, 1.0, "add_remove"), Squared(), np.diag([2.0, 1.0])
    for length, share in ((0.9, 0.0), (1.0, 0.0), (1.0 + BEYOND / 2, 0.5), (1.0 + BEYOND, 1.0), (7.0, 1.0)):
        x = np.array([[0.3, 0.8]])
        x = x * (CLIP * length) / np.linalg.norm(A @ x[0])  # at θ = 0 and y = −1 the gradient is x
        found = sums((x, np.array([-1.0])), domain, loss, np.zeros((2, 1)), A)["beyond"][:, 0]
        np.testing.assert_allclose(found, share * A @ x[0] / np.linalg.norm(A @ x[0]), atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_positive_semidefinite_terms_are_at_most_root_two_apart(seed):
    """‖P − P'‖² = ‖P‖² + ‖P'‖² − 2⟨P, P'⟩ and ⟨P, P'⟩ ≥ 0: the factor √2 in the place of 2."""
    random = np.random.default_rng(seed)
    P, Q = (np.outer(v, v) / (v @ v) for v in random.normal(size=(2, 3)))
    assert np.linalg.norm(P - Q) <= math.sqrt(2.0) + 1e-12
