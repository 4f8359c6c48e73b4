"""Forecasts without data: the synthetic trial, the rows it takes, and the sentence it ends in."""

from __future__ import annotations

import numpy as np
import pytest

from curvedp.data import Boolean, Categorical, Date, Ignored, Numeric, Schema
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.errors import InvalidInput
from curvedp.mechanisms import QOP
from curvedp.mechanisms.base import make_plan
from curvedp.planning import FEATURES_AT_MOST, SEED, Verdict
from curvedp.privacy.budget import Budget
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared
from curvedp.release import catalogue
from curvedp.release.door import execute
from curvedp_studies.forecasts import CANDIDATES, assess, forecast, reach
from curvedp_studies.trial import TEST_ROWS, Repeated, Trial

BUDGET = Budget(1.0, 1e-6)


def test_repeated_rows_are_the_rows_written_out_several_times() -> None:
    random = np.random.default_rng(1)
    X, y = random.uniform(-1, 1, (50, 3)), random.uniform(-1, 1, 50)
    columns, domain = ColumnMap.from_bounds([-1] * 3, [1] * 3), Domain(x_norm=1.2)
    base = make_rows(X, y, domain, columns)
    long = make_rows(np.tile(X, (4, 1)), np.tile(y, 4), domain, columns)
    short = Repeated(base, 4.0)
    theta, edges, loss = random.normal(size=(4, 1)), np.array([0.2, 0.5, 1.0]), Squared()
    assert (short.d, short.count()) == (long.d, long.count()) and short.layout == long.layout
    np.testing.assert_allclose(short.moments().xx, long.moments().xx, rtol=1e-12)
    np.testing.assert_allclose(short.moments().xy, long.moments().xy, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(short.moments().yy, long.moments().yy, rtol=1e-12)
    np.testing.assert_allclose(
        short.gradient_sum(loss, theta, 0.3), long.gradient_sum(loss, theta, 0.3), rtol=1e-12
    )
    np.testing.assert_allclose(short.hessian_sum(loss, theta), long.hessian_sum(loss, theta), rtol=1e-12)
    np.testing.assert_array_equal(
        short.gradient_norm_histogram(loss, theta, edges), long.gradient_norm_histogram(loss, theta, edges)
    )
    np.testing.assert_array_equal(short.norm_histogram(edges), long.norm_histogram(edges))
    metric = np.diag([2.0, 1.0, 1.0, 0.5])
    np.testing.assert_allclose(
        short.in_metric(metric).gradient_sum(loss, theta, 0.3),
        long.in_metric(metric).gradient_sum(loss, theta, 0.3),
        rtol=1e-12,
    )


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_trial_can_be_learned_and_the_constant_answer_cannot_do_it(task: catalogue.Task) -> None:
    trial = Trial.of(6, task)
    assert trial.nonprivate > trial.constant + 0.2
    assert trial.share(trial.nonprivate) == 1.0 and trial.share(trial.constant) == 0.0
    zero = np.zeros((7, 1))
    assert trial.score(zero) == pytest.approx(trial.constant, abs=0.05)
    table = trial.table(300)
    assert table.count() == 300
    assert trial.table(50_000).count() == 50_000


def test_more_rows_more_epsilon_and_a_better_accounting_help() -> None:
    candidates = [("qop", "directional"), ("qop", "spectral")]
    table = forecast(20_000, 4, BUDGET, "add_remove", candidates=candidates, epsilons=(0.1, 1.0, 10.0))
    directional, spectral = table.rows
    assert directional.accounting == "directional"
    assert directional.rows_needed is not None and spectral.rows_needed is not None
    assert directional.rows_needed < spectral.rows_needed
    assert list(directional.scores_by_epsilon) == sorted(directional.scores_by_epsilon)
    assert directional.scores_by_epsilon[1] == directional.score  # the same seed, the same answer
    assert directional.utility_bound is not None and spectral.utility_bound is not None
    assert directional.utility_bound < spectral.utility_bound
    fewer = forecast(directional.rows_needed // 4, 4, BUDGET, "add_remove", candidates=candidates)
    assert fewer.verdict.tone == "bad" and table.verdict.tone == "good"
    assert "mostly noise" in fewer.verdict.sentence
    assert fewer.rows[0].rows_needed == directional.rows_needed  # rows needed do not depend on rows declared


def test_rows_needed_is_where_half_is_kept() -> None:
    trial = Trial.of(4, adjacency="add_remove")
    plan = make_plan(QOP(), trial.problem, trial.columns.d, BUDGET)
    needed = trial.rows_needed(plan, 3)
    assert needed is not None
    assert trial.share(trial.spread(plan, needed, 3).median) >= 0.5
    assert trial.share(trial.spread(plan, needed / 1.5, 3).median) < 0.5


def test_a_forecast_is_the_same_every_time_and_under_either_adjacency() -> None:
    one = [assess(5_000, 3, BUDGET, "add_remove", "classification") for _ in range(2)]
    assert one[0] == one[1]
    assert assess(5_000, 3, BUDGET, "replace", "classification").share <= one[0].share + 0.05


def test_shapes_and_mechanisms_that_make_no_forecast() -> None:
    for rows in (0, -3, 10**400):
        with pytest.raises(InvalidInput, match="rows must lie between 1 and"):
            forecast(rows, 3, BUDGET)
    for features in (0, -1, FEATURES_AT_MOST + 1):
        with pytest.raises(InvalidInput, match="features must lie between 1 and"):
            forecast(10, features, BUDGET)
    with pytest.raises(InvalidInput, match="no mechanism covers these settings"):
        forecast(10, 3, Budget(2.0, 1e-6), candidates=[("qop", "paper")])
    refused = forecast(100, 3, Budget(2.0, 1e-6), candidates=[("qop", "paper"), ("qop", "spectral")]).refused
    assert [label for label, _ in refused] == ["qop (paper)"]  # its theorem is for ε < 1


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_number_of_every_mechanism_has_a_meaning(task: catalogue.Task) -> None:
    trial = Trial.of(3, task)
    seen = set()
    for mechanism, accounting in CANDIDATES:
        try:
            chosen = catalogue.mechanism(mechanism, accounting=accounting)
            plan = make_plan(chosen, trial.problem, 4, Budget(0.9, 1e-6))
        except InvalidInput:
            continue
        seen.add(mechanism)
        described = plan.guarantee.parameters.described
        assert all(parameter.meaning for parameter in described)
        assert any(parameter.is_noise for parameter in described), mechanism
    assert {"recentered", "gradient", "qop"} <= seen


def test_verdict_tones() -> None:
    assert [Verdict(1, 2, share).tone for share in (-1.0, 0.49, 0.5, 0.89, 0.9, 1.0)] == [
        "bad",
        "bad",
        "warn",
        "warn",
        "good",
        "good",
    ]


SCHEMA = Schema(
    columns=(
        Numeric("age", 16, 80),
        Categorical("region", ("n", "s", "e", "w")),
        Boolean("female", ("f", "t")),
        Date("hired", "2000-01-01", "2020-12-31"),
        Categorical("job", ("a", "b", "c")),
        Numeric("wage", 0, 1e5),
        Ignored("note"),
    ),
    target="wage",
    adjacency="add_remove",
)


def test_a_population_of_a_schema_is_what_the_schema_encodes() -> None:
    """Levels are one-hot, numbers within their bounds, derived columns computed, the target left out."""
    found = Trial.of(SCHEMA)
    names = SCHEMA.feature_names
    assert found.X.shape[1] == len(names) == found.columns.n_inputs and found.is_regression
    by_name = dict(zip(names, found.X.T, strict=True))
    assert "wage" not in by_name and not np.isnan(found.X).any()
    regions = np.column_stack([by_name[f"region={level}"] for level in "nsew"])
    np.testing.assert_array_equal(regions.sum(axis=1), 1.0)
    shares = regions.mean(axis=0)
    np.testing.assert_allclose(shares, np.array([12, 6, 4, 3]) / 25, atol=0.03)
    assert 16 <= by_name["age"].min() < by_name["age"].max() <= 80
    assert np.linalg.norm(found.columns.apply(found.X), axis=1).max() <= found.columns.norm_bound
    squares = Trial.of(SCHEMA.with_formula("wage ~ age + I(age**2) + C(job)"))
    assert squares.columns.n_inputs == 5
    np.testing.assert_allclose(squares.X[:, 1], squares.X[:, 0] ** 2)


def test_the_classes_of_a_schema_are_those_of_the_trial() -> None:
    for name, classes in (("female", 2), ("job", 3)):
        trial = Trial.of(SCHEMA.with_target(name))
        assert trial.problem.loss.n_outputs == (1 if classes == 2 else classes)
        assert set(np.unique(trial.y)) == ({-1.0, 1.0} if classes == 2 else {0.0, 1.0, 2.0})
        assert trial.nonprivate > trial.constant + 0.1
    found = forecast(20_000, SCHEMA.with_target("job"), BUDGET, candidates=[("recentered", "auto")])
    assert found.task == "classification" and found.features == len(SCHEMA.feature_names) - 2
    assert found.rows[0].share > 0.9


@pytest.mark.parametrize("best", [0.2, 0.7])
def test_the_score_without_privacy_is_what_was_expected(best: float) -> None:
    """R² against a least-squares fit of fresh rows; accuracy against the true probabilities."""
    trial = Trial.of(5, best_score=best)
    X, y = trial.columns.apply(trial.X), trial.y
    theta = np.linalg.lstsq(X[:-TEST_ROWS], y[:-TEST_ROWS], rcond=None)[0]
    assert trial.score(theta[:, None]) == pytest.approx(best, abs=0.06)
    assert trial.nonprivate == pytest.approx(best, abs=0.06)
    accuracy = 0.5 + best / 2
    for target in ("female", "job"):
        again = Trial.of(SCHEMA.with_target(target), best_score=accuracy)
        assert again.nonprivate == pytest.approx(accuracy, abs=0.03)
    with pytest.raises(InvalidInput, match="accuracy without privacy"):
        Trial.of(5, "classification", best_score=0.4)
    with pytest.raises(InvalidInput, match="R² without privacy"):
        Trial.of(5, best_score=1.0)


def test_the_spread_is_that_of_the_runs() -> None:
    trial = Trial.of(4)
    plan = make_plan(catalogue.mechanism("statistics"), trial.problem, trial.columns.d, BUDGET)
    table, spread = trial.table(2_000), trial.spread(plan, 2_000, 11)
    fits = [execute(plan, table, random_state=SEED + 1 + k).value for k in range(11)]
    ranked = sorted(trial.score(fit.theta) for fit in fits)
    assert len(set(ranked)) == 11
    assert (spread.low, spread.median, spread.high) == (ranked[1], ranked[5], ranked[9])
    few, many = (trial.spread(plan, rows, 11) for rows in (500, 50_000))
    assert few.high - few.low > 5 * (many.high - many.low)


def test_which_epsilon_is_the_smallest_of_the_grid() -> None:
    """Against all of the grid, one ε after the other."""
    grid = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)
    found = reach(0.4, 3_000, 3, 1e-6, epsilons=grid, mechanism="statistics", runs=10)
    trial = Trial.of(3)
    spreads = {}
    for epsilon in grid:
        plan = make_plan(
            catalogue.mechanism("statistics"), trial.problem, trial.columns.d, Budget(epsilon, 1e-6)
        )
        spreads[epsilon] = trial.spread(plan, 3_000, 10)
    assert found.epsilon == min(e for e in grid if spreads[e].median >= 0.4)
    assert found.sure_epsilon == min(e for e in grid if spreads[e].low >= 0.4)
    assert found.epsilon < found.sure_epsilon  # else this test says little
    assert all(spreads[epsilon] == spread for epsilon, spread in found.tried)
    assert f"from ε = {found.epsilon:g} on" in found.sentence
    assert f"nine of ten from ε = {found.sure_epsilon:g} on" in found.sentence


def test_scores_that_no_epsilon_reaches() -> None:
    above = reach(0.9, 3_000, 3, 1e-6, epsilons=(1.0,), mechanism="statistics")
    assert above.epsilon is None and not above.tried and "out of reach" in above.sentence
    few = reach(0.4, 100, 3, 1e-6, epsilons=(0.01, 0.02), mechanism="statistics")
    assert few.epsilon is None and "not reached up to ε = 0.02" in few.sentence
    with pytest.raises(InvalidInput, match="the score to reach"):
        reach(float("nan"), 100, 3, 1e-6)
