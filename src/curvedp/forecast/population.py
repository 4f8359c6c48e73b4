"""Synthetic records of a declared shape: made of declared bounds and levels, never of data."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from curvedp import catalogue
from curvedp.arrays import ROWS_AT_MOST, FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Logistic, Loss, Multinomial, Squared
from curvedp.neighbours import Adjacency
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.schema import Boolean, Categorical, ClassTarget, Date, Ignored, Schema

SEED = 20_240_601  # of the synthetic table; a forecast is the same every time
BASE_ROWS = 2_000
TEST_ROWS = 2_000
FEATURES_AT_MOST = 2_000  # a synthetic table of more takes gigabytes
# Columns fill a part of their public bounds, off the middle, and move together, as those of real tables do.
PLACE, WIDTH, SHARED = 0.4, 0.25, 0.4
Columns = int | Schema


def declared(features: Columns, task: catalogue.Task, unit: str | None) -> tuple[ColumnMap, int, str | None]:
    """The columns of a fit, the classes of its target (0: it is a number), and the column of the unit."""
    if isinstance(features, int):
        check_width(features)
        bounds = np.ones(features)
        return ColumnMap.from_bounds(-bounds, bounds), 2 if task == "classification" else 0, unit
    if features.declared_offset is not None:
        raise InvalidInput("there is no forecast for counts: it is for numbers and for classes")
    check_width(len(features.feature_names))
    target = features.declared_target if features.has_target else None
    classes = len(target.classes) if isinstance(target, ClassTarget) else 0
    return features.column_map(intercept=1.0), classes, features.unit


def problem_of(columns: ColumnMap, classes: int, adjacency: Adjacency, unit: str | None) -> Problem:
    """A default fit of such a table, the target within [−1, 1] or one of so many classes."""
    loss: Loss = Squared() if classes == 0 else Logistic() if classes == 2 else Multinomial(classes)
    return Problem(loss, domain=Domain(columns.norm_bound, 1.0, adjacency, unit))


@dataclass(frozen=True, eq=False)
class Population:
    """Encoded records in user units and their map; `classes` of the target, 0 where it is a number."""

    X: FloatArray
    columns: ColumnMap
    classes: int
    unit: str | None = None

    @property
    def task(self) -> catalogue.Task:
        return "classification" if self.classes else "regression"

    @classmethod
    def of(
        cls, features: Columns, task: catalogue.Task = "regression", unit: str | None = None
    ) -> Population:
        """So many numeric columns; or those of a schema, read and encoded as those of a table are."""
        columns, classes, unit = declared(features, task, unit)
        if isinstance(features, int):
            return cls(_placed(_latent(features, features)), columns, classes, unit)
        raw = [column for column in features.columns if not isinstance(column, Ignored)]
        latent = _latent(len(raw), columns.n_inputs)
        cells = {column.name: _cells(column, z) for column, z in zip(raw, latent.T, strict=True)}
        return cls(features.read(cells), columns, classes, unit)


def check_rows(rows: int) -> None:
    """Refuse numbers of rows that no table has."""
    if not 1 <= rows <= ROWS_AT_MOST:
        raise InvalidInput(f"rows must lie between 1 and {ROWS_AT_MOST:,}")


def check_width(features: int) -> None:
    """Refuse shapes that are no table, or none that can be tried."""
    if not 1 <= features <= FEATURES_AT_MOST:
        raise InvalidInput(f"features must lie between 1 and {FEATURES_AT_MOST:,} for a forecast")


def _latent(columns: int, width: int) -> FloatArray:
    """Standard normal columns that move together; rows enough for `width` coefficients."""
    random = generator(SEED)
    n = max(BASE_ROWS, 20 * width) + TEST_ROWS
    common, own = random.standard_normal((n, 1)), random.standard_normal((n, columns))
    return np.asarray(math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own)


def _placed(latent: FloatArray) -> FloatArray:
    """Numbers in [−1, 1], each column around a place of its own."""
    places = generator(SEED + 1).uniform(-PLACE, PLACE, latent.shape[1])
    return np.clip(places + WIDTH * latent, -1.0, 1.0)


def _cells(column: Any, latent: FloatArray) -> Sequence[Any]:
    """Cells as the column declares them; of levels the k-th has a share in proportion to 1/k."""
    share = ndtr(latent)
    if isinstance(column, Categorical):
        weights = 1.0 / np.arange(1.0, len(column.levels) + 1.0)
        index = np.searchsorted(np.cumsum(weights / weights.sum())[:-1], share)
        return [column.levels[i] for i in index]
    if isinstance(column, Boolean):
        words = column.words or ("false", "true")
        return [words[int(found)] for found in share > 0.6]
    part = np.clip(0.5 + 0.5 * WIDTH * latent, 0.0, 1.0)
    if isinstance(column, Date):
        return [column.low + datetime.timedelta(days=round(column.last_day * x)) for x in part.tolist()]
    numbers: list[float] = (column.low + (column.high - column.low) * part).tolist()
    return numbers
