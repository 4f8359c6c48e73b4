"""Second moments, released once by Wishart (S-1) or Gaussian (S-2) noise; fits are then free."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import SUM_SLACK, Layout, Moments, Rows
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan, Grid, excess, gaussian_profile
from curvedp.postprocess.noise import MomentsNoise, QuadraticModel, ReleasedMoments
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.calibrate import calibrate_statistics
from curvedp.privacy.curvature import MomentAccounting, Wishart, gaussian_sensitivity, gram_sensitivity
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import CurvatureProfile, GaussianProfile
from curvedp.problems import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.transcript import UNSTATED, NoisyCurvature, told

Noise = Literal["gaussian", "wishart"]
FREEDOM = 50.0  # m = FREEDOM·dimension: within 5 % of Gaussian noise, and positive definite
WEIGHT = math.sqrt(0.5)  # w·Y/B of a target in the Gram matrix
W = Parameter("w", "w", "weight of a target in the Gram matrix")


@dataclass(frozen=True)
class GaussianGram:
    """Symmetric discrete Gaussian noise, isotropic in the Frobenius norm (S-2)."""

    grid: Grid
    profile: GaussianProfile
    theorem = "(S-2)"

    @property
    def entry_scale(self) -> float:
        """The standard deviation of a diagonal entry; off the diagonal it is this over √2."""
        return self.grid.sigma

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return public.NOISE("gaussian"), public.SCALE(self.entry_scale)

    def add(self, gram: FloatArray, random: np.random.Generator) -> FloatArray:
        """Σ z zᵀ + noise on its public grid, the mean of the noise subtracted."""
        return self.grid.add_symmetric(gram, random, "second moments")


@dataclass(frozen=True)
class WishartGram:
    """σ²W, W ~ Wishart(dimension, m) (S-1)."""

    sigma2: float
    m: float
    profile: CurvatureProfile
    theorem = "(S-1)"

    @classmethod
    def of(
        cls, budget: Budget, x_norm: float, p: int, neighbours: Neighbours, mu: float = 0.0
    ) -> WishartGram:
        """For the Gram matrix of x ∈ R^p, ‖x‖ ≤ x_norm, beside Gaussian releases of total shift μ."""
        law = MomentAccounting(p, FREEDOM * p, neighbours.adjacency)
        sigma2, profile = calibrate_statistics(budget.epsilon, budget.delta, law, L=x_norm**2, mu=mu)
        return cls(sigma2, law.m, profile)

    @property
    def entry_scale(self) -> float:
        return self.sigma2 * math.sqrt(2.0 * self.m)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return public.NOISE("wishart"), public.SIGMA2(self.sigma2), public.M(self.m)

    def add(self, gram: FloatArray, random: np.random.Generator) -> FloatArray:
        noisy = gram + self.sigma2 * Wishart(len(gram), self.m).sample(random)
        noisy = round_to_grid(noisy, grid_step(self.entry_scale)) - self.sigma2 * self.m * np.eye(len(gram))
        return told(random, NoisyCurvature(gram, self.sigma2, self.m, self.profile.g), noisy)


GramNoise = GaussianGram | WishartGram


def gram_noise(budget: Budget, noise: Noise, z_norm: float, p: int, neighbours: Neighbours) -> GramNoise:
    """Noise for the Gram matrix of z ∈ R^p, ‖z‖ ≤ z_norm."""
    if noise == "gaussian":
        profile = gaussian_profile(budget, [p * p], [1.0])
        sensitivity = gram_sensitivity(z_norm, neighbours) + SUM_SLACK * z_norm**2
        return GaussianGram(Grid.of(sensitivity, profile.mu, p * p), profile)
    return WishartGram.of(budget, z_norm, p, neighbours)


def _check_noise(noise: str) -> None:
    if noise not in ("gaussian", "wishart"):
        raise InvalidInput(f'noise must be "gaussian" or "wishart", got {noise!r}')


@dataclass(frozen=True)
class Statistics:
    """Squared loss by its statistics: XᵀX and Xᵀy released once (S-1), (S-2), then solved for any r and C.

    Parameters
    ----------
    noise : {"gaussian", "wishart"}, default="gaussian"
        "gaussian": (XᵀX, s·Xᵀy) with s = B/Y as one Gaussian release. "wishart": XᵀX + σ²W, and Xᵀy − a with
        Gaussian a, half of the budget each.
    """

    noise: Noise = "gaussian"
    name = "statistics"

    def plan(self, problem: Problem, d: int, budget: Budget) -> StatisticsPlan:
        """Calibrate the noise of both statistics."""
        _check_noise(self.noise)
        if not problem.loss.is_quadratic:
            raise NotCovered(
                f"statistics need the squared loss, not {problem.loss.name}; recentered covers both"
            )
        domain = problem.domain
        B, Y = domain.x_norm, domain.y_bound
        if self.noise == "gaussian":
            size = d * d + d  # (XᵀX, s·Xᵀy), s = B/Y, is one query
            profile = gaussian_profile(budget, [size], [1.0])
            sensitivity = gaussian_sensitivity(B, Y, B / Y, domain.neighbours) + 2.0 * SUM_SLACK * B**2
            grid = replace(Grid.of(sensitivity, profile.mu, size), share=UNSTATED)
            return StatisticsPlan(problem, d, budget, GaussianGram(grid, profile), grid.scaled(Y / B))
        extra = excess([d], [calibrate_mu(budget.epsilon, budget.delta)])
        left = Budget(budget.epsilon, budget.delta - extra)
        mu = math.sqrt(0.5) * calibrate_mu(left.epsilon, left.delta)  # half of μ² for Xᵀy
        alone = WishartGram.of(left, B, d, domain.neighbours, mu)
        noise = replace(alone, profile=replace(alone.profile, excess=extra))
        sensitivity = problem.center_sensitivity(np.zeros((d, 1))) + SUM_SLACK * B * Y
        return StatisticsPlan(problem, d, budget, noise, Grid.of(sensitivity, mu, d))


@dataclass(frozen=True, eq=False)
class StatisticsPlan(FitPlan):
    """Noise levels for XᵀX and Xᵀy."""

    gram: GramNoise
    xy_grid: Grid
    persons: ClassVar[bool] = True  # each of k rows counts 1/k (U-2)

    @cached_property
    def guarantee(self) -> Guarantee:
        gram, scale = self.gram, public.XY_SCALE(self.xy_grid.sigma)
        return self.promise("statistics", "statistics", gram.theorem, gram.profile, *gram.parameters, scale)

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        return minimizer(self.problem, self.release_moments(rows, random))

    def release_moments(self, rows: Rows, random: np.random.Generator) -> ReleasedMoments:
        """The private statistics themselves."""
        exact = rows.moments()
        xx = self.gram.add(exact.xx, random)
        xy = self.xy_grid.add(exact.xy, random, "moments with the target")
        return ReleasedMoments(xx, xy, self.gram.entry_scale, self.xy_grid.sigma)


def minimizer(problem: Problem, released: ReleasedMoments, noise: MomentsNoise | None = None) -> Estimate:
    """θ of released moments and its noise, by default that of a Gaussian or Wishart release."""
    ridge = released.ridge()
    H = released.curvature(ridge)
    theta = QuadraticModel(problem, H).minimize(-released.xy, np.zeros((released.d, 1)))
    moved = (noise or released.noise).of_theta(problem, H, theta[:, 0], ridge, chosen=True)
    return Estimate(theta, noise=moved)


@dataclass(frozen=True, eq=False)
class GramPlan:
    """Calibrated noise for the Gram matrix of z = (x, w·y_1, …, w·y_T), ‖z‖² ≤ B² + T·w²Y² (S-1), (S-2)."""

    layout: Layout
    budget: Budget
    w: float
    noise: GramNoise
    intercept: float = 0.0  # the value of the last model column where it is constant
    persons: ClassVar[bool] = True  # each of k rows counts 1/k (U-2)

    @property
    def room(self) -> float:
        """Bytes of the matrices of a release, as of `FitPlan`."""
        return 8.0 * FitPlan.matrices * (self.layout.d + self.layout.n_targets) ** 2

    @classmethod
    def calibrated(
        cls,
        layout: Layout,
        budget: Budget,
        noise: Noise = "gaussian",
        weight: float = WEIGHT,
        intercept: float = 0.0,
    ) -> GramPlan:
        """`weight` is w·Y/B: a larger one favours Xᵀy over XᵀX."""
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInput(f"weight must be a positive number, the share of a target; got {weight!r}")
        _check_noise(noise)
        domain = layout.domain
        if domain.weighted:
            raise NotCovered(
                "these statistics count every record alike: fit an estimator with weights instead"
            )
        w = weight * domain.x_norm / domain.y_bound
        z_norm = domain.x_norm * math.sqrt(1.0 + layout.n_targets * weight**2) * (1 + 1e-15)
        gram = gram_noise(budget, noise, z_norm, layout.d + layout.n_targets, domain.neighbours)
        return cls(layout, budget, w, gram, intercept)

    @cached_property
    def guarantee(self) -> Guarantee:
        noise, neighbours = self.noise, self.layout.domain.neighbours
        named = ("private_statistics", "statistics", noise.theorem, Parameters(*noise.parameters, W(self.w)))
        return Guarantee(self.budget, neighbours, *named, noise.profile)

    def accept(self, rows: Rows) -> None:
        """Any rows of this layout."""

    def release(self, rows: Rows, random: np.random.Generator) -> ReleasedMoments:
        noisy = self.noise.add(gram_of(rows.moments(), self.w), random)
        d, w, scale = self.layout.d, self.w, self.noise.entry_scale
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
