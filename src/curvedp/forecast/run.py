"""Every mechanism on a synthetic table of a declared shape; and from which ε on a score is reached."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from curvedp import catalogue
from curvedp.budget import Budget
from curvedp.errors import CalibrationFailed, InvalidInput
from curvedp.forecast.population import Columns, Population, check_rows
from curvedp.forecast.results import Forecast, ForecastRow, Reached, Spread, Verdict, ranked
from curvedp.forecast.trial import Trial
from curvedp.mechanisms.base import Estimate, FitPlan, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.neighbours import Adjacency
from curvedp.plans import Plan
from curvedp.rows.base import Rows

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
GRID = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
RUNS = 20  # simulated at what was asked for
QUICK_RUNS = 3  # at other ε and other numbers of rows, of which the median is taken
Step = Callable[[str], None]


def forecast(
    rows: int,
    features: Columns,
    budget: Budget,
    adjacency: Adjacency = "replace",
    task: catalogue.Task = "regression",
    *,
    unit: str | None = None,
    best: float | None = None,
    candidates: Sequence[tuple[str, str]] | None = None,
    epsilons: Sequence[float] = (),
    runs: int = RUNS,
    on_step: Step = lambda name: None,
) -> Forecast:
    """What each mechanism would give on a table of this shape, worked out on a synthetic one.

    Parameters
    ----------
    rows : int
        A number of rows that you declare.
    features : int or Schema
        The columns after one-hot coding, the target excluded; or the schema, which says them, the target and
        the unit.
    budget : Budget
        The (ε, δ) to spend.
    adjacency : {"replace", "add_remove"}
        Which tables are neighbours.
    task : {"regression", "classification"}
        What the target is, where no schema says it.
    unit : str, optional
        The column that says whose row it is: `rows` are persons then, tried with one row each.
    best : float, optional
        The score that you expect without privacy (R² or accuracy); the synthetic table is made so.
    candidates : sequence of (mechanism, accounting), optional
        Names of the catalogue; all by default.
    epsilons : sequence of float
        Try these ε as well, for a curve.
    runs : int, default=20
        Simulated fits per mechanism, whose quantiles are taken.
    on_step : callable
        Called with the name of each candidate when it is done.

    Returns
    -------
    forecast : Forecast
        Best expected score first; what differs by less than its own spread ties, in the order of
        `candidates`.

    Examples
    --------
    >>> from curvedp import Budget
    >>> from curvedp.forecast import forecast
    >>> found = forecast(50_000, 2, Budget(1.0, 1e-6), candidates=[("statistics", "auto")])
    >>> found.rows[0].mechanism, found.verdict.tone
    ('statistics', 'good')
    """
    check_rows(rows)
    trial = Trial.of(Population.of(features, task, unit), adjacency, best)
    tried: list[ForecastRow] = []
    refused: list[tuple[str, str]] = []
    for mechanism, accounting in CANDIDATES if candidates is None else candidates:
        label = mechanism if accounting == "auto" else f"{mechanism} ({accounting})"
        try:
            plan = _plan(trial, mechanism, accounting, budget)
            scores = trial.spread(plan, rows, runs)
        except (InvalidInput, CalibrationFailed) as reason:
            entry = catalogue.MECHANISMS.get(mechanism)  # its class name would say the label once more
            own = "" if entry is None else entry.path.partition(":")[2] + ": "
            refused.append((label, str(reason).removeprefix(own)))
            on_step(label)
            continue
        curve = [
            scores.median
            if e == budget.epsilon
            else _score_at(trial, mechanism, accounting, Budget(e, budget.delta), rows)
            for e in epsilons
        ]
        tried.append(
            ForecastRow(
                mechanism,
                accounting,
                plan.guarantee,
                scores,
                trial.share(scores.median),
                trial.rows_needed(plan, QUICK_RUNS),
                plan.utility_bound(rows) if isinstance(plan, FitPlan) else None,
                tuple(curve),
            )
        )
        on_step(label)
    if not tried:
        raise InvalidInput(
            f"no mechanism covers these settings: {refused[0][1] if refused else 'none was asked for'}"
        )
    return Forecast(
        rows_declared=rows,
        features=trial.population.columns.n_inputs,
        task=trial.task,
        budget=budget,
        adjacency=adjacency,
        score_name=_score_name(trial),
        nonprivate_score=trial.nonprivate,
        constant_score=trial.constant,
        runs=runs,
        rows=ranked(tried),
        refused=tuple(refused),
        epsilons=tuple(epsilons),
    )


def reach(
    score: float,
    rows: int,
    features: Columns,
    delta: float,
    adjacency: Adjacency = "replace",
    task: catalogue.Task = "regression",
    *,
    unit: str | None = None,
    best: float | None = None,
    epsilons: Sequence[float] | None = None,
    mechanism: str = "auto",
    runs: int = RUNS,
    on_step: Step = lambda name: None,
) -> Reached:
    """From which ε on a score is reached on a table of this shape, worked out on a synthetic one.

    The parameters that `forecast` has, too, mean the same.

    Parameters
    ----------
    score : float
        An R² or an accuracy.
    rows : int
        A number of rows that you declare.
    features : int or Schema
        The columns after one-hot coding, or the schema.
    delta : float
        δ of the release.
    adjacency : {"replace", "add_remove"}
        Which tables are neighbours.
    task : {"regression", "classification"}
        What the target is, where no schema says it.
    unit : str, optional
        The column that says whose row it is.
    best : float, optional
        The score that you expect without privacy.
    epsilons : sequence of float, optional
        The grid, in increasing order; not all of it is tried. By default 18 from 0.01 to 10.
    mechanism : str, default="auto"
        A name of the catalogue.
    runs : int, default=20
        Simulated fits per ε.
    on_step : callable
        Called with every ε when it is done.

    Returns
    -------
    reached : Reached
        With the spread of every ε that was tried.

    Examples
    --------
    >>> from curvedp.forecast import reach
    >>> found = reach(0.4, 20_000, 3, 1e-6, epsilons=(0.1, 0.3, 1.0))
    >>> found.epsilon is not None and found.epsilon <= found.sure_epsilon
    True
    """
    check_rows(rows)
    if not math.isfinite(score):
        raise InvalidInput(f"the score to reach must be a number such as 0.4, got {score!r}")
    trial = Trial.of(Population.of(features, task, unit), adjacency, best)
    tried: dict[float, Spread] = {}

    def at(epsilon: float) -> Spread:
        if epsilon not in tried:
            plan = _plan(trial, mechanism, "auto", Budget(epsilon, delta))
            tried[epsilon] = trial.spread(plan, rows, runs)
            on_step(f"ε = {epsilon:g}")
        return tried[epsilon]

    if score < trial.nonprivate:  # scores grow with ε
        grid = GRID if epsilons is None else epsilons
        half = bisect_left(grid, True, key=lambda epsilon: at(epsilon).median >= score)
        any(at(epsilon).low >= score for epsilon in grid[half:])
    return Reached(
        score=score,
        score_name=_score_name(trial),
        rows_declared=rows,
        features=trial.population.columns.n_inputs,
        delta=delta,
        adjacency=adjacency,
        mechanism=catalogue.DEFAULT_MECHANISM if mechanism == "auto" else mechanism,
        nonprivate_score=trial.nonprivate,
        runs=runs,
        tried=tuple(sorted(tried.items())),
    )


def assess(
    rows: int,
    features: Columns,
    budget: Budget,
    adjacency: Adjacency = "replace",
    task: catalogue.Task = "regression",
    *,
    unit: str | None = None,
    mechanism: str = "auto",
    accounting: str = "auto",
) -> Verdict:
    """Whether the noise of one mechanism dominates a declared number of rows."""
    one = [(mechanism, accounting)]
    return forecast(rows, features, budget, adjacency, task, unit=unit, candidates=one).verdict


def _score_name(trial: Trial) -> str:
    return "R²" if trial.task == "regression" else "accuracy"


def _plan(trial: Trial, mechanism: str, accounting: str, budget: Budget) -> Plan[Rows, Estimate]:
    chosen = catalogue.mechanism(mechanism, accounting=accounting)
    try:
        if isinstance(chosen, Recentered):  # as a default fit is: with intervals where there can be some
            chosen = replace(chosen, coding=trial.population.columns.coding)
            with suppress(InvalidInput):
                return make_plan(replace(chosen, inference=True), trial.problem, trial.d, budget)
        return make_plan(chosen, trial.problem, trial.d, budget)
    except ArithmeticError:
        raise CalibrationFailed("no noise can be worked out this far from epsilon = 1") from None


def _score_at(trial: Trial, mechanism: str, accounting: str, budget: Budget, rows: int) -> float:
    """The score at another ε; NaN where the mechanism does not cover it."""
    try:
        return trial.spread(_plan(trial, mechanism, accounting, budget), rows, QUICK_RUNS).median
    except (InvalidInput, CalibrationFailed):
        return math.nan
