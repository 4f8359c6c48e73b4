"""Other ways to private intervals, on the same samples: noisy moments with a bootstrap, and batch means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy import stats

from curvedp.arrays import FloatArray
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows.base import Rows
from curvedp.mechanisms.base import Estimate
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.mechanisms.rule import Rule
from curvedp.mechanisms.walk import Clip, Round, Rounds
from curvedp.privacy.budget import Budget
from curvedp.randomness import generator
from curvedp.release.fit import PrivateStatistics
from curvedp_studies.coverage.catalogue import population
from curvedp_studies.coverage.cells import NORMAL, Cell
from curvedp_studies.coverage.library import DELTA, chunks, plan_of, problem_of, releases, sample
from curvedp_studies.coverage.outcomes import LEVEL, Outcomes
from curvedp_studies.coverage.populations import Population
from curvedp_studies.resume import Progress, complete_in_parts

POPULATIONS = ("gaussian-10", "heavy-10")
SIZES = (5000, 20_000)
EPSILONS = (1.0, 3.0)
_REPLICATES = 200  # of the bootstrap
_BATCHES = 8  # of the later rounds

_HARDLY = 0.02  # a ridge in units of the noise's spectral norm that hardly shrinks

Intervals = tuple[FloatArray, FloatArray]  # centres and half widths, (runs, d); NaN where refused
Method = Callable[[Population, Cell, range], Intervals]  # of these runs
Ends = tuple[FloatArray, FloatArray]  # lower and upper limits, (d,)
Limits = Callable[[PrivateStatistics, np.random.Generator], Ends]


@dataclass(frozen=True)
class FieldScore:
    """Of one method in one cell."""

    method: str
    population: str
    n: int
    epsilon: float
    runs: int
    coverage: float
    worst: float
    width: float
    refused: float

    @property
    def point(self) -> tuple[str, str, int, float]:
        return self.method, self.population, self.n, self.epsilon


def ours(drawn_from: Population, cell: Cell, runs: range) -> Intervals:
    plan = plan_of(drawn_from, cell.epsilon, cell.adjacency)
    fits = releases(drawn_from, plan, cell.n, (cell.seed + run for run in runs))
    told = Outcomes.of(fits, drawn_from)
    return told.estimate, told.half


def from_moments(limits: Limits) -> Method:
    """Noisy moments (S-2) with the whole budget, and limits that follow from what was released."""

    def intervals(drawn_from: Population, cell: Cell, runs: range) -> Intervals:
        p = drawn_from.d - 1
        columns = ColumnMap.from_bounds(np.full(p, -1.0), np.ones(p))
        low, high = [], []
        for run in runs:
            random = np.random.default_rng(cell.seed + run)
            rows = random.integers(0, len(drawn_from.y), cell.n)
            released = PrivateStatistics.release(
                drawn_from.X[rows, :p],
                drawn_from.y[rows],
                budget=Budget(cell.epsilon, DELTA),
                domain=problem_of(drawn_from, cell.adjacency).domain,
                columns=columns,
                random_state=cell.seed % 2**31 + run,
            )
            ends = limits(released, random)
            low.append(ends[0])
            high.append(ends[1])
        return (np.array(low) + high) / 2.0, (np.array(high) - low) / 2.0

    return intervals


def standard_errors(released: PrivateStatistics, random: np.random.Generator) -> Ends:
    """θ̂ ± 1.96 standard errors, NaN where the library states none."""
    theta = released.solve()
    half = NORMAL * released.standard_errors(theta)
    return theta - half, theta + half


def bootstrap(released: PrivateStatistics, random: np.random.Generator) -> Ends:
    return _replicated(released, released.ridge(), random)


def bootstrap_without_ridge(released: PrivateStatistics, random: np.random.Generator) -> Ends:
    return _replicated(released, _HARDLY * released.noise_norm, random)


def _replicated(released: PrivateStatistics, ridge: float, random: np.random.Generator) -> Ends:
    """Samples and noise drawn anew from what was released: limits 2θ̂ − quantiles of θ*."""
    d, theta, xx = released.d, released.solve(ridge=ridge), released.curvature(0.0)
    variance = released.residual_variance(theta)
    root = np.linalg.cholesky(variance * xx + 1e-12 * np.trace(xx) * np.eye(d))
    noise = random.standard_normal((_REPLICATES, d, d)) * released.xx_scale
    values, U = np.linalg.eigh(xx + (noise + noise.transpose(0, 2, 1)) / 2.0)
    xy = xx @ theta + random.standard_normal((_REPLICATES, d)) @ root.T
    xy += released.xy_scale * random.standard_normal((_REPLICATES, d))
    inside = np.einsum("bij,bi->bj", U, xy) / (np.maximum(values, 0.0) + ridge)
    again = np.einsum("bij,bj->bi", U, inside)
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return 2.0 * theta - high, 2.0 * theta - low


def batch_means(drawn_from: Population, cell: Cell, runs: range) -> Intervals:
    """The recentered walk with the whole budget: mean and spread of batches of its later centres.

    Always many small rounds: batches of few would say little.
    """
    problem, budget = problem_of(drawn_from, cell.adjacency), Budget(cell.epsilon, DELTA)
    plan = Recentered(Rule(plenty=np.inf)).plan(problem, drawn_from.d, budget)
    centres, halves = [], []
    for seed in (cell.seed + run for run in runs):
        path = later_centres(plan, sample(drawn_from, cell.n, problem.domain, seed), generator(seed))
        means = path.reshape(_BATCHES, -1, drawn_from.d).mean(axis=1)
        centres.append(means.mean(axis=0))
        halves.append(stats.t.isf((1 - LEVEL) / 2, _BATCHES - 1) * stats.sem(means, axis=0))
    return np.array(centres), np.array(halves)


def later_centres(plan: RecenteredPlan, rows: Rows, random: np.random.Generator) -> FloatArray:
    """Where the gradients of the later rounds of a fit were released, (rounds, d)."""
    centres: list[FloatArray] = []
    average = Rounds.average

    def remembered(rounds: Rounds, walk: Iterable[Round], clip: Clip, number: int) -> tuple[Estimate, float]:
        steps = list(walk)
        centres.extend(centre[:, 0] for centre, _, _ in steps)
        return average(rounds, steps, clip, number)

    with patch.object(Rounds, "average", remembered):
        plan.release(rows, random)
    return np.array(centres)


METHODS: dict[str, Method] = {
    "default fit": ours,
    "noisy moments, standard errors": from_moments(standard_errors),
    "noisy moments, bootstrap": from_moments(bootstrap),
    "noisy moments without ridge, bootstrap": from_moments(bootstrap_without_ridge),
    "batch means of the walk": batch_means,
}


def field_scored(method: str, drawn_from: Population, cell: Cell, intervals: Intervals) -> FieldScore:
    centre, half = intervals
    told = np.isfinite(half)
    inside = (np.abs(centre - drawn_from.theta) <= half) & told
    often = told.sum(axis=0) >= max(20, len(half) // 8)
    width = half / (NORMAL * drawn_from.deviation / np.sqrt(cell.n))
    return FieldScore(
        method,
        cell.population,
        cell.n,
        cell.epsilon,
        len(half),
        float(inside.sum() / told.sum()) if told.any() else np.nan,
        float(min(inside.sum(axis=0)[often] / told.sum(axis=0)[often], default=np.nan)),
        float(np.nanmedian(width)) if told.any() else np.nan,
        float(1.0 - told.mean()),
    )


@dataclass(frozen=True)
class Meeting:
    """Some runs of one method in one cell."""

    method: str
    cell: Cell
    runs: range


def against_the_field(
    populations: Sequence[str],
    table: Path,
    runs: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[FieldScore]:
    """Every method in every cell, add_remove; finished ones are read back from `table`."""
    places = [
        (method, Cell(name, n, epsilon, "add_remove"))
        for name in populations
        for n in SIZES
        for epsilon in EPSILONS
        for method in METHODS
    ]

    def score(place: tuple[str, Cell], parts: Sequence[Intervals]) -> list[FieldScore]:
        method, cell = place
        centres, halves = (np.concatenate(part) for part in zip(*parts, strict=True))
        return [field_scored(method, population(cell.population, None), cell, (centres, halves))]

    return complete_in_parts(
        table,
        FieldScore,
        places,
        lambda place: [(place[0], *place[1].point[:3])],
        lambda place: [Meeting(*place, part) for part in chunks(runs)],
        met,
        score,
        progress=progress,
        workers=workers,
    )


def met(meeting: Meeting) -> Intervals:
    drawn_from = population(meeting.cell.population, None)
    return METHODS[meeting.method](drawn_from, meeting.cell, meeting.runs)
