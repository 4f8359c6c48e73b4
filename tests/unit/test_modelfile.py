"""Model files: what is written is what is read, and nothing else is believed."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax

from curvedp import __version__, modelfile
from curvedp.errors import InvalidInput, ModelFileError
from curvedp.modelfile import ModelDocument
from curvedp.schema import Categorical, Numeric, Schema

GUARANTEE = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "adjacency": "replace",
    "mechanism": "qop",
    "accounting": "directional",
    "theorem": "(P-6)",
    "parameters": {"m": 40.0, "sigma2": 12.5},
    "private": True,
}
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


def regressor(**changes):
    parts = {
        "estimator": "PrivateLasso",
        "schema": Schema(SCHEMA.columns[:3], target="wage"),
        "coef": COEF,
        "intercept": np.array([-1 / 3]),
        "classes": None,
        "guarantee": GUARANTEE,
    }
    return ModelDocument(**{**parts, **changes})


def classifier(estimator="PrivateLogisticRegression", classes=("clerk", "cook", "smith"), outputs=3):
    coef = np.random.default_rng(3).normal(size=(outputs, 5))
    coef[:, 0] /= 60  # ages
    coef[:, 4] /= 1e5  # wages
    return ModelDocument(
        estimator, SCHEMA.with_target("job"), coef, np.linspace(-0.3, 0.2, outputs), classes, GUARANTEE
    )


DOCUMENTS = {
    "regressor": regressor(),
    "three classes": classifier(),
    "two classes": classifier(classes=("a", "b"), outputs=1),
    "numbers as classes": classifier("PrivateLinearSVC", classes=(0, 1), outputs=1),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_round_trip_exactly(name, tmp_path):
    document, path = DOCUMENTS[name], tmp_path / "model.json"
    modelfile.save(document, path)
    again = modelfile.load(path)
    assert again.to_dict() == document.to_dict()
    assert again.coef.tobytes() == document.coef.tobytes()
    assert again.schema == document.schema and again.version == __version__
    assert os.listdir(tmp_path) == ["model.json"]


def test_the_document_says_what_was_released():
    content = DOCUMENTS["regressor"].to_dict()
    assert list(content) == [
        "format",
        "format_version",
        "curvedp_version",
        "estimator",
        "task",
        "theorem",
        "guarantee",
        "schema",
        "features",
        "coefficients",
        "intercept",
        "classes",
    ]
    assert content["theorem"] == "(P-6)" and content["task"] == "regression"
    assert content["features"] == ["age", "race=black", "race=white", "race=other"]


def test_a_document_is_made_of_a_fitted_estimator():
    privacy = SimpleNamespace(to_dict=lambda: GUARANTEE)
    fitted = type("PrivateRidge", (), {"coef_": COEF[0], "intercept_": -1.5, "privacy_": privacy})()
    document = ModelDocument.of(fitted, Schema(SCHEMA.columns[:3], target="wage"))
    np.testing.assert_array_equal(document.coef, COEF)
    assert document.intercept.tolist() == [-1.5] and document.classes is None
    labels = {
        "coef_": np.ones((1, 5)),
        "intercept_": np.ones(1),
        "classes_": np.array([False, True]),
        "privacy_": privacy,
    }
    document = ModelDocument.of(type("PrivateLinearSVC", (), labels)(), SCHEMA.with_target("job"))
    assert document.classes == (False, True) and document.task == "classification"
    with pytest.raises(InvalidInput, match="pass a fitted estimator of curvedp"):
        ModelDocument.of(SimpleNamespace(), SCHEMA)


TABLE = pd.DataFrame(
    {
        "age": [30.0, np.nan, 500.0],
        "race": ["white", None, "black"],
        "wage": [5e4, 1e9, None],
        "job": ["x"] * 3,
    }
)


def test_regression_predicts_in_user_units_under_the_schema_rule(tmp_path):
    document = regressor(coef=np.array([[2.0, 10.0, 20.0, 30.0]]), intercept=np.array([5.0]))
    expected = [2 * 30 + 20 + 5, 2 * 60 + 5, 2 * 120 + 10 + 5]
    np.testing.assert_allclose(document.predict(TABLE), expected, rtol=1e-14)
    path = tmp_path / "new.csv"
    path.write_text("race,age\nwhite,30\n,\nblack,500\n")
    np.testing.assert_allclose(document.predict(path), expected, rtol=1e-14)
    encoded = np.array([[30.0, 0, 1, 0], [np.nan, 0, 0, 0], [500.0, 1, 0, 0]])
    np.testing.assert_allclose(document.predict(encoded), expected, rtol=1e-14)
    plain = document.to_sklearn()
    np.testing.assert_allclose(plain.predict(document.schema.encode_features(TABLE)), expected, rtol=1e-14)
    assert type(plain).__module__.startswith("sklearn.")


def test_classes_are_those_of_the_largest_margin():
    document = DOCUMENTS["three classes"]
    X = document.schema.encode_features(TABLE)
    margins = X @ document.coef.T + document.intercept
    assert document.predict(TABLE).tolist() == [document.classes[k] for k in margins.argmax(axis=1)]
    plain = document.to_sklearn()
    np.testing.assert_allclose(plain.decision_function(X), margins, rtol=1e-13)
    np.testing.assert_allclose(plain.predict_proba(X), softmax(margins, axis=1), rtol=1e-12)
    two = DOCUMENTS["two classes"]
    margins = (X @ two.coef.T + two.intercept)[:, 0]
    assert two.predict(TABLE).tolist() == [two.classes[int(s > 0)] for s in margins]
    np.testing.assert_allclose(two.to_sklearn().predict_proba(X)[:, 1], expit(margins), rtol=1e-12)
    numbers = DOCUMENTS["numbers as classes"]
    assert set(numbers.predict(TABLE).tolist()) <= {0, 1}


def edited(**changes):
    content = DOCUMENTS["regressor"].to_dict()
    content.update(changes)
    return content


def without(key):
    content = DOCUMENTS["regressor"].to_dict()
    del content[key]
    return content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "does not say that it is one"),
        ({"coef": 1}, "does not say that it is one"),
        (without("schema"), "has no 'schema'"),
        (without("theorem"), "has no 'theorem'"),
        (edited(format_version=0), "format version 0 is unknown"),
        (edited(format_version=True), "of the wrong kind"),
        (edited(format_version="1"), "of the wrong kind"),
        (edited(estimator="__import__"), "unknown estimator"),
        (edited(task="classification"), "task contradicts"),
        (edited(theorem="(P-7)"), "theorem contradicts"),
        (edited(features=["a", "b", "c", "d"]), "features contradicts"),
        (edited(coefficients=[[1.0, 2.0]]), "do not match its schema"),
        (edited(coefficients=[[1.0], [2.0, 3.0]]), "not a table"),
        (edited(coefficients=[1.0, 2.0, 3.0, 4.0]), "not a table"),
        (edited(coefficients=[[1.0, "2", 3.0, 4.0]]), "not a number"),
        (edited(coefficients=[[1.0, True, 3.0, 4.0]]), "not a number"),
        (edited(coefficients=[[1.0, None, 3.0, 4.0]]), "not a number"),
        (edited(coefficients=[[1.0, 10**400, 3.0, 4.0]]), "not a finite number"),
        (edited(intercept=[]), "do not match"),
        (edited(classes=["a", "b"]), "classes belong to a classifier"),
        (edited(schema={"column": []}), "its schema is wrong"),
        (edited(guarantee={}), "its guarantee has no 'epsilon'"),
        (edited(guarantee={**GUARANTEE, "epsilon": "1"}), "'epsilon' of the wrong kind"),
        (edited(guarantee={**GUARANTEE, "epsilon": -1.0}), "not an"),
        (edited(guarantee={**GUARANTEE, "delta": 1.5}), "not an"),
        (edited(guarantee={**GUARANTEE, "private": 1}), "'private' of the wrong kind"),
    ],
)
def test_unsound_documents_are_refused_in_one_line(content, words, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match=words) as caught:
        modelfile.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("classes", [["a"], ["a", "a"], ["a", 1], [[1], [2]], None])
def test_classes_are_checked(classes):
    content = DOCUMENTS["two classes"].to_dict()
    content["classes"] = classes
    with pytest.raises(ModelFileError, match="class"):
        ModelDocument.from_dict(content)


def test_a_newer_file_asks_for_an_upgrade(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps({"format": "curvedp-model", "format_version": 2, "curvedp_version": "9.1", "x": 1})
    )
    with pytest.raises(ModelFileError, match=r"made by a newer curvedp \(9\.1, format 2\): upgrade"):
        modelfile.load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\x80\x04pickle", "not text"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"format": NaN}', "NaN"),
        (b'{"format": -Infinity}', "Infinity"),
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
        modelfile.save(DOCUMENTS["regressor"], tmp_path / "nowhere" / "model.json")


def test_a_failed_write_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    modelfile.save(DOCUMENTS["regressor"], path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match="No space left"):
        modelfile.save(DOCUMENTS["three classes"], path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.json"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_document_holds_a_number_that_is_not_finite(value):
    with pytest.raises(ModelFileError, match="not a finite number"):
        regressor(coef=COEF * value)
