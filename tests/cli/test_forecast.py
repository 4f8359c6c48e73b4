"""Forecasts without data: the synthetic trial, the rows it takes, and the sentence it ends in."""

from __future__ import annotations

import numpy as np
import pytest

from curvedp import catalogue
from curvedp.budget import Budget
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.forecast import CANDIDATES, FEATURES_AT_MOST, Repeated, Trial, Verdict, assess, forecast
from curvedp.losses import Squared
from curvedp.mechanisms import QOP
from curvedp.mechanisms.base import make_plan
from curvedp.rows import make_rows

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
    assert short.value_sum(loss, theta) == pytest.approx(long.value_sum(loss, theta), rel=1e-12)
    metric = np.diag([2.0, 1.0, 1.0, 0.5])
    np.testing.assert_allclose(
        short.in_metric(metric).gradient_sum(loss, theta, 0.3),
        long.in_metric(metric).gradient_sum(loss, theta, 0.3),
        rtol=1e-12,
    )


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_trial_can_be_learned_and_the_constant_answer_cannot_do_it(task: catalogue.Task) -> None:
    trial = Trial.of_shape(6, "replace", task)
    assert trial.nonprivate > trial.constant + 0.2
    assert trial.share(trial.nonprivate) == 1.0 and trial.share(trial.constant) == 0.0
    zero = np.zeros((7, 1))
    assert trial.score(zero) == pytest.approx(trial.constant, abs=0.05)
    table = trial.table(300)
    assert table.count() == 300
    assert trial.table(50_000).count() == 50_000


def test_more_rows_more_epsilon_and_a_better_accounting_help() -> None:
    candidates = [("qop", "directional"), ("qop", "spectral")]
    table = forecast(20_000, 4, BUDGET, candidates=candidates, epsilons=(0.1, 1.0, 10.0))
    directional, spectral = table.rows
    assert directional.accounting == "directional"
    assert directional.rows_needed is not None and spectral.rows_needed is not None
    assert directional.rows_needed < spectral.rows_needed
    assert list(directional.scores_by_epsilon) == sorted(directional.scores_by_epsilon)
    assert directional.scores_by_epsilon[1] == directional.score  # the same seed, the same answer
    assert directional.utility_bound is not None and spectral.utility_bound is not None
    assert directional.utility_bound < spectral.utility_bound
    fewer = forecast(directional.rows_needed // 4, 4, BUDGET, candidates=candidates)
    assert fewer.verdict.tone == "bad" and table.verdict.tone == "good"
    assert "mostly noise" in fewer.verdict.sentence
    assert fewer.rows[0].rows_needed == directional.rows_needed  # rows needed do not depend on rows declared


def test_rows_needed_is_where_half_is_kept() -> None:
    trial = Trial.of_shape(4, "add_remove", "regression")
    plan = make_plan(QOP(), trial.problem, trial.columns.d, BUDGET)
    needed = trial.rows_needed(plan, repeats=3)
    assert needed is not None
    assert trial.share(trial.private_score(plan, needed, 3)) >= 0.5
    assert trial.share(trial.private_score(plan, needed / 1.5, 3)) < 0.5


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
    trial = Trial.of_shape(3, "replace", task)
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
