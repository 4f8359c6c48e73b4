"""Compiled loops over the rows of one person after another. Imported where they are called, like `kernels`.

Neither reassociated nor contracted: what a person gives is a function of the person's own rows, to the last
bit, wherever they stand (U-1).
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def sum_persons(X, weights, starts, out):  # type: ignore[no-untyped-def]
    """out[i, k] = Σ_{r of person i} w[r, k]·x_r; out starts at 0."""
    d = X.shape[1]
    for i in range(len(starts) - 1):
        for k in range(weights.shape[1]):
            total = out[i, k]
            for r in range(starts[i], starts[i + 1]):
                w = weights[r, k]
                for j in range(d):
                    total[j] += w * X[r, j]


@njit(nogil=True, cache=True)
def sum_squares(values, starts, out):  # type: ignore[no-untyped-def]
    """out[i] = Σ_{r of person i} v_r²."""
    for i in range(len(starts) - 1):
        total = 0.0
        for r in range(starts[i], starts[i + 1]):
            total += values[r] * values[r]
        out[i] = total


@njit(nogil=True, cache=True)
def measure_persons(X, factors, columns, starts, out):  # type: ignore[no-untyped-def]
    """out[i] = ‖Σ_{r of i} z_r z_rᵀ‖_F^½, z_r = f_r·R x_r, `columns` = Rᵀ; scaled by the longest z_r."""
    d = X.shape[1]
    gram = np.empty((d, d))
    for i in range(len(starts) - 1):
        start, k = starts[i], starts[i + 1] - starts[i]
        Z, longest = np.zeros((k, d)), 0.0
        for r in range(k):
            z = Z[r]
            for j in range(d):
                x, column = X[start + r, j] * factors[start + r], columns[j]
                for l in range(j + 1):
                    z[l] += column[l] * x
            square = 0.0
            for l in range(d):
                square += z[l] * z[l]
            longest = max(longest, np.sqrt(square)) if square == square else np.inf
        if k == 1 or longest == 0.0 or not np.isfinite(longest):
            out[i] = longest
            continue
        Z /= longest
        total = 0.0
        if k <= d:
            for r in range(k):
                for s in range(r + 1):
                    dot = 0.0
                    for l in range(d):
                        dot += Z[r, l] * Z[s, l]
                    total += dot * dot if r == s else 2.0 * dot * dot
        else:
            gram[:] = 0.0
            for r in range(k):
                for l in range(d):
                    z, row = Z[r, l], gram[l]
                    for j in range(l + 1):
                        row[j] += z * Z[r, j]
            for l in range(d):
                for j in range(l + 1):
                    total += gram[l, j] * gram[l, j] * (1.0 if l == j else 2.0)
        out[i] = longest * np.sqrt(np.sqrt(total))


_AT_ONCE = 8


@njit(nogil=True, cache=True)
def measure_sums(sums, triangle, lengths, sizes):  # type: ignore[no-untyped-def]
    """‖R G_i‖ and ‖G_i‖ of every (K, d) array, a few persons at a time, each in one order of operations."""
    p, K, d = sums.shape
    own, image = np.zeros((d, _AT_ONCE)), np.zeros(_AT_ONCE)
    squares, raw = np.zeros(_AT_ONCE), np.zeros(_AT_ONCE)
    for first in range(0, p, _AT_ONCE):
        some = min(_AT_ONCE, p - first)
        squares[:] = 0.0
        raw[:] = 0.0
        for k in range(K):
            for b in range(some):
                for j in range(d):
                    own[j, b] = sums[first + b, k, j]
            for i in range(d):
                image[:] = 0.0
                for j in range(i, d):
                    r = triangle[i, j]
                    for b in range(_AT_ONCE):
                        image[b] += r * own[j, b]
                for b in range(_AT_ONCE):
                    squares[b] += image[b] * image[b]
                    raw[b] += own[i, b] * own[i, b]
        for b in range(some):
            lengths[first + b] = np.sqrt(squares[b])
            sizes[first + b] = np.sqrt(raw[b])
