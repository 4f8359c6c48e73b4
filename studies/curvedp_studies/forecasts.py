"""What each mechanism would give on a table of a declared shape, and from which ε on a score is reached."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from markupsafe import Markup

from curvedp.cli.console import Steps, in_options, say, show_table
from curvedp.cli.plans import rows_or_more
from curvedp.errors import CalibrationFailed, InvalidInput
from curvedp.mechanisms.objective import QOPPlan
from curvedp.pages import Axis, Series, environment, legend, line_chart
from curvedp.planning import ROWS_LIMIT, Columns, Verdict, Widths, check_rows
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.release import catalogue
from curvedp_studies.mechanisms.lop import LOPPlan
from curvedp_studies.paper import utility_bound_exact
from curvedp_studies.trial import Spread, Trial

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


@dataclass(frozen=True)
class ForecastRow:
    """One mechanism and accounting at the asked (ε, δ); those of one `rank` tie."""

    mechanism: str
    accounting: str
    guarantee: Guarantee
    scores: Spread
    share: float
    rows_needed: int | None
    utility_bound: float | None
    scores_by_epsilon: tuple[float, ...] = ()
    rank: int = 1

    @property
    def score(self) -> float:
        """The median of the simulated runs."""
        return self.scores.median

    @property
    def label(self) -> str:
        return self.mechanism if self.accounting == "auto" else f"{self.mechanism} ({self.accounting})"


def ranked(rows: Sequence[ForecastRow]) -> tuple[ForecastRow, ...]:
    """Best expected score first; what ties with the best of the rest shares its rank, in the given order."""
    left, found = sorted(rows, key=lambda row: -row.score), list[ForecastRow]()
    while left:
        tied = list(takewhile(left[0].scores.ties, (row.scores for row in left[1:])))
        group = left[: 1 + len(tied)]
        found += [replace(row, rank=len(found) + 1) for row in sorted(group, key=rows.index)]
        left = left[len(group) :]
    return tuple(found)


@dataclass(frozen=True)
class Forecast:
    """Every mechanism that covers the task, the best first, and why the others do not."""

    rows_declared: int
    features: int
    task: catalogue.Task
    budget: Budget
    adjacency: Adjacency
    score_name: str
    nonprivate_score: float
    constant_score: float
    runs: int
    rows: tuple[ForecastRow, ...]
    refused: tuple[tuple[str, str], ...]
    epsilons: tuple[float, ...]
    rows_limit: int = ROWS_LIMIT

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.adjacency)

    def told(self, words: Callable[[str], str]) -> Forecast:
        """The same with refusals in other words."""
        return replace(self, refused=tuple((label, words(reason)) for label, reason in self.refused))

    def place(self, row: ForecastRow) -> str:
        """Its rank, with “=” where others share it."""
        return f"{row.rank}{'=' if sum(other.rank == row.rank for other in self.rows) > 1 else ''}"

    @property
    def verdict(self) -> Verdict:
        """Of the first mechanism."""
        best = self.rows[0]
        return Verdict(self.rows_declared, best.rows_needed, best.share)


@dataclass(frozen=True)
class Reached:
    """From which ε on a score is reached, worked out on a synthetic table.

    Attributes
    ----------
    score : float
        What was asked for.
    tried : tuple of (float, Spread)
        Every ε that was tried, in increasing order, and the scores of its runs.
    nonprivate_score : float
        The score without privacy, which no ε exceeds.
    """

    score: float
    score_name: str
    rows_declared: int
    features: int
    delta: float
    adjacency: Adjacency
    mechanism: str
    nonprivate_score: float
    runs: int
    tried: tuple[tuple[float, Spread], ...]

    @property
    def epsilon(self) -> float | None:
        """The smallest ε of which half of the runs reach the score; None: no ε that was tried."""
        return next((epsilon for epsilon, found in self.tried if found.median >= self.score), None)

    @property
    def sure_epsilon(self) -> float | None:
        """The smallest ε of which nine of ten runs do."""
        return next((epsilon for epsilon, found in self.tried if found.low >= self.score), None)

    @property
    def sentence(self) -> str:
        asked = f"{self.score_name} {self.score:g}"
        if self.score >= self.nonprivate_score:
            return f"{asked} is out of reach: such a table gives {self.nonprivate_score:.3f} without privacy."
        if self.epsilon is None:
            return f"{asked} is not reached up to ε = {self.tried[-1][0]:g}: more rows or fewer columns help."
        spread = dict(self.tried)[self.epsilon]
        sure = (
            f"nine of ten do so not even with ε = {self.tried[-1][0]:g}"
            if self.sure_epsilon is None
            else f"nine of ten from ε = {self.sure_epsilon:g} on"
        )
        return (
            f"Half of the runs reach {asked} from ε = {self.epsilon:g} on, where eight of ten lie between "
            f"{spread.low:.3f} and {spread.high:.3f}; {sure}."
        )


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
    rows, features, budget, adjacency, task : declared
        What they are in `widths`.
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
    >>> from curvedp_studies.forecasts import forecast
    >>> found = forecast(50_000, 2, Budget(1.0, 1e-6), candidates=[("statistics", "auto")])
    >>> found.rows[0].mechanism, found.verdict.tone
    ('statistics', 'good')
    """
    check_rows(rows)
    trial = Trial.of(features, task, adjacency, unit=unit, best_score=best)

    def score_at(mechanism: str, accounting: str, epsilon: float) -> float:
        """At another ε; NaN where the mechanism does not cover it."""
        try:
            at = trial.plan(mechanism, accounting, Budget(epsilon, budget.delta))
            return trial.spread(at, rows, QUICK_RUNS).median
        except (InvalidInput, CalibrationFailed):
            return math.nan

    tried: list[ForecastRow] = []
    refused: list[tuple[str, str]] = []
    for mechanism, accounting in CANDIDATES if candidates is None else candidates:
        label = mechanism if accounting == "auto" else f"{mechanism} ({accounting})"
        try:
            plan = trial.plan(mechanism, accounting, budget)
            scores = trial.spread(plan, rows, runs)
        except (InvalidInput, CalibrationFailed) as reason:
            entry = catalogue.MECHANISMS.get(mechanism)  # its class name would say the label once more
            own = "" if entry is None else entry.path.partition(":")[2] + ": "
            refused.append((label, str(reason).removeprefix(own)))
            on_step(label)
            continue
        curve = [
            scores.median if e == budget.epsilon else score_at(mechanism, accounting, e) for e in epsilons
        ]
        tried.append(
            ForecastRow(
                mechanism,
                accounting,
                plan.guarantee,
                scores,
                trial.share(scores.median),
                trial.rows_needed(plan, QUICK_RUNS),
                utility_bound(plan, rows),
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
        features=trial.columns.n_inputs,
        task="regression" if trial.is_regression else "classification",
        budget=budget,
        adjacency=adjacency,
        score_name=trial.score_name,
        nonprivate_score=trial.nonprivate,
        constant_score=trial.constant,
        runs=runs,
        rows=ranked(tried),
        refused=tuple(refused),
        epsilons=tuple(epsilons),
    )


def utility_bound(plan: object, rows: int) -> float | None:
    """A proved bound on E[J(θ) − J(θ*)] for ‖θ* − θ_c‖ ≤ 1 and so many rows; None where there is none.

    Of QOP (Theorem utility), the solver's gap being at most (nL + σ²·tr E[W])η²/2; of LOP that theorem for an
    exact solve of the loss itself.
    """
    if isinstance(plan, LOPPlan) and plan.mechanism == "lop":
        lop = plan.parameters
        return 2 * lop.sigma**2 * plan.d / lop.Delta + lop.Delta / 2
    if not isinstance(plan, QOPPlan):
        return None
    p, size = plan.parameters, plan.center.size
    output = None if plan.exact else plan.output(rows, plan.problem.domain.x_norm)
    eta, sigma_tilde = (0.0, 0.0) if output is None else (output.eta, output.sigma)
    gap = (rows * p.L + p.sigma2 * p.m * size) * eta**2 / 2
    exact = utility_bound_exact(sigma0=p.sigma0, sigma2=p.sigma2, d=size, m=p.m, distance2=1.0)
    return rows * size * p.L * sigma_tilde**2 / 2 + gap + exact


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
    >>> from curvedp_studies.forecasts import reach
    >>> found = reach(0.4, 20_000, 3, 1e-6, epsilons=(0.1, 0.3, 1.0))
    >>> found.epsilon is not None and found.epsilon <= found.sure_epsilon
    True
    """
    check_rows(rows)
    if not math.isfinite(score):
        raise InvalidInput(f"the score to reach must be a number such as 0.4, got {score!r}")
    trial = Trial.of(features, task, adjacency, unit=unit, best_score=best)
    tried: dict[float, Spread] = {}

    def at(epsilon: float) -> Spread:
        if epsilon not in tried:
            plan = trial.plan(mechanism, "auto", Budget(epsilon, delta))
            tried[epsilon] = trial.spread(plan, rows, runs)
            on_step(f"ε = {epsilon:g}")
        return tried[epsilon]

    if score < trial.nonprivate:  # scores grow with ε
        grid = GRID if epsilons is None else epsilons
        half = bisect_left(grid, True, key=lambda epsilon: at(epsilon).median >= score)
        any(at(epsilon).low >= score for epsilon in grid[half:])
    return Reached(
        score=score,
        score_name=trial.score_name,
        rows_declared=rows,
        features=trial.columns.n_inputs,
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


# `curvedp plan --trials` and `--score`: what is shown of them, for people, for machines and as a page.


def compared(
    epsilon: float,
    rows: int,
    columns: Columns,
    delta: float,
    kinds: Sequence[Adjacency],
    task: catalogue.Task,
    *,
    runs: int,
    best: float | None,
    steps: Steps,
    page: object,
) -> Compared:
    """`forecast` for each adjacency, with a curve over ε where a `page` shows it."""
    steps(total=len(kinds) * len(CANDIDATES))
    options: dict[str, Any] = {"best": best, "runs": runs, "on_step": lambda name: steps(advance=1)}
    options["epsilons"] = [epsilon * factor for factor in CURVE] if page else ()
    budget = Budget(epsilon, delta)
    found = (forecast(rows, columns, budget, one, task, **options) for one in kinds)
    return Compared([one.told(in_options) for one in found])


def reaching(
    score: float,
    rows: int,
    columns: Columns,
    delta: float,
    kinds: Sequence[Adjacency],
    task: catalogue.Task,
    *,
    runs: int | None,
    best: float | None,
    steps: Steps,
    page: object,
) -> Reaching:
    """`reach` for each adjacency."""
    options: dict[str, Any] = {"best": best, "runs": runs or RUNS, "on_step": lambda name: steps(advance=1)}
    return Reaching([reach(score, rows, columns, delta, one, task, **options) for one in kinds])


@dataclass(frozen=True)
class Compared:
    """Forecasts that differ in their adjacency alone."""

    found: Sequence[Forecast]

    def document(self, of_widths: dict[str, Any]) -> dict[str, Any]:
        """The document of the expected intervals, with the forecasts beside them."""
        first, parts = self.found[0], of_widths["adjacencies"]
        return {
            **of_widths,
            "score": first.score_name,
            "nonprivate_score": first.nonprivate_score,
            "constant_score": first.constant_score,
            "runs": first.runs,
            "adjacencies": {one.adjacency: parts[one.adjacency] | _of_adjacency(one) for one in self.found},
        }

    def page(self, wide: Sequence[Widths]) -> str:
        return plan_page(wide, self.found)

    def show(self) -> None:
        """The forecasts side by side for people."""
        found, first = self.found, self.found[0]
        ranked = [row.label for row in first.rows]
        ranked += [row.label for one in found for row in one.rows if row.label not in ranked]
        by_label = [{row.label: row for row in one.rows} for one in found]
        headings = [
            heading
            for one in found
            for heading in (
                f"{first.score_name}, {one.adjacency}",
                f"rows needed, {one.adjacency}",
            )
        ]
        lines = []
        for label in dict.fromkeys(ranked):
            cells = [label]
            for one, rows in zip(found, by_label, strict=True):
                row = rows.get(label)
                said = row and [
                    f"{one.place(row)} · {row.scores.words}",
                    rows_or_more(row.rows_needed, one.rows_limit),
                ]
                cells += said or ["", ""]
            lines.append(cells)
        for label, value in (
            ("no privacy", first.nonprivate_score),
            ("constant answer", first.constant_score),
        ):
            lines.append([label, *([f"{value:.3f}", ""] * len(found))])
        show_table(
            f"Mechanisms on a synthetic table, {first.runs} fits each",
            ("mechanism", *headings),
            lines,
            right=headings,
        )
        say(
            f"In brackets: where eight of ten runs lie, of {first.runs} simulated ones. “=”: a tie, scores "
            "that differ by less than that.",
            style="dim",
        )
        for label, reason in first.refused:
            say(f"{label}: {reason}", style="dim")
        for one in found:
            colour = {"good": "green", "warn": "yellow", "bad": "red"}[one.verdict.tone]
            say(f"{one.adjacency}: {one.verdict.sentence}", style=f"bold {colour}")


@dataclass(frozen=True)
class Reaching:
    """Answers to "which ε for this score", for one adjacency or for both."""

    found: Sequence[Reached]

    def document(self, of_widths: dict[str, Any]) -> dict[str, Any]:
        """Which ε, for machines."""
        found, first = self.found, self.found[0]
        return {
            "rows": first.rows_declared,
            "features": first.features,
            "delta": first.delta,
            "mechanism": first.mechanism,
            "score": first.score_name,
            "asked": first.score,
            "nonprivate_score": first.nonprivate_score,
            "runs": first.runs,
            "adjacencies": {
                one.adjacency: {
                    "epsilon": one.epsilon,
                    "epsilon_of_nine_in_ten": one.sure_epsilon,
                    "sentence": one.sentence,
                    "tried": [
                        {
                            "epsilon": epsilon,
                            "expected_score": spread.median,
                            "eight_of_ten_runs": [spread.low, spread.high],
                        }
                        for epsilon, spread in one.tried
                    ],
                }
                for one in found
            },
        }

    def page(self, wide: Sequence[Widths]) -> str:
        """The HTML of "which ε for this score", for one adjacency or for both."""
        found, first = self.found, self.found[0]
        tried = [one for one in found if one.tried]
        epsilons = sorted({epsilon for one in tried for epsilon, _ in one.tried})
        series, shown = [], Markup("")
        if len(epsilons) > 1:
            for one in tried:
                x = [epsilon for epsilon, _ in one.tried]
                for words, key in (("half of the runs", "median"), ("nine of ten", "low")):
                    ys = [getattr(spread, key) for _, spread in one.tried]
                    series.append(Series(f"{one.adjacency}: {words} are above", x, ys))
            series.append(Series("asked for", epsilons, [first.score] * len(epsilons), True))
            lowest = min(spread.low for one in tried for _, spread in one.tried)
            shown = line_chart(
                "Score against ε",
                Axis("ε", epsilons[0], epsilons[-1], log=True),
                Axis(first.score_name, min(lowest, first.score) - 0.05, 1.05 * first.nonprivate_score),
                series,
            )
        return (
            environment("curvedp_studies")
            .get_template("plan_score.html")
            .render(t=first, found=found, chart=shown, legend=legend(series))
        )

    def show(self) -> None:
        """Which ε, for people."""
        found, first = self.found, self.found[0]
        epsilons = sorted({epsilon for one in found for epsilon, _ in one.tried})
        by_epsilon = [dict(one.tried) for one in found]
        headings = [f"{first.score_name}, {one.adjacency}" for one in found]
        if epsilons:
            show_table(
                f"{first.rows_declared:,} rows × {first.features} features, δ = {first.delta:g}, "
                f"{first.mechanism}",
                ("ε", *headings),
                [
                    (f"{e:g}", *(spreads[e].words if e in spreads else "" for spreads in by_epsilon))
                    for e in epsilons
                ],
                right=("ε", *headings),
            )
            say(f"In brackets: where eight of ten runs lie, of {first.runs} simulated ones.", style="dim")
        for one in found:
            colour = "yellow" if one.epsilon is None else "green"
            say(f"{one.adjacency}: {one.sentence}", style=f"bold {colour}")


def _of_adjacency(found: Forecast) -> dict[str, Any]:
    return {
        "verdict": found.verdict.sentence,
        "noise_dominates": found.verdict.tone == "bad",
        "mechanisms": [
            {
                "mechanism": row.mechanism,
                "accounting": row.accounting,
                "rank": row.rank,
                "theorem": row.guarantee.theorem,
                "expected_score": row.score,
                "eight_of_ten_runs": [row.scores.low, row.scores.high],
                "rows_needed": row.rows_needed,
                "utility_bound": row.utility_bound,
                "parameters": dict(row.guarantee.parameters),
                "score_by_epsilon": dict(zip(map(str, found.epsilons), row.scores_by_epsilon, strict=True)),
            }
            for row in found.rows
        ],
        "refused": [{"mechanism": label, "reason": reason} for label, reason in found.refused],
    }


def noise_scales(guarantee: Guarantee) -> list[Parameter]:
    """The parameters that are sizes of noise, for one line of a table."""
    return [p for p in guarantee.parameters.described if p.is_noise and not isinstance(p.value, str)]


def plan_page(wide: Sequence[Widths], found: Sequence[Forecast]) -> str:
    """The HTML of expected intervals and of forecasts."""
    parts = [(one, *_chart_of(one)) for one in found]
    page = environment("curvedp_studies").get_template("plan_trials.html")
    return page.render(t=wide[0], wide=wide, parts=parts, scales=noise_scales)


def _chart_of(forecast: Forecast) -> tuple[Markup, Markup]:
    epsilons = forecast.epsilons
    curves = [Series(row.label, epsilons, row.scores_by_epsilon) for row in forecast.rows]
    series = [*curves, Series("no privacy", epsilons, [forecast.nonprivate_score] * len(epsilons), True)]
    chart = line_chart(
        "Expected score against ε",
        Axis("ε", min(epsilons), max(epsilons), log=True),
        Axis(
            f"expected {forecast.score_name}",
            forecast.constant_score - 0.05,
            1.05 * forecast.nonprivate_score,
        ),
        series,
    )
    return chart, legend(series)
