"""Several targets at once: against separate fits without noise, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from tests.releases import plain_model

from curvedp import Ledger, PrivateRidge, Schema
from curvedp.analyses.estimators import PrivateMultiTaskRidge
from curvedp.analyses.scores import private_scores
from curvedp.data import Numeric
from curvedp.errors import CurvedpError, InvalidInput, NotCovered
from curvedp.release.modelfile import Release

BOUNDS = [(0, 10), (-3, 3)]


def table(n=10_000):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (n, 3))
    noise = random.normal(size=(n, 2)) * [0.5, 0.3]
    return X, np.column_stack([5 + 3 * X[:, 0], X[:, 0] - X[:, 1]]) + noise


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("mechanism", ["auto", "gradient"])
def test_with_little_noise_it_is_ridge_regression_of_each_target(adjacency, mechanism):
    X, Y = table()
    model = PrivateMultiTaskRidge(
        bounds=(-1, 1), target_bounds=BOUNDS, epsilon=50.0, adjacency=adjacency, mechanism=mechanism,
        random_state=0,
    ).fit(X, Y)  # fmt: skip
    plain = Ridge(alpha=1.0).fit(X, Y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.03)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=0.02)
    np.testing.assert_allclose(model.score(X, Y), plain.score(X, Y), atol=1e-3)


def test_tables_arrays_and_lists_are_read_alike():
    X, Y = table(500)
    model = PrivateMultiTaskRidge(bounds=(-1, 1), target_bounds=BOUNDS, random_state=0)
    expected = model.fit(X, Y).coef_
    np.testing.assert_array_equal(model.fit(X, pd.DataFrame(Y, columns=["u", "v"])).coef_, expected)
    np.testing.assert_array_equal(model.fit(X, Y.tolist()).coef_, expected)


def test_a_record_without_one_of_its_targets_contributes_nothing():
    X, Y = table(500)
    model = PrivateMultiTaskRidge(bounds=(-1, 1), target_bounds=BOUNDS, random_state=0)
    lost, other = Y.copy(), Y.copy()
    lost[3] = [np.nan, 2.0]
    other[3] = [np.nan, -1e300]
    np.testing.assert_array_equal(model.fit(X, lost).coef_, model.fit(X, other).coef_)
    assert np.abs(model.fit(X, Y).coef_ - model.fit(X, lost).coef_).max() > 0


def test_a_plain_model_predicts_the_same():
    X, Y = table()
    model = PrivateMultiTaskRidge(bounds=(-1, 1), target_bounds=[(-99, 99)] * 2, random_state=0).fit(X, Y)
    np.testing.assert_allclose(plain_model(Release.of(model)).predict(X), model.predict(X))


def refusals():
    X, Y = table(50)
    schema = Schema([Numeric("a", 0, 1), Numeric("y", 0, 1)], target="y")

    def made(**options):
        return PrivateMultiTaskRidge(**({"bounds": (-1, 1), "target_bounds": BOUNDS} | options))

    return [
        ("2 columns|one for each", lambda k: made(ledger=k).fit(X, Y[:, :1])),
        ("y must have 2 columns", lambda k: made(ledger=k).fit(X, pd.Series(Y[:, 0]))),
        ("target_bounds", lambda k: made(target_bounds=None, ledger=k).fit(X, Y)),
        ("target_bounds", lambda k: made(target_bounds=(0, 1), ledger=k).fit(X, Y)),
        ("reversed", lambda k: made(target_bounds=[(0, 1), (1, 0)], ledger=k).fit(X, Y)),
        ("one target", lambda k: made(schema=schema, bounds=None, ledger=k).fit({}, Y)),
        ("squared loss", lambda k: made(mechanism="statistics", ledger=k).fit(X, Y)),
        ("one output", lambda k: made(mechanism="lop", ledger=k).fit(X, Y)),
    ]


@pytest.mark.parametrize(("words", "fit"), refusals(), ids=[words for words, _ in refusals()])
def test_what_cannot_be_fitted_is_refused_before_the_charge(words, fit, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=5.0, delta=1e-5, adjacency="replace")
    with pytest.raises(CurvedpError, match=words):
        fit(ledger)
    assert ledger.spent().epsilon == 0.0


def test_what_follows_a_fit_of_one_target_is_refused():
    X, Y = table(500)
    model = PrivateMultiTaskRidge(bounds=(-1, 1), target_bounds=BOUNDS).fit(X, Y)
    with pytest.raises(NotCovered, match="refits"):
        model.refit(alpha=3.0)
    with pytest.raises(InvalidInput, match="several targets"):
        private_scores(model, X, Y, epsilon=1.0, delta=1e-6)


def test_a_model_of_one_target_does_not_take_several_for_one_column(recwarn):
    X, Y = table(50)
    with pytest.raises(InvalidInput, match="y must be one column"):
        PrivateRidge(bounds=(-1, 1), target_bounds=(0, 1)).fit(X, Y)
    assert not recwarn.list
