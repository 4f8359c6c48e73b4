"""`coef_noise_` is how far refits of the same table scatter; a deviation half as large would be noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curvedp import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
)
from curvedp.arrays import FloatArray
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.mapping import ColumnMap
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.mechanisms.statistics import GramPlan
from curvedp.postprocess.noise import ANOTHER_MODEL, BENT, UNTOLD, WEAK, MomentsNoise
from curvedp.privacy.budget import Budget
from curvedp.problems.constraints import L2Ball
from curvedp.problems.domain import Domain
from curvedp.release.fit import read_rows

RUNS = 100  # refits of one table
TABLES = 200
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (5000, 4))
Y = np.clip(X @ [0.5, -0.3, 0.1, 0.0] + RANDOM.normal(0, 0.1, 5000), -1, 1)
LABELS = np.where(X @ [2.0, -1.0, 0.5, 0.0] + RANDOM.logistic(size=5000) > 0, "yes", "no")
NUMBERS = {"bounds": (-1, 1), "target_bounds": (-1, 1), "adjacency": "add_remove"}
CLASSES = {"bounds": (-1, 1), "classes": ["no", "yes"], "adjacency": "add_remove"}

CLOSED_FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "statistics": (PrivateLinearRegression, {**NUMBERS, "mechanism": "statistics"}),
    "statistics, replace": (PrivateRidge, {**NUMBERS, "mechanism": "statistics", "adjacency": "replace"}),
    "statistics, strong ridge": (PrivateRidge, {**NUMBERS, "mechanism": "statistics", "alpha": 500.0}),
    "adassp": (PrivateLinearRegression, {**NUMBERS, "mechanism": "adassp", "epsilon": 3.0}),
    "functional": (PrivateLinearRegression, {**NUMBERS, "mechanism": "functional", "epsilon": 3.0}),
    "output": (PrivateLogisticRegression, {**CLASSES, "mechanism": "output"}),
    "output, Huber": (PrivateHuberRegressor, {**NUMBERS, "mechanism": "output"}),
}
SHORT = Recentered(Rule(rounds=24, first_rounds=12))  # what follows the walk is the same, and so is its noise
INFERRED: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear, short walk": (PrivateLinearRegression, {**NUMBERS, "inference": True, "mechanism": SHORT}),
    "linear": (PrivateLinearRegression, {**NUMBERS, "inference": True}),
    "Huber": (PrivateHuberRegressor, {**NUMBERS, "inference": True, "alpha": 0.0}),
    "logistic": (PrivateLogisticRegression, {**CLASSES, "inference": True}),
}


def refits(make: Any, options: dict[str, Any], table: Any, target: Any) -> tuple[FloatArray, FloatArray]:
    """(coefficients, stated deviations), one row per run on the same table."""
    found = [make(**options, random_state=seed).fit(table, target) for seed in range(RUNS)]
    coefficients = np.array([np.ravel(model.coef_) for model in found])
    return coefficients, np.array([np.ravel(model.coef_noise_) for model in found])


def ratios(coefficients: FloatArray, stated: FloatArray) -> FloatArray:
    """Empirical over stated deviation of every coefficient: that of its errors in units of each run's own."""
    told = np.isfinite(stated)
    middle = np.nanmedian(np.where(told, coefficients, np.nan), axis=0)
    return np.nanstd((coefficients - middle) / stated, axis=0, ddof=1)


def honest(found: FloatArray) -> bool:
    return bool(np.mean((found >= 0.8) & (found <= 1.25)) >= 0.95)


def check(coefficients: FloatArray, stated: FloatArray) -> None:
    kept = np.isfinite(stated).mean(axis=0) > 0.5
    assert kept.any()
    assert honest(ratios(coefficients[:, kept], stated[:, kept]))
    assert not honest(ratios(coefficients[:, kept], stated[:, kept] / 2.0))  # a planted bug


@pytest.mark.parametrize("case", CLOSED_FORMS)
def test_closed_forms(case: str) -> None:
    make, options = CLOSED_FORMS[case]
    coefficients, stated = refits(make, options, X, LABELS if "classes" in options else Y)
    assert np.mean(np.isfinite(stated)) > 0.9
    check(coefficients, stated)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if "short" in case else pytest.mark.full) for case in INFERRED]
)
def test_inference(case: str) -> None:
    make, options = INFERRED[case]
    coefficients, stated = refits(make, options, X, LABELS if "classes" in options else Y)
    assert np.mean(np.isfinite(stated)) > 0.8
    check(coefficients, stated)


@pytest.mark.full
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_earnings(adjacency: str) -> None:
    from dataclasses import replace

    from curvedp.cli import workflow

    train, _ = workflow._tables()
    schema = replace(workflow.SCHEMA, adjacency=adjacency)
    coefficients, stated = refits(PrivateLinearRegression, {"schema": schema, "inference": True}, train, None)
    assert np.mean(np.isfinite(stated)) > 0.8
    check(coefficients, stated)


def rare_levels(forty: bool = False) -> tuple[dict[str, Any], Schema]:
    random = np.random.default_rng(1)
    kind = random.choice(["a", "b", "c"], 4000, p=[0.5, 0.3, 0.2]).astype(object)
    kind[: 40 if forty else 2] = "e"
    age = random.uniform(18, 80, 4000)
    wage = np.clip(10 + 0.3 * age + 4.0 * (kind == "a") + random.normal(0, 4, 4000), 0, 60)
    columns = Numeric("age", 16, 90), Categorical("kind", ("a", "b", "c", "e")), Numeric("wage", 0, 60)
    return {"age": age, "kind": kind, "wage": wage}, Schema(columns, "wage", adjacency="add_remove")


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "adassp"},
        {"mechanism": SHORT, "inference": True},
        pytest.param({"inference": True}, marks=pytest.mark.full),
    ],
    ids=["adassp", "inference, short walk", "inference"],
)
def test_a_level_of_two_records(options: dict[str, Any]) -> None:
    table, schema = rare_levels()
    coefficients, stated = refits(PrivateLinearRegression, {"schema": schema, **options}, table, None)
    assert np.isfinite(stated[:, 0]).mean() > 0.9 and np.isnan(stated[:, 4]).mean() > 0.9
    check(coefficients, stated)


@pytest.mark.full
def test_a_level_of_forty_records() -> None:
    """All of them are clipped at first: the curvature must not count them as if they moved."""
    table, schema = rare_levels(forty=True)
    options = {"schema": schema, "epsilon": 3.0, "inference": True}
    check(*refits(PrivateLinearRegression, options, table, None))


def test_a_ridge_that_varies_leaves_the_noise_unstated() -> None:
    """With a level of two records the ridge follows the noise, and every coefficient the ridge."""
    table, schema = rare_levels()
    model = PrivateLinearRegression(schema=schema, mechanism="statistics", random_state=0).fit(table)
    assert np.all(np.isnan(model.coef_noise_)) and model.coef_noise_reason_ == WEAK


@pytest.mark.parametrize(
    "mechanism", ["qop", "lop", "gradient", pytest.param("dp_sgd", marks=pytest.mark.full)]
)
def test_what_a_mechanism_does_not_release_is_not_stated(mechanism: str) -> None:
    model = PrivateLogisticRegression(**CLASSES, mechanism=mechanism, random_state=0).fit(X, LABELS)
    assert model.coef_noise_ is None and model.coef_noise_reason_ == UNTOLD


def test_what_is_of_another_model_or_bent_is_not_stated() -> None:
    default = PrivateLasso(**NUMBERS, random_state=0).fit(X, Y)
    assert default.coef_noise_ is None and default.coef_noise_reason_ == ANOTHER_MODEL
    for bent in (
        PrivateLasso(**NUMBERS, mechanism="statistics", random_state=0),
        PrivateLinearRegression(**NUMBERS, mechanism="output", constraint=L2Ball(1.0), fit_intercept=False),
    ):
        bent.fit(X, Y)
        assert bent.coef_noise_ is None and bent.coef_noise_reason_ == BENT


def test_several_classes_have_a_row_each() -> None:
    labels = np.where(X[:, 0] > 0.3, "a", np.where(X[:, 1] > 0, "b", "c"))
    options = {**CLASSES, "classes": ["a", "b", "c"]}
    model = PrivateLogisticRegression(**options, mechanism="output", random_state=0).fit(X, labels)
    assert model.coef_noise_.shape == model.coef_.shape == (3, 4)


def test_the_noise_of_a_score_is_that_of_symmetric_noise() -> None:
    """Cov(n − Eθ) by simulation, with three different deviations."""
    law = MomentsNoise(diagonal=3.0, off=1.0, xy=0.5, ridge=2.0)
    theta, random = np.array([1.0, -2.0, 0.5]), np.random.default_rng(5)
    E = random.normal(size=(200_000, 3, 3))
    E = np.triu(E, 1) + np.swapaxes(np.triu(E, 1), 1, 2) + 3.0 * E * np.eye(3)
    E += 2.0 * random.normal(size=(200_000, 1, 1)) * np.eye(3)
    scores = 0.5 * random.normal(size=(200_000, 3)) - E @ theta
    assert np.allclose(np.cov(scores.T), law.of_score(theta), rtol=0.03, atol=0.1)


def test_standard_errors_of_private_statistics_cover() -> None:
    """New tables and new noise: θ ± 1.96 errors; without the pull of the ridge one coefficient fails."""
    beta, columns = np.array([0.35, -0.21, 0.07, 0.0, 0.1]), ColumnMap.from_bounds([-1] * 4, [1] * 4)
    domain = Domain(columns.norm_bound, 1.0, "add_remove")
    held, unpulled = [], []
    for seed in range(TABLES):
        random = np.random.default_rng(seed)
        x = random.uniform(-1, 1, (5000, 4))
        y = x @ beta[:4] + beta[4] + 0.06 * np.clip(random.normal(size=5000), -3, 3)
        rows = read_rows(x, y, domain, columns)
        plan = GramPlan.calibrated(rows.layout, Budget(1.0, 1e-6), intercept=1.0)
        released = plan.release(rows, np.random.default_rng(seed + 10**6))
        theta, ridge = released.solve(), released.ridge()
        held.append(np.abs(theta - beta) <= 1.96 * released.standard_errors(theta))
        sampling = released.residual_variance(theta) * released.curvature(0.0)
        H = released.curvature(ridge)
        middle = np.linalg.solve(H, sampling) @ np.linalg.inv(H) + released.noise_covariance(theta, ridge)
        unpulled.append(np.abs(theta - beta) <= 1.96 * np.sqrt(np.diag(middle)))
    assert np.all(np.mean(held, axis=0) >= 0.89) and 0.93 <= np.mean(held) <= 0.98
    assert np.mean(unpulled, axis=0)[0] < 0.88


def test_standard_errors_are_not_stated_where_the_ridge_decides() -> None:
    columns = ColumnMap.from_bounds([-1] * 2, [1] * 2)
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    twice = np.hstack([x, 0.999 * x])
    rows = read_rows(twice, x[:, 0] / 2, Domain(columns.norm_bound, 1.0, "add_remove"), columns)
    plan = GramPlan.calibrated(rows.layout, Budget(1.0, 1e-6), intercept=1.0)
    released = plan.release(rows, np.random.default_rng(1))
    errors = released.standard_errors(released.solve())
    assert np.isnan(errors[0]) and np.isnan(errors[1])
