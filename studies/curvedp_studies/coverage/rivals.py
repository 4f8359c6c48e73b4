"""Other ways to private intervals, on the same samples: noisy moments with a bootstrap, and batch means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.columns import ColumnMap
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.private_statistics import PrivateStatistics
from curvedp.problem import Problem
from curvedp_studies.coverage.batched import Batched
from curvedp_studies.coverage.calibrate import DELTA, calibration, constants, domain_of, loss_of, plan_of
from curvedp_studies.coverage.calibration import Calibration
from curvedp_studies.coverage.catalogue import population
from curvedp_studies.coverage.cells import NORMAL, Cell
from curvedp_studies.coverage.engines import outcomes
from curvedp_studies.coverage.metric import first_metric
from curvedp_studies.coverage.outcomes import LEVEL
from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.rows import append_rows, read_rows
from curvedp_studies.coverage.walking import Walk

POPULATIONS = ("gaussian-10", "heavy-10")
SIZES = (5000, 20_000)
EPSILONS = (1.0, 3.0)
_REPLICATES = 200  # of the bootstrap
_BATCHES = 8  # of the later rounds

_HARDLY = 0.02  # a ridge in units of the noise's spectral norm that hardly shrinks

Intervals = tuple[FloatArray, FloatArray]  # centres and half widths, (runs, d); NaN where refused
Method = Callable[[Population, Cell, int], Intervals]
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


def ours(drawn_from: Population, cell: Cell, runs: int) -> Intervals:
    plan = calibration(plan_of(drawn_from, cell.epsilon, cell.adjacency))
    told = outcomes(Batched(drawn_from, constants()), plan, cell.n, runs, cell.seed)
    return told.estimate, told.half


def from_moments(limits: Limits) -> Method:
    """Noisy moments (S-2) with the whole budget, and limits that follow from what was released."""

    def intervals(drawn_from: Population, cell: Cell, runs: int) -> Intervals:
        random = np.random.default_rng(cell.seed)
        p = drawn_from.d - 1
        columns = ColumnMap.from_bounds(np.full(p, -1.0), np.ones(p))
        low, high = [], []
        for run in range(runs):
            rows = random.integers(0, len(drawn_from.y), cell.n)
            released = PrivateStatistics.release(
                drawn_from.X[rows, :p],
                drawn_from.y[rows],
                budget=Budget(cell.epsilon, DELTA),
                domain=domain_of(drawn_from, cell.adjacency),
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


def batch_means(drawn_from: Population, cell: Cell, runs: int) -> Intervals:
    """The recentered walk with the whole budget: mean and spread of batches of its later centres.

    Always many small rounds: batches of few would say little.
    """
    shared, plan = constants(), _walk_only(drawn_from, cell)
    engine = Batched(drawn_from, replace(shared, rule={**shared.rule, "plenty": np.inf}))
    centres, halves = [], []
    for batch, size in enumerate(engine.batches(cell.n, runs)):
        setting = engine.setting(plan, cell.n, size, cell.seed + batch)
        walk = Walk(setting, first_metric(setting))
        w, clip = walk.found()
        path = [step.centre for step in walk.rounds(w, clip, walk.later_stride())]
        A = walk.metric.A.cpu().numpy()
        theta = np.array([np.einsum("bij,bi->bj", A, centre.cpu().numpy()) for centre in path])
        means = theta.reshape(_BATCHES, -1, *theta.shape[1:]).mean(axis=1) @ drawn_from.N.T
        centres.append(means.mean(axis=0))
        halves.append(stats.t.isf((1 - LEVEL) / 2, _BATCHES - 1) * stats.sem(means, axis=0))
    return np.concatenate(centres), np.concatenate(halves)


def _walk_only(drawn_from: Population, cell: Cell) -> Calibration:
    """The public numbers of the fit without inference: all that S leaves goes to the walk."""
    problem = Problem(loss_of(drawn_from.loss), domain=domain_of(drawn_from, cell.adjacency))
    plan = Recentered().plan(problem, drawn_from.r, Budget(cell.epsilon, DELTA))
    assert isinstance(plan, RecenteredPlan)
    public = calibration(plan_of(drawn_from, cell.epsilon, cell.adjacency))
    parts = plan.parameters
    return replace(public, sigma2=parts.sigma2, m=parts.m, mu=plan.mu, shifts=vars(plan.shifts), looks={})


METHODS: dict[str, Method] = {
    "inference=True": ours,
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


def against_the_field(
    populations: Sequence[str], table: Path, runs: int, tell: Callable[[FieldScore], None]
) -> list[FieldScore]:
    """Every method in every cell, add_remove; finished ones are read back from `table`."""
    done = {score.point: score for score in read_rows(table, FieldScore)}
    for name in populations:
        for n in SIZES:
            for epsilon in EPSILONS:
                cell = Cell(name, n, epsilon, "add_remove")
                for method, intervals in METHODS.items():
                    if (method, name, n, epsilon) in done:
                        continue
                    drawn_from = population(name, None)
                    score = field_scored(method, drawn_from, cell, intervals(drawn_from, cell, runs))
                    done[score.point] = score
                    append_rows(table, [score])
                    tell(score)
    return list(done.values())
