"""Levels as people write them: other words for a level, one case, a level for all others."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest

from curvedp import Categorical, Numeric, PrivateLogisticRegression, Schema, check, describe, load, score
from curvedp.data.cells import Cells
from curvedp.data.templates import review, schema_template
from curvedp.errors import DataError, InvalidInput
from curvedp.release.json_schema import model_schema

SEX = Categorical("sex", {"Female": ["F", "woman", 2], "Male": ["M", 1]}, fold_case=True, other="rest")
WRITTEN = [
    "Female",
    "FEMALE",
    "f",
    " Woman ",
    2,
    "2.0",
    "male",
    "m",
    1,
    True,
    "x",
    7.5,
    "?",
    None,
    "",
    np.nan,
]
PLACES = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, -1, -1, -1, -1]


def places(column: Categorical, cells: object) -> list[int]:
    return column.places(Cells(cells, "any")).tolist()  # type: ignore[arg-type]


def test_cells_name_their_level_whatever_else_is_there() -> None:
    assert SEX.levels == ("Female", "Male", "rest")
    assert places(SEX, WRITTEN) == PLACES
    assert [places(SEX, [cell])[0] for cell in WRITTEN] == PLACES
    numbers = np.array([1.0, 2.0, 3.0, np.nan])
    assert SEX.places(Cells(numbers, "numbers")).tolist() == [1, 0, 2, -1]
    assert places(Categorical("sex", ["f", "m"]), ["f", "F", "x"]) == [0, -1, -1]
    assert places(Categorical("sex", ["f", "m"], fold_case=True), ["f", "F", "x"]) == [0, 0, -1]
    assert places(Categorical("sex", ["f", "m"], other="m"), ["f", "F", "x", ""]) == [0, 1, 1, -1]
    assert places(Categorical("x", {"Straße": [], "b": "B"}, fold_case=True), ["STRASSE", "b"]) == [0, 1]


@pytest.mark.parametrize(
    "column",
    [
        SEX,
        Categorical("sex", {"f": ["F"], "m": []}, reference="m", event="f", missing="level", source="p. 3"),
        Categorical("sex", {"f": [], "m": []}),
        Categorical("sex", {"f": [], "m": ["M"], "o": []}, other="none of these"),
        Categorical("sex", ["f", "m"], fold_case=True),
    ],
)
def test_files_keep_them(column: Categorical) -> None:
    schema = Schema([Numeric("age", 0, 1), column])
    assert Schema.from_toml(schema.to_toml()) == schema and Schema.from_dict(schema.to_dict()) == schema
    assert not review(schema.to_toml()).problems
    template = schema_template({"age": "float", "sex": "str"}, dictionary={"age": "number"})
    assert "[columns]" in template


def test_the_compact_form() -> None:
    text = '[columns]\nsex = {levels = {Female = ["female", "FEMALE", "F"], Male = "M"}, other = "rest"}\n'
    (column,) = Schema.from_toml(text).columns
    assert column == Categorical("sex", {"Female": ["female", "FEMALE", "F"], "Male": ["M"]}, other="rest")
    alone = Schema.from_toml('[columns]\nsex = {levels = {f = ["F"], m = ["M"]}}\n')
    assert Schema.from_toml(alone.to_toml()) == alone


def test_a_dictionary_keeps_them(tmp_path) -> None:
    (tmp_path / "codes.toml").write_text('[columns]\nsex = {levels = {f = ["F"], m = ["M"]}}\n', "utf-8")
    text = schema_template({"sex": "str"}, dictionary=tmp_path / "codes.toml")
    (column,) = Schema.from_toml(text).columns
    assert column.levels == ("f", "m") and column.aliases == (("F",), ("M",))


@pytest.mark.parametrize(
    ("levels", "more", "words"),
    [
        ({"a": ["x"], "b": ["x"]}, {}, "'b' is declared twice"),
        ({"a": ["b"], "b": []}, {}, "'b' is declared twice"),
        (["a", "A"], {"fold_case": True}, "'A' is declared twice"),
        ({"a": 1, "b": []}, {}, "write levels = "),
        ({"a": [""], "b": []}, {}, "none of them empty"),
        ({"a": ["\ud800"], "b": []}, {}, "not Unicode"),
        ({"a": []}, {}, "at least two"),
        ({}, {}, "at least two"),
        (["a", "b"], {"fold_case": 1}, "true or false"),
        (["a", "b"], {"other": ["c"]}, "name of a level"),
        (["a", "b"], {"other": ""}, "none of them empty"),
        ({"a": ["(missing)"], "b": []}, {"missing": "level"}, "that of missing cells"),
    ],
)
def test_what_cannot_be_is_refused(levels: object, more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Categorical("c", levels, **more)  # type: ignore[arg-type]


RANDOM, N = np.random.default_rng(5), 20_000
FEMALE = RANDOM.random(N) < 0.5
ILL = RANDOM.random(N) < np.where(FEMALE, 0.3, 0.6)
TIDY = pd.DataFrame({"sex": np.where(FEMALE, "Female", "Male"), "ill": np.where(ILL, "ill", "well")})
RAW = pd.DataFrame(
    {
        "sex": np.where(
            FEMALE, RANDOM.choice(["F", "FEMALE", "woman"], N), RANDOM.choice(["m", "MALE", "1"], N)
        ),
        "ill": np.where(ILL, RANDOM.choice(["yes", "ILL"], N), RANDOM.choice(["healthy", "recovered"], N)),
    }
)
STATE = Categorical("ill", {"ill": ["yes"]}, fold_case=True, other="well")
SCHEMA = Schema([SEX, STATE], target="ill")


def test_fits_predictions_scores_checks_and_descriptions_see_the_merged_level(tmp_path) -> None:
    assert STATE.spoken_for == "ill" and STATE.levels == ("ill", "well")
    options = {"schema": SCHEMA, "epsilon": 3.0, "delta": 1e-6, "random_state": 0}
    raw, tidy = (PrivateLogisticRegression(**options).fit(table) for table in (RAW, TIDY))
    np.testing.assert_array_equal(raw.coef_, tidy.coef_)
    assert raw.event_ == "ill" and raw.contrast({"sex=Male": 1, "sex=Female": -1}).low > 0.9
    raw.save(tmp_path / "model.json")
    jsonschema.validate(json.loads((tmp_path / "model.json").read_text("utf-8")), model_schema())
    RAW.to_csv(tmp_path / "raw.csv", index=False)
    again = load(tmp_path / "model.json")
    for table in (RAW, tmp_path / "raw.csv"):
        np.testing.assert_array_equal(again.predict_proba(table), tidy.predict_proba(TIDY))
    assert set(again.predict(RAW)) == {"ill", "well"}
    of_raw, of_tidy = (
        score(again, table, by="sex", epsilon=3.0, delta=1e-6, random_state=1).to_dict()
        for table in (RAW, TIDY)
    )
    assert of_raw == of_tidy and set(of_raw["levels"]) == {"Female", "Male", "rest"}
    looks = [str(check(SCHEMA, table, epsilon=3.0, random_state=1)) for table in (RAW, TIDY)]
    assert looks[0] == looks[1]
    tables = [str(describe(table, SCHEMA, epsilon=3.0, delta=1e-6, random_state=1)) for table in (RAW, TIDY)]
    assert tables[0] == tables[1]
    np.testing.assert_array_equal(SCHEMA.read(RAW), SCHEMA.read(TIDY))


def test_an_odd_cell_changes_no_other() -> None:
    odd = RAW.copy().astype(object)
    odd.loc[0] = [object(), ["ill"]]
    np.testing.assert_array_equal(SCHEMA.read(odd)[1:], SCHEMA.read(RAW)[1:])
    y, whole = (SCHEMA.declared_target.encode(SCHEMA.target_cells(table)) for table in (odd, RAW))
    assert np.isnan(y[0]) and (y[1:] == whole[1:]).all()


def test_types_that_no_word_of_a_level_can_have_are_refused() -> None:
    words = Schema([Numeric("age", 0, 1), Categorical("ill", ["no", "yes"])], target="ill")
    codes = Schema([Numeric("age", 0, 1), Categorical("ill", {"no": [0], "yes": [1]})], target="ill")
    table = {"age": np.zeros(3), "ill": np.array([0, 1, 1])}
    with pytest.raises(DataError, match="labels are numbers"):
        PrivateLogisticRegression(schema=words).fit(table)
    assert codes.declared_target.encode(table["ill"]).tolist() == [-1, 1, 1]
