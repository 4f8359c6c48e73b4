"""Compiled loops over the cells of records, imported where they are called: the compiler loads slowly."""

from __future__ import annotations

import numpy as np
from numba import njit

# A sum of squares may be reassociated: the rounding bounds in use hold for every order of summation, and NaN
# and infinity keep their meaning. What divides or clips is computed as it is written, in its own functions.
_summed = njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
_strict = njit(nogil=True, cache=True)


@_strict
def _bounded(x, low, high):  # type: ignore[no-untyped-def]
    return 0.5 * low + 0.5 * high if np.isnan(x) else min(max(x, low), high)


@_strict
def _mapped(x, low, high, center, per_scale):  # type: ignore[no-untyped-def]
    return (_bounded(x, low, high) - center) * per_scale


@_strict
def _ratio(a, b):  # type: ignore[no-untyped-def]
    return a / b


@_strict
def _product(a, b):  # type: ignore[no-untyped-def]
    return a * b


@_strict
def clip_columns(X, low, high, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = _bounded(X[i, j], low[j], high[j])


@_summed
def map_rows(X, low, high, center, per_scale, intercept, safe, out, norms):  # type: ignore[no-untyped-def]
    n, p = X.shape
    for i in range(n):
        total = intercept * intercept
        for j in range(p):
            z = _mapped(X[i, j], low[j], high[j], center[j], per_scale[j])
            out[i, j] = z
            total += z * z
        if out.shape[1] > p:
            out[i, p] = intercept
        norm = np.sqrt(total)
        if norm > safe:
            factor = _ratio(safe, norm)
            for j in range(out.shape[1]):
                out[i, j] = _product(out[i, j], factor)
            norm = safe
        norms[i] = norm


@_summed
def squared_norms(X, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[i, j] * X[i, j]
        out[i] = total
