"""The estimators as a data scientist meets them: tables in, user units out, errors that say what to pass."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from curvedp import (
    Ledger,
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    load,
)
from curvedp.data import Categorical, Numeric
from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused
from curvedp.mechanisms import QOP
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.problems.constraints import NonNegative

REGRESSORS = [PrivateLinearRegression, PrivateRidge, PrivateLasso, PrivateElasticNet, PrivateHuberRegressor]
CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]
BOUNDS = {"age": (0.0, 100.0), "height": (100.0, 220.0), "member": (0.0, 1.0)}


def people(n=5000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 100, n), rng.uniform(120, 200, n), rng.integers(0, 2, n)])
    y = 10 + 0.3 * X[:, 0] - 0.1 * X[:, 1] + 5 * X[:, 2] + rng.normal(0, 1, n)
    return pd.DataFrame(X, columns=list(BOUNDS)), y


def regressor(cls=PrivateLinearRegression, **options):
    defaults = {
        "bounds": BOUNDS,
        "target_bounds": (-20.0, 50.0),
        "adjacency": "add_remove",
        "random_state": 1,
    }
    return cls(**{**defaults, **options})


def classifier(cls=PrivateLogisticRegression, **options):
    defaults = {"bounds": BOUNDS, "classes": ["no", "yes"], "adjacency": "add_remove", "random_state": 1}
    return cls(**{**defaults, **options})


@pytest.mark.parametrize("cls", REGRESSORS)
def test_regressors_learn_in_user_units(cls):
    X, y = people(20_000)
    model = regressor(cls, epsilon=20.0).fit(X, y)
    reference = LinearRegression().fit(X, y)
    assert np.allclose(model.coef_, reference.coef_, rtol=0.1, atol=0.02)
    assert model.score(X, y) > reference.score(X, y) - 0.01
    inside = X.to_numpy()
    assert np.allclose(model.predict(X), inside @ model.coef_ + model.intercept_, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("classes", [["no", "yes"], ["a", "b", "c"]])
def test_classifiers_learn_declared_classes(cls, classes):
    X, y = people(20_000)
    cuts = np.quantile(y, np.linspace(0, 1, len(classes) + 1)[1:-1])
    labels = np.asarray(classes)[np.searchsorted(cuts, y)]
    model = classifier(cls, classes=classes, epsilon=20.0).fit(X, labels)
    assert list(model.classes_) == classes
    assert set(model.predict(X)) <= set(classes)
    assert model.score(X, labels) > {2: 0.9, 3: 0.6}[len(classes)]
    margins = model.decision_function(X)
    assert margins.shape == ((len(X),) if len(classes) == 2 else (len(X), 3))
    assert model.coef_.shape == ((1, 3) if len(classes) == 2 else (3, 3))


def test_probabilities_sum_to_one_and_agree_with_their_logarithm():
    X, y = people()
    for classes in (["no", "yes"], ["a", "b", "c"]):
        labels = np.asarray(classes)[np.searchsorted(np.quantile(y, [0.5, 0.8][: len(classes) - 1]), y)]
        model = classifier(classes=classes, epsilon=5.0).fit(X, labels)
        p = model.predict_proba(X)
        assert np.allclose(p.sum(axis=1), 1.0)
        assert np.allclose(np.log(p), model.predict_log_proba(X))
        assert np.array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_every_kind_of_frame_gives_the_same_model(convert):
    X, y = people(500)
    reference = regressor().fit(X, y)
    other = regressor().fit(convert(X), y)
    assert np.array_equal(reference.coef_, other.coef_)
    assert list(other.feature_names_in_) == list(BOUNDS)
    assert np.array_equal(reference.predict(X), other.predict(convert(X)))


def test_arrays_and_sparse_matrices_give_the_same_model():
    X, y = people(500)
    low, high = np.array(list(BOUNDS.values())).T
    dense = regressor(bounds=(low, high)).fit(X.to_numpy(), y)
    frame = regressor().fit(X, y)
    assert np.array_equal(dense.coef_, frame.coef_)
    sparse_model = regressor(bounds=(low, high)).fit(sparse.csr_array(X.to_numpy()), y)
    assert np.allclose(sparse_model.coef_, dense.coef_, rtol=1e-6)
    assert np.allclose(
        sparse_model.predict(sparse.csr_array(X.to_numpy())), sparse_model.predict(X.to_numpy())
    )


def test_scaling_a_column_and_its_bounds_together_changes_no_prediction():
    X, y = people()
    centimetres = regressor().fit(X, y)
    metres = X.assign(height=X["height"] / 100)
    scaled = regressor(bounds={**BOUNDS, "height": (1.0, 2.2)}).fit(metres, y)
    assert np.allclose(centimetres.predict(X), scaled.predict(metres), rtol=1e-6)
    assert np.isclose(scaled.coef_[1], 100 * centimetres.coef_[1], rtol=1e-4)


def test_out_of_range_and_missing_values_follow_the_public_rule_in_fit_and_predict():
    X, y = people(300)
    wild = X.copy()
    wild.loc[3, "age"], wild.loc[4, "height"], wild.loc[5, "age"] = 1e9, np.nan, -np.inf
    tame = X.copy()
    tame.loc[3, "age"], tame.loc[4, "height"], tame.loc[5, "age"] = 100.0, 160.0, 0.0
    first, second = regressor().fit(wild, y), regressor().fit(tame, y)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(first.predict(wild), first.predict(tame))


Y = Numeric("y", 0, 1)


def levels_schema(levels, target=Y, **options):
    return Schema((Categorical("level", tuple(levels)), target), target="y", **options)


def test_a_schema_takes_raw_text_and_codes_it():
    rng = np.random.default_rng(3)
    level = np.array(["low", "mid", "high"])[rng.integers(0, 3, 6000)]
    y = pd.Series(level).map({"low": 0.2, "mid": 0.5, "high": 0.8}) + 0.02 * rng.normal(size=6000)
    schema = levels_schema(["low", "mid", "high"], adjacency="add_remove")
    model = PrivateLinearRegression(schema=schema, epsilon=2.0).fit(pd.DataFrame({"level": level, "y": y}))
    assert model.schema_.feature_names == ("level=low", "level=mid", "level=high")
    assert np.allclose(model.predict({"level": ["low", "mid", "high"]}), [0.2, 0.5, 0.8], atol=0.05)
    assert model.privacy_.adjacency == "add_remove"


def test_a_missing_level_predicts_the_mean_of_the_records():
    rng = np.random.default_rng(3)
    level = rng.integers(0, 3, 6000)
    y = np.array([0.2, 0.5, 0.8])[level] + 0.02 * rng.normal(size=6000)
    model = PrivateLinearRegression(schema=levels_schema("012"), epsilon=2.0).fit({"level": level, "y": y})
    shares = np.bincount(level) / len(level)
    assert model.coef_ @ shares == pytest.approx(0.0, abs=0.02)  # against the mean over the records
    assert model.predict({"level": [None]})[0] == pytest.approx(0.5, abs=0.05)
    assert model.predict({"level": ["never declared"]})[0] == model.predict({"level": [None]})[0]


def test_levels_of_a_schema_need_a_shorter_record_than_loose_columns():
    loose = PrivateRidge(bounds=(0, 1), target_bounds=(0, 1)).fit(np.eye(4), np.ones(4))
    blocks = PrivateRidge(schema=levels_schema("abcd")).fit({"level": list("abcd"), "y": [1] * 4})
    assert blocks.columns_.norm_bound < loose.columns_.norm_bound


def test_a_schema_and_its_shorthands_do_not_mix():
    table = {"level": ["a", "b"], "y": [0.1, 0.9]}
    for options, words in (
        ({"bounds": (0, 1)}, "not both"),
        ({"target_bounds": (0, 1)}, "leave target_bounds out"),
        ({"adjacency": "add_remove"}, "contradicts the schema"),
    ):
        with pytest.raises(InvalidInput, match=words):
            PrivateRidge(schema=levels_schema("ab"), **options).fit(table)
    with pytest.raises(InvalidInput, match="use a classifier"):
        PrivateRidge(schema=levels_schema("ab", Categorical("y", ("n", "y")))).fit(table)
    with pytest.raises(InvalidInput, match="use a regressor"):
        PrivateLogisticRegression(schema=levels_schema("ab")).fit(table)


def test_a_record_without_a_usable_target_contributes_nothing():
    X, y = people(400)
    spoiled = list(y)
    spoiled[3], spoiled[7], spoiled[9] = None, "n/a", float("nan")
    kept = np.setdiff1d(np.arange(len(y)), [3, 7, 9])
    options = {"epsilon": 1e4, "delta": 0.1, "adjacency": "replace", "mechanism": "statistics"}
    with_gaps = regressor(**options).fit(X, spoiled)
    without = regressor(**options).fit(X.iloc[kept], y[kept])
    assert np.allclose(with_gaps.coef_, without.coef_, rtol=1e-6, atol=1e-6)


def test_predictions_depend_on_the_fitted_state_alone():
    X, y = people(300)
    model = regressor().fit(X, y)
    before = model.predict(X)
    model.set_params(bounds=(0, 1), target_bounds=(0, 1), fit_intercept=False, x_norm=0.1, schema=None)
    assert np.array_equal(model.predict(X), before)


def test_a_refused_refit_leaves_the_old_model():
    X, y = people(300)
    model = regressor().fit(X, y)
    before = model.predict(X)
    with pytest.raises(InvalidInput):
        model.set_params(epsilon=-1.0).fit(X, y)
    assert np.array_equal(model.predict(X), before)


@pytest.mark.parametrize("make", [lambda: regressor(), lambda: classifier()], ids=["regressor", "classifier"])
def test_a_saved_model_comes_back_as_it_was(make, tmp_path):
    X, y = people(300)
    model = make().fit(X, y if make().__class__ is PrivateLinearRegression else np.where(y > 0, "yes", "no"))
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert type(again) is type(model)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.privacy_.to_dict() == model.privacy_.to_dict()
    assert again.schema_ == model.schema_


def test_bounds_of_two_columns_are_read_per_column():
    X = np.column_stack([np.linspace(0, 20, 50), np.linspace(18, 90, 50)])
    model = PrivateRidge(bounds=[(0, 20), (18, 90)], target_bounds=(0, 1)).fit(X, np.zeros(50))
    low, high = model.schema_.bounds
    assert low.tolist() == [0, 18] and high.tolist() == [20, 90]


def test_a_missing_declaration_of_the_classes_is_named_first():
    with pytest.raises(InvalidInput, match="classes="):
        PrivateLogisticRegression().fit(None, None)


@pytest.mark.parametrize("dtype", [int, float, object, str, "Int64", "category"])
def test_labels_are_matched_cell_by_cell_whatever_the_column_became(dtype):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = (X[:, 0] > 0).astype(int)
    options = {"bounds": (-1, 1), "epsilon": 5.0, "random_state": 1}
    reference = PrivateLogisticRegression(classes=[0, 1], **options).fit(X, y)
    for classes in ([0, 1], ["0", "1"]):
        other = PrivateLogisticRegression(classes=classes, **options).fit(X, pd.Series(y).astype(dtype))
        assert np.array_equal(other.coef_, reference.coef_)


def test_constraints_hold_for_released_coefficients_and_leave_the_intercept_free():
    X, y = people()
    model = regressor(constraint=NonNegative(), epsilon=5.0).fit(X, -y - 30)
    assert np.all(model.coef_ >= 0)
    assert model.intercept_ < 0


def test_seeded_fits_repeat_and_entropy_fits_do_not():
    X, y = people(300)
    assert np.array_equal(regressor().fit(X, y).coef_, regressor().fit(X, y).coef_)
    free = regressor(random_state=None)
    assert not np.array_equal(clone(free).fit(X, y).coef_, clone(free).fit(X, y).coef_)
    assert clone(free).fit(X, y).privacy_.private
    assert not regressor().fit(X, y).privacy_.private


def test_the_guarantee_is_on_the_model_and_in_the_notebook():
    X, y = people(300)
    model = regressor(epsilon=0.7, delta=1e-5).fit(X, y)
    assert (model.privacy_.epsilon, model.privacy_.delta) == (0.7, 1e-5)
    assert model.privacy_.adjacency == "add_remove"
    assert model.privacy_.delta_at(0.7) <= 1e-5
    page = model._repr_html_()
    guarantee = model.privacy_._repr_html_()
    assert guarantee in page and "0.7" in guarantee
    assert guarantee not in regressor(epsilon=0.7, delta=1e-5)._repr_html_()


def test_every_fit_of_a_search_is_charged_and_clones_share_the_budget(tmp_path):
    path = str(tmp_path / "budget.db")
    Ledger.create(path, epsilon=10.0, delta=1e-3, adjacency="add_remove", filter="basic")
    X, y = people(400)
    model = regressor(PrivateRidge, random_state=None, ledger=path, epsilon=0.5)
    cross_val_score(model, X, y, cv=3)
    assert len(Ledger(path).history()) == 3
    GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(X, y)
    assert len(Ledger(path).history()) == 3 + 5
    make_pipeline(FunctionTransformer(), clone(model)).fit(X, y)
    assert Ledger(path).spent().epsilon == pytest.approx(4.5)
    with pytest.raises(BudgetExceeded):
        clone(model).set_params(epsilon=6.0).fit(X, y)
    assert len(Ledger(path).history()) == 9


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_a_budget_of_3_pays_for_nine_default_fits_at_1(tmp_path, adjacency):
    path = str(tmp_path / "budget.db")
    Ledger.create(path, epsilon=3.0, delta=1e-5, adjacency=adjacency)
    X, y = people(100)
    model = regressor(ledger=path, random_state=None, epsilon=1.0, delta=1e-6, adjacency=adjacency)
    for _ in range(9):
        clone(model).fit(X, y)
    with pytest.raises(BudgetExceeded, match=r"a Gaussian one of ε = 0\.4"):
        model.fit(X, y)


def test_a_budget_takes_gaussian_mechanisms_and_curvature_by_a_curve_above_its_own(tmp_path):
    path = str(tmp_path / "budget.db")
    Ledger.create(path, epsilon=3.0, delta=1e-5, adjacency="add_remove")
    X, y = people(300)
    for mechanism in ("gradient", "statistics", "qop"):
        regressor(ledger=path, random_state=None, mechanism=mechanism, epsilon=0.5).fit(X, y)
    gradient, statistics, curved = Ledger(path).history()
    alone = calibrate_mu(0.5, gradient.delta)
    assert gradient.mu == pytest.approx(alone, rel=1e-6) and statistics.mu == pytest.approx(alone, rel=1e-6)
    assert alone < curved.mu < 2 * alone and curved.charged_delta == pytest.approx(curved.delta / 1000)
    assert Ledger(path).spent().epsilon < 1.5  # squares add up


def test_a_ledger_refuses_a_seeded_run_and_another_adjacency(tmp_path):
    path = str(tmp_path / "budget.db")
    Ledger.create(path, epsilon=10.0, delta=1e-3, adjacency="add_remove")
    X, y = people(300)
    with pytest.raises(LedgerRefused):
        regressor(ledger=path).fit(X, y)
    with pytest.raises(LedgerRefused):
        regressor(ledger=path, random_state=None, adjacency="replace").fit(X, y)
    assert Ledger(path).history() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bounds": None}, "bounds="),
        ({"bounds": {"age": (0, 100)}}, "column 2 of the table"),
        ({"bounds": {**BOUNDS, "age": (100, 0)}}, "reversed"),
        ({"bounds": (0, [1, 2])}, "bounds"),
        ({"target_bounds": None}, "target_bounds="),
        ({"target_bounds": (1, 1)}, "bound"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"mechanism": "magic"}, "recentered"),
        ({"adjacency": "edit"}, "add_remove"),
        ({"random_state": "7"}, "random_state"),
    ],
)
def test_public_mistakes_are_named_before_anything_is_charged(options, words, tmp_path):
    path = str(tmp_path / "budget.db")
    Ledger.create(path, epsilon=1.0, delta=1e-3, adjacency="add_remove")
    X, y = people(50)
    with pytest.raises(InvalidInput, match=words):
        regressor(ledger=path, **{"random_state": None, **options}).fit(X, y)
    assert Ledger(path).history() == []


def test_a_mechanism_knows_no_budget_and_cannot_contradict_the_estimator():
    X, y = people(500)
    model = regressor(mechanism=QOP(radius=2.0), epsilon=0.3, delta=1e-7).fit(X, y)
    assert (model.privacy_.epsilon, model.privacy_.delta) == (0.3, 1e-7)
    with pytest.raises(TypeError):
        QOP(epsilon=5.0)


def test_a_pickle_holds_the_release_and_no_row():
    X, y = people(300)
    X.loc[7, "age"] = 12.3456789
    model = regressor().fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.float64(12.3456789).tobytes() not in pickle.dumps(model)


def test_a_pickle_of_a_fitted_model_holds_no_seed():
    X, y = people(300)
    model = regressor(random_state=123456789).fit(X, y)
    assert (123456789).to_bytes(4, "little") not in pickle.dumps(model)
    assert pickle.loads(pickle.dumps(model)).random_state is None
    assert model.get_params()["random_state"] == 123456789
    assert pickle.loads(pickle.dumps(clone(model))).random_state == 123456789


@pytest.mark.parametrize("make", [regressor, classifier])
def test_adjacent_tables_differ_in_released_numbers_only(make):
    X, y = people(300)
    if make is classifier:
        y = np.where(y > np.median(y), "yes", "no")
    more = pd.concat([X, pd.DataFrame([[99.0, 215.0, 1.0]], columns=list(BOUNDS))], ignore_index=True)
    first, second = make().fit(X, y), make().fit(more, np.append(y, y[:1]))
    # Those, and what was released on the way to them, or follows from it.
    numbers = {"coefficients", "intercept", "objective", "inference", "noise", "trust"}
    assert set(vars(first)) == set(vars(second))
    assert not np.array_equal(first.coef_, second.coef_)
    for name in set(vars(first)) - {"release_"}:
        assert str(vars(first)[name]) == str(vars(second)[name]), name
    told = [replace(model.release_, record=replace(model.record_, time="")) for model in (first, second)]
    for name in {part.name for part in fields(told[0])} - numbers:
        assert str(getattr(told[0], name)) == str(getattr(told[1], name)), name
    assert first.privacy_.to_dict() == second.privacy_.to_dict()
