"""Kinds of columns: numbers as people write them, dates, truth values, and what becomes of missing cells."""

from __future__ import annotations

import datetime
import math
import re

import numpy as np
import pandas as pd
import pytest

from curvedp import PrivateLogisticRegression, PrivateRidge, load
from curvedp.cli.workflow import release_report
from curvedp.data import Boolean, Categorical, ClassTarget, Date, FileFormat, Numeric, NumericTarget, Schema
from curvedp.data.dates import PARTS, WEEKDAYS
from curvedp.errors import DataError, InvalidInput

NAN = math.nan


def read(column, cells):
    return Schema([column]).read({column.name: cells})


@pytest.mark.parametrize(
    ("decimal", "thousands", "cells"),
    [
        (
            ",",
            "",
            {"1,5": 1.5, "-0,25": -0.25, "7": 7, "1.5": NAN, "1,2,3": NAN, "1.234,5": NAN, " 2,5 ": 2.5},
        ),
        (",", ".", {"1.234,5": 1234.5, "1.234": 1234, "12.345.678": 12345678, "1.5": NAN, "1.23,4": NAN}),
        (",", " ", {"1 234,5": 1234.5, "1\u00a0234": 1234, "1\u202f234,0": 1234, "1 23": NAN, "1.5": NAN}),
        (".", ",", {"1,234.5": 1234.5, "1,5": NAN, "-1,234": -1234, "1234.5": 1234.5}),
        (".", "'", {"1'234.5": 1234.5, "1\u2019234": 1234, "1'2'3": NAN, "5": 5}),
        (None, ".", {"1.234,5": 1234.5, "1.5": NAN}),
        (None, "", {"1.5": 1.5, "1,5": NAN, "1 234": NAN}),
    ],
)
def test_numbers_as_people_write_them(decimal, thousands, cells):
    column = Numeric("x", 0, 1, decimal=decimal, thousands=thousands)
    always = {"inf": math.inf, "nan": NAN, "": NAN, "true": 1, 7.5: 7.5, None: NAN, b"3": 3, "1e3": 1000}
    found = read(column, [*cells, *always])[:, 0]
    np.testing.assert_array_equal(found, [*cells.values(), *always.values()])


def test_a_missing_code_is_missing_however_it_is_written():
    column = Numeric("x", 0, 1, missing_codes=[-9, 999])
    cells = [-9, "-9", "-9.0", 999.0, np.float32(999), 9, "998", "999.0"]
    for table in (cells, np.array([-9.0, 999, 9])):
        found = read(column, table)[:, 0]
        assert all(math.isnan(f) == (float(c) in (-9, 999)) for c, f in zip(table, found, strict=True))


def test_what_is_missing_may_be_said_by_a_column_of_its_own():
    column = Numeric("age", 0, 10, missing="indicator", missing_codes=[-1])
    assert column.encoded_names == ("age", "age?missing")
    assert column.encoded_bounds == ((0, 10), (0, 1))
    np.testing.assert_array_equal(read(column, [5, "x", -1, 99]), [[5, 0], [NAN, 1], [NAN, 1], [99, 0]])
    levels = Categorical("race", ["a", "b"], missing="level")
    assert levels.encoded_names == ("race=a", "race=b", "race=(missing)")
    np.testing.assert_array_equal(read(levels, ["b", "c", None]), [[0, 1, 0], [0, 0, 1], [0, 0, 1]])
    schema = Schema([column, levels, Boolean("s", missing="indicator")])
    assert schema.feature_names == (*column.encoded_names, *levels.encoded_names, "s", "s?missing")
    assert schema.one_hot == ((2, 3, 4),)
    low, high = schema.bounds
    assert low.tolist() == [0] * 7 and high.tolist() == [10, 1, 1, 1, 1, 1, 1]


def test_every_mapped_record_of_every_kind_meets_the_norm_bound():
    schema = every_kind()
    columns = schema.column_map()
    records = {
        "n": [None, "0", "1e9"],
        "c": ["a", "zzz", None],
        "d": ["1900-01-01", "?", "2021-12-31"],
        "b": ["yes", "no", ""],
    }
    rows = [
        schema.read({k: [v[(i // 3**j) % 3]] for j, (k, v) in enumerate(records.items())}) for i in range(81)
    ]
    lengths = np.linalg.norm(columns.apply(np.vstack(rows)), axis=1)
    assert lengths.max() <= columns.norm_bound
    assert lengths.max() > 0.9 * columns.norm_bound  # the bound is not idle


def every_kind(**options):
    return Schema(
        [
            Numeric("n", 0, 10, decimal=",", missing_codes=[-9], missing="indicator"),
            Categorical("c", ["a", "b"], missing="level"),
            Date("d", "2020-01-01", "2021-12-31", parts=PARTS, missing="indicator"),
            Boolean("b", missing="indicator"),
        ],
        **options,
    )


def test_dates_against_the_calendar():
    column = Date("d", "1999-12-30", "2030-12-31", parts=PARTS)
    days = [datetime.date(1999, 12, 30) + datetime.timedelta(i) for i in range(0, 11_000, 13)]
    found = read(column, [day.isoformat() for day in days])
    for day, row in zip(days, found, strict=True):
        months = [float(day.month == m) for m in range(1, 13)]
        week = [float(day.strftime("%a") == name) for name in WEEKDAYS]
        expected = [(day - column.low).days, day.year, *months, day.month, *week]
        assert row.tolist() == expected
    assert column.encoded_names[:2] == ("d.days", "d.year") and column.encoded_names[2] == "d.month=1"
    assert Schema([column]).one_hot == (tuple(range(2, 14)), tuple(range(15, 22)))


@pytest.mark.parametrize(
    ("format", "cells"),
    [
        (
            "iso",
            {"2020-02-29": 59, "2020-02-30": NAN, "20200229": 59, "2020-01-02T23:59": 1, "2/1/2020": NAN},
        ),
        ("iso", {20200229.0: 59, "20200229.0": 59, True: NAN, 5: NAN, " 2020-01-03 ": 2}),
        ("%d.%m.%Y", {"29.02.2020": 59, "29.2.2020": 59, "2020-02-29": NAN, "31.02.2020": NAN, "": NAN}),
        ("%m/%d/%y", {"02/29/20": 59, "29/02/20": NAN}),
        ("%Y", {2021: 366, "2020": 0, "2021.0": 366, "20": NAN}),
        ("%Y-%m-%d %H:%M:%S", {"2020-01-02 03:04:05": 1, "2020-01-02": NAN}),
        ("%Y%j", {"2020060": 59, 2020060: 59}),
    ],
)
def test_dates_as_people_write_them(format, cells):
    column = Date("d", "2020-01-01", "2022-12-31", format=format)
    np.testing.assert_array_equal(read(column, list(cells))[:, 0], list(cells.values()))


def test_typed_dates_do_not_ask_for_a_format():
    column = Date("d", "2020-01-01", "2022-12-31", format="%d.%m.%Y", parts=["days", "month"])
    day = datetime.date(2020, 3, 1)
    cells = [
        day,
        datetime.datetime(2020, 3, 1, 23, 59),
        datetime.datetime(2020, 3, 1, 0, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=9))),
        pd.Timestamp("2020-03-01 12:00"),
        pd.Timestamp("2020-03-01 00:30", tz="Asia/Tokyo"),
        np.datetime64("2020-03-01T13"),
        "01.03.2020",
    ]
    found = read(column, cells)
    assert (found == found[0]).all() and found[0, 0] == 60
    missing = [pd.NaT, np.datetime64("NaT"), None, np.timedelta64(1, "D"), np.datetime64(10**9, "Y"), 5.0]
    assert np.isnan(read(column, missing)[:, 0]).all()
    assert not read(column, missing)[:, 1:].any()


def test_dates_outside_the_bounds_are_moved_to_them():
    column = Date("d", "2020-02-15", "2021-03-31", parts=["days", "year", "month_number"])
    found = read(column, ["1066-10-14", "9999-12-31", datetime.date.max, datetime.date.min])
    assert found.tolist() == [[0, 2020, 2], [410, 2021, 3], [410, 2021, 3], [0, 2020, 2]]


def test_truth_values():
    plain = Boolean("b")
    cells = ["True", "yes", "T", "1", 1, True, np.True_, 1.0, "Y", "FALSE", "no", "f", 0, False, "n", "0.0"]
    np.testing.assert_array_equal(read(plain, cells)[:, 0], [1] * 9 + [0] * 7)
    assert np.isnan(read(plain, ["ja", 2, None, "", "maybe", 0.5, Exception()])).all()
    words = Boolean("b", ["nein", "ja"])
    np.testing.assert_array_equal(read(words, ["JA", "nein", 1, False, "yes"])[:, 0], [1, 0, 1, 0, NAN])
    coded = Boolean("b", [1, 2])
    np.testing.assert_array_equal(read(coded, [1, 2, "1", "2.0", 0])[:, 0], [0, 1, 0, 1, NAN])
    np.testing.assert_array_equal(read(coded, np.array([1.0, 2.0, 0.0]))[:, 0], [0, 1, NAN])


def test_a_truth_value_may_be_the_target():
    schema = Schema([Numeric("x", -1, 1), Boolean("y", ["nein", "ja"])], target="y")
    assert schema.declared_target == ClassTarget((False, True))
    cells = ["ja", "Nein", True, "yes", None]
    assert schema.declared_target.encode(cells).tolist()[:3] == [1, -1, 1]
    y = schema.target_cells({"x": [0] * 5, "y": cells})
    np.testing.assert_array_equal(schema.declared_target.encode(y), [1, -1, 1, NAN, NAN])
    model = PrivateLogisticRegression(schema=schema, epsilon=50.0, delta=1e-3, random_state=0)
    x = np.linspace(-1, 1, 2000)
    model.fit({"x": x, "y": np.where(x > 0, "ja", "nein")})
    assert model.predict({"x": [-1.0, 1.0]}).tolist() == [False, True]


def test_a_target_is_read_as_its_column_declares(tmp_path):
    target = Numeric("y", 0, 10, decimal=",", missing_codes=[9])
    schema = Schema([Numeric("x", -1, 1), target], target="y")
    cells = ["1,5", "1.5", "9", 9, 2]
    expected = [-0.7, NAN, NAN, NAN, -0.6]
    assert schema.declared_target == NumericTarget(0, 10)
    np.testing.assert_allclose(schema.declared_target.encode(cells), expected)
    for table in ({"x": [0] * 5, "y": cells}, pd.DataFrame({"x": [0] * 5, "y": cells})):
        np.testing.assert_allclose(schema.declared_target.encode(schema.target_cells(table)), expected)
    model = PrivateRidge(schema=schema, alpha=1.0, epsilon=1.0, delta=1e-3, random_state=0)
    model.fit({"x": [0.5] * 20, "y": ["1,5"] * 20})
    model.save(tmp_path / "m.json")
    np.testing.assert_allclose(load(tmp_path / "m.json").target_.encode(cells), expected)


def test_a_date_is_no_target():
    with pytest.raises(InvalidInput, match="'d' is a date, which no model predicts"):
        every_kind(target="d")


def test_schemas_of_every_kind_survive_files(tmp_path):
    schema = every_kind(file=FileFormat("latin-1", ";", ","))
    for again in (
        Schema.from_toml(schema.to_toml()),
        Schema.from_dict(schema.to_dict()),
    ):
        assert again == schema and again.feature_names == schema.feature_names
        assert hash(again) == hash(schema)
    (tmp_path / "s.toml").write_text(schema.to_toml(), encoding="utf-8")
    assert Schema.load(tmp_path / "s.toml") == schema


def test_a_schema_without_the_new_keys_is_written_as_before():
    schema = Schema([Numeric("a", 0, 1), Categorical("b", ["x", "y"])], target="a")
    assert schema.to_dict() == {
        "record": "one row is one record",
        "adjacency": "replace",
        "target": "a",
        "column": [
            {"name": "a", "kind": "numeric", "bounds": [0.0, 1.0]},
            {"name": "b", "kind": "categorical", "levels": ["x", "y"]},
        ],
    }


def test_a_model_of_every_kind_is_saved_and_predicts_the_same(tmp_path):
    columns = (*every_kind().columns, Numeric("y", -1, 1))
    schema = Schema(columns, target="y", file=FileFormat(delimiter=";"))
    table = {
        "n": ["1,5", "-9", "x", "9"],
        "c": ["a", "b", "?", None],
        "d": ["2020-05-01", None, datetime.date(2021, 1, 1), "soon"],
        "b": ["yes", 0, None, "x"],
        "y": [0.5, -0.5, 0.1, None],
    }
    many = {name: cells * 50 for name, cells in table.items()}
    model = PrivateRidge(schema=schema, alpha=1.0, epsilon=1.0, delta=1e-3, random_state=0).fit(many)
    assert len(model.coef_) == len(schema.feature_names)
    model.save(tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert again.schema_ == schema
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert np.isfinite(model.predict(table)).all()


LEVELS = (
    'target = "y"\n[[column]]\nname = "c"\nkind = "categorical"\nlevels_file = "levels.txt"\n[[column]]\n'
)


def test_levels_may_stand_in_a_file_beside_the_schema(tmp_path):
    (tmp_path / "levels.txt").write_text("\ufeffnorth\n\n south \neast\n", encoding="utf-8")
    text = LEVELS + 'name = "y"\nkind = "numeric"\nbounds = [0, 1]\n'
    (tmp_path / "schema.toml").write_text(text)
    schema = Schema.load(tmp_path / "schema.toml")
    assert schema.columns[0] == Categorical("c", ["north", "south", "east"], source="levels.txt")
    assert "levels_file" not in schema.to_toml()
    with pytest.raises(InvalidInput, match="load the schema from its file"):
        Schema.from_toml(text)  # a model file, which nobody vouches for, opens no other file
    for content, words in (
        (None, "cannot be read"),
        (b"\xff\xfe", "not UTF-8"),
        (b"one\n", "at least two levels"),
        (b"a\nb\na\n", "has a level twice"),
    ):
        path = tmp_path / "levels.txt"
        path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
        with pytest.raises(InvalidInput, match=words):
            Schema.load(tmp_path / "schema.toml")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "numeric", "bounds": [0, 1], "decimal": ";"}, "decimal sign must be"),
        ({"kind": "numeric", "bounds": [0, 1], "thousands": "-"}, "sign between thousands"),
        ({"kind": "numeric", "bounds": [0, 1], "thousands": [","]}, "sign between thousands"),
        ({"kind": "numeric", "bounds": [0, 1], "decimal": ",", "thousands": ","}, "two different ones"),
        (
            {"kind": "numeric", "bounds": [0, 1], "missing_codes": ["x"]},
            "missing_codes must be a list of numbers",
        ),
        (
            {"kind": "numeric", "bounds": [0, 1], "missing_codes": 9},
            "missing_codes must be a list of numbers",
        ),
        (
            {"kind": "numeric", "bounds": [0, 1], "missing": "level"},
            'missing must be "middle" or "indicator"',
        ),
        ({"kind": "numeric", "bounds": [0, 1], "format": "%Y"}, "format belongs to a column that is date"),
        ({"kind": "categorical", "levels": ["a", "b"], "missing": "middle"}, 'must be "zero" or "level"'),
        ({"kind": "categorical", "levels": ["a", "(missing)"], "missing": "level"}, "remove one"),
        ({"kind": "categorical", "levels": ["a", "b"], "levels_file": "x"}, "not both"),
        ({"kind": "categorical", "levels_file": 3}, "must be a path in quotes"),
        (
            {"kind": "categorical", "levels": ["a", "b"], "decimal": ","},
            "belongs to a column that is numeric",
        ),
        ({"kind": "date"}, "bounds are not filled in"),
        ({"kind": "date", "bounds": [1, 2]}, "bounds must be two dates"),
        ({"kind": "date", "bounds": ["2020-13-01", "2021-01-01"]}, "bounds must be two dates"),
        ({"kind": "date", "bounds": ["2020-01-01"]}, "bounds must be two dates"),
        ({"kind": "date", "bounds": ["2021-01-01", "2020-01-01"]}, "must lie before"),
        (
            {"kind": "date", "bounds": ["2020-01-01", "2020-02-01"], "parts": ["year"]},
            "leave the part year out",
        ),
        ({"kind": "date", "bounds": ["2020-01-01", "2021-02-01"], "parts": ["hour"]}, "parts must be a list"),
        (
            {"kind": "date", "bounds": ["2020-01-01", "2021-02-01"], "format": "%d %b %Y"},
            "machine to machine",
        ),
        ({"kind": "date", "bounds": ["2020-01-01", "2021-02-01"], "format": "%d.%m."}, "names a year"),
        ({"kind": "date", "bounds": ["2020-01-01", "2021-02-01"], "format": "%Y%"}, "machine to machine"),
        ({"kind": "date", "bounds": ["2020-01-01", "2021-02-01"], "format": 3}, "format must be text"),
        (
            {"kind": "date", "bounds": ["2020-01-01", "2021-02-01"], "levels": ["a"]},
            "a date column has no levels",
        ),
        ({"kind": "boolean", "words": ["yes", "Yes"]}, "two different texts"),
        ({"kind": "boolean", "words": ["yes"]}, "two different texts"),
        ({"kind": "boolean", "words": "ja"}, "two different texts"),
        ({"kind": "boolean", "bounds": [0, 1]}, "a boolean column has no bounds"),
    ],
)
def test_refusals_say_what_to_write(entry, words):
    content = {"column": [{"name": "a", **entry}, {"name": "b", "kind": "numeric", "bounds": [0, 1]}]}
    with pytest.raises(InvalidInput, match=re.escape(words)) as caught:
        Schema.from_dict(content)
    assert "'a'" in str(caught.value)


def test_types_that_can_never_hold_a_kind_are_refused_before_their_cells_are_read():
    durations, dates = pd.to_timedelta([1]), pd.to_datetime(["2020-01-01"])
    for column, cells in (
        (Date("a", "2020-01-01", "2021-01-01"), durations),
        (Date("a", "2020-01-01", "2021-01-01"), np.zeros(1, dtype=complex)),
        (Boolean("a"), dates),
        (Boolean("a"), durations),
        (Numeric("a", 0, 1), dates),
        (Numeric("a", 0, 1), durations),
    ):
        with pytest.raises(DataError, match=r"has a (type of|complex type)"):
            read(column, cells)


def test_reports_say_which_rule_held_for_missing_cells():
    columns = (*every_kind().columns, Numeric("y", -1, 1))
    schema = Schema(columns, target="y")
    table = {"n": ["1,5"], "c": ["a"], "d": ["2020-05-01"], "b": ["yes"], "y": [0.5]}
    many = {name: cells * 50 for name, cells in table.items()}
    model = PrivateRidge(schema=schema, alpha=1.0, epsilon=1.0, delta=1e-3, random_state=0).fit(many)
    page = release_report(model)
    for words in ("days since 2020-01-01", "the middle, and 1 in a column of its own", "it adds nothing"):
        assert words in page
    for name in ("n?missing", "c=(missing)", "d.weekday=Mon", "d?missing"):
        assert name in page


def test_a_date_of_which_no_days_are_learned_is_not_said_to_be_counted_in_days():
    date = Date("d", "2020-01-01", "2022-12-31", parts=["year"])
    table = {"d": ["2021-05-01"] * 50, "y": [0.5] * 50}
    model = PrivateRidge(schema=Schema([date, Numeric("y", -1, 1)], target="y"), random_state=0).fit(table)
    assert "days since" not in release_report(model)


def test_two_features_of_one_name_are_refused():
    for columns in (
        [Numeric("age", 0, 1, missing="indicator"), Numeric("age?missing", 0, 1)],
        [Categorical("a", ["x", "y"]), Numeric("a=x", 0, 1)],
        [Date("d", "2020-01-01", "2021-01-01"), Boolean("d.days")],
    ):
        with pytest.raises(InvalidInput, match="two features are named"):
            Schema(columns)
