"""Functional mechanism (Zhang et al. 2012): Laplace noise on the coefficients of the squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.moments import ReleasedMoments
from curvedp.mechanisms.proximal import QuadraticModel
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import PureProfile
from curvedp.problem import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.rows.base import Rows


@dataclass(frozen=True)
class Functional:
    """Σ ½(xᵀθ−y)² as a polynomial in θ, every coefficient with Laplace noise of scale Δ₁/ε; pure ε-DP.

    Coefficients: θ_jθ_l (j < l): Σ x_jx_l; θ_j²: ½Σ x_j²; θ_j: −Σ y x_j. One record moves them by at most
    Δ₁ = ½‖x‖₁² + Y‖x‖₁ in l1, ‖x‖₁ ≤ √d·B (add_remove), and by 2Δ₁ under replace.
    """

    epsilon: float
    delta: float = 0.0

    def plan(self, problem: Problem, d: int) -> FunctionalPlan:
        if not problem.loss.is_quadratic:
            raise NotCovered("the functional mechanism covers the squared loss only; use Recentered")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InvalidInput(f"epsilon must be a positive number, got {self.epsilon!r}")
        domain = problem.domain
        length = math.sqrt(d) * domain.x_norm
        sensitivity = 0.5 * length**2 + domain.y_bound * length
        if domain.adjacency == "replace":
            sensitivity *= 2.0
        return FunctionalPlan(problem, d, self.epsilon, sensitivity / self.epsilon * (1 + 1e-12))


@dataclass(frozen=True, eq=False)
class FunctionalPlan:
    """The Laplace scale Δ₁/ε."""

    problem: Problem
    d: int
    epsilon: float
    scale: float

    @cached_property
    def guarantee(self) -> Guarantee:
        public: dict[str, Any] = {"scale": self.scale}
        return Guarantee(
            epsilon=self.epsilon,
            delta=0.0,
            adjacency=self.problem.domain.adjacency,
            mechanism="functional",
            accounting="pure",
            theorem="Peers (functional mechanism)",
            parameters=public,
            profile=PureProfile(self.epsilon),
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        released = self.release_moments(rows, generator)
        model = QuadraticModel(self.problem, released.curvature(released.ridge()))
        return Release(model.minimize(-released.xy, np.zeros((self.d, 1))), self.guarantee)

    def release_moments(self, rows: Rows, generator: np.random.Generator) -> ReleasedMoments:
        """The noisy polynomial as a quadratic form; diagonal coefficients are halves: their noise doubles."""
        exact = rows.moments()
        upper = np.triu(generator.laplace(scale=self.scale, size=(self.d, self.d)))
        noise = upper + upper.T  # twice the draw on the diagonal, the draw itself off it
        step = grid_step(self.scale)
        xx = round_to_grid(exact.xx + noise, step)
        xy = round_to_grid(exact.xy[:, :1] + generator.laplace(scale=self.scale, size=(self.d, 1)), step)
        deviation = math.sqrt(2.0) * self.scale
        return ReleasedMoments(xx, xy, math.sqrt(2.0) * deviation, deviation)
