"""Mechanisms side by side on real tables: `compare`.

Every mechanism sees the same mapped records, the same 80/20 splits and the same (ε, δ) under add_remove, and
its predictions are clipped to the public range of the target. An interrupted study goes on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from curvedp import catalogue
from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.constraints import L2Ball
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Mechanism, make_plan
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.release import execute
from curvedp.rows import DenseRows
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.peers_gradient import NumpyBackend, Table, tuned
from curvedp_studies.peers_report import write_report
from curvedp_studies.resume import Progress, complete, read_rows, seed_of, write_rows

DELTA = 1e-6
EPSILONS = (0.1, 0.5, 1.0, 3.0)
SEEDS = 10
MOST_ROWS = 75_000  # 60,000 of them for training
RADIUS = 2.0  # public ball for mechanisms that need bounded gradients, and their guess of ‖θ‖
RIDGE = 0.1  # of the fit without privacy, in the summed objective: a separable table has none without
DENSE = 2_000  # unknowns of a mechanism that solves a dense problem
CELLS = 2**22  # numbers in memory per block of the tuned gradient descent


@dataclass(frozen=True)
class Entrant:
    """A mechanism of the catalogue as it takes part.

    `options` are its public choices, `bounded` says that a public ball bounds its gradients, and
    `most_unknowns` leaves tables out that would need a dense solve too large to wait for.
    """

    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    bounded: bool = False
    most_unknowns: int = 100_000

    def mechanism(self) -> Mechanism:
        return catalogue.mechanism(self.name, **self.options)

    def problem(self, dataset: Dataset) -> Problem:
        """The dataset's problem, within the ball where the loss has no gradient bound of its own."""
        problem = dataset.problem
        if self.bounded and not math.isfinite(problem.gradient_bound(dataset.d)):
            return replace(problem, constraint=L2Ball(RADIUS))
        return problem


_BALL = {"radius": RADIUS}
ENTRANTS: Mapping[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        Entrant("recentered"),
        Entrant("statistics"),
        Entrant("adassp"),
        Entrant("qop", _BALL, most_unknowns=DENSE),
        Entrant("lop", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("amp", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("pure_lop", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("output", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("functional"),
        Entrant("exponential", _BALL),
        Entrant("gradient"),
        Entrant("dp_sgd"),
    )
}
TUNED = "gradient_tuned"
NONPRIVATE = "nonprivate"
NAMES = (*ENTRANTS, TUNED)


@dataclass(frozen=True)
class Score:
    """One fit: R² or accuracy on its test rows, the area under the curve for two classes, a remark."""

    dataset: str
    mechanism: str
    epsilon: float
    seed: int
    score: float
    auc: float
    detail: str

    @property
    def point(self) -> Hashable:
        return self.dataset, self.mechanism, self.epsilon, self.seed


@dataclass(frozen=True)
class Cell:
    """One task of the study: all seeds of a mechanism on a table at one ε (∞: without privacy)."""

    folder: Path
    dataset: str
    mechanism: str
    epsilon: float
    seeds: int
    most_rows: int

    @property
    def points(self) -> list[Hashable]:
        return [(self.dataset, self.mechanism, self.epsilon, seed) for seed in range(self.seeds)]


def compare(
    data_dir: Path | str,
    datasets: Sequence[str] | None = None,
    mechanisms: Sequence[str] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = SEEDS,
    out: Path | str = "results",
    progress: Progress | None = None,
    *,
    workers: int | None = None,
    most_rows: int = MOST_ROWS,
) -> list[Path]:
    """Scores of `mechanisms` × `datasets` × `epsilons` × `seeds`; returns the files written to `out`.

    scores.csv holds every fit, summary.csv medians and quartiles, comparison.png and .html what they say. A
    second call with the same `out` computes only what is missing. A mechanism that does not cover a table
    leaves it empty.
    """
    folder, target = Path(data_dir), Path(out)
    names = list(datasets) if datasets else dataset_names(folder)
    entrants = list(mechanisms) if mechanisms else list(NAMES)
    unknown = sorted(set(entrants) - set(NAMES))
    if unknown:
        raise InvalidInput(f"unknown mechanisms {', '.join(unknown)}; choose among {', '.join(NAMES)}")
    if seeds < 1 or not epsilons or not all(epsilon > 0 for epsilon in epsilons):
        raise InvalidInput("pass at least one seed and positive epsilons")
    levels = [(NONPRIVATE, math.inf), *((name, epsilon) for name in entrants for epsilon in epsilons)]
    cells = [
        Cell(folder, dataset, mechanism, float(epsilon), seeds, most_rows)
        for dataset in names
        for mechanism, epsilon in levels
    ]
    table = target / "scores.csv"
    rows = complete(
        table, Score, cells, lambda cell: cell.points, compute, progress=progress, workers=workers
    )
    return [table, *write_report(rows, target, entrants[0])]


def compute(cell: Cell) -> list[Score]:
    """All seeds of one cell; NaN where the mechanism does not cover the table."""
    dataset = load_dataset(cell.folder, cell.dataset, cell.most_rows)
    if cell.mechanism == NONPRIVATE:
        fits = [_nonprivate(dataset, seed) for seed in range(cell.seeds)]
    elif cell.mechanism == TUNED:
        return _tuned(dataset, cell)
    else:
        entrant = ENTRANTS[cell.mechanism]
        problem = entrant.problem(dataset)
        try:
            if dataset.d * problem.loss.n_outputs > entrant.most_unknowns:
                raise NotCovered(f"more than {entrant.most_unknowns} unknowns: not tried")
            plan = make_plan(entrant.mechanism(), problem, dataset.d, Budget(cell.epsilon, DELTA))
        except NotCovered as reason:
            return [_missing(cell, seed, str(reason)) for seed in range(cell.seeds)]
        fits = []
        for seed in range(cell.seeds):
            train, _ = dataset.split(seed)
            rows = DenseRows(dataset.X[train], dataset.y[train], problem.domain, threads=1)
            noise = seed_of(cell.dataset, cell.mechanism, cell.epsilon, seed)
            fits.append(execute(plan, rows, random_state=noise).value.theta)
    return [_scored(dataset, cell, seed, theta) for seed, theta in enumerate(fits)]


def _scored(dataset: Dataset, cell: Cell, seed: int, theta: FloatArray) -> Score:
    _, test = dataset.split(seed)
    margins, y = dataset.X[test] @ theta, dataset.y[test]
    score, auc = dataset.score(margins, y), dataset.auc(margins, y)
    return Score(cell.dataset, cell.mechanism, cell.epsilon, seed, score, auc, "")


def _missing(cell: Cell, seed: int, reason: str) -> Score:
    return Score(cell.dataset, cell.mechanism, cell.epsilon, seed, math.nan, math.nan, reason)


def _nonprivate(dataset: Dataset, seed: int) -> FloatArray:
    """The minimiser of the summed loss plus a tiny ridge, by L-BFGS."""
    train, _ = dataset.split(seed)
    loss = dataset.loss
    rows = DenseRows(dataset.X[train], dataset.y[train], dataset.problem.domain, threads=1)
    shape = (dataset.d, loss.n_outputs)
    if loss.is_quadratic:
        moments = rows.moments()
        return np.asarray(
            np.linalg.solve(moments.xx + RIDGE * np.eye(dataset.d), moments.xy), dtype=np.float64
        )

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        theta = flat.reshape(shape)
        value = rows.value_sum(loss, theta) + 0.5 * RIDGE * float(flat @ flat)
        return value / len(train), (rows.gradient_sum(loss, theta).ravel() + RIDGE * flat) / len(train)

    found = minimize(
        objective,
        np.zeros(math.prod(shape)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-9},
    )
    return np.asarray(found.x).reshape(shape)


def _tuned(dataset: Dataset, cell: Cell) -> list[Score]:
    table = plain_table(dataset, cell.seeds)
    backend = NumpyBackend(generator(seed_of(cell.dataset, TUNED, cell.epsilon)))
    best = tuned(table, calibrate_mu(cell.epsilon, DELTA), backend, cells=CELLS)
    return [
        Score(cell.dataset, TUNED, cell.epsilon, seed, float(score), float(auc), best.detail)
        for seed, (score, auc) in enumerate(zip(best.scores, best.aucs, strict=True))
    ]


def plain_table(dataset: Dataset, seeds: int) -> Table:
    """The dataset and its splits as plain arrays, for the tuned gradient descent."""
    test = np.zeros((seeds, len(dataset.y)), dtype=bool)
    for seed in range(seeds):
        test[seed, dataset.split(seed)[1]] = True
    X = dataset.X.astype(np.float32)
    return Table(dataset.name, dataset.kind, X, dataset.y, test, dataset.x_norm, dataset.n_classes)


def prepare(
    data_dir: Path | str,
    out: Path | str,
    datasets: Sequence[str] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = SEEDS,
    *,
    most_rows: int = MOST_ROWS,
) -> list[Path]:
    """Write the tables for `peers_gradient.py` on another machine; `merge` brings its scores home."""
    folder, target = Path(data_dir), Path(out)
    target.mkdir(parents=True, exist_ok=True)
    shifts = [calibrate_mu(epsilon, DELTA) for epsilon in epsilons]
    names = list(datasets) if datasets else dataset_names(folder)
    return [
        plain_table(load_dataset(folder, name, most_rows), seeds).write(target, epsilons, shifts)
        for name in names
    ]


def merge(scores: Path | str, out: Path | str) -> Path:
    """Add scores computed elsewhere to the scores.csv of `out`, where `compare` finds them."""
    table = Path(out) / "scores.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    known = {row.point: row for row in read_rows(table, Score)}
    known.update((row.point, row) for row in read_rows(Path(scores), Score))
    write_rows(table, Score, known.values())
    return table
