"""Compiled loops of `products`. They are imported where they are called: the compiler takes long to load."""

from __future__ import annotations

import numpy as np
from numba import njit

# A row's sum may be reassociated and contracted by the compiler, once and for every row alike: no loop mixes
# rows, so that what a row gives depends on its entries alone.
_steady = njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
# What divides or clips is computed as it is written: reassociated, w·(c/s) becomes (w·c)/s and overflows.
_strict = njit(nogil=True, cache=True, error_model="numpy")
_LEAST_FACTOR = 2.0**-1022  # the smallest number that has all its digits
_LEAST_SQUARE, _LARGEST_SQUARE = 1e-280, 1e300  # a sum of squares between them has lost no term that matters


@_steady
def dot_rows(X, theta, out):  # type: ignore[no-untyped-def]
    n, d = X.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += X[i, j] * theta[j]
        out[i, 0] = total


@_steady
def map_rows(X, theta, out):  # type: ignore[no-untyped-def]
    n, d = X.shape
    for i in range(n):
        for j in range(d):
            x = X[i, j]
            for k in range(theta.shape[1]):
                out[i, k] += x * theta[j, k]


@_steady
def measure_rows(X, columns, out):  # type: ignore[no-untyped-def]
    n, d = X.shape
    whole = d - d % 4
    image = np.empty(d)
    for i in range(n):
        image[:] = 0.0
        x = X[i]
        for j in range(0, whole, 4):  # four columns at a time: a quarter of the traffic with `image`
            a, b, c, e = x[j], x[j + 1], x[j + 2], x[j + 3]
            first, second, third, fourth = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
            for k in range(j + 4):
                image[k] += (first[k] * a + second[k] * b) + (third[k] * c + fourth[k] * e)
        for j in range(whole, d):
            a, first = x[j], columns[j]
            for k in range(j + 1):
                image[k] += first[k] * a
        total = 0.0
        for k in range(d):
            total += image[k] * image[k]
        out[i] = np.sqrt(total)


@_strict
def _scaled_norm(x):  # type: ignore[no-untyped-def]
    """‖x‖ where a square may overflow or vanish; no number or infinite where an entry is."""
    largest, total = 0.0, 0.0
    for k in range(len(x)):
        largest = max(largest, abs(x[k]))
    if largest == 0.0:
        largest = 1.0
    for k in range(len(x)):
        part = x[k] / largest
        total += part * part
    return largest * np.sqrt(total)


@_steady
def norm_rows(X, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        total = 0.0
        for k in range(X.shape[1]):
            total += X[i, k] * X[i, k]
        out[i] = np.sqrt(total) if _LEAST_SQUARE <= total <= _LARGEST_SQUARE else _scaled_norm(X[i])


@_strict
def shorten_rows(weights, norms, lengths, most, out):  # type: ignore[no-untyped-def]
    K = weights.shape[1]
    for i in range(weights.shape[0]):
        size = abs(norms[i]) * lengths[i]
        factor = most / size
        factor = 1.0 if size <= most else factor
        if K == 1:
            out[i, 0] = weights[i, 0] * factor if factor >= _LEAST_FACTOR else 0.0
        else:
            for k in range(K):  # nothing is left of a size that is infinite or no number
                out[i, k] = weights[i, k] * factor if factor >= _LEAST_FACTOR else 0.0


@njit(nogil=True, cache=True, fastmath={"contract"})
def add_rows(X, weights, few, total):  # type: ignore[no-untyped-def]
    n, d = X.shape
    part = np.empty(d)
    for start in range(0, n, few):
        part[:] = 0.0
        stop = min(start + few, n)
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
