"""AdaSSP (Wang 2018): Gaussian statistics with a ridge that adapts to a private smallest eigenvalue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.data.rows.base import SUM_SLACK, Rows
from curvedp.errors import CalibrationFailed, NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan, Grid, excess
from curvedp.postprocess.noise import MomentsNoise, QuadraticModel
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import check_budget
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problems import Problem

FAILURE = 0.05  # ϱ of the published ridge
MULTIPLIER = Parameter("s", "s", "noise on every statistic, in units of its sensitivity", is_noise=True)


@dataclass(frozen=True)
class AdaSSP:
    """θ = (XᵀX + sB²Z + λI)⁻¹(Xᵀy + sBYz'), s = √ln(6/δ)/(ε/3), with the published constants; add_remove.

    λ̃ = max(0, λ_min(XᵀX) + sB²z − B² ln(6/δ)/(ε/3)) and λ = max(0, √(d ln(6/δ) ln(2d²/0.05)) B²/(ε/3) − λ̃).
    Three Gaussian releases, each of shift 1/s, and a little more for rounding.
    """

    name = "adassp"

    def plan(self, problem: Problem, d: int, budget: Budget) -> AdaSSPPlan:
        """The published noise for this budget, checked by (P-2)."""
        check_budget(budget.epsilon, budget.delta)
        if not problem.loss.is_quadratic:
            raise NotCovered("AdaSSP covers the squared loss only; use Recentered")
        if problem.domain.neighbours.count_is_public:
            raise NotCovered("AdaSSP is published for add_remove adjacency; use Statistics for replace")
        s = math.sqrt(math.log(6.0 / budget.delta)) / (budget.epsilon / 3.0)
        plan = AdaSSPPlan(problem, d, budget, s)
        if plan.profile.delta_at(budget.epsilon) > budget.delta:
            raise CalibrationFailed(
                "the published constants of AdaSSP do not keep this (ε, δ); lower epsilon"
            )
        return plan


@dataclass(frozen=True, eq=False)
class AdaSSPPlan(FitPlan):
    """The noise multiplier s of the three releases."""

    s: float

    @property
    def slack(self) -> float:
        """What rounding adds to a sensitivity: that of the sums, and of λ_min of a matrix of norm ≤ nB²."""
        return SUM_SLACK + 64.0 * self.d * UNIT_ROUNDOFF * ROWS_AT_MOST

    @property
    def mu(self) -> float:
        """The shift of each release."""
        return (1.0 + self.slack) / self.s

    @cached_property
    def profile(self) -> GaussianProfile:
        dims = [1, self.d * (self.d + 1) // 2, self.d]
        return GaussianProfile(math.sqrt(3.0) * self.mu * (1 + 1e-14), excess(dims, [self.mu] * 3))

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "adassp",
            "gaussian",
            "Peers (AdaSSP)",
            self.profile,
            MULTIPLIER(self.s),
            public.MU(self.profile.mu),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        moments, domain, d = rows.moments(), self.problem.domain, self.d
        B2, BY = domain.x_norm**2, domain.x_norm * domain.y_bound
        smallest = self._noisy(
            np.asarray(np.linalg.eigvalsh(moments.xx)[:1], dtype=np.float64), B2, random, "least eigenvalue"
        )
        upper = np.triu_indices(d)
        xx = np.zeros((d, d))
        xx[upper] = self._noisy(moments.xx[upper], B2, random, "second moments")
        xx += np.triu(xx, 1).T
        xy = self._noisy(moments.xy, BY, random, "moments with the target")
        ridge = self.ridge(float(smallest[0]))
        values, vectors = np.linalg.eigh(xx + ridge * np.eye(d))
        H = (vectors * np.maximum(values, 1e-9 * max(float(values[-1]), B2))) @ vectors.T
        H = (H + H.T) / 2.0
        theta = QuadraticModel(self.problem, H).minimize(-xy, np.zeros((d, 1)))
        unit = self.s * B2
        moves = 0.0 < ridge < self.ridge(-math.inf)  # λ is as noisy as the eigenvalue it follows
        noise = MomentsNoise(diagonal=unit, off=unit, xy=self.s * BY, ridge=unit if moves else 0.0)
        return Estimate(theta, noise=noise.of_theta(self.problem, H, theta[:, 0], ridge, chosen=False))

    def ridge(self, noisy_smallest: float) -> float:
        """λ, from the noisy λ_min(XᵀX)."""
        log, third = math.log(6.0 / self.budget.delta), self.budget.epsilon / 3.0
        B2 = self.problem.domain.x_norm**2
        certain = max(0.0, noisy_smallest - B2 * log / third)
        wanted = math.sqrt(self.d * log * math.log(2.0 * self.d**2 / FAILURE)) * B2 / third
        return max(0.0, wanted - certain)

    def _noisy(
        self, value: FloatArray, sensitivity: float, random: np.random.Generator, name: str
    ) -> FloatArray:
        return Grid.of((1.0 + self.slack) * sensitivity, self.mu, value.size).add(value, random, name)
