"""Schemas: what may be declared, what is refused, how a table is encoded."""

from __future__ import annotations

import pickle
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from curvedp.data import (
    Categorical,
    ClassTarget,
    CountTarget,
    Ignored,
    Numeric,
    NumericTarget,
    Schema,
)
from curvedp.errors import DataError, InvalidInput

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


def clipped(schema, table):
    """What a model sees of the features, in user units."""
    return schema.column_map().clip(schema.read(table))


def test_encoding_follows_the_public_rule():
    table = {
        "id": ["a", "b", "c", "d", "e"],
        "age": ["30", "", "abc", "1e9", "-inf"],
        "race": ["white", "martian", "", " black ", "Other"],
        "union": ["no", "yes", "no", "yes", None],
        "wage": ["5e4", "nan", "-3", "inf", "12"],
    }
    np.testing.assert_array_equal(
        clipped(SCHEMA, table),
        [
            [30, 0, 1, 0, 1, 0],
            [60, 0, 0, 0, 0, 1],
            [60, 0, 0, 0, 1, 0],
            [120, 1, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0],
        ],
    )
    coded = SCHEMA.declared_target.encode(SCHEMA.target_cells(table))
    np.testing.assert_allclose(coded, [0, np.nan, -1, 1, 12 / 5e4 - 1], rtol=1e-15)
    np.testing.assert_array_equal(
        SCHEMA.read({k: v for k, v in table.items() if k != "wage"}), SCHEMA.read(table)
    )


def test_a_record_of_an_undeclared_class_is_unusable():
    schema = SCHEMA.with_target("union")
    table = {"age": [1] * 3, "race": ["x"] * 3, "wage": [0] * 3, "union": ["yes", "?", None]}
    coded = schema.declared_target.encode(schema.target_cells(table))
    np.testing.assert_array_equal(coded, [1, np.nan, np.nan])
    assert schema.read(table).shape == (3, 5)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_every_kind_of_table_encodes_alike(make, tmp_path):
    cells = {
        "age": [30, None, 500],
        "race": ["white", "black", None],
        "union": ["no", "yes", "x"],
        "wage": [1, 2, 3],
    }
    path = tmp_path / "data.csv"
    path.write_text("age,race,union,wage\n30,white,no,1\n,black,yes,2\n500,,x,3\n")
    expected = SCHEMA.read(path), SCHEMA.declared_target.encode(SCHEMA.target_cells(path))
    for table in (str(path), make(cells), make({name: cells[name] for name in reversed(cells)})):
        coded = SCHEMA.declared_target.encode(SCHEMA.target_cells(table))
        for found, known in zip((SCHEMA.read(table), coded), expected, strict=True):
            np.testing.assert_array_equal(found, known)


def test_arrays_and_lists_are_read_by_position():
    rows = [[30, "white", "no"], [None, "black", "yes"], [500, None, "x"]]
    expected = SCHEMA.read(pd.DataFrame(rows, columns=["age", "race", "union"]))
    for X in (rows, tuple(map(tuple, rows)), np.array(rows, dtype=object)):
        np.testing.assert_array_equal(SCHEMA.read(X), expected)
    coded = Schema((Numeric("x", 0, 1), Categorical("k", ("1", "2"))))
    for X in (np.array([[0.5, 2], [0, 3]]), sparse.csr_array([[0.5, 2], [0, 3]])):
        np.testing.assert_array_equal(coded.read(X), [[0.5, 0, 1], [0, 0, 0]])
    for X in (np.zeros((2, 2)), sparse.csr_array((2, 2))):
        with pytest.raises(
            InvalidInput, match="X has 2 features, but Schema is expecting 3 features as input"
        ):
            SCHEMA.read(X)
    with pytest.raises(DataError, match="Reshape your data"):
        SCHEMA.read(np.zeros(3))


def test_arrays_of_numbers_are_passed_on_and_others_are_converted_silently(tmp_path):
    schema = Schema.of_bounds((0, 1), n_features=2)
    X = np.zeros((3, 2))
    mapped = np.memmap(tmp_path / "x", shape=(3, 2), mode="w+")
    for passed in (X, X.astype(int), X.astype(bool), X.astype(np.float32), mapped, sparse.csr_array(X)):
        assert schema.read(passed) is passed
    wide = X.astype(np.longdouble)
    wide[0] = np.longdouble("1e4000"), np.longdouble("-1e4000")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert schema.read(wide)[0].tolist() == [np.inf, -np.inf]
        assert schema.read(X.astype("U4")).tolist() == schema.read(X.astype("S4")).tolist() == X.tolist()


def test_types_that_can_never_hold_a_number_are_refused_before_their_cells_are_read():
    schema = Schema((Numeric("a", 0, 1),))
    days = pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])})
    for table in (days, pl.from_pandas(days), days.to_numpy(), pd.DataFrame({"a": pd.to_timedelta([1])})):
        with pytest.raises(DataError, match=r"column 'a' has a type of (dates|durations)") as caught:
            schema.read(table)
        assert "2020" not in str(caught.value)
    with pytest.raises(DataError, match="Complex data not supported"):
        schema.read(np.zeros((1, 1), dtype=complex))


def test_one_malformed_record_changes_one_row(tmp_path):
    lines = ["30,white,no,1"] * 6
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,race,union,wage", *lines]))

    def both() -> tuple[Any, Any]:
        return SCHEMA.read(path), SCHEMA.declared_target.encode(SCHEMA.target_cells(path))

    before = both()
    for bad in ('"', '30,"white,no,1', "", "1,2,3,4,5,6", "30", "\x00,\x00", "nan,nan,nan,nan"):
        path.write_text("\n".join(["age,race,union,wage", *lines[:3], bad or ",", *lines[4:]]))
        for a, b in zip(before, both(), strict=True):
            assert len(a) == len(b)
            np.testing.assert_array_equal(np.delete(a, 3, axis=0), np.delete(b, 3, axis=0))


def test_levels_match_however_a_frame_stores_them():
    schema = Schema((Categorical("code", ("1", "10000000000000000")), Numeric("x", 0, 1)))
    for cells in (
        [1, 10**16, 3],
        [1.0, 1e16, np.nan],
        ["1", "010000000000000000.0", "x"],
        pd.Series([True, 10**16, 10**5000], dtype=object),
        pd.Series([1, 10**16, None], dtype="Int64"),
        pd.Series([1, 10**16, None], dtype="int64[pyarrow]"),
        pd.Series([1, 10**16, None], dtype="category"),
    ):
        X = schema.read(pd.DataFrame({"code": cells, "x": [0.0, 0.0, 0.0]}))
        np.testing.assert_array_equal(X, [[1, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_column_map_centres_levels_and_bounds_the_norm():
    columns = SCHEMA.column_map(intercept=0.0)
    assert columns.norm_bound == pytest.approx(np.sqrt(1 + (1 - 1 / 3) + (1 - 1 / 2)))
    mapped = columns.apply(SCHEMA.read({"age": [120, 0], "race": ["white", "?"], "union": ["yes", "?"]}))
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


TARGET = NumericTarget(-2, 8)


def test_a_numeric_target_is_clipped_then_scaled_without_a_warning():
    cells = [-2, 8, 3, "5.5", 1.7e308, -np.inf, 10**400, None, "secret", np.nan]
    expected = [-1, 1, 0, 0.5, 1, -1, 1, np.nan, np.nan, np.nan]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(TARGET.encode(cells), expected)
        np.testing.assert_array_equal(TARGET.encode(np.array([1.7e308, -1.7e308])), [1, -1])
        wide = NumericTarget(-1e150, 1e150)
        np.testing.assert_array_equal(wide.encode([1e308, -1e308]), [1, -1])
    np.testing.assert_array_equal(TARGET.decode([-1, 0, 0.5]), [-2, 3, 5.5])
    assert (TARGET.scale, TARGET.offset) == (5.0, 3.0)
    for low, high in ((1, 1), (2, 1), (0, np.inf), (0, 10**400), ("0", 1), (0, 5e-324), (None, 1)):
        with pytest.raises(InvalidInput, match="the target"):
            NumericTarget(low, high)


def test_counts_are_clipped_to_their_range():
    np.testing.assert_array_equal(CountTarget(9).encode([3, "100", -1, "x", None]), [3, 9, 0, np.nan, np.nan])
    for high in (0, -1, np.nan, np.inf, "9"):
        with pytest.raises(InvalidInput, match="largest count"):
            CountTarget(high)


INTEGERS = [0, 1, 1, 0, 1]
LABELS = {
    "integers": (INTEGERS, [0, 1, 1, 0, None]),
    "array": (np.array(INTEGERS), np.array([0.0, 1, 1, 0, np.nan])),
    "pandas": (pd.Series(INTEGERS), pd.Series([0, 1, 1, 0, None])),
    "nullable": (pd.Series(INTEGERS, dtype="Int64"), pd.Series([0, 1, 1, 0, None], dtype="Int64")),
    "category": (pd.Series(INTEGERS, dtype="category"), pd.Series([0, 1, 1, 0, None], dtype="category")),
    "one text": (INTEGERS, [0, 1, 1, 0, "x"]),
    "truth": (np.array(INTEGERS, dtype=bool), np.array([False, True, True, False, np.nan])),
    "text": (np.array(INTEGERS).astype(str), np.array(["0", "1", "1", "0", b"\xff"], dtype=object)),
}


@pytest.mark.parametrize(
    "classes", [[0, 1], ["0", "1"], [False, True], [0.0, 1.0], np.array([1, 0])], ids=str
)
@pytest.mark.parametrize("kind", LABELS)
def test_one_odd_label_leaves_the_others_as_they_are(classes, kind):
    target = ClassTarget(classes)
    whole, odd = (target.encode(labels) for labels in LABELS[kind])
    np.testing.assert_array_equal(whole, [-1, 1, 1, -1, 1])
    np.testing.assert_array_equal(odd, [-1, 1, 1, -1, np.nan])


def test_classes_are_sorted_and_labels_come_back_in_their_own_type():
    target = ClassTarget(("b", "c", "a"))
    np.testing.assert_array_equal(target.encode(["c", "a", "C", "b "]), [2, 0, np.nan, 1])
    assert target.labels.tolist() == ["a", "b", "c"] and target.decode(np.array([2, 0])).tolist() == [
        "c",
        "a",
    ]
    assert (
        ClassTarget([1, 0]).labels.dtype.kind == "i" and ClassTarget([True, False]).labels.dtype.kind == "b"
    )
    copy = pickle.loads(pickle.dumps(target))
    assert copy == target and hash(copy) == hash(target)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ("ab", "at least two"),
        (None, "at least two"),
        ([1], "at least two"),
        ([[0, 1]], "all texts"),
        (np.eye(2), "all texts"),
        ([0, "a"], "all texts"),
        ([0, None], "all texts"),
        ([0, np.nan], "all texts"),
        ([0, 10**400], "all texts"),
        (["a", " "], "none of them missing"),
        ([1, 1.0], "number 2 is the same label"),
        (["1", "01"], "number 2 is the same label"),
        (["x", "1", "true"], "number 3 is the same label"),
        (["a", "a\0"], "number 2 is the same label"),
    ],
    ids=str,
)
def test_classes_that_cannot_be_told_apart_are_refused(classes, words):
    with pytest.raises(InvalidInput, match=words):
        ClassTarget(classes)


def test_labels_whose_type_no_class_can_match_are_refused():
    words, digits = ClassTarget(["no", "yes"]), ClassTarget([0, 1])
    for labels in (
        np.array([4711]),
        pd.Series([True]),
        pl.Series([4711.0]),
        pd.Series([4711], dtype="Int64"),
    ):
        with pytest.raises(DataError, match="no declared class is one") as caught:
            words.encode(labels)
        assert "4711" not in str(caught.value)
    with pytest.raises(DataError, match="type of dates"):
        digits.encode(pd.Series(pd.to_datetime(["2020-01-01"])))
    for labels in (["a"], np.array(["a"]), pd.Series(["a"])):  # text may hold digits: nobody looks
        np.testing.assert_array_equal(digits.encode(labels), [np.nan])
    for shape in ((3, 2), (), (1, 1, 1)):
        with pytest.raises(InvalidInput, match="one column"):
            digits.encode(np.zeros(shape))
    np.testing.assert_array_equal(digits.encode(np.ones((2, 1))), [1, 1])


BOUNDS = (np.array([0.0, 18.0]), np.array([20.0, 90.0]))


@pytest.mark.parametrize(
    ("bounds", "n", "expected"),
    [
        ((0, 20), 3, ([0] * 3, [20] * 3)),
        (np.array([0, 20]), 2, ([0] * 2, [20] * 2)),
        ([(0, 20), (18, 90)], 2, BOUNDS),
        ([[0, 20], [18, 90]], 2, BOUNDS),
        (BOUNDS, 2, BOUNDS),
        ([*BOUNDS], 2, BOUNDS),
        ((BOUNDS[0], 90), 2, ([0, 18], [90, 90])),
        (([0, 1, 2], [3, 4, 5]), 3, ([0, 1, 2], [3, 4, 5])),
        (((0, 3), (1, 4), (2, 5)), 3, ([0, 1, 2], [3, 4, 5])),
        (np.array([[0, 3], [1, 4], [2, 5]]), 3, ([0, 1, 2], [3, 4, 5])),
        ([(0, 20)], 1, ([0], [20])),
    ],
    ids=str,
)
def test_bounds_are_read_per_column(bounds, n, expected):
    schema = Schema.of_bounds(bounds, n_features=n)
    np.testing.assert_array_equal(schema.bounds, expected)
    assert schema.feature_names == tuple(f"x{i}" for i in range(n))


def test_bounds_by_name_follow_the_columns():
    schema = Schema.of_bounds({"b": (0, 1), "a": (2, 3)}, n_features=2, names=["a", "b"])
    assert schema.columns == (Numeric("a", 2, 3), Numeric("b", 0, 1))


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (None, "public ranges that you declare"),
        (((0, 20), (18, 90)), "two pairs or two lists of ends"),
        (np.array([[0, 20], [18, 90]]), "two pairs or two lists of ends"),
        ([(0, 20)], "a list of 2 pairs"),
        ([(0, 20), (18, 90), (1, 2)], "a list of 2 pairs"),
        ([(0, 20), 5], "a list of 2 pairs"),
        (5, "a list of 2 pairs"),
        ("ab", "a list of 2 pairs"),
        ((0, "1"), "a list of 2 pairs"),
        ((False, True), "a list of 2 pairs"),
        ((1, 0), r"bounds: .* reversed"),
        ((1, 1), "bounds: the lower bound must lie below"),
        ((0, 10**400), "bounds: both bounds must be finite"),
        ([(0, 1), (0, np.inf)], "bounds of column 2: both bounds must be finite"),
        ({"secret": (0, 1)}, "no entry for column 2"),
        ({"secret": (0, 1), "b": (0, 1), "c": (0, 1)}, "bounds names 'c'"),
        ({"secret": (0, 1), "b": (0, 1, 2)}, "bounds of column 'b' must be two numbers"),
    ],
    ids=str,
)
def test_bounds_that_are_refused_say_how_to_write_them(bounds, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        Schema.of_bounds(bounds, n_features=2, names=["secret", "b"])
    assert "secret" not in str(caught.value)


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
            "column 'a': both bounds must be finite",
        ),
        (column(name="a", kind="numeric", bounds=[0, 10**400]), "column 'a': both bounds must be finite"),
        (column(name="a", kind=10**5000), "column 'a': the kind must be text"),
        (column(name="a", kind="x" * 10**6), "column 'a': unknown kind"),
        (column(name="a\ud800", kind="ignored"), "the name of a column must be a text"),
        (column(name="a", kind="categorical", levels=["x", "\ud800"]), "a level is not Unicode text"),
        (column(name="a", kind="categorical", levels=["true", 1]), "column 'a': level '1' is declared twice"),
        ({**column(name="a", kind="ignored"), 10**5000: 1}, "unknown key that is no text"),
        ({**column(name="a", kind="ignored"), "adjacency": [[]]}, "adjacency must be text"),
        ({"column": "secret"}, "has no columns"),
        ({"column": [[[]]]}, "column 1 of the schema has no name"),
        ([], "has no columns"),
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
        (column(name="a", kind="dates"), "column 'a': unknown kind 'dates'"),
        (column(name="a", kind="numeric", bound=[0, 1]), "column 'a' has an unknown key 'bound'"),
        (column(kind="numeric"), "column 1 of the schema has no name"),
        (column(name="other", kind="ignored"), "column 'other' is declared twice"),
        ({"column": [{"name": "a", "kind": "ignored"}]}, "no column is left to learn from"),
        ({}, r"write one \[\[column\]\] for each"),
        ({"columns": []}, "columns must be a table"),
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
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 10_000,
        "a = " + "[" * 10_000 + "]" * 10_000,
        "a = " + "{b = " * 10_000,
        "a = " + "1" * 5000,
        ".".join("a" * 5000) + " = 1",
    ],
    ids=["open", "nested", "tables", "digits", "dotted"],
)
def test_hostile_schema_files_are_one_line(text):
    with pytest.raises(InvalidInput) as caught:
        Schema.from_toml(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    assert caught.value.__context__ is None


def test_integers_of_any_size_are_levels_and_no_bounds():
    text = '[[column]]\nname = "a"\nkind = "{}"\n{} = [0, 1{}]\n'
    assert len(Schema.from_toml(text.format("categorical", "levels", "0" * 400)).feature_names) == 2
    with pytest.raises(InvalidInput, match="column 'a': both bounds must be finite"):
        Schema.from_toml(text.format("numeric", "bounds", "0" * 400))


def test_unreadable_schema_files(tmp_path):
    with pytest.raises(InvalidInput, match="check the path"):
        Schema.load(tmp_path / "none.toml")
    path = tmp_path / "schema.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        Schema.load(path)
    path.write_text("record = \n")
    with pytest.raises(InvalidInput, match=r"not valid TOML .*line 1"):
        Schema.load(path)


def test_a_missing_column_or_target_is_named():
    with pytest.raises(DataError, match="no column 'age'") as caught:
        SCHEMA.read({"race": ["white"], "union": ["no"], "wage": [1], "agee": [1]})
    assert "agee" not in str(caught.value)
    with pytest.raises(InvalidInput, match="no target was chosen"):
        Schema(COLUMNS).target_cells({"wage": [1]})
    assert SCHEMA.has_target and not Schema(COLUMNS).has_target
    with pytest.raises(InvalidInput, match="pass y beside it"):
        SCHEMA.target_cells(np.zeros((2, 3)))


def test_a_hundred_thousand_rows_encode_quickly(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,race,union,wage\n" + "31.5,white,no,1000\n,black,yes,2\n" * 50_000)
    start = time.process_time()
    X, y = SCHEMA.read(path), SCHEMA.target_cells(path)
    assert X.shape == (100_000, 6) and len(y) == 100_000
    assert time.process_time() - start < 5.0
