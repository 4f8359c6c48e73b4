"""Noise levels of QOP (P-1) for a promised (ε, δ): the least noise, by the stated measure, whose profile
keeps the promise.

Every answer is checked: δ is evaluated again at the returned parameters, and the noise steps up until it
fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal

from scipy.optimize import minimize_scalar

from curvedp.errors import CalibrationFailed, InvalidInput
from curvedp.lazy import studies
from curvedp.privacy import gaussian, profiles
from curvedp.privacy.budget import Adjacency
from curvedp.privacy.curvature import Directional, Spectral
from curvedp.privacy.profiles import AccountingName, CurvatureProfile, Curve, LossFamily, curvature_accounting
from curvedp.randomness import STEPS_PER_SIGMA

_G_RANGE = (1e-8, 1e4)  # searched ratios L/σ²
_SLACK = 2e-3  # in log δ: the answer leaves at most this of the budget unused
_HUGE = 1e9  # stands for ∞ where interpolation needs numbers
_WIDTH = 1e-7  # relative: an answer so near to the boundary will do


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
        sigma_tilde = 2 * eta / min(0.1 * gaussian.calibrate_mu(epsilon, delta), 1.0) if eta > 0 else 0.0
        mu_count = profiles.count_shift(epsilon, delta) if count else 0.0
        mu = 2 * eta / sigma_tilde if eta > 0 else 0.0
        excess = rare
        if eta > 0:
            excess += gaussian.discrete_gaussian_excess(mu, d=d, steps_per_sigma=STEPS_PER_SIGMA)
        require_room(delta, excess)
        return cls(sigma_tilde, mu_count, math.hypot(mu, mu_count), excess, profiles.rare_cap(epsilon, rare))


def require_room(delta: float, excess: float) -> None:
    """Refuse a δ of which the grid of the output noise alone would use up more than a tenth."""
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
        lambda t: min(value(t), _HUGE),
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, 8)]),
        method="bounded",
        options={"xatol": 0.02, "maxiter": 12},
    )
    return float(inner.x) if inner.fun < values[best] else grid[best]


@dataclass(frozen=True, kw_only=True)
class QOPParameters:
    """Noise levels of QOP (P-1), and the profile that proves them.

    `utility_bound` = mσ²/2·radius² + σ0² d/(2σ²(m−d−1))  (Theorem utility, exact solve).
    """

    accounting: str
    theorem: str
    L: float
    center_sensitivity: float
    m: float
    sigma2: float
    sigma0: float
    eta: float
    sigma_tilde: float
    mu_count: float
    utility_bound: float
    profile: Curve = field(repr=False, compare=False)


def solve_curvature(
    epsilon: float, delta: float, mu: float, family: LossFamily, excess: float = 0.0, start: float = 0.0
) -> float:
    """The largest ratio g = L/σ² with δ(ε) ≤ delta beside a Gaussian shift `mu`  (P-3), rounded down.

    σ² = L/g is enough curvature. `start` is a guess of g, 0 for none. Raises CalibrationFailed when the
    shift alone breaks the promise.
    """
    if gaussian.hockey_stick(epsilon, mu) + excess > delta:
        raise CalibrationFailed(
            "the Gaussian shift alone breaks the promised (ε, δ): no curvature can mend it"
        )
    return largest(
        lambda g: log_excess(CurvatureProfile(family, g, mu, excess), epsilon, delta),
        *_G_RANGE,
        start=start or 0.5 * min(1.0, epsilon + 0.1),
        what="curvature ratio g",
    )


@lru_cache(maxsize=1024, typed=True)
def calibrate_qop(
    epsilon: float,
    delta: float,
    *,
    L: float,
    d: int,
    center_sensitivity: float,
    radius: float,
    rank: int = 1,
    classes: int = 1,
    eta: float = 0.0,
    count: bool = False,
    rare: float = 0.0,
    adjacency: Adjacency = "replace",
    accounting: AccountingName | Literal["paper"] = "auto",
    m: float | None = None,
) -> QOPParameters:
    """The (m, σ², σ0) that minimise mσ²/2·radius² + σ0² d/(2σ²(m−d−1)) subject to (P-3) ≤ δ.

    `d` counts the entries of θ; `m` may be given; `center_sensitivity` = 0 calibrates W alone (least σ²m);
    `eta` > 0 adds output noise (`AnswerNoise`); only 2η/σ̃ counts, so both may be scaled together later.
    `count` says that the number of rows is released, too (`count_shift`), `rare` what rare draws of the noise
    may cost of δ (`log_rare_probability`). accounting="paper" uses "Theorem main" and not (P-3), for ε < 1.
    """
    gaussian.check_budget(epsilon, delta)
    for name, value in (("epsilon", epsilon), ("L", L), ("radius", radius)):
        gaussian.require_number(name, value, positive=True)
    for name, value in (("center_sensitivity", center_sensitivity), ("eta", eta), ("rare", rare)):
        gaussian.require_number(name, value)
    answered: dict[str, Any] = {"d": d, "eta": eta, "count": count, "rare": rare}
    linear = center_sensitivity > 0
    if accounting == "paper":
        if m is not None:
            raise InvalidInput("`accounting=paper` chooses m itself: leave m out")
        published: QOPParameters = studies("paper", "`accounting=paper`").calibrated_qop(
            epsilon, delta, L=L, center_sensitivity=center_sensitivity, radius=radius, rank=rank, **answered
        )
        return published
    answer = AnswerNoise.of(epsilon, delta, **answered)
    law = partial(
        curvature_accounting, d, rank=rank, classes=classes, adjacency=adjacency, accounting=accounting
    )
    search = _Search(epsilon, delta, L, d, center_sensitivity, radius, answer, law)
    if m is not None and linear and law(m).m <= d + 1:
        raise InvalidInput(f"the utility bound needs m > d+1 = {d + 1}, got {m!r}")
    m, mu0, g = search.best(None if m is None else float(m))
    sigma0 = center_sensitivity / mu0 * (1 + 1e-12) if linear else 0.0
    sigma2 = L / g * (1 + 1e-12)
    mu = math.hypot(center_sensitivity / sigma0 if linear else 0.0, answer.mu)
    proved = law(m)
    profile = CurvatureProfile(proved, L / sigma2 * (1 + 1e-15), mu, answer.excess, answer.cap)
    confirm(profile, epsilon, delta)
    return QOPParameters(
        accounting=proved.name,
        theorem=proved.theorem,
        L=L,
        center_sensitivity=center_sensitivity,
        m=m,
        sigma2=sigma2,
        sigma0=sigma0,
        eta=eta,
        sigma_tilde=answer.sigma_tilde,
        mu_count=answer.mu_count,
        utility_bound=search.utility(m, g, mu0),
        profile=profile,
    )


@dataclass
class _Search:
    """Minimises the utility bound over (m, μ0), by drafts, one coordinate at a time; σ² = L/g, σ0 = Δ_c/μ0:

    U = (L/g)(m radius²/2) + (Δ_c²/μ0²) d g/(2L(m−d−1)).
    """

    epsilon: float
    delta: float
    L: float
    d: int
    center_sensitivity: float
    radius: float
    answer: AnswerNoise
    law: Callable[[float], Directional | Spectral]  # of m
    g: float = 0.0  # the last one found: a guess of the next

    def utility(self, m: float, g: float, mu0: float) -> float:
        linear = 0.0
        if self.center_sensitivity > 0:
            linear = (self.center_sensitivity / mu0) ** 2 * self.d * g / (2 * self.L * (m - self.d - 1))
        return self.L / g * m / 2 * self.radius**2 + linear

    def solve(self, family: LossFamily, m: float, mu0: float) -> float:
        """The best ratio g that privacy allows beside the shifts of the linear term and of the output.

        That at which U is least is below it where curvature must damp the noise.
        """
        mu = math.hypot(mu0, self.answer.mu)
        allowed = solve_curvature(self.epsilon, self.delta, mu, family, self.answer.excess, self.g)
        if self.center_sensitivity == 0:
            return allowed
        damping = self.L * self.radius * mu0 / self.center_sensitivity
        return min(allowed, damping * math.sqrt(m * (m - self.d - 1) / self.d))

    def value(self, m: float, mu0: float) -> float:
        try:
            self.g = self.solve(self.law(m).draft(), m, mu0)
        except CalibrationFailed:
            return math.inf
        return math.log(self.utility(m, self.g, mu0))

    def best(self, given: float | None) -> tuple[float, float, float]:
        """(m, μ0, g), m as `given` or found; the last g without drafts."""
        linear = self.center_sensitivity > 0
        ceiling = gaussian.calibrate_mu(self.epsilon, self.delta)
        m, mu0 = given or 4.0 * self.d + 4, 0.7 * ceiling * linear
        for _ in range(2 if linear and given is None else 1):
            if linear:
                mu0 = self._best_shift(m, ceiling)
            if given is None:
                m = self._best_degrees(mu0)
        promised = math.exp(self.value(m, mu0))
        law = self.law(m)
        self.g = g = self.solve(law, m, mu0)
        # Near the ceiling drafts promise too much.
        while linear and self.utility(m, g, mu0) > 1.05 * promised:
            ratio = self.solve(law, m, 0.96 * mu0)
            if self.utility(m, ratio, 0.96 * mu0) >= self.utility(m, g, mu0):
                break
            mu0, self.g, g = 0.96 * mu0, ratio, ratio
        return m, mu0, g

    def _best_shift(self, m: float, ceiling: float) -> float:
        ends = math.log(0.02 * ceiling), math.log(0.995 * ceiling)
        return math.exp(minimise(lambda t: self.value(m, math.exp(t)), *ends))

    def _best_degrees(self, mu0: float) -> float:
        def integer(t: float) -> float:
            return float(self.d + 2 + round(math.exp(t)))

        most = math.log(40.0 * self.d + 400.0)
        return integer(minimise(lambda t: self.value(integer(t), mu0), -0.7, most))
