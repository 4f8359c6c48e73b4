"""Expected half-widths: the formula against fits of generated tables, the rows it takes, ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from curvedp import planning as intervals
from curvedp.arrays import FloatArray
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows
from curvedp.errors import InvalidInput
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.mechanisms.rule import Rule
from curvedp.planning import Slopes, _too_few, expected, widths
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Multinomial, Quantile, Squared
from curvedp.randomness import generator
from curvedp_studies.forecasts import Forecast, Spread, forecast

BUDGET = Budget(1.0, 1e-6)
SHARES = np.array([0.5, 0.3, 0.14, 0.05, 0.01])


class Table:
    """Three normal numbers beside levels of `SHARES`, residuals of deviation 0.18 or a class of share q.

    With another `loss`: of a quantile the same residuals, of three classes log-odds of deviation 0.6 to 0.9.
    """

    def __init__(self, n: int, q: float | None, loss: Quantile | Multinomial | None = None) -> None:
        random = np.random.default_rng(8)
        numbers, level = random.standard_normal((n, 3)).clip(-4, 4), random.choice(5, n, p=SHARES)
        columns = ColumnMap.from_bounds([-4.0] * 3 + [0.0] * 5, [4.0] * 3 + [1.0] * 5, one_hot=[range(3, 8)])
        self.n, self.columns = n, columns
        self.X = columns.apply(np.hstack([numbers, np.eye(5)[level]]))
        signal = numbers @ [0.6, -0.5, 0.4]
        self.loss: Squared | Logistic | Quantile | Multinomial = Squared()
        if isinstance(loss, Multinomial):
            self.loss, odds = (
                loss,
                np.exp(numbers @ [[0.42, -0.28, 0.0], [-0.35, 0.21, 0.0], [0.28, 0.35, 0.0]]),
            )
            below = np.cumsum(odds, axis=1) < random.random((n, 1)) * odds.sum(axis=1, keepdims=True)
            self.y = below.sum(axis=1).astype(np.float64)
        elif q is None:
            self.loss = loss or Squared()
            self.y = (0.18 * (signal + random.standard_normal(n))).clip(-1, 1)
            self.slope2 = 0.18**2
        else:
            self.loss = Logistic()
            chance = 1.0 / (1.0 + np.exp(-(signal + np.log(q / (1.0 - q)) * 1.13)))
            self.y = np.where(random.random(n) < chance, 1.0, -1.0)
            self.slope2 = float(np.mean(chance * (1.0 - chance)))

    def plan(self, epsilon: float, adjacency: Adjacency) -> RecenteredPlan:
        problem = Problem(self.loss, domain=Domain(self.columns.norm_bound, 1.0, adjacency))
        fit = Recentered(coding=self.columns.coding, inference=True)
        return fit.plan(problem, self.columns.d, Budget(epsilon, 1e-6))

    def multiples(self, plan: RecenteredPlan, fits: int = 15) -> FloatArray:
        """Median half-widths of the numbers and of each level, in units of the ordinary ones."""
        found = []
        rows = ArrayRows(self.X, self.y, plan.problem.domain)
        for seed in range(fits):
            fit = plan.release(rows, generator(seed))
            assert fit.inference is not None
            found.append(fit.inference.of(np.eye(9)[:8]).half_width(0.95))
        variances = np.append([16.0] * 3, (1.0 - SHARES) / SHARES)  # numbers are divided by 4
        if isinstance(self.loss, Squared):
            ordinary = 1.96 * np.sqrt(self.slope2 * variances / self.n)
        else:
            ordinary = 1.96 * np.sqrt(variances / (self.slope2 * self.n))
        ratios = np.nanmedian(found, axis=0) / ordinary  # a fit may take a level for empty
        return np.append(np.median(ratios[:3]), ratios[3:])

    def half_widths(self, plan: RecenteredPlan, fits: int = 5) -> FloatArray:
        """Medians of a number, for one deviation of it, and of each level; NaN where most fits state none.

        In residual deviations, or log-odds of the second class against the first.
        """
        rows, d = ArrayRows(self.X, self.y, plan.problem.domain), self.columns.d
        classes = np.array([[-1.0, 1.0, 0.0]]) if plan.problem.loss.rank > 1 else np.ones((1, 1))
        stated = np.kron(classes, np.eye(d)[:8])
        found = np.array([_interval(plan, rows, stated, seed) for seed in range(fits)])
        half = np.sort(found, axis=0)[fits // 2]  # NaN come last
        half /= np.append([4.0] * 3, np.ones(5)) * (0.18 if classes.size == 1 else 1.0)
        return np.append(np.median(half[:3]), half[3:])


def _interval(plan: RecenteredPlan, rows: ArrayRows, stated: FloatArray, seed: int) -> FloatArray:
    inference = plan.release(rows, generator(seed)).inference
    assert inference is not None
    return inference.of(stated).half_width(0.95)


def forecasts(plan: RecenteredPlan, n: int, q: float | None) -> FloatArray:
    return np.array([expected(plan, n, level, q).multiple for level in (None, *SHARES)])


CELLS = [(60_000, 0.7, "replace", None), (25_000, 0.6, "add_remove", None), (30_000, 1.5, "replace", 0.12)]


@pytest.mark.parametrize(("n", "epsilon", "adjacency", "q"), CELLS)
def test_half_widths_are_those_of_fits(
    n: int, epsilon: float, adjacency: Adjacency, q: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a factor 1.25 for a number and every level; wrong formulas are farther away."""
    table = Table(n, q)
    plan = table.plan(epsilon, adjacency)
    seen = table.multiples(plan)
    assert seen.max() > 1.2 * seen.min() > 1.4  # a rare level costs more, else this test says little

    def apart(found: FloatArray) -> float:
        return float(np.exp(np.max(np.abs(np.log(found / seen)))))

    assert apart(forecasts(plan, n, q)) < 1.25
    careless = replace(plan, rule=Rule(level=0.0))  # levels as if they were numbers
    assert apart(forecasts(careless, n, q)) > 1.25 or adjacency == "add_remove"
    shift = intervals._later_shift
    with monkeypatch.context() as planted:
        planted.setattr(intervals, "_later_shift", lambda plan, n: 3.0 * shift(plan, n))
        planted.setattr(intervals, "HIDDEN", 0.0)
        assert apart(forecasts(plan, n, q)) > 1.25  # noise three times too small
    with monkeypatch.context() as planted:
        planted.setattr(intervals, "_later_shift", lambda plan, n: shift(plan, n) / 3.0)
        assert apart(forecasts(plan, n, q)) > 1.25


@pytest.mark.parametrize(
    ("loss", "n", "epsilon", "adjacency"),
    [
        (Quantile(quantile=0.5), 20_000, 1.0, "add_remove"),
        (Quantile(quantile=0.9), 60_000, 1.5, "replace"),
        (Multinomial(3), 20_000, 1.0, "add_remove"),
    ],
)
def test_half_widths_of_quantiles_and_of_several_classes_are_those_of_fits(
    loss: Quantile | Multinomial,
    n: int,
    epsilon: float,
    adjacency: Adjacency,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a factor 1.25 for a number and levels down to 5 %; a level of 1 % is stated, too."""
    table = Table(n, None, loss)
    plan = table.plan(epsilon, adjacency)
    told = [expected(plan, n, level, None) for level in (None, *SHARES)]
    seen = table.half_widths(plan)
    assert not any(item.why for item in told) and np.isfinite(seen).all()

    def apart() -> float:
        found = np.array([expected(plan, n, level, None).half_width for level in (None, *SHARES[:-1])])
        return float(np.exp(np.max(np.abs(np.log(found / seen[:-1])))))

    assert apart() < 1.25
    shift = intervals._later_shift
    monkeypatch.setattr(intervals, "_later_shift", lambda plan, n: shift(plan, n) / 3.0)
    assert apart() > 1.25
    monkeypatch.undo()
    monkeypatch.setattr(intervals, "_slopes", lambda loss, q: Slopes(np.ones(1), np.ones(1), 1.0, 1.0))
    assert apart() > 1.25  # as if it were a linear fit


def test_what_would_not_be_stated_is_not_stated_by_fits() -> None:
    table = Table(1_000, None)
    plan = table.plan(0.5, "replace")
    found = expected(plan, 1_000, None, None)
    assert not plan.infers(1_000) and found.why.startswith("κ = ") and "17 is needed" in found.why
    few = table.plan(2.0, "replace")
    assert expected(few, 1_000, 0.01, None).why
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert not np.isfinite(table.multiples(few)[-1])
    table = Table(10_000, None, Quantile(quantile=0.9))
    few = table.plan(0.7, "add_remove")
    told = [not expected(few, 10_000, level, None).why for level in (None, *SHARES)]
    assert told == [True] * 5 + [False] == list(np.isfinite(table.half_widths(few)))


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_rows_enough_are_where_an_interval_is_stated_and_as_narrow_as_asked(adjacency: Adjacency) -> None:
    found = widths(20_000, 6, BUDGET, adjacency, levels=[0.05], half_width=0.01)
    for item in found.intervals:
        assert item.rows_enough is not None
        enough = widths(item.rows_enough, 6, BUDGET, adjacency, levels=[0.05]).intervals
        fewer = widths(int(0.9 * item.rows_enough), 6, BUDGET, adjacency, levels=[0.05]).intervals
        at = found.intervals.index(item)
        assert not enough[at].why and enough[at].half_width <= 0.01 < fewer[at].half_width
    stated = widths(20_000, 6, BUDGET, adjacency, levels=[0.01]).intervals[1]
    assert stated.rows_enough is not None
    assert widths(int(0.9 * stated.rows_enough), 6, BUDGET, adjacency, levels=[0.01]).intervals[1].why


def test_more_rows_and_a_larger_epsilon_give_narrower_intervals() -> None:
    by_rows = [widths(n, 8, BUDGET).intervals[0].half_width for n in (3_000, 10_000, 100_000, 10**6)]
    assert by_rows == sorted(by_rows, reverse=True)
    by_epsilon = [widths(20_000, 8, Budget(e, 1e-6)).intervals[0].multiple for e in (0.5, 1.0, 3.0, 10.0)]
    assert by_epsilon == sorted(by_epsilon, reverse=True) and 1.0 < by_epsilon[-1] < 1.1
    assert widths(10**9, 8, BUDGET).intervals[0].multiple == pytest.approx(1.0, abs=0.01)


def test_rare_classes_are_too_few_below_a_share_that_is_said() -> None:
    found = widths(5_000, 10, BUDGET, "add_remove", "classification", classes=[0.5, 0.1])
    assert found.too_few is not None and found.intervals[0].class_share == 0.5
    q = found.too_few
    assert found.kappa * q * (1 - q) == pytest.approx(2.0)
    below = widths(5_000, 10, BUDGET, "add_remove", "classification", classes=[0.9 * q]).intervals[0]
    assert "too few of the class" in below.why
    assert f"less than {100 * q:.2g} %" in found.class_sentence
    assert widths(60, 10, BUDGET, "replace", "classification").too_few == 0.5
    twice = widths(5_000, 10, BUDGET, "replace", "classification")  # replace moves twice as much
    assert twice.too_few == pytest.approx(2.0 * q, rel=0.05)
    assert _too_few(Table(500, 0.2).plan(1.0, "replace"), 10**7) < 1e-4


SCHEMA = Schema(
    columns=(Numeric("age", 16, 80), Categorical("job", ("a", "b", "c")), Numeric("wage", 0, 1e5)),
    target="wage",
    adjacency="add_remove",
)


def test_a_schema_says_whether_there_are_levels_and_intervals() -> None:
    found = widths(20_000, SCHEMA, BUDGET, "add_remove")
    assert [item.name for item in found.intervals][1:] == [f"a level of {p} %" for p in (20, 5, 1)]
    numbers = widths(20_000, SCHEMA.with_formula("wage ~ age"), BUDGET, "add_remove")
    assert len(numbers.intervals) == 1 and numbers.features == 1
    several = widths(20_000, SCHEMA.with_target("job"), BUDGET)
    assert several.measure == "log-odds" and several.too_few is None and not several.intervals[0].why
    with pytest.raises(InvalidInput, match="two classes"):
        widths(20_000, SCHEMA.with_target("job"), BUDGET, classes=[0.2])
    with pytest.raises(InvalidInput, match="targets that are numbers"):
        widths(20_000, SCHEMA.with_target("job"), BUDGET, quantile=0.5)
    ninth, middle = (widths(20_000, 6, BUDGET, quantile=q).intervals[0] for q in (0.9, 0.5))
    linear = widths(20_000, 6, BUDGET).intervals[0]
    plain = [item.half_width / item.multiple for item in (linear, middle, ninth)]
    ratios = np.sqrt([np.pi / 2.0, 0.09]) / np.array([1.0, 0.17549833])  # √(τ(1−τ)) over the normal density
    assert np.array(plain[1:]) / plain[0] == pytest.approx(ratios, rel=0.06)
    for wrong in (
        {"quantile": 1.0},
        {"levels": [1.0]},
        {"classes": [0.0]},
        {"classes": [0.2]},
        {"half_width": 0.0},
    ):
        with pytest.raises(InvalidInput):
            widths(100, 3, BUDGET, **wrong)


def test_scores_that_differ_by_less_than_their_spread_tie() -> None:
    assert Spread(0.4, 0.5, 0.6).ties(Spread(0.44, 0.45, 0.46))
    assert not Spread(0.49, 0.5, 0.51).ties(Spread(0.3, 0.45, 0.48))
    candidates = [("qop", "spectral"), ("recentered", "auto"), ("gradient", "auto")]
    found: Forecast = forecast(20_000, 3, BUDGET, candidates=candidates, runs=10)
    ranks = {row.mechanism: row.rank for row in found.rows}
    assert ranks == {"recentered": 1, "gradient": 1, "qop": 3}
    assert [found.place(row) for row in found.rows] == ["1=", "1=", "3"]
    assert [row.mechanism for row in found.rows] == [
        "recentered",
        "gradient",
        "qop",
    ]  # as they were asked for
