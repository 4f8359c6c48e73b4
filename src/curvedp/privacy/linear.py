"""Linear objective perturbation on linear models: its sharp accounting and its calibration (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import log_ndtr

from curvedp.arrays import FloatArray
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy import paper
from curvedp.privacy.gaussian import check_budget, hockey_stick
from curvedp.privacy.profiles import Curve, PointProfile, gaussian_part, require_number
from curvedp.privacy.quadrature import LossLaw, half_normal_bins
from curvedp.privacy.search import (
    AnswerNoise,
    confirm,
    largest,
    log_excess,
    minimise,
    paper_answer,
    remembered,
)


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
    adjacency: Adjacency = "replace",
) -> LOPProfile:
    """The profile of J + (Δ/2)‖θ−θ_c‖² + aᵀθ, a ~ N(0, σ²I), on a linear model with ‖∇ℓ‖ ≤ ζ, ℓ L-smooth
    (P-8).

    `d` (entries of θ) only matters for the discreteness of the output noise.
    """
    for name, value in (("L", L), ("zeta", zeta), ("Delta", Delta), ("sigma", sigma)):
        require_number(name, value, positive=True)
    M = Neighbours(adjacency).sum_factor * zeta / sigma
    ratio = math.log1p(L / Delta) * (1 + 1e-15)
    return LOPProfile(ratio, M * (1 + 1e-15), adjacency, *gaussian_part(0.0, 0.0, eta, sigma_tilde, d))


@dataclass(frozen=True)
class LOPParameters:
    """Noise levels of LOP, J + (Δ/2)‖θ−θ_c‖² + aᵀθ with a ~ N(0, σ²I), and the profile that proves them."""

    accounting: str
    theorem: str
    L: float
    zeta: float
    Delta: float
    sigma: float
    eta: float
    sigma_tilde: float
    mu_count: float
    utility_bound: float
    profile: Curve = field(repr=False, compare=False)


@remembered
def calibrate_lop(
    epsilon: float,
    delta: float,
    *,
    L: float,
    zeta: float,
    radius: float,
    d: int,
    adjacency: Adjacency = "replace",
    accounting: Literal["auto", "directional", "paper"] = "auto",
    eta: float = 0.0,
    count: bool = False,
    rare: float = 0.0,
) -> LOPParameters:
    """The (Δ, σ) that minimise σ²d/(2Δ) + (Δ/2)radius² subject to (P-8) ≤ δ; "auto" is "directional", that
    is (P-8).

    "paper" gives the constants of Kifer et al. 2012 with their bound 2σ²d/Δ + (Δ/2)radius²; they are proved
    for add_remove and false for replace. `eta`, `count` and `rare` as in `calibrate_qop`.
    """
    check_budget(epsilon, delta)
    for name, value in (("epsilon", epsilon), ("L", L), ("zeta", zeta), ("radius", radius)):
        require_number(name, value, positive=True)
    for name, value in (("eta", eta), ("rare", rare)):
        require_number(name, value)
    if accounting not in ("auto", "directional", "paper"):
        raise InvalidInput(
            f'`accounting` must be "auto", "directional" or "paper" for lop, got {accounting!r}'
        )
    if accounting == "paper":
        if Neighbours(adjacency).moves == 2:
            raise NotCovered(
                "the published LOP calibration is false under replace adjacency (true δ above the claimed "
                "one); pass `accounting=directional`, or `adjacency=add_remove`"
            )
        left, sigma_tilde, mu_count = paper_answer(epsilon, delta, d=d, eta=eta, count=count, rare=rare)
        published = paper.lop_parameters(left * epsilon, left * delta, L=L, zeta=zeta)
        return LOPParameters(
            accounting="paper",
            theorem="Peers (LOP of Kifer et al.)",
            L=L,
            zeta=zeta,
            Delta=published.Delta,
            sigma=math.sqrt(published.sigma2),
            eta=eta,
            sigma_tilde=sigma_tilde,
            mu_count=mu_count,
            utility_bound=paper.lop_utility_bound(published, d=d, norm2=radius**2),
            profile=PointProfile(epsilon, delta),
        )
    answer = AnswerNoise.of(epsilon, delta, d=d, eta=eta, count=count, rare=rare)

    def profile(Delta: float, sigma: float) -> LOPProfile:
        alone = lop_profile(L=L, zeta=zeta, Delta=Delta, sigma=sigma, adjacency=adjacency)
        return replace(alone, mu=answer.mu, excess=answer.excess, cap=answer.cap)

    def least_sigma(Delta: float) -> float:
        def fits(inverse: float) -> float:
            return log_excess(profile(Delta, 1 / inverse), epsilon, delta)

        return 1 / largest(fits, 1e-12 / zeta, 1e6 / zeta, start=0.1 * epsilon / zeta, what="noise σ")

    def weight(log_share: float) -> float:
        """Δ with log(1+L/Δ) = share·ε, rounded up."""
        return L / math.expm1(math.exp(log_share) * epsilon) * (1 + 1e-12)

    def utility(Delta: float, sigma: float) -> float:
        return sigma**2 * d / (2 * Delta) + Delta / 2 * radius**2

    def log_utility(log_share: float) -> float:
        Delta = weight(log_share)
        try:
            return math.log(utility(Delta, least_sigma(Delta)))
        except CalibrationFailed:
            return math.inf

    Delta = weight(minimise(log_utility, math.log(1e-10), math.log(0.99)))
    sigma = least_sigma(Delta) * (1 + 1e-12)
    confirm(profile(Delta, sigma), epsilon, delta)
    return LOPParameters(
        accounting="directional",
        theorem="(P-8)",
        L=L,
        zeta=zeta,
        Delta=Delta,
        sigma=sigma,
        eta=eta,
        sigma_tilde=answer.sigma_tilde,
        mu_count=answer.mu_count,
        utility_bound=utility(Delta, sigma),
        profile=profile(Delta, sigma),
    )
