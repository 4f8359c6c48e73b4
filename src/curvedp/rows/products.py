"""Products of tall arrays with short chains of additions.

A sum of k products errs by at most about k·2⁻⁵³ of the sum of their sizes, in whatever order a library adds
them. Adding up a few rows at a time, and then those sums, makes k much smaller than the number of rows.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy.linalg.blas import dsyrk

from curvedp.arrays import FloatArray

_FEW = 64  # rows that a matrix-vector product adds up at a time
_SOME, _MORE = 128, 256  # rows of a matrix product, for few and for many columns
_MANY_COLUMNS = 100


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
    _add_rows(X, weights, total)
    return total


def gram(Z: FloatArray) -> FloatArray:
    """Σ_i z_i z_iᵀ of the rows of Z, exactly symmetric."""
    if Z.shape[1] < _MANY_COLUMNS:
        return _stepped(Z, Z, _SOME)
    upper = np.zeros((Z.shape[1],) * 2, order="F")
    for start in range(0, len(Z), _MORE):
        upper += dsyrk(1.0, Z[start : start + _MORE].T)
    return np.asarray(np.triu(upper) + np.triu(upper, 1).T)


def _stepped(X: FloatArray, W: FloatArray, step: int) -> FloatArray:
    """XᵀW, `step` rows at a time."""
    whole = len(X) - len(X) % step
    total = np.asarray(X[whole:].T @ W[whole:])
    if whole:
        left = X[:whole].reshape(-1, step, X.shape[1])
        right = left if W is X else W[:whole].reshape(-1, step, W.shape[1])
        total += np.matmul(left.transpose(0, 2, 1), right).sum(axis=0)
    return total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_rows(X, weights, total):  # type: ignore[no-untyped-def]
    n, d = X.shape
    part = np.empty(d)
    for start in range(0, n, _FEW):
        part[:] = 0.0
        stop = min(start + _FEW, n)
        for i in range(start, stop - 1, 2):  # in pairs: half the traffic with `part`
            v, w = weights[i, 0], weights[i + 1, 0]
            for j in range(d):
                part[j] += v * X[i, j] + w * X[i + 1, j]
        if (stop - start) % 2:
            w = weights[stop - 1, 0]
            for j in range(d):
                part[j] += w * X[stop - 1, j]
        for j in range(d):
            total[j, 0] += part[j]
