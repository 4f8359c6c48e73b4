"""Every `Rows` equals a plain numpy reference, whatever the storage, the chunking and the threads."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from tests.values import clipped_value, value_sum

from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows, ChunkedRows, make_rows
from curvedp.data.rows.blocked import rows_per_block
from curvedp.errors import DataError, InvalidInput
from curvedp.problems.domain import Domain
from curvedp.problems.losses import (
    Huber,
    Logistic,
    Multinomial,
    OneVsRest,
    Poisson,
    Squared,
    SquaredHinge,
)

LOSSES = [
    Squared(),
    Logistic(),
    Huber(0.3),
    SquaredHinge(),
    Poisson(),
    Multinomial(3),
    OneVsRest(Logistic(), 3),
]
CLOSE = {"rtol": 1e-11, "atol": 1e-10}


def table(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mostly zeros, a few rows far outside every bound, some missing values."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, p)) * (random.random((n, p)) < 0.5)
    y = random.normal(size=n) * 1.5
    if n > 10:
        X[0], X[1, 0], X[2, 1], X[3, 2], X[4] = 1e3, np.nan, np.inf, -np.inf, 0.0
        X[5, 0] = 1e200
        y[6], y[7], y[8] = np.nan, np.inf, 50.0
    return X, y


def mixed_columns() -> ColumnMap:
    """Bounds that hold 0 and bounds that do not, a constant column, a one-hot block."""
    low = [-1.0, 0.5, -3.0, 2.0, 0.0, 0.0]
    high = [1.0, 2.0, -1.0, 2.0, 1.0, 1.0]
    return ColumnMap.from_bounds(low, high, intercept=0.7, x_norm=1.5, one_hot=[(4, 5)])


def reference_rows(X: np.ndarray, columns: ColumnMap | None, domain: Domain) -> np.ndarray:
    """The definition, record by record, in plain numpy."""
    bound = domain.x_norm
    if columns is None:
        Z = np.clip(np.where(np.isnan(X), 0.0, X), -1e150, 1e150)
    else:
        bound = min(bound, columns.x_norm)
        middle = (columns.low + columns.high) / 2
        Z = np.clip(np.where(np.isnan(X), middle, X), columns.low, columns.high)
        Z = (Z - columns.center) / columns.scale
        if columns.intercept:
            Z = np.column_stack([Z, np.full(len(Z), columns.intercept)])
    norms = np.linalg.norm(Z, axis=1)
    return Z * np.minimum(1.0, bound / np.maximum(norms, 1e-300))[:, None]


def zero_records(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Records and targets, those without a target replaced by zeros."""
    lost = np.isnan(y)
    return np.where(lost[:, None], 0.0, Z), np.where(lost, 0.0, y)


def in_chunks(X, y, size):
    return lambda: ((X[i : i + size], y[i : i + size]) for i in range(0, len(y), size))


def storages(X, y, domain, columns):
    """The same records behind every door."""
    csr = sparse.csr_array(X)
    yield "dense", ArrayRows(X, y, domain, columns)
    yield "fortran", ArrayRows(np.asfortranarray(X), y, domain, columns)
    yield "sparse", ArrayRows(csr, y, domain, columns)
    yield "csc", ArrayRows(sparse.csc_matrix(X), y, domain, columns)
    width = X.shape[1]
    for size in (1, 7, 100, 5000):
        chunks = in_chunks(X, y, size)
        yield f"chunks of {size}", ChunkedRows(chunks, domain, columns, n_features=width)
    yield "sparse chunks", ChunkedRows(in_chunks(csr, y, 50), domain, columns, n_features=width)
    yield "mapped", ArrayRows(X, y, domain, columns)


DOMAIN = Domain(x_norm=1.2, y_bound=1.0)


@pytest.mark.parametrize("columns", [None, mixed_columns()], ids=["plain", "mapped"])
@pytest.mark.parametrize("n", [0, 1, 250])
def test_moments_equal_the_reference(columns, n):
    X, y = table(n, 6)
    Z, y0 = zero_records(reference_rows(X, columns, DOMAIN), y)
    t = np.clip(y0, -1.0, 1.0)[:, None]
    for name, rows in storages(X, y, DOMAIN, columns):
        m = rows.moments()
        assert rows.count() == n and rows.d == Z.shape[1], name
        np.testing.assert_allclose(m.xx, Z.T @ Z, err_msg=name, **CLOSE)
        np.testing.assert_allclose(m.xy, Z.T @ t, err_msg=name, **CLOSE)
        np.testing.assert_allclose(m.yy, t.T @ t, err_msg=name, **CLOSE)
        assert np.array_equal(m.xx, m.xx.T), name


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("columns", [None, mixed_columns()], ids=["plain", "mapped"])
def test_reductions_equal_the_reference(loss, columns):
    X, y = table(120, 6)
    Z, y0 = zero_records(reference_rows(X, columns, DOMAIN), y)
    K = loss.n_outputs
    theta = np.random.default_rng(1).normal(size=(Z.shape[1], K))
    t = loss.clip_target(y0, DOMAIN)
    s = Z @ theta
    slopes, second = loss.gradient(s, t), loss.hessian(s, t)
    per_record = Z[:, :, None] * slopes[:, None, :]
    norms = np.linalg.norm(per_record, axis=(1, 2))
    clip = float(np.median(norms[norms > 0])) + 1e-7  # off every kink
    clipped = per_record * np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None, None]
    hessian = np.einsum("ij,il,ikm->jklm", Z, Z, second).reshape(theta.size, theta.size)
    edges = np.unique(np.quantile(norms, [0.1, 0.5, 0.51, 0.9])) + 1e-7
    cells = np.histogram(norms, np.concatenate([[-1.0], edges, [np.inf]]))[0]
    for name, rows in storages(X, y, DOMAIN, columns):
        close = dict(CLOSE, err_msg=name)
        np.testing.assert_allclose(rows.gradient_sum(loss, theta), per_record.sum(axis=0), **close)
        np.testing.assert_allclose(rows.gradient_sum(loss, theta, clip), clipped.sum(axis=0), **close)
        np.testing.assert_allclose(rows.hessian_sum(loss, theta), hessian, **close)
        np.testing.assert_allclose(value_sum(rows, loss, theta), loss.value(s, t).sum(), **close)
        assert np.array_equal(rows.gradient_norm_histogram(loss, theta, edges), cells), name
        if K == 1:
            huberised = np.einsum("ij,il,i->jl", Z, Z, second[:, 0, 0] * (norms < clip))
            np.testing.assert_allclose(rows.hessian_sum(loss, theta, clip), huberised, **close)
            slope = clip / np.maximum(np.linalg.norm(Z, axis=1), 1e-300)
            total = clipped_value(loss, s, t, slope).sum()
            np.testing.assert_allclose(value_sum(rows, loss, theta, clip), total, **close)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_records_give_zeros_of_the_right_shape(loss):
    X, y = table(0, 3)
    theta = np.ones((3, loss.n_outputs))
    for name, rows in storages(X, y, DOMAIN, None):
        assert not rows.gradient_sum(loss, theta, 1.0).any(), name
        assert rows.hessian_sum(loss, theta).shape == (theta.size, theta.size), name
        assert value_sum(rows, loss, theta) == 0.0 == rows.gradient_error(loss, theta), name
        assert rows.gradient_norm_histogram(loss, theta, np.array([1.0])).tolist() == [0.0, 0.0], name


def test_the_huberised_value_has_the_clipped_gradient():
    X, y = table(60, 4)
    theta = np.random.default_rng(2).normal(size=(4, 1))
    direction = np.random.default_rng(3).normal(size=(4, 1))
    for loss in [loss for loss in LOSSES if loss.n_outputs == 1]:
        rows = ArrayRows(X, y, DOMAIN)
        slope = rows.gradient_sum(loss, theta, 0.2).ravel() @ direction.ravel()
        h = 1e-6
        ahead, behind = (value_sum(rows, loss, theta + e * direction, 0.2) for e in (h, -h))
        assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-6, abs=1e-6)


def test_results_do_not_depend_on_threads():
    step = rows_per_block(20)
    X, y = table(5 * step + 17, 20)
    theta = np.random.default_rng(1).normal(size=(20, 1))
    for make in (
        ArrayRows,
        lambda X, y, domain, threads: ArrayRows(sparse.csr_array(X), y, domain, threads=threads),
    ):
        one, many = (make(X, y, DOMAIN, threads=threads) for threads in (1, 5))
        assert np.array_equal(one.moments().xx, many.moments().xx)
        for loss in (Logistic(), Squared()):
            assert np.array_equal(one.gradient_sum(loss, theta, 0.1), many.gradient_sum(loss, theta, 0.1))


def test_kept_blocks_change_nothing():
    X, y = table(9000, 5)
    theta = np.ones((5, 1))
    for columns in (None, ColumnMap.from_bounds([-1] * 5, [1] * 5)):
        rows = ArrayRows(X, y, DOMAIN, columns)
        theta = np.ones((rows.d, 1))
        first = rows.gradient_sum(Logistic(), theta, 0.1), rows.moments().xx
        again = rows.gradient_sum(Logistic(), theta, 0.1), rows.moments().xx
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_float32_integers_and_booleans_are_rows_too():
    random = np.random.default_rng(0)
    X = random.integers(-3, 4, size=(50, 4))
    y = random.integers(0, 2, size=50)
    expected = ArrayRows(X.astype(float), y.astype(float), Domain(2.0)).moments()
    for kind in (np.float32, np.int8, np.int64):
        m = ArrayRows(X.astype(kind), y.astype(kind), Domain(2.0)).moments()
        assert np.array_equal(m.xx, expected.xx) and np.array_equal(m.xy, expected.xy)
    flags = ArrayRows(X > 0, y > 0, Domain(1.0)).moments()
    np.testing.assert_allclose(flags.yy, [[y.sum()]])


def test_several_targets_have_moments_but_no_loss():
    X, _ = table(80, 3)
    Y = np.random.default_rng(5).normal(size=(80, 2))
    T = np.clip(Y, -1, 1)
    Z = reference_rows(X, None, DOMAIN)
    for rows in (ArrayRows(X, Y, DOMAIN), ArrayRows(X, Y, DOMAIN)):
        m = rows.moments()
        np.testing.assert_allclose(m.xy, Z.T @ T, **CLOSE)
        np.testing.assert_allclose(m.yy, T.T @ T, **CLOSE)
        with pytest.raises(InvalidInput, match="reads 1 column"):
            rows.gradient_sum(Squared(), np.zeros((3, 1)))


def test_every_record_is_within_the_bound_exactly():
    """In exact arithmetic, not only up to rounding: the constants assume ‖x‖ ≤ B."""
    X = np.random.default_rng(7).normal(size=(200, 9)) * 10.0
    X[:50] /= np.linalg.norm(X[:50], axis=1)[:, None]
    rows = ArrayRows(X, np.zeros(200), Domain(1.0))
    for load in rows.loads(keep=False):
        block, _ = load()
        assert block.factors is not None
        for x, f in zip(block.X, block.factors, strict=True):
            assert sum(Fraction(float(v)) ** 2 for v in x) * Fraction(float(f)) ** 2 <= 1


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_record_adds_more_than_the_clip(loss):
    """One record at a time: the computed contribution itself has norm ≤ clip, in exact arithmetic."""
    X, y = table(40, 5, seed=3)
    theta = np.random.default_rng(4).normal(size=(5, loss.n_outputs)) * 3
    for x, t in zip(X, y, strict=True):
        for rows in storages_of_one(x, t):
            g = rows.gradient_sum(loss, theta, 0.1)
            assert sum(Fraction(float(v)) ** 2 for v in g.ravel()) <= Fraction(0.1) ** 2


def storages_of_one(x, t):
    yield ArrayRows(x[None], [t], DOMAIN)
    yield ArrayRows(sparse.csr_array(x[None]), [t], DOMAIN)


def test_data_in_order_is_not_copied():
    X = np.random.default_rng(0).normal(size=(5000, 4))
    X /= 2 * np.linalg.norm(X, axis=1)[:, None]
    rows = ArrayRows(X, np.zeros(5000), Domain(1.0))
    rows.gradient_sum(Squared(), np.zeros((4, 1)))
    assert all(np.shares_memory(load()[0].X, X) for load in rows.loads(keep=True))


def test_memory_maps_are_read_in_chunks(tmp_path):
    X, y = table(300, 4)
    stored = np.memmap(tmp_path / "x", dtype=np.float64, mode="w+", shape=X.shape)
    stored[:] = X
    rows = make_rows(stored, y, DOMAIN)
    np.testing.assert_allclose(rows.moments().xx, ArrayRows(X, y, DOMAIN).moments().xx, **CLOSE)
    first, again = (next(iter(rows.loads(keep=True)))() for _ in range(2))
    assert first[0] is not again[0]  # nothing is kept in memory between passes


def test_the_first_chunk_tells_the_width():
    X, y = table(30, 4)
    assert ChunkedRows(in_chunks(X, y, 8), DOMAIN).d == 4
    with pytest.raises(InvalidInput, match="n_features"):
        ChunkedRows(list, DOMAIN)


def test_the_callers_sparse_matrix_is_left_alone():
    X = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    rows = ArrayRows(X, np.zeros(1), Domain(10.0))
    assert rows.moments().xx[1, 1] == pytest.approx(9.0)
    assert X.nnz == 2


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([["secret"]]), np.zeros(1)),
        (np.array([[1j]]), np.zeros(1)),
        ([[1.0, 2.0], ["secret"]], np.zeros(2)),
        (np.zeros((2, 1)), np.array(["secret", "b"])),
        (np.zeros((2, 1)), np.zeros(3)),
        (np.zeros(3), np.zeros(3)),
        (sparse.csr_array(np.array([[1j]])), np.zeros(1)),
    ],
)
def test_unreadable_rows_are_refused_without_a_value(X, y):
    with pytest.raises(DataError) as caught:
        make_rows(X, y, DOMAIN)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_failing_source_shows_no_value():
    def chunks():
        yield np.zeros((2, 1)), np.zeros(2)
        raise ValueError("could not parse 'secret'")

    rows = ChunkedRows(chunks, DOMAIN)
    with pytest.raises(DataError) as caught:
        rows.moments()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_chunk_of_another_width_is_refused():
    def chunks():
        yield np.zeros((2, 3)), np.zeros(2)
        yield np.zeros((2, 4)), np.zeros(2)

    with pytest.raises(DataError, match="3 columns"):
        ChunkedRows(chunks, DOMAIN).moments()


def test_bad_arguments_are_refused():
    rows = ArrayRows(np.zeros((4, 2)), np.zeros(4), DOMAIN)
    with pytest.raises(InvalidInput, match="shape"):
        rows.gradient_sum(Squared(), np.zeros(2))
    with pytest.raises(InvalidInput, match="clip"):
        rows.gradient_sum(Squared(), np.zeros((2, 1)), clip=0.0)
    with pytest.raises(InvalidInput, match="one output"):
        rows.hessian_sum(Multinomial(3), np.zeros((2, 3)), clip=1.0)
    with pytest.raises(InvalidInput, match="increasing"):
        rows.gradient_norm_histogram(Squared(), np.zeros((2, 1)), np.array([1.0, 1.0]))
    two = ColumnMap.from_bounds([0, 0], [1, 1])
    wide = np.zeros((4, 3))
    with pytest.raises(DataError, match="2 columns"):
        ArrayRows(wide, np.zeros(4), DOMAIN, two)
    with pytest.raises(DataError, match="2 columns"):
        ArrayRows(sparse.csr_array(wide), np.zeros(4), DOMAIN, two)
    with pytest.raises(DataError, match="2 columns"):
        ChunkedRows(in_chunks(wide, np.zeros(4), 2), DOMAIN, two).moments()
