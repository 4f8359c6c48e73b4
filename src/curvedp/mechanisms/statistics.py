"""Second moments, released once with Gaussian noise (S-2); fits are then free."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import SUM_SLACK, Layout, Moments, Rows
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan, Grid, gaussian_profile
from curvedp.postprocess.noise import MomentsNoise, QuadraticModel, ReleasedMoments
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problems import Problem
from curvedp.transcript import UNSTATED

WEIGHT = math.sqrt(0.5)  # w·Y/B of a target in the Gram matrix
W = Parameter("w", "w", "weight of a target in the Gram matrix")


@dataclass(frozen=True)
class Statistics:
    """Squared loss by its statistics: (XᵀX, s·Xᵀy), s = B/Y, released once (S-2), solved for any r and C."""

    name = "statistics"

    def plan(self, problem: Problem, d: int, budget: Budget) -> StatisticsPlan:
        """Calibrate the noise of both statistics."""
        if not problem.loss.is_quadratic:
            raise NotCovered(
                f"statistics need the squared loss, not {problem.loss.name}; recentered covers both"
            )
        domain, size = problem.domain, d * d + d
        B, Y = domain.x_norm, domain.y_bound
        profile = gaussian_profile(budget, [size], [1.0])
        sensitivity = gaussian_sensitivity(B, Y, B / Y, domain.neighbours) + 2.0 * SUM_SLACK * B**2
        grid = replace(Grid.of(sensitivity, profile.mu, size), share=UNSTATED)
        return StatisticsPlan(problem, d, budget, grid, grid.scaled(Y / B), profile)


@dataclass(frozen=True, eq=False)
class StatisticsPlan(FitPlan):
    """Noise levels for XᵀX and Xᵀy."""

    xx_grid: Grid
    xy_grid: Grid
    profile: GaussianProfile
    persons: ClassVar[bool] = True  # each of k rows counts 1/k (U-2)

    @cached_property
    def guarantee(self) -> Guarantee:
        scales = public.SCALE(self.xx_grid.sigma), public.XY_SCALE(self.xy_grid.sigma)
        return self.promise("statistics", "statistics", "(S-2)", self.profile, *scales)

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        return minimizer(self.problem, self.release_moments(rows, random))

    def release_moments(self, rows: Rows, random: np.random.Generator) -> ReleasedMoments:
        """The private statistics themselves."""
        exact = rows.moments()
        xx = self.xx_grid.add_symmetric(exact.xx, random, "second moments")
        xy = self.xy_grid.add(exact.xy, random, "moments with the target")
        return ReleasedMoments(xx, xy, self.xx_grid.sigma, self.xy_grid.sigma)


def minimizer(problem: Problem, released: ReleasedMoments, noise: MomentsNoise | None = None) -> Estimate:
    """θ of released moments and its noise, by default that of a symmetric Gaussian release."""
    ridge = released.ridge()
    H = released.curvature(ridge)
    theta = QuadraticModel(problem, H).minimize(-released.xy, np.zeros((released.d, 1)))
    moved = (noise or released.noise).of_theta(problem, H, theta[:, 0], ridge, chosen=True)
    return Estimate(theta, noise=moved)


@dataclass(frozen=True, eq=False)
class GramPlan:
    """Calibrated noise for the Gram matrix of z = (x, w·y_1, …, w·y_T), ‖z‖² ≤ B² + T·w²Y² (S-2)."""

    layout: Layout
    budget: Budget
    w: float
    grid: Grid
    profile: GaussianProfile
    intercept: float = 0.0  # the value of the last model column where it is constant
    persons: ClassVar[bool] = True  # each of k rows counts 1/k (U-2)

    @property
    def room(self) -> float:
        """Bytes of the matrices of a release, as of `FitPlan`."""
        return 8.0 * FitPlan.matrices * (self.layout.d + self.layout.n_targets) ** 2

    @classmethod
    def calibrated(
        cls, layout: Layout, budget: Budget, weight: float = WEIGHT, intercept: float = 0.0
    ) -> GramPlan:
        """`weight` is w·Y/B: a larger one favours Xᵀy over XᵀX."""
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInput(f"weight must be a positive number, the share of a target; got {weight!r}")
        domain, size = layout.domain, (layout.d + layout.n_targets) ** 2
        if domain.weighted:
            raise NotCovered(
                "these statistics count every record alike: fit an estimator with weights instead"
            )
        w = weight * domain.x_norm / domain.y_bound
        z_norm = domain.x_norm * math.sqrt(1.0 + layout.n_targets * weight**2) * (1 + 1e-15)
        profile = gaussian_profile(budget, [size], [1.0])
        sensitivity = gram_sensitivity(z_norm, domain.neighbours) + SUM_SLACK * z_norm**2
        return cls(layout, budget, w, Grid.of(sensitivity, profile.mu, size), profile, intercept)

    @cached_property
    def guarantee(self) -> Guarantee:
        parameters = Parameters(public.SCALE(self.grid.sigma), W(self.w))
        named = ("private_statistics", "statistics", "(S-2)", parameters)
        return Guarantee(self.budget, self.layout.domain.neighbours, *named, self.profile)

    def accept(self, rows: Rows) -> None:
        """Any rows of this layout."""

    def release(self, rows: Rows, random: np.random.Generator) -> ReleasedMoments:
        noisy = self.grid.add_symmetric(gram_of(rows.moments(), self.w), random, "second moments")
        d, w, scale = self.layout.d, self.w, self.grid.sigma
        count: float | None = None
        if self.layout.domain.neighbours.count_is_public:
            count = float(rows.count())
        elif self.intercept:
            count = max(float(noisy[d - 1, d - 1]) / self.intercept**2, 1.0)
        xx, xy, yy = noisy[:d, :d], noisy[:d, d:] / w, noisy[d:, d:] / w**2
        return ReleasedMoments(xx, xy, scale, scale / (math.sqrt(2.0) * w), yy, count)


def gram_of(moments: Moments, w: float) -> FloatArray:
    """Σ z zᵀ of z = (x, w·y)."""
    return np.block([[moments.xx, w * moments.xy], [w * moments.xy.T, w**2 * moments.yy]])


def gaussian_sensitivity(x_norm: float, y_bound: float, y_weight: float, neighbours: Neighbours) -> float:
    """l2-sensitivity of (XᵀX, s·Xᵀy), XᵀX in the Frobenius norm, ‖x‖ ≤ B, |y| ≤ Y, s = y_weight  (S-2).

    add_remove: Δ² = B⁴ + s²B²Y².  replace: Δ² = 2B⁴(1 + s²Y²/(2B²))² if s²Y² ≤ 2B², else 4s²B²Y².
    """
    B, t = x_norm, (y_weight * y_bound) ** 2
    if neighbours.moves == 1:
        return B * math.sqrt(B**2 + t)
    if t <= 2 * B**2:
        return math.sqrt(2) * (B**2 + t / 2)
    return 2 * B * math.sqrt(t)


def gram_sensitivity(z_norm: float, neighbours: Neighbours) -> float:
    """l2-sensitivity of ZᵀZ in the Frobenius norm, ‖z‖ ≤ N: N² (add_remove), √2 N² (replace)  (S-2)."""
    return z_norm**2 * neighbours.gram_factor
