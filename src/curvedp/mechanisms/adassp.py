"""AdaSSP (Wang 2018): Gaussian statistics with a ridge that adapts to a private smallest eigenvalue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import CalibrationFailed, NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.proximal import QuadraticModel
from curvedp.privacy.gaussian import check_budget
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.rows.base import Rows

FAILURE = 0.05  # ϱ of the published ridge


@dataclass(frozen=True)
class AdaSSP:
    """θ = (XᵀX + sB²Z + λI)⁻¹(Xᵀy + sBYz'), s = √ln(6/δ)/(ε/3), with the published constants; add_remove.

    λ̃ = max(0, λ_min(XᵀX) + sB²z − B² ln(6/δ)/(ε/3)) and λ = max(0, √(d ln(6/δ) ln(2d²/0.05)) B²/(ε/3) − λ̃).
    Three Gaussian releases, each of shift 1/s.
    """

    epsilon: float
    delta: float

    def plan(self, problem: Problem, d: int) -> AdaSSPPlan:
        check_budget(self.epsilon, self.delta)
        if not problem.loss.is_quadratic:
            raise NotCovered("AdaSSP covers the squared loss only; use Recentered")
        if problem.domain.adjacency != "add_remove":
            raise NotCovered("AdaSSP is published for add_remove adjacency; use Statistics for replace")
        s = math.sqrt(math.log(6.0 / self.delta)) / (self.epsilon / 3.0)
        profile = GaussianProfile(math.sqrt(3.0) / s * (1 + 1e-14))
        if profile.delta_at(self.epsilon) > self.delta:
            raise CalibrationFailed(
                "the published constants of AdaSSP do not keep this (ε, δ); lower epsilon"
            )
        return AdaSSPPlan(problem, d, self.epsilon, self.delta, s, profile)


@dataclass(frozen=True, eq=False)
class AdaSSPPlan:
    """The noise multiplier s of the three releases."""

    problem: Problem
    d: int
    epsilon: float
    delta: float
    s: float
    profile: GaussianProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        public: dict[str, Any] = {"s": self.s, "mu": self.profile.mu}
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency="add_remove",
            mechanism="adassp",
            accounting="gaussian",
            theorem="Peers (AdaSSP)",
            parameters=public,
            profile=self.profile,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        moments, domain = rows.moments(), self.problem.domain
        B2, BY = domain.x_norm**2, domain.x_norm * domain.y_bound
        smallest = float(np.linalg.eigvalsh(moments.xx)[0])
        smallest = float(
            round_to_grid(
                np.array(smallest + self.s * B2 * generator.standard_normal()), grid_step(self.s * B2)
            )
        )
        xx = moments.xx + self.s * B2 * _symmetric_copy(generator, self.d)
        xx = round_to_grid(xx, grid_step(self.s * B2))
        xy = moments.xy[:, :1] + self.s * BY * generator.standard_normal((self.d, 1))
        xy = round_to_grid(xy, grid_step(self.s * BY))
        H = xx + self.ridge(smallest) * np.eye(self.d)
        values, vectors = np.linalg.eigh(H)
        H = (vectors * np.maximum(values, 1e-9 * max(float(values[-1]), B2))) @ vectors.T
        theta = QuadraticModel(self.problem, (H + H.T) / 2.0).minimize(-xy, np.zeros((self.d, 1)))
        return Release(theta, self.guarantee)

    def ridge(self, noisy_smallest: float) -> float:
        """λ, from the noisy λ_min(XᵀX)."""
        log, B2, third = math.log(6.0 / self.delta), self.problem.domain.x_norm**2, self.epsilon / 3.0
        certain = max(0.0, noisy_smallest - B2 * log / third)
        wanted = math.sqrt(self.d * log * math.log(2.0 * self.d**2 / FAILURE)) * B2 / third
        return max(0.0, wanted - certain)


def _symmetric_copy(random: np.random.Generator, d: int) -> FloatArray:
    """N(0, 1) on and above the diagonal, copied below it: the published noise."""
    upper = np.triu(random.standard_normal((d, d)))
    return np.asarray(upper + np.triu(upper, 1).T)
