"""Sums over persons against plain loops over persons (U-1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from curvedp import Domain
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.data.rows.blocked import rows_per_block
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours
from curvedp.problems.losses import Huber, Logistic, Loss, Multinomial, Squared

DOMAIN = Domain(2.0, 1.0, "add_remove", unit="person")


def table(seed: int, persons: int = 40, d: int = 3, classes: int = 0, most: int = 9):
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(persons), random.integers(1, most, persons))
    random.shuffle(ids)
    X = random.uniform(-1.4, 1.4, (len(ids), d))
    y = random.integers(0, classes, len(ids)) if classes else random.uniform(-1.2, 1.2, len(ids))
    return X, y, ids, random


def clipped(X: np.ndarray, bound: float) -> np.ndarray:
    return X * np.minimum(1.0, bound / np.linalg.norm(X, axis=1))[:, None]


def gradients(
    loss: Loss, theta: np.ndarray, X: np.ndarray, y: np.ndarray, ids: np.ndarray
) -> list[np.ndarray]:
    """G_i, person by person, row by row."""
    X, targets = clipped(X, DOMAIN.x_norm), loss.clip_target(y, DOMAIN)
    found = []
    for person in np.unique(ids):
        G = np.zeros_like(theta)
        for x, target in zip(X[ids == person], targets[ids == person], strict=True):
            slope = loss.gradient((x @ theta)[None, :], np.array([target]))[0]
            G += np.outer(x, slope)
        found.append(G)
    return found


@pytest.mark.parametrize(
    "loss", [Squared(), Huber(0.4), Logistic(), Multinomial(3)], ids=lambda loss: loss.name
)
@pytest.mark.parametrize("seed", range(3))
def test_a_person_is_clipped_as_one_vector_in_the_metric(loss: Loss, seed: int) -> None:
    K = loss.n_outputs
    X, y, ids, random = table(seed, classes=K if K > 1 else 0)
    y = np.where(y > 0, 1.0, -1.0) if loss.name == "logistic" else y
    theta, A = random.standard_normal((3, K)), random.standard_normal((3, 3))
    rows = make_rows(X, y, DOMAIN, unit=ids).in_metric(A)
    each = gradients(loss, theta, X, y, ids)
    lengths = np.array([np.linalg.norm(A @ G) for G in each])
    clip = float(np.median(lengths))
    expected = sum(G * min(1.0, clip / length) for G, length in zip(each, lengths, strict=True))
    assert rows.gradient_sum(loss, theta, clip) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    edges = np.sort(random.choice(lengths, 5, replace=False)) * (1 + 1e-6)
    counts = rows.gradient_norm_histogram(loss, theta, edges)
    assert counts.tolist() == np.bincount(np.searchsorted(edges, lengths), minlength=6).tolist()
    assert counts.sum() == rows.count() == len(np.unique(ids))


@pytest.mark.parametrize("most", [2, 9, 40])
@pytest.mark.parametrize("seed", range(3))
def test_a_person_is_measured_and_shortened_as_one_matrix(seed: int, most: int) -> None:
    X, y, ids, random = table(seed, most=most)
    A = random.standard_normal((3, 3))
    grams = [(Z := clipped(X, 2.0)[ids == person]).T @ Z for person in np.unique(ids)]
    lengths = np.array([np.linalg.norm(A @ P @ A.T) ** 0.5 for P in grams])
    bound = float(np.median(lengths))
    expected = sum(P * min(1.0, bound / q) ** 2 for P, q in zip(grams, lengths, strict=True))
    rows = make_rows(X, y, DOMAIN, unit=ids)
    assert rows.in_metric(A, bound).moments().xx == pytest.approx(expected, rel=1e-9)
    edges = np.sort(lengths)[[3, 11, 30]] * (1 + 1e-6)
    counts = rows.in_metric(A).norm_histogram(edges)
    assert counts.tolist() == np.bincount(np.searchsorted(edges, lengths), minlength=4).tolist()


@pytest.mark.parametrize("loss", [Squared(), Huber(0.4), Logistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(3))
def test_bread_and_meat_are_of_persons(loss: Loss, seed: int) -> None:
    """Σ min(u_i, b/‖A Q_i Aᵀ‖) Q_i, u_i by the length of the person's gradient; Σ clip(G_i) clip(G_i)ᵀ."""
    X, y, ids, random = table(seed)
    y = np.where(y > 0, 1.0, -1.0) if loss.name == "logistic" else y
    theta, A = random.standard_normal((3, 1)), random.standard_normal((3, 3))
    rows, Z, targets = make_rows(X, y, DOMAIN, unit=ids), clipped(X, 2.0), loss.clip_target(y, DOMAIN)
    each = gradients(loss, theta, X, y, ids)
    lengths = np.array([np.linalg.norm(A @ G) for G in each])
    clip = float(np.median(lengths))
    second = loss.hessian(Z @ theta, targets)[:, 0, 0]
    curved = [(Z[ids == i] * second[ids == i, None]).T @ Z[ids == i] for i in np.unique(ids)]
    sizes = np.array([np.linalg.norm(A @ Q @ A.T) for Q in curved])
    bound = float(np.quantile(sizes, 0.8))
    for given_clip in (None, clip):
        u = np.ones(len(each)) if given_clip is None else np.clip(2.0 - lengths / clip, 0.0, 1.0)
        factors = np.minimum(u, bound / np.maximum(sizes, 1e-300))
        expected = sum(Q * factor for Q, factor in zip(curved, factors, strict=True))
        bread = rows.in_metric(A).curvature_sum(loss, theta, bound, given_clip)
        assert bread == pytest.approx(expected, rel=1e-9, abs=1e-12)
    short = [G * min(1.0, clip / length) for G, length in zip(each, lengths, strict=True)]
    meat = rows.in_metric(A).score_sum(loss, theta, clip)
    assert meat == pytest.approx(sum(g @ g.T for g in short), rel=1e-9, abs=1e-12)


def test_the_mean_of_a_person_is_what_a_vector_sum_clips() -> None:
    X, y, ids, _ = table(8)
    found = make_rows(X, y, DOMAIN, unit=ids).vector_sum(lambda block, y, domain: y[:, :1] + 2.0, 1, 2.1)
    means = np.array([np.mean(np.asarray(y)[ids == i]) for i in np.unique(ids)]) + 2.0
    assert found == pytest.approx([np.minimum(means, 2.1).sum()], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.floats(1e-3, 1e3))
def test_what_one_person_gives_is_within_the_bound_to_the_last_bit(seed, k, d, bound) -> None:
    """One person alone: the computed sums themselves obey the bounds, whatever the number of rows."""
    random = np.random.default_rng(seed)
    X, y, A = random.uniform(-2, 2, (k, d)), random.uniform(-1, 1, k), random.standard_normal((d, d))
    rows = make_rows(X, y, DOMAIN, unit=np.zeros(k, dtype=int))
    P = rows.in_metric(A, bound).moments().xx
    assert np.linalg.norm(A @ P @ A.T) <= bound**2 * (1 + 1e-12)
    theta = random.standard_normal((d, 1))
    G = rows.in_metric(A).gradient_sum(Squared(), theta, bound)
    assert np.linalg.norm(A @ G) <= bound * (1 + 1e-12)
    bread = rows.in_metric(A).curvature_sum(Squared(), theta, bound, None)
    assert np.linalg.norm(A @ bread @ A.T) <= bound * (1 + 1e-12)
    meat = rows.in_metric(A).score_sum(Squared(), theta, bound)
    assert np.linalg.norm(A @ meat @ A.T) <= bound**2 * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(0, 6), st.integers(0, 6))
def test_no_two_persons_move_a_shortened_gram_by_more_than_the_factor(seed, d, k, j) -> None:
    """‖P − P'‖_F ≤ F for a person or nobody, √2·F for two persons, of any rank."""
    random = np.random.default_rng(seed)
    P, Q = (
        (Z := random.standard_normal((rows, d)) * random.exponential(size=(1, d))).T @ Z for rows in (k, j)
    )
    P, Q = (M / max(np.linalg.norm(M), 1e-300) for M in (P, Q))
    assert np.linalg.norm(P) <= Neighbours("add_remove").gram_factor * (1 + 1e-12)
    assert np.linalg.norm(P - Q) <= Neighbours("replace").gram_factor * (1 + 1e-12)


def test_the_order_of_rows_does_not_matter() -> None:
    X, y, ids, random = table(5)
    order, theta = random.permutation(len(ids)), random.standard_normal((3, 1))
    left, right = (make_rows(X[o], y[o], DOMAIN, unit=ids[o]) for o in (slice(None), order))
    assert left.gradient_sum(Squared(), theta, 0.7) == pytest.approx(
        right.gradient_sum(Squared(), theta, 0.7), rel=1e-12
    )


def test_other_persons_change_no_bit_of_what_a_person_gives() -> None:
    """A person's sum is the same wherever the person stands; also one who is longer than a block."""
    X, y, ids, random = table(6)
    k, theta = 3 * rows_per_block(3) // 2, random.standard_normal((3, 1))
    own, targets = random.uniform(-1, 1, (k, 3)), random.uniform(-1, 1, k)
    alone = make_rows(own, targets, DOMAIN, unit=np.full(k, 7)).in_metric(np.eye(3))
    size = float(np.linalg.norm(alone.gradient_sum(Squared(), theta, 1e9)))
    for first in (0, 1, 3):  # others before and after
        where = np.r_[ids[:first], np.full(k, 777), ids[first:]]
        both = make_rows(
            np.r_[X[:first], own, X[first:]], np.r_[y[:first], targets, y[first:]], DOMAIN, unit=where
        )
        edges = np.array([size * (1 - 1e-15), np.nextafter(size * (1 + 1e-9), np.inf)])
        with_it = both.gradient_norm_histogram(Squared(), theta, edges)
        without = make_rows(X, y, DOMAIN, unit=ids).gradient_norm_histogram(Squared(), theta, edges)
        assert (with_it - without).tolist() == [0, 1, 0]


def test_rows_without_an_identifier_contribute_nothing() -> None:
    X, y, ids, random = table(7)
    theta = random.standard_normal((3, 1))
    names = np.array([f"p{i}" for i in ids], dtype=object)
    more = np.r_[names, np.array([None, "", " NA ", float("nan"), 2.0**53], dtype=object)]
    extra = make_rows(np.r_[X, np.ones((5, 3))], np.r_[y, np.ones(5)], DOMAIN, unit=more)
    plain = make_rows(X, y, DOMAIN, unit=names)
    assert extra.count() == plain.count()
    assert np.array_equal(
        extra.gradient_sum(Squared(), theta, 0.5), plain.gradient_sum(Squared(), theta, 0.5)
    )
    assert np.array_equal(
        extra.in_metric(np.eye(3), 0.5).moments().xx, plain.in_metric(np.eye(3), 0.5).moments().xx
    )


def test_nobody_is_there() -> None:
    rows = make_rows(np.ones((3, 2)), np.ones(3), DOMAIN, unit=[None, None, ""])
    assert rows.count() == 0
    assert not rows.gradient_sum(Squared(), np.zeros((2, 1)), 1.0).any()
    assert not rows.norm_histogram(np.array([1.0])).any()
    assert not rows.in_metric(np.eye(2), 1.0).moments().xx.any()


def test_sparse_rows_and_mapped_columns_are_those_of_dense_ones() -> None:
    X, y, ids, random = table(8)
    X[random.random(X.shape) < 0.6] = 0.0
    theta, columns = random.standard_normal((4, 1)), ColumnMap.from_bounds([-1, -2, -1], [1, 2, 2])
    dense, thin = (make_rows(M, y, DOMAIN, columns, unit=ids) for M in (X, sparse.csr_matrix(X)))
    left, right = (rows.in_metric(np.eye(4), 0.8) for rows in (dense, thin))
    gradients = [rows.gradient_sum(Squared(), theta, 0.5) for rows in (dense, thin)]
    assert gradients[0] == pytest.approx(gradients[1])
    assert left.moments().xx == pytest.approx(right.moments().xx)


def test_a_sum_that_overflows_is_nothing() -> None:
    huge = Domain(1e60, 1.0, "add_remove", unit="person")
    X, y = np.array([[1e60, 0.0], [0.5, 0.5]]), np.array([0.0, 1.0])
    rows = make_rows(X, y, huge, unit=["a", "b"])
    theta = np.array([[1e290], [0.0]])
    found = rows.gradient_sum(Squared(), theta, 1.0)
    assert np.isfinite(found).all() and np.linalg.norm(found) <= 1.0 + 1e-12
    assert np.isfinite(rows.in_metric(np.eye(2), 1.0).moments().xx).all()


def test_sums_without_a_bound_are_refused_and_so_are_rows_that_say_not_whose_they_are() -> None:
    X, y, ids, _ = table(9)
    rows, theta = make_rows(X, y, DOMAIN, unit=ids), np.zeros((3, 1))
    for ask in (
        lambda: rows.in_metric(np.eye(3), 1.0).gradient_sum(Squared(), theta, 1.0),
        lambda: rows.gradient_sum(Squared(), theta),
        lambda: rows.hessian_sum(Squared(), theta),
        lambda: rows.gradient_error(Squared(), theta),
        lambda: make_rows(X, y, DOMAIN),
        lambda: make_rows(X, y, Domain(), unit=ids),
    ):
        with pytest.raises(InvalidInput):
            ask()
