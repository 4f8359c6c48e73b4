"""Exact scores are not given without a word, and scikit-learn's tools have a scorer that is private."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.inspection import permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    PredefinedSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from curvedp import Ledger, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, errors, inspect
from curvedp.analyses.estimators.counts import PrivatePoissonRegressor
from curvedp.analyses.scores import private_scorer, private_scores
from curvedp.errors import BudgetExceeded, InvalidInput, PrivacyWarning

N = 6000
RANDOM = np.random.default_rng(11)
X = RANDOM.uniform(-1, 1, (N, 2))
Y = np.clip(X @ [0.6, -0.4] + RANDOM.normal(0, 0.2, N), -1, 1)
LABELS = Y > 0
COUNTS = np.round(2 + 2 * Y)
COINS = PredefinedSplit(RANDOM.integers(3, size=N))
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """No line was warned of yet."""
    errors._warned.clear()


def ridge(**more) -> PrivateRidge:
    return PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="add_remove", **BUDGET, **more)


def logistic(**more) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        bounds=(-1, 1), classes=[False, True], adjacency="add_remove", **BUDGET, **more
    )


def poisson() -> PrivatePoissonRegressor:
    return PrivatePoissonRegressor(bounds=(-1, 1), target_bounds=(0, 5), max_rate=5.0, **BUDGET)


EXACT = {
    "model.score": lambda: ridge().fit(X, Y).score(X, Y),
    "of a classifier": lambda: logistic().fit(X, LABELS).score(X, LABELS),
    "of counts": lambda: poisson().fit(X, COUNTS).score(X, COUNTS),
    "of a pipeline": lambda: make_pipeline(FunctionTransformer(), ridge()).fit(X, Y).score(X, Y),
    "cross_val_score": lambda: cross_val_score(ridge(), X, Y, cv=3),
    "a named scorer": lambda: cross_val_score(ridge(), X, Y, cv=3, scoring="neg_mean_absolute_error"),
    "of probabilities": lambda: cross_val_score(logistic(), X, LABELS, cv=3, scoring="roc_auc"),
    "several": lambda: cross_validate(logistic(), X, LABELS, cv=3, scoring=["accuracy", "neg_log_loss"]),
    "grid search": lambda: GridSearchCV(ridge(), {"alpha": [1.0, 2.0]}, cv=3, scoring="r2").fit(X, Y),
    "learning curve": lambda: learning_curve(ridge(), X, Y, cv=3, train_sizes=[0.5, 1.0]),
    "importance": lambda: permutation_importance(ridge().fit(X, Y), X, Y, n_repeats=2),
}


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_score_warns_once_at_the_line_of_the_caller(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        EXACT[name]()
    told = [warning for warning in caught if warning.category is PrivacyWarning]
    assert len(told) == 1 and told[0].filename == __file__
    text = str(told[0].message)
    assert "curvedp.score(" in text and "private_scorer" in text and not any(c.isdigit() for c in text)


@pytest.mark.parametrize(
    "name", ["model.score", "of a classifier", "of counts", "of a pipeline", "importance"]
)
def test_a_filter_makes_every_one_of_them_an_error(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        for _ in range(2):
            with pytest.raises(PrivacyWarning):
                EXACT[name]()


@pytest.mark.parametrize(
    "work",
    [
        lambda: ridge().fit(X, Y).predict(X),
        lambda: logistic().fit(X, LABELS).predict_proba(X),
        lambda: cross_val_predict(ridge(), X, Y, cv=3),
        lambda: private_scores(ridge().fit(X, Y), X, Y, **BUDGET),
        lambda: cross_val_score(ridge(), X, Y, cv=COINS, scoring=private_scorer("r2", **BUDGET)),
        lambda: cross_validate(ridge(), X, Y, cv=COINS, scoring={"a": private_scorer("r2", **BUDGET)}),
    ],
    ids=["predict", "probabilities", "predictions of folds", "private", "private scorer", "among several"],
)
def test_nothing_else_warns(work):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        work()


def test_every_call_of_the_private_scorer_is_charged(tmp_path):
    path = tmp_path / "budget.db"
    Ledger.create(path, epsilon=10.0, delta=1e-3, adjacency="add_remove", filter="basic")
    scorer = private_scorer("r2", epsilon=2.0, delta=1e-6, ledger=path)
    scores = cross_val_score(ridge(ledger=path), X, Y, cv=COINS, scoring=scorer)
    history = Ledger(path).history()
    assert [charge.label for charge in history].count("scores") == 3 and len(history) == 6
    assert Ledger(path).spent().epsilon == pytest.approx(3 * 1.0 + 3 * 2.0)
    assert scores.shape == (3,) and np.all(scores > 0.3)


def test_scores_are_noisy_and_those_of_private_scores():
    model = ridge(random_state=1).fit(X, Y)
    scorer = private_scorer("r2", **BUDGET)
    found = {scorer(model, X, Y) for _ in range(4)}
    with pytest.warns(PrivacyWarning):
        exact = model.score(X, Y)
    assert len(found) == 4 and exact not in found
    reported = private_scores(model, X, Y, **BUDGET)["r2"]
    assert max(abs(value - exact) for value in found) < 8 * max(reported.noise, 1e-3)


@pytest.mark.parametrize(
    ("model", "target", "names", "worse"),
    [
        (ridge(), Y, ("r2", "neg_root_mean_squared_error", "neg_mean_absolute_error"), -Y),
        (logistic(), LABELS, ("accuracy", "roc_auc", "neg_brier_score", "neg_log_loss"), ~LABELS),
    ],
    ids=["regression", "classes"],
)
def test_several_scores_are_one_charge_and_larger_is_better(tmp_path, model, target, names, worse):
    path = tmp_path / "budget.db"
    Ledger.create(path, epsilon=10.0, delta=1e-3, adjacency="add_remove", filter="basic")
    model.fit(X, target)
    scorer = private_scorer(names, epsilon=2.0, delta=1e-6, ledger=str(path))
    good, bad = scorer(model, X, target), scorer(model, X, worse)
    assert len(Ledger(path).history()) == 2
    assert tuple(good) == names and all(good[name] > bad[name] for name in names)


@pytest.mark.parametrize(
    ("model", "target", "name", "why"),
    [
        (ridge(), Y, "accuracy", "choose among r2"),
        (logistic(), LABELS, "r2", "choose among accuracy"),
        (
            PrivateLinearSVC(bounds=(-1, 1), classes=[False, True]),
            LABELS,
            "neg_log_loss",
            "accuracy, roc_auc, roc_auc_ovr$",
        ),
    ],
    ids=["regression", "classes", "no probabilities"],
)
def test_a_score_that_a_model_does_not_have_is_refused_before_the_charge(tmp_path, model, target, name, why):
    path = tmp_path / "budget.db"
    Ledger.create(path, epsilon=10.0, delta=1e-3, adjacency="add_remove", filter="basic")
    with pytest.raises(InvalidInput, match=why):
        private_scorer(name, **BUDGET, ledger=path)(model.fit(X, target), X, target)
    assert not Ledger(path).history()


@pytest.mark.parametrize("name", ["rmse", "f1", (), ("r2", "auc")], ids=str)
def test_an_unknown_name_is_refused_when_the_scorer_is_made(name):
    with pytest.raises(InvalidInput, match="choose among r2"):
        private_scorer(name, **BUDGET)


def test_the_scorer_takes_pipelines_searches_and_travels(tmp_path):
    path = str(tmp_path / "budget.db")
    Ledger.create(path, epsilon=1.5, delta=1e-3, adjacency="add_remove", filter="basic")
    scorer = pickle.loads(pickle.dumps(private_scorer("r2", **BUDGET, ledger=path)))
    piped = make_pipeline(FunctionTransformer(), ridge()).fit(X, Y)
    assert scorer(piped, X, Y) > 0.3
    with pytest.raises(BudgetExceeded):
        scorer(piped, X, Y)
    free = private_scorer("r2", **BUDGET)
    chosen = GridSearchCV(ridge(), {"alpha": [0.1, 1.0]}, cv=COINS, scoring=free).fit(X, Y)
    assert free(chosen, X, Y) > 0.3
    with pytest.raises(InvalidInput, match="models of curvedp"):
        free(FunctionTransformer(), X, Y)


def test_inspect_counts_private_scores_and_names_folds_that_one_record_moves():
    scorer = private_scorer("r2", epsilon=0.25, delta=1e-6, ledger="budget.db")
    model = ridge(ledger="budget.db")
    found = inspect(GridSearchCV(model, {"alpha": [1, 2]}, cv=COINS, scoring=scorer))
    assert found.covered and (found.fits, found.scores) == (7, 6)
    assert found.epsilon == pytest.approx(7 * 1.0 + 6 * 0.25)
    trained = inspect(
        GridSearchCV(model, {"alpha": [1]}, cv=COINS, scoring=scorer, refit=False, return_train_score=True)
    )
    assert (trained.fits, trained.scores) == (3, 6)
    cut = inspect(GridSearchCV(model, {"alpha": [1, 2]}, cv=3, scoring=scorer))
    assert [finding.why for finding in cut.findings if "coin" in finding.why]
    without = inspect(GridSearchCV(model, {"alpha": [1]}, cv=COINS, scoring=private_scorer("r2", **BUDGET)))
    assert any("scorer has no ledger" in finding.why for finding in without.findings)
