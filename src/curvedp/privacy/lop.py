"""The sharp accounting of linear objective perturbation on linear models (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from curvedp.arrays import FloatArray
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.profiles import Curve, gaussian_part, require_number
from curvedp.privacy.quadrature import LossLaw, half_normal_bins


def two_sided(level: FloatArray, M: float) -> FloatArray:
    """G(e; M) = E[(1 − e^{e − M|z| − M²/2})₊], z ~ N(0,1): 2H_Φ(e; M) if e ≥ M²/2, else 1 − 2e^e Φ(−M)
    (P-8)."""
    tails = 2 * np.asarray(hockey_stick(np.maximum(level, M * M / 2), M))
    whole = -np.expm1(math.log(2) + np.minimum(level, M * M / 2) + float(log_ndtr(-M))) * (1 + 1e-12)
    return np.minimum(np.where(level >= M * M / 2, tails, np.maximum(whole, 0.0)), 1.0)


@dataclass(frozen=True)
class LOPProfile(Curve):
    """δ(ε) of LOP: `log_ratio` = log(1+L/Δ), M = ζ/σ (add_remove) or 2ζ/σ (replace), μ the shift 2η/σ̃ of the
    output noise and of other Gaussian releases; `excess` and `cap` as in `CurvatureProfile`.

    With output noise the two-sided form is composed with it: E_z[H_Φ(ε − log_ratio − M|z| − M²/2; μ)]  (P-8).
    """

    log_ratio: float
    M: float
    adjacency: Adjacency
    mu: float = 0.0
    excess: float = 0.0
    cap: float = math.inf

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        epsilon = np.minimum(epsilon, self.cap)
        level = epsilon - self.log_ratio
        if self.mu > 0:
            value = two_sided_law(self.M).divergence(level, self.mu)
        elif Neighbours(self.adjacency).moves == 2:
            value = two_sided(level, self.M)
        else:
            one_tail = np.asarray(hockey_stick(level, self.M))
            sharper = np.maximum(one_tail, two_sided(epsilon, self.M))
            value = np.where(level >= self.M**2 / 2, sharper, two_sided(level, self.M))
        return np.minimum(value + self.excess, 1.0)


@lru_cache(maxsize=64)
def two_sided_law(M: float) -> LossLaw:
    """M|z| + M²/2, z ~ N(0, 1): linear in |z|, so chords are exact in the mean."""
    bins = half_normal_bins(step=min(0.02, 0.1 / M))
    value = M * bins.edges + M * M / 2
    return LossLaw.of_bins(bins.mass, value[:-1], value[1:], bins.interpolate(value), bins.outside)


def lop_profile(
    *,
    L: float,
    zeta: float,
    Delta: float,
    sigma: float,
    d: int = 1,
    eta: float = 0.0,
    sigma_tilde: float = 0.0,
    mu_count: float = 0.0,
    rare: float = 0.0,
    cap: float = math.inf,
    adjacency: Adjacency = "replace",
) -> LOPProfile:
    """The profile of J + (Δ/2)‖θ−θ_c‖² + aᵀθ, a ~ N(0, σ²I), on a linear model with ‖∇ℓ‖ ≤ ζ, ℓ L-smooth
    (P-8).

    `d` (entries of θ) only matters for the discreteness of the output noise; `mu_count` is the shift of a
    Gaussian release beside it, `rare` what rare draws of the noise add up to the level `cap`.
    """
    for name, value in (("L", L), ("zeta", zeta), ("Delta", Delta), ("sigma", sigma)):
        require_number(name, value, positive=True)
    mu, excess = gaussian_part(0.0, 0.0, eta, sigma_tilde, d)
    M = Neighbours(adjacency).sum_factor * zeta / sigma
    ratio = math.log1p(L / Delta) * (1 + 1e-15)
    return LOPProfile(ratio, M * (1 + 1e-15), adjacency, math.hypot(mu, mu_count), excess + rare, cap)
