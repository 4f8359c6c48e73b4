"""Hostile cells, hostile targets, no rows at all: behind every door a record decides about itself alone."""

from __future__ import annotations

import math
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from tests.values import value_sum

from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows, ChunkedRows, make_rows
from curvedp.data.rows.blocks import DenseBlock, SparseBlock, make_block
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Multinomial, Poisson, Squared, SquaredHinge

COLUMNS = ColumnMap.from_bounds([-1.0, 0.5], [1.0, 2.0], intercept=0.7, x_norm=1.5)
ONE = Domain(1.0, 1.0)


def memory_map(X, folder):
    stored = np.memmap(folder / f"x{len(list(folder.iterdir()))}", np.float64, "w+", shape=X.shape)
    stored[:] = X
    return stored


DOORS = {
    "dense": lambda X, y, domain, columns, folder: make_rows(X, y, domain, columns),
    "fortran": lambda X, y, domain, columns, folder: make_rows(np.asfortranarray(X), y, domain, columns),
    "sparse": lambda X, y, domain, columns, folder: make_rows(sparse.csr_array(X), y, domain, columns),
    "chunks": lambda X, y, domain, columns, folder: ChunkedRows(
        lambda: ((X[i : i + 700], y[i : i + 700]) for i in range(0, len(X), 700)),
        domain,
        columns,
        n_features=X.shape[1],
    ),
    "memory map": lambda X, y, domain, columns, folder: make_rows(memory_map(X, folder), y, domain, columns),
    "dask": lambda X, y, domain, columns, folder: make_rows(
        da.from_array(X, chunks=(900, -1)), da.from_array(y, chunks=900), domain, columns
    ),
    "list": lambda X, y, domain, columns, folder: make_rows(X.tolist(), y.tolist(), domain, columns),
}


@pytest.fixture(autouse=True)
def one_process():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(params=DOORS.values(), ids=DOORS.keys())
def door(request, tmp_path):
    return lambda X, y, domain=ONE, columns=None: request.param(X, y, domain, columns, tmp_path)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e300, 1e200])
@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["plain", "mapped"])
def test_one_odd_cell_does_not_change_how_other_records_are_clipped(door, odd, columns):
    n = 2500
    X = np.tile([1e153, 1e151], (n, 1))
    y = np.ones(n)
    other = X.copy()
    other[0] = [odd, 0.0]
    theta = np.zeros((2 if columns is None else 3, 1))
    pair = [door(table, y, ONE, columns) for table in (X, other)]
    xx, xy = (getattr(pair[0].moments(), a) - getattr(pair[1].moments(), a) for a in ("xx", "xy"))
    assert np.linalg.norm(xx) <= math.sqrt(2) + 1e-9
    assert np.linalg.norm(xy) <= 2 + 1e-9
    gradients = [rows.gradient_sum(Logistic(), theta, 0.1) for rows in pair]
    assert np.linalg.norm(gradients[0] - gradients[1]) <= 0.2 + 1e-9
    views = [rows.in_metric(np.diag([3.0, 0.1, 0.2][: len(theta)]), 0.5) for rows in pair]
    grams = [view.moments().xx for view in views]
    assert np.linalg.norm(grams[0] - grams[1]) <= math.sqrt(2) * (0.5 / 0.1) ** 2


def test_a_record_has_the_same_bits_whether_or_not_another_forces_a_copy():
    random = np.random.default_rng(0)
    X = random.normal(size=(50, 7)) * 10.0 ** random.uniform(-3, 3, size=(50, 1))
    X[3] *= 1e120  # the factor of this one is multiplied out
    theta = random.normal(size=(7, 2))
    A = np.triu(random.normal(size=(7, 7)))
    plain, _ = make_block(X, np.ones((50, 1)), None, 2.0)
    for cell, target in ((np.nan, 1.0), (np.inf, 1.0), (1e299, 1.0), (0.5, np.nan), (1e140, 1.0)):
        table, targets = X.copy(), np.ones((50, 1))
        table[20, 4], targets[20] = cell, target
        block, _ = make_block(table, targets, None, 2.0)
        same = np.arange(50) != 20
        assert np.array_equal(block.norms[same], plain.norms[same])
        assert np.array_equal(block.margins(theta)[same], plain.margins(theta)[same])
        assert np.array_equal(block.lengths(A)[same], plain.lengths(A)[same])
        rows = [b.X * b.factors[:, None] for b in (block, plain)]
        assert np.array_equal(rows[0][same], rows[1][same])


def test_data_in_order_stays_a_view_and_blocks_beside_odd_cells_too():
    X = np.full((3 * 4096, 2), 0.1)
    X[5000, 1] = np.nan
    shares = [np.shares_memory(load()[0].X, X) for load in ArrayRows(X, np.zeros(len(X)), ONE).loads(True)]
    assert shares == [True, False, True]


@pytest.mark.parametrize("bound", [1e-60, 1e-30, 1e-14, 1e-11, 1e-8, 1e-6, 1.0, 1e60])
def test_no_record_adds_more_to_a_gram_matrix_than_its_bound_squared(bound):
    domain = Domain(bound, 1.0)
    worst = 0.0
    for value in (*np.geomspace(1e140, 1.7e308, 15), *np.geomspace(1e149, 1e150, 5), math.inf):
        X, y = np.array([[value, 0.0], [value, -value]]), np.ones(2)
        for x in (X[:1], X[1:]):
            for rows in (ArrayRows(x, y[:1], domain), ArrayRows(sparse.csr_array(x), y[:1], domain)):
                top = np.trace(rows.moments().xx)
                view = rows.in_metric(np.eye(2), bound / 1.5)
                twice = view.in_metric(np.eye(2), bound / 3.0)
                weighed = rows.hessian_sum(Logistic(), np.zeros((2, 1)))  # φ'' = ¼
                mixed = view.hessian_sum(Multinomial(3), np.zeros((2, 3)))  # negative ones among them
                found = (
                    top,
                    np.trace(view.moments().xx) * 1.5**2,
                    np.trace(twice.moments().xx) * 9.0,
                    4.0 * np.trace(weighed),
                    np.trace(mixed) * 1.5**2 / (3 * 2 / 9),
                )
                assert np.allclose(np.array(found) / bound**2, 1.0, atol=1e-9)
                worst = max(worst, *found)
    assert worst <= bound**2 * (1 + 1e-12)


def test_tiny_factors_on_top_of_each_other_do_not_vanish():
    X = np.array([[3e149, 4e149], [1.0, 2.0]])
    rows = ArrayRows(X, np.ones(2), Domain(1e-60)).in_metric(1e40 * np.eye(2), 1e-160)
    np.testing.assert_allclose(rows.moments().xx[0, 0] / 1e-200, 0.0, atol=1e-150)
    direction = rows.gradient_sum(Squared(), np.zeros((2, 1)))[:, 0] / -1e-200
    np.testing.assert_allclose(direction, [0.6 + 1 / math.sqrt(5), 0.8 + 2 / math.sqrt(5)], rtol=1e-9)


def test_the_length_of_a_sparse_record_does_not_tell_how_many_stand_in_its_block():
    """Entries that undo the centring: what is left of cancelled squares has a public bound."""
    random = np.random.default_rng(1)
    columns = ColumnMap.from_bounds(np.zeros(6), np.full(6, 2.0), intercept=0.0)
    R = np.triu(random.standard_normal((6, 6)))
    for spread in (1e-3, 1e-5, 1e-7, 1e-9):
        X, y = 1.0 + spread * random.uniform(-1, 1, (3001, 6)), np.zeros((3001, 1))
        whole, _ = make_block(sparse.csr_array(X), y, columns, columns.x_norm)
        assert isinstance(whole, SparseBlock)
        for rows in (slice(1, None), slice(0, 40), slice(7, 8)):
            part, _ = make_block(sparse.csr_array(X[rows]), y[rows], columns, columns.x_norm)
            assert np.array_equal(part.lengths(R), whole.lengths(R)[rows])
            assert np.array_equal(part.magnitudes, whole.magnitudes[rows])
            assert np.array_equal(part.norms, whole.norms[rows])


LOSSES = [Squared(), Logistic(), SquaredHinge(), Poisson(), Multinomial(3)]


@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["plain", "mapped"])
def test_a_record_without_a_target_adds_nothing_and_still_counts(door, columns):
    random = np.random.default_rng(1)
    X, y = random.normal(size=(2000, 2)), random.integers(0, 3, 2000).astype(float)
    lost = random.random(2000) < 0.01
    lost[0] = lost[-1] = True
    y[lost] = np.nan
    X[0] = [np.inf, np.nan]
    with_them, without = door(X, y, ONE, columns), ArrayRows(X[~lost], y[~lost], ONE, columns)
    close = {"rtol": 1e-11, "atol": 1e-11}
    assert with_them.count() == 2000
    for name in ("xx", "xy", "yy"):
        ours, theirs = (getattr(rows.moments(), name) for rows in (with_them, without))
        np.testing.assert_allclose(ours, theirs, **close)
    edges = np.array([1e-6, 0.5])
    for loss in LOSSES:
        theta = random.normal(size=(with_them.d, loss.n_outputs))
        for rows, other in (
            (with_them, without),
            (with_them.in_metric(np.eye(len(theta)), 0.6), without.in_metric(np.eye(len(theta)), 0.6)),
        ):
            for clip in (None, 0.2):
                np.testing.assert_allclose(
                    rows.gradient_sum(loss, theta, clip), other.gradient_sum(loss, theta, clip), **close
                )
            np.testing.assert_allclose(rows.hessian_sum(loss, theta), other.hessian_sum(loss, theta), **close)
            for ours, theirs in (
                (rows.norm_histogram(edges), other.norm_histogram(edges)),
                (
                    rows.gradient_norm_histogram(loss, theta, edges),
                    other.gradient_norm_histogram(loss, theta, edges),
                ),
            ):
                assert np.array_equal(ours - theirs, [lost.sum(), 0, 0])


def test_one_missing_target_of_several_is_enough():
    X = np.full((3, 2), 0.5)
    Y = np.array([[1.0, np.nan], [1.0, 0.5], [np.nan, np.nan]])
    m = ArrayRows(X, Y, ONE).moments()
    np.testing.assert_allclose(m.xx, np.full((2, 2), 0.25))
    np.testing.assert_allclose(m.yy, [[1.0, 0.5], [0.5, 0.25]])


@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["plain", "mapped"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_rows_give_zeros_and_no_warning(tmp_path, columns, loss):
    X, y = np.empty((0, 2)), np.empty(0)
    for name, make in DOORS.items():
        if name in ("memory map", "list"):  # there is no empty memory map, and no list tells its columns
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = make(X, y, ONE, columns, tmp_path)
            theta = np.ones((rows.d, loss.n_outputs))
            m = rows.moments()
            assert rows.count() == 0 and m.error == 0.0, name
            assert not m.xx.any() and not m.xy.any() and not m.yy.any(), name
            for view in (rows, rows.in_metric(np.eye(rows.d)), rows.in_metric(np.eye(rows.d), 0.5)):
                assert not view.gradient_sum(loss, theta).any() and not view.hessian_sum(loss, theta).any()
                assert view.gradient_sum(loss, theta, 0.1).shape == theta.shape
                assert value_sum(view, loss, theta) == 0.0 == view.gradient_error(loss, theta)
                assert not view.norm_histogram(np.array([0.1])).any()
                assert not view.gradient_norm_histogram(loss, theta, np.array([0.1])).any()


def test_cells_of_objects_and_of_lists_are_read_one_by_one():
    cells = [[0.5, "0.25"], [None, 10**400], ["secret", object()], [True, -(2**70)]]
    y = [1, "1", 0.5, None]
    expected = np.array([[0.5, 0.25], [np.nan, np.inf], [np.nan, np.nan], [1.0, -(2.0**70)]])
    reference = ArrayRows(expected, np.array([1, 1, 0.5, np.nan]), ONE).moments()
    for X, targets in ((cells, y), (np.array(cells, dtype=object), np.array(y, dtype=object))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            m = make_rows(X, targets, ONE).moments()
        assert np.array_equal(m.xx, reference.xx) and np.array_equal(m.xy, reference.xy)


def test_extreme_targets_are_clipped_without_a_warning(door):
    X = np.full((4, 2), 0.5)
    for y in (np.array([1.7e308, -1.7e308, np.inf, 0.0]), np.array([1e300, -np.inf, 2.0, 0.0])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = door(X, y)
            for loss in LOSSES:
                assert np.isfinite(rows.gradient_sum(loss, np.ones((2, loss.n_outputs)))).all()
            assert rows.moments().yy[0, 0] == pytest.approx(3.0)


def test_blocks_are_what_the_doors_make_of_them():
    block, targets = make_block(np.eye(2), np.array([[np.nan], [2.0]]), None, 5.0)
    assert isinstance(block, DenseBlock) and targets.tolist() == [[0.0], [2.0]]
    assert block.norms.tolist() == [0.0, 1.0] and block.magnitudes.tolist() == [0.0, 1.0]
