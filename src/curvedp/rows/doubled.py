"""Sums over sparse rows x_i = v_i + g_i·b in twice the working precision.

The stored entries v may undo the centring g·b almost entirely; summed in plain arithmetic, what remains would
be lost. Here every product and every partial sum is an unevaluated pair (hi, lo), so that each result is
rounded once: it errs by u|result| + κ·u·(sizes of what was added), u = 2⁻⁵³, κ = `leftover(k)` for k terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray

# No reassociation: it would cancel the corrections.
_compiled = njit(nogil=True, cache=True)


def leftover(terms: int) -> float:
    """κ: a sum of that many products leaves an error of κ·u·Σ|product| beside its last rounding."""
    return 8.0 * (terms + 16) * UNIT_ROUNDOFF


@intrinsic
def _fma(context, a, b, c):  # type: ignore[no-untyped-def]
    """a·b + c, rounded once."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


@_compiled
def _add(hi, lo, a, b):  # type: ignore[no-untyped-def]
    """(hi, lo) + a·b, the error of the sum by Knuth; hi is the rounded value of hi + lo again."""
    product = a * b
    total = hi + product
    z = total - hi
    low = lo + (_fma(a, b, -product) + ((hi - (total - z)) + (product - z)))
    hi = total + low
    return hi, low - (hi - total)


@_compiled
def _add_loosely(hi, lo, a, b):  # type: ignore[no-untyped-def]
    """(hi, lo) + a·b without the last step: shorter chains, κ = k² u, enough for the margin of one record."""
    product = a * b
    total = hi + product
    z = total - hi
    return total, lo + (_fma(a, b, -product) + ((hi - (total - z)) + (product - z)))


@_compiled
def _margins(indptr, indices, data, g, b, theta, out):  # type: ignore[no-untyped-def]
    K = theta.shape[1]
    base = np.zeros((2, K))
    for j in range(len(b)):
        for k in range(K):
            base[0, k], base[1, k] = _add(base[0, k], base[1, k], b[j], theta[j, k])
    if K == 1:
        for i in range(len(indptr) - 1):
            hi, lo = _add_loosely(0.0, g[i] * base[1, 0], g[i], base[0, 0])
            for e in range(indptr[i], indptr[i + 1]):
                hi, lo = _add_loosely(hi, lo, data[e], theta[indices[e], 0])
            out[i, 0] = hi + lo
        return
    his, los = np.empty(K), np.empty(K)
    for i in range(len(indptr) - 1):
        for k in range(K):
            his[k], los[k] = _add_loosely(0.0, g[i] * base[1, k], g[i], base[0, k])
        for e in range(indptr[i], indptr[i + 1]):
            v, row = data[e], theta[indices[e]]
            for k in range(K):
                his[k], los[k] = _add_loosely(his[k], los[k], v, row[k])
        for k in range(K):
            out[i, k] = his[k] + los[k]


@_compiled
def _combine(indptr, indices, data, g, weights, hi, lo, total):  # type: ignore[no-untyped-def]
    """(hi, lo) += Σ_i v_i w_iᵀ, total += Σ_i g_i w_i."""
    for i in range(len(indptr) - 1):
        for k in range(weights.shape[1]):
            w = weights[i, k]
            if w != 0.0:
                for e in range(indptr[i], indptr[i + 1]):
                    j = indices[e]
                    hi[j, k], lo[j, k] = _add(hi[j, k], lo[j, k], data[e], w)
                total[0, k], total[1, k] = _add(total[0, k], total[1, k], g[i], w)


@_compiled
def _add_outer(b, total, hi, lo):  # type: ignore[no-untyped-def]
    """(hi, lo) += b totalᵀ, rounded into hi."""
    for j in range(hi.shape[0]):
        for k in range(hi.shape[1]):
            s, t = _add(hi[j, k], lo[j, k], b[j], total[0, k])
            hi[j, k] = s + (t + b[j] * total[1, k])


@_compiled
def _gram(indptr, indices, data, weights, hi, lo):  # type: ignore[no-untyped-def]
    """The lower triangle of Σ_i w_i v_i v_iᵀ; columns of a row increase."""
    for i in range(len(indptr) - 1):
        w = weights[i]
        if w != 0.0:
            for e in range(indptr[i], indptr[i + 1]):
                a, j = w * data[e], indices[e]
                for f in range(indptr[i], e + 1):
                    k = indices[f]
                    hi[j, k], lo[j, k] = _add(hi[j, k], lo[j, k], a, data[f])


@_compiled
def _symmetric(b, t_hi, t_lo, total_hi, total_lo, centred, hi, lo):  # type: ignore[no-untyped-def]
    """(hi, lo) + t bᵀ + b tᵀ + total·b bᵀ from its lower triangle, rounded into hi."""
    for j in range(len(b)):
        u_hi, u_lo = _add(0.0, 0.0, total_hi, b[j])
        u_lo += total_lo * b[j]
        for k in range(j + 1):
            s, t = hi[j, k], lo[j, k]
            if centred:
                s, t = _add(s, t, t_hi[j], b[k])
                s, t = _add(s, t, b[j], t_hi[k])
                s, t = _add(s, t, u_hi, b[k])
                t += t_lo[j] * b[k] + b[j] * t_lo[k] + u_lo * b[k]
            hi[j, k] = s + t
            hi[k, j] = hi[j, k]


@_compiled
def _squares(indptr, indices, data, b, stored, absent):  # type: ignore[no-untyped-def]
    """Of each row, Σ (v_j + b_j)² over its stored entries, and Σ b_j² over all others."""
    hi, lo = 0.0, 0.0
    for j in range(len(b)):
        hi, lo = _add(hi, lo, b[j], b[j])
    for i in range(len(indptr) - 1):
        total, s, t = 0.0, hi, lo
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            x = data[e] + b[j]
            total += x * x
            s, t = _add(s, t, -b[j], b[j])
        stored[i], absent[i] = total, max(s + t, 0.0)


def margins(A: Any, g: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """θᵀx_i, shape (n, K)."""
    out = np.empty((A.shape[0], theta.shape[1]))
    _margins(A.indptr, A.indices, A.data, g, b, np.ascontiguousarray(theta), out)
    return out


def combination(A: Any, g: FloatArray, b: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_i x_i w_iᵀ, shape (d, K)."""
    K = weights.shape[1]
    hi, lo, total = np.zeros((len(b), K)), np.zeros((len(b), K)), np.zeros((2, K))
    _combine(A.indptr, A.indices, A.data, g, np.ascontiguousarray(weights), hi, lo, total)
    _add_outer(b, total, hi, lo)
    return hi


def gram(A: Any, g: FloatArray, b: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_i w_i x_i x_iᵀ, shape (d, d), exactly symmetric."""
    d = len(b)
    hi, lo = np.zeros((d, d)), np.zeros((d, d))
    _gram(A.indptr, A.indices, A.data, weights, hi, lo)
    t_hi, t_lo, total = np.zeros((d, 1)), np.zeros((d, 1)), np.zeros((2, 1))
    _combine(A.indptr, A.indices, A.data, g, (weights * g)[:, None], t_hi, t_lo, total)
    _symmetric(b, t_hi[:, 0], t_lo[:, 0], total[0, 0], total[1, 0], bool(b.any()), hi, lo)
    return hi


def squared_norms(A: Any, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(Σ (v + b)² over the stored entries, Σ b² over the others), for every row."""
    stored, absent = np.empty(A.shape[0]), np.empty(A.shape[0])
    _squares(A.indptr, A.indices, A.data, b, stored, absent)
    return stored, absent
