"""What calibrations share: searches that end on the safe side, and the noise of the answer itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from scipy.optimize import minimize_scalar

from curvedp.errors import CalibrationFailed
from curvedp.privacy import paper
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.profiles import Curve, count_shift, gaussian_part, rare_cap

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
