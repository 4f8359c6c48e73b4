"""Mechanisms side by side on real tables: `compare`.

Every mechanism sees the same mapped records, the same splits and the same (ε, δ), under both adjacencies
where it has them, and its predictions are clipped to the public range of the target. An interrupted study
goes on where it stopped; scores computed elsewhere can be merged in.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from curvedp.analyses.estimators.base import why_plain
from curvedp.arrays import FloatArray
from curvedp.data.rows import ArrayRows
from curvedp.data.rows.base import At, Parts
from curvedp.data.rows.blocks import Block
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Mechanism, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.problems import Problem
from curvedp.problems.constraints import L2Ball
from curvedp.release import catalogue
from curvedp.release.door import execute
from curvedp_studies.peers_data import (
    GENERATED,
    GENERATED_CLASS,
    UNIT,
    Dataset,
    dataset_names,
    load_dataset,
    training_records,
)
from curvedp_studies.peers_names import (
    ADASSP_REFERENCE,
    CLAIMED,
    CONSTANT,
    FIRST,
    FRESH,
    IHM_REFERENCE,
    NONPRIVATE,
    PLAIN,
)
from curvedp_studies.peers_report import write_report
from curvedp_studies.resume import Progress, complete, read_rows, seed_of, write_rows
from curvedp_studies.rivals.ihm import IterativeHessianMixing
from curvedp_studies.rivals.newton import DoubleNoiseNewton

EPSILONS = (0.1, 0.5, 1.0, 3.0)
UNIT_EPSILONS = (0.1, 0.25, 1.0, 4.0)
VARIANT_EPSILONS = (1.0,)  # of subsamples and of loose bounds
SIZES = (200, 500, 1000, 5000, 20_000, 100_000, 1_000_000)
LOOSE = "~10"
ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace")
SEEDS = 20
MOST_ROWS = 75_000  # 60,000 of them for training
RADIUS = 2.0  # public ball for mechanisms that need bounded gradients, and their guess of ‖θ‖
RIDGE = 0.1  # of the fit without privacy, in the summed objective: a separable table has none without
DENSE = 2_000  # unknowns of a mechanism that solves a dense problem
CELLS = 2**22  # numbers in memory per block of the tuned gradient descent


@dataclass(frozen=True)
class Entrant:
    """A mechanism as it takes part: of the catalogue, or made by `make`.

    `options` are its public choices, `bounded` says that a public ball bounds its gradients;
    `most_unknowns` and `most_records` leave out what takes too long to wait for.
    """

    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    bounded: bool = False
    most_unknowns: int = 100_000
    most_records: int = 10_000_000
    make: Callable[[], Mechanism] | None = None

    def mechanism(self) -> Mechanism:
        return self.make() if self.make else catalogue.mechanism(self.name, **self.options)

    def problem(self, dataset: Dataset, adjacency: Adjacency = "add_remove") -> Problem:
        """The dataset's problem, within the ball where the loss has no gradient bound of its own."""
        problem = dataset.problem_under(adjacency)
        if self.bounded and not math.isfinite(problem.gradient_bound(dataset.d)):
            return replace(problem, constraint=L2Ball(RADIUS))
        return problem


_BALL = {"radius": RADIUS}
ENTRANTS: Mapping[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        Entrant(FIRST),
        Entrant("statistics"),
        Entrant("adassp"),
        Entrant("ihm", make=IterativeHessianMixing),
        Entrant("dp_newton", most_unknowns=DENSE, make=DoubleNoiseNewton),
        Entrant("qop", _BALL, most_unknowns=DENSE),
        Entrant("lop", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("amp", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("pure_lop", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("output", _BALL, bounded=True, most_unknowns=DENSE),
        Entrant("functional"),
        Entrant("exponential", _BALL),
        Entrant("gradient"),
        Entrant("dp_sgd", most_records=500_000),
    )
}
NAMES = (FIRST, FRESH, *(name for name in ENTRANTS if name != FIRST))


@dataclass(frozen=True)
class Score:
    """One fit: its score on the test rows, for classes also the area under the curve and the log-loss."""

    dataset: str
    mechanism: str
    adjacency: str
    epsilon: float
    seed: int
    score: float
    auc: float
    log_loss: float
    n_mu: float
    kappa: float
    detail: str

    @property
    def point(self) -> Hashable:
        return self.dataset, self.mechanism, self.adjacency, self.epsilon, self.seed


@dataclass(frozen=True)
class Cell:
    """One task of the study: all seeds of a mechanism on a table at one ε (∞: without privacy)."""

    folder: Path
    dataset: str
    mechanism: str
    adjacency: Adjacency
    epsilon: float
    seeds: int
    most_rows: int

    @property
    def points(self) -> list[Hashable]:
        names = (FRESH, CLAIMED, PLAIN) if self.mechanism == FRESH else (self.mechanism,)
        return [
            (self.dataset, name, self.adjacency, self.epsilon, seed)
            for name in names
            for seed in range(self.seeds)
        ]


def compare(
    data_dir: Path | str,
    datasets: Sequence[str] | None = None,
    mechanisms: Sequence[str] | None = None,
    epsilons: Sequence[float] | None = None,
    seeds: int = SEEDS,
    out: Path | str = "results",
    progress: Progress | None = None,
    *,
    workers: int | None = None,
    most_rows: int = MOST_ROWS,
    scores: Sequence[Path | str] = (),
    page: Path | None = None,
    finished: bool = False,
    known: Path | None = None,
) -> list[Path]:
    """Scores of `mechanisms` × `datasets` × `epsilons` × `seeds`; returns the files written to `out`.

    scores.csv holds every fit, summary.csv medians, quartiles and the worst; `page` gets tables, too.
    `scores` are files of the same columns, computed elsewhere: what they hold is not computed again. Nor is
    anything in `out`. A mechanism that does not cover a table leaves it empty. With `finished` nothing is
    computed: the report is of all that scores.csv holds. Of cells that are not asked for, the report has what
    the summary `known` says.
    """
    folder, target = Path(data_dir), Path(out)
    names = list(datasets) if datasets else all_names(folder)
    entrants = list(mechanisms) if mechanisms else list(NAMES)
    unknown = sorted(set(entrants) - set(NAMES))
    if unknown:
        raise InvalidInput(f"unknown mechanisms {', '.join(unknown)}; choose among {', '.join(NAMES)}")
    if seeds < 1 or (epsilons is not None and not (epsilons and all(epsilon > 0 for epsilon in epsilons))):
        raise InvalidInput("pass at least one seed and positive epsilons")
    for path in scores:
        merge(path, target)
    cells = [
        Cell(folder, dataset, mechanism, adjacency, epsilon, seeds, most_rows)
        for dataset in names
        for mechanism, adjacency, epsilon in _levels(dataset, entrants, epsilons or epsilons_of(dataset))
    ]
    table = target / "scores.csv"
    if finished:
        there = [row for row in read_rows(table, Score) if row.dataset in names]
        if not there:
            raise InvalidInput(f"{table} holds no score of these tables: run the comparison first")
        there.sort(key=lambda row: (names.index(row.dataset), row.adjacency, row.epsilon, row.seed))
        return [table, *write_report([*there, *reference_scores(folder, names)], target, page, known)]
    rows = complete(
        table, Score, cells, lambda cell: cell.points, compute, progress=progress, workers=workers
    )
    return [table, *write_report([*rows, *reference_scores(folder, names)], target, page, known)]


def all_names(folder: Path) -> list[str]:
    """The folder's tables; those that are not scaled also with loose bounds and as subsamples."""
    there = dataset_names(folder)
    open_names = [name for name in there if not name.startswith(f"{UNIT}/")]
    sized = {name: training_records(folder, name) for name in open_names}
    sized |= dict.fromkeys((GENERATED, GENERATED_CLASS), max(SIZES))
    return [
        *there,
        *(name + LOOSE for name in open_names),
        *(f"{name}@{size}" for name, most in sized.items() for size in SIZES if size <= most),
    ]


def is_variant(dataset: str) -> bool:
    return "@" in dataset or "~" in dataset


def epsilons_of(dataset: str) -> Sequence[float]:
    if is_variant(dataset):
        return VARIANT_EPSILONS
    return UNIT_EPSILONS if dataset.startswith(f"{UNIT}/") else EPSILONS


def _levels(
    dataset: str, entrants: Sequence[str], epsilons: Sequence[float]
) -> list[tuple[str, Adjacency, float]]:
    """The tuned descent is for whole tables with their own bounds."""
    there = [name for name in entrants if name != FRESH or not is_variant(dataset)]
    return [
        *((name, ADJACENCIES[0], math.inf) for name in (NONPRIVATE, CONSTANT)),
        *((name, adjacency, float(e)) for name in there for adjacency in ADJACENCIES for e in epsilons),
    ]


def compute(cell: Cell) -> list[Score]:
    """All seeds of one cell; NaN where the mechanism does not cover the table."""
    dataset = load_dataset(cell.folder, cell.dataset, cell.most_rows)
    if cell.mechanism == FRESH:
        return _descent(dataset, cell)
    if cell.mechanism == NONPRIVATE:
        fits = [_nonprivate(dataset, seed) for seed in range(cell.seeds)]
    elif cell.mechanism == CONSTANT:
        fits = [_constant(dataset, seed) for seed in range(cell.seeds)]
    else:
        entrant = ENTRANTS[cell.mechanism]
        problem = entrant.problem(dataset, cell.adjacency)
        try:
            if dataset.unknowns > entrant.most_unknowns:
                raise NotCovered(f"more than {entrant.most_unknowns} unknowns: not tried")
            if len(dataset.y) > entrant.most_records:
                raise NotCovered(f"more than {entrant.most_records} records: not tried")
            budget = Budget(cell.epsilon, dataset.delta)
            mechanism = entrant.mechanism()
            if isinstance(mechanism, Recentered):  # as a default fit is
                plain = why_plain(problem, dataset.d, True)
                mechanism = replace(mechanism, coding=dataset.coding, inference=not plain)
            plan = make_plan(mechanism, problem, dataset.d, budget)
        except NotCovered as reason:
            return [_missing(cell, seed, str(reason)) for seed in range(cell.seeds)]
        fits = []
        for seed in range(cell.seeds):
            train, _ = dataset.split(seed)
            rows = ArrayRows(dataset.X[train], dataset.y[train], problem.domain, threads=1)
            noise = seed_of(cell.dataset, cell.mechanism, cell.adjacency, cell.epsilon, seed)
            fits.append(execute(plan, rows, random_state=noise).value.theta)
    return [_scored(dataset, cell, seed, theta) for seed, theta in enumerate(fits)]


def _scored(dataset: Dataset, cell: Cell, seed: int, theta: FloatArray) -> Score:
    train, test = dataset.split(seed)
    margins, y = dataset.X[test] @ theta, dataset.y[test]
    n_mu = len(train) * calibrate_mu(cell.epsilon, dataset.delta) if math.isfinite(cell.epsilon) else math.inf
    return Score(
        cell.dataset,
        cell.mechanism,
        cell.adjacency,
        cell.epsilon,
        seed,
        dataset.score(margins, y),
        dataset.auc(margins, y),
        dataset.log_loss(margins, y),
        n_mu,
        n_mu / dataset.unknowns,
        "",
    )


def _missing(cell: Cell, seed: int, reason: str) -> Score:
    where = (cell.dataset, cell.mechanism, cell.adjacency, cell.epsilon, seed)
    return Score(*where, math.nan, math.nan, math.nan, math.nan, math.nan, reason)


def _constant(dataset: Dataset, seed: int) -> FloatArray:
    """The mean of the training rows, or their classes' shares as log-odds; 0 where there is no intercept."""
    theta = np.zeros((dataset.d, dataset.loss.n_outputs))
    y = dataset.y[dataset.split(seed)[0]]
    if dataset.from_zero:
        return theta
    if dataset.kind == "regression":
        theta[-1] = np.mean(y)
    else:
        labels = (y > 0).astype(int) if dataset.kind == "binary" else y.astype(int)
        odds = np.log(np.bincount(labels, minlength=dataset.n_classes) + 0.5)
        theta[-1] = odds[1] - odds[0] if dataset.kind == "binary" else odds - odds.mean()
    return theta


def _values(block: Block, y: FloatArray, at: At) -> Parts:
    """Σ φ of a block's records."""
    return (np.asarray(np.sum(at.loss.value(block.margins(at.theta), at.targets(y)))),)


def _nonprivate(dataset: Dataset, seed: int) -> FloatArray:
    """The minimiser of the summed loss plus a tiny ridge, by L-BFGS."""
    train, _ = dataset.split(seed)
    loss = dataset.loss
    rows = ArrayRows(dataset.X[train], dataset.y[train], dataset.problem.domain, threads=1)
    shape = (dataset.d, loss.n_outputs)
    if loss.is_quadratic:
        moments = rows.moments()
        ridge = RIDGE * float(np.trace(moments.xx)) / (dataset.d * len(train))
        return np.asarray(
            np.linalg.solve(moments.xx + ridge * np.eye(dataset.d), moments.xy), dtype=np.float64
        )

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        theta = flat.reshape(shape)
        total = rows.total(partial(_values, at=At(dataset.problem.domain, loss, theta)), keep=True)
        value = (0.0 if total is None else float(total.parts[0])) + 0.5 * RIDGE * float(flat @ flat)
        return value / len(train), (rows.gradient_sum(loss, theta).ravel() + RIDGE * flat) / len(train)

    found = minimize(
        objective,
        np.zeros(math.prod(shape)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-9},
    )
    return np.asarray(found.x).reshape(shape)


def _descent(dataset: Dataset, cell: Cell) -> list[Score]:
    """The tuned gradient descent, on this machine."""
    from curvedp_studies.peers_descent import generator_of, score_rows, shift_of, tuned
    from curvedp_studies.peers_export import plain_table

    table = plain_table(dataset, cell.seeds)
    mu = calibrate_mu(cell.epsilon, dataset.delta)
    random = generator_of(table.name, cell.adjacency, cell.epsilon, "cpu")
    found = tuned(table, shift_of(mu, cell.adjacency), random, cells=CELLS)
    return [Score(*row) for row in score_rows(table, found, cell.adjacency, cell.epsilon, mu)]


def merge(scores: Path | str, out: Path | str) -> Path:
    """Add scores computed elsewhere to the scores.csv of `out`, where `compare` finds them."""
    table = Path(out) / "scores.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    found = read_rows(Path(scores), Score)
    if not found:
        raise InvalidInput(f"{scores} holds no scores: it needs the columns of scores.csv")
    known = {row.point: row for row in read_rows(table, Score)}
    known.update((row.point, row) for row in found)
    write_rows(table, Score, known.values())
    return table


def reference_scores(folder: Path, datasets: Sequence[str]) -> list[Score]:
    """The medians of unit/reference.csv: other people's code on those tables, predictions not clipped."""
    path = folder / UNIT / "reference.csv"
    if not path.exists():
        return []
    shown = {"ihm": IHM_REFERENCE, "adassp": ADASSP_REFERENCE}
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    zero = {line["dataset"]: float(line["test_mse"]) for line in lines if line["method"] == "zero"}
    return [
        Score(
            f"{UNIT}/{line['dataset']}",
            shown[line["method"]],
            "add_remove",
            float(line["epsilon"]),
            0,
            1.0 - float(line["test_mse"]) / zero[line["dataset"]],
            *(math.nan,) * 4,
            "reference",
        )
        for line in lines
        if line["method"] in shown and f"{UNIT}/{line['dataset']}" in datasets
    ]
