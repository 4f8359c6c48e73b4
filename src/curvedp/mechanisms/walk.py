"""Noisy proximal Newton rounds in a fixed metric (P-9)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import SUM_SLACK, Rows, additions_at_most, relative_error, slope_slack
from curvedp.errors import advance
from curvedp.forms import LARGEST
from curvedp.mechanisms import geometry as metrics
from curvedp.mechanisms.base import Estimate, GaussianNoise, gradient_scale
from curvedp.mechanisms.constant import Constant, Crossings, Rare, is_binary, is_class, is_count, started_at
from curvedp.mechanisms.geometry import Geometry, look_edges, records_beyond
from curvedp.mechanisms.rule import Rule, Walk
from curvedp.postprocess.inference import HIDDEN
from curvedp.postprocess.noise import LocalObjective, QuadraticModel
from curvedp.privacy.budget import Neighbours
from curvedp.problems import Problem
from curvedp.problems.losses.margin import Jump, Loss, jump_of
from curvedp.problems.losses.several import spread_targets

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan

FARTHER = (2.0, 4.0, 8.0)  # edges of the clip's histogram beyond its widest, in units of that …
ROOM = 8.0  # times that of the mean count: the curvature of counts where the walk is, at most
COUNT_TAIL = 4.0  # times wider are those of counts: at their mean most gradients are short
SURE = 2.0  # … taken if more records than may be clipped lie beyond by as many deviations
MOST_ROWS = 2.0**16  # of a person that gradients which all agree are looked for
SCEPTICAL = (2.0, 1.75)  # times the rule's doubt, and times this, where too small a clip does no harm
Round = tuple[FloatArray, FloatArray, FloatArray]  # a centre, the noisy gradient there, the next
Stride = tuple[float, float]  # damping of the Newton steps, and the fraction of the last move that is added
OUTLYING = 0.5  # Σ‖z‖²/d of unseen records from which on long tails are as likely as typical ones
WITHIN = 1.5  # times a clip, or a typical record: if no gradient can be longer, none is clipped
RARE_CLIPS = (0.7, 1.25)  # of the length of a typical record: clips that leave the slopes of a rare class

# Of a check loss. Around a fit its curvature, the density of targets, is looked at in a band.
BANDS = 2.0 ** np.arange(-10.0, 1.5, 0.5)  # half widths of bands, in units of the bound of targets
BAND = (45.0, 0.06, 0.8)  # share that one should hold: first·g/κ, from the second to the last·2τ(1 − τ)
CAREFUL = 0.5  # times the damping: records may crowd in some directions more than anything shows
SHARPER = 0.125  # of the band: half width over which the loss is smoothed in the later rounds


def started(
    plan: RecenteredPlan,
    rows: Rows,
    noise: GaussianNoise,
    geometry: Geometry,
    n: float,
    walk_shifts: Walk,
    constant: Constant | None,
) -> Rounds:
    """Rounds over rows that are measured in the metric, after two looks at lengths there.

    Σ‖Ax‖², about `resolved`, says how much noise predictions can take; the typical length of a gradient at
    θ = 0, about √(weight·Σ‖Ax‖²/n) times the slope of targets uniform within their bounds, what to clip at.
    """
    problem, shifts = plan.problem, plan.shifts
    # A person's rows that differ are as long as √k of them, which is thought, rows that agree as k of them.
    reach = math.sqrt(min(geometry.rows, MOST_ROWS))
    guess = math.sqrt(geometry.resolved / n)
    edges = look_edges(plan.rule.widest_clip * guess)
    counts = noise.counts(rows.norm_histogram(edges), shifts.spread, "spread")
    mass, deviation = max(plan.mass(counts, n), 1.0), noise.count_scale(shifts.spread)
    length = metrics.typical_length(edges, counts, deviation, mass, guess, octaves=1.0)
    outlying = 0.0  # where slopes are bounded a far record pulls no more
    if problem.loss.is_quadratic:
        longest = plan.coding.longest(geometry.metric, problem.domain.x_norm)
        unseen = max(float(counts[-1]), 0.0) + HIDDEN * deviation
        farther = unseen * metrics.leverage_beyond(edges[-1], longest) / plan.d
        outlying = farther / (farther + OUTLYING)
    spread = min(n * length**2, float(plan.d))
    slope = _slope(problem)
    start, warm = np.zeros((plan.d, problem.loss.n_outputs)), False
    if constant is not None and constant.is_warm(plan):
        start, warm = started_at(plan, geometry, constant), True
        slope = min(slope, constant.curvature)  # counts vary about as much as they are
    guess = slope * math.sqrt(geometry.weight * spread / n)
    edges = look_edges(plan.rule.widest_clip * guess, reach)
    jump, loss = jump_of(problem.loss), problem.loss
    if jump is not None and constant is not None:
        start = started_at(plan, geometry, constant)
        loss = loss.over(0.5 * jump.balance / constant.curvature)
    start = problem.constraint.project(start)
    if jump is None:
        counts = noise.counts(rows.gradient_norm_histogram(loss, start, edges), shifts.scale, "scale")
        octaves = 2.0 + 0.5 * math.log2(reach)
        scale, doubt = noise.count_scale(shifts.scale), plan.rule.doubted_scale * loss.is_quadratic
        typical = metrics.typical_length(edges, counts, scale, n, guess, octaves, doubt)
    else:  # its slopes are known: a look at how far targets are from a fit comes later
        typical = jump.steepest * math.sqrt(geometry.weight * spread / n)
        plan = replace(plan, problem=replace(problem, loss=loss))
    made = (plan, rows, noise, geometry, n, spread, outlying, typical, walk_shifts, constant, start, warm)
    return Rounds(*made, loss, steep=1.0 if jump is None else 0.5)


def _slope(problem: Problem) -> float:
    """Root mean square of φ'(0; y), targets being uniform within their bounds."""
    targets = spread_targets(problem.loss, problem.domain)
    slopes = problem.loss.gradient(np.zeros((len(targets), problem.loss.n_outputs)), targets)
    return math.sqrt(float(np.mean(np.sum(slopes**2, axis=1))))


def wanted_share(jump: Jump, neighbours: Neighbours, kappa: float) -> float:
    """Of the records, that a band around the quantile should hold for φ'' to be seen in it (P-11)."""
    return min(max(BAND[0] * neighbours.gram_factor / kappa, BAND[1]), BAND[2] * jump.balance)


@dataclass(frozen=True, eq=False)
class Rounds:
    """Noisy proximal Newton rounds in a fixed metric."""

    plan: RecenteredPlan
    rows: Rows  # measured in the metric
    noise: GaussianNoise
    geometry: Geometry
    n: float
    spread: float  # about Σ‖Ax‖²
    outlying: float  # 1 where records beyond the edges of its look may make up much of it
    typical: float  # length of a gradient at the start
    shifts: Walk
    constant: Constant | None
    looked: FloatArray  # θ there: 0, or where a mean far from 0 is predicted
    warm: bool  # whether it is that
    shape: Loss  # whose φ'' is looked at: the loss, over a wider band where it is a check loss …
    share: float = 1.0  # … in which about so many records are …
    steep: float = 1.0  # … and, where targets are densest, in one as wide

    @property
    def slope(self) -> float:
        """The slope φ' of a typical record at the start."""
        return self.typical / self.unit

    @property
    def unit(self) -> float:
        """The length of a typical record."""
        return math.sqrt(self.geometry.weight * self.spread / self.n)

    @cached_property
    def rare(self) -> Rare | None:
        """A class that the clip of the rule might swallow."""
        if self.constant is None or not is_binary(self.plan.problem.loss):
            return None
        scale = self.noise.count_scale(self.plan.shifts.clip)
        return Rare.of(self.constant, self.n, self.few, scale * math.sqrt(0.5 * self.plan.rule.edges))

    @cached_property
    def records(self) -> float:
        """What all rows weigh: where a unit is a person, as many as the constant column says, or one each."""
        mass, constant = self.n * self.geometry.weight, self.plan.coding.constant
        if self.plan.problem.domain.unit is None or constant is None:
            return mass
        return max(self.geometry.records, mass)

    @property
    def several(self) -> float:
        """min(ρ − 1, 1), ρ the mean number of rows of a unit; 1 where effects are absorbed."""
        if self.plan.problem.domain.absorbed:
            return 1.0
        return min(self.records / (self.n * self.geometry.weight) - 1.0, 1.0)

    @property
    def few(self) -> float:
        """So many records may be clipped in the later rounds."""
        plan = self.plan
        return plan.rule.clipped * plan.unknowns * self.noise.neighbours.sum_factor / plan.mu

    def start(self) -> FloatArray:
        """Where lengths were looked at; where the constant answer is predicted, if a class is rare."""
        if self.constant is None or self.rare is None:
            return self.looked
        return self.plan.problem.constraint.project(started_at(self.plan, self.geometry, self.constant))

    @cached_property
    def most(self) -> float:
        """Units, but for rare draws of the noise."""
        return self.plan.rows_at_most(self.noise, self.n)

    @property
    def kappa(self) -> float:
        return self.plan.kappa(self.n)

    @cached_property
    def pace(self) -> Rule:
        return self.plan.rule.pace(self.geometry.weight * self.kappa)  # what S resolves counts weights

    def finished(self, theta: FloatArray) -> tuple[Rounds, Clip, Estimate, float]:
        """First rounds from θ on, then the later ones with a clip of their own, and their average.

        With what they were made, and how far the margins of a typical record at the later centres scatter.
        """
        plan, pace, shifts = self.plan, self.pace, self.shifts
        first = self.stride(pace.first_rounds, shifts.first, plan.rule.first_travel)
        walk = self.walk(theta, self.first_clip, first, pace.first_rounds, shifts.first_round(pace))
        *_, (_, _, theta) = walk
        near, theta = self.sharpened(theta)
        clip = near.choose_clip(theta)
        later = near.stride(pace.later, shifts.later)
        walk = near.walk(theta, clip, later, pace.later, shifts.later_round(pace))
        return near, clip, *near.average(walk, clip, pace.later)

    def sharpened(self, theta: FloatArray) -> tuple[Rounds, FloatArray]:
        """Of a check loss: from here on hardly smoothed, and θ moved to where the quantile of y − θᵀx is 0.

        From a private histogram of these: φ'' is looked at in the narrowest band around 0 that holds enough
        records, and steps are made for the density where targets are densest.
        """
        plan, loss, jump = self.plan, self.plan.problem.loss, jump_of(self.plan.problem.loss)
        if jump is None:
            return self, theta
        widths = plan.problem.domain.y_bound * BANDS
        at = np.concatenate([-widths[::-1], widths])
        noisy = partial(self.noise.counts, mu=plan.shifts.scale, name="scale", slack=SUM_SLACK)
        below = Crossings(loss, theta, at, plan.coding.constant).below(self.rows, noisy)
        shift = 0.0 if plan.coding.constant is None else float(np.interp(jump.quantile, below, at))
        shares = np.interp(shift + widths, at, below) - np.interp(shift - widths, at, below)
        wanted = wanted_share(jump, self.noise.neighbours, self.kappa)
        j = int(np.argmax(shares >= wanted)) if (shares >= wanted).any() else len(widths) - 1
        share, width, cells = max(float(shares[j]), 0.1 * wanted), float(widths[j]), np.diff(below)
        densest = float(np.max(np.where(cells >= 0.25 * wanted, cells, 0.0) / np.diff(at)))
        sharp = replace(plan, problem=replace(plan.problem, loss=loss.over(SHARPER * width)))
        steep, moved = max(share, 2.0 * width * densest), theta + shift * plan.constant_unit[:, None]
        return replace(self, plan=sharp, shape=loss.over(width), share=share, steep=steep), moved

    @property
    def first_clip(self) -> Clip:
        rule = self.plan.rule
        if self.rare is not None or jump_of(self.shape) is not None:
            return Clip(RARE_CLIPS[0] * max(self.typical, self.unit * (self.rare is not None)), 1.0)
        if is_class(self.plan.problem.loss):
            return Clip(rule.class_clip / self.farther * self.typical, rule.first_kept)
        return Clip(rule.first_clip * self.typical * (1 + (self.warm and self.room >= 1.0)), rule.first_kept)

    @property
    def farther(self) -> float:
        """√ of how far a record moves a sum, in units of the clip: so much shorter are clips taken unseen."""
        return math.sqrt(self.noise.neighbours.sum_factor)

    @property
    def room(self) -> float:
        """A third of the records over the noise of the histogram that chooses a clip.

        So far, as a factor, may that be from the one that is taken unseen; below 1 the histogram is noise.
        """
        edges = self.plan.rule.edges + len(FARTHER)
        return self.n / (3.0 * self.noise.count_scale(self.plan.shifts.clip) * math.sqrt(edges / 2.0))

    def choose_clip(self, theta: FloatArray) -> Clip:
        """The clip beyond which about `clipped`·unknowns/μ records lie, from a private histogram at θ.

        In doubt the smaller one: too wide a clip costs its square in noise, and all records pay. The
        edges farther out are for tails that are surely there.
        """
        plan, rule = self.plan, self.plan.rule
        near = plan.edges(rule.widest_clip * self.typical * (COUNT_TAIL if self.counts else 1.0))
        edges = np.append(near, near[-1] * np.array(FARTHER))
        scale = self.noise.count_scale(plan.shifts.clip)
        few, jump = self.few, jump_of(plan.problem.loss)
        if jump is None or plan.problem.domain.unit is not None:
            counts = self.rows.gradient_norm_histogram(plan.problem.loss, theta, edges)
        else:  # which slopes are steep depends on θ: lengths of records, of which some have the steeper one
            counts, few = self.rows.norm_histogram(edges / jump.steepest), few / (2.0 * jump.balance) ** 2
        outside = records_beyond(self.noise.counts(counts, plan.shifts.clip, "clip"))
        unseen = max(self.first_clip.size, rule.blind_clip / self.farther * self.typical)
        if self.room < 1.0:
            return replace(self.first_clip, size=unseen)
        few = few if self.rare is None else min(few, self.rare.most)
        doubt = scale * np.sqrt(np.arange(len(edges), 0, -1))
        more, surer = (1.0, 1.0) if self.leads_astray else SCEPTICAL
        few_enough = (outside - more * rule.doubt * doubt <= few) & (outside <= (1.0 - rule.kept) * self.n)
        last = len(near) - 1
        index = int(np.argmax(few_enough[: last + 1])) if few_enough[: last + 1].any() else last
        if self.rare is None and jump is None and not is_count(plan.problem.loss):
            first, end = np.searchsorted(near, unseen * np.array([0.99 / self.room, 1.01 * self.room]))
            index = int(np.clip(index, first, max(end - 1, first)))
        more_beyond = outside - surer * SURE * doubt > few
        while last <= index < len(edges) - 1 and more_beyond[index]:
            index += 1
        size, kept = float(edges[index]), min(max(1.0 - outside[index] / self.n, rule.kept), 1.0)
        if self.rare is not None:
            least, most = (share * self.unit for share in RARE_CLIPS)
            size, kept = min(max(size, least), most), 1.0
        within = self.longest <= WITHIN * max(size, self.unit)
        return Clip(self.longest, 1.0) if within else Clip(size, kept)

    @cached_property
    def longest(self) -> float:
        """Of a gradient of two classes in the metric, wherever θ and its row are; else `LARGEST`."""
        domain, loss = self.plan.problem.domain, self.plan.problem.loss
        if domain.unit is not None or self.constant is None or not is_binary(loss):
            return LARGEST
        slope = loss.gradient_bound(domain, math.inf) / domain.x_norm
        return slope * self.plan.coding.longest(self.geometry.metric, domain.x_norm)

    @property
    def leads_astray(self) -> bool:
        """Whether a small clip may: curvature varies, leverage may be unseen, or units have several rows."""
        return self.outlying >= 0.5 or self.several >= 0.5 or not self.plan.problem.loss.is_quadratic

    def stride(self, rounds: int, mu: float, most: float = math.inf) -> Stride:
        """How rounds move that have a shift of μ together: Σ damping/(1 − momentum) is τ, and at most `most`.

        Along directions that the curvature does not resolve, noise diffuses: after a way of τ it adds about
        ρ(τ·spread·c/(n̂μ))² to predictions, c in units of the gradients' length, where the records have 1 to
        explain. Hence τ = travel·n̂μ/(spread·√ρ).
        """
        plan, rule = self.plan, self.plan.rule
        shift = mu / self.noise.neighbours.sum_factor
        way = min(rule.travel * self.n * shift / (self.spread * math.sqrt(plan.problem.loss.rank)), most)
        step = rule.step if plan.problem.loss.is_quadratic else self.pace.step
        step *= 1.0 if jump_of(self.shape) is None else CAREFUL
        momentum = 1.0 - step * rounds / way
        return min(step, way / rounds), min(max(momentum, 0.0), rule.momentum)

    def walk(self, theta: FloatArray, clip: Clip, stride: Stride, rounds: int, mu: float) -> Iterator[Round]:
        """Rounds from θ on: the gradient released at each centre, and the centre it leads to."""
        problem, A, (damping, momentum) = self.plan.problem, self.geometry.metric, stride
        model = QuadraticModel(problem, self.curvature(clip) / damping * self.geometry.H)
        last = theta
        for _ in range(rounds):
            centre = theta + momentum * (theta - last)
            total = A @ self.rows.gradient_sum(problem.loss, centre, clip.size)
            gradient = self.noise.gradient(total, clip.size, mu, self.slack(centre, clip), "round")
            if problem.loss.rank < problem.loss.n_outputs:  # true gradients sum to 0 over the classes
                gradient = gradient - gradient.mean(axis=1, keepdims=True)
            pulled = self._pulled_back(gradient)
            last, theta = theta, model.minimize(pulled, centre)
            advance(self.plan.rule.rounds)  # how many there will be follows from κ, which is released
            yield centre, gradient, theta
            if np.vdot(pulled, theta - last) > 0:  # moving uphill: momentum starts anew
                last = theta

    def slack(self, centre: FloatArray, clip: Clip) -> float:
        """What rounding adds to the difference of two gradient sums, in units of the clip (P-9).

        Sums are computed in the given coordinates: in the metric their errors grow by its condition number. A
        record's length in the metric errs by 16(d^{3/2}+1)·2⁻⁵³ of it.
        """
        problem, d = self.plan.problem, self.plan.d
        largest, smallest = self.geometry.stretch
        sums = relative_error(additions_at_most(d) + 2 * d + math.ceil(16.0 * (d**1.5 + 1.0)))
        slopes = slope_slack(problem, d, centre, clip.size, rows=self.most, stretch=largest)
        return 2.0 * self.most * sums * largest / smallest + slopes

    def average(self, walk: Iterable[Round], clip: Clip, rounds: int) -> tuple[Estimate, float]:
        """A last Newton step from the mean centre and the mean gradient, later rounds weighing more."""
        rule = self.plan.rule
        power = rule.weight * (1.0 + self.kappa / rule.large)  # large κ: noise is no reason to average
        weights = np.exp(power * np.log(np.arange(1, rounds + 1) / rounds))
        weights = weights / weights.sum()
        shape = (self.plan.d, self.plan.problem.loss.n_outputs)
        centre, gradient, square = np.zeros(shape), np.zeros(shape), 0.0
        for weight, (at, noisy, _) in zip(weights, walk, strict=True):
            centre += weight * at
            gradient += weight * noisy
            square += weight * self._length2(at)
        H, b, g = self.geometry.H, self.curvature(clip), self._pulled_back(gradient)
        mu = self.shifts.later_round(self.pace)
        scale = gradient_scale(clip.size, mu, self.noise.neighbours)
        local = LocalObjective(H, b, centre, g, scale * float(np.linalg.norm(weights)), self.n, self.kappa)
        rows = self.records / self.geometry.weight
        scatter = math.sqrt(max(square - self._length2(centre), 0.0) * self.spread / rows)
        return Estimate(local.minimize(self.plan.problem), local), scatter

    def _length2(self, theta: FloatArray) -> float:
        """‖θ‖² in the metric, per direction: times Σ‖Ax‖²/n the mean square of margins."""
        return float(np.vdot(theta, self.geometry.H @ theta)) / self.plan.d

    def curvature(self, clip: Clip) -> float:
        """β times the fraction of records that still move when θ does."""
        problem = self.plan.problem
        largest = self.steep * self.shape.curvature(problem.domain, problem.radius(self.plan.d))
        if self.rare is not None:
            largest = min(largest, self.rare.curvature)
        elif self.counts and self.constant is not None:
            largest = min(largest, ROOM * self.constant.curvature)
        return largest * clip.kept

    @property
    def counts(self) -> bool:
        """Whether counts are walked from their mean, whose curvature is known there."""
        return self.warm and is_count(self.plan.problem.loss)

    def _pulled_back(self, gradient: FloatArray) -> FloatArray:
        """A⁻¹ g: from the metric's coordinates to those of θ."""
        return np.asarray(self.geometry.H @ (self.geometry.metric.T @ gradient))


@dataclass(frozen=True)
class Clip:
    """A clip of gradient lengths and the fraction of records that it is believed to leave alone."""

    size: float
    kept: float
