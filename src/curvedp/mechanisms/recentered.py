"""Recentering (P-9): one released curvature, many centres, Gaussian noise throughout.

Once, a private curvature S of XᵀX is released, in a metric that a cheap pilot makes nearly isotropic. Then
rounds of clipped, noisy gradients, each at a new centre and measured in the metric of S, move θ by proximal
Newton steps; the last of them are averaged. Every choice on the way is made by one public `Rule` from
released numbers. A unit is a person with all rows (U-1), or a single row: nothing here tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.geometry import Geometry, Pilot, curvature_above, geometry_of, noise_norm
from curvedp.mechanisms.noise import GaussianNoise, gaussian_profile, gram_scale
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.mechanisms.walk import edges_beyond, records_beyond, started
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile, log_rare_probability, rare_cap
from curvedp.problem import Problem
from curvedp.released.scales import EDGES as LOOK_EDGES
from curvedp.rows.base import Rows

LEAST_WEIGHT = 1e-3  # that a mean weight is believed to be
RARE = 1e-9  # share of δ that pays for a noisy count far below n
# Edges of the histogram of lengths in the given coordinates, in units of B, a factor √2 apart: below 1 for
# bounds that are loose, above it for persons, each edge for twice the rows of the one before.
EXTENTS = math.sqrt(2.0) ** np.arange(-8.0, 17.0)
MOST_ROWS = 2.0**16  # of a person that gradients which all agree are looked for


@dataclass(frozen=True)
class Recentered:
    """θ by noisy proximal Newton rounds around a released curvature (P-9), the most accurate mechanism here.

    Any loss with bounded curvature, any regularizer and constraint, both adjacencies, rows or persons.
    Gradients are clipped, so that no gradient bound is needed.

    Parameters
    ----------
    rule : Rule, optional
        The public constants; the default serves every table.
    """

    rule: Rule = field(default_factory=Rule)
    name = "recentered"

    def plan(self, problem: Problem, d: int, budget: Budget) -> RecenteredPlan:
        """Calibrate every release: all of them are Gaussian, and their shifts add in squares."""
        profile = calibrated(self.rule, problem, d, budget)
        shifts = Shifts.split(profile.mu, self.rule, problem.domain.neighbours)
        return RecenteredPlan(problem, d, budget, self.rule, shifts, profile)


def calibrated(
    rule: Rule, problem: Problem, d: int, budget: Budget, more: Sequence[int] = ()
) -> GaussianProfile:
    """The largest μ with H_Φ(ε; μ) + excess ≤ δ, of the walk and of further releases of `more` numbers."""
    sizes = [1, len(EXTENTS) + 1, d * d, rule.edges + 1, d * d, *[LOOK_EDGES + 1] * 2, rule.edges + 1]
    sizes += [d * problem.loss.n_outputs] * rule.rounds
    sizes += more
    rare = 0.0 if problem.domain.neighbours.count_is_public else RARE * budget.delta
    left = Budget(budget.epsilon, budget.delta - 2.0 * rare)
    profile = gaussian_profile(left, sizes, [1.0] * len(sizes))  # what discreteness adds: no part has more
    return replace(profile, excess=profile.excess + rare, cap=rare_cap(budget.epsilon, rare))


@dataclass(frozen=True, eq=False)
class RecenteredPlan(FitPlan):
    """The calibrated mechanism: the shift of every Gaussian release."""

    rule: Rule
    shifts: Shifts
    profile: GaussianProfile
    columns: int | None = None  # in which sums are computed, where the d columns here are contrasts of them
    persons: ClassVar[bool] = True

    @property
    def mu(self) -> float:
        """The shift that (ε, δ) allows."""
        return self.profile.mu

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise("recentered", "gaussian", "(P-9)", self.profile, *self.parameters)

    @property
    def parameters(self) -> tuple[public.Parameter, ...]:
        """μ, its part for every release in their order, and how many rounds there are at most."""
        s = self.shifts
        return (
            public.MU(self.mu),
            public.MU_COUNT(s.count),
            public.MU_EXTENT(s.extent),
            public.MU_PILOT(s.pilot),
            public.MU_LENGTHS(s.lengths),
            public.MU_CURVATURE(s.curvature),
            public.MU_SPREAD(s.spread),
            public.MU_SCALE(s.scale),
            public.MU_CLIP(s.clip),
            public.MU_FIRST_ROUNDS(s.first),
            public.MU_LATER_ROUNDS(s.later),
            public.ROUNDS(self.rule.rounds),
        )

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
        geometry = self.geometry(rows, noise, n)
        rounds = started(self, rows.in_metric(geometry.metric), noise, geometry, n)
        start = self.problem.constraint.project(np.zeros((self.d, self.problem.loss.n_outputs)))
        return rounds.finished(start)[1]

    def rows_at_most(self, noise: GaussianNoise, n: float) -> float:
        """A number that n exceeds rarely, whatever the table: n itself where it is public."""
        return n if noise.neighbours.count_is_public else n + self.far * noise.count_scale(self.shifts.count)

    def kappa(self, n: float) -> float:
        """κ = n̂μ/(d·ρ)."""
        return n * self.mu / self.unknowns

    def geometry(self, rows: Rows, noise: GaussianNoise, n: float) -> Geometry:
        """Four releases: how long units are, a look at XᵀX, lengths in its metric, and S there.

        Where κ is large S is precise in the given coordinates: what the second and third would cost is not
        spent.
        """
        extent, mass = self._extent(rows, noise, n)
        weight = min(max(mass / n, LEAST_WEIGHT), 1.0)
        unit = np.eye(self.d)
        pilot = Pilot(unit, unit, extent, self._shortened(rows, extent).moments().xx, weight)
        if self.kappa(n) < self.rule.precise:
            pilot = self._pilot(pilot, rows, noise, n)
        S, norm = self._look(pilot, noise, n, self.shifts.curvature, "curvature")
        # A ridge: what it has to outweigh is the noise of gradients, which neighbours move by `sum_factor`.
        lift = self.rule.floor * norm * noise.neighbours.sum_factor / noise.neighbours.gram_factor
        found = geometry_of(S, norm, lift, n, pilot)
        return replace(found, rows=max((extent / self.problem.domain.x_norm) ** 2, 1.0))

    def _extent(self, rows: Rows, noise: GaussianNoise, n: float) -> tuple[float, float]:
        """An edge that most units stay below, in doubt B; and how many units there are, or what they weigh.

        The smallest edge below B that all but a fifth surely stay within; else the smallest from B on that
        more than a fifth do not surely lie beyond.
        """
        edges, shift = self.problem.domain.x_norm * EXTENTS, self.shifts.extent
        counts = noise.counts(rows.norm_histogram(edges), shift, "extent")
        mass = self.mass(counts, n)
        few = (1.0 - self.rule.kept_lengths) * mass
        doubt = noise.count_scale(shift) * np.sqrt(np.arange(len(edges), 0, -1))
        outside = records_beyond(counts)
        long = EXTENTS >= 1.0
        inside = np.where(long, outside - 2.0 * doubt <= few, outside + doubt <= few)
        return float(edges[np.argmax(inside)] if inside.any() else edges[-1]), mass

    def _shortened(self, rows: Rows, extent: float) -> Rows:
        """Units no longer than `extent` in the given coordinates; a row never is longer than B."""
        domain = self.problem.domain
        if domain.unit is None and extent >= domain.x_norm:
            return rows
        return rows.in_metric(np.eye(self.d), extent)

    def _pilot(self, given: Pilot, rows: Rows, noise: GaussianNoise, n: float) -> Pilot:
        """A released look at XᵀX makes a metric; a histogram of lengths there a bound."""
        first, norm = self._look(given, noise, n, self.shifts.pilot, "pilot")
        values, V = curvature_above(first, self.rule.pilot_floor * norm, n * given.bound**2)
        A = (V / np.sqrt(values)).T
        bound, mass = self.length_bound(rows.in_metric(A), noise, n, given.bound / math.sqrt(values.min()))
        gram = A @ rows.in_metric(A, bound).moments().xx @ A.T
        return Pilot(A, V * np.sqrt(values), bound, gram, min(max(mass / n, LEAST_WEIGHT), 1.0))

    def _look(
        self, pilot: Pilot, noise: GaussianNoise, n: float, mu: float, name: str
    ) -> tuple[FloatArray, float]:
        """Σ A P Aᵀ of units of length ≤ `bound`, noisy, and the spectral norm of its noise.

        What rounding adds: entries of a person's Σ A x xᵀAᵀ add up to its trace, √d times its Frobenius norm.
        """
        metric = Geometry(pilot.metric, pilot.inverse, 0.0)
        unseen = 0.0 if self.columns is None else (self.problem.domain.x_norm / pilot.bound) ** 2
        most = self.rows_at_most(noise, n)
        slack = math.sqrt(self.d) * metric.gram_slack(most, self.columns, unseen)
        scale = gram_scale(pilot.bound**2, mu, noise.neighbours, slack)
        return noise.gram(pilot.gram, pilot.bound, mu, slack, name), noise_norm(scale, self.d)

    def length_bound(
        self, measured: Rows, noise: GaussianNoise, n: float, largest: float
    ) -> tuple[float, float]:
        """The smallest edge that all but a fifth of the records surely stay below, else the public bound.

        And how many records there are, or what they weigh.
        """
        edges = self.edges(largest)
        counts = noise.counts(measured.norm_histogram(edges), self.shifts.lengths, "lengths")
        mass = self.mass(counts, n)
        doubt = noise.count_scale(self.shifts.lengths)
        inside = edges_beyond(edges, counts, doubt, (1.0 - self.rule.kept_lengths) * mass)
        return (float(inside[0]) if inside.size else largest), mass

    def mass(self, counts: FloatArray, n: float) -> float:
        """How many records there are, or what they weigh, which a histogram of weighted records sums up."""
        return max(float(counts.sum()), 0.0) if self.problem.domain.weighted else n

    def edges(self, largest: float) -> FloatArray:
        return np.asarray(largest * math.sqrt(2.0) ** -np.arange(self.rule.edges)[::-1].astype(float))

    def reach(self, geometry: Geometry) -> float:
        """How many times longer than thought a typical gradient may be: √k, for k rows of a person.

        Rows that differ are as long as √k of them, which is thought, rows that agree as k of them.
        """
        return math.sqrt(min(geometry.rows, MOST_ROWS))
