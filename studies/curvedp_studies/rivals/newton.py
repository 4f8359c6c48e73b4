"""DP-Newton with double noise (Ganesh, Haghifam, Steinke, Thakurta 2023) for logistic regression, add_remove.

In units of B, with sums instead of means, so that the number of records is not needed. Every round releases
 - the gradient g + N, sensitivity 1;
 - the trace of the Hessian H, sensitivity β = 1/4, which sets the ridge Λ = max((c·trace/ρ)^⅓, 1);
 - the direction (H + ΛI)⁻¹g + N: with g and Λ released, one record more moves it by at most
   ‖g‖·β/(Λ² + βΛ) (Sherman–Morrison), the paper's bound for eigenvalues that are raised by Λ.
The constants serve ε ≤ 3: far above, Λ is small, and the first steps, whose noise follows ‖g‖, overshoot.
All are Gaussian: their squared shifts add up to μ², which is exact and below the paper's zCDP accounting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problems import Problem
from curvedp.problems.losses import Logistic

BETA = 0.25


@dataclass(frozen=True)
class DoubleNoiseNewton:
    """The published constants: 15 rounds, 70 % of each for the gradient, 10 % of the rest for the trace."""

    rounds: int = 15
    gradient_share: float = 0.7
    trace_share: float = 0.1
    trace_factor: float = 0.5
    name = "dp_newton"

    def plan(self, problem: Problem, d: int, budget: Budget) -> DoubleNoisePlan:
        """Split μ² over rounds and releases."""
        if not isinstance(problem.loss, Logistic):
            raise NotCovered("DP-Newton with double noise is published for logistic regression")
        if problem.domain.neighbours.count_is_public:
            raise NotCovered("this version of DP-Newton is for add_remove adjacency")
        mu = calibrate_mu(budget.epsilon, budget.delta)
        share = (1.0 - 1e-12) / self.rounds
        rest = 1.0 - self.gradient_share
        return DoubleNoisePlan(
            problem,
            d,
            budget,
            self.rounds,
            GaussianProfile(mu),
            mu * math.sqrt(share * self.gradient_share),
            mu * math.sqrt(share * rest * self.trace_share),
            mu * math.sqrt(share * rest * (1.0 - self.trace_share)),
            self.trace_factor,
        )


@dataclass(frozen=True, eq=False)
class DoubleNoisePlan(FitPlan):
    """The shift of each of a round's three releases."""

    rounds: int
    profile: GaussianProfile
    mu_gradient: float
    mu_trace: float
    mu_direction: float
    trace_factor: float

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "dp_newton",
            "gaussian",
            "published (DP-Newton, double noise)",
            self.profile,
            public.ROUNDS(self.rounds),
            public.MU(self.profile.mu),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        B, loss = self.problem.domain.x_norm, self.problem.loss
        theta = np.zeros((self.d, 1))
        for _ in range(self.rounds):
            gradient = rows.gradient_sum(loss, theta)[:, 0] / B
            gradient = gradient + random.standard_normal(self.d) / self.mu_gradient
            hessian = rows.hessian_sum(loss, theta) / B**2
            ridge = self.ridge(float(np.trace(hessian)) + BETA / self.mu_trace * random.standard_normal())
            scale = direction_sensitivity(gradient, ridge) / self.mu_direction
            direction = np.linalg.solve(hessian + ridge * np.eye(self.d), gradient)
            theta = theta - (direction + scale * random.standard_normal(self.d))[:, None] / B
        return Estimate(theta)

    def ridge(self, noisy_trace: float) -> float:
        """Λ, where the bias that it brings balances the noise that it saves; ρ = μ²/2 of a direction."""
        rho = self.mu_direction**2 / 2.0
        return max(math.cbrt(self.trace_factor * max(noisy_trace, 0.0) / rho), 1.0)


def direction_sensitivity(gradient: FloatArray, ridge: float) -> float:
    """max ‖(H + ΛI)⁻¹g − (H + βxxᵀ + ΛI)⁻¹g‖ over H ⪰ 0 and ‖x‖ ≤ 1."""
    return float(np.linalg.norm(gradient)) * BETA / (ridge**2 + BETA * ridge)
