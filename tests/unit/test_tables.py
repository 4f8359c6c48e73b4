"""Cells, CSV files and data frames under the public rule."""

from __future__ import annotations

import csv
import io
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from curvedp import tables
from curvedp.errors import DataError, InvalidInput
from curvedp.tables import (
    columns_of,
    csv_chunks,
    csv_names,
    is_table,
    level,
    levels,
    number,
    numbers,
    read_csv,
    read_table,
    write_csv_safely,
)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("3.5", 3.5),
        (" -2e3 ", -2000.0),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1_000", 1000.0),
        ("True", 1.0),
        ("false", 0.0),
        (True, 1.0),
        (7, 7.0),
        (np.int8(-3), -3.0),
        (Decimal("1.25"), 1.25),
        (10**400, math.inf),
        (-(10**400), -math.inf),
    ],
)
def test_cells_that_are_numbers(cell, value):
    assert number(cell) == value
    assert numbers([cell, "x"])[0] == value


@pytest.mark.parametrize("cell", ["", "n/a", "nan", "1,5", "0x10", None, pd.NA, math.nan, {"a": 1}, 1 + 2j])
def test_cells_that_are_missing(cell):
    assert math.isnan(number(cell))
    column = numbers([cell, "2"])
    assert math.isnan(column[0]) and column[1] == 2.0


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (" male ", "male"),
        ("1", "1"),
        (1, "1"),
        (1.0, "1"),
        ("1.0", "1"),
        ("01", "1"),
        ("+1.50", "1.5"),
        (1.5, "1.5"),
        ("-0", "0"),
        ("-3.", "-3"),
        ("0E1", "0E1"),
        (np.int64(4), "4"),
        (np.float64(4), "4"),
        (True, "true"),
        ("TRUE", "true"),
        (None, ""),
        (math.nan, ""),
        ("", ""),
        ("NA", "NA"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_cells_that_name_levels(cell, text):
    assert level(cell) == text
    assert levels([cell]) == [text]
    assert levels([cell, "other"]) == [text, "other"]


def write(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_cells_are_text(tmp_path):
    path = write(tmp_path, 'age,"who, exactly",wage\n 30,"a ""b""",1e3\n040,c,\n')
    assert csv_names(path) == ("age", "who, exactly", "wage")
    assert read_csv(path) == {"age": [" 30", "040"], "who, exactly": ['a "b"', "c"], "wage": ["1e3", ""]}


def test_csv_lines_of_any_length_are_records(tmp_path):
    path = write(tmp_path, "a,b\r\n1\r\n2,3,4\r\n\r\n,\r\n")
    assert read_csv(path) == {"a": ["1", "2", ""], "b": ["", "3", ""]}


def test_an_open_quote_ends_with_its_line(tmp_path):
    """One malformed record leaves every other record as it is."""
    for bad in ('"5,6', '"', '5,"6', '5,6"7', "\x00", '"' + "x" * 200_000 + '"', "\x85\u2028"):
        path = write(tmp_path, f"a,b\n1,2\n{bad}\n3,4\n")
        table = read_csv(path)
        assert [(a, b) for a, b in zip(table["a"], table["b"], strict=True)][::2] == [("1", "2"), ("3", "4")]
        assert len(table["a"]) == 3


def test_csv_survives_bytes_that_are_not_utf8_and_a_byte_order_mark(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbfa,b\n\xff\xfe,2\n1,2\n")
    assert csv_names(path) == ("a", "b")
    assert read_csv(path)["b"] == ["2", "2"]


def test_csv_chunks_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 4)
    path = write(tmp_path, "a\n" + "".join(f"{i}\n" for i in range(10)))
    assert [len(chunk["a"]) for chunk in csv_chunks(path)] == [4, 4, 2]
    assert read_csv(path)["a"] == [str(i) for i in range(10)]


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    path = write(tmp_path, "a,,b")
    assert read_csv(path) == {"a": [], "column_2": [], "b": []}
    assert list(csv_chunks(path)) == [{"a": (), "column_2": (), "b": ()}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "first line must name the columns"),
        ("\n\n", "first line must name the columns"),
        ("a,b,a\n", "names 'a' twice"),
        ("a;b;c\n1;2;3\n", "delimiter=';'"),
    ],
)
def test_csv_headers_that_cannot_be_used(tmp_path, content, words):
    with pytest.raises(InvalidInput, match=words):
        read_csv(write(tmp_path, content))


def test_csv_paths_and_delimiters(tmp_path):
    with pytest.raises(InvalidInput, match="check the path"):
        read_csv(tmp_path / "nothing.csv")
    with pytest.raises(InvalidInput, match="check the path"):
        read_csv(tmp_path)
    path = write(tmp_path, "a;b\n1;2\n")
    assert read_csv(path, delimiter=";") == {"a": ["1"], "b": ["2"]}
    with pytest.raises(InvalidInput, match="one character"):
        read_csv(path, delimiter="")


VALUES = {"age": [30, None, 50], "wage": [1.5, 2.5, None], "member": [True, False, None]}
FRAMES = {
    "pandas": pd.DataFrame(VALUES),
    "pandas nullable": pd.DataFrame(VALUES).convert_dtypes(),
    "pandas arrow": pd.DataFrame(VALUES).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame(VALUES),
    "pyarrow": pa.table(VALUES),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_data_frame_reads_alike(kind):
    frame = FRAMES[kind]
    assert is_table(frame)
    table = read_table(frame)
    assert table.names == ("age", "wage", "member")
    expected = np.array([[30, 1.5, 1], [np.nan, 2.5, 0], [50, np.nan, np.nan]])
    np.testing.assert_array_equal(table.values, expected)
    columns = columns_of(frame)
    assert levels(columns["age"]) == ["30", "", "50"]
    assert levels(columns["member"]) == ["true", "false", ""]


def test_objects_are_read_cell_by_cell():
    frame = pd.DataFrame({"a": pd.Series([1, "2", "x", None], dtype=object)})
    np.testing.assert_array_equal(read_table(frame).values[:, 0], [1, 2, np.nan, np.nan])


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"ok": [1.0], "sex": ["f"]}),
        pa.table({"ok": [1.0], "sex": ["f"]}),
        pd.DataFrame({"ok": [1.0], "sex": pd.Series(["f"], dtype="string")}),
        pd.DataFrame({"ok": [1.0], "sex": pd.Series(["f"], dtype="category")}),
        pd.DataFrame({"ok": [1.0], "sex": pd.to_datetime(["2020-01-01"])}),
    ],
)
def test_a_text_column_is_named_and_no_value_is(frame):
    with pytest.raises(DataError, match="column 'sex' does not hold numbers") as caught:
        read_table(frame)
    assert "2020" not in str(caught.value)


def test_what_is_no_table():
    for other in (np.zeros((2, 2)), [[1, 2]], {"a": [1]}, None, "data.csv"):
        assert not is_table(other)
    with pytest.raises(InvalidInput, match="must be a data frame"):
        columns_of(np.zeros((2, 2)))
    with pytest.raises(InvalidInput, match="collect"):
        read_table(pl.LazyFrame({"a": [1]}))
    assert is_table(pl.LazyFrame({"a": [1]}))
    with pytest.raises(InvalidInput, match="one length"):
        columns_of({"a": [1], "b": [1, 2]})
    doubled = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InvalidInput, match="same name"):
        read_table(doubled)
    numbered = pd.DataFrame(np.eye(2))
    assert read_table(numbered).names == ("0", "1")


def test_written_text_is_never_a_formula_and_numbers_stay_numbers():
    cells = [
        "=1+1",
        "+cmd",
        "-cmd",
        "@SUM(A1)",
        "\tx",
        "a\r\n=b",
        " =1",
        "-3.2",
        "+4",
        "-1e-5",
        "-",
        "a=b",
        -3.2,
        5,
    ]
    file = io.StringIO()
    write_csv_safely(file, ["=name", "plain"], [[cell, 1] for cell in cells])
    file.seek(0)
    header, *rows = csv.reader(file)
    assert header == ["'=name", "plain"]
    assert [row[0] for row in rows] == [
        "'=1+1",
        "'+cmd",
        "'-cmd",
        "'@SUM(A1)",
        "'\tx",
        "a =b",
        "' =1",
        "-3.2",
        "+4",
        "-1e-5",
        "'-",
        "a=b",
        "-3.2",
        "5",
    ]
