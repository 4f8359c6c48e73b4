"""Linear objective perturbation on linear models: its sharp accounting and its calibration (P-8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from curvedp.arrays import FloatArray
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.privacy import paper
from curvedp.privacy.budget import Adjacency, Neighbours
from curvedp.privacy.gaussian import calibrate_mu, check_budget, hockey_stick
from curvedp.privacy.profiles import Curve, PointProfile, count_shift, gaussian_part, rare_cap, require_number
from curvedp.privacy.quadrature import LossLaw, half_normal_bins

# What calibrations share: searches that end on the safe side, and the noise of the answer itself.


_PAPER_PART = 0.01  # of ε and δ: for output noise and for a count, beside a published calibration
_SLACK = 2e-3  # in log δ: the answer leaves at most this of the budget unused
_HUGE = 1e9  # stands for ∞ where interpolation needs numbers
_WIDTH = 1e-7  # relative: an answer so near to the boundary will do
Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(function: Function) -> Function:
    """The function, evaluated once for equal arguments."""
    return lru_cache(maxsize=1024, typed=True)(function)  # type: ignore[return-value]


def log_excess(profile: Curve, epsilon: float, delta: float) -> float:
    """log(δ(ε)/delta): the promise is kept iff it is ≤ 0."""
    return math.log(max(profile.delta_at(epsilon), 1e-300)) - math.log(delta)


def confirm(profile: Curve, epsilon: float, delta: float) -> None:
    """The last word of a calibration: δ at the noise levels that it returns."""
    if profile.delta_at(epsilon) > delta:
        raise CalibrationFailed("the calibrated noise does not keep the promised (ε, δ)")


@dataclass(frozen=True)
class AnswerNoise:
    """What noises the answer itself: b of deviation σ̃ for a solver error η, and a count of the rows.

    `mu` is their shift together; `excess` is what the discreteness of b and rare draws of the noise add to δ
    up to the level `cap`.
    """

    sigma_tilde: float
    mu_count: float
    mu: float
    excess: float
    cap: float

    @classmethod
    def of(cls, epsilon: float, delta: float, *, d: int, eta: float, count: bool, rare: float) -> AnswerNoise:
        """2η/σ̃ is a tenth of the shift that (ε, δ) allows, a hundredth of μ²; the count as `count_shift`."""
        sigma_tilde = 2 * eta / min(0.1 * calibrate_mu(epsilon, delta), 1.0) if eta > 0 else 0.0
        mu_count = count_shift(epsilon, delta) if count else 0.0
        mu, excess = gaussian_part(0.0, 0.0, eta, sigma_tilde, d)
        require_room(delta, excess + rare)
        return cls(sigma_tilde, mu_count, math.hypot(mu, mu_count), excess + rare, rare_cap(epsilon, rare))


def paper_answer(
    epsilon: float, delta: float, *, d: int, eta: float, count: bool, rare: float
) -> tuple[float, float, float]:
    """(share of ε and δ that is left, σ̃, μₙ) beside a published calibration.

    1 % of ε and δ each go to output noise of sensitivity 2η and to a count, by the classical Gaussian
    mechanism; the discreteness of the noise and rare draws come out of the δ of the former.
    """
    if eta == 0:
        return 1.0, 0.0, 0.0
    excess = AnswerNoise.of(epsilon, delta, d=d, eta=eta, count=False, rare=rare).excess
    require_room(_PAPER_PART * delta, excess)
    epsilon, delta = _PAPER_PART * epsilon, _PAPER_PART * delta
    mu_count = 1 / paper.gaussian_sigma(1.0, epsilon, delta) if count else 0.0
    return 1 - _PAPER_PART * (1 + count), paper.gaussian_sigma(2 * eta, epsilon, delta - excess), mu_count


def require_room(delta: float, excess: float) -> None:
    """Refuse a δ that the grid of the output noise alone would use up."""
    if excess > delta / 10:
        raise CalibrationFailed(
            f"`delta={delta:g}` leaves no room for the grid of the output noise, which costs {excess:.1g}: "
            "pass a larger delta"
        )


def largest(
    excess: Callable[[float], float], low: float, high: float, *, start: float, what: str, slope: float = 8.0
) -> float:
    """The largest x in [low, high] found with excess(x) ≤ 0, for an `excess` that increases with x.

    `slope` is a guess of d excess/d log x at the start; it decides the first step only.

    Secant steps in log x towards the middle of the slack, inside the bracket once there is one; a bisection
    after two steps on the same side. The answer was evaluated.
    """
    bottom, top = math.log(low), math.log(high)
    below = above = math.nan
    at_below = at_above = math.nan
    x, previous, step, same_side = min(max(math.log(start), bottom), top), None, 0.5, 0
    while True:
        value = excess(math.exp(x))
        if -_SLACK <= value <= 0 or (value <= 0 and x >= top):
            return math.exp(x)
        if value > 0 and x <= bottom:
            raise CalibrationFailed(
                f"no {what} within reach keeps the promised (ε, δ): relax epsilon or delta"
            )
        if value <= 0:
            below, at_below, same_side = x, value, min(same_side, 0) - 1
        else:
            above, at_above, same_side = x, value, max(same_side, 0) + 1
        if above - below < _WIDTH:
            return math.exp(below)
        if not math.isfinite(above - below):  # no bracket yet: a little further than the secant says
            if previous is not None and (value - previous[1]) * (x - previous[0]) > 0:
                slope = (value - previous[1]) / (x - previous[0])
            previous = (x, value)
            x = min(max(x + min(max(-1.05 * (value + _SLACK / 2) / slope, -step), step), bottom), top)
            step *= 2
        elif abs(same_side) >= 2:
            x, same_side = (below + above) / 2, 0
        else:
            x = below + (above - below) * min((at_below + _SLACK / 2) / (at_below - at_above), 0.999)


def minimise(value: Callable[[float], float], low: float, high: float) -> float:
    """The best of nine equidistant points and of a bounded search around the best of them."""
    grid = [low + i * (high - low) / 8 for i in range(9)]
    values = [value(t) for t in grid]
    best = min(range(9), key=values.__getitem__)
    if values[best] == math.inf:
        raise CalibrationFailed("no noise within reach keeps the promised (ε, δ): relax epsilon or delta")
    inner = minimize_scalar(
        lambda t: min(value(t), _HUGE),  # interpolation needs numbers
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, 8)]),
        method="bounded",
        options={"xatol": 0.02, "maxiter": 12},
    )
    return float(inner.x) if inner.fun < values[best] else grid[best]


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
