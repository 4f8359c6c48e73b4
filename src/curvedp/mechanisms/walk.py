"""Noisy proximal Newton rounds in a fixed metric: the walk of the recentered mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erf

from curvedp.arrays import FloatArray
from curvedp.losses import spread_targets
from curvedp.mechanisms.base import Estimate
from curvedp.mechanisms.constant import Constant, Rare, is_binary, is_warm, started_at
from curvedp.mechanisms.geometry import Geometry
from curvedp.mechanisms.noise import GaussianNoise, gradient_scale
from curvedp.mechanisms.rule import Rule, Walk
from curvedp.problem import Problem
from curvedp.progress import advance
from curvedp.released.quadratic_model import LocalObjective, QuadraticModel
from curvedp.rows.base import Rows
from curvedp.rows.rounding import additions_at_most, relative_error, slope_slack

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan


LOOK_EDGES = 13  # of a histogram of lengths
_MISFIT = 0.1  # of all records in any cell: lengths are not half-normal
_OCTAVES = 8.0  # that the edges span
FARTHER = (2.0, 4.0)  # edges of the clip's histogram beyond its widest, in units of that …
SURE = 2.0  # … taken if more records than may be clipped lie beyond by as many deviations
Round = tuple[
    FloatArray, FloatArray, FloatArray
]  # a centre, the noisy gradient there in the metric, the next
Stride = tuple[float, float]  # damping of the Newton steps, and the fraction of the last move that is added
RARE_CLIPS = (0.7, 1.25)  # of the length of a typical record: clips that leave the slopes of a rare class


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
    problem, shifts, reach = plan.problem, plan.shifts, plan.reach(geometry)
    guess = math.sqrt(geometry.resolved / n)
    edges = look_edges(plan.rule.widest_clip * guess)
    counts = noise.counts(rows.norm_histogram(edges), shifts.spread, "spread")
    mass, deviation = max(plan.mass(counts, n), 1.0), noise.count_scale(shifts.spread)
    length = typical_length(edges, counts, deviation, mass, guess, octaves=1.0)
    spread = min(n * length**2, float(plan.d))
    guess = _slope(problem) * math.sqrt(geometry.weight * spread / n)
    edges = look_edges(plan.rule.widest_clip * guess, reach)
    start, warm = np.zeros((plan.d, problem.loss.n_outputs)), False
    if constant is not None and problem.loss.is_quadratic and is_warm(plan, constant):
        start, warm = started_at(plan, geometry, constant), True
    start = problem.constraint.project(start)
    counts = noise.counts(rows.gradient_norm_histogram(problem.loss, start, edges), shifts.scale, "scale")
    octaves = 2.0 + 0.5 * math.log2(reach)
    typical = typical_length(edges, counts, noise.count_scale(shifts.scale), n, guess, octaves)
    return Rounds(plan, rows, noise, geometry, n, spread, typical, walk_shifts, constant, start, warm)


def _slope(problem: Problem) -> float:
    """Root mean square of φ'(0; y), targets being uniform within their bounds."""
    targets = spread_targets(problem.loss, problem.domain)
    slopes = problem.loss.gradient(np.zeros((len(targets), problem.loss.n_outputs)), targets)
    return math.sqrt(float(np.mean(np.sum(slopes**2, axis=1))))


@dataclass(frozen=True, eq=False)
class Rounds:
    """Noisy proximal Newton rounds in a fixed metric."""

    plan: RecenteredPlan
    rows: Rows  # measured in the metric
    noise: GaussianNoise
    geometry: Geometry
    n: float
    spread: float  # about Σ‖Ax‖²
    typical: float  # length of a gradient at the start
    shifts: Walk
    constant: Constant | None
    looked: FloatArray  # θ there: 0, or where a mean far from 0 is predicted
    warm: bool  # whether it is that

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

    def finished(self, theta: FloatArray) -> tuple[Clip, Estimate, float]:
        """First rounds from θ on, then the later ones with a clip of their own, and their average.

        And how far the margins of a typical record at the later centres scatter.
        """
        plan, pace, shifts = self.plan, self.pace, self.shifts
        first = self.stride(pace.first_rounds, shifts.first, plan.rule.first_travel)
        for _, _, moved in self.walk(
            theta, self.first_clip, first, pace.first_rounds, shifts.first_round(pace)
        ):
            theta = moved
        clip = self.choose_clip(theta)
        later = self.stride(pace.later, shifts.later)
        walk = self.walk(theta, clip, later, pace.later, shifts.later_round(pace))
        return clip, *self.average(walk, clip, pace.later)

    @property
    def first_clip(self) -> Clip:
        rule = self.plan.rule
        if self.rare is not None:
            return Clip(max(rule.first_clip * self.typical, RARE_CLIPS[0] * self.unit), 1.0)
        return Clip(rule.first_clip * self.typical * (2.0 if self.warm else 1.0), rule.first_kept)

    def choose_clip(self, theta: FloatArray) -> Clip:
        """The clip beyond which about `clipped`·unknowns/μ records lie, from a private histogram at θ.

        In doubt the smaller one: too wide a clip costs its square in noise, and all records pay. Two more
        edges are for tails that are surely there.
        """
        plan, rule = self.plan, self.plan.rule
        near = plan.edges(rule.widest_clip * self.typical)
        edges = np.append(near, near[-1] * np.array(FARTHER))
        scale = self.noise.count_scale(plan.shifts.clip)
        counts = self.rows.gradient_norm_histogram(plan.problem.loss, theta, edges)
        outside = records_beyond(self.noise.counts(counts, plan.shifts.clip, "clip"))
        if scale * math.sqrt(len(edges) / 2.0) > self.n / 3.0:  # the histogram is noise
            return self.first_clip
        few = self.few if self.rare is None else min(self.few, self.rare.most)
        doubt = scale * np.sqrt(np.arange(len(edges), 0, -1))
        few_enough = (outside - rule.doubt * doubt <= few) & (outside <= (1.0 - rule.kept) * self.n)
        last = len(near) - 1
        index = int(np.argmax(few_enough[: last + 1])) if few_enough[: last + 1].any() else last
        if outside[last] - SURE * doubt[last] > few:
            index = last + 1 + int(outside[last + 1] - SURE * doubt[last + 1] > few)
        kept = min(max(1.0 - outside[index] / self.n, rule.kept), 1.0)
        if self.rare is None:
            return Clip(float(edges[index]), kept)
        least, most = (share * self.unit for share in RARE_CLIPS)
        return Clip(min(max(float(edges[index]), least), most), 1.0)

    def stride(self, rounds: int, mu: float, most: float = math.inf) -> Stride:
        """How rounds move that have a shift of μ together: Σ damping/(1 − momentum) is τ, and at most `most`.

        Along directions that the curvature does not resolve, noise diffuses: after a way of τ it adds about
        ρ(τ·spread·c/(n̂μ))² to predictions, c in units of the gradients' length, where the records have 1 to
        explain. Hence τ = travel·n̂μ/(spread·√ρ).
        """
        plan, rule = self.plan, self.plan.rule
        shift = mu / self.noise.neighbours.sum_factor
        way = min(rule.travel * self.n * shift / (self.spread * math.sqrt(plan.problem.loss.rank)), most)
        momentum = 1.0 - self.pace.step * rounds / way
        return min(self.pace.step, way / rounds), min(max(momentum, 0.0), rule.momentum)

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
        scatter = math.sqrt(max(square - self._length2(centre), 0.0) * self.spread / self.n)
        return Estimate(local.minimize(self.plan.problem), local), scatter

    def _length2(self, theta: FloatArray) -> float:
        """‖θ‖² in the metric, per direction: times Σ‖Ax‖²/n the mean square of margins."""
        return float(np.vdot(theta, self.geometry.H @ theta)) / self.plan.d

    def curvature(self, clip: Clip) -> float:
        """β times the fraction of records that still move when θ does."""
        problem = self.plan.problem
        largest = problem.loss.curvature(problem.domain, problem.radius(self.plan.d))
        return (largest if self.rare is None else min(largest, self.rare.curvature)) * clip.kept

    def _pulled_back(self, gradient: FloatArray) -> FloatArray:
        """A⁻¹ g: from the metric's coordinates to those of θ."""
        return np.asarray(self.geometry.H @ (self.geometry.metric.T @ gradient))


@dataclass(frozen=True)
class Clip:
    """A clip of gradient lengths and the fraction of records that it is believed to leave alone."""

    size: float
    kept: float


def records_beyond(counts: FloatArray) -> FloatArray:
    """How many records lie beyond each edge, from the counts of all cells; never negative."""
    return np.maximum(np.cumsum(counts[::-1])[::-1][1:], 0.0)


def edges_beyond(edges: FloatArray, counts: FloatArray, deviation: float, few: float) -> FloatArray:
    """The edges beyond which at most `few` records surely lie, from noisy counts of this deviation."""
    slack = deviation * np.sqrt(np.arange(len(edges), 0, -1))
    return np.asarray(edges[records_beyond(counts) + slack <= few])


def look_edges(largest: float, reach: float = 1.0) -> FloatArray:
    """Edges from reach·`largest` down over eight octaves, and as many more as `reach` has."""
    octaves = _OCTAVES + math.log2(reach)
    return np.asarray(largest * reach * 2.0 ** (-octaves * np.linspace(1.0, 0.0, LOOK_EDGES)))


def typical_length(
    edges: FloatArray, counts: FloatArray, deviation: float, n: float, guess: float, octaves: float
) -> float:
    """A posterior mean, of the logarithm, of the root mean square s of n lengths.

    A cell is believed to hold n·P(cell | |N(0, s²)|), up to the noise and a tenth of n; log₂ s to be
    log₂ guess up to `octaves`, and s to lie between half of the smallest and half of the largest edge.
    """
    span = math.log2(edges[-1] / edges[0])
    s = edges[-1] * 2.0 ** -np.arange(1.0, span + 1.125, 0.25)
    below = erf(edges / (math.sqrt(2.0) * s[:, None]))
    cells = np.diff(below, axis=1, prepend=0.0, append=1.0)
    error = math.hypot(deviation, _MISFIT * n)
    fit = -0.5 * np.sum((counts - n * cells) ** 2, axis=1) / error**2
    fit -= 0.5 * (np.log2(s / guess) / octaves) ** 2
    posterior = np.exp(fit - fit.max())
    return float(2.0 ** (posterior @ np.log2(s) / posterior.sum()))
