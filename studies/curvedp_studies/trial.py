"""Private fits of synthetic tables of a declared shape, and their scores.

Records are made of declared bounds and levels, never of data. A larger table of the same distribution is the
same table with every record counted several times.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, softmax

from curvedp.arrays import FloatArray
from curvedp.data.columns import Categorical, Ignored
from curvedp.data.dates import Boolean, Date
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.data.rows.base import Moments, Rows
from curvedp.errors import CalibrationFailed, InvalidInput, heard
from curvedp.mechanisms.base import Estimate, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.planning import SEED, Columns, declared, fewest_rows, problem_of
from curvedp.plans import Plan
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.problems import Problem
from curvedp.problems.losses.margin import Squared
from curvedp.randomness import generator
from curvedp.release import catalogue
from curvedp.release.door import execute

SEARCH_STEPS = 4
BASE_ROWS = 2_000
TEST_ROWS = 2_000
# Columns fill a part of their public bounds, off the middle, and move together, as those of real tables do.
PLACE, WIDTH, SHARED = 0.4, 0.25, 0.4
SPREAD = 0.125  # variance of a target in [−1, 1], explained and not
BEST = 0.5  # the share of it that is explained, unless told otherwise
MARGIN = 2.0  # standard deviation of the log-odds between two synthetic classes, unless told otherwise


@dataclass(frozen=True)
class Spread:
    """Scores of simulated runs: eight of ten lie between `low` and `high`, half of them above `median`.

    Attributes
    ----------
    low, median, high : float
        The 10 %, 50 % and 90 % quantiles.
    """

    low: float
    median: float
    high: float

    @property
    def words(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} … {self.high:.3f})"

    def ties(self, other: Spread) -> bool:
        """Whether one median lies where eight of ten runs of the other do."""
        return other.low <= self.median <= other.high or self.low <= other.median <= self.high


@dataclass(frozen=True, eq=False)
class Trial:
    """Encoded records of a declared shape and a target that follows `best`, a linear signal."""

    X: FloatArray
    columns: ColumnMap
    problem: Problem
    y: FloatArray
    best: FloatArray

    @classmethod
    def of(
        cls,
        features: Columns,
        task: catalogue.Task = "regression",
        adjacency: Adjacency = "replace",
        *,
        unit: str | None = None,
        best_score: float | None = None,
    ) -> Trial:
        """So many numeric columns, or those of a schema, read as those of a table are.

        The score without privacy is about `best_score`, an R² or an accuracy.
        """
        columns, K, unit = declared(features, task, unit)
        X, random = _records(features, columns.n_inputs), generator(SEED + 3)
        mapped = columns.apply(X)
        theta = random.standard_normal((mapped.shape[1], K if K > 2 else 1))
        theta[-1] = 0.0
        theta /= np.maximum(np.std(mapped @ theta, axis=0), 1e-12)
        theta[-1] = -np.mean(mapped @ theta, axis=0)
        if K:
            theta = theta * _steepness(mapped @ theta, best_score)
            chances = np.cumsum(_probabilities(mapped @ theta), axis=1)
            index = np.sum(random.random((len(mapped), 1)) > chances[:, :-1], axis=1).astype(np.float64)
            y = 2.0 * index - 1.0 if K == 2 else index
        else:
            share = BEST if best_score is None else best_score
            if not 0.0 < share < 1.0:
                raise InvalidInput("an R² without privacy must lie strictly between 0 and 1")
            theta = theta * math.sqrt(share * SPREAD)
            noise = math.sqrt((1.0 - share) * SPREAD) * random.standard_normal(len(mapped))
            y = np.clip((mapped @ theta)[:, 0] + noise, -1.0, 1.0)
        return cls(X, columns, problem_of(columns, K, adjacency, unit), y, theta)

    @property
    def is_regression(self) -> bool:
        return isinstance(self.problem.loss, Squared)

    @property
    def score_name(self) -> str:
        return "R²" if self.is_regression else "accuracy"

    def plan(self, mechanism: str, accounting: str, budget: Budget) -> Plan[Rows, Estimate]:
        """As a default fit has it: with intervals where there can be some."""
        chosen, of = catalogue.mechanism(mechanism, accounting=accounting), (self.problem, self.columns.d)
        try:
            if isinstance(chosen, Recentered):
                chosen = replace(chosen, coding=self.columns.coding)
                with suppress(InvalidInput):
                    return make_plan(replace(chosen, inference=True), *of, budget)
            return make_plan(chosen, *of, budget)
        except ArithmeticError:
            raise CalibrationFailed("no noise can be worked out this far from epsilon = 1") from None

    def table(self, rows: float) -> Rows:
        """A training table of this many rows, one for each person where persons are protected."""
        n = min(max(1, round(rows)), len(self.X) - TEST_ROWS)
        unit = None if self.problem.domain.unit is None else np.arange(n)
        base = make_rows(self.X[:n], self.y[:n], self.problem.domain, self.columns, unit)
        return cast(Rows, Repeated(base, rows / n))

    def score(self, theta: FloatArray) -> float:
        """R² of predictions clipped to the public range, or expected accuracy, on fresh rows."""
        y, margins = self.y[-TEST_ROWS:], self._fresh @ theta
        if self.is_regression:
            return float(1.0 - np.mean((y - np.clip(margins[:, 0], -1.0, 1.0)) ** 2) / np.var(y))
        predicted = np.argmax(_probabilities(margins), axis=1)
        return float(np.mean(_probabilities(self._fresh @ self.best)[np.arange(TEST_ROWS), predicted]))

    @cached_property
    def _fresh(self) -> FloatArray:
        return self.columns.apply(self.X[-TEST_ROWS:])

    @property
    def nonprivate(self) -> float:
        return self.score(self.best)

    @property
    def constant(self) -> float:
        """The score of the best answer that ignores the features."""
        if self.is_regression:
            return 0.0
        return float(np.max(np.mean(_probabilities(self._fresh @ self.best), axis=0)))

    def spread(self, plan: Plan[Rows, Estimate], rows: float, runs: int) -> Spread:
        """Of the scores of `runs` private fits of a table with this many rows; their noise differs."""
        table = self.table(rows)
        with heard(None):
            fits = (execute(plan, table, random_state=SEED + 1 + k).value for k in range(runs))
            scores = [self.score(fit.theta) for fit in fits]
        return Spread(*np.quantile(scores, (0.1, 0.5, 0.9)).tolist())

    def share(self, score: float) -> float:
        """How much of what can be learned the score keeps: 0 the constant answer, 1 no privacy."""
        return (score - self.constant) / (self.nonprivate - self.constant)

    def rows_needed(self, plan: Plan[Rows, Estimate], runs: int) -> int | None:
        """The fewest rows (to 10 %, two digits) at which a private fit keeps half of what can be learned."""
        return fewest_rows(lambda n: self.share(self.spread(plan, n, runs).median) >= 0.5, SEARCH_STEPS)


class Repeated:
    """`base` with every record counted `times` times (a positive real): all that `Rows` give are sums."""

    def __init__(self, base: Rows, times: float) -> None:
        self.base, self.times = base, times
        self.layout, self.d, self.magnitude = base.layout, base.d, base.magnitude

    def count(self) -> int:
        return round(self.times * self.base.count())

    def moments(self) -> Moments:
        m = self.base.moments()
        return Moments(self.times * m.xx, self.times * m.xy, self.times * m.yy, self.times * m.error)

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Repeated:
        return Repeated(self.base.in_metric(metric, bound), self.times)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Any other sum of the base, so many times."""
        of_base = getattr(self.base, name)
        return lambda *args, **options: self.times * of_base(*args, **options)


def _records(features: Columns, width: int) -> FloatArray:
    """Encoded records in user units, enough for `width` coefficients."""
    if isinstance(features, int):
        latent = _latent(features, width)
        places = generator(SEED + 1).uniform(-PLACE, PLACE, latent.shape[1])
        return np.clip(places + WIDTH * latent, -1.0, 1.0)
    raw = [column for column in features.columns if not isinstance(column, Ignored)]
    latent = _latent(len(raw), width)
    cells = {column.name: _cells(column, z) for column, z in zip(raw, latent.T, strict=True)}
    return np.asarray(features.read(cells))


def _latent(columns: int, width: int) -> FloatArray:
    """Standard normal columns that move together."""
    random = generator(SEED)
    n = max(BASE_ROWS, 20 * width) + TEST_ROWS
    common, own = random.standard_normal((n, 1)), random.standard_normal((n, columns))
    return np.asarray(math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own)


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


def _probabilities(margins: FloatArray) -> FloatArray:
    """Of every class; one margin is that of the second of two."""
    several = margins if margins.shape[1] > 1 else np.hstack([np.zeros_like(margins), margins])
    return np.asarray(softmax(several, axis=1))


def _steepness(margins: FloatArray, accuracy: float | None) -> float:
    """The factor of unit margins at which the best answer is right that often."""
    if accuracy is None:
        return MARGIN if margins.shape[1] == 1 else MARGIN / math.sqrt(2.0)

    def short(log_factor: float) -> float:
        return float(np.mean(np.max(_probabilities(math.exp(log_factor) * margins), axis=1))) - accuracy

    least, most = math.log(1e-3), math.log(1e3)
    if not short(least) < 0.0 < short(most):
        raise InvalidInput("an accuracy without privacy must lie between that of guessing and 1")
    return math.exp(float(brentq(short, least, most)))
