"""Output perturbation and noisy gradient descent, to measure other mechanisms against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import SUM_SLACK, Rows, slope_slack
from curvedp.errors import InvalidInput, NotCovered, advance
from curvedp.mechanisms.base import (
    LEAST_ETA,
    RELATIVE_ETA,
    Estimate,
    FitPlan,
    GaussianNoise,
    RareDraws,
    SolvedPlan,
    gaussian_profile,
    gradient_scale,
)
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile, count_shift, rare_cap
from curvedp.problems import Problem
from curvedp.randomness import STEPS_PER_SIGMA
from curvedp.solvers.glm import NoiseBounds, Perturbation
from curvedp_studies.mechanisms import vocabulary


@dataclass(frozen=True)
class OutputPerturbation:
    """argmin_C J(θ) + (Λ/2)‖θ‖² plus N(0, ((Δ_θ + 2η)/μ)²I), Δ_θ = ζ/Λ (add_remove) or 2ζ/Λ (replace).

    Needs a gradient bound ζ: a loss with bounded gradients, or a bounded constraint.

    Parameters
    ----------
    weight : float, optional
        Λ, by default the one at which the noise is a quarter as long as `radius` (a larger Λ shrinks more, a
        smaller one drowns the answer).
    radius : float, default=1.0
        A public guess of ‖θ*‖.

    Examples
    --------
    >>> from curvedp import Budget, Problem
    >>> from curvedp.problems.losses import Logistic
    >>> from curvedp_studies.mechanisms.baselines import OutputPerturbation
    >>> OutputPerturbation().plan(Problem(Logistic()), 5, Budget(1.0, 1e-6)).guarantee.mechanism
    'output'
    """

    weight: float | None = None
    radius: float = 1.0
    name = "output"

    def plan(self, problem: Problem, d: int, budget: Budget) -> OutputPlan:
        """Calibrate (Λ, σ) from public constants alone."""
        zeta = problem.gradient_bound(d)
        if not math.isfinite(zeta):
            raise NotCovered(
                f"output perturbation needs bounded gradients and {problem.loss.name} loss has none on this "
                "constraint: choose the mechanism recentered or qop, or a bounded constraint"
            )
        for name, value in (("radius", self.radius), ("weight", self.weight)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(f"{name} must be a positive number, got {value!r}")
        center = np.zeros((d, problem.loss.n_outputs))
        neighbours = problem.domain.neighbours
        # The discreteness of the noise is paid out of δ before μ is chosen; it grows with μ.
        largest = calibrate_mu(budget.epsilon, budget.delta)
        excess = discrete_gaussian_excess(largest, d=center.size, steps_per_sigma=STEPS_PER_SIGMA)
        mu_count, cap = 0.0, math.inf
        if not neighbours.count_is_public:
            rare = RareDraws.of(budget, neighbours).delta
            mu_count, excess = count_shift(budget.epsilon, budget.delta), excess + rare
            cap = rare_cap(budget.epsilon, rare)
        mu = calibrate_mu(budget.epsilon, budget.delta - excess)
        mu_output = math.sqrt((mu - mu_count) * (mu + mu_count)) * (1 - 1e-14)
        Lambda = self.weight
        if Lambda is None:
            Lambda = 4.0 * neighbours.sum_factor * zeta * math.sqrt(center.size) / (mu_output * self.radius)
        sensitivity = neighbours.sum_factor * zeta / Lambda
        return OutputPlan(
            problem,
            d,
            budget,
            center=center,
            least_eta=RELATIVE_ETA * max(sensitivity, self.radius),
            ratio=2.0 / mu_output * (1 + 1e-12),
            base_sigma=sensitivity / mu_output * (1 + 1e-12),
            mu_count=mu_count,
            Lambda=Lambda,
            zeta=zeta,
            profile=GaussianProfile(mu, excess, cap),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputPlan(SolvedPlan):
    """The ridge Λ and the gradient bound ζ: one record moves the exact minimiser by at most σ_0·μ."""

    Lambda: float
    zeta: float
    profile: GaussianProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "output",
            "gaussian",
            "Peers (output perturbation)",
            self.profile,
            vocabulary.LAMBDA(self.Lambda),
            vocabulary.ZETA(self.zeta),
            LEAST_ETA(self.least_eta),
            public.SIGMA(self.base_sigma + self.ratio * self.least_eta),
            public.MU(self.profile.mu),
            *([public.MU_COUNT(self.mu_count)] if self.mu_count > 0 else []),
        )

    @property
    def noise_bounds(self) -> NoiseBounds:
        return NoiseBounds(self.Lambda, 1.01 * self.center.size * self.Lambda, 0.0)

    def perturbation(self, random: np.random.Generator) -> Perturbation:
        return Perturbation(self.center, self.center, self.Lambda * np.eye(self.center.size))


# Noisy gradient descent with full passes.


COUNT_SHARE = 0.01  # of μ²: the noisy count that scales the step where n is private


@dataclass(frozen=True)
class Descent:
    """θ ← prox_{(step/n)r}(θ − (step/n)·G), projected onto C."""

    problem: Problem
    step: float

    def move(self, theta: FloatArray, gradient: FloatArray, n: float) -> FloatArray:
        length = self.step / n
        moved = self.problem.regularizer.prox(theta - length * gradient, length)
        return self.problem.constraint.project(moved)


def default_step(problem: Problem, d: int) -> float:
    """4/(β B²): records rarely all point the same way, so the mean loss curves less than βB²/4."""
    return 4.0 / problem.smoothness(d)


def default_clip(problem: Problem) -> float:
    """A quarter of the largest gradient at θ = 0."""
    return 0.25 * problem.loss.center_bound(problem.domain, 0.0)


def check_descent(rounds: int, clip: float, step: float) -> None:
    """Refuse what is no descent."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InvalidInput(f"rounds must be a positive integer, got {rounds!r}")
    for name, value in (("clip", clip), ("step", step)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(f"{name} must be a positive number, got {value!r}")


@dataclass(frozen=True)
class NoisyGradient:
    """`rounds` steps along Σ clip_c(∇ℓ) + N(0, σ²I): μ² = rounds·(Δ/σ)², Δ = c (add_remove) or 2c (replace).

    The step is `step`/n̂ with n̂ = n under replace and a noisy count otherwise.

    Parameters
    ----------
    rounds : int, default=200
        Passes over the data.
    clip : float, optional
        c; by default a quarter of the largest gradient at θ = 0.
    step : float, optional
        In units of 1/n̂; by default 4/(βB²). Where n̂ counts persons, divide that by the rows of a person.
    average : float, default=0.5
        The mean of that last fraction of the iterates is released; 0: the last one.
    """

    rounds: int = 200
    clip: float | None = None
    step: float | None = None
    average: float = 0.5
    name = "gradient"

    def plan(self, problem: Problem, d: int, budget: Budget) -> NoisyGradientPlan:
        """Calibrate the noise of every round."""
        clip = default_clip(problem) if self.clip is None else self.clip
        step = default_step(problem, d) if self.step is None else self.step
        check_descent(self.rounds, clip, step)
        if not 0.0 <= self.average <= 1.0:
            raise InvalidInput(f"average must lie in [0, 1], got {self.average!r}")
        share = 0.0 if problem.domain.neighbours.count_is_public else COUNT_SHARE
        size = d * problem.loss.n_outputs
        shares = [share, *([(1.0 - share) / self.rounds] * self.rounds)]
        profile = gaussian_profile(budget, [1, *([size] * self.rounds)], shares)
        mu = profile.mu
        return NoisyGradientPlan(
            problem,
            d,
            budget,
            rounds=self.rounds,
            clip=clip,
            step=step,
            average=self.average,
            profile=profile,
            mu_count=mu * math.sqrt(share) * (1 - 1e-14),
            mu_round=mu * math.sqrt((1.0 - share) / self.rounds) * (1 - 1e-14),
        )


# In clips: where θ has run so far that rounding could add more than a record does, noise that covers it would
# only drive θ further. θ was released: to stop there is free, and rounds that are not made cost nothing.
RUNAWAY = 1.0


@dataclass(frozen=True, eq=False)
class NoisyGradientPlan(FitPlan):
    """Gaussian shifts of the count and of every round."""

    rounds: int
    clip: float
    step: float
    average: float
    profile: GaussianProfile
    mu_count: float
    mu_round: float
    persons: ClassVar[bool] = True
    matrices: ClassVar[float] = 0.0

    @property
    def sigma(self) -> float:
        """The least noise of a coordinate of a gradient sum; rounding at large θ adds a little."""
        return gradient_scale(self.clip, self.mu_round, self.problem.domain.neighbours)

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "gradient",
            "gaussian",
            "Peers (noisy gradient descent)" if self.problem.domain.unit is None else "(U-1)",
            self.profile,
            public.ROUNDS(self.rounds),
            vocabulary.CLIP(self.clip),
            vocabulary.STEP(self.step),
            public.SIGMA(self.sigma),
            public.MU_COUNT(self.mu_count),
            vocabulary.MU_ROUND(self.mu_round),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        n = noise.count(rows, self.mu_count)
        descent = Descent(self.problem, self.step)
        loss = self.problem.loss
        theta = self.problem.constraint.project(np.zeros((self.d, loss.n_outputs)))
        last = max(1, round(self.average * self.rounds))
        mean = np.zeros_like(theta)
        for t in range(self.rounds):
            total = rows.gradient_sum(loss, theta, self.clip)
            slack = SUM_SLACK + slope_slack(self.problem, self.d, theta, self.clip)
            if t > 0 and slack > RUNAWAY:
                return Estimate(theta)
            theta = descent.move(theta, noise.gradient(total, self.clip, self.mu_round, slack, "round"), n)
            advance(self.rounds)
            if t >= self.rounds - last:
                mean += theta / last
        return Estimate(mean)
