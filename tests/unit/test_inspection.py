"""`curvedp.inspect` names what a private estimator's guarantee does not cover."""

from __future__ import annotations

import pytest
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from curvedp import PrivateRidge, inspect


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
