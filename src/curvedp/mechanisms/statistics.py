"""Private second moments: one release by Wishart (S-1) or Gaussian (S-2) noise; fits are then free."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from curvedp.domain import Adjacency, ColumnMap, Domain, FloatArray
from curvedp.ensembles import Wishart
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.gaussian_noise import symmetric_gaussian
from curvedp.mechanisms.moments import ReleasedMoments
from curvedp.mechanisms.proximal import QuadraticModel
from curvedp.privacy.calibrate import calibrate_statistics
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee, Profile
from curvedp.privacy.profiles import GaussianProfile
from curvedp.privacy.statistics import gaussian_sensitivity, gram_sensitivity
from curvedp.problem import Problem
from curvedp.randomness import generator as make_generator
from curvedp.randomness import grid_step, round_to_grid
from curvedp.rows import make_rows
from curvedp.rows.base import Moments, Rows

Noise = Literal["gaussian", "wishart"]
HIDDEN = 50.0  # m = HIDDEN·dimension: within 5 % of Gaussian noise, and positive definite
WEIGHT = math.sqrt(0.5)  # w·Y/B of a target in the Gram matrix


class GramNoise(Protocol):
    """Calibrated noise for a Gram matrix Σ z zᵀ."""

    @property
    def entry_scale(self) -> float:
        """The standard deviation of a diagonal entry; off the diagonal it is this over √2."""
        ...

    @property
    def profile(self) -> Profile: ...

    @property
    def theorem(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]:
        """The public noise level."""
        ...

    def add(self, gram: FloatArray, random: np.random.Generator) -> FloatArray:
        """Σ z zᵀ + noise on its public grid, the mean of the noise subtracted."""
        ...


@dataclass(frozen=True)
class GaussianGram:
    """Symmetric Gaussian noise, isotropic in the Frobenius norm (S-2)."""

    entry_scale: float
    profile: GaussianProfile
    theorem = "(S-2)"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"noise": "gaussian", "scale": self.entry_scale, "zcdp_rho": self.profile.zcdp_rho}

    def add(self, gram: FloatArray, random: np.random.Generator) -> FloatArray:
        noisy = gram + self.entry_scale * symmetric_gaussian(random, len(gram))
        return round_to_grid(noisy, grid_step(self.entry_scale))


@dataclass(frozen=True)
class WishartGram:
    """σ²W, W ~ Wishart(dimension, m) (S-1)."""

    sigma2: float
    m: float
    profile: Profile
    theorem = "(S-1)"

    @property
    def entry_scale(self) -> float:
        return self.sigma2 * math.sqrt(2.0 * self.m)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"noise": "wishart", "sigma2": self.sigma2, "m": self.m}

    def add(self, gram: FloatArray, random: np.random.Generator) -> FloatArray:
        noisy = gram + self.sigma2 * Wishart(len(gram), self.m).sample(random)
        return round_to_grid(noisy, grid_step(self.entry_scale)) - self.sigma2 * self.m * np.eye(len(gram))


def gram_noise(
    epsilon: float, delta: float, noise: Noise, z_norm: float, p: int, adjacency: Adjacency
) -> GramNoise:
    """Noise for the Gram matrix of z ∈ R^p, ‖z‖ ≤ z_norm, under (ε, δ)."""
    if noise == "gaussian":
        mu = calibrate_mu(epsilon, delta)
        return GaussianGram(gram_sensitivity(z_norm, adjacency) / mu, GaussianProfile(mu))
    m = hidden_dimension(p)
    found = calibrate_statistics(epsilon, delta, L=z_norm**2, d=p, m=m, adjacency=adjacency, mu=0.0)
    return WishartGram(found.sigma2, m, found.profile)


def hidden_dimension(p: int) -> float:
    """m = 50·p: the Wishart then needs about as much noise as a Gaussian."""
    return max(HIDDEN * p, p + 2.0)


def _check_noise(noise: str) -> None:
    if noise not in ("gaussian", "wishart"):
        raise InvalidInput(f'noise must be "gaussian" or "wishart", got {noise!r}')


@dataclass(frozen=True)
class Statistics:
    """Squared loss by its statistics: XᵀX and Xᵀy released once (S-1), (S-2), then solved for any r and C.

    "gaussian": (XᵀX, s·Xᵀy) with s = B/Y as one Gaussian release. "wishart": XᵀX + σ²W, and Xᵀy − a with
    Gaussian a, half of the budget each.
    """

    epsilon: float
    delta: float
    noise: Noise = "gaussian"

    def plan(self, problem: Problem, d: int) -> StatisticsPlan:
        _check_noise(self.noise)
        if not problem.loss.is_quadratic:
            raise NotCovered(
                f"statistics need the squared loss, not {problem.loss.name}; Recentered covers both"
            )
        domain = problem.domain
        B, Y = domain.x_norm, domain.y_bound
        if self.noise == "gaussian":
            mu = calibrate_mu(self.epsilon, self.delta)
            scale = gaussian_sensitivity(B, Y, B / Y, domain.adjacency) / mu
            gram = GaussianGram(scale, GaussianProfile(mu))
            return StatisticsPlan(problem, d, self.epsilon, self.delta, gram, scale * Y / B)
        m = hidden_dimension(d)
        found = calibrate_statistics(
            self.epsilon, self.delta, L=B**2, d=d, m=m, adjacency=domain.adjacency, curvature_share=0.5
        )
        sensitivity = problem.center_sensitivity(np.zeros((d, 1)))
        return StatisticsPlan(
            problem,
            d,
            self.epsilon,
            self.delta,
            WishartGram(found.sigma2, m, found.profile),
            sensitivity / found.mu,
        )


@dataclass(frozen=True, eq=False)
class StatisticsPlan:
    """Noise levels for XᵀX and Xᵀy."""

    problem: Problem
    d: int
    epsilon: float
    delta: float
    gram: GramNoise
    xy_scale: float

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.problem.domain.adjacency,
            mechanism="statistics",
            accounting="statistics",
            theorem=self.gram.theorem,
            parameters={**self.gram.parameters, "xy_scale": self.xy_scale},
            profile=self.gram.profile,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        released = self.release_moments(rows, generator)
        ridge = released.ridge()
        model = QuadraticModel(self.problem, released.curvature(ridge))
        theta = model.minimize(-released.xy, np.zeros((self.d, 1)))
        covariance = released.noise_covariance(theta[:, 0], ridge) if model.smooth else None
        return Release(theta, self.guarantee, covariance)

    def release_moments(self, rows: Rows, generator: np.random.Generator) -> ReleasedMoments:
        """The private statistics themselves."""
        exact = rows.moments()
        if exact.xy.shape[1] != 1:
            raise InvalidInput("one target at a time here; PrivateStatistics.release takes several")
        xx = self.gram.add(exact.xx, generator)
        noise = self.xy_scale * generator.standard_normal(exact.xy.shape)
        xy = round_to_grid(exact.xy + noise, grid_step(self.xy_scale))
        return ReleasedMoments(xx, xy, self.gram.entry_scale, self.xy_scale)


@dataclass(frozen=True, eq=False)
class PrivateStatistics(ReleasedMoments):
    """A private Gram matrix of z = (x, w·y_1, …, w·y_T), and everything that follows from it for free.

    `solve` fits with any regularizer and constraint, `path` a whole regularisation path, for every target;
    `residual_variance` and `standard_errors` account for the noise. Made by `release`.
    """

    privacy: Guarantee = field(kw_only=True)

    @classmethod
    def release(
        cls,
        X: Any,
        y: ArrayLike,
        *,
        epsilon: float,
        delta: float,
        domain: Domain | None = None,
        columns: ColumnMap | None = None,
        noise: Noise = "gaussian",
        weight: float = WEIGHT,
        random_state: int | None = None,
        charge: Callable[[Guarantee], None] | None = None,
    ) -> PrivateStatistics:
        """One release of Σ z zᵀ, ‖z‖² ≤ B² + T·w²Y² (S-1), (S-2); y of shape (n,) or (n, T), every |y| ≤ Y.

        `domain` gives B, Y and the adjacency; `columns` maps X by public bounds first. `weight` is w·Y/B: a
        larger one favours Xᵀy over XᵀX. The number of records is known afterwards under replace, or when
        `columns` appends an intercept. `charge` is called with the guarantee before anything is computed.
        """
        if domain is None:
            domain = Domain() if columns is None else Domain(x_norm=columns.norm_bound)
        rows = make_rows(X, y, domain, columns)
        targets = 1 if np.ndim(y) == 1 else int(np.shape(y)[1])
        plan = GramPlan.calibrated(epsilon, delta, noise, weight, domain, rows.d, targets)
        guarantee = replace(plan.guarantee, private=random_state is None)
        random = make_generator(random_state)
        if charge is not None:
            charge(guarantee)
        intercept = 0.0 if columns is None else columns.intercept
        return plan.release(rows, random, guarantee, intercept)


@dataclass(frozen=True)
class GramPlan:
    """Calibrated noise for the Gram matrix of z = (x, w·y)."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    d: int
    w: float
    noise: GramNoise

    @classmethod
    def calibrated(
        cls, epsilon: float, delta: float, noise: Noise, weight: float, domain: Domain, d: int, targets: int
    ) -> GramPlan:
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInput(f"weight must be a positive number, the share of a target; got {weight!r}")
        w = weight * domain.x_norm / domain.y_bound
        z_norm = domain.x_norm * math.sqrt(1.0 + targets * weight**2) * (1 + 1e-15)
        _check_noise(noise)
        gram = gram_noise(epsilon, delta, noise, z_norm, d + targets, domain.adjacency)
        return cls(epsilon, delta, domain.adjacency, d, w, gram)

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            mechanism="private_statistics",
            accounting="statistics",
            theorem=self.noise.theorem,
            parameters={**self.noise.parameters, "w": self.w},
            profile=self.noise.profile,
        )

    def release(
        self, rows: Rows, random: np.random.Generator, guarantee: Guarantee, intercept: float
    ) -> PrivateStatistics:
        noisy = self.noise.add(gram_of(rows.moments(), self.w), random)
        d, w, scale = self.d, self.w, self.noise.entry_scale
        count: float | None = None
        if self.adjacency == "replace":
            count = float(rows.count())
        elif intercept:
            count = max(float(noisy[d - 1, d - 1]) / intercept**2, 1.0)
        return PrivateStatistics(
            xx=noisy[:d, :d],
            xy=noisy[:d, d:] / w,
            xx_scale=scale,
            xy_scale=scale / (math.sqrt(2.0) * w),
            yy=noisy[d:, d:] / w**2,
            count=count,
            privacy=guarantee,
        )


def gram_of(moments: Moments, w: float) -> FloatArray:
    """Σ z zᵀ of z = (x, w·y)."""
    return np.block([[moments.xx, w * moments.xy], [w * moments.xy.T, w**2 * moments.yy]])
