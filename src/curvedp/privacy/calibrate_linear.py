"""Noise levels of linear objective perturbation for a promised (ε, δ)  (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy import paper
from curvedp.privacy.gaussian import check_budget
from curvedp.privacy.lop import LOPProfile, lop_profile
from curvedp.privacy.profiles import (
    Curve,
    PointProfile,
    count_shift,
    gaussian_part,
    output_sigma,
    rare_cap,
    require_number,
)
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
    mu_count: float
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
    if accounting == "paper":
        return _paper_lop(epsilon, delta, L, zeta, radius, d, adjacency, eta, count, rare)
    if accounting not in ("auto", "directional"):
        raise InvalidInput(f'accounting must be "auto", "directional" or "paper" for LOP, got {accounting!r}')
    return _calibrate_lop(
        float(epsilon), float(delta), float(L), float(zeta), float(radius), int(d), adjacency, float(eta),
        bool(count), float(rare),
    )  # fmt: skip


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
    count: bool,
    rare: float,
) -> LOPParameters:
    sigma_tilde = output_sigma(eta, epsilon, delta)
    mu_count = count_shift(epsilon, delta) if count else 0.0
    require_room(delta, gaussian_part(0.0, 0.0, eta, sigma_tilde, d)[1] + rare)

    def profile(Delta: float, sigma: float) -> LOPProfile:
        return lop_profile(
            L=L,
            zeta=zeta,
            Delta=Delta,
            sigma=sigma,
            d=d,
            eta=eta,
            sigma_tilde=sigma_tilde,
            mu_count=mu_count,
            rare=rare,
            cap=rare_cap(epsilon, rare),
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
        mu_count=mu_count,
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
    count: bool,
    rare: float,
) -> LOPParameters:
    if Neighbours(adjacency).moves == 2:
        raise NotCovered(
            "the published LOP calibration is false under replace adjacency (true δ above the claimed one); "
            'pass accounting="directional", or adjacency="add_remove"'
        )
    answer = paper_answer(epsilon, delta, d, eta, count, rare)
    found = paper.lop_parameters(answer.epsilon, answer.delta, L=L, zeta=zeta)
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
        sigma_tilde=answer.sigma_tilde,
        mu_count=answer.mu_count,
        utility_bound=paper.lop_utility_bound(found, d=d, norm2=radius**2),
        profile=PointProfile(epsilon, delta),
    )


@dataclass(frozen=True)
class PaperAnswer:
    """What remains of (ε, δ) for a published calibration once the answer's own noise is paid."""

    epsilon: float
    delta: float
    sigma_tilde: float = 0.0
    mu_count: float = 0.0


def paper_answer(epsilon: float, delta: float, d: int, eta: float, count: bool, rare: float) -> PaperAnswer:
    """1 % of ε and δ each for output noise of sensitivity 2η and for a count, by the classical Gaussian
    mechanism; the discreteness of the noise and rare draws come out of the δ of the former."""
    if eta == 0:
        return PaperAnswer(epsilon, delta)
    part = 0.01
    excess = gaussian_part(0.0, 0.0, eta, output_sigma(eta, epsilon, delta), d)[1] + rare
    require_room(part * delta, excess)
    sigma_tilde = paper.gaussian_sigma(2 * eta, part * epsilon, part * delta - excess)
    left = 1 - part * (1 + count)
    mu_count = 1 / paper.gaussian_sigma(1.0, part * epsilon, part * delta) if count else 0.0
    return PaperAnswer(left * epsilon, left * delta, sigma_tilde, mu_count)
