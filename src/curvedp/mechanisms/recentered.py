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

from curvedp.arrays import BoolArray, FloatArray
from curvedp.data.mapping import Coding
from curvedp.data.rows.base import CELLS, Rows
from curvedp.errors import InvalidInput
from curvedp.mechanisms import geometry as metrics
from curvedp.mechanisms.base import Estimate, FitPlan, GaussianNoise, gaussian_profile, gram_scale
from curvedp.mechanisms.constant import TARGET_EDGES, Constant, believed, has_constant, is_binary, is_count
from curvedp.mechanisms.ending import EDGES, ended
from curvedp.mechanisms.geometry import LOOK_EDGES, Geometry, Pilot, gram_slack, noise_norm, records_beyond
from curvedp.mechanisms.rule import COUNTS, ENDING, JUMPS, Rule, Shifts, Walk
from curvedp.mechanisms.walk import BANDS, FARTHER, started
from curvedp.postprocess.noise import QuadraticModel, is_free
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile, log_rare_probability, rare_cap
from curvedp.problems import Problem
from curvedp.problems.losses.margin import Loss, jump_of

LEAST_WEIGHT = 1e-3  # that a mean weight is believed to be
BELIEVED = 0.95  # trust that is taken for 1: less would cost a four-hundredth of what a fit explains
RARE = 1e-9  # share of δ that pays for a noisy count far below n
# Edges of the histogram of lengths in the given coordinates, in units of B, a factor √2 apart: below 1 for
# bounds that are loose, above it for persons, each edge for twice the rows of the one before.
EXTENTS = math.sqrt(2.0) ** np.arange(-8.0, 17.0)


@dataclass(frozen=True)
class Recentered:
    """θ by noisy proximal Newton rounds around a released curvature (P-9), the most accurate mechanism here.

    Any loss with bounded curvature, any regularizer and constraint, both adjacencies, rows or persons.
    Gradients are clipped, so that no gradient bound is needed.

    Parameters
    ----------
    rule : Rule, optional
        The public constants; the default serves every table, with other rounds for counts and quantiles.
    coding : Coding, optional
        Which columns code levels; an estimator takes it from its schema.
    inference : bool, default=False
        Whether to release what intervals need, too: without penalty and constraint.
    """

    rule: Rule = field(default_factory=Rule)
    coding: Coding = field(default_factory=Coding)
    inference: bool = False
    name = "recentered"

    def plan(self, problem: Problem, d: int, budget: Budget) -> RecenteredPlan:
        """Calibrate every release: all of them are Gaussian, and their shifts add in squares."""
        self.coding.check(d)
        if self.inference:
            _check_intervals(problem, d)
        more = [(d * problem.loss.rank) ** 2] * 2 + [d * problem.loss.n_outputs, EDGES + 1]
        rule = self.rule_of(problem.loss)
        profile = calibrated(rule, problem, d, budget, more)
        neighbours, columns = problem.domain.neighbours, bool(self.coding.numbers)
        shifts = Shifts.split(profile.mu, rule, neighbours, inference=self.inference, columns=columns)
        return RecenteredPlan(problem, d, budget, rule, shifts, profile, self.coding, self.inference)

    def rule_of(self, loss: Loss) -> Rule:
        """The rule; where it is the default one, that of counts or of a loss whose slope jumps."""
        if self.rule != Rule():
            return self.rule
        return JUMPS if jump_of(loss) is not None else COUNTS if is_count(loss) else self.rule


def _check_intervals(problem: Problem, d: int) -> None:
    """Refuse what has no intervals."""
    if 1 < problem.loss.n_outputs == problem.loss.rank:
        raise InvalidInput("intervals are for one number or for classes: pass `inference=False`")
    if not QuadraticModel(problem, np.empty((d, 0))).is_free:
        raise InvalidInput(
            "intervals are for fits without penalty and constraint: pass `alpha=0` and no constraint, or "
            "`inference=False`"
        )
    problem.loss.inverse_link(np.zeros((1, problem.loss.n_outputs)))  # refuses without a mean response
    if not problem.loss.curvature(problem.domain, problem.radius(d)) <= _LARGEST_CURVATURE:
        raise InvalidInput("intervals need a loss of moderate curvature: pass a smaller max_margin")


_LARGEST_CURVATURE = 1e6  # β: noise for more would hide every table


def calibrated(
    rule: Rule, problem: Problem, d: int, budget: Budget, more: Sequence[int] = ()
) -> GaussianProfile:
    """The largest μ with H_Φ(ε; μ) + excess ≤ δ, of the walk and of further releases of `more` numbers."""
    sizes = [
        1,
        CELLS * d,
        2 * problem.loss.n_outputs + 2 if jump_of(problem.loss) is None else TARGET_EDGES + 1,
        len(EXTENTS) + 1,
        d * d,
        rule.edges + 1,
        d * d,
        LOOK_EDGES + 1,
        LOOK_EDGES + 1 if jump_of(problem.loss) is None else 2 * len(BANDS) + 1,
        rule.edges + len(FARTHER) + 1,
    ]
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
    coding: Coding = field(default_factory=Coding)
    inference: bool = False
    believes: bool = True  # whether it asks how far the estimate is to be believed
    persons: ClassVar[bool] = True

    @property
    def room(self) -> float:
        several = 21.0 * (self.unknowns**2 - self.d**2) if self.inference else 0.0  # 19 and 21 measured
        return 8.0 * ((28.0 if self.inference else 22.0) * self.d**2 + several)  # 26 and 21 matrices measured

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
        made = [name for name in public.PARTS if self.inference or name not in ENDING]
        parts = [public.PARTS[name](getattr(self.shifts, name)) for name in made]
        return public.MU(self.mu), *parts, public.ROUNDS(self.rule.rounds)

    @property
    def unknowns(self) -> int:
        """d·ρ: how many numbers are learned (K−1 columns of K where one is redundant)."""
        return self.d * self.problem.loss.rank

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        noise = GaussianNoise(random, self.problem.domain.neighbours)
        n = noise.count(rows, self.shifts.count)
        shifts = self.walk_shifts(noise, n)
        geometry = self.geometry(rows, noise, n)
        mass = n * geometry.weight
        constant = Constant.of(self, rows, noise, mass, shifts.constant) if shifts.constant else None
        rounds = started(self, rows.in_metric(geometry.metric), noise, geometry, n, shifts, constant)
        if constant is not None and shifts.centre:
            constant = constant.recentred(rounds, rows, shifts.centre)
        rounds, clip, estimate, scatter = rounds.finished(rounds.start())
        seen = self._seen(geometry, estimate.theta)
        if self.infers(n) and (rounds.counts or not is_count(self.problem.loss)):
            estimate = ended(rounds.plan, rounds, clip, estimate, scatter, seen)
        estimate = replace(estimate, theta=self._without(~seen, geometry, estimate.theta))
        if constant is None or not shifts.evidence:
            return estimate
        if (trust := believed(rounds, clip, rows, estimate.theta, constant, shifts.evidence)) >= BELIEVED:
            return estimate
        theta = trust * estimate.theta + (1.0 - trust) * constant.theta(self)
        return replace(estimate, theta=theta, trust=trust)

    def _seen(self, geometry: Geometry, theta: FloatArray) -> BoolArray:
        """Columns but those of which nothing is seen, and whose coefficients make no difference.

        Whose released variation is noise, and which together have at most the share `unseen` of what the
        other columns explain: such coefficients are what noise made them.
        """
        if not is_free(self.problem):
            return np.ones(self.d, dtype=bool)
        squares, deviation = geometry.variation(self.coding.constant)
        size = np.sum(theta**2, axis=1)
        hidden = squares <= 2.0 * deviation
        if self.coding.constant is not None:
            hidden[self.coding.constant] = False
        for block in self.coding.blocks:  # a level is told by the others of its category
            hidden[list(block)] = False
        moved = np.where(hidden, size * (squares + 2.0 * deviation), np.inf)
        least_first = np.argsort(moved)
        seen = np.ones(self.d, dtype=bool)
        together = np.cumsum(moved[least_first])
        seen[least_first] = together > self.rule.unseen * float(np.sum(size * squares))
        return seen

    def _without(self, unseen: BoolArray, geometry: Geometry, theta: FloatArray) -> FloatArray:
        """θ with 0 for these columns: what they add to all records, their mean, is added by the constant."""
        if not unseen.any():
            return theta
        added = geometry.means[unseen] @ theta[unseen]
        return np.where(unseen[:, None], 0.0, theta) + np.outer(self.constant_unit, added)

    @property
    def constant_unit(self) -> FloatArray:
        """e_c, shape (d,); 0 where no column is constant."""
        unit = np.zeros(self.d)
        unit[[] if self.coding.constant is None else self.coding.constant] = 1.0
        return unit

    def walk_shifts(self, noise: GaussianNoise, n: float) -> Walk:
        """How the rounds' shift is split, by the released count; they get what is not spent elsewhere."""
        s, binary = self.shifts, has_constant(self) and is_binary(self.problem.loss)
        spared = [] if self.looks_at_columns(noise, n) else [s.columns]
        spared += [] if self.infers(n) else [getattr(s, name) for name in ENDING]
        return Walk.split(
            math.sqrt(s.rest**2 + math.fsum(shift**2 for shift in spared)) * (1 - 1e-14),
            self.mu,
            self.rule,
            n * self.mu / noise.neighbours.sum_factor,
            constant=has_constant(self),
            twice=self.problem.loss.is_quadratic,
            doubted=self.believes
            and (binary or self.kappa(n) < self.rule.sure * noise.neighbours.sum_factor),
        )

    def infers(self, n: float) -> bool:
        """Whether there are records enough for the curvature of the loss to be seen at all."""
        factor = self.problem.domain.neighbours.gram_factor
        return self.inference and self.kappa(n) >= self.rule.least_kappa * factor

    def looks_at_columns(self, noise: GaussianNoise, n: float) -> bool:
        """Whether histograms of single columns could say anything: noise hides less than so many records."""
        if (numbers := len(self.coding.numbers)) == 0:
            return False
        return noise.count_scale(self.shifts.columns) * math.sqrt(numbers) <= self.rule.most_hidden * n

    def rows_at_most(self, noise: GaussianNoise, n: float) -> float:
        """A number that n exceeds rarely, whatever the table: n itself where it is public."""
        if noise.neighbours.count_is_public:
            return n
        # P(N(0, 1) > far) ≤ p: n̂ + far of its deviations is below n that rarely, and p is paid by δ.
        far = math.sqrt(-2.0 * log_rare_probability(self.budget.epsilon, RARE * self.budget.delta))
        return n + far * noise.count_scale(self.shifts.count)

    def kappa(self, n: float) -> float:
        """κ = n̂μ/(d·ρ)."""
        return n * self.mu / self.unknowns

    def geometry(self, rows: Rows, noise: GaussianNoise, n: float) -> Geometry:
        """Four releases: how long units are, a look at XᵀX, lengths in its metric, and S there.

        Where κ is large S is precise in the given coordinates: what the second and third would cost is not
        spent.
        """
        T, inverse, levels = metrics.declared_columns(self.coding, self.d)
        if self.looks_at_columns(noise, n):
            T, inverse, levels = metrics.looked_at(self.coding, self.d, rows, noise, self.shifts.columns, n)
        B = self.problem.domain.x_norm
        extent, weight = self._bound("extent", rows.in_metric(T), noise, n, B * EXTENTS, B)
        gram = T @ rows.in_metric(T, extent).moments().xx @ T.T
        pilot, means = Pilot(T, inverse, extent, gram, weight), None
        levels *= n * weight / self.d
        if self.kappa(n) < self.rule.precise:
            pilot, means = self._pilot(pilot, rows, noise, n, self.rule.pilot_level * levels)
        S, scale = self._look(pilot, noise, n, self.shifts.curvature, "curvature")
        if means is None:
            means = metrics.means_of(S, scale, inverse, self.coding.constant)
        # A ridge: what it has to outweigh is the noise of gradients, which neighbours move by `sum_factor`.
        lift = self.rule.floor * noise_norm(scale, self.d)
        lift *= noise.neighbours.sum_factor / noise.neighbours.gram_factor
        found = metrics.geometry_of(S, scale, lift, n, pilot, self.rule.level * levels, means)
        return replace(found, rows=max((extent / B) ** 2, 1.0))

    def _bound(
        self, name: str, rows: Rows, noise: GaussianNoise, n: float, edges: FloatArray, B: float = math.inf
    ) -> tuple[float, float]:
        """An edge that most units stay below, in doubt B or the last; and the mean weight of a unit.

        The smallest edge below B that all but a fifth surely stay within; else the smallest from B on that
        more than a fifth do not surely lie beyond.
        """
        shift = getattr(self.shifts, name)
        counts = noise.counts(rows.norm_histogram(edges), shift, name)
        mass, outside = self.mass(counts, n), records_beyond(counts)
        few = (1.0 - self.rule.kept_lengths) * mass
        doubt = noise.count_scale(shift) * np.sqrt(np.arange(len(edges), 0, -1))
        inside = np.where(edges >= B, outside - 2.0 * doubt <= few, outside + doubt <= few)
        bound = float(edges[np.argmax(inside)] if inside.any() else edges[-1])
        bound = bound if self.problem.domain.unit else min(bound, B)  # no row is longer
        return bound, min(max(mass / n, LEAST_WEIGHT), 1.0)

    def _pilot(
        self, given: Pilot, rows: Rows, noise: GaussianNoise, n: float, levels: FloatArray
    ) -> tuple[Pilot, metrics.Means]:
        """A released look at XᵀX makes a metric; a histogram of lengths there a bound."""
        first, scale = self._look(given, noise, n, self.shifts.pilot, "pilot")
        means = metrics.means_of(first, scale, given.inverse, self.coding.constant)
        lift = self.rule.pilot_floor * noise_norm(scale, self.d)
        values, V = metrics.curvature_above(first, lift, n * given.bound**2)
        values, V = np.linalg.eigh((V * values) @ V.T + given.metric @ levels @ given.metric.T)
        A = (V / np.sqrt(values)).T @ given.metric
        edges = self.edges(given.bound / math.sqrt(values.min()))
        bound, weight = self._bound("lengths", rows.in_metric(A), noise, n, edges)
        gram = A @ rows.in_metric(A, bound).moments().xx @ A.T
        return Pilot(A, given.inverse @ (V * np.sqrt(values)), bound, gram, weight), means

    def _look(
        self, pilot: Pilot, noise: GaussianNoise, n: float, mu: float, name: str
    ) -> tuple[FloatArray, float]:
        """Σ A P Aᵀ of units of length ≤ `bound`, noisy, and the scale of its noise.

        What rounding adds: entries of a person's Σ A x xᵀAᵀ add up to its trace, √d times its Frobenius norm.
        """
        slack = math.sqrt(self.d) * gram_slack(pilot.metric, self.rows_at_most(noise, n))
        scale = gram_scale(pilot.bound**2, mu, noise.neighbours, slack)
        return noise.gram(pilot.gram, pilot.bound, mu, slack, name), scale

    def mass(self, counts: FloatArray, n: float) -> float:
        """How many records there are, or what they weigh, which a histogram of weighted records sums up."""
        return max(float(counts.sum()), 0.0) if self.problem.domain.weighted else n

    def edges(self, largest: float) -> FloatArray:
        return np.asarray(largest * math.sqrt(2.0) ** -np.arange(self.rule.edges)[::-1].astype(float))
