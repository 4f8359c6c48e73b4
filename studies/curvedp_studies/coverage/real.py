"""Real populations: the table of the demo, and tables of a folder with their public bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.cli.workflow import SCHEMA
from curvedp.data import NumericTarget
from curvedp.data.mapping import ColumnMap
from curvedp.errors import InvalidInput
from curvedp_studies.coverage.catalogue import CPS, RARE
from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.synthetic import rare_levels
from curvedp_studies.resume import seed_of

MOST_RECORDS = 40_000
_NAMES = {"hispanic": "hisp", "married": "marr"}  # columns of causaldata that the demo calls by another name


def real(name: str, folder: Path | None = None) -> Population:
    """The table of the demo, the generated one with rare levels, or NAME.npz with NAME.json of `folder`."""
    if name == CPS:
        return _cps()
    if name == RARE:
        X, y, blocks = rare_levels()
        low = np.r_[np.full(6, -1.0), np.zeros(X.shape[1] - 6)]
        return _coded(RARE, "logistic", X, y, ColumnMap.from_bounds(low, np.ones(len(low)), one_hot=blocks))
    if folder is None or not (folder / f"{name}.json").exists():
        raise InvalidInput(f"there is no population {name!r}: pass --data, the folder with {name}.json")
    return _from_folder(folder / name)


def _cps() -> Population:
    from causaldata import cps_mixtape

    frame = cps_mixtape.load_pandas().data
    X = np.column_stack([frame[_NAMES.get(name, name)].to_numpy(np.float64) for name in SCHEMA.feature_names])
    y = SCHEMA.declared_target.encode(frame[SCHEMA.target].to_numpy(np.float64))
    return _coded(CPS, "squared", X, y, SCHEMA.column_map())


def _from_folder(path: Path) -> Population:
    """Xnum in raw units, Xbin 0/1 levels, y; the description states bounds and levels."""
    meta: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    if meta["task"] not in ("regression", "binary"):
        raise InvalidInput(f"{path.name}: intervals need a number or two classes to predict")
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        X = np.hstack([arrays["Xnum"].astype(np.float64), arrays["Xbin"].astype(np.float64)])
        y = arrays["y"].astype(np.float64)
    kept = np.random.default_rng(seed_of("records", path.name)).permutation(len(y))[:MOST_RECORDS]
    low, high = np.array(meta["bounds"], dtype=np.float64).T
    blocks, truths, at = [], [], int(meta["d_numeric"])
    for levels in (entry["levels"] for entry in meta["categorical"].values()):
        width = 1 if len(levels) == 2 else len(levels)  # two levels are one 0/1 column
        if width > 1:
            blocks.append(tuple(range(at, at + width)))
        else:
            truths.append(at)
        at += width
    columns = ColumnMap.from_bounds(low, high, one_hot=blocks, switched=truths)
    if meta["task"] == "regression":
        targets = NumericTarget(*meta["y_bounds"]).encode(y[kept])
        return _coded(path.name, "squared", X[kept], targets, columns)
    return _coded(path.name, "logistic", X[kept], 2.0 * y[kept] - 1.0, columns)


def _coded(name: str, loss: str, X: FloatArray, y: FloatArray, columns: ColumnMap) -> Population:
    return Population.of(name, loss, columns.apply(X), y, columns.norm_bound, columns.coding)
