"""Compiled loops of `exact`. They are imported where they are called: the compiler takes long to load."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@intrinsic
def _fma(typingctx, a, b, c):  # type: ignore[no-untyped-def]
    """a·b + c with one rounding."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@_compiled
def gradient(H, g, center, l2, high, low):  # type: ignore[no-untyped-def]
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


@_compiled
def is_symmetric(H):  # type: ignore[no-untyped-def]
    d, side = H.shape[0], 16
    for top in range(0, d, side):
        for left in range(0, top + 1, side):
            for i in range(top, min(top + side, d)):
                for j in range(left, min(left + side, i)):
                    if H[i, j] != H[j, i]:
                        return False
    return True
