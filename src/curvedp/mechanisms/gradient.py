"""Noisy gradient descent with full passes, and DP-SGD on Poisson samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from curvedp.domain import FloatArray
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.gaussian_noise import GaussianNoise, gradient_scale
from curvedp.privacy.gaussian import calibrate_mu, check_budget
from curvedp.privacy.guarantee import Guarantee, Profile
from curvedp.privacy.profiles import Curve, GaussianProfile
from curvedp.problem import Problem
from curvedp.rows.base import Rows
from curvedp.rows.sampled import sampled_gradient_sum

COUNT_SHARE = 0.01  # of μ²: the noisy count that scales the step under add_remove


@dataclass(frozen=True)
class Descent:
    """θ ← prox_{(step/n)r}(θ − (step/n)·G), projected onto C: the step shared by both mechanisms."""

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


def _check(rounds: int, clip: float, step: float) -> None:
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InvalidInput(f"rounds must be a positive integer, got {rounds!r}")
    for name, value in (("clip", clip), ("step", step)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(f"{name} must be a positive number, got {value!r}")


@dataclass(frozen=True)
class NoisyGradient:
    """`rounds` steps along Σ clip_c(∇ℓ) + N(0, σ²I): μ² = rounds·(Δ/σ)², Δ = c (add_remove) or 2c (replace).

    The step is `step`/n̂ with n̂ = n under replace and a noisy count otherwise. `average` > 0 releases the mean
    of that last fraction of the iterates, 0 the last one.
    """

    epsilon: float
    delta: float
    rounds: int = 200
    clip: float | None = None
    step: float | None = None
    average: float = 0.5

    def plan(self, problem: Problem, d: int) -> NoisyGradientPlan:
        clip = default_clip(problem) if self.clip is None else self.clip
        step = default_step(problem, d) if self.step is None else self.step
        _check(self.rounds, clip, step)
        if not 0.0 <= self.average <= 1.0:
            raise InvalidInput(f"average must lie in [0, 1], got {self.average!r}")
        mu = calibrate_mu(self.epsilon, self.delta)
        share = 0.0 if problem.domain.adjacency == "replace" else COUNT_SHARE
        return NoisyGradientPlan(
            problem=problem,
            d=d,
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=self.rounds,
            clip=clip,
            step=step,
            average=self.average,
            mu=mu,
            mu_count=mu * math.sqrt(share) * (1 - 1e-14),
            mu_round=mu * math.sqrt((1.0 - share) / self.rounds) * (1 - 1e-14),
        )


@dataclass(frozen=True, eq=False)
class NoisyGradientPlan:
    """Gaussian shifts of the count and of every round."""

    problem: Problem
    d: int
    epsilon: float
    delta: float
    rounds: int
    clip: float
    step: float
    average: float
    mu: float
    mu_count: float
    mu_round: float

    @property
    def sigma(self) -> float:
        """The noise of every coordinate of a gradient sum."""
        return gradient_scale(self.clip, self.mu_round, self.problem.domain.adjacency)

    @cached_property
    def guarantee(self) -> Guarantee:
        profile = GaussianProfile(self.mu)
        public: dict[str, Any] = {
            "rounds": self.rounds,
            "clip": self.clip,
            "step": self.step,
            "sigma": self.sigma,
            "mu_count": self.mu_count,
            "mu_round": self.mu_round,
            "zcdp_rho": profile.zcdp_rho,
        }
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.problem.domain.adjacency,
            mechanism="gradient",
            accounting="gaussian",
            theorem="Peers (noisy gradient descent)",
            parameters=public,
            profile=profile,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        noise = GaussianNoise(generator, self.problem.domain.adjacency)
        n = noise.count(rows, self.mu_count)
        descent = Descent(self.problem, self.step)
        loss = self.problem.loss
        theta = self.problem.constraint.project(np.zeros((self.d, loss.n_outputs)))
        last = max(1, round(self.average * self.rounds))
        mean = np.zeros_like(theta)
        for t in range(self.rounds):
            total = rows.gradient_sum(loss, theta, self.clip)
            theta = descent.move(theta, noise.gradient(total, self.clip, self.mu_round), n)
            if t >= self.rounds - last:
                mean += theta / last
        return Release(mean, self.guarantee)


@dataclass(frozen=True)
class DPSGD:
    """Noisy gradient steps on Poisson samples: every record takes part in a round with probability `rate`.

    Accounted by the privacy loss distribution of the subsampled Gaussian (dp_accounting), for add_remove, on
    dense rows.
    """

    epsilon: float
    delta: float
    rounds: int = 500
    rate: float = 0.05
    clip: float | None = None
    step: float | None = None

    def plan(self, problem: Problem, d: int) -> DPSGDPlan:
        if problem.domain.adjacency != "add_remove":
            raise NotCovered(
                "DP-SGD is accounted for add_remove adjacency only; use NoisyGradient for replace"
            )
        clip = default_clip(problem) if self.clip is None else self.clip
        step = default_step(problem, d) if self.step is None else self.step
        _check(self.rounds, clip, step)
        if not 0 < self.rate < 1:
            raise InvalidInput(f"rate must lie strictly between 0 and 1, got {self.rate!r}")
        multiplier, profile = calibrate_subsampled(self.epsilon, self.delta, self.rate, self.rounds)
        return DPSGDPlan(
            problem, d, self.epsilon, self.delta, self.rounds, self.rate, clip, step, multiplier, profile
        )


@dataclass(frozen=True, eq=False)
class DPSGDPlan:
    """The noise multiplier σ/c of every round."""

    problem: Problem
    d: int
    epsilon: float
    delta: float
    rounds: int
    rate: float
    clip: float
    step: float
    multiplier: float
    profile: Profile

    @cached_property
    def guarantee(self) -> Guarantee:
        public: dict[str, Any] = {
            "rounds": self.rounds,
            "rate": self.rate,
            "clip": self.clip,
            "step": self.step,
            "noise_multiplier": self.multiplier,
            "count_multiplier": count_multiplier(self.multiplier, self.rounds),
        }
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency="add_remove",
            mechanism="dp_sgd",
            accounting="pld",
            theorem="Peers (DP-SGD)",
            parameters=public,
            profile=self.profile,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        noise = GaussianNoise(generator, "add_remove")
        n = noise.count(rows, 1.0 / count_multiplier(self.multiplier, self.rounds))
        descent = Descent(self.problem, self.step)
        loss = self.problem.loss
        theta = self.problem.constraint.project(np.zeros((self.d, loss.n_outputs)))
        for _ in range(self.rounds):
            total = sampled_gradient_sum(rows, loss, theta, self.clip, self.rate, generator)
            gradient = noise.gradient(total, self.clip, 1.0 / self.multiplier)
            theta = descent.move(theta, gradient, self.rate * n)
        return Release(theta, self.guarantee)


def count_multiplier(multiplier: float, rounds: int) -> float:
    """Noise of the one unsampled count, which is composed with the rounds."""
    return max(10.0 * multiplier / math.sqrt(rounds), 10.0 * multiplier / rounds)


@dataclass(frozen=True)
class SubsampledProfile(Curve):
    """`rounds` Poisson-subsampled Gaussians and one noisy count, composed as privacy loss distributions."""

    multiplier: float
    rate: float
    rounds: int
    discretization: float = 1e-4

    def to_pld(self, discretization: float = 1e-4) -> Any:
        """The composition itself, pessimistic."""
        return _subsampled_pld(self.multiplier, self.rate, self.rounds, discretization)

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        pld = self.to_pld(self.discretization)
        return np.array([min(pld.get_delta_for_epsilon(float(level)) * (1 + 1e-9), 1.0) for level in epsilon])


@lru_cache(maxsize=64)
def _subsampled_pld(multiplier: float, rate: float, rounds: int, discretization: float) -> Any:
    def gaussian(deviation: float, probability: float) -> Any:
        return privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=deviation,
            value_discretization_interval=discretization,
            sampling_prob=probability,
            pessimistic_estimate=True,
        )

    count = gaussian(count_multiplier(multiplier, rounds), 1.0)
    return gaussian(multiplier, rate).self_compose(rounds).compose(count)


@lru_cache(maxsize=64)
def calibrate_subsampled(
    epsilon: float, delta: float, rate: float, rounds: int
) -> tuple[float, SubsampledProfile]:
    """The least noise multiplier (to 0.5 %) whose composition keeps (ε, δ), and its profile."""
    check_budget(epsilon, delta)
    discretization = 1e-4 * max(1.0, epsilon)  # pessimistic at any size; finer costs time

    def profile(multiplier: float) -> SubsampledProfile:
        return SubsampledProfile(multiplier, rate, rounds, discretization)

    def excess(multiplier: float) -> float:
        return profile(multiplier).delta_at(epsilon) - delta

    high = 1.0
    while excess(high) > 0:
        high *= 2.0
        if high > 1e6:
            raise CalibrationFailed("no noise within reach keeps the promised (ε, δ): relax epsilon or delta")
    low = high / 2.0
    while excess(low) <= 0 and low > 1e-3:
        low, high = low / 2.0, low
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high, profile(high)
