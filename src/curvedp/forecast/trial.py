"""A synthetic task of a declared shape, and private fits of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from curvedp import catalogue
from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.forecast.intervals import fewest_rows
from curvedp.forecast.population import SEED, TEST_ROWS, Population, problem_of
from curvedp.forecast.results import Spread
from curvedp.losses import Loss
from curvedp.mechanisms.base import Estimate
from curvedp.neighbours import Adjacency
from curvedp.plans import Plan
from curvedp.problem import Problem
from curvedp.progress import heard
from curvedp.randomness import generator
from curvedp.release import execute
from curvedp.rows import make_rows
from curvedp.rows.base import Layout, Moments, Rows
from curvedp.rows.reductions import VectorOf

SPREAD = 0.125  # variance of a target in [−1, 1], explained and not
BEST = 0.5  # the share of it that is explained, unless told otherwise
MARGIN = 2.0  # standard deviation of the log-odds between two synthetic classes, unless told otherwise
SEARCH_STEPS = 4


@dataclass(frozen=True, eq=False)
class Trial:
    """Features of a population, a linear signal, and a target that follows it; `best` is the signal's θ."""

    population: Population
    problem: Problem
    y: FloatArray
    best: FloatArray

    @classmethod
    def of(cls, population: Population, adjacency: Adjacency, best_score: float | None = None) -> Trial:
        """The score without privacy is about `best_score`, an R² or an accuracy."""
        random = generator(SEED + 3)
        mapped = population.columns.apply(population.X)
        K = population.classes
        outputs = K if K > 2 else 1
        theta = random.standard_normal((mapped.shape[1], outputs))
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
        problem = problem_of(population.columns, K, adjacency, population.unit)
        return cls(population, problem, y, theta)

    @property
    def d(self) -> int:
        return self.population.columns.d

    @property
    def task(self) -> catalogue.Task:
        return self.population.task

    def table(self, rows: float) -> Rows:
        """A training table of this many rows, one for each person where persons are protected."""
        X, columns = self.population.X, self.population.columns
        n = min(max(1, round(rows)), len(X) - TEST_ROWS)
        unit = None if self.problem.domain.unit is None else np.arange(n)
        return Repeated(make_rows(X[:n], self.y[:n], self.problem.domain, columns, unit), rows / n)

    def score(self, theta: FloatArray) -> float:
        """R² of predictions clipped to the public range, or expected accuracy, on fresh rows."""
        y, mapped = self.y[-TEST_ROWS:], self.population.columns.apply(self.population.X[-TEST_ROWS:])
        margins = mapped @ theta
        if self.task == "regression":
            return float(1.0 - np.mean((y - np.clip(margins[:, 0], -1.0, 1.0)) ** 2) / np.var(y))
        chances = _probabilities(mapped @ self.best)
        predicted = np.argmax(_probabilities(margins), axis=1)
        return float(np.mean(chances[np.arange(TEST_ROWS), predicted]))

    @property
    def nonprivate(self) -> float:
        return self.score(self.best)

    @property
    def constant(self) -> float:
        """The score of the best answer that ignores the features."""
        if self.task == "regression":
            return 0.0
        mapped = self.population.columns.apply(self.population.X[-TEST_ROWS:])
        return float(np.max(np.mean(_probabilities(mapped @ self.best), axis=0)))

    def scores(self, plan: Plan[Rows, Estimate], rows: float, runs: int) -> FloatArray:
        """The scores of `runs` private fits of a table with this many rows; their noise differs."""
        table = self.table(rows)
        with heard(None):
            fits = (execute(plan, table, random_state=SEED + 1 + k).value for k in range(runs))
            return np.array([self.score(fit.theta) for fit in fits])

    def spread(self, plan: Plan[Rows, Estimate], rows: float, runs: int) -> Spread:
        """The median of their scores, and where eight of ten lie."""
        return Spread.of(self.scores(plan, rows, runs))

    def share(self, score: float) -> float:
        """How much of what can be learned the score keeps: 0 the constant answer, 1 no privacy."""
        return (score - self.constant) / (self.nonprivate - self.constant)

    def rows_needed(self, plan: Plan[Rows, Estimate], runs: int) -> int | None:
        """The fewest rows (to 10 %, two digits) at which a private fit keeps half of what can be learned."""

        def enough(rows: float) -> bool:
            return self.share(float(np.median(self.scores(plan, rows, runs)))) >= 0.5

        return fewest_rows(enough, SEARCH_STEPS)


@dataclass(frozen=True, eq=False)
class Repeated:
    """`base` with every record counted `times` times (a positive real): a larger table of the same kind."""

    base: Rows
    times: float

    @property
    def layout(self) -> Layout:
        return self.base.layout

    @property
    def d(self) -> int:
        return self.base.d

    @property
    def magnitude(self) -> float:
        return self.base.magnitude

    def count(self) -> int:
        return round(self.times * self.base.count())

    def moments(self) -> Moments:
        m = self.base.moments()
        return Moments(self.times * m.xx, self.times * m.xy, self.times * m.yy, self.times * m.error)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        return self.times * self.base.gradient_sum(loss, theta, clip)

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        return self.times * self.base.hessian_sum(loss, theta, clip)

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        return self.times * self.base.curvature_sum(loss, theta, bound, clip)

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        return self.times * self.base.score_sum(loss, theta, clip)

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        return self.times * self.base.gradient_norm_histogram(loss, theta, edges)

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        return self.times * self.base.norm_histogram(edges)

    def vector_sum(self, of: VectorOf, size: int, clip: float) -> FloatArray:
        return self.times * self.base.vector_sum(of, size, clip)

    def column_cells(self, columns: Sequence[int]) -> FloatArray:
        return self.times * self.base.column_cells(columns)

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Repeated:
        return Repeated(self.base.in_metric(metric, bound), self.times)

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        return self.times * self.base.value_sum(loss, theta, clip)

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        return self.times * self.base.gradient_error(loss, theta)


def _probabilities(margins: FloatArray) -> FloatArray:
    """Of every class; one margin is that of the second of two."""
    several = margins if margins.shape[1] > 1 else np.hstack([np.zeros_like(margins), margins])
    return np.asarray(softmax(several, axis=1))


def _steepness(margins: FloatArray, accuracy: float | None) -> float:
    """The factor of unit margins at which the best answer is right that often."""
    usual = MARGIN if margins.shape[1] == 1 else MARGIN / math.sqrt(2.0)
    if accuracy is None:
        return usual

    def short(log_factor: float) -> float:
        return float(np.mean(np.max(_probabilities(math.exp(log_factor) * margins), axis=1))) - accuracy

    least, most = math.log(1e-3), math.log(1e3)
    if not short(least) < 0.0 < short(most):
        raise InvalidInput("an accuracy without privacy must lie between that of guessing and 1")
    return math.exp(float(brentq(short, least, most)))
