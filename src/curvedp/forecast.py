"""What a private fit will cost, worked out without data: noise scales, a synthetic trial, the rows it takes.

Everything here is a function of declared numbers (rows, features, ε, δ, adjacency). The trial runs the real
mechanisms on a synthetic table of the declared shape; a larger table of the same distribution is the same
table with every record counted several times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from curvedp import catalogue
from curvedp.arrays import ROWS_AT_MOST, FloatArray
from curvedp.budget import Budget
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import CalibrationFailed, InvalidInput
from curvedp.losses import Logistic, Loss, Squared
from curvedp.mechanisms.base import Estimate, FitPlan, make_plan
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.plans import Plan
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.release import execute
from curvedp.rows import make_rows
from curvedp.rows.base import Layout, Moments, Rows

CANDIDATES: tuple[tuple[str, str], ...] = (
    ("recentered", "auto"),
    ("statistics", "auto"),
    ("gradient", "auto"),
    ("qop", "directional"),
    ("qop", "spectral"),
    ("qop", "paper"),
    ("lop", "auto"),
    ("output", "auto"),
)
CURVE = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)  # the ε of a forecast's page, as multiples of the ε asked for
SEED = 20_240_601  # of the synthetic table; a forecast is the same every time
BASE_ROWS = 2_000
TEST_ROWS = 2_000
FEATURES_AT_MOST = 2_000  # a synthetic table of more takes gigabytes
FEWEST_ROWS, MOST_ROWS, GROWTH = 32, 10**9, 4.0
# Columns fill a part of their public bounds, off the middle, and move together, as those of real tables do.
PLACE, WIDTH, SHARED = 0.4, 0.25, 0.4
SIGNAL = 0.25  # standard deviation of the explained part of a target in [−1, 1]; the noise has the same
MARGIN = 2.0  # standard deviation of the log-odds of the synthetic classes
SEARCH_STEPS = 4
Step = Callable[[str], None]


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

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Repeated:
        return Repeated(self.base.in_metric(metric, bound), self.times)

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        return self.times * self.base.value_sum(loss, theta, clip)

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        return self.times * self.base.gradient_error(loss, theta)


@dataclass(frozen=True, eq=False)
class Trial:
    """A synthetic task of a declared shape: correlated features, a linear signal, as much noise as signal."""

    task: catalogue.Task
    problem: Problem
    columns: ColumnMap
    X: FloatArray
    y: FloatArray
    best: FloatArray

    @classmethod
    def of_shape(
        cls, features: int, adjacency: Adjacency, task: catalogue.Task, unit: str | None = None
    ) -> Trial:
        random = generator(SEED)
        columns = ColumnMap.from_bounds(-np.ones(features), np.ones(features))
        n = max(BASE_ROWS, 20 * features) + TEST_ROWS
        common, own = random.standard_normal((n, 1)), random.standard_normal((n, features))
        places = random.uniform(-PLACE, PLACE, features)
        X = np.clip(places + WIDTH * (math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own), -1.0, 1.0)
        theta = random.standard_normal(features)
        theta *= (SIGNAL if task == "regression" else MARGIN) / np.std(X @ theta)
        offset = -float(np.mean(X @ theta))
        margins = X @ theta + offset
        if task == "regression":
            y = np.clip(margins + SIGNAL * random.standard_normal(n), -1.0, 1.0)
        else:
            y = np.where(random.random(n) < expit(margins), 1.0, -1.0)
        loss: Loss = Squared() if task == "regression" else Logistic()
        domain = Domain(x_norm=columns.norm_bound, y_bound=1.0, adjacency=adjacency, unit=unit)
        return cls(task, Problem(loss, domain=domain), columns, X, y, np.append(theta, offset)[:, None])

    def table(self, rows: float) -> Rows:
        """A training table of this many rows, one for each person where persons are protected."""
        n = min(max(1, round(rows)), len(self.X) - TEST_ROWS)
        unit = None if self.problem.domain.unit is None else np.arange(n)
        return Repeated(make_rows(self.X[:n], self.y[:n], self.problem.domain, self.columns, unit), rows / n)

    def score(self, theta: FloatArray) -> float:
        """R² of predictions clipped to the public range, or expected accuracy, on fresh rows."""
        y, mapped = self.y[-TEST_ROWS:], self.columns.apply(self.X[-TEST_ROWS:])
        margin = (mapped @ theta)[:, 0]
        if self.task == "classification":
            return float(np.mean(expit(np.where(margin > 0, 1.0, -1.0) * (mapped @ self.best)[:, 0])))
        return float(1.0 - np.mean((y - np.clip(margin, -1.0, 1.0)) ** 2) / np.var(y))

    @property
    def nonprivate(self) -> float:
        return self.score(self.best)

    @property
    def constant(self) -> float:
        """The score of an answer that ignores the features."""
        return 0.0 if self.task == "regression" else self.score(0.0 * self.best)

    def private_score(self, plan: Plan[Rows, Estimate], rows: float, repeats: int) -> float:
        """Median score of `repeats` private fits of a table with this many rows."""
        table = self.table(rows)
        return float(
            np.median(
                [
                    self.score(execute(plan, table, random_state=SEED + 1 + k).value.theta)
                    for k in range(repeats)
                ]
            )
        )

    def share(self, score: float) -> float:
        """How much of what can be learned the score keeps: 0 the constant answer, 1 no privacy."""
        return (score - self.constant) / (self.nonprivate - self.constant)

    def rows_needed(self, plan: Plan[Rows, Estimate], repeats: int) -> int | None:
        """The fewest rows (to 10 %, two digits) at which a private fit keeps half of what can be learned."""

        def enough(rows: float) -> bool:
            return self.share(self.private_score(plan, rows, repeats)) >= 0.5

        high = float(FEWEST_ROWS)
        while not enough(high):
            high *= GROWTH
            if high > MOST_ROWS:
                return None
        low, high = math.log(high / GROWTH), math.log(high)
        for _ in range(SEARCH_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
        digits = 10 ** max(0, math.floor(high / math.log(10)) - 1)
        return int(math.ceil(math.exp(high) / digits) * digits)


@dataclass(frozen=True)
class Verdict:
    """Whether the noise dominates, in one sentence; `tone` is "good", "warn" or "bad".

    `caveats` are sentences on what the synthetic table has and the fit may not have.
    """

    rows: int
    rows_needed: int | None
    share: float
    caveats: tuple[str, ...] = ()

    @property
    def tone(self) -> str:
        return "bad" if self.share < 0.5 else "warn" if self.share < 0.9 else "good"

    @property
    def sentence(self) -> str:
        kept = f"about {100 * min(max(self.share, 0.0), 1.0):.0f} % of what can be learned from such a table"
        if self.share >= 0.9:
            return f"The noise is small beside the data: the private model keeps {kept}."
        if self.share >= 0.5:
            return f"The noise is visible but does not dominate: the private model keeps {kept}."
        need = f"more than {MOST_ROWS:,}" if self.rows_needed is None else f"about {self.rows_needed:,}"
        return f"With these settings the answer is mostly noise; you need {need} rows."


@dataclass(frozen=True)
class ForecastRow:
    """One mechanism and accounting at the asked (ε, δ)."""

    mechanism: str
    accounting: str
    guarantee: Guarantee
    score: float
    share: float
    rows_needed: int | None
    utility_bound: float | None
    scores_by_epsilon: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        return self.mechanism if self.accounting == "auto" else f"{self.mechanism} ({self.accounting})"


@dataclass(frozen=True)
class Forecast:
    """Every mechanism that covers the task, best expected score first, and why the others do not."""

    rows_declared: int
    features: int
    task: catalogue.Task
    budget: Budget
    adjacency: Adjacency
    score_name: str
    nonprivate_score: float
    constant_score: float
    repeats: int
    rows: tuple[ForecastRow, ...]
    refused: tuple[tuple[str, str], ...]
    epsilons: tuple[float, ...]
    rows_limit: int = MOST_ROWS

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.adjacency)

    @property
    def verdict(self) -> Verdict:
        """Of the best mechanism."""
        best = self.rows[0]
        return Verdict(self.rows_declared, best.rows_needed, best.share)


def forecast(
    rows: int,
    features: int,
    budget: Budget,
    adjacency: Adjacency = "replace",
    task: catalogue.Task = "regression",
    *,
    unit: str | None = None,
    candidates: Sequence[tuple[str, str]] | None = None,
    epsilons: Sequence[float] = (),
    repeats: int = 3,
    on_step: Step = lambda name: None,
) -> Forecast:
    """What each mechanism would give on a table of this shape, worked out on a synthetic one.

    Parameters
    ----------
    rows, features : int
        The declared shape; columns after one-hot coding, the target excluded.
    budget : Budget
        The (ε, δ) to spend.
    adjacency : {"replace", "add_remove"}
        Which tables are neighbours.
    task : {"regression", "classification"}
        What the target is.
    unit : str, optional
        The column that says whose row it is: `rows` are persons then, tried with one row each.
    candidates : sequence of (mechanism, accounting), optional
        Names of the catalogue; all by default.
    epsilons : sequence of float
        Try these ε as well, for a curve.
    repeats : int, default=3
        Fits per score, whose median is taken.
    on_step : callable
        Called with the name of each candidate when it is done.

    Returns
    -------
    forecast : Forecast
        Best expected score first.

    Examples
    --------
    >>> from curvedp import Budget
    >>> from curvedp.forecast import forecast
    >>> found = forecast(50_000, 2, Budget(1.0, 1e-6), candidates=[("statistics", "auto")])
    >>> found.rows[0].mechanism, found.verdict.tone
    ('statistics', 'good')
    """
    check_shape(rows, features)
    trial = Trial.of_shape(features, adjacency, task, unit)
    tried: list[ForecastRow] = []
    refused: list[tuple[str, str]] = []
    for mechanism, accounting in CANDIDATES if candidates is None else candidates:
        label = mechanism if accounting == "auto" else f"{mechanism} ({accounting})"
        try:
            plan = _plan(trial, mechanism, accounting, budget)
            score = trial.private_score(plan, rows, repeats)
        except (InvalidInput, CalibrationFailed) as reason:
            entry = catalogue.MECHANISMS.get(mechanism)  # its class name would say the label once more
            own = "" if entry is None else entry.path.partition(":")[2] + ": "
            refused.append((label, str(reason).removeprefix(own)))
            on_step(label)
            continue
        curve = [
            score
            if e == budget.epsilon
            else _score_at(trial, mechanism, accounting, Budget(e, budget.delta), rows, repeats)
            for e in epsilons
        ]
        tried.append(
            ForecastRow(
                mechanism,
                accounting,
                plan.guarantee,
                score,
                trial.share(score),
                trial.rows_needed(plan, repeats),
                plan.utility_bound(rows) if isinstance(plan, FitPlan) else None,
                tuple(curve),
            )
        )
        on_step(label)
    if not tried:
        raise InvalidInput(
            f"no mechanism covers these settings: {refused[0][1] if refused else 'none was asked for'}"
        )
    tried.sort(key=lambda row: -row.score)
    return Forecast(
        rows_declared=rows,
        features=features,
        task=task,
        budget=budget,
        adjacency=adjacency,
        score_name="R²" if task == "regression" else "accuracy",
        nonprivate_score=trial.nonprivate,
        constant_score=trial.constant,
        repeats=repeats,
        rows=tuple(tried),
        refused=tuple(refused),
        epsilons=tuple(epsilons),
    )


def assess(
    rows: int,
    features: int,
    budget: Budget,
    adjacency: Adjacency = "replace",
    task: catalogue.Task = "regression",
    *,
    unit: str | None = None,
    mechanism: str = "auto",
    accounting: str = "auto",
) -> Verdict:
    """Whether the noise of one mechanism dominates a declared number of rows."""
    found = forecast(rows, features, budget, adjacency, task, unit=unit, candidates=[(mechanism, accounting)])
    return found.verdict


def check_shape(rows: int, features: int) -> None:
    """Refuse shapes that are no table, or none that can be tried."""
    if not 1 <= rows <= ROWS_AT_MOST:
        raise InvalidInput(f"rows must lie between 1 and {ROWS_AT_MOST:,}")
    if not 1 <= features <= FEATURES_AT_MOST:
        raise InvalidInput(f"features must lie between 1 and {FEATURES_AT_MOST:,} for a forecast")


def _plan(trial: Trial, mechanism: str, accounting: str, budget: Budget) -> Plan[Rows, Estimate]:
    chosen = catalogue.mechanism(mechanism, accounting=accounting)
    try:
        return make_plan(chosen, trial.problem, trial.columns.d, budget)
    except ArithmeticError:
        raise CalibrationFailed("no noise can be worked out this far from epsilon = 1") from None


def _score_at(
    trial: Trial, mechanism: str, accounting: str, budget: Budget, rows: int, repeats: int
) -> float:
    """The score at another ε; NaN where the mechanism does not cover it."""
    try:
        return trial.private_score(_plan(trial, mechanism, accounting, budget), rows, repeats)
    except (InvalidInput, CalibrationFailed):
        return math.nan
