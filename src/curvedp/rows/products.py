"""Products of tall arrays: sums over rows with short chains of additions, and steady numbers of single rows.

A sum of k products errs by at most about k·2⁻⁵³ of the sum of their sizes, in whatever order a library adds
them. Adding up a few rows at a time, and then those sums, makes k much smaller than the number of rows.

Steady: what a row gives is the same to its last bit wherever the row stands and whatever stands beside it. A
matrix product of a library does not promise that; a comparison of two such numbers needs it (P-10).
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


def margins(X: FloatArray, theta: FloatArray) -> FloatArray:
    """θᵀx of every row, shape (n, K); steady."""
    out = np.zeros((len(X), theta.shape[1]))
    if theta.shape[1] == 1:
        _dot_rows(X, np.ascontiguousarray(theta[:, 0]), out)
    else:
        _map_rows(X, np.ascontiguousarray(theta), out)
    return out


def lengths(X: FloatArray, triangle: FloatArray) -> FloatArray:
    """‖R x‖ of every row, R upper triangular; steady."""
    out = np.empty(len(X))
    _measure_rows(X, np.ascontiguousarray(triangle.T), out)
    return out


def norms(X: FloatArray) -> FloatArray:
    """‖x‖ of every row; steady."""
    out = np.empty(len(X))
    _norm_rows(X, out)
    return out


# Neither reassociated nor contracted: one order of operations for every row.
@njit(nogil=True, cache=True)
def _dot_rows(X, theta, out):  # type: ignore[no-untyped-def]
    n, d = X.shape
    whole = d - d % 4
    for i in range(n):
        a = b = c = e = 0.0  # four sums at a time: as fast as a library
        for j in range(0, whole, 4):
            a += X[i, j] * theta[j]
            b += X[i, j + 1] * theta[j + 1]
            c += X[i, j + 2] * theta[j + 2]
            e += X[i, j + 3] * theta[j + 3]
        for j in range(whole, d):
            a += X[i, j] * theta[j]
        out[i, 0] = (a + b) + (c + e)


@njit(nogil=True, cache=True)
def _map_rows(X, theta, out):  # type: ignore[no-untyped-def]
    n, d = X.shape
    for i in range(n):
        for j in range(d):
            x = X[i, j]
            for k in range(theta.shape[1]):
                out[i, k] += x * theta[j, k]


@njit(nogil=True, cache=True)
def _measure_rows(X, columns, out):  # type: ignore[no-untyped-def]
    n, d = X.shape
    image = np.empty(d)
    for i in range(n):
        image[:] = 0.0
        for j in range(d):
            x, column = X[i, j], columns[j]
            for k in range(j + 1):
                image[k] += column[k] * x
        total = 0.0
        for k in range(d):
            total += image[k] * image[k]
        out[i] = np.sqrt(total)


@njit(nogil=True, cache=True)
def _norm_rows(X, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        total = 0.0
        for k in range(X.shape[1]):
            total += X[i, k] * X[i, k]
        out[i] = np.sqrt(total)


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
