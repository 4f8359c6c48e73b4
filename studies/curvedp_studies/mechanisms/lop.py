"""Linear objective perturbation: LOP, LOP-Clip, approximate minima (AMP), and its accounting (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import log_ndtr, ndtr

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.mechanisms.base import LEAST_ETA, LEAST_SIGMA_TILDE, RareDraws, SolvedPlan, accuracy
from curvedp.mechanisms.objective import centered
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.calibrate import (
    AnswerNoise,
    confirm,
    largest,
    log_excess,
    minimise,
)
from curvedp.privacy.gaussian import check_budget, hockey_stick, require_number
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import Curve, PointProfile
from curvedp.privacy.quadrature import UPPER_QUANTILE, LossLaw, MassBins
from curvedp.problems import Problem
from curvedp.solvers.glm import NoiseBounds, Perturbation
from curvedp.transcript import UNSTATED, Derivative, Law, Unit
from curvedp_studies import paper
from curvedp_studies.accounting import gaussian_part
from curvedp_studies.mechanisms import vocabulary


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


def half_normal_bins(*, step: float) -> MassBins:
    """MassBins of |z|, z ~ N(0, 1), up to 10 in steps of `step`; E[|z|; (a, b)] = 2(φ(a) − φ(b))."""
    edges = np.append(np.arange(0.0, UPPER_QUANTILE, step), UPPER_QUANTILE)
    tail = 2 * ndtr(-edges)
    mass = -np.diff(tail)
    density = np.exp(-(edges**2) / 2) * np.sqrt(2 / np.pi)
    position = np.clip((-np.diff(density) / mass - edges[:-1]) / np.diff(edges), 0.0, 1.0)
    return MassBins(edges, mass, position, float(tail[-1]))


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


@dataclass(frozen=True, kw_only=True)
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


@lru_cache(maxsize=1024, typed=True)
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
    answered: dict[str, Any] = {"d": d, "eta": eta, "count": count, "rare": rare}
    if accounting not in ("auto", "directional", "paper"):
        raise InvalidInput(
            f'`accounting` must be "auto", "directional" or "paper" for lop, got {accounting!r}'
        )
    if accounting == "paper":
        return _published(epsilon, delta, L=L, zeta=zeta, radius=radius, adjacency=adjacency, **answered)
    answer = AnswerNoise.of(epsilon, delta, **answered)

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


def _published(
    epsilon: float,
    delta: float,
    *,
    L: float,
    zeta: float,
    radius: float,
    d: int,
    adjacency: Adjacency,
    eta: float,
    count: bool,
    rare: float,
) -> LOPParameters:
    """`calibrate_lop` by the constants of Kifer et al. 2012, which are proved for add_remove."""
    if Neighbours(adjacency).moves == 2:
        raise NotCovered(
            "the published LOP calibration is false under replace adjacency (true δ above the claimed "
            "one); pass `accounting=directional`, or `adjacency=add_remove`"
        )
    left, sigma_tilde, mu_count = paper.paper_answer(epsilon, delta, d=d, eta=eta, count=count, rare=rare)
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


@dataclass(frozen=True, eq=False)
class LOP:
    """θ_priv = argmin_C J(θ) + (Δ/2)‖θ−θ_c‖² + aᵀ(θ−θ_c), a ~ N(0, σ²I), released with output noise (P-8).

    Needs a gradient bound ζ: a loss with bounded gradients, or a bounded constraint.

    Parameters
    ----------
    accounting : {"auto", "directional", "paper"}, default="auto"
        "auto" and "directional" use (P-8); "paper" the constants of Kifer et al., for add_remove only.
    radius : float, default=1.0
        A public guess of ‖θ* − θ_c‖; it only steers the calibration.
    center : float or array, default=0.0
        θ_c, a number or an array of the shape of θ.
    eta : float, optional
        The least solver error that is accounted, by default 1e-6·radius; more where rounding needs it.
    exact : bool, default=False
        A study mode: no output noise, and a guarantee that says private=False.

    Examples
    --------
    >>> from curvedp import Budget, Problem
    >>> from curvedp.problems.losses import Logistic
    >>> from curvedp_studies.mechanisms.lop import LOP
    >>> LOP().plan(Problem(Logistic()), 5, Budget(1.0, 1e-6)).guarantee.theorem
    '(P-8)'
    """

    accounting: Literal["auto", "directional", "paper"] = "auto"
    radius: float = 1.0
    center: FloatArray | float = 0.0
    eta: float | None = None
    exact: bool = False
    name = "lop"

    def plan(self, problem: Problem, d: int, budget: Budget) -> LOPPlan:
        """Calibrate (Δ, σ, σ̃) from public constants alone."""
        return self._plan(problem, d, budget, problem.gradient_bound(d), None)

    def _plan(self, problem: Problem, d: int, budget: Budget, zeta: float, clip: float | None) -> LOPPlan:
        if problem.loss.n_outputs != 1:
            # The determinant bounds of (P-8) are for Hessians of rank one.
            raise NotCovered(
                f"{self.name} covers losses with one output only: choose the mechanism qop or recentered"
            )
        if not math.isfinite(zeta):
            raise NotCovered(
                f"{self.name} needs bounded gradients and {problem.loss.name} loss has none on this "
                "constraint: choose the mechanism lop_clip or qop, or a bounded constraint"
            )
        center = centered(self.center, d, 1)
        eta = accuracy(self.radius, self.eta, self.exact)
        parameters = calibrate_lop(
            budget.epsilon,
            budget.delta,
            L=problem.smoothness(d, center),
            zeta=zeta,
            d=d,
            radius=self.radius,
            eta=eta,
            count=not (self.exact or problem.domain.neighbours.count_is_public),
            rare=0.0 if self.exact else RareDraws.of(budget, problem.domain.neighbours).delta,
            adjacency=problem.domain.adjacency,
            accounting=self.accounting,
        )
        return LOPPlan(
            problem,
            d,
            budget,
            center=center,
            least_eta=eta,
            ratio=0.0 if self.exact else parameters.sigma_tilde / eta,
            mu_count=parameters.mu_count,
            exact=self.exact,
            clip=clip,
            parameters=parameters,
            mechanism=self.name,
        )


@dataclass(frozen=True, eq=False)
class LOPClip(LOP):
    """LOP on the Huberised loss, whose gradients are those of ℓ clipped to norm `clip` (section 5).

    Parameters
    ----------
    accounting, radius, center, eta, exact
        As for `LOP`.
    clip : float, default=1.0
        ζ: no record's gradient is longer.
    """

    clip: float = 1.0
    name = "lop_clip"

    def plan(self, problem: Problem, d: int, budget: Budget) -> LOPPlan:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidInput(f"clip must be a positive number, got {self.clip!r}")
        bound = problem.gradient_bound(d)
        return self._plan(problem, d, budget, min(self.clip, bound), self.clip if self.clip < bound else None)


@dataclass(frozen=True, eq=False)
class AMP(LOP):
    """Approximate minima: LOP solved to ‖∇J_priv‖ ≤ tolerance·Δ·radius only; output noise pays for the slack.

    By strong convexity the slack moves θ by at most η = tolerance·radius: (P-8) composed with that Gaussian.

    Parameters
    ----------
    accounting, radius, center, exact
        As for `LOP`; `eta` follows from the tolerance.
    tolerance : float, default=1e-5
        η as a fraction of the radius.
    """

    tolerance: float = 1e-5
    name = "amp"

    def plan(self, problem: Problem, d: int, budget: Budget) -> LOPPlan:
        loose = replace(self, eta=None if self.exact else self.tolerance * self.radius)
        return loose._plan(problem, d, budget, problem.gradient_bound(d), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class LOPPlan(SolvedPlan):
    """The calibrated linear perturbation for one problem and dimension."""

    parameters: LOPParameters
    mechanism: str

    @cached_property
    def guarantee(self) -> Guarantee:
        p = self.parameters
        return self.promise(
            self.mechanism,
            p.accounting,
            p.theorem,
            p.profile,
            vocabulary.DELTA_CURVATURE(p.Delta),
            public.SIGMA(p.sigma),
            LEAST_SIGMA_TILDE(p.sigma_tilde),
            LEAST_ETA(p.eta),
            public.L(p.L),
            vocabulary.ZETA(p.zeta),
            *([public.MU_COUNT(p.mu_count)] if p.mu_count > 0 else []),
            private=not self.exact,
        )

    @cached_property
    def noise_bounds(self) -> NoiseBounds:
        p, size = self.parameters, self.center.size
        return NoiseBounds(p.Delta, 1.01 * size * p.Delta, p.sigma * self.rare.gaussian_norm(size))

    def perturbation(self, random: np.random.Generator) -> Perturbation:
        a = self.parameters.sigma * random.standard_normal(self.center.shape)
        return Perturbation(self.center, a, self.parameters.Delta * np.eye(self.center.size))

    def law(self, drawn: Perturbation, used: Perturbation, rows: Rows, eta: float) -> Law:
        p, (gradient, hessian) = self.parameters, self.derivatives(rows)
        share = self.problem.domain.neighbours.sum_factor * p.zeta / p.sigma
        return LinearMinimum(gradient, hessian, self.center, p.Delta, p.sigma, drawn.linear, eta, share)

    def pulls(self) -> list[float]:
        """G = (added curvature)/B brings the margin to 1; three times as much keeps slopes at their ends
        whatever the noise, twenty times as much those of records that hardly lie along it.
        """
        one = self.parameters.Delta / self.problem.domain.x_norm
        return [one, 3.0 * one, 20.0 * one]


@dataclass(frozen=True, eq=False)
class LinearMinimum:
    """θ = argmin J(θ) + (Δ/2)‖u‖² + aᵀu, u = θ − θ_c, a ~ N(0, σ²I) and J smooth  (P-8).

    θ ↦ a is one to one: p(θ) = N(∇J(θ) + Δu; σ²I)·det(∇²J(θ) + ΔI). `reach` is η.
    """

    gradient: Derivative
    hessian: Derivative
    center: FloatArray
    Delta: float
    sigma: float
    linear: FloatArray  # a as it was drawn
    reach: float
    share: float = UNSTATED  # moves·ζ/σ: no table moves ∇J farther
    name: str = "minimiser"
    unit: ClassVar[Unit] = "g"

    def log_density(self, value: FloatArray) -> float:
        a = self.gradient(value) + self.Delta * (value - self.center)
        logdet = np.linalg.slogdet(self.hessian(value) + self.Delta * np.eye(value.size))[1]
        return float(logdet) - float(np.sum(np.square(a / self.sigma))) / 2

    def distance(self, other: LinearMinimum, value: FloatArray) -> float:
        """‖∇J(θ) − ∇J'(θ)‖/σ."""
        return float(np.linalg.norm(self.gradient(value) - other.gradient(value))) / self.sigma

    def residuals(self, value: FloatArray) -> FloatArray:
        """Of the drawn a."""
        return np.asarray(self.linear / self.sigma).ravel()

    def misses(self, value: FloatArray) -> float:
        """How far θ is from the minimiser that the draws give, in units of η, at most."""
        slope = self.gradient(value) + self.linear + self.Delta * (value - self.center)
        return float(np.linalg.norm(slope)) / self.Delta / self.reach
