"""Noise levels for a promised (ε, δ): the least noise, by the stated measure, whose profile keeps the
promise.

Every answer is checked: δ is evaluated again at the returned parameters, and the noise steps up until it
fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from curvedp.errors import CalibrationFailed, InvalidInput
from curvedp.neighbours import Adjacency
from curvedp.privacy import paper
from curvedp.privacy.calibrate_linear import LOPParameters, calibrate_lop, paper_answer
from curvedp.privacy.gaussian import calibrate_mu, check_budget, hockey_stick
from curvedp.privacy.profiles import (
    AccountingName,
    CurvatureAccounting,
    CurvatureProfile,
    Curve,
    LossFamily,
    PointProfile,
    check_curvature,
    count_shift,
    curvature_accounting,
    gaussian_part,
    output_sigma,
    rare_cap,
    require_number,
)
from curvedp.privacy.search import confirm, largest, log_excess, minimise, require_room
from curvedp.privacy.statistics import MomentAccounting

__all__ = [
    "LOPParameters",
    "QOPParameters",
    "StatisticsParameters",
    "calibrate_lop",
    "calibrate_qop",
    "calibrate_statistics",
    "solve_curvature",
    "solve_shift",
]

_G_RANGE = (1e-8, 1e4)  # searched ratios L/σ²
_SLOPE = 2.0  # of log δ against log g beside Gaussian releases, roughly: a search near its end starts with it


@dataclass(frozen=True)
class QOPParameters:
    """Noise levels of QOP (P-1) that keep (epsilon, delta), and the profile that proves it.

    `utility_bound` = mσ²/2·radius² + σ0² d/(2σ²(m−d−1))  (Theorem utility, exact solve).
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    accounting: str
    theorem: str
    d: int
    L: float
    center_sensitivity: float
    radius: float
    m: float
    sigma2: float
    sigma0: float
    eta: float
    sigma_tilde: float
    mu_count: float
    utility_bound: float
    profile: Curve = field(repr=False, compare=False)


@dataclass(frozen=True)
class StatisticsParameters:
    """Curvature σ² = L/g and total Gaussian shift μ of a statistics release (S-1), (P-9) that keep
    (epsilon, delta)."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    theorem: str
    d: int
    m: float
    L: float
    sigma2: float
    mu: float
    profile: CurvatureProfile = field(repr=False, compare=False)


def solve_curvature(
    epsilon: float,
    delta: float,
    mu: float,
    family: LossFamily,
    excess: float = 0.0,
    start: float | None = None,
) -> float:
    """The largest ratio g = L/σ² with δ(ε) ≤ delta beside a Gaussian shift `mu`  (P-3), rounded down.

    σ² = L/g is enough curvature. `start` is a guess of g. Raises CalibrationFailed when the shift alone
    breaks the promise.
    """

    if hockey_stick(epsilon, mu) + excess > delta:
        raise CalibrationFailed(
            "the Gaussian shift alone breaks the promised (ε, δ): no curvature can mend it"
        )

    def excess_at(g: float) -> float:
        return log_excess(CurvatureProfile(family, g, mu, excess), epsilon, delta)

    return largest(
        excess_at, *_G_RANGE, start=start or 0.5 * min(1.0, epsilon + 0.1), what="curvature ratio g"
    )


def solve_shift(epsilon: float, delta: float, family: LossFamily, g: float, excess: float = 0.0) -> float:
    """The largest Gaussian shift μ with δ(ε) ≤ delta beside curvature at ratio g  (P-3), rounded down.

    Raises CalibrationFailed when the curvature alone breaks the promise.
    """
    ceiling = calibrate_mu(epsilon, delta)

    def excess_at(mu: float) -> float:
        return log_excess(CurvatureProfile(family, g, mu, excess), epsilon, delta)

    return largest(excess_at, 1e-9 * ceiling, ceiling, start=ceiling / 2, what="Gaussian shift μ")


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
    `eta` > 0 adds output noise (`output_sigma`); only 2η/σ̃ counts, so both may be scaled together later.
    `count` says that the number of rows is released, too (`count_shift`), `rare` what rare draws of the noise
    may cost of δ (`log_rare_probability`). accounting="paper" uses "Theorem main" and not (P-3), for ε < 1.
    """
    check_budget(epsilon, delta)
    for name, value in (("epsilon", epsilon), ("L", L), ("radius", radius)):
        require_number(name, value, positive=True)
    for name, value in (("center_sensitivity", center_sensitivity), ("eta", eta), ("rare", rare)):
        require_number(name, value)
    problem = _QOPProblem(
        float(epsilon), float(delta), float(L), int(d), float(center_sensitivity), float(radius), int(rank),
        int(classes), float(eta), bool(count), float(rare), adjacency, accounting,
    )  # fmt: skip
    if m is not None:
        check_curvature(d, m, adjacency)
    if accounting == "paper":
        return _calibrate_paper(problem, m)
    return _calibrate_qop(problem, None if m is None else float(m))


@dataclass(frozen=True)
class _QOPProblem:
    """What is asked of QOP, in units where the two terms of the utility bound are

    U = (L/g)(m radius²/2) + (Δ_c²/μ0²) d g/(2L(m−d−1)),   σ² = L/g, σ0 = Δ_c/μ0.
    """

    epsilon: float
    delta: float
    L: float
    d: int
    center_sensitivity: float
    radius: float
    rank: int
    classes: int
    eta: float
    count: bool
    rare: float
    adjacency: Adjacency
    accounting: AccountingName | Literal["paper"]

    @property
    def sigma_tilde(self) -> float:
        return output_sigma(self.eta, self.epsilon, self.delta)

    @property
    def mu_count(self) -> float:
        return count_shift(self.epsilon, self.delta) if self.count else 0.0

    @property
    def answer(self) -> tuple[float, float]:
        """What the answer's own noise takes of the shift and of δ: b, the count, rare draws."""
        mu, excess = gaussian_part(0.0, 0.0, self.eta, self.sigma_tilde, self.d)
        return math.hypot(mu, self.mu_count), excess + self.rare

    def law(self, m: float) -> CurvatureAccounting:
        if self.accounting == "paper":
            raise InvalidInput("the paper's theorem has no curve")
        return curvature_accounting(
            self.d,
            m,
            rank=self.rank,
            classes=self.classes,
            adjacency=self.adjacency,
            accounting=self.accounting,
        )

    def utility(self, m: float, g: float, mu0: float) -> float:
        linear = 0.0
        if self.center_sensitivity > 0:
            linear = (self.center_sensitivity / mu0) ** 2 * self.d * g / (2 * self.L * (m - self.d - 1))
        return self.L / g * m / 2 * self.radius**2 + linear

    def enough(self, m: float, mu0: float) -> float:
        """The ratio g at which U is least: below what privacy allows where curvature must damp the noise."""
        if self.center_sensitivity == 0:
            return math.inf
        return self.L * self.radius * mu0 / self.center_sensitivity * math.sqrt(m * (m - self.d - 1) / self.d)

    def solve(self, family: LossFamily, m: float, mu0: float, start: float | None = None) -> float:
        """The best ratio g that privacy allows beside the shifts of the linear term and of the output."""
        mu, excess = self.answer
        largest = solve_curvature(self.epsilon, self.delta, math.hypot(mu0, mu), family, excess, start)
        return min(largest, self.enough(m, mu0))


@dataclass
class _Search:
    """Minimises the utility bound over (m, μ0), by drafts, one coordinate at a time."""

    problem: _QOPProblem
    m: float
    mu0: float
    g: float | None = None

    def value(self, m: float, mu0: float) -> float:
        try:
            g = self.problem.solve(self.problem.law(m).draft(), m, mu0, self.g)
        except CalibrationFailed:
            return math.inf
        self.g = g
        return math.log(self.problem.utility(m, g, mu0))

    def over_shift(self) -> None:
        ceiling = calibrate_mu(self.problem.epsilon, self.problem.delta)
        logs = (math.log(0.02 * ceiling), math.log(0.995 * ceiling))
        self.mu0 = math.exp(minimise(lambda t: self.value(self.m, math.exp(t)), *logs))

    def over_degrees(self) -> None:
        d = self.problem.d

        def integer(t: float) -> float:
            return float(d + 2 + round(math.exp(t)))

        t = minimise(lambda t: self.value(integer(t), self.mu0), -0.7, math.log(40.0 * d + 400.0))
        self.m = integer(t)

    def without_drafts(self, law: CurvatureAccounting) -> tuple[float, float]:
        """(μ0, g) for the found m. Near the ceiling of μ0 drafts promise too much: step back if it pays."""
        problem, m, mu0 = self.problem, self.m, self.mu0
        promised = math.exp(self.value(m, mu0))
        g = problem.solve(law, m, mu0, self.g)
        value = problem.utility(m, g, mu0)
        while problem.center_sensitivity > 0 and value > 1.05 * promised:
            less = 0.96 * mu0
            ratio = problem.solve(law, m, less, g)
            if problem.utility(m, ratio, less) >= value:
                break
            mu0, g, value = less, ratio, problem.utility(m, ratio, less)
        return mu0, g


@lru_cache(maxsize=1024)
def _calibrate_qop(problem: _QOPProblem, m: float | None) -> QOPParameters:
    if m is not None and problem.center_sensitivity > 0 and m <= problem.d + 1:
        raise InvalidInput(f"the utility bound needs m > d+1 = {problem.d + 1}, got {m!r}")
    require_room(problem.delta, problem.answer[1])
    linear = problem.center_sensitivity > 0
    search = _Search(
        problem, m or 4.0 * problem.d + 4, 0.7 * calibrate_mu(problem.epsilon, problem.delta) * linear
    )
    for _ in range(2 if linear and m is None else 1):
        if linear:
            search.over_shift()
        if m is None:
            search.over_degrees()
    m, mu0 = search.m, search.mu0
    law = problem.law(m)
    mu0, g = search.without_drafts(law)
    sigma0 = problem.center_sensitivity / mu0 * (1 + 1e-12) if linear else 0.0
    sigma2 = problem.L / g * (1 + 1e-12)
    linear_mu = problem.center_sensitivity / sigma0 if linear else 0.0
    mu, excess = problem.answer
    profile = CurvatureProfile(
        law,
        problem.L / sigma2 * (1 + 1e-15),
        math.hypot(linear_mu, mu),
        excess,
        rare_cap(problem.epsilon, problem.rare),
    )
    confirm(profile, problem.epsilon, problem.delta)
    return QOPParameters(
        epsilon=problem.epsilon,
        delta=problem.delta,
        adjacency=problem.adjacency,
        accounting=law.name,
        theorem=law.theorem,
        d=problem.d,
        L=problem.L,
        center_sensitivity=problem.center_sensitivity,
        radius=problem.radius,
        m=m,
        sigma2=sigma2,
        sigma0=sigma0,
        eta=problem.eta,
        sigma_tilde=problem.sigma_tilde,
        mu_count=problem.mu_count,
        utility_bound=problem.utility(m, g, mu0),
        profile=profile,
    )


@lru_cache(maxsize=256)
def _calibrate_paper(problem: _QOPProblem, m: float | None) -> QOPParameters:
    """ "Theorem main" at its best split of what `paper_answer` leaves."""
    if m is not None:
        raise InvalidInput('accounting="paper" chooses m itself: pass m=None')
    answer = paper_answer(problem.epsilon, problem.delta, problem.d, problem.eta, problem.count, problem.rare)
    if problem.center_sensitivity > 0:
        best = paper.optimal_parameters(
            answer.epsilon,
            answer.delta,
            L=problem.L,
            d=problem.d,
            center_sensitivity=problem.center_sensitivity,
            distance2=problem.radius**2,
            rho=problem.rank,
        )
    else:
        best = paper.minimal_curvature(
            answer.epsilon,
            answer.delta,
            L=problem.L,
            d=problem.d,
            rho=problem.rank,
        )
    return QOPParameters(
        epsilon=problem.epsilon,
        delta=problem.delta,
        adjacency=problem.adjacency,
        accounting="paper",
        theorem="Theorem main",
        d=problem.d,
        L=problem.L,
        center_sensitivity=problem.center_sensitivity,
        radius=problem.radius,
        m=best.m,
        sigma2=best.sigma2,
        sigma0=best.sigma0,
        eta=problem.eta,
        sigma_tilde=answer.sigma_tilde,
        mu_count=answer.mu_count,
        utility_bound=paper.utility_bound_exact(
            sigma0=best.sigma0, sigma2=best.sigma2, d=problem.d, m=best.m, distance2=problem.radius**2
        ),
        profile=PointProfile(problem.epsilon, problem.delta),
    )


def calibrate_statistics(
    epsilon: float,
    delta: float,
    *,
    L: float,
    d: int,
    m: float,
    adjacency: Adjacency = "replace",
    mu: float | None = None,
    curvature_share: float | None = None,
) -> StatisticsParameters:
    """σ² and μ of a release of βXᵀX + σ²W beside Gaussian releases of total shift μ: (S-1), L = βB².

    Pass `mu` (0: no Gaussian release) and get the least σ²; or pass `curvature_share` ∈ (0, 1): the
    Gaussian releases get μ² = (1 − share)·μ_max², μ_max the shift that (ε, δ) allows alone, and the
    curvature all that remains.
    """
    check_budget(epsilon, delta)
    require_number("epsilon", epsilon, positive=True)
    require_number("L", L, positive=True)
    check_curvature(d, m, adjacency)
    if (mu is None) == (curvature_share is None):
        raise InvalidInput("pass exactly one of mu and curvature_share")
    if curvature_share is not None:
        if not 0 < curvature_share < 1:
            raise InvalidInput(f"curvature_share must lie strictly between 0 and 1, got {curvature_share!r}")
        mu = math.sqrt(1 - curvature_share) * calibrate_mu(epsilon, delta)
    assert mu is not None
    require_number("mu", mu)
    return _calibrate_statistics(float(epsilon), float(delta), float(L), d, float(m), adjacency, float(mu))


@lru_cache(maxsize=1024)
def _calibrate_statistics(
    epsilon: float, delta: float, L: float, d: int, m: float, adjacency: Adjacency, mu: float
) -> StatisticsParameters:
    law = MomentAccounting(d, m, adjacency)
    quick = solve_curvature(epsilon, delta, mu, law.draft())

    def found(g: float, family: LossFamily = law) -> tuple[float, CurvatureProfile]:
        """σ² = L/g, rounded up, and its profile: the search evaluates what will be promised, no more."""
        sigma2 = L / g * (1 + 1e-12)
        return sigma2, CurvatureProfile(family, L / sigma2 * (1 + 1e-15), mu)

    def excess_near(g: float) -> float:
        return log_excess(found(g, law.near())[1], epsilon, delta)

    def excess(g: float) -> float:
        return log_excess(found(g)[1], epsilon, delta)

    near = largest(excess_near, *_G_RANGE, start=quick, slope=_SLOPE, what="curvature ratio g")
    sigma2, profile = found(largest(excess, *_G_RANGE, start=near, slope=_SLOPE, what="curvature ratio g"))
    confirm(profile, epsilon, delta)
    return StatisticsParameters(epsilon, delta, adjacency, law.theorem, d, m, L, sigma2, mu, profile)
