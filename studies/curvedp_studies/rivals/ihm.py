"""Iterative Hessian mixing (Lev, Shenfeld, Srinivasan, Ligett and Wilson 2026) for least squares, add_remove.

In units of B and Y. A noisy lower bound λ̃ of λ_min(XᵀX) says how much noise the sketches need. Then T times:
a sketch G = SX + √(γ − λ̃)₊·N with k Gaussian rows, H = GᵀG/k, and a Newton step along Xᵀclip(y − Xθ) + noise.

Accounting, with half of ε for each kind of release and a quarter of δ for each of the four events:
 - T sketches: rows N(0, Σ) against N(0, Σ − xxᵀ), xᵀΣ⁻¹x ≤ 1/γ: Rényi divergence
   φ(α) = k[α·log(1 − 1/γ) − log(1 − α/γ)]/(2(α − 1)), T of them, converted at δ/4;
 - λ̃ = λ_min − (γ/√k)(τ − N(0, 1)): a Gaussian release of shift √k/γ, converted exactly at δ/4 (the paper uses
   the classical bound, which holds for ε ≤ 1 only);
 - λ̃ > λ_min with probability at most δ/4, since τ² ≥ 2·log(4/δ);
 - T gradients of sensitivity 1 at (ε/2, δ/4), the exact Gaussian curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import calibrate_mu, epsilon_of
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.problems import Problem
from curvedp.problems.losses import Huber
from curvedp_studies.rivals.published import PointProfile

GAMMA = Parameter("gamma", "γ", "least eigenvalue of a sketch's covariance", is_noise=True)
SKETCH = Parameter("k", "k", "rows of a sketch")
SIGMA = Parameter("sigma_gradient", "σ", "noise on a gradient", is_noise=True)


@dataclass(frozen=True)
class IterativeHessianMixing:
    """T sketches and T gradients; k = factor·max(d, log(4T/ϱ)), ϱ = δ/10: the published constants."""

    rounds: int = 3
    factor: float = 6.0
    name = "ihm"

    def plan(self, problem: Problem, d: int, budget: Budget) -> IHMPlan:
        """Calibrate γ and the noise of the gradients."""
        if not problem.loss.is_quadratic:
            raise NotCovered("iterative Hessian mixing covers the squared loss only")
        if problem.domain.neighbours.count_is_public:
            raise NotCovered("iterative Hessian mixing is published for add_remove adjacency")
        failure = budget.delta / 10.0
        k = max(int(self.factor * d), int(self.factor * math.log(4.0 * self.rounds / failure)))
        gamma = sketch_gamma(budget.epsilon / 2.0, budget.delta / 4.0, k, self.rounds)
        mu = calibrate_mu(budget.epsilon / 2.0, budget.delta / 4.0)
        return IHMPlan(problem, d, budget, self.rounds, k, gamma, math.sqrt(self.rounds) / mu)


def sketch_epsilon(gamma: float, delta: float, k: int, rounds: int) -> float:
    """ε of `rounds` sketches at δ, by the best order α ∈ (1, γ) of Rényi divergence."""

    def at(order: float) -> float:
        divergence = k * (order * math.log1p(-1.0 / gamma) - math.log1p(-order / gamma)) / (2 * (order - 1))
        conversion = math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return rounds * divergence + conversion

    edge = math.log(gamma - 1.0)  # α − 1 lies below γ − 1
    bounds = (edge - 30.0, edge - 1e-6)
    found = minimize_scalar(lambda log: at(1.0 + math.exp(log)), bounds=bounds, method="bounded")
    return float(found.fun)


def sketch_gamma(epsilon: float, delta: float, k: int, rounds: int) -> float:
    """The smallest γ at which the sketches and λ̃ together keep ε, each at δ; rounded up."""

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        return sketch_epsilon(gamma, delta, k, rounds) + epsilon_of(delta, math.sqrt(k) / gamma) - epsilon

    low, high = math.log(1.0 + 1e-3), 1.0
    while excess(high) > 0:
        high += 1.0
    gamma = math.exp(float(brentq(excess, low, high, xtol=1e-12))) * (1 + 1e-9)
    while excess(math.log(gamma)) > 0:
        gamma *= 1.0 + 1e-9
    return gamma


@dataclass(frozen=True, eq=False)
class IHMPlan(FitPlan):
    """γ in units of B², the gradients' σ in units of BY."""

    rounds: int
    k: int
    gamma: float
    sigma: float

    @property
    def tau(self) -> float:
        """How many deviations λ̃ stays below λ_min."""
        return math.sqrt(2.0 * math.log(40.0 / self.budget.delta))

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "ihm",
            "renyi",
            "published (iterative Hessian mixing)",
            PointProfile(self.budget),
            GAMMA(self.gamma),
            SKETCH(self.k),
            SIGMA(self.sigma),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        B, Y = self.problem.domain.x_norm, self.problem.domain.y_bound
        clipped = Huber(Y)  # its slope is the residual, clipped to [−Y, Y]
        gram = rows.moments().xx / B**2
        ridge = self.ridge(float(np.linalg.eigvalsh(gram)[0]), random)
        root = covariance_root(gram + ridge * np.eye(self.d))
        theta = np.zeros((self.d, 1))
        for _ in range(self.rounds):
            sketch = random.standard_normal((self.k, self.d)) @ root.T
            pull = -rows.gradient_sum(clipped, theta) / (B * Y)
            pull += self.sigma * random.standard_normal((self.d, 1))
            theta = theta + np.linalg.solve(sketch.T @ sketch / self.k, pull) * (Y / B)
        return Estimate(theta)

    def ridge(self, smallest: float, random: np.random.Generator) -> float:
        """(γ − λ̃)₊ with λ̃ = (λ_min − (γ/√k)(τ − N(0, 1)))₊."""
        below = self.gamma / math.sqrt(self.k) * (self.tau - random.standard_normal())
        return max(0.0, self.gamma - max(0.0, smallest - below))


def covariance_root(covariance: FloatArray) -> FloatArray:
    """R with RRᵀ = covariance: SX + noise has independent rows of that covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
