"""Real tables for the comparison: a folder of .npz + .json pairs, or of .csv + .toml (schema) pairs.

Preprocessing is public and the same for every mechanism: values clipped to their stated bounds, the stated
log1p columns transformed, numbers mapped onto [−1, 1], one-hot blocks centred by 1/K, an intercept column.

Tables in the folder's subfolder `unit` come scaled (‖x‖ ≤ 1, |y| ≤ 1, no intercept), with their own test
rows: X, y, Xt, yt. Theirs are the usual conventions of private least squares: δ = 1/n², errors against
predicting 0. `generated` and `generated_class` are drawn, as many records as are asked for.

A name may say more: `wine@500` is fitted to 500 records of wine, `wine~10` has columns whose declared ranges
are ten times as wide as those of wine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from curvedp.arrays import FloatArray
from curvedp.data import ClassTarget, NumericTarget, Schema
from curvedp.data.mapping import Coding, ColumnMap
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Loss, Multinomial, Squared
from curvedp.randomness import generator
from curvedp_studies.resume import seed_of

Kind = Literal["regression", "binary", "multiclass"]
UNIT = "unit"
GENERATED, GENERATED_CLASS = "generated", "generated_class"
DELTA = 1e-6
MOST_TESTS = 20_000  # test rows of a table of which so many are fitted


@dataclass(frozen=True, eq=False)
class Dataset:
    """Mapped records x (d columns, intercept last) and targets: in [−1, 1], ±1, or class indices.

    Every seed splits anew: `n_test` rows for the test, or a fifth; `n_train` of the others to fit, or all.
    A score of numbers is 1 − MSE/MSE of a constant: the mean of the test rows (then it is R²), or 0 where
    `from_zero`.
    """

    name: str
    kind: Kind
    X: FloatArray = field(repr=False)
    y: FloatArray = field(repr=False)
    x_norm: float
    n_classes: int = 2
    n_test: int | None = None
    n_train: int | None = None
    from_zero: bool = False
    delta: float = DELTA
    coding: Coding = field(default_factory=Coding)

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    @property
    def loss(self) -> Loss:
        if self.kind == "regression":
            return Squared()
        return Logistic() if self.kind == "binary" else Multinomial(self.n_classes)

    @property
    def unknowns(self) -> int:
        """d·ρ, the denominator of κ."""
        return self.d * self.loss.rank

    @property
    def problem(self) -> Problem:
        """Under add_remove, without regularizer or constraint."""
        return self.problem_under("add_remove")

    def problem_under(self, adjacency: Adjacency) -> Problem:
        return Problem(self.loss, domain=Domain(x_norm=self.x_norm, y_bound=1.0, adjacency=adjacency))

    def split(self, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(train, test) of shuffled rows."""
        order = generator(seed_of("split", self.name, seed)).permutation(len(self.y))
        test = len(self.y) // 5 if self.n_test is None else self.n_test
        last = None if self.n_train is None else test + self.n_train
        return order[test:last], order[:test]

    def score(self, margins: FloatArray, y: FloatArray) -> float:
        """1 − MSE/MSE of the constant, predictions clipped to the public range; or accuracy, ties shared."""
        if self.kind == "regression":
            constant = 0.0 if self.from_zero else float(np.mean(y))
            error = np.mean((np.clip(margins[:, 0], -1.0, 1.0) - y) ** 2)
            return float(1.0 - error / np.mean((y - constant) ** 2))
        if self.kind == "binary":
            return float(np.mean(0.5 + 0.5 * np.sign(margins[:, 0]) * y))
        top = margins == margins.max(axis=1, keepdims=True)
        return float(np.mean(top[np.arange(len(y)), y.astype(int)] / top.sum(axis=1)))

    def auc(self, margins: FloatArray, y: FloatArray) -> float:
        """P(margin of a positive > margin of a negative), ties half; NaN unless binary."""
        return float(roc_auc_score(y > 0, margins[:, 0])) if self.kind == "binary" else float("nan")

    def log_loss(self, margins: FloatArray, y: FloatArray) -> float:
        """Mean of −log p(y); NaN for numbers."""
        if self.kind == "regression":
            return float("nan")
        if self.kind == "binary":
            return float(np.mean(np.logaddexp(0.0, -y * margins[:, 0])))
        return float(log_loss(y, self.loss.inverse_link(margins), labels=np.arange(self.n_classes)))


def dataset_names(folder: Path) -> list[str]:
    """Every table of the folder, by name: NAME.json beside NAME.npz, NAME.toml beside NAME.csv, unit/NAME."""
    pairs = (("json", "npz"), ("toml", "csv"))
    names = {
        path.stem
        for description, data in pairs
        for path in folder.glob(f"*.{description}")
        if path.with_suffix(f".{data}").exists()
    } | {f"{UNIT}/{path.stem}" for path in (folder / UNIT).glob("*.npz")}
    if not names:
        raise InvalidInput(
            f"{folder} holds no table: it needs NAME.npz with NAME.json, or NAME.csv with NAME.toml"
        )
    return sorted(names)


@lru_cache(maxsize=2)
def load_dataset(folder: Path, name: str, most_rows: int) -> Dataset:
    """One table, at most `most_rows` rows of it, drawn at random; all where the name says how many to fit."""
    base, _, wider = name.partition("~")
    base, _, records = base.partition("@")
    drawn = base in (GENERATED, GENERATED_CLASS)
    dataset = _generated(base, int(records or most_rows)) if drawn else _read(folder, base)
    if records:
        n_test = min(len(dataset.y) // 5, MOST_TESTS)
        if int(records) > len(dataset.y) - n_test:
            raise InvalidInput(f"{base} has {len(dataset.y)} records: too few for {name}")
        dataset = replace(dataset, n_train=int(records), n_test=n_test)
    elif len(dataset.y) > most_rows and not dataset.from_zero:
        kept = generator(seed_of("rows", base)).permutation(len(dataset.y))[:most_rows]
        dataset = replace(dataset, X=dataset.X[kept], y=dataset.y[kept])
    if wider:
        X = dataset.X.copy()
        X[:, list(dataset.coding.numbers)] /= float(wider)
        dataset = replace(dataset, X=X)
    return dataset


def training_records(folder: Path, name: str) -> int:
    """How many records of a table there are to fit, its test rows apart."""
    records = len(_read(folder, name).y)
    return records - min(records // 5, MOST_TESTS)


@lru_cache(maxsize=1)
def _read(folder: Path, name: str) -> Dataset:
    if (folder / f"{name}.json").exists():
        return _from_arrays(folder / f"{name}.npz", json.loads((folder / f"{name}.json").read_text()))
    if (folder / f"{name}.toml").exists():
        return _from_csv(folder / f"{name}.csv", Schema.load(folder / f"{name}.toml"))
    if name.startswith(f"{UNIT}/") and (folder / f"{name}.npz").exists():
        return _scaled(folder / f"{name}.npz", name)
    raise InvalidInput(f"no table named {name!r} in {folder}; there are {', '.join(dataset_names(folder))}")


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
    blocks, truths, at = [], [], int(meta["d_numeric"])
    for levels in (entry["levels"] for entry in meta["categorical"].values()):
        width = 1 if len(levels) == 2 else len(levels)  # two levels are one 0/1 column
        if width > 1:
            blocks.append(tuple(range(at, at + width)))
        else:
            truths.append(at)
        at += width
    columns = ColumnMap.from_bounds(bounds[:, 0], bounds[:, 1], one_hot=blocks, switched=truths)
    kind: Kind = meta["task"]
    n_classes = len(meta["classes"] or ()) or 2
    if kind == "regression":
        y = NumericTarget(*meta["y_bounds"]).encode(y)
    elif kind == "binary":
        y = 2.0 * y - 1.0
    X = columns.apply(X)
    return Dataset(path.stem, kind, X, y, columns.norm_bound, n_classes, coding=columns.coding)


def _scaled(path: Path, name: str) -> Dataset:
    """A table of the subfolder `unit`."""
    with np.load(path, allow_pickle=False) as arrays:
        X = np.vstack([arrays["X"], arrays["Xt"]]).astype(np.float64)
        y = np.concatenate([arrays["y"].ravel(), arrays["yt"].ravel()]).astype(np.float64)
        n = len(arrays["y"])
    return Dataset(name, "regression", X, y, 1.0, n_test=len(y) - n, from_zero=True, delta=1.0 / n**2)


def _generated(name: str, records: int) -> Dataset:
    """Eight numbers, three of them skewed, and six levels of 45 to 1 %; a class of 10 %, or R² about 0.5."""
    random = generator(seed_of(name))
    n = records + max(MOST_TESTS, records // 5)
    normal = random.standard_normal((n, 8))
    X = np.clip(normal, -4.0, 4.0) / 4.0
    X[:, :3] = np.minimum(np.exp(normal[:, :3]), 8.0) / 4.0 - 1.0
    level = random.choice(6, n, p=[0.45, 0.30, 0.15, 0.07, 0.02, 0.01])
    X = np.hstack([X, np.eye(6)[level]])
    columns = ColumnMap.from_bounds(
        np.r_[np.full(8, -1.0), np.zeros(6)], np.ones(14), one_hot=[tuple(range(8, 14))]
    )
    signal = X @ random.uniform(-1.0, 1.0, 14)
    signal = (signal - signal.mean()) / signal.std()
    kind: Kind = "binary" if name == GENERATED_CLASS else "regression"
    if kind == "binary":
        y = np.where(random.random(n) < 1.0 / (1.0 + np.exp(2.7 - 1.2 * signal)), 1.0, -1.0)
    else:
        y = np.clip(0.2 * (signal + random.standard_normal(n)), -1.0, 1.0)
    return Dataset(name, kind, columns.apply(X), y, columns.norm_bound, coding=columns.coding)


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
    return Dataset(path.stem, kind, X, y[scored], columns.norm_bound, n_classes, coding=columns.coding)


def _signed_log(values: FloatArray) -> FloatArray:
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))
