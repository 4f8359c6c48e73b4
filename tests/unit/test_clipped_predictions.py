"""Predictions of numbers stay within the declared range of the target; intervals stay linear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import curvedp
from curvedp.analyses.scores.source import read_scored
from curvedp.analyses.search import PrivateSearch
from curvedp.release import catalogue

REGRESSORS = [name for name, entry in catalogue.ESTIMATORS.items() if entry.task == "regression"]
X = np.random.default_rng(3).uniform(-1, 1, (300, 2))
LOW, HIGH = 0.0, 4.0


def wild(name, **options):
    """A fitted model whose linear part leaves the range on both sides."""
    made = catalogue.ESTIMATORS[name].load()
    model = made(bounds=(-1, 1), target_bounds=(LOW, HIGH), random_state=0, **options)
    model.fit(X, np.round(np.clip(2 + X[:, 0], LOW, HIGH)))
    model.release_ = replace(model.release_, coefficients=np.array([[30.0, -20.0]]))
    return model


@pytest.mark.parametrize("name", REGRESSORS)
def test_every_regressor_predicts_within_the_declared_range(name):
    model = wild(name)
    found = model.predict(X)
    assert found.min() >= LOW and found.max() == HIGH
    assert np.std(found) > 0


@pytest.mark.parametrize("name", [name for name in REGRESSORS if name != "poisson"])
def test_within_the_range_nothing_changes(name):
    model = wild(name)
    linear = X @ model.coef_ + model.intercept_
    np.testing.assert_allclose(
        model.predict(X), np.minimum(np.maximum(linear, LOW), HIGH), rtol=1e-12, atol=1e-12
    )
    inside = (linear > LOW) & (linear < HIGH)
    assert 0 < inside.sum() < len(X)


def test_a_score_is_that_of_what_is_predicted():
    model = wild("ridge")
    y = np.clip(2 + X[:, 0], LOW, HIGH)
    records = read_scored(model, X, y)
    np.testing.assert_allclose(records.score[:, 0] * 2 + 2, model.predict(X), atol=1e-12)
    assert np.abs(records.score).max() <= records.layout.reach == 1.0


def test_clipping_can_only_bring_a_prediction_nearer_to_any_target():
    model = wild("linear")
    linear = X @ model.coef_ + model.intercept_
    for target in np.linspace(LOW, HIGH, 9):
        assert np.all(np.abs(model.predict(X) - target) <= np.abs(linear - target) + 1e-12)


def test_intervals_of_the_mean_are_not_clipped():
    random = np.random.default_rng(1)
    rows = random.uniform(-1, 1, (40_000, 2))
    y = np.clip(0.5 + 0.5 * rows[:, 0] + 0.3 * rows[:, 1] + random.normal(0, 0.05, len(rows)), 0, 1)
    model = curvedp.PrivateLinearRegression(
        epsilon=8, bounds=(-1, 1), target_bounds=(0, 1), inference=True, random_state=0
    ).fit(rows, y)
    corners = np.array([[1.0, 1.0], [-1.0, -1.0]])
    ends, linear = model.predict_interval(corners), corners @ model.coef_ + model.intercept_
    assert linear[0] > 1.05 and linear[1] < -0.05
    np.testing.assert_allclose(ends.mean(axis=1), linear, atol=1e-9)
    assert model.predict(corners).tolist() == [1.0, 0.0]


def test_a_search_predicts_as_its_best_model_does():
    search = PrivateSearch(
        curvedp.PrivateRidge(bounds=(-1, 1), target_bounds=(LOW, HIGH)), {"alpha": [0.1, 1.0]}, random_state=0
    ).fit(X, np.clip(2 + X[:, 0], LOW, HIGH))
    best = search.best_estimator_
    best.release_ = replace(best.release_, coefficients=np.array([[30.0, -20.0]]))
    found = search.predict(X)
    assert found.min() == LOW and found.max() == HIGH
