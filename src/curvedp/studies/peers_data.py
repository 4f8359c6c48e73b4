"""Real tables for the comparison: a folder of .npz + .json pairs, or of .csv + .toml (schema) pairs.

Preprocessing is public and the same for every mechanism: values clipped to their stated bounds, the stated
log1p columns transformed, numbers mapped onto [−1, 1], one-hot blocks centred by 1/K, an intercept column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from curvedp.domain import ColumnMap, Domain, FloatArray
from curvedp.errors import InvalidInput
from curvedp.losses import Logistic, Loss, Multinomial, Squared
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.schema import Categorical, Schema
from curvedp.studies.resume import seed_of

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
            residual = np.clip(margins[:, 0], -1.0, 1.0) - y
            return float(1.0 - np.mean(residual**2) / np.var(y))
        predicted = np.sign(margins[:, 0]) if self.kind == "binary" else np.argmax(margins, axis=1)
        return float(np.mean(predicted == y))

    def auc(self, margins: FloatArray, y: FloatArray) -> float:
        """P(margin of a positive > margin of a negative), ties half; NaN unless binary."""
        if self.kind != "binary":
            return float("nan")
        _, position, counts = np.unique(margins[:, 0], return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - 0.5 * (counts - 1))[position]
        positive = y > 0
        n_positive, n_negative = int(positive.sum()), int((~positive).sum())
        if not n_positive or not n_negative:
            return float("nan")
        return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


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
    n_classes = len(meta["classes"] or ()) or 2
    return _dataset(path.stem, meta["task"], columns, X, y, meta.get("y_bounds"), n_classes)


def _from_csv(path: Path, schema: Schema) -> Dataset:
    X, y = schema.encode(path)
    columns = schema.column_map()
    target = schema.target_column
    if isinstance(target, Categorical):
        index = {level: float(i) for i, level in enumerate(target.levels)}
        codes = np.array([index[str(cell)] for cell in y])
        kind = "binary" if len(target.levels) == 2 else "multiclass"
        return _dataset(path.stem, kind, columns, X, codes, None, len(target.levels))
    return _dataset(path.stem, "regression", columns, X, y, (target.low, target.high), 2)


def _dataset(
    name: str,
    kind: str,
    columns: ColumnMap,
    X: FloatArray,
    y: FloatArray,
    y_bounds: Sequence[float] | None,
    n_classes: int,
) -> Dataset:
    mapped = columns.apply(X)
    if kind == "regression":
        if y_bounds is None:
            raise InvalidInput(f"table {name!r}: a numeric target needs public bounds")
        low, high = y_bounds
        scaled = 2.0 * (np.clip(y, low, high) - low) / (high - low) - 1.0
        return Dataset(name, "regression", mapped, scaled, columns.norm_bound)
    if kind == "binary":
        return Dataset(name, "binary", mapped, 2.0 * y - 1.0, columns.norm_bound)
    return Dataset(name, "multiclass", mapped, y, columns.norm_bound, n_classes)


def _signed_log(values: FloatArray) -> FloatArray:
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))
