"""δ(ε) at noise levels of one's own choice: curves that no calibration of the library asks for."""

from __future__ import annotations

import math

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency
from curvedp.privacy.calibrate import largest, log_excess
from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess, require_number
from curvedp.privacy.profiles import (
    AccountingName,
    CurvatureProfile,
    LossFamily,
    curvature_accounting,
)
from curvedp.randomness import STEPS_PER_SIGMA
from curvedp_studies.mechanisms.wishart import MomentAccounting


def qop_profile(
    *,
    L: float,
    d: int,
    m: float,
    sigma2: float,
    sigma0: float,
    center_sensitivity: float,
    rank: int = 1,
    classes: int = 1,
    eta: float = 0.0,
    sigma_tilde: float = 0.0,
    adjacency: Adjacency = "replace",
    accounting: AccountingName = "auto",
) -> CurvatureProfile:
    """The profile of QOP (P-1): μ² = (center_sensitivity/σ0)² + (2η/σ̃)², g = L/σ²  (P-3).

    `d` is the number of entries of θ (d·K for K `classes`); `center_sensitivity` = 0 accounts for W alone;
    `eta` = 0 means that no output noise is released.
    """
    for name, value in (("L", L), ("sigma2", sigma2)):
        require_number(name, value, positive=True)
    mu, excess = gaussian_part(center_sensitivity, sigma0, eta, sigma_tilde, d)
    law = curvature_accounting(d, m, rank=rank, classes=classes, adjacency=adjacency, accounting=accounting)
    return CurvatureProfile(law, L / sigma2 * (1 + 1e-15), mu, excess)


def statistics_profile(
    *, L: float, d: int, m: float, sigma2: float, mu: float = 0.0, adjacency: Adjacency = "replace"
) -> CurvatureProfile:
    """The release of βXᵀX + σ²W (S-1), L = βB², composed with Gaussian releases of total shift μ."""
    for name, value in (("L", L), ("sigma2", sigma2)):
        require_number(name, value, positive=True)
    require_number("mu", mu)
    return CurvatureProfile(MomentAccounting(d, m, adjacency), L / sigma2 * (1 + 1e-15), mu)


def solve_shift(epsilon: float, delta: float, family: LossFamily, g: float, excess: float = 0.0) -> float:
    """The largest Gaussian shift μ with δ(ε) ≤ delta beside curvature at ratio g  (P-3), rounded down.

    Raises CalibrationFailed when the curvature alone breaks the promise.
    """
    ceiling = calibrate_mu(epsilon, delta)

    def excess_at(mu: float) -> float:
        return log_excess(CurvatureProfile(family, g, mu, excess), epsilon, delta)

    return largest(excess_at, 1e-9 * ceiling, ceiling, start=ceiling / 2, what="Gaussian shift μ")


def gaussian_part(
    center_sensitivity: float, sigma0: float, eta: float, sigma_tilde: float, d: int
) -> tuple[float, float]:
    """μ = √((Δ_c/σ0)² + (2η/σ̃)²) of (P-3), and what the discreteness of b adds to δ
    ("discrete-gaussian")."""
    for name, value in (
        ("center_sensitivity", center_sensitivity),
        ("sigma0", sigma0),
        ("eta", eta),
        ("sigma_tilde", sigma_tilde),
    ):
        require_number(name, value)
    if (center_sensitivity > 0 and sigma0 == 0) or (eta > 0 and sigma_tilde == 0):
        raise InvalidInput("pass sigma0 > 0 with center_sensitivity > 0, and sigma_tilde > 0 with eta > 0")
    linear = center_sensitivity / sigma0 if center_sensitivity > 0 else 0.0
    if eta == 0:
        return linear, 0.0
    output = 2 * eta / sigma_tilde
    return math.hypot(linear, output), discrete_gaussian_excess(output, d=d, steps_per_sigma=STEPS_PER_SIGMA)
