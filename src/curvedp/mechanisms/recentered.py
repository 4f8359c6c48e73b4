"""Recentered QOP (P-9): one random curvature, many centres.

Once, a private curvature S = XᵀX + σ²W is released, in a metric that a cheap pilot makes nearly isotropic.
Then rounds of clipped, noisy gradients, each at a new centre and measured in the metric of S, move θ by
proximal Newton steps; the last of them are averaged. Every choice on the way is made by one public `Rule`
from released numbers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.errors import CalibrationFailed
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.geometry import (
    Geometry,
    Pilot,
    curvature_above,
    geometry_of,
    noise_norm,
    noisy_curvature,
)
from curvedp.mechanisms.noise import GaussianNoise, excess, gram_scale
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.mechanisms.walk import edges_beyond, started
from curvedp.privacy import parameters as public
from curvedp.privacy.calibrate import StatisticsParameters, calibrate_statistics
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import CurvatureProfile, log_rare_probability, rare_cap
from curvedp.problem import Problem
from curvedp.released.scales import EDGES as LOOK_EDGES
from curvedp.rows.base import Rows

LEAST_WEIGHT = 1e-3  # that a mean weight is believed to be
RARE = 1e-9  # share of δ that pays for a noisy count far below n


@dataclass(frozen=True)
class Recentered:
    """θ by noisy proximal Newton rounds around a released curvature (P-9), the most accurate mechanism here.

    Any loss with bounded curvature, any regularizer and constraint, both adjacencies. Gradients are clipped,
    so that no gradient bound is needed.

    Parameters
    ----------
    rule : Rule, optional
        The public constants; the default serves every table.
    """

    rule: Rule = field(default_factory=Rule)
    name = "recentered"

    def plan(self, problem: Problem, d: int, budget: Budget) -> WalkPlan:
        """Calibrate the curvature and every Gaussian release."""
        if problem.domain.unit is not None:
            from curvedp.mechanisms.persons import person_plan

            return person_plan(self.rule, problem, d, budget)
        unknowns = d * problem.loss.n_outputs
        parameters, profile, mu = calibrated(
            self.rule, problem.domain, d, budget, round_dims(self.rule, unknowns)
        )
        shifts = Shifts.split(parameters.mu, self.rule, problem.domain.neighbours)
        return RecenteredPlan(problem, d, budget, self.rule, shifts, mu, parameters, profile)


def calibrated(
    rule: Rule, domain: Domain, d: int, budget: Budget, dims: Sequence[int]
) -> tuple[StatisticsParameters, CurvatureProfile, float]:
    """S and the shift that is left for Gaussian releases (P-9), and the shift that the budget allows.

    `dims` are the numbers in each Gaussian release after S; those before it are added here.
    """
    m = max(rule.freedom * d, d + 2.0)
    mu = calibrate_mu(budget.epsilon, budget.delta)
    everything = [1, d * d, rule.edges + 1, *dims]
    extra = excess(everything, [mu] * len(everything)) + RARE * budget.delta
    if extra >= budget.delta:
        raise CalibrationFailed("delta is too small for noise on a grid: raise it")
    parameters = calibrate_statistics(
        budget.epsilon,
        budget.delta - extra,
        L=1.0,
        d=d,
        m=m,
        adjacency=domain.adjacency,
        curvature_share=rule.curvature_share,
        before=rule.share_before,
    )
    cap = rare_cap(budget.epsilon, RARE * budget.delta)
    return parameters, replace(parameters.profile, excess=extra, cap=cap), mu


def round_dims(rule: Rule, unknowns: int) -> list[int]:
    """The numbers in each release of the walk, which has at most so many rounds."""
    return [LOOK_EDGES + 1] * 2 + [rule.edges + 1] + [unknowns] * rule.rounds


@dataclass(frozen=True, eq=False)
class WalkPlan(FitPlan):
    """A curvature, released in one way or another, then rounds of clipped gradients in its metric."""

    rule: Rule
    shifts: Shifts
    mu: float  # the shift that (ε, δ) allows, curvature included

    @abstractmethod
    def geometry(self, rows: Rows, noise: GaussianNoise, n: float, random: np.random.Generator) -> Geometry:
        """The released curvature and its metric."""

    @property
    def far(self) -> float:
        """t with P(N(0, 1) > t) ≤ p: n̂ + t of its deviations is below n that rarely, and p is paid by δ."""
        return math.sqrt(-2.0 * log_rare_probability(self.budget.epsilon, RARE * self.budget.delta))

    @property
    def unknowns(self) -> int:
        """d·ρ: how many numbers are learned (K−1 columns of K where one is redundant)."""
        return self.d * self.problem.loss.rank

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        n = noise.count(rows, self.shifts.count)
        geometry = self.geometry(rows, noise, n, random)
        measured = rows.in_metric(geometry.metric)
        rounds = started(self, measured, noise, geometry, n, self.rows_at_most(noise, n))
        start = self.problem.constraint.project(np.zeros((self.d, self.problem.loss.n_outputs)))
        return rounds.finished(start)[1]

    def rows_at_most(self, noise: GaussianNoise, n: float) -> float:
        """A number that n exceeds rarely, whatever the table: n itself where it is public."""
        return n if noise.neighbours.count_is_public else n + self.far * noise.count_scale(self.shifts.count)

    def kappa(self, n: float) -> float:
        """κ = n̂μ/(d·ρ)."""
        return n * self.mu / self.unknowns

    def pilot(self, first: FloatArray, B: float, rows: Rows, noise: GaussianNoise, n: float) -> Pilot:
        """A released look at XᵀX, lengths ≤ B, makes a metric; a histogram of lengths there a bound."""
        scale = gram_scale(B**2, self.shifts.pilot, noise.neighbours, 0.0)
        values, V = curvature_above(first, self.rule.floor * noise_norm(scale, self.d), n * B**2)
        A = (V / np.sqrt(values)).T
        bound, mass = self.length_bound(rows.in_metric(A), noise, n, B / math.sqrt(float(values.min())))
        gram = A @ rows.in_metric(A, bound).moments().xx @ A.T
        return Pilot(A, V * np.sqrt(values), bound, gram, min(max(mass / n, LEAST_WEIGHT), 1.0))

    def length_bound(
        self, measured: Rows, noise: GaussianNoise, n: float, largest: float
    ) -> tuple[float, float]:
        """The smallest edge that all but a fifth of the records surely stay below, else the public bound.

        And how many records there are, or what they weigh.
        """
        edges = self.edges(largest)
        counts = noise.counts(measured.norm_histogram(edges), self.shifts.lengths)
        slack = noise.count_scale(self.shifts.lengths)
        mass = self.mass(counts, n)
        inside = edges_beyond(edges, counts, slack, (1.0 - self.rule.kept_lengths) * mass)
        return (float(inside[0]) if inside.size else largest), mass

    def mass(self, counts: FloatArray, n: float) -> float:
        """How many records there are, or what they weigh, which a histogram of weighted records sums up."""
        return max(float(counts.sum()), 0.0) if self.problem.domain.weighted else n

    def edges(self, largest: float) -> FloatArray:
        return np.asarray(largest * math.sqrt(2.0) ** -np.arange(self.rule.edges)[::-1].astype(float))

    def reach(self, geometry: Geometry) -> float:
        """How many times longer than thought a typical gradient may be."""
        return 1.0


@dataclass(frozen=True, eq=False)
class RecenteredPlan(WalkPlan):
    """The calibrated mechanism: σ²/B̃² and m of the curvature, the shift of every Gaussian release."""

    parameters: StatisticsParameters  # for L = 1: σ² is in units of B̃², B̃ the bound of record lengths
    profile: CurvatureProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        p, s = self.parameters, self.shifts
        return self.promise(
            "recentered",
            "statistics",
            "(P-9)",
            self.profile,
            public.M(p.m),
            public.SIGMA2(p.sigma2),
            public.MU(p.mu),
            public.MU_COUNT(s.count),
            public.MU_PILOT(s.pilot),
            public.MU_LENGTHS(s.lengths),
            public.MU_SPREAD(s.spread),
            public.MU_SCALE(s.scale),
            public.MU_CLIP(s.clip),
            public.MU_FIRST_ROUNDS(s.first),
            public.MU_LATER_ROUNDS(s.later),
            public.ROUNDS(self.rule.rounds),
        )

    def pulls(self) -> list[float]:
        return [self.parameters.sigma2 * self.parameters.m / self.problem.domain.x_norm]

    def geometry(self, rows: Rows, noise: GaussianNoise, n: float, random: np.random.Generator) -> Geometry:
        """The curvature S, in the pilot's metric where there is one: the rest is post-processing."""
        precise = self.kappa(n) >= self.rule.precise
        pilot = self._given_coordinates(rows) if precise else self._look(rows, noise, n)
        sigma2, m = pilot.bound**2 * self.parameters.sigma2, self.parameters.m
        S = noisy_curvature(pilot.gram, sigma2, m, random)
        return geometry_of(S, 2.0 * sigma2 * math.sqrt(m * self.d), self.rule.floor, n, pilot)

    def _given_coordinates(self, rows: Rows) -> Pilot:
        """No pilot: records as they are. What it would have cost is not spent."""
        unit = np.eye(self.d)
        return Pilot(unit, unit, self.problem.domain.x_norm, rows.moments().xx)

    def _look(self, rows: Rows, noise: GaussianNoise, n: float) -> Pilot:
        B = self.problem.domain.x_norm
        return self.pilot(noise.gram(rows.moments().xx, B, self.shifts.pilot), B, rows, noise, n)
