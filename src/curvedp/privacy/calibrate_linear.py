"""Noise levels of linear objective perturbation for a promised (ε, δ)  (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from curvedp.domain import Adjacency
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.privacy import paper
from curvedp.privacy.gaussian import check_budget
from curvedp.privacy.lop import LOPProfile, lop_profile
from curvedp.privacy.profiles import Curve, PointProfile, gaussian_part, output_sigma, require_number
from curvedp.privacy.search import confirm, largest, log_excess, minimise, require_room


@dataclass(frozen=True)
class LOPParameters:
    """Noise levels of LOP, J + (Δ/2)‖θ−θ_c‖² + aᵀθ with a ~ N(0, σ²I), that keep (epsilon, delta)."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    accounting: str
    theorem: str
    L: float
    zeta: float
    Delta: float
    sigma: float
    eta: float
    sigma_tilde: float
    utility_bound: float
    profile: Curve = field(repr=False, compare=False)


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
) -> LOPParameters:
    """The (Δ, σ) that minimise σ²d/(2Δ) + (Δ/2)radius² subject to (P-8) ≤ δ; "auto" is "directional", that
    is (P-8).

    "paper" gives the constants of Kifer et al. 2012 with their bound 2σ²d/Δ + (Δ/2)radius²; they are proved
    for add_remove and false for replace.
    """
    check_budget(epsilon, delta)
    for name, value in (("epsilon", epsilon), ("L", L), ("zeta", zeta), ("radius", radius)):
        require_number(name, value, positive=True)
    require_number("eta", eta)
    if accounting == "paper":
        return _paper_lop(epsilon, delta, L, zeta, radius, d, adjacency, eta)
    if accounting not in ("auto", "directional"):
        raise InvalidInput(f'accounting must be "auto", "directional" or "paper" for LOP, got {accounting!r}')
    return _calibrate_lop(
        float(epsilon), float(delta), float(L), float(zeta), float(radius), int(d), adjacency, float(eta)
    )


@lru_cache(maxsize=1024)
def _calibrate_lop(
    epsilon: float,
    delta: float,
    L: float,
    zeta: float,
    radius: float,
    d: int,
    adjacency: Adjacency,
    eta: float,
) -> LOPParameters:
    sigma_tilde = output_sigma(eta, epsilon, delta)
    require_room(delta, gaussian_part(0.0, 0.0, eta, sigma_tilde, d)[1])

    def profile(Delta: float, sigma: float) -> LOPProfile:
        return lop_profile(
            L=L,
            zeta=zeta,
            Delta=Delta,
            sigma=sigma,
            d=d,
            eta=eta,
            sigma_tilde=sigma_tilde,
            adjacency=adjacency,
        )

    def least_sigma(Delta: float) -> float:
        def fits(inverse: float) -> float:
            return log_excess(profile(Delta, 1 / inverse), epsilon, delta)

        return 1 / largest(fits, 1e-12 / zeta, 1e6 / zeta, start=0.1 * epsilon / zeta, what="noise σ")

    def weight(share: float) -> float:
        """Δ with log(1+L/Δ) = share·ε, rounded up."""
        return L / math.expm1(share * epsilon) * (1 + 1e-12)

    def utility(Delta: float, sigma: float) -> float:
        return sigma**2 * d / (2 * Delta) + Delta / 2 * radius**2

    def value(log_share: float) -> float:
        Delta = weight(math.exp(log_share))
        try:
            return math.log(utility(Delta, least_sigma(Delta)))
        except CalibrationFailed:
            return math.inf

    Delta = weight(math.exp(minimise(value, math.log(1e-10), math.log(0.99))))
    sigma = least_sigma(Delta) * (1 + 1e-12)
    kept = profile(Delta, sigma)
    confirm(kept, epsilon, delta)
    return LOPParameters(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        accounting="directional",
        theorem="(P-8)",
        L=L,
        zeta=zeta,
        Delta=Delta,
        sigma=sigma,
        eta=eta,
        sigma_tilde=sigma_tilde,
        utility_bound=utility(Delta, sigma),
        profile=kept,
    )


def _paper_lop(
    epsilon: float,
    delta: float,
    L: float,
    zeta: float,
    radius: float,
    d: int,
    adjacency: Adjacency,
    eta: float,
) -> LOPParameters:
    if adjacency == "replace":
        raise NotCovered(
            "the published LOP calibration is false under replace adjacency (true δ above the claimed one); "
            'pass accounting="directional", or adjacency="add_remove"'
        )
    spent = 0.01 if eta > 0 else 0.0
    sigma_tilde = 0.0
    if eta > 0:
        excess = gaussian_part(0.0, 0.0, eta, output_sigma(eta, epsilon, delta), d)[1]
        require_room(spent * delta, excess)
        sigma_tilde = paper.gaussian_sigma(2 * eta, spent * epsilon, spent * delta - excess)
    found = paper.lop_parameters((1 - spent) * epsilon, (1 - spent) * delta, L=L, zeta=zeta)
    return LOPParameters(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        accounting="paper",
        theorem="Peers (LOP of Kifer et al.)",
        L=L,
        zeta=zeta,
        Delta=found.Delta,
        sigma=math.sqrt(found.sigma2),
        eta=eta,
        sigma_tilde=sigma_tilde,
        utility_bound=paper.lop_utility_bound(found, d=d, norm2=radius**2),
        profile=PointProfile(epsilon, delta),
    )
