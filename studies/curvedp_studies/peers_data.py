"""Real tables for the comparison: a folder of .npz + .json pairs, or of .csv + .toml (schema) pairs.

Preprocessing is public and the same for every mechanism: values clipped to their stated bounds, the stated
log1p columns transformed, numbers mapped onto [−1, 1], one-hot blocks centred by 1/K, an intercept column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Logistic, Loss, Multinomial, Squared
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.schema import ClassTarget, NumericTarget, Schema
from curvedp_studies.peers_gradient import area_under_curve
from curvedp_studies.resume import seed_of

Kind = Literal["regression", "binary", "multiclass"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Mapped records x (d columns, intercept last) and targets: in [−1, 1], ±1, or class indices."""

    name: str
    kind: Kind
    X: FloatArray = field(repr=False)
    y: FloatArray = field(repr=False)
    x_norm: float
    n_classes: int = 2

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    @property
    def loss(self) -> Loss:
        if self.kind == "regression":
            return Squared()
        return Logistic() if self.kind == "binary" else Multinomial(self.n_classes)

    @property
    def problem(self) -> Problem:
        """Under add_remove, without regularizer or constraint."""
        return Problem(self.loss, domain=Domain(x_norm=self.x_norm, y_bound=1.0, adjacency="add_remove"))

    def split(self, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(train, test): 80 % and 20 % of shuffled rows."""
        order = generator(seed_of("split", self.name, seed)).permutation(len(self.y))
        test = len(self.y) // 5
        return order[test:], order[:test]

    def score(self, margins: FloatArray, y: FloatArray) -> float:
        """R² of predictions clipped to the public range, or accuracy; margins of shape (n, K)."""
        if self.kind == "regression":
            return float(r2_score(y, np.clip(margins[:, 0], -1.0, 1.0)))
        predicted = np.sign(margins[:, 0]) if self.kind == "binary" else np.argmax(margins, axis=1)
        return float(np.mean(predicted == y))

    def auc(self, margins: FloatArray, y: FloatArray) -> float:
        """P(margin of a positive > margin of a negative), ties half; NaN unless binary."""
        return area_under_curve(margins[:, 0], y > 0) if self.kind == "binary" else float("nan")


def dataset_names(folder: Path) -> list[str]:
    """Every table of the folder, by name: NAME.json beside NAME.npz, or NAME.toml beside NAME.csv."""
    pairs = (("json", "npz"), ("toml", "csv"))
    names = {
        path.stem
        for description, data in pairs
        for path in folder.glob(f"*.{description}")
        if path.with_suffix(f".{data}").exists()
    }
    if not names:
        raise InvalidInput(
            f"{folder} holds no table: it needs NAME.npz with NAME.json, or NAME.csv with NAME.toml"
        )
    return sorted(names)


@lru_cache(maxsize=2)
def load_dataset(folder: Path, name: str, most_rows: int) -> Dataset:
    """One table, at most `most_rows` rows of it, drawn at random."""
    if (folder / f"{name}.json").exists():
        dataset = _from_arrays(folder / f"{name}.npz", json.loads((folder / f"{name}.json").read_text()))
    elif (folder / f"{name}.toml").exists():
        dataset = _from_csv(folder / f"{name}.csv", Schema.load(folder / f"{name}.toml"))
    else:
        raise InvalidInput(
            f"no table named {name!r} in {folder}; there are {', '.join(dataset_names(folder))}"
        )
    if len(dataset.y) <= most_rows:
        return dataset
    kept = generator(seed_of("rows", name)).permutation(len(dataset.y))[:most_rows]
    return Dataset(name, dataset.kind, dataset.X[kept], dataset.y[kept], dataset.x_norm, dataset.n_classes)


def _from_arrays(path: Path, meta: Mapping[str, Any]) -> Dataset:
    """Xnum (raw units), Xbin (one-hot), y; the description states bounds, levels and log1p columns."""
    with np.load(path, allow_pickle=False) as arrays:
        X = np.hstack([arrays["Xnum"].astype(np.float64), arrays["Xbin"].astype(np.float64)])
        y = arrays["y"].astype(np.float64)
    bounds = np.array(meta["bounds"], dtype=np.float64)
    X = np.clip(X, bounds[:, 0], bounds[:, 1])
    for column in meta["log1p_columns"]:
        j = meta["feature_names"].index(column)
        X[:, j], bounds[j] = _signed_log(X[:, j]), _signed_log(bounds[j])
    blocks, at = [], int(meta["d_numeric"])
    for levels in (entry["levels"] for entry in meta["categorical"].values()):
        width = 1 if len(levels) == 2 else len(levels)  # two levels are one 0/1 column
        if width > 1:
            blocks.append(tuple(range(at, at + width)))
        at += width
    columns = ColumnMap.from_bounds(bounds[:, 0], bounds[:, 1], one_hot=blocks)
    kind: Kind = meta["task"]
    n_classes = len(meta["classes"] or ()) or 2
    if kind == "regression":
        y = NumericTarget(*meta["y_bounds"]).encode(y)
    elif kind == "binary":
        y = 2.0 * y - 1.0
    return Dataset(path.stem, kind, columns.apply(X), y, columns.norm_bound, n_classes)


def _from_csv(path: Path, schema: Schema) -> Dataset:
    """The records whose target is declared: the others have nothing to be scored by."""
    target, columns = schema.declared_target, schema.column_map()
    y = target.encode(schema.target_cells(path))
    scored = np.isfinite(y)
    X = columns.apply(schema.read(path))[scored]
    n_classes = len(target.classes) if isinstance(target, ClassTarget) else 2
    kind: Kind = "regression" if isinstance(target, NumericTarget) else "multiclass"
    if kind == "multiclass" and n_classes == 2:
        kind = "binary"
    return Dataset(path.stem, kind, X, y[scored], columns.norm_bound, n_classes)


def _signed_log(values: FloatArray) -> FloatArray:
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))
