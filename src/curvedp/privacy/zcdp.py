"""Zero-concentrated differential privacy: what a sum of Gaussian releases promises as (ε, δ).

A mechanism is ρ-zCDP when its Rényi divergence of every order α > 1 is at most αρ between neighbours; a
Gaussian of shift μ has ρ = μ²/2. The ρ of adaptively chosen releases may be added up against a total fixed
beforehand (a Rényi filter: Feldman & Zrnic 2021).
"""

from __future__ import annotations

import math

from scipy.optimize import minimize_scalar

_ROUND_UP = 1.0 + 1e-12


def delta_of_rho(rho: float, epsilon: float) -> float:
    """inf over α > 1 of e^{(α−1)(αρ−ε)} (1−1/α)^{α−1} / α, which bounds δ(ε) of every ρ-zCDP mechanism.

    Canonne, Kamath & Steinke 2020, Proposition 12. Each α gives a valid bound, so the minimiser found
    need not be exact. The search is over t = log(α−1).
    """
    if rho <= 0.0:
        return 0.0

    def log_bound(t: float) -> float:
        excess = math.exp(t)
        order = 1.0 + excess
        return excess * (order * rho - epsilon) - excess * math.log1p(1.0 / excess) - math.log1p(excess)

    best = max(0.5 * (epsilon / rho - 1.0), 1e-6)  # the minimiser of the leading exponent
    found = minimize_scalar(
        log_bound,
        bounds=(math.log(best) - 10.0, math.log(best + 1.0) + 5.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return min(1.0, math.exp(min(0.0, log_bound(float(found.x)))) * _ROUND_UP)


def epsilon_of_rho(rho: float, delta: float) -> float:
    """The smallest ε found with delta_of_rho(rho, ε) ≤ delta, for 0 < delta < 1; rounded up."""
    if rho <= 0.0:
        return 0.0
    low, high = 0.0, rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))  # Bun & Steinke 2016: high is enough
    if delta_of_rho(rho, 0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if delta_of_rho(rho, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def rho_within(epsilon: float, delta: float) -> float:
    """The largest ρ found such that ρ-zCDP implies (epsilon, delta), for 0 < delta < 1; rounded down."""
    low, high = 0.0, 1.0
    while delta_of_rho(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        if delta_of_rho(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low
