"""`curvedp.inspect` names what a private estimator's guarantee does not cover."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from curvedp import PrivateRidge, inspect
from curvedp.analyses.search import PrivateSearch


def private(**options: object) -> PrivateRidge:
    return PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), ledger="budget.db", **options)


def test_a_private_estimator_with_a_ledger_is_covered() -> None:
    found = inspect(private())
    assert found.covered and found.fits == 1 and found.epsilon == 1.0
    assert "Everything in it is covered" in str(found)


@pytest.mark.parametrize(
    ("pipeline", "where", "why"),
    [
        (make_pipeline(StandardScaler(), private()), "standardscaler", "fitted on the private rows"),
        (make_pipeline(OneHotEncoder(), private()), "onehotencoder", "declare levels"),
        (make_pipeline(StandardScaler(), Ridge()), "ridge", "not private at all"),
        (private(random_state=0), "PrivateRidge", "seed"),
        (PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)), "PrivateRidge", "no ledger"),
        (GridSearchCV(private(), {"alpha": [1, 2]}), "GridSearchCV", "chooses by scores"),
    ],
)
def test_what_is_not_covered_is_named(pipeline: object, where: str, why: str) -> None:
    findings = inspect(pipeline).findings
    assert any(finding.where == where and why in finding.why for finding in findings)


@pytest.mark.parametrize(
    ("pipeline", "where", "why"),
    [
        (BaggingRegressor(private()), "BaggingRegressor", "every copy counts"),
        (MultiOutputRegressor(private()), "MultiOutputRegressor", "they add up"),
        (CalibratedClassifierCV(private()), "CalibratedClassifierCV", "calibrates on private rows"),
        (cross_val_score, "cross_val_score", "without noise"),
        (train_test_split, "train_test_split", "curvedp split"),
        (PrivateSearch(private(), {"alpha": [1, 2]}), "PrivateSearch", "no ledger"),
        (PrivateSearch(private(), {"alpha": [1]}, random_state=1), "PrivateSearch", "seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_habits_that_cost_privacy_are_named(pipeline: object, where: str, why: str) -> None:
    findings = inspect(pipeline).findings
    assert any(finding.where == where and why in finding.why for finding in findings)


def test_a_private_search_is_one_fit_of_its_own_budget() -> None:
    found = inspect(PrivateSearch(private(), {"alpha": [1, 2, 3]}, epsilon=0.7, ledger="budget.db"))
    assert found.covered and found.fits == 1 and found.epsilon == 0.7
    without = BaggingRegressor(private(), bootstrap=False)
    assert not any("copy" in finding.why for finding in inspect(without).findings)


def test_a_function_of_whole_tables_cannot_be_told_from_one_of_rows() -> None:
    for function in (None, np.log1p):
        assert inspect(make_pipeline(FunctionTransformer(function), private())).covered
    found = inspect(make_pipeline(FunctionTransformer(lambda X: X - X.mean(axis=0)), private()))
    assert [finding.where for finding in found.findings] == ["functiontransformer"]
    assert "must read every row by itself" in str(found)


def test_steps_that_learn_nothing_are_covered() -> None:
    steps = make_pipeline(FunctionTransformer(), OneHotEncoder(categories=[["a", "b"]]), private())
    assert inspect(steps).covered


def test_a_search_costs_every_fit_it_makes() -> None:
    found = inspect(GridSearchCV(private(epsilon=0.5), {"alpha": [1, 2, 3]}, cv=4))
    assert found.fits == 13
    assert found.epsilon == pytest.approx(6.5)
    assert "13 private fits" in str(found)


def test_a_bag_costs_every_fit_it_makes() -> None:
    assert inspect(BaggingRegressor(private(), n_estimators=7)).fits == 7


def test_the_page_of_habits_shows_what_inspect_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "habits.md"
    done = doctest.testfile(str(page), module_relative=False)
    assert done.attempted >= 6 and done.failed == 0
