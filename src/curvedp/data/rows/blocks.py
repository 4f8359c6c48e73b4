"""A block: some thousand records, mapped and clipped, and the linear algebra that reductions need of them.

What a record becomes depends on no other record of its block, not even in its last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.linalg.blas import dsyrk
from scipy.sparse import csr_array, issparse

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray
from curvedp.data.cells import number
from curvedp.data.frames import as_floats
from curvedp.data.mapping import ColumnMap, capped, clip_factors, clip_to_ball, kernels, norms
from curvedp.errors import DataError, shielded

# What callers pass as X and y, as arrays of numbers. Whatever numpy would say about a value stays here.

NOT_NUMBERS = "X must hold numbers; read tables of other kinds through a schema"
_failed = "{} cannot be read as an array of numbers ({}): pass one row per record".format
NO_NUMBERS = "y must hold numbers: real targets, ±1, or class indices"


def as_records(X: Any, y: Any, columns: ColumnMap | None = None) -> tuple[Any, NDArray[np.generic]]:
    """X as an array (n, p) or a csr_array of real numbers, y as an array (n, T); such arrays are not copied.
    Cells of lists and of object arrays are read one by one: one that is no number becomes NaN."""
    features = shielded(lambda: _csr(X) if issparse(X) else _numbers(X, NOT_NUMBERS), partial(_failed, "X"))
    if features.ndim != 2:
        raise DataError("X must be a table: two dimensions, one row per record")
    if columns is not None and features.shape[1] != columns.n_inputs:
        raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
    targets = shielded(lambda: _numbers(y, NO_NUMBERS), partial(_failed, "y"))
    if targets.ndim == 1:
        targets = targets[:, None]
    if targets.ndim != 2 or len(targets) != features.shape[0]:
        raise DataError("y must have one entry (or one row of targets) per row of X")
    return features, targets


def _csr(X: Any) -> Any:
    """Without duplicate entries; the caller's matrix is left as it is."""
    if X.dtype.kind not in "fiub":
        raise DataError("X must be a scipy sparse matrix of numbers")
    rows = csr_array(X)
    rows.check_format(full_check=True)  # indices beyond the columns would be read as memory
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _numbers(values: Any, otherwise: str) -> NDArray[np.generic]:
    """An array as it is; a list as its cells, since numpy would choose one type for all of them."""
    typed = hasattr(values, "dtype") or hasattr(values, "__array__")
    array = np.asanyarray(values) if typed else np.array(values, dtype=object)
    if array.dtype.kind not in "fiubO":
        raise DataError(otherwise)
    if isinstance(array, np.ma.MaskedArray):  # what is hidden is missing
        array = array.filled(None) if array.dtype.kind == "O" else as_floats(array)
    if array.dtype.kind != "O":
        return array
    return np.fromiter(map(number, array.flat), np.float64, array.size).reshape(array.shape)


# Products of tall arrays: sums over rows with short chains of additions, and steady numbers of single rows.
#
# A sum of k products errs by at most about k·2⁻⁵³ of the sum of their sizes, in whatever order a library adds
# them. Adding up a few rows at a time, and then those sums, makes k much smaller than the number of rows.
#
# Steady: what a row gives is the same to its last bit wherever the row stands and whatever stands beside
# it. A matrix product of a library does not promise that; a comparison of two such numbers needs it (P-9).

_FEW = 64  # rows that a matrix-vector product adds up at a time
_SOME, _MORE = 128, 256  # rows of a matrix product, for few and for many columns
_MANY_COLUMNS = 100


@lru_cache(maxsize=256)
def chain(n: int, d: int) -> int:
    """Additions that a term of a sum over n rows of d columns meets at most."""
    steps = (_FEW, _SOME if d < _MANY_COLUMNS else _MORE)
    return min(n, max(step + math.ceil(n / step) for step in steps))


def combination(X: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_i x_i w_iᵀ, shape (d, K), of rows x_i of X (n, d) and w_i of `weights` (n, K)."""
    if weights.shape[1] > 1:
        whole = len(X) - len(X) % _SOME
        sums = np.asarray(X[whole:].T @ weights[whole:])
        if whole:
            left = X[:whole].reshape(-1, _SOME, X.shape[1])
            right = weights[:whole].reshape(-1, _SOME, weights.shape[1])
            sums += np.matmul(left.transpose(0, 2, 1), right).sum(axis=0)
        return sums
    if X.shape[1] == 1:  # numpy adds in pairs
        return np.array([[np.sum(X[:, 0] * weights[:, 0])]])
    total = np.zeros((X.shape[1], 1))
    kernels().add_rows(X, weights, _FEW, total)
    return total


def gram(X: FloatArray, factors: FloatArray | None = None) -> FloatArray:
    """Σ_i f_i² x_i x_iᵀ of the rows of X, exactly symmetric; f = 1 where `factors` is None."""
    d = X.shape[1]
    step = _SOME if d < _MANY_COLUMNS else _MORE
    upper, part = np.zeros((d, d), order="F"), np.zeros((d, d), order="F")
    scaled = None if factors is None else np.empty((min(step, len(X)), d))  # stays in a cache
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        if factors is not None and scaled is not None:
            rows = np.multiply(rows, factors[start : start + step, None], out=scaled[: len(rows)])
        # A sum of its own: a library could begin with what it is added to, and chain all rows.
        upper += dsyrk(1.0, rows.T, beta=0.0, c=part, overwrite_c=1)
    return np.asarray(np.triu(upper) + np.triu(upper, 1).T)


def margins(X: FloatArray, theta: FloatArray) -> FloatArray:
    """θᵀx of every row, shape (n, K); steady."""
    out = np.zeros((len(X), theta.shape[1]))
    if theta.shape[1] == 1:
        kernels().dot_rows(X, np.ascontiguousarray(theta[:, 0]), out)
    else:
        kernels().map_rows(X, np.ascontiguousarray(theta), out)
    return out


def steady_lengths(X: FloatArray, triangle: FloatArray) -> FloatArray:
    """‖R x‖ of every row, R upper triangular; steady. In the given coordinates (R = ±1) that is ‖x‖."""
    if np.array_equal(np.abs(triangle), np.eye(len(triangle))):
        return norms(X)
    out = np.empty(len(X))
    kernels().measure_rows(X, np.ascontiguousarray(np.triu(triangle).T), out)
    return out


def shortened(weights: FloatArray, lengths: FloatArray, most: float) -> FloatArray:
    """w_i·min(1, most/(lengths_i·‖w_i‖)) of rows w_i, 0 where that length is not finite; (n, K), steady."""
    out = np.empty_like(weights)
    kernels().shorten_rows(weights, norms(weights), lengths, most, out)
    return out


# A factor below this multiplies its row instead of being kept beside it: squares and products of the factors
# that are kept stay far from underflow.
_SMALLEST_FACTOR = 2.0**-100
SPARSE_ROWS_AT_MOST = 2**16  # in one block


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """x_i = f_i·X_i, f = 1 when `factors` is None: X is not copied when all its rows lie within the bound."""

    X: FloatArray
    norms: FloatArray  # the length of x_i that clips and histograms see, shape (n,), rounded up at most
    factors: FloatArray | None
    magnitudes: FloatArray  # m_i ≥ ‖x_i‖: what rounding errors of sums over the records are proportional to

    @property
    def additions(self) -> int:
        """Additions behind a term of `combine` and of `gram` without weights, at most."""
        return chain(*self.X.shape)

    def margins(self, theta: FloatArray) -> FloatArray:
        """θᵀx_i, shape (n, K); the same to the last bit wherever record i stands."""
        s = margins(self.X, theta)
        return s if self.factors is None else np.multiply(s, self.factors[:, None], out=s)

    def combine(self, weights: FloatArray) -> FloatArray:
        """Σ_i x_i w_iᵀ, shape (d, K), for weights of shape (n, K)."""
        return combination(self.X, scaled(weights, self.factors))

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """Σ_i w_i x_i x_iᵀ, shape (d, d); w = 1 when None."""
        if weights is None:
            return gram(self.X, self.factors)
        if weights.min(initial=0.0) >= 0.0:  # the symmetric product costs half of the general one
            roots = np.sqrt(weights)
            return gram(self.X, roots if self.factors is None else roots * self.factors)
        Z = scaled(self.X, self.factors)
        G = (Z * weights[:, None]).T @ Z
        return np.asarray(0.5 * (G + G.T))

    def lengths(self, triangle: FloatArray) -> FloatArray:
        """‖R x_i‖ of an upper triangular R, rounded up, steady; ‖A x_i‖ where R = `triangle_of(A)`."""
        lengths = steady_lengths(self.X, triangle)
        if self.factors is not None:
            lengths *= self.factors
        return rounded_up(lengths, length_error(triangle) * self.magnitudes)

    def rescaled(self, factors: FloatArray | None, norms: FloatArray) -> DenseBlock:
        """The records factors_i·x_i, 0 ≤ factors_i ≤ 1 (None: the same), whose lengths are `norms`."""
        if factors is None:
            return replace(self, norms=norms)
        X, before = self.X, self.factors
        both = factors if before is None else before * factors
        tiny = (both < _SMALLEST_FACTOR) & (factors > 0.0)
        if tiny.any():
            X, both = X.copy(), np.where(tiny, 1.0, both)
            X[tiny] = (X[tiny] if before is None else X[tiny] * before[tiny, None]) * factors[tiny, None]
        return DenseBlock(X, norms, both, self.magnitudes * factors)

    def chosen(self, rows: BoolArray | slice) -> DenseBlock:
        factors = None if self.factors is None else self.factors[rows]
        return DenseBlock(self.X[rows], self.norms[rows], factors, self.magnitudes[rows])


def scaled(rows: FloatArray, factors: FloatArray | None) -> FloatArray:
    """f_i·rows_i, f = 1 when None."""
    return rows if factors is None else rows * factors[:, None]


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """x_i = v_i + g_i·b, v the sparse rows of A: absent entries are implicit. Gives what a dense one does.

    The entries v may undo the centring g·b almost entirely; summed in plain arithmetic, what remains would be
    lost. Here every product and every partial sum is an unevaluated pair (hi, lo), so that each result is
    rounded once: it errs by u|result| + κ·u·Σ|product|, u = 2⁻⁵³, κ = 8(k + 16)·u for k terms.
    """

    A: Any  # scipy.sparse.csr_array, shape (n, p), indices sorted in every row
    g: FloatArray  # (n,)
    b: FloatArray  # (d,), the intercept at its end if there is one
    norms: FloatArray
    sizes: FloatArray  # ‖v_i‖ + g_i‖b‖
    magnitudes: FloatArray

    additions = 1  # every sum is rounded once

    def margins(self, theta: FloatArray) -> FloatArray:
        A, out = self.A, np.empty((self.A.shape[0], theta.shape[1]))
        kernels().margins(A.indptr, A.indices, A.data, self.g, self.b, np.ascontiguousarray(theta), out)
        return out

    def combine(self, weights: FloatArray) -> FloatArray:
        A, shape = self.A, (len(self.b), weights.shape[1])
        hi, lo, total = np.zeros(shape), np.zeros(shape), np.zeros((2, weights.shape[1]))
        weights = np.ascontiguousarray(weights)
        kernels().combine(A.indptr, A.indices, A.data, self.g, weights, hi, lo, total)
        kernels().add_outer(self.b, total, hi, lo)
        return hi

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        A, g, b = self.A, self.g, self.b
        weights = np.ones_like(g) if weights is None else weights
        hi, lo = np.zeros((len(b), len(b))), np.zeros((len(b), len(b)))
        kernels().gram(A.indptr, A.indices, A.data, weights, hi, lo)
        t_hi, t_lo, total = np.zeros((len(b), 1)), np.zeros((len(b), 1)), np.zeros((2, 1))
        kernels().combine(A.indptr, A.indices, A.data, g, (weights * g)[:, None], t_hi, t_lo, total)
        kernels().symmetric(b, t_hi[:, 0], t_lo[:, 0], total[0, 0], total[1, 0], bool(b.any()), hi, lo)
        return hi

    def lengths(self, triangle: FloatArray) -> FloatArray:
        lengths = norms(self.margins(triangle.T))
        # The sizes: entries are rounded when a record is rescaled.
        rounding = 4.0 * UNIT_ROUNDOFF * float(np.linalg.norm(triangle)) * self.sizes
        return rounded_up(lengths, length_error(triangle) * self.magnitudes + rounding)

    def rescaled(self, factors: FloatArray | None, norms: FloatArray) -> SparseBlock:
        if factors is None:
            return replace(self, norms=norms)
        A, g = _with_data(self.A, self.A.data, factors), self.g * factors
        return SparseBlock(A, g, self.b, norms, self.sizes * factors, self.magnitudes * factors)


Block = DenseBlock | SparseBlock  # records x_1 … x_n in R^d, all with ‖x_i‖ ≤ B


def _with_data(A: Any, data: FloatArray, factors: FloatArray | None = None) -> Any:
    """The sparse matrix with the pattern of A and other entries, rows times factors."""
    if factors is not None:
        data = data * np.repeat(factors, np.diff(A.indptr))
    return csr_array((data, A.indices, A.indptr), shape=A.shape)


def make_block(
    X: Any, y: NDArray[np.generic], columns: ColumnMap | None, bound: float
) -> tuple[Block, FloatArray]:
    """(block, targets) of raw rows X (dense or csr) and raw targets y (n, T), mapped and clipped to `bound`.

    A record with a target that is no number becomes the zero record, x = 0 and y = 0: it adds nothing to
    any sum over x, and still counts. All m_i ≤ 1.0004·bound: sparse rows whose columns cannot promise that
    are made dense.
    """
    targets = np.asarray(y, dtype=np.float64)
    missing = np.isnan(targets)
    lost = missing[:, 0] if missing.shape[1] == 1 else np.asarray(missing.any(axis=1))
    if lost.any():
        targets = np.where(lost[:, None], 0.0, targets)
    if issparse(X):
        if stays_sparse(X.shape[1], columns, bound):
            return _sparse_block(X, lost, columns, bound), targets
        X = X.toarray()
    if columns is not None:
        rows, lengths = columns.within(X, bound)
        rows[lost], lengths[lost] = 0.0, 0.0
        return DenseBlock(rows, lengths, None, lengths), targets
    rows, lengths, factors = clip_to_ball(np.ascontiguousarray(X, dtype=np.float64), bound)
    if lost.any():
        factors = np.where(lost, 0.0, 1.0 if factors is None else factors)
        lengths = np.where(lost, 0.0, lengths)
    block = DenseBlock(rows, lengths, None, lengths)  # a view of X where nothing had to change
    if factors is not None:
        block = replace(block.rescaled(factors, lengths), magnitudes=lengths)
    return block, targets


def _sparse_block(X: Any, lost: BoolArray, columns: ColumnMap | None, bound: float) -> SparseBlock:
    """Never densified: an absent entry is 0 and becomes b_j; a stored x adds (clip(x) − clip(0))/scale."""
    p = X.shape[1]
    b = implicit_part(p, columns)
    entries = np.asarray(X.data, dtype=np.float64)
    if columns is None:
        entries = capped(entries)
    else:
        low, high = columns.low[X.indices], columns.high[X.indices]
        entries = np.clip(np.where(np.isnan(entries), 0.5 * low + 0.5 * high, entries), low, high)
        entries = (entries - np.clip(0.0, low, high)) / columns.scale[X.indices]
    stored, absent = np.empty(X.shape[0]), np.empty(X.shape[0])
    kernels().squares(X.indptr, X.indices, entries, b, stored, absent)
    norms, sizes = np.sqrt(stored + absent), np.sqrt(_with_data(X, np.square(entries)) @ np.ones(p))
    if b.any():  # rounded up: what is left of cancelled squares, and what rounding scaled entries adds
        sizes += float(np.linalg.norm(b))
        norms *= 1.0 + 4 * (p + 16) * UNIT_ROUNDOFF
        norms += 4.0 * (1.0 + math.sqrt(p + 16)) * UNIT_ROUNDOFF * sizes
    norms, factors = clip_factors(norms, bound, p)
    factors = np.where(lost, 0.0, 1.0 if factors is None else factors)
    norms, sizes = np.where(lost, 0.0, norms), sizes * factors
    unit = 2.0 ** math.ceil(math.log2(np.abs(b).max())) if b.any() else 1.0  # g and b far from underflow
    magnitudes = np.hypot(norms, _root_leftover(p) * sizes) if b.any() else norms
    A = _with_data(X, entries, factors)
    return SparseBlock(A, factors * unit, b / unit, norms, sizes, magnitudes)


def implicit_part(p: int, columns: ColumnMap | None) -> FloatArray:
    """b: the mapped record all of whose entries are absent, (clip(0) − center)/scale and the intercept."""
    if columns is None:
        return np.zeros(p)
    b = (np.clip(0.0, columns.low, columns.high) - columns.center) / columns.scale
    return np.append(b, columns.intercept) if columns.intercept else b


def stays_sparse(p: int, columns: ColumnMap | None, bound: float) -> bool:
    """Whether m_i ≤ 1.0004·bound for all sparse records: √κ·(‖v‖ + ‖b‖) ≤ √κ·(B + 2‖b‖) is small beside B.

    False where ‖b‖ is more than about a thousand times B: a small x_norm, and columns far from centred.
    """
    offset = float(np.linalg.norm(implicit_part(p, columns)))
    return offset == 0.0 or _root_leftover(p) * (bound + 2.0 * offset) <= 0.028 * bound


def _root_leftover(p: int) -> float:
    """√κ of the longest block, however long this one is: a length must not tell who stands beside it."""
    return math.sqrt(8.0 * (max(p, SPARSE_ROWS_AT_MOST) + 16) * UNIT_ROUNDOFF)


def triangle_of(metric: FloatArray) -> FloatArray:
    """The upper triangular R with ‖R x‖ = ‖A x‖ for every x: A = QR."""
    d = metric.shape[1]
    padded = np.vstack([metric, np.zeros((max(0, d - len(metric)), d))])
    return np.asarray(qr(padded, mode="r")[0][:d], dtype=np.float64)


def length_error(triangle: FloatArray) -> float:
    """Of ‖R x‖ per unit of magnitude: that of the factorisation, then of the product."""
    size = float(np.linalg.norm(triangle))
    return float(16.0 * (len(triangle) ** 1.5 + 1.0) * UNIT_ROUNDOFF * size)


def rounded_up(lengths: FloatArray, error: FloatArray) -> FloatArray:
    """lengths + error; infinite where a length overflowed, so that its record is clipped to 0."""
    total = lengths + error
    return np.where(np.isnan(total), np.inf, total)
