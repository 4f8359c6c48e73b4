"""A release is one value: whatever an estimator was given comes back from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from sklearn.base import clone
from tests.log_cosh import PrivateLogCosh

import curvedp
from curvedp import Ledger, Schema
from curvedp.analyses.estimators import PrivateMultiTaskRidge, PrivateRidge
from curvedp.data import Numeric
from curvedp.errors import InvalidInput
from curvedp.mechanisms import QOP, Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems.constraints import Affine, Box, L2Ball, NonNegative
from curvedp.release import catalogue, modelfile
from curvedp.release.json_schema import model_schema
from curvedp.release.modelfile import Release

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (300, 2))
W = RANDOM.uniform(0, 2, 300)
NAMED = {"a": X[:, 0].tolist(), "b": X[:, 1].tolist()}
TOY = catalogue.EstimatorEntry("log_cosh", "tests.log_cosh:PrivateLogCosh", "Log-cosh regression")
ENTRIES = {**catalogue.ESTIMATORS, "toy": TOY}
NEVER = {"ledger", "random_state"}
SQUARED = ("linear", "ridge", "lasso", "elastic_net", "multitask")  # what can absorb effects
OFF: dict[str, Any] = {
    "epsilon": 0.75,
    "delta": 1e-5,
    "adjacency": "add_remove",
    "mechanism": Recentered(rule=Rule(rounds=32, plenty=np.inf)),
    "constraint": L2Ball(7.5),
    "x_norm": 1.25,
    "weight_max": 2.0,
    "alpha": 0.375,
    "l1_ratio": 0.125,
    "width": 0.0625,
    "quantile": 0.75,
    "inference": False,
    "max_rate": 3.0,
}


def given(name: str) -> list[tuple[dict[str, Any], Any]]:
    """Parameters and a table: by bounds, then by a schema, a formula and without a constant."""
    entry = ENTRIES[name]
    known = entry.load()._get_param_names()
    own = {key: value for key, value in OFF.items() if key in known}
    if entry.task == "classification":
        y, told = np.where(X[:, 0] > 0, "yes", "no"), {"classes": ["no", "yes"]}
    elif entry.task == "several":
        y, told = X, {"target_bounds": [(-1.0, 1.0), (-2.0, 2.0)]}
    elif name == "poisson":
        y, told = np.arange(300) % 5, {"target_bounds": (0, 8)}
    else:
        y, told = X[:, 0], {"target_bounds": (-1.0, 1.5)}
    exposed = {"exposure_bounds": (1.0, 2.0)} if name == "poisson" else {}
    at_hand = {"exposure": 1 + W / 2} if exposed else {}
    schema = Schema([Numeric("a", -1, 1), Numeric("b", -2, 2)], adjacency="add_remove")
    more = {"schema": schema, "formula": "~ a + I(a**2)", "fit_intercept": False}
    found = [
        ({**own, **told, **exposed, "bounds": [(-1, 1), (-1.5, 1)]}, (X, y, W, at_hand)),
        ({**own, **told, **more}, (NAMED, y, W, {})),
    ]
    if name in SQUARED:
        persons = {**NAMED, "who": (np.arange(300) // 3).tolist()}
        of_persons = {"schema": replace(schema, unit="who"), "absorb": "who"}
        found.append(({**told, **of_persons}, (persons, y, None, {})))
    if entry.task == "classification":
        weights = {"class_weight": {"no": 1.0, "yes": 2.0}, "weight_max": 2.0}
        found.append(({**told, **weights, "bounds": (-1, 1)}, (X, y, None, {})))
    return found


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.all(a == b))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.ESTIMATORS, "log_cosh", TOY)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ENTRIES)
def test_every_parameter_comes_back(name: str, listed: None, tmp_path: Any) -> None:
    made = ENTRIES[name].load()
    defaults, moved = made().get_params(), set()
    Ledger.create(tmp_path / "budget.db", epsilon=2, delta=1e-4, adjacency="add_remove")
    private = [{"ledger": tmp_path / "budget.db"}, {"random_state": 1}, {"random_state": 1}]
    for extra, (parameters, (table, y, weight, beside)) in zip(private, given(name), strict=False):
        model = made(**parameters, **extra).fit(table, y, weight, **beside)
        model.save(tmp_path / "model.json")
        again = curvedp.load(tmp_path / "model.json")
        before, after = model.get_params(), again.get_params()
        moved |= {key for key, value in before.items() if not same(value, defaults[key])}
        assert all(after[key] is None for key in NEVER)
        assert not [key for key in before if key not in NEVER and not same(before[key], after[key])]
        assert again.release_.to_dict() == model.release_.to_dict()
        assert np.array_equal(again.coef_, model.coef_) and again.record_ == model.record_
        Draft202012Validator(model_schema()).validate(model.release_.to_dict())
        clone(again).set_params(random_state=1).fit(table, y, weight, **beside)  # what it was told is enough
    assert moved == set(defaults) - (set() if name in SQUARED else {"absorb"})


def test_what_is_known_of_a_fit_is_a_view_of_its_release() -> None:
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1))
    views = ("coef_", "intercept_", "privacy_", "schema_", "record_", "n_features_in_", "feature_names_in_")
    assert not any(hasattr(model, name) for name in views)
    model.fit(X, X[:, 0])
    assert [name for name in vars(model) if name.endswith("_")] == ["release_"]
    assert model.privacy_ is model.release_.guarantee
    assert np.shares_memory(model.coef_, model.release_.coefficients)
    assert not hasattr(model, "feature_names_in_")
    several = PrivateMultiTaskRidge(bounds=(-1, 1), target_bounds=[(-1, 1), (0, 1)]).fit(X, X)
    assert several.coef_.shape == (2, 2) and several.intercept_.shape == (2,)


@pytest.mark.parametrize(
    "parameters",
    [
        {"constraint": Box(low=[-1.0, -np.inf], high=2.0)},
        {"constraint": NonNegative()},
        {"constraint": Affine(np.array([[1.0, -1.0]]), np.array([0.0]))},
        {"mechanism": QOP(radius=2.0, center=np.array([0.25, 0.0]), exact=True)},
        {"bounds": {"x0": (-1, 1), "x1": np.array([-2.0, 2.0])}},
        {"bounds": (np.array([-1.0, -1.0]), np.array([1.0, 1.0]))},
        {"target_bounds": np.array([-1.0, 1.0])},
    ],
    ids=str,
)
def test_objects_and_arrays_come_back(parameters: dict[str, Any]) -> None:
    made = PrivateRidge(**{"bounds": (-1, 1), "target_bounds": (-1, 1), **parameters})
    release = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0]).release_
    told = replace(release, settings=modelfile.kept_settings(made, release.schema))
    again = Release.from_dict(told.to_dict()).to_estimator()
    for name, value in parameters.items():
        assert repr(again.get_params(deep=False)[name]) == repr(value)


def test_a_parameter_that_no_file_holds_is_named_and_asked_for() -> None:
    class Mine(Recentered):
        """A mechanism of one's own."""

    made = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism=Mine()).fit(X, X[:, 0])
    again = Release.from_dict(made.release_.to_dict()).to_estimator()
    assert np.array_equal(again.predict(X), made.predict(X))
    assert again.release_.to_dict() == made.release_.to_dict()
    with pytest.raises(InvalidInput, match="does not hold its Mine: set the parameter again"):
        clone(again).fit(X, X[:, 0])
    clone(again).set_params(mechanism="auto").fit(X, X[:, 0])


@pytest.mark.parametrize(
    "written",
    [
        {"alpha": True},
        {"fit_intercept": 1},
        {"nothing": 1},
        {"epsilon": 1.0},
        {"ledger": "budget.db"},
        {"random_state": 1},
        {"constraint": {"object": "Path", "fields": {}}},
        {"constraint": {"object": "L2Ball", "fields": {}}},
        {"constraint": {"object": "L2Ball", "fields": {"r": -1.0}}},
        {"constraint": {"object": "L2Ball", "fields": {"r": 1.0, "s": 1.0}}},
        {"constraint": {"tuple": [], "array": []}},
        {"bounds": {"number": "1e999"}},
        {"bounds": {"a": 1}},
        {"bounds": True},
        [],
    ],
    ids=str,
)
def test_settings_that_nobody_wrote_are_refused(written: Any) -> None:
    content: Mapping[str, Any] = (
        PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0]).release_.to_dict()
    )
    with pytest.raises(curvedp.errors.ModelFileError):
        Release.from_dict({**content, "settings": written})


def test_a_toy_that_is_not_listed_is_released_and_asks_to_be_listed(tmp_path: Any) -> None:
    model = PrivateLogCosh(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    model.save(tmp_path / "model.json")
    with pytest.raises(curvedp.errors.ModelFileError, match="no estimator of curvedp"):
        curvedp.load(tmp_path / "model.json")
