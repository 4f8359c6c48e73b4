"""Candidates that differ in penalty or constraint alone: one recentered release, free refits, one comparison.

The fit takes nearly all of the budget and all rows. Its quadratic model gives every candidate for free. Then
one Gaussian release on the same rows says how much less each loses than the fit itself: another release
of (P-9), whose shift enters μ² beside the others (T-3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Estimate
from curvedp.mechanisms.noise import GaussianNoise, gradient_scale
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan, calibrated
from curvedp.mechanisms.rule import Shifts
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import MU, Parameters, Symbol
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.released.quadratic_model import LocalObjective
from curvedp.rows.base import Layout, Rows
from curvedp.rows.blocked import SummedRows
from curvedp.rows.compared import improvement_slack, improvement_sum

FIT = 0.95  # of μ²: the fit; the rest is for the comparison
TYPICAL_SLOPE = 0.5  # of a loss, targets being in [−1, 1]: differences beyond it times the move are clipped
MU_SCORES = Symbol("mu_scores", "μₛ", "its part for comparing the candidates")


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen candidate (None: the public answer, since no trial was made) and its estimate.

    Of every candidate, where all were compared, how much less it loses per record than the reference, and the
    deviation of that number's noise; else empty.
    """

    index: int | None
    estimate: Estimate
    improvements: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class RefitsPlan:
    """A recentered release of problems[walk], refits to all problems, a comparison of shift `mu_scores`."""

    inner: RecenteredPlan
    problems: tuple[Problem, ...]
    walk: int
    budget: Budget
    mu_scores: float
    profile: GaussianProfile

    @property
    def layout(self) -> Layout:
        return self.inner.layout

    @property
    def room(self) -> float:
        return self.inner.room

    @cached_property
    def guarantee(self) -> Guarantee:
        described = [p for p in self.inner.guarantee.parameters.described if p.name != "mu"]
        return Guarantee(
            budget=self.budget,
            neighbours=self.inner.problem.domain.neighbours,
            mechanism=f"search over {len(self.problems)} refits",
            accounting="gaussian",
            theorem="(P-9)",
            parameters=Parameters(MU(self.mu), MU_SCORES(self.mu_scores), *described),
            profile=self.profile,
        )

    @property
    def mu(self) -> float:
        """The shift of all releases."""
        return self.profile.mu

    def accept(self, rows: Rows) -> None:
        self.inner.accept(rows)
        require_blocks(rows)

    def release(self, rows: Rows, random: np.random.Generator) -> Choice:
        fitted = self.inner.release(rows, random)
        assert fitted.local is not None and isinstance(rows, SummedRows)
        thetas = [fitted.local.minimize(problem) for problem in self.problems]
        improvements, errors = self._compare(rows, fitted.local, thetas, random)
        best = int(np.argmax(improvements - errors))
        return Choice(best, Estimate(thetas[best], fitted.local), tuple(improvements), tuple(errors))

    def _compare(
        self, rows: SummedRows, local: LocalObjective, thetas: list[FloatArray], random: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Noisy improvements over the fit, and deviations of their noise.

        Released in units of how far margins moved: all of one size.
        """
        others = [j for j in range(len(thetas)) if j != self.walk]
        improvements, errors = np.zeros(len(thetas)), np.zeros(len(thetas))
        if not others:
            return improvements, errors
        problem, reference = self.inner.problem, thetas[self.walk]
        noise = GaussianNoise(random, problem.domain.neighbours)
        moved = np.array([local.distance(thetas[j], reference) for j in others])
        scales = np.maximum(moved, 1e-3 * local.spread(problem.loss.rank))
        clip = TYPICAL_SLOPE * math.sqrt(len(others))
        most = self.inner.rows_at_most(noise, local.count)
        slack = improvement_slack(problem.domain, problem.loss, thetas, scales, clip, rows=most)
        total = improvement_sum(rows, problem.loss, reference, [thetas[j] for j in others], scales, clip)
        noisy = noise.gradient(total, clip, self.mu_scores, slack, "comparison")
        improvements[others] = noisy * scales / local.count
        errors[others] = gradient_scale(clip, self.mu_scores, noise.neighbours, slack) * scales / local.count
        return improvements, errors


def plan_refits(
    mechanism: Recentered, problems: Sequence[Problem], walk: int, d: int, budget: Budget
) -> RefitsPlan:
    """The fit and the comparison, `FIT` and the rest of μ²."""
    for problem in problems:
        problem.check(d)
    rule, fitted = mechanism.rule, problems[walk]
    profile = calibrated(rule, fitted, d, budget, [max(len(problems) - 1, 1)])
    own = replace(profile, mu=profile.mu * math.sqrt(FIT))
    mechanism.coding.check(d)
    columns = bool(mechanism.coding.numbers)
    shifts = Shifts.split(own.mu, rule, fitted.domain.neighbours, columns=columns)
    inner = RecenteredPlan(fitted, d, budget, rule, shifts, own, mechanism.coding, believes=False)
    mu_scores = profile.mu * math.sqrt(1.0 - FIT) * (1 - 1e-14)
    return RefitsPlan(inner, tuple(problems), walk, budget, mu_scores, profile)


def require_blocks(rows: Rows) -> None:
    """Refuse rows of a backend that cannot be compared on, before the charge."""
    if not isinstance(rows, SummedRows):
        raise InvalidInput("a search needs rows in blocks: pass an array, a table or a Dask collection")
