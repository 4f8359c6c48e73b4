"""Certificates (section 7): how far a computed point can be from the optimum, rounding included.

For F = f + r + ι_C with f κ_s-strongly convex, any θ ∈ C and any s ∈ ∇f(θ) + ∂r(θ) + N_C(θ):
‖θ − argmin F‖ ≤ ‖s‖/κ_s and F(θ) − min F ≤ ‖s‖²/(2κ_s).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray

_TINY = float(np.finfo(np.float64).tiny)


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
    margin = 2.0 * (d + 4) * UNIT_ROUNDOFF * trace + d * d * _TINY
    shifted = H.copy()
    shifted.reshape(-1)[:: d + 1] -= c + margin
    _, info = dpotrf(shifted.T, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0)


def quick_curvature(H: FloatArray) -> float:
    """A proved lower bound of λ_min(H), most often by one Cholesky factorisation; 0 when there is none."""
    guess = float(np.min(np.diagonal(H))) / 64.0
    return guess if guess > 0.0 and proves_curvature(H, guess) else sharp_curvature(H)


def sharp_curvature(H: FloatArray) -> float:
    """A proved lower bound close to λ_min(H), the eigenvalues being the guess; 0 when there is none."""
    if not np.all(np.isfinite(H)):
        return 0.0
    smallest = float(eigvalsh(H, check_finite=False)[0])
    for share in (0.999, 0.5):
        if smallest > 0.0 and proves_curvature(H, share * smallest):
            return share * smallest
    return 0.0


def exact_gradient(
    H: FloatArray, g: FloatArray, center: FloatArray, l2: FloatArray, theta: FloatArray, low: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """H(θ + low − center) + g + l2·(θ + low) as an unevaluated sum hi + lo, and a bound on ‖its error‖.

    H must be symmetric. A certificate at conditioning c amplifies the rounding error of the gradient by c, so
    it is summed with error-free transformations (Ogita, Rump and Oishi 2005). The bound is that of
    compensated dot products, taken twice: 8(d+4)²u²(|H||u| + |g|).
    """
    from curvedp.solvers import kernel

    hi, lo, size = kernel.exact_gradient(H, g, center, l2, theta, low)
    error = 8.0 * ((g.size + 4) * UNIT_ROUNDOFF) ** 2 * float(np.linalg.norm(size))
    return hi, lo, error


def is_symmetric(H: FloatArray) -> bool:
    """H = Hᵀ to the last bit."""
    from curvedp.solvers import kernel

    return bool(kernel.is_symmetric(H))


def two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(s, e) with s = a + b rounded and s + e = a + b exactly, entry by entry."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def norm_bound(v: FloatArray) -> float:
    """‖v‖ of a flat v, rounded up, squares that underflow included."""
    return math.sqrt(float(v @ v) + v.size * _TINY) * (1.0 + 2.0 * (v.size + 8) * UNIT_ROUNDOFF)


@dataclass(frozen=True, eq=False)
class Element:
    """s, within `error` of an element of v + ∂r(θ_r) + N_C(θ_C), with θ_r and θ_C within `drift` of θ.

    A point on a curved or slanted face is there up to rounding only, so it is drawn exactly on it in thought.
    `spread` bounds the distance of any two subgradients of r; 0 when θ_r = θ_C, or when r is smooth.
    """

    s: FloatArray
    error: float = 0.0
    drift: float = 0.0
    spread: float = 0.0

    def residual(self, lipschitz: float, curvature: float) -> float:
        """κ·D without rounding errors: ‖s‖, and what a drift adds to it."""
        b = norm_bound(self.s) + lipschitz * self.drift
        return (
            curvature * self.drift + (b + math.sqrt(b * b + 4.0 * curvature * self.spread * self.drift)) / 2.0
        )

    def distance(self, error: float, lipschitz: float, curvature: float) -> float:
        """D ≥ ‖θ − argmin‖ when v is ∇f(θ) up to `error`, ∇f is L-Lipschitz and f is κ-strongly convex.

        Strong monotonicity of ∇f, monotonicity of ∂r at θ_r and of N_C at θ_C, and Cauchy–Schwarz:
        κD² ≤ bD + (spread + ‖s‖)δ with b = ‖s‖ + error + Lδ, δ = drift. For δ = 0 this is D ≤ ‖s‖/κ.
        """
        if not curvature > 0.0:
            return math.inf
        b = norm_bound(self.s) + self.error + error + lipschitz * self.drift
        root = math.sqrt(b * b + 4.0 * curvature * self.spread * self.drift)
        return (self.drift + (b + root) / (2.0 * curvature)) * (1.0 + 16.0 * UNIT_ROUNDOFF)
