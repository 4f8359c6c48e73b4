"""Attacks on everything that a plan releases: fresh runs with log p₁ − log p₀ of all that they released.

A release of several steps is accounted for as if every step were seen. Where the law of each step is known,
so is the likelihood ratio L of them all, and no test of one table against the other beats a threshold on L.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Protocol

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.audit.fits import Backend, Bins, Counts
from curvedp.audit.fits.numba import Threads
from curvedp.audit.fits.recentered import EDGES, MAX_D, MAX_RECORDS, Drawn, Numbers, RecenteredFits, Trace
from curvedp.audit.fits.recentered_numba import ThreadsRecentered
from curvedp.audit.pairs import Pair, walk_pairs, worst_pairs
from curvedp.audit.samplers import known, layout_of, pulls
from curvedp.constraints import Reals
from curvedp.losses import Huber, Logistic, Squared, SquaredHinge, spread_targets
from curvedp.mechanisms.inference import InferencePlan
from curvedp.mechanisms.recentered import RecenteredPlan, WalkPlan
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.plans import Plan
from curvedp.problem import Problem
from curvedp.regularizers import NoRegularizer
from curvedp.rows.rounding import SUM_SLACK

_ROWS = 2**16  # runs in memory


class Accounted(Protocol):
    """Runs of one plan on the tables D (side 0) and D' (side 1) of one pair."""

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """L and what leaves, flattened, of n fresh runs."""
        ...

    def count(
        self, side: int, direction: FloatArray, ratio_bins: Bins, theta_bins: Bins, n: int, seed: int
    ) -> tuple[Counts, Counts]:
        """Counts of L and of direction·θ over n fresh runs."""
        ...


class CountedDraws(ABC):
    """`count` by `draw`, for plans without a faster way."""

    @abstractmethod
    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """L and what leaves, flattened, of n fresh runs."""

    def count(
        self, side: int, direction: FloatArray, ratio_bins: Bins, theta_bins: Bins, n: int, seed: int
    ) -> tuple[Counts, Counts]:
        totals = np.zeros(ratio_bins.count, dtype=np.int64), np.zeros(theta_bins.count, dtype=np.int64)
        for part, start in enumerate(range(0, n, _ROWS)):
            drawn = self.draw(side, min(_ROWS, n - start), seed + part)
            for total, bins, values in zip(
                totals, (ratio_bins, theta_bins), (drawn.ratio, drawn.theta @ direction), strict=True
            ):
                total += np.bincount(bins.index(values), minlength=bins.count)
        return totals


class RecenteredBackend(Protocol):
    """Where recentered fits are made."""

    def draw(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Drawn: ...

    def trace(self, fits: RecenteredFits, side: int, n: int, seed: int) -> Trace: ...

    def count(
        self,
        fits: RecenteredFits,
        side: int,
        direction: FloatArray,
        ratio_bins: Bins,
        theta_bins: Bins,
        n: int,
        seed: int,
    ) -> tuple[Counts, Counts]: ...


def recentered_backend(engine: Backend) -> RecenteredBackend:
    """Recentered fits where `engine` makes other ones."""
    if isinstance(engine, Threads):
        return ThreadsRecentered(engine.count)
    from curvedp.audit.fits.recentered_cuda import on_gpu

    return on_gpu()


@dataclass(frozen=True, eq=False)
class AccountedFits:
    """Many recentered fits at once."""

    fits: RecenteredFits
    engine: RecenteredBackend

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        return self.engine.draw(self.fits, side, n, seed)

    def count(
        self, side: int, direction: FloatArray, ratio_bins: Bins, theta_bins: Bins, n: int, seed: int
    ) -> tuple[Counts, Counts]:
        return self.engine.count(self.fits, side, direction, ratio_bins, theta_bins, n, seed)


@singledispatch
def _accounted(plan: Plan[Any, Any], pair: Pair, engine: Backend) -> Accounted | None:
    return None


register = _accounted.register  # (plan, pair, engine) -> Accounted | None, by the class of the plan


def accounted(plan: Plan[Any, Any], pair: Pair, engine: Backend) -> Accounted | None:
    """Runs of the plan with L: many at once, or where its class changes a registered one, replayed.

    None where the guarantee is not of everything that it draws.
    """
    from curvedp.audit import others  # which registers plans here

    found: Accounted | None = known(_accounted, plan, pair, engine)
    return found if found is not None else others.shown_rows(plan, pair)


@register
def _(plan: RecenteredPlan, pair: Pair, engine: Backend) -> Accounted | None:
    fits = recentered_fits(plan, pair)
    return None if fits is None else AccountedFits(fits, recentered_backend(engine))


def attacked_pairs(plan: Plan[Any, Any], problem: Problem) -> list[Pair]:
    """The pairs on which the theory says that this plan is weakest."""
    walk = plan.walk if isinstance(plan, InferencePlan) else plan
    if isinstance(walk, WalkPlan):
        return walk_pairs(problem, layout_of(plan).d, walk.mu)
    return worst_pairs(problem, layout_of(plan).d, pulls(plan))


def recentered_fits(plan: RecenteredPlan, pair: Pair) -> RecenteredFits | None:
    """The fits of a plan on both tables of a pair; None where batches do not know the problem.

    That is a penalty, a constraint, several outputs, weights, more than 8 distinct records or 10 columns.
    """
    problem, d = plan.problem, plan.d
    parts = (problem.regularizer, problem.constraint, plan.rule, plan.shifts)
    if tuple(map(type, parts)) != (NoRegularizer, Reals, Rule, Shifts) or plan.rule.edges != EDGES:
        return None
    x, y, counts = _distinct(pair)
    if d > MAX_D or len(y) > MAX_RECORDS or plan.problem.domain.weighted:
        return None
    open_ = np.full(len(y), np.inf)
    slopes: tuple[FloatArray, FloatArray] | None
    match problem.loss:
        case Logistic():
            slopes = None
        case Squared():
            slopes = -open_, open_
        case Huber(width):
            slopes = np.full(len(y), -width), np.full(len(y), width)
        case SquaredHinge():
            slopes = np.where(y > 0, -np.inf, 0.0), np.where(y > 0, 0.0, np.inf)
        case _:
            return None
    return RecenteredFits(numbers_of(plan), x, y, counts, slopes)


def _distinct(pair: Pair) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The distinct records (x, y) of both tables and how often each is in which, shape (2, r)."""
    tables = pair.left, pair.right
    records = np.vstack([np.column_stack([t.x, t.y]) for t in tables])
    distinct, index = np.unique(records, axis=0, return_inverse=True)
    index, cut = index.ravel(), len(pair.left.y)
    counts = [
        np.bincount(part, table.counts, len(distinct))
        for part, table in zip((index[:cut], index[cut:]), tables, strict=True)
    ]
    return distinct[:, :-1], distinct[:, -1], np.array(counts)


def numbers_of(plan: RecenteredPlan) -> Numbers:
    """Every public number of the plan."""
    rule, shifts, parameters = plan.rule, plan.shifts, plan.parameters
    problem, neighbours = plan.problem, plan.problem.domain.neighbours
    targets = spread_targets(problem.loss, problem.domain)
    slopes = problem.loss.gradient(np.zeros((len(targets), 1)), targets)
    return Numbers(
        x_norm=problem.domain.x_norm,
        public_count=float(neighbours.count_is_public),
        sum_factor=neighbours.sum_factor,
        histogram_factor=neighbours.histogram_factor,
        # The pilot's noise pays for rounding, the only slack beyond 10⁻⁶: less noise would show more than
        # the library does. The library lifts its Gram matrix without that slack, 0.08 % less.
        gram_factor=neighbours.gram_factor + SUM_SLACK,
        mu=plan.mu,
        **{f"mu_{name}": shift for name, shift in vars(shifts).items()},
        sigma2=parameters.sigma2,
        m=parameters.m,
        **{name: float(getattr(rule, name)) for name in _RULE},
        beta=problem.loss.curvature(problem.domain, problem.radius(plan.d)),
        slope=float(np.sqrt(np.mean(slopes**2))),
    )


_RULE = Numbers._fields[Numbers._fields.index("precise") : Numbers._fields.index("beta")]
