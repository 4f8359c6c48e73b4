"""Noisy proximal Newton rounds in a fixed metric, and what intervals need at their end (P-9), (P-10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.special import erf

from curvedp.arrays import BoolArray, FloatArray
from curvedp.data.rows.base import Rows, additions_at_most, relative_error, slope_slack
from curvedp.errors import advance
from curvedp.mechanisms.base import Estimate, GaussianNoise, gradient_scale, gram_scale
from curvedp.mechanisms.constant import Constant, Rare, is_binary, is_warm, started_at
from curvedp.mechanisms.geometry import Geometry, gram_slack
from curvedp.mechanisms.rule import Rule, Walk
from curvedp.postprocess.inference import BEYOND, HIDDEN, Inference, Tail
from curvedp.postprocess.noise import LocalObjective, QuadraticModel
from curvedp.problems import Problem
from curvedp.problems.losses.several import spread_targets

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
    farther = leverage_beyond(plan, geometry, n, edges[-1], float(counts[-1]), deviation)
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
    return Rounds(
        plan, rows, noise, geometry, n, spread, farther, typical, walk_shifts, constant, start, warm
    )


def leverage_beyond(
    plan: RecenteredPlan, geometry: Geometry, n: float, edge: float, count: float, deviation: float
) -> float:
    """Σ‖Ax‖²/d that units longer than `edge` may have, of which `count` were seen with noise.

    Their lengths are taken to spread evenly, on a logarithmic scale, up to the longest that the bounds allow;
    0 where that is at most twice the edge, or slopes are bounded, so that a far record pulls no more.
    """
    longest = plan.problem.domain.x_norm * geometry.stretch[0]
    if longest <= 2.0 * edge or not plan.problem.loss.is_quadratic:
        return 0.0
    mean = (longest**2 - edge**2) / (2.0 * math.log(longest / edge))
    return (max(count, 0.0) + HIDDEN * deviation) * mean / plan.d


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
    farther: float  # of it by records beyond the edges of its look, as far as noise leaves it open
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

    @cached_property
    def records(self) -> float:
        """What all rows weigh: where a unit is a person, as many as the constant column says, or one each."""
        mass, constant = self.n * self.geometry.weight, self.plan.coding.constant
        if self.plan.problem.domain.unit is None or constant is None:
            return mass
        return max(float(self.geometry.look.sums(constant)[0][constant]), mass)

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
        rows = self.records / self.geometry.weight
        scatter = math.sqrt(max(square - self._length2(centre), 0.0) * self.spread / rows)
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


# At the end of a walk: what intervals need beside it (P-10).
#
# Four more answers at the walk's estimate: the curvature of the loss, a histogram of gradient lengths, the
# covariance of gradients, and where those point that the clip shortens. `released.inference` turns them and
# the walk's own centres and gradients into an estimate and its intervals, at no further cost.


TYPICAL_CURVATURE = 2.0  # of the loss, in units of that at the constant answer: not more is looked at
EMPTY = 1.0  # deviations: a level of fewer records may be empty, and is left out of the estimate
EDGES = 13  # of the histogram of gradient lengths, a factor √2 apart, from the walk's clip/√2 on
BREAD_GROWTH = 0.05  # of m with κ
BREAD_BOUNDS = (2.0, 4.0)  # of a record's curvature, in units of β·d/n̂: as many as keep its noise small
_STEP = 1e-4  # of a margin, for a derivative
_nodes, _weights = np.polynomial.hermite_e.hermegauss(40)
_weights = _weights / _weights.sum()


def ended(
    plan: RecenteredPlan, rounds: Rounds, clip: Clip, estimate: Estimate, scatter: float, seen: BoolArray
) -> Estimate:
    """The estimate that the walk and four looks at its end give."""
    local, A = estimate.local, rounds.geometry.metric
    assert local is not None
    theta, noise, shifts, loss = estimate.theta, rounds.noise, plan.shifts, plan.problem.loss
    slack = rounds.slack(theta, clip)
    beta = loss.curvature(plan.problem.domain, plan.problem.radius(plan.d))
    guess = beta * clip.kept
    if rounds.constant is not None:  # most records have a smaller one
        guess = min(guess, rounds.constant.curvature)
        beta = min(beta, TYPICAL_CURVATURE * rounds.constant.curvature)

    kappa = rounds.kappa * shifts.bread / plan.mu
    m = min(max(BREAD_GROWTH * kappa, BREAD_BOUNDS[0]), BREAD_BOUNDS[1])
    bound = m * beta * plan.d / rounds.n
    rounding = gram_slack(A, rounds.most)
    if plan.problem.domain.unit is not None:  # of several rows: entries add up to the trace
        rounding *= math.sqrt(plan.d)
    total = A @ rounds.rows.curvature_sum(loss, theta, bound, clip.size) @ A.T
    # u falls by as much as a gradient grows, in units of the clip
    bread = noise.gram(total, math.sqrt(bound), shifts.bread, rounding + slack, "bread")
    bread_scale = gram_scale(bound, shifts.bread, noise.neighbours, rounding + slack)

    edges = clip.size * math.sqrt(2.0) ** np.arange(-1.0, EDGES - 1.0)
    counts = rounds.rows.gradient_norm_histogram(loss, theta, edges)
    counts = noise.counts(counts, shifts.tail, "tail")

    total = A @ rounds.rows.score_sum(loss, theta, clip.size) @ A.T
    meat = noise.gram(total, clip.size, shifts.meat, rounding, "meat")
    meat_scale = gram_scale(clip.size**2, shifts.meat, noise.neighbours, rounding)

    wider = clip.size * (1.0 + BEYOND)
    total = rounds.rows.gradient_sum(loss, theta, wider) - rounds.rows.gradient_sum(loss, theta, clip.size)
    beyond_slack = (2.0 + BEYOND) / BEYOND * slack
    beyond = noise.gradient(A @ total / (BEYOND * clip.size), 1.0, shifts.beyond, beyond_slack, "beyond")
    beyond_scale = gradient_scale(1.0, shifts.beyond, noise.neighbours, beyond_slack)

    empty = _empty_levels(plan, rounds)
    Q, basis, left_out, look, spread = _inside(plan, rounds.geometry, np.flatnonzero(~seen), empty)
    levels, shares = _level_shares(plan, rounds)
    H = rounds.geometry.H
    walked = (plan.coding.contrasts(H, empty) @ theta[:, 0])[empty]
    centre = Q.T @ (A @ (H @ local.centre[:, 0]))
    margins = math.sqrt(max(float(np.maximum(look, 0.0) @ centre**2), 0.0) / rounds.records)
    inference = Inference(
        basis=basis,
        left_out=left_out,
        fixed=left_out[:, : len(empty)] @ walked,
        levels=levels,
        shares=shares,
        look=look,
        look_spread=spread,
        look_scale=rounds.geometry.look.scale,
        bread=Q.T @ bread @ Q,
        bread_scale=bread_scale,
        beta=beta,
        guess=guess,
        stiffness=local.curvature,
        centre=centre,
        gradient=Q.T @ (A @ local.gradient[:, 0]),
        noise=local.noise,
        tail=Tail(edges, counts, noise.count_scale(shifts.tail)),
        beyond=Q.T @ beyond[:, 0],
        beyond_scale=beyond_scale,
        meat=Q.T @ meat @ Q,
        meat_scale=meat_scale,
        count=rounds.n,
        count_scale=0.0 if noise.neighbours.count_is_public else 1.0 / shifts.count,
        several=rounds.several,
        farther=rounds.farther,
        common=_common(rounds, Q),
        kappa=rounds.kappa,
        inflation=inflation(lambda s: loss.inverse_link(s.reshape(-1, 1)).reshape(s.shape), margins, scatter),
    )
    return Estimate(inference.theta, local, inference=inference)


def _common(rounds: Rounds, Q: FloatArray) -> FloatArray:
    """The direction of the mean row's gradient, as long as `several`; 0 where no column is constant."""
    H, at = rounds.geometry.H, rounds.plan.coding.constant
    if at is None:
        return np.zeros(Q.shape[1])
    direction = Q.T @ (rounds.geometry.metric @ H[:, at])
    return np.asarray(rounds.several * direction / max(float(np.linalg.norm(direction)), 1e-300))


def _level_shares(plan: RecenteredPlan, rounds: Rounds) -> tuple[FloatArray, FloatArray]:
    """Deviations (d, categories) of the noise in the shares of levels, and the shares (d,)."""
    coding, noise, shares = plan.coding, np.zeros((plan.d, len(plan.coding.blocks))), np.zeros(plan.d)
    if coding.constant is None:
        return noise, shares
    sums, deviation = rounds.geometry.look.sums(coding.constant)
    for k, block in enumerate(coding.blocks):
        index = list(block)
        noise[index, k] = deviation[index] / rounds.records
        shares[index] = np.clip(sums[index] / rounds.records + 1.0 / len(block), 0.0, 1.0)
    return noise, shares


def _empty_levels(plan: RecenteredPlan, rounds: Rounds) -> list[int]:
    """Columns of levels that may have no record: released sums of about 0."""
    coding = plan.coding
    if coding.constant is None:
        return []
    sums, deviation = rounds.geometry.look.sums(coding.constant)
    counts = [(j, sums[j] + rounds.records / len(block)) for block in coding.blocks for j in block]
    return [j for j, count in counts if count <= EMPTY * deviation[j]]


def _inside(
    plan: RecenteredPlan, geometry: Geometry, unseen: NDArray[np.intp], empty: list[int]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """(Q, basis, left out, diagonal, TTᵀ): coordinates z' = Qᵀz of the r directions that records have.

    There θ = basis·w. No record has a part along the sum of a category's columns, nor, but for those of an
    empty level, along e_l + e_c/K: x_l = −x_c/K; nor along e_j − m e_c of a column that is not seen, whose
    mean is m. Coefficients of the latter two are left out.
    Q has orthonormal columns, so that noise which was isotropic stays so, and S is diagonal.
    """
    A, coding, unit = geometry.metric, plan.coding, np.eye(plan.d)
    size = {j: len(block) for block in coding.blocks for j in block}
    sums = [unit[list(block)].sum(axis=0) for block in coding.blocks]
    flat = {j: unit[j] + unit[coding.constant] / size[j] for j in empty}
    flat |= {int(j): unit[j] - geometry.look.means(coding.constant)[j] * plan.constant_unit for j in unseen}
    left_out = np.array(list(flat.values())).reshape(-1, plan.d)
    absent = np.vstack([np.array(sums).reshape(-1, plan.d), left_out])
    N = null_space(absent) if len(absent) else unit
    Q = np.linalg.qr(A @ N)[0]
    S, spread = geometry.look.seen_in(A)
    values, V = np.linalg.eigh(Q.T @ S @ Q)
    Q = Q @ V
    basis, C = N @ (N.T @ A.T @ Q), coding.contrasts(geometry.H, empty)
    for j, direction in flat.items():  # the same for every record: what such a column adds is constant
        basis -= np.outer(direction, basis[j])
    return Q, C @ basis, C @ left_out.T, values, Q.T @ spread @ Q


def inflation(mean: Callable[[FloatArray], FloatArray], spread: float, noise: float) -> float:
    """q: E[G(w* + ξ)] ≈ −q·J w*, so that a Newton step from a centre with noise ξ ends at (1 + q)·w*.

    For margins m ~ N(0, spread²) and noise ξ ~ N(0, noise²) of them, q = −E[(μ(m+ξ) − μ(m))·m]/E[μ'(m)·m²],
    μ the mean response: 0 for a linear one, about noise²/4 for the logistic one.
    """
    m = spread * _nodes
    smeared = mean(m[:, None] + noise * _nodes[None, :]) @ _weights
    slope = (mean(m + _STEP) - mean(m - _STEP)) / (2.0 * _STEP)
    curved = float(_weights @ (slope * m**2))
    return -float(_weights @ ((smeared - mean(m)) * m)) / max(curved, 1e-300)
