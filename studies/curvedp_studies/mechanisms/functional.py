"""Functional mechanism (Zhang et al. 2012): exact Laplace noise on the coefficients of the squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Layout, Moments, Rows, moments_error_bound
from curvedp.errors import CalibrationFailed, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.statistics import minimizer
from curvedp.numbers import exact
from curvedp.postprocess.noise import MomentsNoise, ReleasedMoments
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.privacy.profiles import PureProfile
from curvedp.problems import Problem
from curvedp.randomness import LARGEST_SCALE, STEPS_PER_SIGMA, discrete_laplace, power_of_two, round_to_grid
from curvedp.transcript import Laplace, told

GRID = Parameter("grid", "h", "grid of the released coefficients")
_GRID_SHARE = 2**16  # rounding to the grid adds at most this part of the sensitivity


@dataclass(frozen=True)
class Functional:
    """Σ ½(xᵀθ−y)² as a polynomial in θ, every coefficient with Laplace noise of scale Δ₁/ε; pure ε-DP.

    Coefficients: θ_jθ_l (j < l): Σ x_jx_l; θ_j²: ½Σ x_j²; θ_j: −Σ y x_j. One record moves them by at most
    ½‖x‖₁² + Y‖x‖₁ in l1, ‖x‖₁ ≤ √d·B (add_remove), and by twice that under replace. They are rounded to a
    grid and get exact discrete Laplace noise; Δ₁ counts grid steps, all rounding included.
    """

    name = "functional"

    def plan(self, problem: Problem, d: int, budget: Budget) -> FunctionalPlan:
        """Grid and noise for the ε of this budget; its δ is not used."""
        if not problem.loss.is_quadratic:
            raise NotCovered("the functional mechanism covers the squared loss only; use Recentered")
        domain, dim = problem.domain, d * (d + 1) // 2 + d
        length = _root_above(d) * Fraction(domain.x_norm)
        one_record = length**2 / 2 + Fraction(domain.y_bound) * length
        # Of two tables; d² and d entries, whose l1 norm is at most d and √d times the l2 norm.
        rounding = 2 * (d + _root_above(d)) * Fraction(moments_error_bound(Layout(domain, d), domain.x_norm))
        sensitivity = domain.neighbours.moves * one_record + rounding
        epsilon = min(Fraction(budget.epsilon), exact(budget.epsilon))
        fine = min(sensitivity / (_GRID_SHARE * dim), sensitivity / (epsilon * STEPS_PER_SIGMA))
        step = power_of_two(float(fine))
        # Whole steps, one per coefficient for the rounding of two tables to the grid.
        steps = math.ceil((math.floor(sensitivity / Fraction(step)) + dim) / epsilon)
        if steps > LARGEST_SCALE:
            raise CalibrationFailed(f"epsilon={budget.epsilon!r} is too small for {d} columns: raise it")
        return FunctionalPlan(problem, d, Budget(budget.epsilon), step, steps)


@dataclass(frozen=True, eq=False)
class FunctionalPlan(FitPlan):
    """The grid of the coefficients, and the Laplace scale in its steps."""

    step: float
    steps: int

    @property
    def scale(self) -> float:
        """Δ₁/ε in the units of the coefficients."""
        return self.steps * self.step

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "functional",
            "pure",
            "Peers (functional mechanism)",
            PureProfile(self.budget.epsilon),
            public.SCALE(self.scale),
            GRID(self.step),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        deviation = math.sqrt(2.0) * self.scale
        noise = MomentsNoise(diagonal=2.0 * deviation, off=deviation, xy=deviation)
        return minimizer(self.problem, self.release_moments(rows, random), noise)

    def release_moments(self, rows: Rows, random: np.random.Generator) -> ReleasedMoments:
        """The noisy polynomial as a quadratic form; diagonal coefficients are halves: their noise doubles."""
        d, query = self.d, self.coefficients(rows.moments())
        noisy = query + discrete_laplace(random, self.steps, query.size) * self.step
        law = Laplace(query, self.scale, self.budget.epsilon, "coefficients", self.step)
        noisy = told(random, law, noisy)
        upper = np.zeros((d, d))
        upper[np.triu_indices(d)] = noisy[:-d]
        deviation = math.sqrt(2.0) * self.scale
        return ReleasedMoments(upper + upper.T, noisy[-d:, None], math.sqrt(2.0) * deviation, deviation)

    def coefficients(self, moments: Moments) -> FloatArray:
        """(Σ x_jx_l for j < l and ½Σ x_j² for j = l, row by row; Σ y x_j) on the grid: the private query."""
        halved = moments.xx - np.diag(np.diag(moments.xx)) / 2.0
        query = np.concatenate([halved[np.triu_indices(self.d)], moments.xy[:, 0]])
        return round_to_grid(query, self.step)


def _root_above(d: int) -> Fraction:
    """√d, rounded up to a multiple of 2⁻⁴⁰."""
    return Fraction(math.isqrt(d * 4**40) + 1, 2**40)
