"""Model files: what is written is what is read, and nothing else is believed."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from tests.releases import plain_model

import curvedp
from curvedp import __version__
from curvedp.analyses.predictions import Predictor
from curvedp.data import Categorical, ClassTarget, Numeric, NumericTarget, Schema
from curvedp.data.files import Stated
from curvedp.errors import InvalidInput, ModelFileError
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import PointProfile
from curvedp.release import catalogue, modelfile
from curvedp.release.ledger.storage import Receipt
from curvedp.release.modelfile import Release
from curvedp.release.record import ReleaseRecord

PRIVACY = Guarantee(
    budget=Budget(1.0, 1e-6),
    neighbours=Neighbours("replace"),
    mechanism="qop",
    accounting="directional",
    theorem="(P-6)",
    parameters=Parameters(
        Parameter("m", "m", "degrees of freedom", 40.0, is_noise=True),
        Parameter("noise", "", "law of the noise", "gaussian"),
    ),
    profile=PointProfile(1.0, 1e-6),
)
SCHEMA = Schema(
    (
        Numeric("age", 0, 120),
        Categorical("race", ("black", "white", "other")),
        Numeric("wage", 0, 1e5),
        Categorical("job", ("clerk", "smith", "cook")),
    ),
    target="wage",
)
COEF = np.array([[0.1, -2.0 / 3, 1e-17, 3e8]])


def regressor(**changes: Any) -> Release:
    parts: dict[str, Any] = {
        "estimator": "PrivateLasso",
        "schema": Schema(SCHEMA.columns[:3], target="wage"),
        "target": NumericTarget(0, 1e5),
        "coefficients": COEF,
        "intercept": np.array([-1 / 3]),
        "guarantee": PRIVACY,
        "named": True,
        "record": ReleaseRecord("2024-12-31T23:59:59+00:00", {"curvedp": __version__}),
        "settings": {"alpha": 2.5, "fit_intercept": True, "x_norm": None, "mechanism": "qop"},
    }
    return Release(**{**parts, **changes})


def classifier(
    estimator: str = "PrivateLogisticRegression", classes: Any = ("clerk", "smith", "cook"), outputs: int = 3
) -> Release:
    coef = np.random.default_rng(3).normal(size=(outputs, 5))
    coef[:, 0] /= 60  # ages
    coef[:, 4] /= 1e5  # wages
    schema = SCHEMA.with_target("job")
    if classes != ("clerk", "smith", "cook"):
        schema = Schema(SCHEMA.columns[:3])
    return regressor(
        estimator=estimator,
        schema=schema,
        target=ClassTarget(classes),
        coefficients=coef,
        intercept=np.linspace(-0.3, 0.2, outputs),
        settings={},
    )


RECORD = ReleaseRecord(
    "2024-12-31T23:59:59+00:00",
    {"curvedp": "0.2.0", "numpy": "2.0"},
    Stated("register", rows=5000),
    Receipt("abc123", 7, "ffff", "2024-12-31T23:59:59+00:00", "unit 4", "annual"),
    ("Chosen by a search.",),
)
DOCUMENTS = {
    "regressor": regressor(),
    "with a record": regressor(
        schema=Schema(SCHEMA.columns[:3], target="wage", release=RECORD.stated), record=RECORD
    ),
    "three classes": classifier(),
    "two classes": classifier(classes=("b", "a"), outputs=1),
    "numbers as classes": classifier("PrivateLinearSVC", classes=(0, 1), outputs=1),
    "no name for the target": regressor(
        schema=Schema((*SCHEMA.columns[:2],)), target=NumericTarget(-1, 1), named=False
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_round_trip_exactly(name, tmp_path):
    document, path = DOCUMENTS[name], tmp_path / "model.json"
    document.save(path)
    again = modelfile.load(path)
    assert again.to_dict() == document.to_dict()
    assert again.coefficients.tobytes() == document.coefficients.tobytes()
    assert again.schema == document.schema and again.target == document.target
    assert again.guarantee == document.guarantee and again.version == document.version
    assert again.record == document.record
    assert os.listdir(tmp_path) == ["model.json"]


def test_the_document_says_what_was_released():
    content = DOCUMENTS["regressor"].to_dict()
    assert list(content) == [
        "format",
        "format_version",
        "curvedp_version",
        "features",
        *(part.name for part in fields(Release)),
    ]
    assert content["guarantee"]["theorem"] == "(P-6)" and content["guarantee"]["unit"] is None
    assert content["guarantee"]["parameters"][0]["meaning"] == "degrees of freedom"
    assert content["features"] == ["age", "race=black", "race=white", "race=other"]


def rows(n=400):
    random = np.random.default_rng(0)
    return random.uniform(-1, 1, (n, 2)), random.uniform(-1, 1, n)


@pytest.mark.parametrize("name", catalogue.ESTIMATORS)
def test_a_saved_estimator_comes_back_and_predicts_the_same(name, tmp_path):
    entry, (X, y) = catalogue.ESTIMATORS[name], rows()
    if entry.task == "several":
        bounds = [(-1, 1), (-2, 2)]
        both = np.column_stack([y, -y])
        model = entry.load()(bounds=(-1, 1), target_bounds=bounds, random_state=1).fit(X, both)
    elif entry.task == "regression":
        low = 0 if name == "poisson" else -1
        model = entry.load()(bounds=(-1, 1), target_bounds=(low, 1), random_state=1).fit(X, y)
    else:
        labels = np.where(y > 0.3, "c", np.where(y > -0.3, "a", "b"))
        model = entry.load()(bounds=(-1, 1), classes=["c", "b", "a"], random_state=1).fit(X, labels)
    path = tmp_path / "model.json"
    model.save(path)
    again = curvedp.load(path)
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.privacy_ == model.privacy_ and again.schema_ == model.schema_
    assert again.n_features_in_ == 2 and not hasattr(again, "feature_names_in_")
    assert (
        again.get_params()["random_state"] is None and again.alpha == model.alpha
        if name != "linear"
        else True
    )
    if entry.task == "classification":
        assert again.classes_.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert Release.of(again).to_dict() == Release.of(model).to_dict()


def test_a_saved_estimator_reads_raw_tables_as_before(tmp_path):
    table = {"age": [30.0, "x", 500], "race": ["white", None, "black"], "wage": [5e4, 1e9, None]}
    model = curvedp.PrivateRidge(schema=Schema(SCHEMA.columns[:3], target="wage"), random_state=1).fit(table)
    model.save(tmp_path / "model.json")
    again = curvedp.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.feature_names_in_.tolist() == ["age", "race"]


def test_only_fitted_estimators_of_curvedp_have_a_document():
    for thing in (object(), curvedp.PrivateRidge(), type("PrivateRidge", (), {"privacy_": PRIVACY})()):
        with pytest.raises(InvalidInput, match="fitted"):
            Release.of(thing)


def test_a_loaded_guarantee_claims_of_its_curve_only_what_its_point_implies(tmp_path):
    DOCUMENTS["regressor"].save(tmp_path / "model.json")
    privacy = modelfile.load(tmp_path / "model.json").to_estimator().privacy_
    assert privacy.delta_at(1.0) == pytest.approx(1e-6, rel=1e-9) and privacy.delta_at(5.0) >= 1e-6
    assert privacy.delta_at(0.0) > 0.4


TABLE = pd.DataFrame(
    {
        "age": [30.0, np.nan, 500.0],
        "race": ["white", None, "black"],
        "wage": [5e4, 1e9, None],
        "job": ["x"] * 3,
    }
)


def read(document, path, **options):
    return np.concatenate([chunk.values for chunk in Predictor(document).chunks(path, **options)])


def test_regression_predicts_in_user_units_under_the_schema_rule(tmp_path):
    document = regressor(coefficients=np.array([[2.0, 10.0, 20.0, 30.0]]), intercept=np.array([5.0]))
    expected = [2 * 30 + 20 + 5, 2 * 60 + 5, 2 * 120 + 10 + 5]
    np.testing.assert_allclose(document.to_estimator().predict(TABLE), expected, rtol=1e-14)
    path = tmp_path / "new.csv"
    path.write_text("race,age\nwhite,30\n,\nblack,500\n")
    np.testing.assert_allclose(read(document, path), expected, rtol=1e-14)
    path.write_text("race;age\n")
    assert read(document, path, delimiter=";").shape == (0,)
    plain = plain_model(document)
    X = document.schema.column_map().clip(document.schema.read(TABLE))
    np.testing.assert_allclose(plain.predict(X), expected, rtol=1e-14)
    assert type(plain).__module__.startswith("sklearn.")


def test_classes_are_those_of_the_largest_margin():
    document = DOCUMENTS["three classes"]
    X = document.schema.column_map().clip(document.schema.read(TABLE))
    margins = X @ document.coefficients.T + document.intercept
    assert document.classes == ("clerk", "cook", "smith")
    assert document.to_estimator().predict(TABLE).tolist() == [
        document.classes[k] for k in margins.argmax(axis=1)
    ]
    plain = plain_model(document)
    np.testing.assert_allclose(plain.decision_function(X), margins, rtol=1e-13)
    np.testing.assert_allclose(plain.predict_proba(X), softmax(margins, axis=1), rtol=1e-12)
    two = DOCUMENTS["two classes"]
    margins = (X @ two.coefficients.T + two.intercept)[:, 0]
    assert two.classes == ("b", "a")  # declared in this order: "a" is the event
    assert two.to_estimator().predict(TABLE).tolist() == [("b", "a")[int(s > 0)] for s in margins]
    np.testing.assert_allclose(plain_model(two).predict_proba(X)[:, 0], expit(margins), rtol=1e-12)
    numbers = DOCUMENTS["numbers as classes"]
    assert set(numbers.to_estimator().predict(TABLE).tolist()) <= {0, 1}


def edited(**changes):
    content = DOCUMENTS["regressor"].to_dict()
    content.update(changes)
    return content


def without(key):
    content = DOCUMENTS["regressor"].to_dict()
    del content[key]
    return content


def promised(**changes):
    content = DOCUMENTS["regressor"].to_dict()
    content["guarantee"] = {**content["guarantee"], **changes}
    return content


NUMERIC = {"kind": "numeric", "low": 0.0, "high": 1e5}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "does not say that it is one"),
        ({"coef": 1}, "does not say that it is one"),
        (without("schema"), "has no 'schema'"),
        (without("target"), "has no 'target'"),
        (edited(more=1), "holds more than a model file does"),
        (edited(format_version=1), "format version is unknown"),
        (edited(format_version=0), "format version is unknown"),
        (edited(format_version=-(10**400)), "format version is unknown"),
        (edited(format_version=True), "of the wrong kind"),
        (edited(format_version="1"), "of the wrong kind"),
        (edited(estimator="__import__"), "no estimator of curvedp"),
        (edited(estimator="x\ny"), "no estimator of curvedp"),
        (edited(features=["a", "b", "c", "d"]), "features contradict"),
        (edited(coefficients=[[1.0, 2.0]]), "do not match its schema"),
        (edited(coefficients=[[1.0], [2.0, 3.0]]), "not a table"),
        (edited(coefficients=[1.0, 2.0, 3.0, 4.0]), "not a table"),
        (edited(coefficients=[[1.0, "2", 3.0, 4.0]]), "not a number"),
        (edited(coefficients=[[1.0, True, 3.0, 4.0]]), "not a number"),
        (edited(coefficients=[[1.0, None, 3.0, 4.0]]), "not a number"),
        (edited(coefficients=[[1.0, 10**400, 3.0, 4.0]]), "too large"),
        (edited(intercept=[]), "do not match"),
        (edited(intercept=[[1.0]]), "not a number"),
        (edited(target={"kind": "classes", "classes": ["a", "b"]}), "classes belong to a classifier"),
        (edited(target={"kind": "classes", "classes": ["a"]}), "at least two"),
        (edited(target={"kind": "numeric", "low": 0.0}), "target is of an unknown kind"),
        (edited(target={"kind": ["numeric"]}), "target is of an unknown kind"),
        (edited(target={**NUMERIC, "high": 10**400}), "finite|too large"),
        (edited(target={**NUMERIC, "high": "x"}), "two numbers"),
        (edited(target={**NUMERIC, "high": 5.0}), "target contradicts its schema"),
        (edited(schema={"column": []}), "no columns"),
        (edited(schema={"column": [{"name": "a", "kind": "numeric", "bounds": [0, 10**400]}]}), "finite"),
        (edited(settings={"alpha": 10**400}), "too large"),
        (edited(settings={"alpha": "1"}), "settings that no estimator has"),
        (edited(settings={"ledger": "x"}), "settings that no estimator has"),
        (promised(epsilon="1"), "'epsilon' of the wrong kind"),
        (promised(epsilon=-1.0), "epsilon must be"),
        (promised(epsilon=10**400), "too large"),
        (promised(delta=1.5), "delta must"),
        (promised(delta=True), "'delta' of the wrong kind"),
        (promised(private=1), "'private' of the wrong kind"),
        (promised(adjacency="none"), "'adjacency' of the wrong kind"),
        (promised(parameters=[1]), "'parameters' of the wrong kind"),
        (promised(parameters=[{"name": "m"}]), "has no 'symbol'"),
        (promised(more=1), "holds more"),
    ],
)
def test_unsound_documents_are_refused_in_one_line(content, words, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match=words) as caught:
        modelfile.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("classes", [["a"], ["a", "a"], ["a", 1], [[1], [2]], None, "ab", [10**400, 1]])
def test_classes_are_checked(classes):
    content = DOCUMENTS["two classes"].to_dict()
    content["target"]["classes"] = classes
    with pytest.raises(ModelFileError, match=r"class|label|kind"):
        Release.from_dict(content)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(allow_nan=True),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.just({}),
    st.just([[[[[[]]]]]]),
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_one_odd_value_anywhere_gives_a_document_or_one_line(data):
    """Wherever something else stands in a file, it is either a sound model file or refused as one."""
    content = copy.deepcopy(DOCUMENTS[data.draw(st.sampled_from(list(DOCUMENTS)))].to_dict())
    place: Any = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans())):
            break
        place = place[key]
    place[key] = data.draw(ODD)
    try:
        document = Release.from_dict(content)
    except ModelFileError as error:
        said = str(error)
    else:
        document.to_estimator()
        said = json.dumps(json.loads(document.to_json()))
    assert "\n" not in said


def test_a_newer_file_asks_for_an_upgrade(tmp_path):
    path = tmp_path / "model.json"
    for version in (3, 10**400):
        path.write_text(
            json.dumps(
                {"format": "curvedp-model", "format_version": version, "curvedp_version": "9.1", "x": 1}
            )
        )
        with pytest.raises(ModelFileError, match=r"made by a newer curvedp.*: upgrade"):
            modelfile.load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\x80\x04pickle", "not text"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"1" * 10_000, "not JSON"),
        (b'{"format": NaN}', "NaN"),
        (b'{"format": -Infinity}', "Infinity"),
        (b'{"format": "curvedp-model", "note": "half \\ud800 of a pair"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
    ],
)
def test_what_is_not_json_is_refused(content, words, tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=words):
        modelfile.load(path)


def test_paths_that_cannot_be_used(tmp_path):
    with pytest.raises(ModelFileError, match="check the path"):
        modelfile.load(tmp_path / "none.json")
    with pytest.raises(ModelFileError, match="folder that exists"):
        DOCUMENTS["regressor"].save(tmp_path / "nowhere" / "model.json")


def test_a_model_is_not_saved_over_its_ledger(tmp_path):
    path = tmp_path / "budget.db"
    path.write_text("spent")
    with pytest.raises(ModelFileError, match="same file as the ledger"):
        DOCUMENTS["regressor"].save(path, ledger=path)
    assert path.read_text() == "spent"


def test_a_failed_write_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    DOCUMENTS["regressor"].save(path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match="No space left"):
        DOCUMENTS["three classes"].save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.json"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_document_holds_a_number_that_is_not_finite(value):
    with pytest.raises(ValueError, match="JSON compliant"):
        regressor(coefficients=COEF * value).to_json()
