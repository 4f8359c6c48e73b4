"""Products of tall arrays: sums over rows with short chains of additions, and steady numbers of single rows.

A sum of k products errs by at most about k·2⁻⁵³ of the sum of their sizes, in whatever order a library adds
them. Adding up a few rows at a time, and then those sums, makes k much smaller than the number of rows.

Steady: what a row gives is the same to its last bit wherever the row stands and whatever stands beside it. A
matrix product of a library does not promise that; a comparison of two such numbers needs it (P-9).
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from types import ModuleType

import numpy as np
from scipy.linalg.blas import dsyrk

from curvedp.arrays import FloatArray

_FEW = 64  # rows that a matrix-vector product adds up at a time
_SOME, _MORE = 128, 256  # rows of a matrix product, for few and for many columns
_MANY_COLUMNS = 100


@cache
def _kernels() -> ModuleType:
    """The compiled loops, loaded when they are needed first: the compiler takes long to load."""
    from curvedp.rows import kernels

    return kernels


@lru_cache(maxsize=256)
def chain(n: int, d: int) -> int:
    """Additions that a term of a sum over n rows of d columns meets at most."""
    steps = (_FEW, _SOME if d < _MANY_COLUMNS else _MORE)
    return min(n, max(step + math.ceil(n / step) for step in steps))


def combination(X: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_i x_i w_iᵀ, shape (d, K), of rows x_i of X (n, d) and w_i of `weights` (n, K)."""
    if weights.shape[1] > 1:
        return _stepped(X, weights, _SOME)
    if X.shape[1] == 1:  # numpy adds in pairs
        return np.array([[np.sum(X[:, 0] * weights[:, 0])]])
    total = np.zeros((X.shape[1], 1))
    _kernels().add_rows(X, weights, _FEW, total)
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


def _stepped(X: FloatArray, W: FloatArray, step: int) -> FloatArray:
    """XᵀW, `step` rows at a time."""
    whole = len(X) - len(X) % step
    total = np.asarray(X[whole:].T @ W[whole:])
    if whole:
        left = X[:whole].reshape(-1, step, X.shape[1])
        right = W[:whole].reshape(-1, step, W.shape[1])
        total += np.matmul(left.transpose(0, 2, 1), right).sum(axis=0)
    return total


def margins(X: FloatArray, theta: FloatArray) -> FloatArray:
    """θᵀx of every row, shape (n, K); steady."""
    out = np.zeros((len(X), theta.shape[1]))
    if theta.shape[1] == 1:
        _kernels().dot_rows(X, np.ascontiguousarray(theta[:, 0]), out)
    else:
        _kernels().map_rows(X, np.ascontiguousarray(theta), out)
    return out


def lengths(X: FloatArray, triangle: FloatArray) -> FloatArray:
    """‖R x‖ of every row, R upper triangular; steady. In the given coordinates (R = ±1) that is ‖x‖."""
    if np.array_equal(np.abs(triangle), np.eye(len(triangle))):
        return norms(X)
    out = np.empty(len(X))
    _kernels().measure_rows(X, np.ascontiguousarray(np.triu(triangle).T), out)
    return out


def norms(X: FloatArray) -> FloatArray:
    """‖x‖ of every row; steady. No square overflows or vanishes."""
    out = np.empty(len(X))
    _kernels().norm_rows(X, out)
    return out


def shortened(weights: FloatArray, lengths: FloatArray, most: float) -> FloatArray:
    """w_i·min(1, most/(lengths_i·‖w_i‖)) of the rows w_i of `weights` (n, K); steady.

    0 where lengths_i·‖w_i‖ is infinite or no number.
    """
    out = np.empty_like(weights)
    sizes = weights[:, 0] if weights.shape[1] == 1 else norms(weights)
    _kernels().shorten_rows(weights, sizes, lengths, most, out)
    return out
