"""Compiled loops over records. They are imported where they are called: the compiler takes long to load."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

# A row's sum may be reassociated and contracted by the compiler, once and for every row alike: no loop mixes
# rows, so that what a row gives depends on its entries alone.
_steady = njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
# What divides or clips is computed as it is written: reassociated, w·(c/s) becomes (w·c)/s and overflows.
_strictly = njit(nogil=True, cache=True, error_model="numpy")
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


@_strictly
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


@_strictly
def shorten_rows(weights, norms, lengths, most, out):  # type: ignore[no-untyped-def]
    K = weights.shape[1]
    for i in range(weights.shape[0]):
        size = abs(norms[i]) * lengths[i]
        factor = most / size
        factor = 1.0 if size <= most else factor
        if K == 1:  # four times as fast as the loop
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


# Sparse rows in twice the working precision, for `blocks.SparseBlock`.


# No reassociation: it would cancel the corrections.
_compiled = njit(nogil=True, cache=True)


@intrinsic
def fma(context, a, b, c):  # type: ignore[no-untyped-def]
    """a·b + c, rounded once."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


@_compiled
def _add_loosely(hi, lo, a, b):  # type: ignore[no-untyped-def]
    """(hi, lo) + a·b, the error of the sum by Knuth: κ = k² u, enough for the margin of one record."""
    product = a * b
    total = hi + product
    z = total - hi
    return total, lo + (fma(a, b, -product) + ((hi - (total - z)) + (product - z)))


@_compiled
def _add(hi, lo, a, b):  # type: ignore[no-untyped-def]
    """The same, and hi is the rounded value of hi + lo again: longer chains."""
    total, low = _add_loosely(hi, lo, a, b)
    hi = total + low
    return hi, low - (hi - total)


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


# One person's rows after another's.
#
# Neither reassociated nor contracted: what a person gives is a function of the person's own rows, to the last
# bit, wherever they stand (U-1).


@_compiled
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


@_compiled
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


@_compiled
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


# Cells of records, mapped and clipped.
#
# A sum of squares may be reassociated: the rounding bounds in use hold for every order of summation, and NaN
# and infinity keep their meaning. What divides or clips is computed as it is written, in its own functions.


@_compiled
def _bounded(x, low, high):  # type: ignore[no-untyped-def]
    return 0.5 * low + 0.5 * high if np.isnan(x) else min(max(x, low), high)


@_compiled
def _mapped(x, low, high, center, per_scale):  # type: ignore[no-untyped-def]
    return (_bounded(x, low, high) - center) * per_scale


@_compiled
def _shorten(row, length, most):  # type: ignore[no-untyped-def]
    factor = most / length
    for j in range(len(row)):
        row[j] *= factor


@_compiled
def clip_columns(X, low, high, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = _bounded(X[i, j], low[j], high[j])


@_steady
def map_cells(X, low, high, center, per_scale, intercept, safe, out, norms):  # type: ignore[no-untyped-def]
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
            _shorten(out[i], norm, safe)
            norm = safe
        norms[i] = norm
