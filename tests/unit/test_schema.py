"""Schemas: what may be declared, what is refused, how a table is encoded."""

from __future__ import annotations

import time
import tomllib

import numpy as np
import pandas as pd
import polars as pl
import pytest

from curvedp.errors import DataError, InvalidInput
from curvedp.schema import Categorical, Ignored, Numeric, Schema, schema_template

COLUMNS = (
    Ignored("id"),
    Numeric("age", 0, 120),
    Categorical("race", ("black", "white", "other")),
    Numeric("wage", 0, 1e5),
    Categorical("union", ("no", "yes")),
)
SCHEMA = Schema(COLUMNS, target="wage")


def test_features_target_names_and_bounds():
    assert [c.name for c in SCHEMA.features] == ["age", "race", "union"]
    assert SCHEMA.target_column == Numeric("wage", 0, 1e5)
    assert SCHEMA.feature_names == ("age", "race=black", "race=white", "race=other", "union=no", "union=yes")
    low, high = SCHEMA.bounds
    np.testing.assert_array_equal(low, [0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(high, [120, 1, 1, 1, 1, 1])
    assert SCHEMA.one_hot == ((1, 2, 3), (4, 5))
    assert SCHEMA.with_target("union").one_hot == ((1, 2, 3),)


def test_encoding_follows_the_public_rule():
    table = {
        "id": ["a", "b", "c", "d", "e"],
        "age": ["30", "", "abc", "1e9", "-inf"],
        "race": ["white", "martian", "", " black ", "Other"],
        "union": ["no", "yes", "no", "yes", None],
        "wage": ["5e4", "nan", "-3", "inf", "12"],
    }
    X, y = SCHEMA.encode(table)
    np.testing.assert_array_equal(
        X,
        [
            [30, 0, 1, 0, 1, 0],
            [60, 0, 0, 0, 0, 1],
            [60, 0, 0, 0, 1, 0],
            [120, 1, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0],
        ],
    )
    np.testing.assert_array_equal(y, [5e4, 5e4, 0, 1e5, 12])
    np.testing.assert_array_equal(SCHEMA.encode_features({k: v for k, v in table.items() if k != "wage"}), X)


def test_an_undeclared_class_is_the_first_class():
    X, y = SCHEMA.with_target("union").encode(
        {"age": [1] * 3, "race": ["x"] * 3, "wage": [0] * 3, "union": ["yes", "?", None]}
    )
    assert y.tolist() == ["yes", "no", "no"]
    assert X.shape == (3, 5)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict])
def test_every_kind_of_table_encodes_alike(make, tmp_path):
    cells = {
        "age": [30, None, 500],
        "race": ["white", "black", None],
        "union": ["no", "yes", "x"],
        "wage": [1, 2, 3],
    }
    path = tmp_path / "data.csv"
    path.write_text("age,race,union,wage\n30,white,no,1\n,black,yes,2\n500,,x,3\n")
    from_file, from_memory = SCHEMA.encode(path), SCHEMA.encode(make(cells))
    for a, b in zip(from_file, from_memory, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(SCHEMA.encode_features(str(path)), from_file[0])


def test_one_malformed_record_changes_one_row(tmp_path):
    lines = ["30,white,no,1"] * 6
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,race,union,wage", *lines]))
    before = SCHEMA.encode(path)
    for bad in ('"', '30,"white,no,1', "", "1,2,3,4,5,6", "30", "\x00,\x00", "nan,nan,nan,nan"):
        path.write_text("\n".join(["age,race,union,wage", *lines[:3], bad or ",", *lines[4:]]))
        after = SCHEMA.encode(path)
        for a, b in zip(before, after, strict=True):
            assert len(a) == len(b)
            np.testing.assert_array_equal(np.delete(a, 3, axis=0), np.delete(b, 3, axis=0))


def test_levels_match_however_a_frame_stores_them():
    schema = Schema((Categorical("code", ("1", "2")), Numeric("x", 0, 1)))
    for cells in ([1, 2, 3], [1.0, 2.0, np.nan], ["1", "02", "x"], ["1.0", "2", None]):
        X = schema.encode_features(pd.DataFrame({"code": cells, "x": [0.0, 0.0, 0.0]}))
        np.testing.assert_array_equal(X, [[1, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_column_map_centres_levels_and_bounds_the_norm():
    columns = SCHEMA.column_map(intercept=0.0)
    assert columns.norm_bound == pytest.approx(np.sqrt(1 + (1 - 1 / 3) + (1 - 1 / 2)))
    mapped = columns.apply(
        SCHEMA.encode_features({"age": [120, 0], "race": ["white", "?"], "union": ["yes", "?"]})
    )
    third = 1 / 3
    np.testing.assert_allclose(mapped[0], [1, -third, 1 - third, -third, -0.5, 0.5])
    np.testing.assert_allclose(mapped[1], [-1, -third, -third, -third, -0.5, -0.5])
    assert np.all(np.linalg.norm(mapped, axis=1) <= columns.norm_bound)
    assert SCHEMA.column_map(intercept=1.0, x_norm=0.5).norm_bound == 0.5


def test_files_round_trip(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA.to_toml(), encoding="utf-8")
    assert Schema.load(path) == SCHEMA
    assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    path.write_bytes(b"\xef\xbb\xbf" + SCHEMA.to_toml().encode())
    assert Schema.load(path) == SCHEMA


def test_levels_may_be_written_as_numbers_and_truth_values():
    text = '[[column]]\nname = "a"\nkind = "categorical"\nlevels = [0, 1.5, true, "x"]\n'
    assert Schema.from_toml(text).columns == (Categorical("a", ("0", "1.5", "true", "x")),)


@pytest.fixture
def csv_path(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('age,"ra""ce",wage\n37,martian,123456\n')
    return path


def test_the_template_shows_names_and_nothing_of_the_values(csv_path):
    text = schema_template(csv_path)
    assert [entry["name"] for entry in tomllib.loads(text)["column"]] == ["age", 'ra"ce', "wage"]
    for value in ("37", "martian", "123456"):
        assert value not in text


def test_a_template_is_refused_until_filled_in(csv_path):
    text = schema_template(csv_path)
    with pytest.raises(InvalidInput, match="column 'age': the kind is not filled in"):
        Schema.from_toml(text)
    text = text.replace('kind = ""', 'kind = "numeric"', 1)
    with pytest.raises(
        InvalidInput, match=r"column 'age': the bounds are not filled in: write bounds = \[low, high\]"
    ):
        Schema.from_toml(text)
    text = text.replace("bounds = []", "bounds = [0, 120]", 1)
    text = text.replace('kind = ""', 'kind = "categorical"', 1)
    with pytest.raises(InvalidInput, match="""column 'ra"ce': the levels are not filled in"""):
        Schema.from_toml(text)
    text = text.replace(
        'levels = []\n\n[[column]]\nname = "wage"', 'levels = ["a", "b"]\n\n[[column]]\nname = "wage"'
    )
    text = text.replace('kind = ""', 'kind = "ignored"', 1)
    assert Schema.from_toml(text).columns == (
        Numeric("age", 0, 120),
        Categorical('ra"ce', ("a", "b")),
        Ignored("wage"),
    )


def column(**entry):
    return {"column": [entry, {"name": "other", "kind": "numeric", "bounds": [0, 1]}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (column(name="a", kind="numeric", bounds=[120, 0]), r"column 'a': .* reversed: write \[0, 120\]"),
        (column(name="a", kind="numeric", bounds=[5, 5]), "column 'a': the lower bound must lie below"),
        (column(name="a", kind="numeric", bounds=[0]), "column 'a': bounds must be two numbers"),
        (column(name="a", kind="numeric", bounds=[0, "9"]), "column 'a': bounds must be two numbers"),
        (
            column(name="a", kind="numeric", bounds=[0, float("inf")]),
            "column 'a': bounds must be two numbers",
        ),
        (column(name="a", kind="numeric", bounds=[0, 1e200]), "column 'a': both bounds must be finite"),
        (column(name="a", kind="numeric", bounds=[False, True]), "column 'a': bounds must be two numbers"),
        (
            column(name="a", kind="numeric", bounds=[0, 1], levels=["x"]),
            "column 'a': a numeric column has no levels",
        ),
        (column(name="a", kind="categorical", levels=["x", "x"]), "column 'a': level 'x' is declared twice"),
        (
            column(name="a", kind="categorical", levels=["1", "1.0"]),
            "column 'a': level '1.0' is declared twice",
        ),
        (column(name="a", kind="categorical", levels=["x"]), "column 'a': declare at least two levels"),
        (column(name="a", kind="categorical", levels=["x", " "]), "column 'a': declare at least two levels"),
        (column(name="a", kind="categorical", levels="xy"), "column 'a': levels must be a list"),
        (column(name="a", kind="categorical", levels=[["x"]]), "column 'a': levels must be a list"),
        (column(name="a", kind="categorical", levels=["x", "y"], bounds=[0, 1]), "column 'a': .* no bounds"),
        (column(name="a", kind="date"), "column 'a': unknown kind 'date'"),
        (column(name="a", kind="numeric", bound=[0, 1]), "column 'a' has an unknown key 'bound'"),
        (column(kind="numeric"), "column 1 of the schema has no name"),
        (column(name="other", kind="ignored"), "column 'other' is declared twice"),
        ({"column": [{"name": "a", "kind": "ignored"}]}, "no column is left to learn from"),
        ({}, r"write one \[\[column\]\] for each"),
        ({"columns": []}, "unknown key 'columns'"),
        ({**column(name="a", kind="ignored"), "adjacency": "both"}, "adjacency must be"),
        ({**column(name="a", kind="ignored"), "target": "othr"}, "did you mean 'other'"),
        ({**column(name="a", kind="ignored"), "target": "zzz"}, "choose one of a, other"),
        ({**column(name="a", kind="ignored"), "target": "a"}, "the target 'a' is ignored"),
        ({**column(name="a", kind="ignored"), "target": 3}, "must be text"),
    ],
)
def test_refusals_name_the_column_and_what_to_write(content, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        Schema.from_dict(content)
    assert "\n" not in str(caught.value)


def test_unreadable_schema_files(tmp_path):
    with pytest.raises(InvalidInput, match="check the path"):
        Schema.load(tmp_path / "none.toml")
    path = tmp_path / "schema.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        Schema.load(path)
    path.write_text("unit = \n")
    with pytest.raises(InvalidInput, match=r"not valid TOML .*line 1"):
        Schema.load(path)


def test_a_missing_column_or_target_is_named():
    with pytest.raises(DataError, match="no column 'age'"):
        SCHEMA.encode({"race": ["white"], "union": ["no"], "wage": [1]})
    with pytest.raises(InvalidInput, match="no target was chosen"):
        Schema(COLUMNS).encode({"age": [1], "race": [""], "union": [""], "wage": [1]})


def test_a_hundred_thousand_rows_encode_quickly(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,race,union,wage\n" + "31.5,white,no,1000\n,black,yes,2\n" * 50_000)
    start = time.process_time()
    X, y = SCHEMA.encode(path)
    assert X.shape == (100_000, 6) and y.shape == (100_000,)
    assert time.process_time() - start < 5.0
