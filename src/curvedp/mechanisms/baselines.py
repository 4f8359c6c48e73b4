"""Noisy gradient descent with full passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.noise import GaussianNoise, gaussian_profile, gradient_scale
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.progress import advance
from curvedp.rows.base import Rows
from curvedp.rows.rounding import SUM_SLACK, slope_slack

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
            public.CLIP(self.clip),
            public.STEP(self.step),
            public.SIGMA(self.sigma),
            public.MU_COUNT(self.mu_count),
            public.MU_ROUND(self.mu_round),
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
