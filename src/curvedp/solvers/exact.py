"""The gradient of a quadratic in twice the working precision.

A certificate at conditioning c amplifies the rounding error of the gradient by c, so the gradient is summed
with error-free transformations (Ogita, Rump and Oishi 2005): its error is that of one final rounding.
"""

from __future__ import annotations

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray


def gradient(
    H: FloatArray, g: FloatArray, center: FloatArray, l2: FloatArray, theta: FloatArray, low: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """H(θ + low − center) + g + l2·(θ + low) as an unevaluated sum hi + lo, and a bound on ‖its error‖.

    H must be symmetric. The bound is that of compensated dot products, taken twice: 8(d+4)²u²(|H||u| + |g|).
    """
    from curvedp.solvers import exact_kernels

    hi, lo, size = exact_kernels.gradient(H, g, center, l2, theta, low)
    error = 8.0 * ((g.size + 4) * UNIT_ROUNDOFF) ** 2 * float(np.linalg.norm(size))
    return hi, lo, error


def is_symmetric(H: FloatArray) -> bool:
    """H = Hᵀ to the last bit."""
    from curvedp.solvers import exact_kernels

    return bool(exact_kernels.is_symmetric(H))


def two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(s, e) with s = a + b rounded and s + e = a + b exactly, entry by entry."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)
