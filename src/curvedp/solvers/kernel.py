"""Compiled loops, imported where they are called, since the compiler takes long to load: the gradient of
a certificate, and a separable quadratic's minimiser: coordinate descent, then Cholesky on the free face.

    min_u  ½ uᵀHu + gᵀu + Σ_j l1_j |u_j − kink_j|   subject to   low_j ≤ u_j ≤ high_j,   H ≻ 0

with u = θ − center, so that the kink of |θ_j| is at −center_j.

Every coordinate carries a status (free, at its kink, at its lower or upper bound), so that no decision rests
on comparing floating-point numbers. Each move lowers the objective: a sweep minimises exactly in every
coordinate, a face step minimises exactly along the Newton direction of the free coordinates, and a face
is left only after its minimiser was reached. No face can therefore come back, and the method ends.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from curvedp.data.kernels import fma

FREE, KINK, LOWER, UPPER = 0, 1, 2, 3  # statuses of a coordinate
_SWEEPS = 12  # sweeps before a face step, at most; fewer once the statuses settle
_EPS = 2.0**-52  # spacing of doubles at 1

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _gradient(H, g, u, grad):  # type: ignore[no-untyped-def]
    """grad = Hu + g, H symmetric."""
    for i in range(u.size):
        grad[i] = g[i]
    for j in range(u.size):
        if u[j] != 0.0:
            for i in range(u.size):
                grad[i] += u[j] * H[j, i]


@_compiled
def _sweep(H, g, kink, l1, low, high, u, grad, status):  # type: ignore[no-untyped-def]
    """Minimise exactly in each coordinate in turn; returns how many statuses changed."""
    changes = 0
    for j in range(u.size):
        h = H[j, j]
        w = u[j] - grad[j] / h - kink[j]
        t = l1[j] / h
        if l1[j] > 0.0 and abs(w) <= t:
            v, new = kink[j], KINK
        else:
            v, new = (w - t if w > 0.0 else w + t) + kink[j], FREE
        if v <= low[j]:
            v, new = low[j], LOWER
        elif v >= high[j]:
            v, new = high[j], UPPER
        if new != status[j]:
            changes += 1
            status[j] = new
        step = v - u[j]
        if step != 0.0:
            u[j] = v
            for i in range(u.size):
                grad[i] += step * H[j, i]
    return changes


@_compiled
def _slope(kink, l1, u, grad, j):  # type: ignore[no-untyped-def]
    """Derivative in a free coordinate: grad_j ± l1_j by the side of the kink."""
    if u[j] > kink[j]:
        return grad[j] + l1[j]
    if u[j] < kink[j]:
        return grad[j] - l1[j]
    return grad[j] - min(max(grad[j], -l1[j]), l1[j])


@_compiled
def _solve_face(H, free, rhs):  # type: ignore[no-untyped-def]
    """H_FF⁻¹ rhs by Cholesky; the flag is False when H_FF is not numerically positive definite."""
    f = free.size
    A = np.empty((f, f))
    for a in range(f):
        row = H[free[a]]
        for b in range(a + 1):  # the factorisation reads the lower triangle
            A[a, b] = row[free[b]]
        A[a, a + 1 :] = 0.0
    x = rhs.copy()
    try:
        L = np.linalg.cholesky(A)
    except Exception:
        return x, False
    for a in range(f):
        row = L[a]
        total = x[a]
        for b in range(a):
            total -= row[b] * x[b]
        x[a] = total / row[a]
    for a in range(f - 1, -1, -1):
        row = L[a]
        xa = x[a] / row[a]
        x[a] = xa
        for b in range(a):
            x[b] -= xa * row[b]
    return x, True


@_compiled
def _face_step(H, g, kink, l1, low, high, u, grad, status):  # type: ignore[no-untyped-def]
    """One Newton step on the free coordinates with an exact line search.

    φ(t) = objective at u + tΔ is convex and piecewise quadratic: its slope jumps by 2 l1_j |Δ_j| where a
    coordinate crosses its kink, and t may not pass the first bound. Returns True when the step was complete,
    that is, no coordinate changed status on the way.
    """
    free = np.flatnonzero(status == FREE)
    f = free.size
    if f == 0:
        return True
    rhs = np.empty(f)
    for a in range(f):
        rhs[a] = -_slope(kink, l1, u, grad, free[a])
    step, sound = _solve_face(H, free, rhs)
    if not sound:
        return True
    slope = 0.0
    for a in range(f):
        slope -= step[a] * rhs[a]
    if not slope < 0.0:
        return True
    curvature = -slope  # ΔᵀH_FFΔ of a Newton step
    t_bound, hit = np.inf, -1
    crossings = np.empty(f)
    count = 0
    for a in range(f):
        j = free[a]
        crossings[a] = np.inf
        if step[a] > 0.0:
            t = (high[j] - u[j]) / step[a]
        elif step[a] < 0.0:
            t = (low[j] - u[j]) / step[a]
        else:
            continue
        if t < t_bound:
            t_bound, hit = t, a
        if l1[j] > 0.0:
            t = (kink[j] - u[j]) / step[a]
            if t > 0.0:
                crossings[a] = t
                count += 1
    t_stop, stopped = 1.0, -1
    if count:
        order = np.argsort(crossings)
        t_stop = -slope / curvature
        for i in range(count):
            a = order[i]
            t = crossings[a]
            if t >= min(t_stop, t_bound):
                break
            slope += 2.0 * l1[free[a]] * abs(step[a])
            t_stop = -slope / curvature
            if t_stop <= t:
                t_stop, stopped = t, a
                break
    bounded = t_bound <= t_stop
    if bounded:
        t_stop, stopped = t_bound, hit
    u[free] = np.minimum(np.maximum(u[free] + t_stop * step, low[free]), high[free])
    if stopped >= 0:
        j = free[stopped]
        if not bounded:
            u[j], status[j] = kink[j], KINK
        elif step[stopped] > 0.0:
            u[j], status[j] = high[j], UPPER
        else:
            u[j], status[j] = low[j], LOWER
    _gradient(H, g, u, grad)
    return stopped < 0


@_compiled
def _residual(H, g, kink, l1, low, high, u, grad, status):  # type: ignore[no-untyped-def]
    """(‖s‖, the rounding floor of s): s the smallest element of the subdifferential, by status."""
    size = np.abs(g) + l1
    for j in range(u.size):
        if u[j] != 0.0:
            for i in range(u.size):
                size[i] += abs(H[j, i] * u[j])
    total, floor = 0.0, 0.0
    for j in range(u.size):
        floor += size[j] * size[j]
        if status[j] == FREE:
            s = _slope(kink, l1, u, grad, j)
        elif low[j] == high[j]:
            s = 0.0
        elif status[j] == KINK:
            s = grad[j] - min(max(grad[j], -l1[j]), l1[j])
        elif status[j] == LOWER:
            s = min(0.0, grad[j] + (l1[j] if low[j] >= kink[j] else -l1[j]))
        else:
            s = max(0.0, grad[j] + (l1[j] if high[j] > kink[j] else -l1[j]))
        total += s * s
    return np.sqrt(total), 4.0 * _EPS * np.sqrt(floor)


@_compiled
def minimize(H, g, center, l1, low, high, start):  # type: ignore[no-untyped-def]
    """argmin over low ≤ θ ≤ high of ½uᵀHu + gᵀu + Σ_j l1_j|θ_j|, u = θ − center, from a first guess of θ.

    Coordinates at a kink or a bound are there to the last bit. All arrays must be contiguous.
    """
    d = g.size
    kink, u_low, u_high = -center, low - center, high - center
    u = np.minimum(np.maximum(start - center, u_low), u_high)
    status = np.zeros(d, dtype=np.int8)
    grad = np.empty(d)
    _gradient(H, g, u, grad)
    for _ in range(100 + d):
        for sweep in range(_SWEEPS):
            changes = _sweep(H, g, kink, l1, u_low, u_high, u, grad, status)
            if changes == 0 and sweep > 0:
                break
        for _face in range(d + 2):
            if _face_step(H, g, kink, l1, u_low, u_high, u, grad, status):
                break
        residual, floor = _residual(H, g, kink, l1, u_low, u_high, u, grad, status)
        if residual <= floor:
            break
    inside = np.minimum(np.maximum(center + u, low), high)
    bounded = np.where(status == LOWER, low, np.where(status == UPPER, high, inside))
    return np.where(status == KINK, np.zeros(d), bounded)


@_compiled
def smallest_element(theta, l1, low, high, hi, lo):  # type: ignore[no-untyped-def]
    """The entry nearest to 0 of every interval [a, b] of hi + lo + ∂r̄(θ) + N_C(θ)."""
    s = np.empty(theta.size)
    for j in range(theta.size):
        a = -np.inf if theta[j] <= low[j] else (hi[j] + (l1[j] if theta[j] > 0.0 else -l1[j])) + lo[j]
        b = np.inf if theta[j] >= high[j] else (hi[j] + (-l1[j] if theta[j] < 0.0 else l1[j])) + lo[j]
        s[j] = max(a, 0.0) + min(b, 0.0)
    return s


@_compiled
def exact_gradient(H, g, center, l2, high, low):  # type: ignore[no-untyped-def]
    """`terms.exact_gradient` and the size of its terms."""
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
            e = fma(row[i], t, -p)
            s = hi[i] + p
            b = s - hi[i]
            lo[i] += ((hi[i] - (s - b)) + (p - b)) + e + row[i] * t_lo
            hi[i] = s
            size[i] += abs(row[i]) * magnitude
    for j in range(d):
        p = l2[j] * high[j]
        e = fma(l2[j], high[j], -p)
        s = hi[j] + p
        b = s - hi[j]
        lo[j] += ((hi[j] - (s - b)) + (p - b)) + e + l2[j] * low[j]
        size[j] += abs(p)
        hi[j] = s + lo[j]
        lo[j] -= hi[j] - s
    return hi, lo, size
