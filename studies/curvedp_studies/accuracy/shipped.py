"""Tables that packages ship; they take no part in a choice. Bounds are rounded outwards to one digit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data import NumericTarget
from curvedp.data.mapping import ColumnMap
from curvedp_studies.peers_data import Dataset, Kind

PREFIX = "shipped/"
_LEVELS_AT_MOST = 40
Frame = Any  # pandas.DataFrame


@dataclass(frozen=True)
class Shipped:
    """Where a table comes from, and what is predicted from which columns."""

    load: Callable[[], Frame]
    target: str
    kind: Kind
    drop: tuple[str, ...] = ()

    def dataset(self, name: str) -> Dataset:
        frame = self.load().drop(columns=list(self.drop)).dropna()
        target = frame.pop(self.target)
        X, columns = _coded(frame)
        y, n_classes = _target(target, self.kind)
        norm, coding = columns.norm_bound, columns.coding
        return Dataset(PREFIX + name, self.kind, columns.apply(X), y, norm, n_classes, coding=coding)


def _coded(frame: Frame) -> tuple[FloatArray, ColumnMap]:
    """Numbers, 0/1 columns and one-hot blocks; columns with too many levels are left out."""
    columns: list[FloatArray] = []
    bounds: list[tuple[float, float]] = []
    blocks: list[tuple[int, ...]] = []
    truths: list[int] = []
    for name in frame:
        values = frame[name]
        levels = sorted(values.astype(str).unique())
        if len(levels) == 2:
            truths.append(len(columns))
            columns.append((values.astype(str) == levels[1]).to_numpy(float))
            bounds.append((0.0, 1.0))
        elif values.dtype.kind in "ifu":
            columns.append(values.to_numpy(float))
            bounds.append(outwards(float(values.min()), float(values.max())))
        elif 2 < len(levels) <= _LEVELS_AT_MOST:
            blocks.append(tuple(range(len(columns), len(columns) + len(levels))))
            columns += [(values.astype(str) == level).to_numpy(float) for level in levels]
            bounds += [(0.0, 1.0)] * len(levels)
    low, high = np.array(bounds).T
    return np.stack(columns, axis=1), ColumnMap.from_bounds(low, high, one_hot=blocks, switched=truths)


def _target(values: Any, kind: Kind) -> tuple[FloatArray, int]:
    if kind == "regression":
        low, high = outwards(float(values.min()), float(values.max()))
        return NumericTarget(low, high).encode(values.to_numpy(float)), 2
    levels = sorted(values.unique())
    codes = np.array([levels.index(value) for value in values], dtype=float)
    return (2.0 * codes - 1.0, 2) if kind == "binary" else (codes, len(levels))


def outwards(low: float, high: float) -> tuple[float, float]:
    """Bounds as one states them: multiples of the range's power of ten."""
    unit = 10.0 ** math.floor(math.log10(max(high - low, 1e-300))) if high > low else 1.0
    rounded = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    return rounded if rounded[1] > rounded[0] else (rounded[0], rounded[0] + unit)


def _sklearn(name: str, **options: bool) -> Callable[[], Frame]:
    def load() -> Frame:
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(as_frame=True, **options).frame

    return load


def _causaldata(name: str, *columns: str) -> Callable[[], Frame]:
    def load() -> Frame:
        import causaldata

        frame = getattr(causaldata, name).load_pandas().data
        return frame[list(columns)] if columns else frame

    return load


def _statsmodels(name: str) -> Callable[[], Frame]:
    def load() -> Frame:
        from statsmodels import datasets  # type: ignore[import-untyped]

        return getattr(datasets, name).load_pandas().data

    return load


SHIPPED = {
    "diabetes": Shipped(_sklearn("diabetes", scaled=False), "target", "regression"),
    "cancer": Shipped(_sklearn("breast_cancer"), "target", "binary"),
    "digits": Shipped(_sklearn("digits"), "target", "multiclass"),
    "cultivars": Shipped(_sklearn("wine"), "target", "multiclass"),
    "cps": Shipped(_causaldata("cps_mixtape"), "re78", "regression", ("data_id",)),
    "mroz": Shipped(_causaldata("Mroz"), "lfp", "binary", ("Unnamed: 0", "lwg")),
    "nhefs": Shipped(
        _causaldata(
            "nhefs_complete",
            *("wt82_71", "qsmk", "sex", "age", "race", "education", "smokeintensity", "smokeyrs"),
            *("exercise", "active", "wt71"),
        ),
        "wt82_71",
        "regression",
    ),
    "college": Shipped(_causaldata("close_college"), "lwage", "regression"),
    "inspections": Shipped(
        _causaldata("restaurant_inspections"), "inspection_score", "regression", ("business_name",)
    ),
    "titanic": Shipped(_causaldata("titanic"), "survived", "binary"),
    "gapminder": Shipped(_causaldata("gapminder"), "lifeExp", "regression", ("country", "pop")),
    "mortgages": Shipped(_causaldata("mortgages"), "home_ownership", "binary", ("bpl",)),
    "fair": Shipped(_statsmodels("fair"), "rate_marriage", "regression"),
    "randhie": Shipped(_statsmodels("randhie"), "mdvis", "regression"),
    "anes": Shipped(_statsmodels("anes96"), "vote", "binary", ("PID", "popul")),
}
