"""Exponential mechanism for the squared loss: a sample of the posterior ∝ exp(−tJ(θ)) on a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.privacy.profiles import PureProfile
from curvedp.problems import Problem
from curvedp.problems.regularizers import NoRegularizer

INVERSE_TEMPERATURE = Parameter(
    "t", "t", "weight of the objective in the posterior's exponent", is_noise=True
)
RADIUS = Parameter("radius", "R", "radius of the ball that θ is drawn from")


@dataclass(frozen=True)
class Exponential:
    """θ with density ∝ exp(−tJ(θ)) on ‖θ‖ ≤ radius, J = Σ ½(xᵀθ−y)²; pure ε-DP in exact arithmetic.

    On the ball a record adds between 0 and Δ_J = ½(B·radius + Y)² to J. Hence t = ε/Δ_J under add_remove,
    where J moves one way only, and ε/(2Δ_J) under replace.

    For studies: θ is a product of doubles, and which doubles can come out depends on the records. A table and
    its neighbour reach different ones, so that δ = 0 is false of the bits: the guarantee says
    `private=False`.
    """

    radius: float = 1.0
    name = "exponential"

    def plan(self, problem: Problem, d: int, budget: Budget) -> ExponentialPlan:
        """t for this budget; its δ is not used."""
        if not problem.loss.is_quadratic:
            raise NotCovered("the exponential mechanism here covers the squared loss only; use Recentered")
        if not isinstance(problem.regularizer, NoRegularizer) or math.isfinite(problem.constraint.radius(d)):
            raise NotCovered(
                "the exponential mechanism has its own ball: pass no regularizer and no constraint"
            )
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InvalidInput(f"radius must be a positive number, got {self.radius!r}")
        domain = problem.domain
        sensitivity = 0.5 * (domain.x_norm * self.radius + domain.y_bound) ** 2
        t = budget.epsilon / (domain.neighbours.moves * sensitivity) * (1 - 1e-12)
        return ExponentialPlan(problem, d, Budget(budget.epsilon), self.radius, t)


@dataclass(frozen=True, eq=False)
class ExponentialPlan(FitPlan):
    """The inverse temperature t and the radius of the ball."""

    radius: float
    t: float

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "exponential",
            "pure",
            "Peers (exponential mechanism)",
            PureProfile(self.budget.epsilon),
            INVERSE_TEMPERATURE(self.t),
            RADIUS(self.radius),
            private=False,
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        moments = rows.moments()
        theta = gaussian_in_ball(self.t * moments.xx, self.t * moments.xy[:, 0], self.radius, random)
        return Estimate(theta[:, None])


def gaussian_in_ball(
    precision: FloatArray, linear: FloatArray, radius: float, random: np.random.Generator
) -> FloatArray:
    """A draw of the density ∝ exp(−½θᵀPθ + bᵀθ) on ‖θ‖ ≤ radius, P ≽ 0, by rejection.

    Proposals have the precision P + λI and are accepted with probability exp(λ(‖θ‖² − radius²)/2) inside the
    ball: any λ ≥ 0 gives the same law. λ keeps a proposal's E‖θ‖² ≤ radius², so that acceptance is not rare.
    """
    values, vectors = np.linalg.eigh((precision + precision.T) / 2.0)
    values = np.maximum(values, 0.0)
    b = vectors.T @ linear

    def excess(log_ridge: float) -> float:
        lifted = values + math.exp(log_ridge)
        return float(np.sum(1.0 / lifted + (b / lifted) ** 2)) - radius**2

    smallest = math.log(1e-12 * max(float(values[-1]), 1.0 / radius**2))
    if excess(smallest) <= 0:
        ridge = math.exp(smallest)
    else:
        size = float(np.sum(b**2))
        largest = math.log(2.0 * len(b) / radius**2 + 2.0 * math.sqrt(size) / radius)
        ridge = math.exp(brentq(excess, smallest, largest, xtol=1e-6))
    lifted = values + ridge
    mean, deviation = b / lifted, 1.0 / np.sqrt(lifted)
    while True:
        theta = mean + deviation * random.standard_normal(len(b))
        size = float(theta @ theta)
        if size <= radius**2 and math.log(random.random()) <= 0.5 * ridge * (size - radius**2):
            return np.asarray(vectors @ theta)
