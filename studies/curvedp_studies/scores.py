"""Private scores beside scikit-learn's on real tables, and how often their intervals cover.

`python -m curvedp_studies.scores DATA` prints, for every table and adjacency, the median error of each score
against scikit-learn on the same rows, and the share of resampled tables whose interval holds the value of the
population: all records that the model was not fitted to.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from curvedp import PrivateLogisticRegression, PrivateRidge
from curvedp.analyses.estimators.base import PrivateLinearModel
from curvedp.analyses.scores import score_plan
from curvedp.analyses.scores.source import ScoredRecords, read_scored
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.randomness import generator
from curvedp_studies.peers_data import Dataset, load_dataset
from sklearn import metrics

TABLES = ("adult", "credit_default", "magic", "spambase", "california", "wine")
ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace")
MOST_ROWS = 200_000


@dataclass(frozen=True)
class Row:
    """One score of one table: its error over seeds, and how often its interval covered."""

    table: str
    adjacency: str
    rows: int
    score: str
    exact: float
    median_error: float
    half_width: float
    coverage: float


def fitted(data: Dataset, rows: NDArray[np.intp], adjacency: Adjacency, seed: int) -> PrivateLinearModel:
    """The library's default model of some rows, at ε = 1."""
    X, y = data.X[rows, :-1], data.y[rows]
    model: PrivateLinearModel = PrivateLogisticRegression(classes=[-1, 1])
    if data.kind == "regression":
        model = PrivateRidge(target_bounds=(-1.0, 1.0))
    model.set_params(epsilon=1.0, delta=1e-6, bounds=(-1.0, 1.0), adjacency=adjacency, random_state=seed)
    return model.fit(X, y)


def exact_scores(
    model: PrivateLinearModel, X: NDArray[np.float64], y: NDArray[np.float64]
) -> dict[str, float]:
    """What scikit-learn says of the same rows, without noise."""
    if isinstance(model, PrivateRidge):
        p = model.predict(X)
        return {
            "r2": metrics.r2_score(y, p),
            "rmse": math.sqrt(metrics.mean_squared_error(y, p)),
            "mae": metrics.mean_absolute_error(y, p),
        }
    assert isinstance(model, PrivateLogisticRegression)
    p = model.predict_proba(X)[:, 1]
    return {
        "auc": metrics.roc_auc_score(y, p),
        "accuracy": metrics.accuracy_score(y, model.predict(X)),
        "brier": metrics.brier_score_loss(y, p, pos_label=1),
        "log_loss": metrics.log_loss(y, p),
    }


def resampled(records: ScoredRecords, rows: NDArray[np.intp]) -> ScoredRecords:
    """The records at these positions, repeated as often as they are named."""
    parts = ("score", "target", "level", "predicted", "loss")
    return replace(records, rows=len(rows), **{part: getattr(records, part)[rows] for part in parts})


def study(
    data: Dataset, adjacency: Adjacency, budget: Budget, seeds: int, tables: int, split: int = 0
) -> Iterator[Row]:
    """Median errors over `seeds` noises of the test rows, coverage over `tables` resampled ones."""
    train, test = data.split(split)
    model = fitted(data, train, adjacency, split)
    rows = data.X[test, :-1], data.y[test]
    exact = exact_scores(model, *rows)
    records = read_scored(model, *rows)
    plan = score_plan(records.layout, budget)
    found = [plan.release(records, generator(seed))[0] for seed in range(seeds)]
    half = len(train) // 2  # for coverage, the population is what a model of half of the rows has not seen
    other = fitted(data, train[:half], adjacency, split)
    unseen = np.concatenate([train[half:], test])
    population = read_scored(other, data.X[unseen, :-1], data.y[unseen])
    truth = exact_scores(other, data.X[unseen, :-1], data.y[unseen])
    plan = score_plan(population.layout, budget)
    random, hits = np.random.default_rng(split), dict.fromkeys(exact, 0)
    for t in range(tables):
        sample = resampled(population, random.integers(0, len(unseen), len(test)))
        scores = plan.release(sample, generator(seeds + t))[0]
        for name in hits:
            hits[name] += scores[name].low <= truth[name] <= scores[name].high
    for name, value in exact.items():
        errors = [abs(scores[name].value - value) for scores in found]
        widths = [0.5 * (scores[name].high - scores[name].low) for scores in found]
        share = hits[name] / tables if tables else math.nan
        middle = float(np.nanmedian(errors)), float(np.median(widths))
        yield Row(data.name, adjacency, len(test), name, value, *middle, share)


def main(
    data: Annotated[Path, typer.Argument(help="A folder of tables with their public bounds.")],
    names: Annotated[str, typer.Option("--tables", help="Names, separated by commas.")] = ",".join(TABLES),
    epsilon: float = 1.0,
    delta: float = 1e-6,
    seeds: int = 100,
    resamples: int = 2000,
) -> None:
    """Print one line of CSV for every score."""
    out = csv.writer(sys.stdout)
    out.writerow([field.name for field in fields(Row)])
    for name in names.split(","):
        table = load_dataset(data, name, MOST_ROWS)
        for adjacency in ADJACENCIES:
            for row in study(table, adjacency, Budget(epsilon, delta), seeds, resamples):
                out.writerow(
                    f"{value:.4g}" if isinstance(value, float) else value for value in vars(row).values()
                )
                sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
