"""Compiled loops of `doubled`. They are imported where they are called: the compiler takes long to load."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

# No reassociation: it would cancel the corrections.
_compiled = njit(nogil=True, cache=True)


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
def margins(indptr, indices, data, g, b, theta, out):  # type: ignore[no-untyped-def]
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
def combine(indptr, indices, data, g, weights, hi, lo, total):  # type: ignore[no-untyped-def]
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
def add_outer(b, total, hi, lo):  # type: ignore[no-untyped-def]
    """(hi, lo) += b totalᵀ, rounded into hi."""
    for j in range(hi.shape[0]):
        for k in range(hi.shape[1]):
            s, t = _add(hi[j, k], lo[j, k], b[j], total[0, k])
            hi[j, k] = s + (t + b[j] * total[1, k])


@_compiled
def gram(indptr, indices, data, weights, hi, lo):  # type: ignore[no-untyped-def]
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
def symmetric(b, t_hi, t_lo, total_hi, total_lo, centred, hi, lo):  # type: ignore[no-untyped-def]
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
def squares(indptr, indices, data, b, stored, absent):  # type: ignore[no-untyped-def]
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
