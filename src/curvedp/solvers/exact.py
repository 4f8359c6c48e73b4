"""The gradient of a quadratic in twice the working precision.

A certificate at conditioning c amplifies the rounding error of the gradient by c, so the gradient is summed
with error-free transformations (Ogita, Rump and Oishi 2005): its error is that of one final rounding.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@intrinsic
def _fma(typingctx, a, b, c):  # type: ignore[no-untyped-def]
    """a·b + c with one rounding."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@_compiled
def _gradient(H, g, center, l2, high, low):  # type: ignore[no-untyped-def]
    d = g.size
    hi = g.copy()
    lo = np.zeros(d)
    size = np.abs(g)
    for j in range(d):
        # θ_j − c_j = t + t_lo without error but for the last bits of t_lo
        t = high[j] - center[j]
        back = t - high[j]
        t_lo = (high[j] - (t - back)) - (center[j] + back) + low[j]
        magnitude = abs(t)
        row = H[j]
        for i in range(d):
            p = row[i] * t
            e = _fma(row[i], t, -p)
            s = hi[i] + p
            b = s - hi[i]
            lo[i] += ((hi[i] - (s - b)) + (p - b)) + e + row[i] * t_lo
            hi[i] = s
            size[i] += abs(row[i]) * magnitude
    for j in range(d):
        p = l2[j] * high[j]
        e = _fma(l2[j], high[j], -p)
        s = hi[j] + p
        b = s - hi[j]
        lo[j] += ((hi[j] - (s - b)) + (p - b)) + e + l2[j] * low[j]
        size[j] += abs(p)
        hi[j] = s + lo[j]
        lo[j] -= hi[j] - s
    return hi, lo, size


def gradient(
    H: FloatArray, g: FloatArray, center: FloatArray, l2: FloatArray, theta: FloatArray, low: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """H(θ + low − center) + g + l2·(θ + low) as an unevaluated sum hi + lo, and a bound on ‖its error‖.

    H must be symmetric. The bound is that of compensated dot products, taken twice: 8(d+4)²u²(|H||u| + |g|).
    """
    hi, lo, size = _gradient(H, g, center, l2, theta, low)
    error = 8.0 * ((g.size + 4) * UNIT_ROUNDOFF) ** 2 * float(np.linalg.norm(size))
    return hi, lo, error


@_compiled
def _is_symmetric(H):  # type: ignore[no-untyped-def]
    d, side = H.shape[0], 16
    for top in range(0, d, side):
        for left in range(0, top + 1, side):
            for i in range(top, min(top + side, d)):
                for j in range(left, min(left + side, i)):
                    if H[i, j] != H[j, i]:
                        return False
    return True


def is_symmetric(H: FloatArray) -> bool:
    """H = Hᵀ to the last bit."""
    return bool(_is_symmetric(H))


def two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(s, e) with s = a + b rounded and s + e = a + b exactly, entry by entry."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)
