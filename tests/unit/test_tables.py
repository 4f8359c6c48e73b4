"""Cells, data frames, lists and CSV files under the public rule."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import math
import tempfile
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from curvedp.data import FileFormat, delimited
from curvedp.data.cells import Cells, level, number
from curvedp.data.delimited import csv_lines, csv_names, csv_rows, csv_tables, write_csv_safely
from curvedp.data.frames import as_cells, declared, is_table, rows_table, table_of
from curvedp.errors import DataError, InvalidInput


class Hostile:
    """A cell that answers every question with an error."""

    def __float__(self):
        raise RuntimeError("secret")

    __str__ = __repr__ = __eq__ = __hash__ = __index__ = __bool__ = __float__


class Liar(float):
    def __float__(self):
        raise RuntimeError("secret")


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


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
        (np.False_, 0.0),
        (7, 7.0),
        (np.int8(-3), -3.0),
        (Decimal("1.25"), 1.25),
        (Fraction(1, 4), 0.25),
        (Fraction(-(10**400)), -math.inf),
        (10**400, math.inf),
        (-(10**5000), -math.inf),
        ("1" * 5000, math.inf),
        (2**53 + 1, 2.0**53),
        (b"12", 12.0),
        (np.longdouble("1e4000"), math.inf),
        (Liar(3.0), 3.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_cells_that_are_numbers(cell, value):
    assert number(cell) == value
    for other in ("x", 1.0, None):
        assert Cells([cell, other], "any").numbers()[0] == value


@pytest.mark.parametrize(
    "cell",
    [
        *("", "n/a", "nan", "1,5", "0x10", b"\xff", None, pd.NA, pd.NaT, math.nan, Decimal("sNaN")),
        *({"a": 1}, [1.0], np.array([1.0]), np.array(1.0), 1 + 2j, np.complex128(1 + 2j), Hostile()),
        *(np.datetime64("2020-01-01"), np.timedelta64(1, "D"), datetime.date(2020, 1, 1)),
    ],
    ids=lambda cell: type(cell).__name__,
)
def test_cells_that_are_missing(cell):
    assert math.isnan(number(cell))
    column = Cells([cell, "2"], "any").numbers()
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
        (b"1", "1"),
        (True, "1"),
        ("TRUE", "1"),
        ("+1.50", "1.5"),
        (1.5, "1.5"),
        ("-0", "0"),
        (-0.0, "0"),
        ("-3.", "-3"),
        ("0E1", "0E1"),
        (np.int64(4), "4"),
        (np.float64(4), "4"),
        (Decimal("4.00"), "4"),
        ("false", "0"),
        (None, ""),
        (pd.NA, ""),
        (pd.NaT, ""),
        (np.datetime64("NaT"), ""),
        (math.nan, ""),
        ("", ""),
        (b"\xff", ""),
        (Hostile(), ""),
        (np.array(["a"]), ""),
        ("NA", "NA"),
        ("a\0", "a"),
        (10**5000, "inf"),
        (datetime.date(2020, 12, 31), "2020-12-31"),
        (pd.Timestamp("2020-12-31"), "2020-12-31"),
        (np.datetime64("2020-12-31T00:00:00.000000000"), "2020-12-31"),
        (pd.Timestamp("2020-12-31 06:00"), "2020-12-31 06:00:00"),
        (pd.Interval(0, 1), "(0, 1]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_cells_that_name_levels(cell, text):
    assert level(cell) == text
    assert level(level(cell)) == level(cell)
    assert Cells([cell, "other"], "any").levels() == [text, "other"]


@pytest.mark.parametrize("value", [10**16, 2**53 + 1, 10**30, -(10**17)])
def test_a_large_integer_names_the_same_level_however_it_is_stored(value):
    stored = [value, float(value), str(value), str(float(value)), np.float64(value), Decimal(value)]
    assert len({level(cell) for cell in stored}) == 1


def test_numbers_in_an_array_name_the_levels_that_they_name_one_by_one():
    values = [1.0, 0.5, 1e16, np.inf, np.nan, -0.0, 7.0]
    keys = {level(text): i for i, text in enumerate(["x", "1", "0.5", "1" + "0" * 16, "inf", "0"])}
    quick = Cells(np.array(values), "numbers").positions(keys)
    assert quick.tolist() == Cells(values, "any").positions(keys).tolist() == [1, 2, 3, 4, -1, 5, -1]


def write(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_csv(path, **options):
    """All cells of a CSV file by column."""
    columns = {}
    for table in csv_tables(path, **options):
        for name in table.columns:
            columns.setdefault(name, []).extend(table.cells(name).values)
    return columns


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
    monkeypatch.setattr(delimited, "CHUNK_ROWS", 4)
    path = write(tmp_path, "a\n" + "".join(f"{i}\n" for i in range(10)))
    assert [len(table.columns["a"]) for table in csv_tables(path)] == [4, 4, 2]
    assert read_csv(path)["a"] == [str(i) for i in range(10)]


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    path = write(tmp_path, "a,,b")
    assert read_csv(path) == {"a": [], "column_2": [], "b": []}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "first line must name the columns"),
        ("\n\n", "first line must name the columns"),
        ("secret,b,secret\n", r"same name \(columns 1 and 3\)"),
        ("secret;b;c\n1;2;3\n", "delimiter=';'"),
        (b"PAR1\x15\x04secret,b", "is a Parquet file"),
        (b"PK\x03\x04secret,b", "not a text file"),
        ("secret,b\n".encode("utf-16"), "not a text file"),
    ],
)
def test_csv_headers_that_cannot_be_used_are_not_shown(tmp_path, content, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        read_csv(write(tmp_path, content))
    assert "secret" not in str(caught.value) and caught.value.__context__ is None


def test_csv_paths_and_delimiters(tmp_path):
    with pytest.raises(InvalidInput, match="check the path"):
        read_csv(tmp_path / "nothing.csv")
    with pytest.raises(InvalidInput, match="check the path"):
        read_csv(tmp_path)
    path = write(tmp_path, "a;b\n1;2\n")
    assert read_csv(path, file=FileFormat(delimiter=";")) == {"a": ["1"], "b": ["2"]}
    with pytest.raises(InvalidInput, match="one character"):
        read_csv(path, file=FileFormat(delimiter=""))


VALUES = {"age": [30, None, 2**53 + 1], "wage": [1.5, 2.5, None], "member": [True, False, None]}
FRAMES = {
    "mapping": VALUES,
    "pandas": pd.DataFrame(VALUES),
    "pandas objects": pd.DataFrame(VALUES, dtype=object),
    "pandas nullable": pd.DataFrame(VALUES).convert_dtypes(),
    "pandas arrow": pd.DataFrame(VALUES).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": pd.DataFrame(VALUES).astype("category"),
    "polars": pl.DataFrame(VALUES),
    "pyarrow": pa.table(VALUES),
    "pyarrow dictionaries": pa.table({**VALUES, "age": pa.array(VALUES["age"]).dictionary_encode()}),
    "pyarrow decimals": pa.table(
        {**VALUES, "wage": pa.array([Decimal("1.5"), Decimal("2.5"), None], pa.decimal128(5, 2))}
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_data_frame_reads_alike(kind):
    table = table_of(FRAMES[kind])
    assert is_table(FRAMES[kind]) and declared(FRAMES[kind]) == (("age", "wage", "member"), 3)
    found = [table.cells(name).numbers() for name in table.columns]
    expected = np.array([[30, np.nan, 2.0**53], [1.5, 2.5, np.nan], [1, 0, np.nan]])
    np.testing.assert_array_equal(found, expected)
    assert table.cells("member").levels() == ["1", "0", ""]


def test_a_cell_that_python_cannot_hold_is_missing_and_the_others_are_read():
    day = pa.array([10**7, 18_262], pa.int32()).view(pa.date32())
    texts = pa.array([b"\xff", b"a"]).view(pa.string())
    for column, text in ((pa.chunked_array([day]), "2020-01-01"), (pa.chunked_array([texts]), "a")):
        assert as_cells(column).levels() == ["", text]
    assert as_cells(pl.Series([10**7, 18_262]).cast(pl.Date)).levels() == ["", "2020-01-01"]


def test_lists_of_rows_are_cut_and_filled_up_row_by_row():
    rows = [[1, 2], [1], [1, 2, 3], (4, 5), np.array([6, 7]), {"b": 9}, "12", 8, None, Hostile()]
    table = rows_table(rows, ["a", "b"])
    np.testing.assert_array_equal(
        np.transpose([table.cells(name).numbers() for name in "ab"]),
        [[1, 2], [1, np.nan], [1, 2], [4, 5], [6, 7], [np.nan, 9], [12, np.nan], [8, np.nan]]
        + [[np.nan, np.nan]] * 2,
    )
    assert declared(rows) == (None, None) and declared(np.zeros((0, 3))) == (None, 3)


def test_masked_cells_are_missing():
    np.testing.assert_array_equal(as_cells(np.ma.masked_equal([1, 2], 1)).numbers(), [np.nan, 2])
    assert as_cells(np.ma.masked_equal(["a", "b"], "a")).levels() == ["", "b"]


def test_what_is_no_table():
    for other in (np.zeros((2, 2)), [[1, 2]], None, "data.csv"):
        assert not is_table(other)
    with pytest.raises(InvalidInput, match="must be a data frame"):
        table_of(np.zeros((2, 2)))
    with pytest.raises(InvalidInput, match="collect"):
        table_of(pl.LazyFrame({"a": [1]}))
    with pytest.raises(InvalidInput, match="one length"):
        table_of({"a": [1], "b": [1, 2]})
    with pytest.raises(InvalidInput, match="must be a list"):
        table_of({"a": "secret"})
    for doubled in (
        pd.DataFrame([[1, 2]], columns=["secret"] * 2),
        pa.table([[1], [2]], names=["secret"] * 2),
    ):
        with pytest.raises(InvalidInput, match=r"same name \(columns 1 and 2\)") as caught:
            table_of(doubled)
        assert "secret" not in str(caught.value) and caught.value.__context__ is None
    assert tuple(table_of(pd.DataFrame(np.eye(2))).columns) == ("0", "1")
    with pytest.raises(DataError, match="no column 'c'"):
        table_of({"a": [1]}).cells("c")


def test_written_text_is_never_a_formula_and_numbers_stay_numbers():
    written = {
        "=1+1": "'=1+1",
        "+cmd": "'+cmd",
        "-cmd": "'-cmd",
        "@SUM(A1)": "'@SUM(A1)",
        "\tx": "'\tx",
        "a\r\n=b": "a =b",
        " =1": "' =1",
        "-3.2": "-3.2",
        "+4": "+4",
        "-1e-5": "-1e-5",
        "-": "'-",
        "a=b": "a=b",
        -3.2: "-3.2",
        5: "5",
    }
    file = io.StringIO()
    write_csv_safely(file, ["=name", "plain"], [[cell, 1] for cell in written])
    file.seek(0)
    header, *rows = csv.reader(file)
    assert header == ["'=name", "plain"]
    assert [row[0] for row in rows] == list(written.values())


MAGIC = (
    b"PAR1",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"ARROW1",
    b"SQLite format 3\0",
    b"\x28\xb5\x2f\xfd",
    b"\0",
    b"\xff\xfe",
)


@pytest.mark.parametrize("magic", MAGIC)
@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data"])
def test_what_a_first_record_begins_with_decides_nothing(tmp_path, magic, name):
    content = magic + b",2\n3,4\n"
    path = write(tmp_path, gzip.compress(content) if name.endswith(".gz") else content, name)
    file = FileFormat(names=("a", "b"))
    assert read_csv(path, file=file)["b"] == ["2", "4"] and csv_rows(path, file=file) == 2


@pytest.mark.parametrize(("magic", "words"), [(b"\x1f\x8b", "end in .gz"), (b"PAR1", "end in .parquet")])
def test_a_header_that_is_none_says_how_to_name_the_file(tmp_path, magic, words):
    with pytest.raises(InvalidInput, match=words):
        read_csv(write(tmp_path, magic + b"\0rest"))


def test_a_file_is_what_its_name_says(tmp_path):
    for name in ("data.parquet", "data.pq", "DATA.PARQUET"):
        with pytest.raises(InvalidInput, match="Parquet file by its name"):
            read_csv(write(tmp_path, b"a,b\n1,2\n", name))
    plain = write(tmp_path, b"\x1f\x8b,2\n", "data.gz")
    with pytest.raises(DataError, match="damaged"):
        read_csv(plain, file=FileFormat(names=("a", "b")))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_empty_line_of_a_single_column_is_a_missing_cell(tmp_path, end):
    path = write(tmp_path, end.join(["a", "1", "", "2", "", ""]))
    assert read_csv(path) == {"a": ["1", "", "2", ""]} and csv_rows(path) == 4
    bare = FileFormat(names=("a",))
    path = write(tmp_path, end.join(["", "1", "", "2"]))
    assert read_csv(path, file=bare) == {"a": ["", "1", "", "2"]} and csv_rows(path, file=bare) == 4
    wide = write(tmp_path, end.join(["a,b", "1,2", "", "3", ""]))
    assert read_csv(wide) == {"a": ["1", "3"], "b": ["2", ""]} and csv_rows(wide) == 2


@given(
    st.binary(max_size=60),
    st.sampled_from(["utf-8", "latin-1", "cp1252"]),
    st.sampled_from([(), ("a",), ("a", "b")]),
)
def test_lines_read_one_by_one_are_those_of_the_whole_text(content, encoding, names):
    """Line by line, bytes are decoded as Python decodes the file: no line break within a character."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        path.write_bytes(b"a,b\n" + content)
        file = FileFormat(encoding, names=names)
        found = [line.decode(file.encoding, "replace") for line in csv_lines(path, file=file)][1:]
        with open(path, encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors="replace") as text:
            whole = [line if line.endswith("\n") else f"{line}\n" for line in text]
    whole = whole if names else whole[1:]
    assert found == (whole if len(names) == 1 else [line for line in whole if line != "\n"])
