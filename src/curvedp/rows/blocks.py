"""A block: some thousand records, mapped and clipped, and the linear algebra that reductions need of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.linalg.blas import dtrmm
from scipy.sparse import csr_array

from curvedp.domain import LARGEST_ENTRY, UNIT_ROUNDOFF, ColumnMap, FloatArray, clip_factors, clip_to_ball


class Block(Protocol):
    """Records x_1 … x_n in R^d, all with ‖x_i‖ ≤ B."""

    @property
    def norms(self) -> FloatArray:
        """‖x_i‖, shape (n,), rounded up at most."""
        ...

    @property
    def magnitudes(self) -> FloatArray:
        """m_i ≥ ‖x_i‖: the size of what is added up to make x_i; rounding errors are proportional to it."""
        ...

    def margins(self, theta: FloatArray) -> FloatArray:
        """θᵀx_i, shape (n, K)."""
        ...

    def combine(self, weights: FloatArray) -> FloatArray:
        """Σ_i x_i w_iᵀ, shape (d, K), for weights of shape (n, K)."""
        ...

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """Σ_i w_i x_i x_iᵀ, shape (d, d); w = 1 when None."""
        ...


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """x_i = f_i·X_i, f = 1 when `factors` is None: X is not copied when all its rows lie within the bound."""

    X: FloatArray
    norms: FloatArray
    factors: FloatArray | None

    @property
    def magnitudes(self) -> FloatArray:
        return self.norms

    def margins(self, theta: FloatArray) -> FloatArray:
        s = self.X @ theta
        return s if self.factors is None else np.multiply(s, self.factors[:, None], out=s)

    def combine(self, weights: FloatArray) -> FloatArray:
        w = weights if self.factors is None else weights * self.factors[:, None]
        return np.asarray(self.X.T @ w)

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        if weights is None:
            return _square(self.X if self.factors is None else self.X * self.factors[:, None])
        w = weights if self.factors is None else weights * np.square(self.factors)
        if w.min(initial=0.0) >= 0.0:  # the symmetric product costs half of the general one
            return _square(self.X * np.sqrt(w)[:, None])
        G = (self.X * w[:, None]).T @ self.X
        return np.asarray(0.5 * (G + G.T))


def _square(Z: FloatArray) -> FloatArray:
    return np.asarray(Z.T @ Z)


def dense_block(X: NDArray[np.generic], columns: ColumnMap | None, bound: float) -> DenseBlock:
    """Records mapped by `columns` and clipped to ‖x‖ ≤ bound; a view of X where nothing had to change."""
    if columns is None:
        return DenseBlock(*clip_to_ball(np.ascontiguousarray(X, dtype=np.float64), bound))
    return DenseBlock(*columns.within(X, bound), factors=None)


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """x_i = f_i·(A_i + b, c): sparse rows A; centring b and intercept c are an implicit rank-one term."""

    A: Any  # scipy.sparse.csr_array, shape (n, p)
    b: FloatArray  # (p,): what an absent entry is mapped to
    c: float  # 0: no intercept column
    factors: FloatArray
    norms: FloatArray
    magnitudes: FloatArray

    def margins(self, theta: FloatArray) -> FloatArray:
        p = len(self.b)
        constant = self.b @ theta[:p]
        if self.c:
            constant = constant + self.c * theta[p]
        return np.asarray(self.factors[:, None] * (self.A @ theta[:p] + constant))

    def combine(self, weights: FloatArray) -> FloatArray:
        w = weights * self.factors[:, None]
        total = w.sum(axis=0)
        inputs = self.A.T @ w + np.outer(self.b, total)
        return np.vstack([inputs, self.c * total]) if self.c else np.asarray(inputs)

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        w = np.square(self.factors) if weights is None else weights * np.square(self.factors)
        t, total, p = self.A.T @ w, float(w.sum()), len(self.b)
        G = np.empty((p + 1, p + 1)) if self.c else np.empty((p, p))
        inputs = G[:p, :p]
        weighted = _with_data(self.A, self.A.data * np.repeat(w, np.diff(self.A.indptr)))
        inputs[:] = (self.A.T @ weighted).toarray()
        inputs += np.outer(2.0 * t + total * self.b, self.b)  # symmetrised below
        if self.c:
            G[:p, p] = G[p, :p] = self.c * (t + total * self.b)
            G[p, p] = self.c**2 * total
        return np.asarray(0.5 * (G + G.T))


def _with_data(A: Any, data: FloatArray) -> Any:
    """The sparse matrix with the pattern of A and other entries."""
    return csr_array((data, A.indices, A.indptr), shape=A.shape)


def sparse_block(X: Any, columns: ColumnMap | None, bound: float) -> SparseBlock:
    """Rows of a csr_array mapped by `columns` and clipped to ‖x‖ ≤ bound, never densified.

    An absent entry is 0 and becomes b = (clip(0) − center)/scale; a stored x adds (clip(x) − clip(0))/scale.
    """
    n, p = X.shape
    at = X.indices
    entries = np.asarray(X.data, dtype=np.float64)
    if columns is None:
        b, c = np.zeros(p), 0.0
        entries = np.clip(np.where(np.isnan(entries), 0.0, entries), -LARGEST_ENTRY, LARGEST_ENTRY)
    else:
        absent = np.clip(0.0, columns.low, columns.high)
        b, c = (absent - columns.center) / columns.scale, columns.intercept
        middle = 0.5 * columns.low + 0.5 * columns.high
        entries = np.where(np.isnan(entries), middle[at], entries)
        entries = (np.clip(entries, columns.low[at], columns.high[at]) - absent[at]) / columns.scale[at]

    def per_row(values: FloatArray) -> FloatArray:
        return np.asarray(_with_data(X, values) @ np.ones(p))

    constant = float(b @ b) + c**2
    stored, replaced = per_row(np.square(entries + b[at])), per_row(np.square(b[at]))
    # The norm is rounded up: where stored entries undo the centring, the difference below cancels.
    rounding = 4 * (p + 16) * UNIT_ROUNDOFF * (stored + replaced + constant)
    squares = np.maximum(stored + (constant - replaced), 0.0) + np.where(constant > 0, rounding, 0.0)
    norms, factors = clip_factors(np.sqrt(squares), bound, p)
    factors = np.ones(n) if factors is None else factors
    magnitudes = factors * (np.sqrt(per_row(np.square(entries))) + math.sqrt(constant))
    return SparseBlock(_with_data(X, entries), b, c, factors, norms, magnitudes)


@dataclass(frozen=True, eq=False)
class MeasuredBlock:
    """The records f_i·x_i of `block` (f = 1 when `factors` is None), their lengths measured another way."""

    block: Block
    norms: FloatArray
    factors: FloatArray | None

    @property
    def magnitudes(self) -> FloatArray:
        return self.block.magnitudes

    def margins(self, theta: FloatArray) -> FloatArray:
        s = self.block.margins(theta)
        return s if self.factors is None else np.asarray(s * self.factors[:, None])

    def combine(self, weights: FloatArray) -> FloatArray:
        return self.block.combine(weights if self.factors is None else weights * self.factors[:, None])

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        if self.factors is None:
            return self.block.gram(weights)
        squares = np.square(self.factors)
        return self.block.gram(squares if weights is None else weights * squares)


def triangle_of(metric: FloatArray) -> FloatArray:
    """The upper triangular R with ‖R x‖ = ‖A x‖ for every x: A = QR."""
    d = metric.shape[1]
    padded = np.vstack([metric, np.zeros((max(0, d - len(metric)), d))])
    return np.asarray(qr(padded, mode="r")[0][:d], dtype=np.float64)


def metric_norms(block: Block, triangle: FloatArray) -> FloatArray:
    """‖A x_i‖ by R = `triangle_of(A)`, rounded up.

    The error is at most (16d^{3/2} + 16)·2⁻⁵³·‖R‖_F·m_i: that of the factorisation, then of the product.
    """
    if isinstance(block, DenseBlock):  # half the work of a general product
        images = dtrmm(1.0, triangle, block.X.T)
        lengths = np.sqrt(np.einsum("ij,ij->j", images, images))
        if block.factors is not None:
            lengths *= block.factors
    else:
        images = block.margins(np.ascontiguousarray(triangle.T))
        lengths = np.sqrt(np.einsum("ij,ij->i", images, images))
    slack = 16.0 * (len(triangle) ** 1.5 + 1.0) * UNIT_ROUNDOFF * float(np.linalg.norm(triangle))
    return np.asarray(lengths + slack * block.magnitudes)
