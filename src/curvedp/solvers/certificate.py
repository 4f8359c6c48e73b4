"""Certificates (section 7): how far a computed point can be from the optimum, rounding included.

For F = f + r + ι_C with f κ_s-strongly convex, any θ ∈ C and any s ∈ ∇f(θ) + ∂r(θ) + N_C(θ):
‖θ − argmin F‖ ≤ ‖s‖/κ_s and F(θ) − min F ≤ ‖s‖²/(2κ_s).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf

from curvedp.constraints import Constraint
from curvedp.domain import FloatArray
from curvedp.regularizers import Regularizer
from curvedp.solvers.exact import UNIT


def proves_curvature(H: FloatArray, c: float) -> bool:
    """True only if λ_min(H) ≥ c: a Cholesky factorisation of H − (c + margin)I ran to its end.

    It ends only if λ_min ≥ −tr·γ/(1−γ), γ = (d+1)u/(1 − (d+1)u) (Rump 2006); the margin covers that and
    the rounding of the diagonal.
    """
    d = H.shape[0]
    diagonal = np.diagonal(H)
    trace = float(np.abs(diagonal).sum()) + d * abs(c)
    if not (math.isfinite(trace) and math.isfinite(c)):
        return False
    margin = 2.0 * (d + 4) * UNIT * trace + d * d * np.finfo(np.float64).tiny
    shifted = np.array(H, order="F")
    shifted.flat[:: d + 1] = diagonal - (c + margin)
    _, info = dpotrf(shifted, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0)


def strong_convexity(H: FloatArray, need: float = 0.0) -> float:
    """A proved lower bound of λ_min(H); at least `need` if that can be proved; 0 when nothing can.

    A value proved first try costs one Cholesky factorisation; the eigenvalues only guide a second try.
    """
    least = float(np.min(np.diagonal(H)))
    guess = max(least / 64.0, 2.0 * need)
    if 0.0 < guess <= least and proves_curvature(H, guess):
        return guess
    if not np.all(np.isfinite(H)):
        return 0.0
    smallest = float(eigvalsh(H, check_finite=False)[0])
    for share in (0.99, 0.5):
        if smallest > 0.0 and proves_curvature(H, share * smallest):
            return share * smallest
    return 0.0


@njit(cache=True, nogil=True)
def _smallest_element(theta, l1, low, high, hi, lo):  # type: ignore[no-untyped-def]
    s = np.empty(theta.size)
    for j in range(theta.size):
        t = theta[j]
        if t > 0.0:
            a, b = l1[j], l1[j]
        elif t < 0.0:
            a, b = -l1[j], -l1[j]
        else:
            a, b = -l1[j], l1[j]
        if t <= low[j]:
            a = -np.inf
        if t >= high[j]:
            b = np.inf
        if hi[j] + a + lo[j] > 0.0:
            s[j] = (hi[j] + a) + lo[j]
        elif hi[j] + b + lo[j] < 0.0:
            s[j] = (hi[j] + b) + lo[j]
        else:
            s[j] = 0.0
    return s


@dataclass(frozen=True, eq=False)
class Separable:
    """r(θ) = Σ_j l1_j|θ_j| + l2_j θ_j²/2 on C = {low ≤ θ ≤ high}; θ flattened in C order."""

    l1: FloatArray
    l2: FloatArray
    low: FloatArray
    high: FloatArray

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> FloatArray:
        """The smallest element of v + ∂(Σ l1_j|·|)(θ) + N_C(θ), v = hi + lo (with l2·θ in it), θ ∈ C.

        In each coordinate the kink and the interval contribute [a, b]: ±l1 off the kink, [−l1, l1] on it,
        with a = −∞ at the lower bound and b = +∞ at the upper one.
        """
        return np.asarray(_smallest_element(theta, self.l1, self.low, self.high, hi, lo))


def separable(regularizer: Regularizer, constraint: Constraint, d: int, n_outputs: int) -> Separable | None:
    """The pair as a `Separable`, or None when either couples coordinates."""
    weights, interval = regularizer.separable(d, n_outputs), constraint.interval(d, n_outputs)
    if weights is None or interval is None:
        return None
    return Separable(*(np.ascontiguousarray(part, dtype=np.float64).ravel() for part in weights + interval))


def norm_bound(v: FloatArray) -> float:
    """‖v‖, rounded up."""
    return float(np.linalg.norm(v)) * (1.0 + 2.0 * (v.size + 8) * UNIT)
