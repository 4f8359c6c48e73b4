"""Noisy proximal Newton rounds in a fixed metric: the walk of the recentered mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.mechanisms.base import Estimate
from curvedp.mechanisms.geometry import Geometry
from curvedp.mechanisms.noise import GaussianNoise, gradient_scale
from curvedp.released.quadratic_model import LocalObjective, QuadraticModel
from curvedp.rows.base import Rows
from curvedp.rows.rounding import additions_at_most, relative_error, slope_slack

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan


@dataclass(frozen=True, eq=False)
class Rounds:
    """Noisy proximal Newton rounds in a fixed metric."""

    plan: RecenteredPlan
    rows: Rows  # measured in the metric
    noise: GaussianNoise
    geometry: Geometry
    n: float
    most: float  # rows, but for rare draws of the noise
    columns: int | None = None  # in which sums are computed, where the metric sees a subspace only

    @property
    def kappa(self) -> float:
        return self.plan.kappa(self.n)

    @property
    def confidence(self) -> float:
        """κ/(κ + large): 0 where noise dominates, 1 where only convergence matters."""
        return self.kappa / (self.kappa + self.plan.rule.large)

    @property
    def typical(self) -> float:
        """Length of a typical gradient at θ = 0 in the metric, targets being uniform within their bounds."""
        loss, domain = self.plan.problem.loss, self.plan.problem.domain
        targets = loss.clip_target(np.linspace(-domain.y_bound, domain.y_bound, 101), domain)
        slopes = loss.gradient(np.zeros((len(targets), loss.n_outputs)), targets)
        slope = math.sqrt(float(np.mean(np.sum(slopes**2, axis=1))))
        return slope * math.sqrt(self.geometry.resolved / self.n)

    @property
    def first_clip(self) -> Clip:
        rule = self.plan.rule
        return Clip(rule.first_clip * self.typical, rule.first_kept)

    def choose_clip(self, theta: FloatArray) -> Clip:
        """The clip beyond which about `clipped`·unknowns/μ records lie, from a private histogram at θ."""
        plan, rule = self.plan, self.plan.rule
        edges = plan.edges(rule.widest_clip * self.typical)
        scale = self.noise.count_scale(plan.shifts.clip)
        counts = self.rows.gradient_norm_histogram(plan.problem.loss, theta, edges)
        outside = records_beyond(self.noise.counts(counts, plan.shifts.clip))
        if scale * math.sqrt(len(edges) / 2.0) > self.n / 3.0:  # the histogram is noise
            return self.first_clip
        target = min(rule.clipped * plan.unknowns / plan.mu, (1.0 - rule.kept) * self.n)
        below = np.flatnonzero(outside <= target)
        index = int(below[0]) if below.size else len(edges) - 1
        return Clip(float(edges[index]), min(max(1.0 - outside[index] / self.n, rule.kept), 1.0))

    def walk(self, theta: FloatArray, clip: Clip, rounds: int, mu: float) -> Iterator[Round]:
        """Rounds from θ on: the gradient released at each centre, and the centre it leads to."""
        plan, problem, A = self.plan, self.plan.problem, self.geometry.metric
        damping = min(plan.rule.step, plan.rule.travel * self.kappa / plan.rule.rounds)
        momentum = plan.rule.momentum * self.confidence
        model = QuadraticModel(problem, self.curvature(clip) / damping * self.geometry.H)
        last = theta
        for _ in range(rounds):
            centre = theta + momentum * (theta - last)
            total = A @ self.rows.gradient_sum(problem.loss, centre, clip.size)
            gradient = self.noise.gradient(total, clip.size, mu, self.slack(centre, clip))
            if problem.loss.rank < problem.loss.n_outputs:  # true gradients sum to 0 over the classes
                gradient = gradient - gradient.mean(axis=1, keepdims=True)
            pulled = self._pulled_back(gradient)
            last, theta = theta, model.minimize(pulled, centre)
            yield Round(centre, gradient, theta)
            if np.vdot(pulled, theta - last) > 0:  # moving uphill: momentum starts anew
                last = theta

    def slack(self, centre: FloatArray, clip: Clip) -> float:
        """What rounding adds to the difference of two gradient sums, in units of the clip (P-9).

        Sums are computed in the given coordinates: in the metric their errors grow by its condition number. A
        record's length in the metric errs by 16(d^{3/2}+1)·2⁻⁵³ of it. What the metric does not see of a
        gradient is not clipped: it is at most ζ.
        """
        problem, d = self.plan.problem, self.columns or self.plan.d
        largest, smallest = self.geometry.stretch
        sums = relative_error(additions_at_most(d) + 2 * d + math.ceil(16.0 * (d**1.5 + 1.0)))
        slopes = slope_slack(problem, d, centre, clip.size, rows=self.most, stretch=largest)
        unseen = 0.0 if d == self.plan.d else self.steepest(centre) / clip.size
        return 2.0 * self.most * sums * largest * (1.0 / smallest + unseen) + slopes

    def steepest(self, theta: FloatArray) -> float:
        """ζ: no gradient at θ is longer, in the given coordinates."""
        problem = self.plan.problem
        return problem.loss.gradient_bound(problem.domain, float(np.linalg.norm(theta)))

    def average(self, walk: Iterable[Round], clip: Clip, rounds: int) -> Estimate:
        """A last Newton step from the mean centre and the mean gradient, later rounds weighing more."""
        rule = self.plan.rule
        power = rule.weight * (1.0 + self.kappa / rule.large)  # large κ: noise is no reason to average
        weights = np.exp(power * np.log(np.arange(1, rounds + 1) / rounds))
        weights = weights / weights.sum()
        shape = (self.plan.d, self.plan.problem.loss.n_outputs)
        centre, gradient = np.zeros(shape), np.zeros(shape)
        for weight, step in zip(weights, walk, strict=True):
            centre += weight * step.centre
            gradient += weight * step.gradient
        H, b, g = self.geometry.H, self.curvature(clip), self._pulled_back(gradient)
        scale = gradient_scale(clip.size, self.plan.shifts.later, self.noise.neighbours)
        local = LocalObjective(H, b, centre, g, scale * float(np.linalg.norm(weights)), self.n, self.kappa)
        return Estimate(local.minimize(self.plan.problem), local)

    def curvature(self, clip: Clip) -> float:
        """β times the fraction of records that still move when θ does."""
        problem = self.plan.problem
        return problem.loss.curvature(problem.domain, problem.radius(self.plan.d)) * clip.kept

    def _pulled_back(self, gradient: FloatArray) -> FloatArray:
        """A⁻¹ g: from the metric's coordinates to those of θ."""
        return np.asarray(self.geometry.H @ (self.geometry.metric.T @ gradient))


@dataclass(frozen=True, eq=False)
class Round:
    """A centre, the noisy gradient released there (in the metric), and the next centre."""

    centre: FloatArray
    gradient: FloatArray
    moved: FloatArray


@dataclass(frozen=True)
class Clip:
    """A clip of gradient lengths and the fraction of records that it is believed to leave alone."""

    size: float
    kept: float


def records_beyond(counts: FloatArray) -> FloatArray:
    """How many records lie beyond each edge, from the counts of all cells; never negative."""
    return np.maximum(np.cumsum(counts[::-1])[::-1][1:], 0.0)
