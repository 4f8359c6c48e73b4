"""A block: some thousand records, mapped and clipped, and the linear algebra that reductions need of them.

What a record becomes depends on no other record of its block, not even in its last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.sparse import csr_array, issparse

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray
from curvedp.columns import ColumnMap, capped, clip_factors, clip_to_ball
from curvedp.rows import doubled, products

# A factor below this multiplies its row instead of being kept beside it: squares and products of the factors
# that are kept stay far from underflow.
_SMALLEST_FACTOR = 2.0**-100
SPARSE_ROWS_AT_MOST = 2**16  # in one block


class Block(Protocol):
    """Records x_1 … x_n in R^d, all with ‖x_i‖ ≤ B."""

    @property
    def norms(self) -> FloatArray:
        """The length of x_i that clips and histograms see, shape (n,), rounded up at most."""
        ...

    @property
    def magnitudes(self) -> FloatArray:
        """m_i ≥ ‖x_i‖: what rounding errors of sums over the records are proportional to."""
        ...

    @property
    def additions(self) -> int:
        """Additions behind a term of `combine` and of `gram` without weights, at most."""
        ...

    def margins(self, theta: FloatArray) -> FloatArray:
        """θᵀx_i, shape (n, K); the same to the last bit wherever record i stands."""
        ...

    def combine(self, weights: FloatArray) -> FloatArray:
        """Σ_i x_i w_iᵀ, shape (d, K), for weights of shape (n, K)."""
        ...

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """Σ_i w_i x_i x_iᵀ, shape (d, d); w = 1 when None."""
        ...

    def lengths(self, triangle: FloatArray) -> FloatArray:
        """‖R x_i‖ of an upper triangular R, rounded up; ‖A x_i‖ where R = `triangle_of(A)`.

        The same to the last bit wherever record i stands.
        """
        ...

    def rescaled(self, factors: FloatArray | None, norms: FloatArray) -> Block:
        """The records factors_i·x_i, 0 ≤ factors_i ≤ 1 (None: the same), whose lengths are `norms`."""
        ...


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """x_i = f_i·X_i, f = 1 when `factors` is None: X is not copied when all its rows lie within the bound."""

    X: FloatArray
    norms: FloatArray
    factors: FloatArray | None
    magnitudes: FloatArray

    @property
    def additions(self) -> int:
        return products.chain(*self.X.shape)

    def margins(self, theta: FloatArray) -> FloatArray:
        s = products.margins(self.X, theta)
        return s if self.factors is None else np.multiply(s, self.factors[:, None], out=s)

    def combine(self, weights: FloatArray) -> FloatArray:
        return products.combination(self.X, _times(weights, self.factors))

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        if weights is None:
            return products.gram(self.X, self.factors)
        if weights.min(initial=0.0) >= 0.0:  # the symmetric product costs half of the general one
            roots = np.sqrt(weights)
            return products.gram(self.X, roots if self.factors is None else roots * self.factors)
        Z = _times(self.X, self.factors)
        G = (Z * weights[:, None]).T @ Z
        return np.asarray(0.5 * (G + G.T))

    def lengths(self, triangle: FloatArray) -> FloatArray:
        lengths = products.lengths(self.X, triangle)
        if self.factors is not None:
            lengths *= self.factors
        return rounded_up(lengths, length_error(triangle) * self.magnitudes)

    def rescaled(self, factors: FloatArray | None, norms: FloatArray) -> DenseBlock:
        if factors is None:
            return DenseBlock(self.X, norms, self.factors, self.magnitudes)
        return _with_factors(self, factors, norms)

    def chosen(self, rows: BoolArray | slice) -> DenseBlock:
        """Some of the records."""
        factors = None if self.factors is None else self.factors[rows]
        return DenseBlock(self.X[rows], self.norms[rows], factors, self.magnitudes[rows])


def _times(rows: FloatArray, factors: FloatArray | None) -> FloatArray:
    return rows if factors is None else rows * factors[:, None]


def _with_factors(block: DenseBlock, factors: FloatArray, norms: FloatArray) -> DenseBlock:
    """The records factors_i·x_i; the smallest products of factors are moved into their rows."""
    X, before = block.X, block.factors
    both = factors if before is None else before * factors
    tiny = (both < _SMALLEST_FACTOR) & (factors > 0.0)
    if tiny.any():
        X, both = X.copy(), np.where(tiny, 1.0, both)
        X[tiny] = (X[tiny] if before is None else X[tiny] * before[tiny, None]) * factors[tiny, None]
    return DenseBlock(X, norms, both, block.magnitudes * factors)


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """x_i = v_i + g_i·b: v the sparse rows of A; what absent entries are mapped to is an implicit term."""

    A: Any  # scipy.sparse.csr_array, shape (n, p), indices sorted in every row
    g: FloatArray  # (n,)
    b: FloatArray  # (d,), the intercept at its end if there is one
    norms: FloatArray
    sizes: FloatArray  # ‖v_i‖ + g_i‖b‖
    magnitudes: FloatArray

    @property
    def additions(self) -> int:
        return 1  # every sum is rounded once

    def margins(self, theta: FloatArray) -> FloatArray:
        return doubled.margins(self.A, self.g, self.b, theta)

    def combine(self, weights: FloatArray) -> FloatArray:
        return doubled.combination(self.A, self.g, self.b, weights)

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        return doubled.gram(self.A, self.g, self.b, np.ones_like(self.g) if weights is None else weights)

    def lengths(self, triangle: FloatArray) -> FloatArray:
        lengths = products.norms(self.margins(triangle.T))
        # The sizes: entries are rounded when a record is rescaled.
        rounding = 4.0 * UNIT_ROUNDOFF * float(np.linalg.norm(triangle)) * self.sizes
        return rounded_up(lengths, length_error(triangle) * self.magnitudes + rounding)

    def rescaled(self, factors: FloatArray | None, norms: FloatArray) -> SparseBlock:
        if factors is None:
            return replace(self, norms=norms)
        return SparseBlock(
            _scaled(self.A, factors),
            self.g * factors,
            self.b,
            norms,
            self.sizes * factors,
            self.magnitudes * factors,
        )


def _with_data(A: Any, data: FloatArray) -> Any:
    """The sparse matrix with the pattern of A and other entries."""
    return csr_array((data, A.indices, A.indptr), shape=A.shape)


def _scaled(A: Any, factors: FloatArray) -> Any:
    return _with_data(A, A.data * np.repeat(factors, np.diff(A.indptr)))


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
    return _dense_block(X, lost, columns, bound), targets


def _dense_block(
    X: NDArray[np.generic], lost: BoolArray, columns: ColumnMap | None, bound: float
) -> DenseBlock:
    """A view of X where nothing had to change."""
    if columns is not None:
        rows, norms = columns.within(X, bound)
        if lost.any():
            rows[lost], norms[lost] = 0.0, 0.0
        return DenseBlock(rows, norms, None, norms)
    rows, norms, factors = clip_to_ball(np.ascontiguousarray(X, dtype=np.float64), bound)
    if lost.any():
        factors = np.where(lost, 0.0, 1.0 if factors is None else factors)
        norms = np.where(lost, 0.0, norms)
    block = DenseBlock(rows, norms, None, norms)
    return block if factors is None else replace(_with_factors(block, factors, norms), magnitudes=norms)


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
    A = _with_data(X, entries)
    stored, absent = doubled.squared_norms(A, b)
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
    return SparseBlock(_scaled(A, factors), factors * unit, b / unit, norms, sizes, magnitudes)


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
    return math.sqrt(doubled.leftover(max(p, SPARSE_ROWS_AT_MOST)))


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
