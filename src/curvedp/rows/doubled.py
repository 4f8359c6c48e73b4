"""Sums over sparse rows x_i = v_i + g_i·b in twice the working precision.

The stored entries v may undo the centring g·b almost entirely; summed in plain arithmetic, what remains would
be lost. Here every product and every partial sum is an unevaluated pair (hi, lo), so that each result is
rounded once: it errs by u|result| + κ·u·(sizes of what was added), u = 2⁻⁵³, κ = `leftover(k)` for k terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray


def leftover(terms: int) -> float:
    """κ: a sum of that many products leaves an error of κ·u·Σ|product| beside its last rounding."""
    return 8.0 * (terms + 16) * UNIT_ROUNDOFF


def margins(A: Any, g: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """θᵀx_i, shape (n, K)."""
    from curvedp.rows import doubled_kernels as kernels

    out = np.empty((A.shape[0], theta.shape[1]))
    kernels.margins(A.indptr, A.indices, A.data, g, b, np.ascontiguousarray(theta), out)
    return out


def combination(A: Any, g: FloatArray, b: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_i x_i w_iᵀ, shape (d, K)."""
    from curvedp.rows import doubled_kernels as kernels

    K = weights.shape[1]
    hi, lo, total = np.zeros((len(b), K)), np.zeros((len(b), K)), np.zeros((2, K))
    kernels.combine(A.indptr, A.indices, A.data, g, np.ascontiguousarray(weights), hi, lo, total)
    kernels.add_outer(b, total, hi, lo)
    return hi


def gram(A: Any, g: FloatArray, b: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ_i w_i x_i x_iᵀ, shape (d, d), exactly symmetric."""
    from curvedp.rows import doubled_kernels as kernels

    d = len(b)
    hi, lo = np.zeros((d, d)), np.zeros((d, d))
    kernels.gram(A.indptr, A.indices, A.data, weights, hi, lo)
    t_hi, t_lo, total = np.zeros((d, 1)), np.zeros((d, 1)), np.zeros((2, 1))
    kernels.combine(A.indptr, A.indices, A.data, g, (weights * g)[:, None], t_hi, t_lo, total)
    kernels.symmetric(b, t_hi[:, 0], t_lo[:, 0], total[0, 0], total[1, 0], bool(b.any()), hi, lo)
    return hi


def squared_norms(A: Any, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(Σ (v + b)² over the stored entries, Σ b² over the others), for every row."""
    from curvedp.rows import doubled_kernels as kernels

    stored, absent = np.empty(A.shape[0]), np.empty(A.shape[0])
    kernels.squares(A.indptr, A.indices, A.data, b, stored, absent)
    return stored, absent
