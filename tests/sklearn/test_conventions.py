"""scikit-learn's tools around an estimator: empty ledgers say so, names are there, what cannot be is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.inspection import partial_dependence
from sklearn.model_selection import GridSearchCV, cross_val_score, validation_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from curvedp import Categorical, Ledger, Numeric, PrivateLinearRegression, PrivateRidge, Schema
from curvedp.errors import BudgetExceeded, PrivacyWarning

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (300, 1))
Y = np.clip(0.5 * X[:, 0], -1, 1)
GRID = {"alpha": [1.0, 2.0]}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", PrivacyWarning)


def ledger(folder: Path, epsilon: float) -> Ledger:
    return Ledger.create(folder / f"{epsilon:g}.db", epsilon=epsilon, delta=1e-5, filter="basic")


def ridge(account: Ledger | Path | None, epsilon: float = 1.0) -> PrivateRidge:
    return PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), epsilon=epsilon, delta=1e-6, ledger=account)


def in_pipeline(model: PrivateRidge) -> object:
    return make_pipeline(FunctionTransformer(), model)


@pytest.mark.parametrize(
    "work",
    [
        lambda model: cross_val_score(model, X, Y, cv=2),
        lambda model: cross_val_score(in_pipeline(model), X, Y, cv=2),
        lambda model: GridSearchCV(model, GRID, cv=2).fit(X, Y),
        lambda model: GridSearchCV(in_pipeline(model), {"privateridge__alpha": [1, 2]}, cv=2).fit(X, Y),
        lambda model: validation_curve(model, X, Y, param_name="alpha", param_range=[1, 2], cv=2),
    ],
    ids=["folds", "folds of a pipeline", "search", "search of a pipeline", "curve"],
)
def test_an_empty_ledger_is_said_and_no_misconfiguration(work: Callable, tmp_path: Path) -> None:
    empty = ledger(tmp_path, 0.5)
    for account in (empty, empty.path):
        with pytest.raises(BudgetExceeded, match=r"remains: ask for less.*Every fold .* PrivateSearch"):
            work(ridge(account))
    assert empty.history() == []


def test_what_the_first_folds_paid_for_is_kept(tmp_path: Path) -> None:
    account = ledger(tmp_path, 2.5)
    with pytest.warns(FitFailedWarning, match="BudgetExceeded"):
        scores = cross_val_score(ridge(account), X, Y, cv=3)
    assert np.isfinite(scores).tolist() == [True, True, False]
    with pytest.raises(BudgetExceeded):  # another run, which begins with too little
        cross_val_score(ridge(account), X, Y, cv=3)
    assert len(account.history()) == 2


def test_a_copy_and_a_search_over_the_budget_are_left_alone(tmp_path: Path) -> None:
    model = ridge(ledger(tmp_path, 0.5))
    assert clone(model).set_params(epsilon=0.1).fit(X, Y).privacy_.epsilon == 0.1
    assert clone(ridge(tmp_path / "not there.db")).epsilon == 1.0
    search = GridSearchCV(model, {"epsilon": [0.05, 0.1]}, cv=2, refit=False).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_names_of_coefficients_partial_dependence_and_no_output_to_set() -> None:
    columns = [Numeric("age", 16, 90), Categorical("union", ["no", "yes"]), Numeric("wage", 0, 40_000)]
    schema = Schema(columns, target="wage")
    age, union = RANDOM.uniform(16, 90, 2_000), RANDOM.choice(["no", "yes"], 2_000)
    table = pd.DataFrame({"age": age, "union": union, "wage": 100 * age + 9_000 * (union == "yes")})
    model = PrivateLinearRegression(schema=schema, epsilon=5.0, inference=False).fit(table)
    assert model.get_feature_names_out().tolist() == ["age", "union=no", "union=yes"]
    assert len(model.get_feature_names_out()) == len(model.coef_)
    found = partial_dependence(
        model, table[["age", "union"]], ["union"], categorical_features=["union"], kind="average"
    )
    no, yes = found["average"][0]
    assert 6_000 < yes - no < 12_000
    plain = ridge(None).fit(X, Y)
    assert plain.get_feature_names_out().tolist() == ["x0"]
    assert partial_dependence(plain, X, [0], grid_resolution=3)["average"].shape == (1, 3)
    assert not hasattr(plain, "set_output")
    with pytest.raises(AttributeError, match="set it on the steps before it, and wrap what predict returns"):
        plain.set_output(transform="pandas")
    assert in_pipeline(plain).set_output(transform="pandas") is not None
