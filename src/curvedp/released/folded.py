"""Quantiles of |N(b, 1)|, for many b at once."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from curvedp.arrays import FloatArray

_STEPS = 20


def folded_quantile(p: FloatArray, bias: FloatArray) -> FloatArray:
    """x with P(|N(b, 1)| > x) = p, for p > 0 and b ≥ 0.

    f(x) = log P(|N(b, 1)| > x) − log p is concave and falls, and f ≤ 0 at b + z_{p/2}: Newton steps from
    there go down to its root and not beyond.
    """
    log_p = np.log(p)
    x = bias - ndtri_exp(log_p - np.log(2.0))
    for _ in range(_STEPS):
        right, left = log_ndtr(bias - x), log_ndtr(-bias - x)
        tail = np.logaddexp(right, left)
        density = np.logaddexp(-0.5 * (x - bias) ** 2, -0.5 * (x + bias) ** 2) - 0.5 * np.log(2.0 * np.pi)
        x = np.maximum(x + (tail - log_p) * np.exp(tail - density), 0.0)
    return np.asarray(x)
