"""Curvature sums and score sums over every storage, against brute force; steady single rows."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows, ChunkedRows, blocks, make_rows
from curvedp.errors import InvalidInput
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Multinomial, Poisson, Squared, SquaredHinge
from curvedp_studies.trial import Repeated

ONE = [Squared(), Logistic(), Huber(0.3), SquaredHinge(), Poisson(max_margin=2.0)]
LOSSES = [*ONE, Multinomial(3)]
# Two numbers, a category of three levels and one of two, an intercept.
BLOCKS = ((2, 3, 4), (5, 6))
COLUMNS = ColumnMap.from_bounds([-1, -1, 0, 0, 0, 0, 0], [1] * 7, intercept=1.0, one_hot=BLOCKS)
DOMAIN = Domain(x_norm=COLUMNS.x_norm, y_bound=1.0, adjacency="add_remove")
N = 1500


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Raw cells; some records have no level at all, some have several."""
    random = np.random.default_rng(seed)
    X = np.column_stack(
        [
            random.uniform(-1.5, 1.5, size=(N, 2)),
            np.eye(3)[random.integers(0, 3, N)],
            np.eye(2)[random.integers(0, 2, N)],
        ]
    )
    X[:20, 2:5], X[20:30, 2:7] = 0.0, 1.0
    return X, random.choice([-1.0, 1.0], N) * random.uniform(0.1, 1.4, N)


def storages(X: np.ndarray, y: np.ndarray):
    """(name, rows, how often each record counts)."""
    dense = ArrayRows(X, y, DOMAIN, COLUMNS)
    yield "dense", dense, 1.0
    yield "sparse", ArrayRows(sparse.csr_array(X), y, DOMAIN, COLUMNS), 1.0
    chunks = lambda: ((X[i : i + 137], y[i : i + 137]) for i in range(0, N, 137))  # noqa: E731
    yield "chunked", ChunkedRows(chunks, DOMAIN, COLUMNS), 1.0
    yield "dask", make_rows(da.from_array(X, (400, 7)), da.from_array(y, 400), DOMAIN, COLUMNS), 1.0
    yield "forecast", Repeated(dense, 2.5), 2.5


def brute(loss, X, y, theta, A, bound, clip):
    """Record by record, in the definition's own words; θ in C order."""
    curvature, clipped, scores = np.zeros((3, theta.size, theta.size))
    t, both = loss.clip_target(y, DOMAIN), np.kron(A, np.eye(theta.shape[1]))
    for x, target in zip(COLUMNS.apply(X), t, strict=True):
        s = x[None, :] @ theta
        Q = np.kron(np.outer(x, x), loss.hessian(s, np.array([target]))[0])
        g = np.outer(x, loss.gradient(s, np.array([target]))[0]).ravel()
        size = np.linalg.norm(both @ g)
        kept = 1.0 if size <= clip else 0.0 if size >= 2 * clip else 2.0 - size / clip
        length = np.linalg.norm(both @ Q @ both.T)
        most = bound / length if length > 0 else np.inf
        curvature += min(1.0, most) * Q
        clipped += min(kept, most) * Q
        g = g * min(1.0, clip / size if size > 0 else 1.0)
        scores += np.outer(g, g)
    return curvature, clipped, scores


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_curvature_and_score_sums_of_every_storage_equal_brute_force(loss):
    random = np.random.default_rng(1)
    (X, y), A = table(), random.normal(size=(8, 8))
    theta = 0.4 * random.normal(size=(8, loss.n_outputs))
    bound, clip = 25.0, 1.0
    curvature, clipped, scores = brute(loss, X, y, theta, A, bound, clip)
    assert not np.allclose(clipped, curvature)
    lengths = np.linalg.norm(COLUMNS.apply(X) @ A.T, axis=1)
    assert 0.05 < np.mean(lengths**2 > bound) < 0.999  # the bound bites, not everywhere
    for name, rows, times in storages(X, y):
        view = rows.in_metric(A)
        close = {"rtol": 1e-10, "atol": 1e-9, "err_msg": name}
        np.testing.assert_allclose(view.curvature_sum(loss, theta, bound), times * curvature, **close)
        np.testing.assert_allclose(view.curvature_sum(loss, theta, bound, clip), times * clipped, **close)
        np.testing.assert_allclose(view.score_sum(loss, theta, clip), times * scores, **close)


def test_wide_bounds_give_the_hessian_and_the_outer_products():
    X, y = table(2)
    rows = ArrayRows(X, y, DOMAIN, COLUMNS)
    for loss in LOSSES:
        theta = np.full((8, loss.n_outputs), 0.1)
        np.testing.assert_allclose(rows.curvature_sum(loss, theta, 1e9), rows.hessian_sum(loss, theta))
        trace = np.trace(rows.score_sum(loss, theta, 0.05))
        assert trace <= N * 0.05**2 * (1 + 1e-12)


def test_a_person_of_several_rows_adds_no_more_than_the_bound():
    """‖A Q Aᵀ‖ ≤ ‖A P Aᵀ‖ for each (P-9): with a tiny bound all add about that much, never more."""
    random, domain = np.random.default_rng(3), Domain(COLUMNS.x_norm, 1.0, "add_remove", "who")
    X, A, loss = table()[0][:40], random.normal(size=(8, 8)), Multinomial(3)
    y, theta, both = (
        random.integers(0, 3, 40).astype(float),
        random.normal(size=(8, 3)),
        np.kron(A, np.eye(3)),
    )
    sizes = []
    for start in range(0, 40, 4):
        mine = slice(start, start + 4)
        rows = ArrayRows(X[mine], y[mine], domain, COLUMNS, codes=np.zeros(4, np.int64)).in_metric(A)
        Z, t = COLUMNS.apply(X[mine]), y[mine]
        whole = np.add.reduce(
            [np.kron(np.outer(z, z), h) for z, h in zip(Z, loss.hessian(Z @ theta, t), strict=True)]
        )
        np.testing.assert_allclose(rows.curvature_sum(loss, theta, 1e9), whole, atol=1e-12)
        found = both @ rows.curvature_sum(loss, theta, 0.01) @ both.T
        sizes.append(np.linalg.norm(found))
        g = np.add.reduce([np.outer(z, s) for z, s in zip(Z, loss.gradient(Z @ theta, t), strict=True)])
        np.testing.assert_allclose(
            rows.score_sum(loss, theta, 1e9), np.outer(g.ravel(), g.ravel()), atol=1e-12
        )
    assert max(sizes) <= 0.01 * (1 + 1e-9) and min(sizes) > 0.005


def test_a_curvature_or_score_sum_needs_a_positive_bound():
    rows = ArrayRows(*table(), DOMAIN, COLUMNS)
    with pytest.raises(InvalidInput, match="positive"):
        rows.curvature_sum(Squared(), np.zeros((8, 1)), 0.0)
    with pytest.raises(InvalidInput, match="positive"):
        rows.curvature_sum(Squared(), np.zeros((8, 1)), 1.0, 0.0)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 10, 17, 31, 100])
def test_margins_and_lengths_do_not_depend_on_where_a_record_stands(d):
    """To the last bit: comparisons with a threshold count one record more or less, never others (P-10)."""
    random = np.random.default_rng(d)
    x, theta, A = random.normal(size=d), random.normal(size=(d, 1)), random.normal(size=(d, d))
    margins, lengths = set(), set()
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 63, 1025):
        for at in {0, n // 2, n - 1}:
            X = random.normal(size=(n, d))
            X[at] = x
            for rows in (
                ArrayRows(X, np.zeros(n), Domain(1e9)),
                ArrayRows(sparse.csr_array(X), np.zeros(n), Domain(1e9)),
            ):
                view = rows.in_metric(A)
                block, _ = next(iter(view.loads(keep=False)))()
                kind = type(block).__name__
                margins.add((kind, block.margins(theta)[at, 0]))
                lengths.add((kind, block.norms[at]))
    assert len(margins) == len(lengths) == 2  # one number per storage


def test_equal_records_have_equal_margins_however_many_there_are():
    """A matrix product of common libraries gives two values here: why `products.margins` is a loop."""
    random = np.random.default_rng(0)
    x, theta = random.normal(size=17), random.normal(size=(17, 1))
    steady = set()
    for n in (1, 2, 3, 5, 8, 100, 1001):
        steady |= set(blocks.margins(np.tile(x, (n, 1)), theta)[:, 0])
    assert len(steady) == 1


@pytest.mark.parametrize("loss", [*LOSSES, Multinomial(3)], ids=lambda loss: loss.name)
def test_derivatives_do_not_depend_on_where_a_record_stands(loss):
    random = np.random.default_rng(0)
    s, y = random.normal(size=(1031, loss.n_outputs)), np.zeros(1031)
    y = np.ones(1031) if loss.n_outputs == 1 else y
    for part in (slice(1, None), slice(3, 10), slice(1030, None)):
        np.testing.assert_array_equal(loss.gradient(s, y)[part], loss.gradient(s[part], y[part]))
        np.testing.assert_array_equal(loss.hessian(s, y)[part], loss.hessian(s[part], y[part]))


def test_a_table_of_records_exactly_at_the_jump_moves_by_one_record_alone():
    """A Huber loss at records with |s − y| = width to the last bit, and a histogram edge at their length."""
    d, n = 17, 2000
    random = np.random.default_rng(5)
    theta, A = random.normal(size=(d, 1)), random.normal(size=(d, d)) / d
    x = random.normal(size=d)
    x /= np.linalg.norm(x)
    s = blocks.margins(x[None], theta)[0, 0]
    y, width = 0.25, abs(s - 0.25)  # the threshold is the number that one row gives
    domain, loss = Domain(2.0, 1.0, "add_remove"), Huber(width)
    other = random.normal(size=d) / 4
    tables = [np.tile(x, (n, 1)), np.vstack([other, np.tile(x, (n, 1))])]
    views = [ArrayRows(X, np.full(len(X), y), domain).in_metric(A) for X in tables]
    block, _ = next(iter(views[0].loads(keep=False)))()
    edges = np.array([0.5, 1.0, 2.0]) * block.norms[0] * width
    counts = [view.gradient_norm_histogram(loss, theta, edges) for view in views]
    assert np.abs(counts[0] - counts[1]).sum() == 1.0
    for clip in (None, edges[1]):
        curvatures = [A @ view.curvature_sum(loss, theta, 1.0, clip) @ A.T for view in views]
        assert np.linalg.norm(curvatures[1] - curvatures[0]) <= 1.0 + 1e-9


def test_margins_of_several_outputs_are_steady():
    random = np.random.default_rng(8)
    X, theta = random.normal(size=(57, 23)), random.normal(size=(23, 3))
    found = blocks.margins(X, theta)
    np.testing.assert_allclose(found, X @ theta, rtol=1e-12, atol=1e-12)
    for start in range(1, 9):
        np.testing.assert_array_equal(blocks.margins(X[start:], theta), found[start:])
        np.testing.assert_array_equal(blocks.margins(X[::-1], theta), found[::-1])
