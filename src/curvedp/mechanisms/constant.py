"""The constant answer, and how far a fit is to be believed beyond it: three small releases (P-9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import SUM_SLACK, Rows, slope_slack
from curvedp.data.rows.blocks import Block
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import GaussianNoise, gradient_scale
from curvedp.mechanisms.geometry import Geometry
from curvedp.postprocess.noise import is_free
from curvedp.privacy.gaussian import brentq
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Jump, Loss, jump_of
from curvedp.problems.losses.several import clipped_targets, offset_bound

if TYPE_CHECKING:
    from curvedp.mechanisms.recentered import RecenteredPlan
    from curvedp.mechanisms.walk import Clip, Rounds

TARGET_EDGES = 63  # of the histogram from which the constant answer of a check loss is read
_SHARP = 1e-6  # of a cell: what a check loss is smoothed over, where targets are counted
_MARGINS = (-20.0, 20.0)  # of a constant answer, at most
_WARM = 0.3  # a mean response this far from 0, in units of its bound, is started from …
_SURE = 2.0  # … if it is as many deviations from it
_SEEN = 3.0  # deviations of a mean count that is seen
_RARE = 0.25  # share of a class below which it is asked whether a clip would swallow it
_LOST = 0.3  # share of the class that may be clipped
_BELIEF = (0.6, 0.4)  # prior deviation of a belief: times √ of its mean, and at least
_CURVED = 0.7  # weight of the second component of the evidence
_LEAST_CURVATURE = 0.25  # of a loss, for the margins that evidence is measured in: that of a logistic one
_EVIDENCE = 2.0  # length of a record's evidence at most
_HIDDEN = 0.2  # deviations of noise by which predictions are thought to scatter more than S shows
_NARROWEST = 1e-3  # scatter of predictions, in units of that of targets, for which evidence is looked for


@dataclass(frozen=True, eq=False)
class Constant:
    """c₀: the margins that predict the mean response of all records, shape (K,), as released."""

    margins: FloatArray
    mean: FloatArray  # response
    deviation: float  # of the mean response, by noise
    curvature: float  # ‖φ''‖ there

    @classmethod
    def of(cls, plan: RecenteredPlan, rows: Rows, noise: GaussianNoise, mass: float, mu: float) -> Constant:
        """From Σ φ'(0; y), released: the mean response is that at 0 less this sum over what records weigh.

        Of a check loss the quantile of all targets, from a histogram of them.
        """
        loss, domain = plan.problem.loss, plan.problem.domain
        if offset_bound(loss) > 0.0:
            return _rate(plan, rows, noise, mass, mu)
        if (jump := jump_of(loss)) is not None:
            return _quantile(plan, jump, rows, noise, mu)
        bound = loss.center_bound(domain, 0.0) / domain.x_norm
        total = _slope_sum(plan, rows, np.zeros((plan.d, loss.n_outputs)), bound)
        noisy = noise.gradient(total, bound, mu, name="constant")
        deviation = gradient_scale(bound, mu, noise.neighbours) / mass
        mean = loss.inverse_link(np.zeros((1, loss.n_outputs)))[0] - noisy / mass
        return _at(loss, domain, mean, deviation)

    @property
    def share(self) -> float:
        """q ≤ ½: the share of the rarer of two classes."""
        return float(min(self.mean[0], 1.0 - self.mean[0]))

    def theta(self, plan: RecenteredPlan) -> FloatArray:
        """θ of shape (d, K) that predicts the constant answer for every record."""
        theta = np.zeros((plan.d, len(self.margins)))
        theta[plan.coding.constant] = self.margins
        return theta

    def is_warm(self, plan: RecenteredPlan) -> bool:
        """Whether the mean response of a linear one is surely far from 0; of counts, whether it is seen."""
        if is_count(plan.problem.loss):
            return float(self.mean[0]) >= _SEEN * self.deviation
        if not plan.problem.loss.is_quadratic:
            return False
        size = float(np.linalg.norm(self.mean))
        return size >= _WARM * plan.problem.domain.y_bound and size >= _SURE * self.deviation

    def recentred(self, rounds: Rounds, rows: Rows, mu: float) -> Constant:
        """A second look at the mean of a squared loss, of residuals from the first, which can be clipped."""
        noise, plan, problem = rounds.noise, rounds.plan, rounds.plan.problem
        clip = min(2.0 * problem.domain.y_bound, 2.0 * self.deviation + 2.0 * rounds.slope)
        theta = self.theta(plan)
        total = _slope_sum(plan, rows, theta, clip)
        slack = SUM_SLACK + slope_slack(problem, plan.d, theta, clip, rows=rounds.most, stretch=1.0)
        noisy = noise.gradient(total, clip, mu, slack, name="centre")
        mass = rounds.n * rounds.geometry.weight
        mean = np.clip(self.mean - noisy / mass, -problem.domain.y_bound, problem.domain.y_bound)
        return Constant(mean, mean, gradient_scale(clip, mu, noise.neighbours, slack) / mass, math.inf)


def has_constant(plan: RecenteredPlan) -> bool:
    """Whether there is a column for it, a response to compare with, and no constraint that it may break."""
    problem = plan.problem
    if plan.coding.constant is None or not is_free(problem):
        return False
    if offset_bound(problem.loss) > 0.0 and not is_count(problem.loss):
        return False
    try:
        problem.loss.inverse_link(np.zeros((1, problem.loss.n_outputs)))
    except NotCovered:
        return False
    return True


def _rate(plan: RecenteredPlan, rows: Rows, noise: GaussianNoise, mass: float, mu: float) -> Constant:
    """Of counts with a known part o of the margin, |o| ≤ b: c₀ = log(Σy/Σe^{o−b}) − b, the mean φ'' is ȳ.

    Released are both sums; e^{o−b} = φ''(o − b) is at most 1.
    """
    loss, lowest = plan.problem.loss, -offset_bound(plan.problem.loss)
    bound = math.hypot(plan.problem.domain.y_bound, 1.0)
    total = rows.vector_sum(partial(_counted, loss=loss, lowest=lowest), 2, bound)
    noisy = noise.gradient(total, bound, mu, name="constant")
    deviation = gradient_scale(bound, mu, noise.neighbours) / mass
    counted, exposed = (max(float(part), deviation) for part in noisy / mass)
    rate = counted / exposed
    margin = float(np.clip(math.log(rate) + lowest, *_MARGINS))
    return Constant(np.array([margin]), np.array([rate]), deviation / exposed, counted)


def _counted(block: Block, y: FloatArray, domain: Domain, *, loss: Loss, lowest: float) -> FloatArray:
    """(v·y, v·e^{o+lowest}) of counts, v their weights, shape (n, 2)."""
    targets, margins = clipped_targets(loss, y, domain), np.full((len(y), 1), lowest)
    expected = loss.hessian(margins, targets)[:, 0, 0]
    return np.column_stack([expected - loss.gradient(margins, targets)[:, 0], expected])


@dataclass(frozen=True, eq=False)
class Crossings:
    """φ'(s + t_{j+1}; y) − φ'(s + t_j; y) of a check loss, hardly smoothed: 1 in the cell of y − s (P-11).

    A weight in place of 1, and 0 for a record without a target, whose constant column is 0.
    """

    loss: Loss
    theta: FloatArray
    at: FloatArray  # t, between −∞ and ∞
    constant: int | None

    def __call__(self, block: Block, y: FloatArray, domain: Domain) -> FloatArray:
        sharp, s = self.loss.over(_SHARP * float(np.diff(self.at).min())), block.margins(self.theta)
        targets, unit = clipped_targets(sharp, y, domain), np.eye(len(self.theta))
        slopes = [sharp.gradient(s + t, targets) for t in (-np.inf, *self.at, np.inf)]
        there = 1.0 if self.constant is None else block.margins(unit[:, [self.constant]])
        return np.asarray(np.diff(np.hstack(slopes), axis=1) * there)

    def below(self, rows: Rows, noisy: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Shares of y − θᵀx below each t, made increasing, from noisy counts."""
        found = np.cumsum(noisy(rows.vector_sum(self, len(self.at) + 1, 1.0)))
        return np.clip(np.maximum.accumulate(found[:-1] / max(float(found[-1]), 1.0)), 0.0, 1.0)


def _quantile(plan: RecenteredPlan, jump: Jump, rows: Rows, noise: GaussianNoise, mu: float) -> Constant:
    """Of all targets; `curvature` is their density in the narrowest band around it that holds enough."""
    at = plan.problem.domain.y_bound * np.linspace(-1.0, 1.0, TARGET_EDGES)
    noisy = partial(noise.counts, mu=mu, name="constant", slack=SUM_SLACK)
    below = Crossings(plan.problem.loss, np.zeros((plan.d, 1)), at, plan.coding.constant).below(rows, noisy)
    margin, widths = np.interp([jump.quantile], below, at), at[1:] - at[0]
    shares = np.interp(margin + widths, at, below) - np.interp(margin - widths, at, below)
    width = float(widths[np.argmax(shares >= jump.balance)])
    return Constant(margin, margin, noise.count_scale(mu), 0.5 * jump.balance / width)


def _slope_sum(plan: RecenteredPlan, rows: Rows, theta: FloatArray, clip: float) -> FloatArray:
    """Σ clip_c(φ'(θᵀx; y)), shape (K,): the constant column's part of a gradient, measured alone.

    Of a person it is the mean over its rows (U-2).
    """
    loss = plan.problem.loss
    if plan.problem.domain.unit is not None:
        return rows.vector_sum(partial(_slopes, loss=loss, theta=theta), loss.n_outputs, clip)
    alone = np.zeros((1, plan.d))
    alone[0, plan.coding.constant] = 1.0
    return rows.in_metric(alone).gradient_sum(loss, theta, clip)[plan.coding.constant]


def _slopes(block: Block, y: FloatArray, domain: Domain, *, loss: Loss, theta: FloatArray) -> FloatArray:
    """φ'(θᵀx; y), shape (n, K)."""
    return loss.gradient(block.margins(theta), clipped_targets(loss, y, domain))


def _at(loss: Loss, domain: Domain, mean: FloatArray, deviation: float) -> Constant:
    """The constant answer of a mean response, which is moved to where there is one."""
    if loss.is_quadratic or loss.inverse_link(np.full((1, 1), 3.0)).item(0) == 3.0:  # linear
        mean = np.clip(mean, -domain.y_bound, domain.y_bound)
        return Constant(mean, mean, deviation, math.inf)
    if loss.n_outputs > 1:
        shares = np.maximum(mean, max(deviation, 1e-9))
        shares = shares / shares.sum()
        return Constant(np.log(shares) - np.log(shares).mean(), shares, deviation, math.inf)
    ends = loss.inverse_link(np.array(_MARGINS)[:, None])[:, 0]
    least = min(max(deviation, 1e-9), 0.25 * (min(ends[1], 1e6) - ends[0]))
    aim = float(np.clip(mean[0], ends[0] + least, ends[1] - least if ends[1] <= 1.0 else ends[1]))
    middle = brentq(lambda s: loss.inverse_link(np.array([[s]])).item() - aim, *_MARGINS, 1e-15, 1e-15)
    step = 1e-4  # of a margin, for a derivative
    curvature = float(np.ptp(loss.inverse_link(np.array([[middle - step], [middle + step]])))) / (2.0 * step)
    return Constant(np.array([middle]), np.array([aim]), deviation, curvature)


@dataclass(frozen=True, eq=False)
class Evidence:
    """v = (e·t, 0.7·tᵀ(φ''/φ̄)t) of a record, e = −φ'/s and t = (margins − c₀)/u, both kept within ±2."""

    loss: Loss
    theta: FloatArray
    constant: FloatArray
    slope: float  # s
    margin: float  # u
    curvature: float  # φ̄

    def __call__(self, block: Block, y: FloatArray, domain: Domain) -> FloatArray:
        targets, margins = clipped_targets(self.loss, y, domain), block.margins(self.theta)
        e = np.clip(-self.loss.gradient(margins, targets) / self.slope, -2.0, 2.0)
        t = np.clip((margins - self.constant) / self.margin, -2.0, 2.0)
        curved = np.einsum("nk,nkl,nl->n", t, self.loss.hessian(margins, targets), t)
        return np.column_stack([np.sum(e * t, axis=1), _CURVED / self.curvature * curved])


def believed(
    rounds: Rounds, clip: Clip, rows: Rows, theta: FloatArray, constant: Constant, mu: float
) -> float:
    """β ∈ [0, 1]: how far the slopes of θ are to be believed, from what records say of its predictions.

    β̂ = 1 + Σ(−φ't)/Σφ''t² is the factor that fits best; it is weighed against a prior that grows with κ.
    Predictions are measured by their own scatter, as S has it: where they move little, targets would hide it.
    """
    loss, noise, plan, problem = rounds.shape, rounds.noise, rounds.plan, rounds.plan.problem
    kappa = rounds.kappa / noise.neighbours.sum_factor
    prior = 0.5 + 0.5 * kappa**2 / (kappa**2 + 9.0)
    if is_binary(loss):
        kappa *= constant.share * (1.0 - constant.share)
        if kappa >= plan.rule.sure_class:
            return 1.0
        prior = kappa**2 / (kappa**2 + 1.0)
    beta = loss.curvature(problem.domain, problem.radius(plan.d))
    slope = max(rounds.slope, 0.5 * clip.size / rounds.unit)  # what the walk did not clip counts whole
    typical = min(beta, max(constant.curvature, _LEAST_CURVATURE))  # β may be that of margins nobody has
    squares, hidden = rounds.geometry.squares(theta - constant.theta(plan))
    mass = rounds.n * rounds.geometry.weight * loss.rank
    scatter = math.sqrt((max(squares, 0.0) + _HIDDEN * hidden) / mass)
    margin = min(max(scatter, _NARROWEST * (widest := slope / typical)), widest)
    evidence = Evidence(loss, theta, constant.margins, slope, margin, typical)
    total = rows.vector_sum(evidence, 2, _EVIDENCE)
    reach = float(np.linalg.norm(theta))
    slack = SUM_SLACK + slope_slack(problem, plan.d, theta, _EVIDENCE * slope, rows=rounds.most, stretch=1.0)
    slack += 8.0 * (plan.d + 16) * rounds.most * 2.0**-53 * problem.domain.x_norm * reach / margin
    seen = noise.gradient(total, _EVIDENCE, mu, slack, "evidence")
    deviation = gradient_scale(_EVIDENCE, mu, noise.neighbours, slack)
    size = margin / widest * max(float(seen[1]), deviation) / _CURVED
    best, doubt = 1.0 + float(seen[0]) / size, deviation / size
    variance = max(_BELIEF[0] ** 2 * prior, _BELIEF[1] ** 2)
    return float(np.clip(prior + variance / (variance + doubt**2) * (best - prior), 0.0, 1.0))


def started_at(plan: RecenteredPlan, geometry: Geometry, constant: Constant) -> FloatArray:
    """θ, the shortest in the metric that gives the mean record the constant answer."""
    H, at = geometry.H, plan.coding.constant
    mean = H[:, at] / H[at, at]
    shortest = np.linalg.solve(H, mean)
    shortest = shortest / float(mean @ shortest)
    return np.outer(shortest, constant.margins)


@dataclass(frozen=True)
class Rare:
    """Two classes, one of them so rare that the rule's clip might swallow it."""

    share: float  # q
    most: float  # records that may be clipped

    @classmethod
    def of(cls, constant: Constant, n: float, few: float, doubt: float) -> Rare | None:
        q = constant.share
        return cls(q, _LOST * q * n) if q < _RARE and few + doubt > _LOST * q * n else None

    @property
    def curvature(self) -> float:
        """Of the logistic loss where most records are, with room for others: 12q(1−q), at most ¼."""
        return min(0.25, 12.0 * self.share * (1.0 - self.share))


def is_count(loss: Loss) -> bool:
    """Whether the curvature of the loss is its mean response, which nothing public tells from above."""
    return loss.name == "poisson"


def is_binary(loss: Loss) -> bool:
    """Whether the response is the probability of one of two classes."""
    try:
        ends = loss.inverse_link(np.array([[-50.0], [50.0]]))[:, 0] if loss.n_outputs == 1 else np.zeros(2)
    except NotCovered:
        return False
    return bool(abs(ends[0]) < 1e-9 and abs(ends[1] - 1.0) < 1e-9)


def is_class(loss: Loss) -> bool:
    """Whether the response is the probability of one of two classes or more."""
    return loss.rank < loss.n_outputs or is_binary(loss)
