"""One table of every kind of column, through every backend: the same encoded matrix to the last bit."""

from __future__ import annotations

import datetime
import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvedp.analyses.explore.check import cells_of
from curvedp.data import Boolean, Categorical, Date, FileFormat, Numeric, Schema
from curvedp.data.dates import PARTS

DAYS = [datetime.date(2019, 12, 31), datetime.date(2020, 2, 29), None, datetime.date(2021, 7, 4), None]
NUMBERS = [1.5, -9.0, math.nan, 12.25, 3.0]
TRUTHS = [True, False, None, True, False]
LEVELS = ["a", "b", None, "c", "a"]
SCHEMA = Schema(
    [
        Date("d", "2020-01-01", "2021-12-31", parts=PARTS, missing="indicator"),
        Numeric("n", 0, 10, missing_codes=[-9], missing="indicator"),
        Boolean("b", missing="indicator"),
        Categorical("c", ["a", "b"], missing="level"),
        Boolean("y"),
    ],
    target="y",
)
FEATURES = ("d", "n", "b", "c")
EXPECTED = SCHEMA.read({"d": DAYS, "n": NUMBERS, "b": TRUTHS, "c": LEVELS})
TARGET = SCHEMA.declared_target.encode(TRUTHS)


def texts(cells, empty=""):
    return [empty if c is None or c != c else str(c) for c in cells]


def table(**changed):
    return {"d": DAYS, "n": NUMBERS, "b": TRUTHS, "c": LEVELS, "y": TRUTHS} | changed


def pandas(dates, **dtypes):
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in table().items()})
    frame["d"] = dates
    return frame.astype(dtypes)


STAMPS = pd.Series([pd.NaT if d is None else pd.Timestamp(d) for d in DAYS])
ARROW = pa.table(table(n=pa.array(NUMBERS, from_pandas=True)))
BACKENDS = {
    "mapping": table(),
    "mapping of text": table(**{name: texts(cells) for name, cells in table().items()}),
    "mapping of bytes": table(d=[t.encode() for t in texts(DAYS)], n=[t.encode() for t in texts(NUMBERS)]),
    "mapping of arrays": table(d=STAMPS.to_numpy(), n=np.array(NUMBERS)),
    "masked dates": table(d=np.ma.array(STAMPS.fillna(STAMPS[0]).to_numpy(), mask=[d is None for d in DAYS])),
    "pandas objects": pandas(pd.Series(DAYS, dtype=object)),
    "pandas timestamps": pandas(STAMPS, n=float),
    "pandas seconds": pandas(STAMPS.astype("datetime64[s]")),
    "pandas time zone": pandas(STAMPS.dt.tz_localize("Asia/Tokyo") + pd.Timedelta("30min")),
    "pandas nullable": pandas(STAMPS, n="Float64", b="boolean", c="string", y="boolean"),
    "pandas arrow": pandas(
        pd.Series(DAYS, dtype=pd.ArrowDtype(pa.date32())), b="bool[pyarrow]", c="string[pyarrow]"
    ),
    "pandas categories": pandas(pd.Series(texts(DAYS), dtype="category"), c="category"),
    "polars": pl.DataFrame(table()),
    "polars datetimes": pl.DataFrame(table()).with_columns(pl.col("d").cast(pl.Datetime("ns"))),
    "polars time zone": pl.DataFrame(table()).with_columns(
        pl.col("d").cast(pl.Datetime("ms")).dt.replace_time_zone("Asia/Tokyo")
    ),
    "polars text": pl.DataFrame({name: texts(cells) for name, cells in table().items()}),
    "pyarrow": ARROW,
    "pyarrow date64": ARROW.set_column(0, "d", pa.array(DAYS, pa.date64())),
    "pyarrow timestamps": ARROW.set_column(0, "d", pa.array(DAYS, pa.date32()).cast(pa.timestamp("us"))),
    "pyarrow dictionaries": ARROW.set_column(0, "d", pa.array(texts(DAYS, None)).dictionary_encode()),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same_matrix(backend):
    np.testing.assert_array_equal(SCHEMA.read(BACKENDS[backend]), EXPECTED)
    coded = SCHEMA.declared_target.encode(SCHEMA.target_cells(BACKENDS[backend]))
    np.testing.assert_array_equal(coded, TARGET)


def test_rows_by_position_are_read_alike():
    rows = list(zip(*(table()[name] for name in FEATURES), strict=True))
    positional = SCHEMA.with_target(None)
    own = Schema(SCHEMA.columns[:4])
    np.testing.assert_array_equal(own.read(rows), EXPECTED)
    np.testing.assert_array_equal(own.read(np.array(rows, dtype=object)), EXPECTED)
    assert positional.feature_names[-1] == "y"


@pytest.mark.parametrize("dtype", [float, int, np.float32])
def test_numbers_by_position_are_never_passed_on_where_a_code_is_declared(dtype):
    X = np.array([[1, -9], [2, 3]], dtype=dtype)
    schema = Schema([Numeric("a", 0, 1), Numeric("n", 0, 10, missing_codes=[-9])])
    np.testing.assert_array_equal(schema.read(X), [[1, math.nan], [2, 3]])
    whole = Schema([Numeric("d", 0, 1), Boolean("b")])
    np.testing.assert_array_equal(whole.read(np.array([[0.5, 1], [7, 2]])), [[0.5, 1], [7, math.nan]])


def test_a_csv_file_is_read_alike(tmp_path):
    for file in (FileFormat(), FileFormat("latin-1", ";", ",")):
        sign = file.decimal
        lines = zip(*(texts(cells) for cells in table(n=[*map(str, NUMBERS)]).values()), strict=True)
        rows = [(d, n.replace(".", sign), b, c, y) for d, n, b, c, y in lines]
        path = tmp_path / "data.csv"
        content = "\n".join(file.delimiter.join(row) for row in [("d", "n", "b", "c", "y"), *rows])
        path.write_text(content + "\n", encoding=file.encoding)
        schema = SCHEMA.with_file(encoding=file.encoding, delimiter=file.delimiter, decimal=sign)
        coded = schema.declared_target.encode(schema.target_cells(path))
        np.testing.assert_array_equal(coded, TARGET)
        np.testing.assert_array_equal(schema.read(path), EXPECTED)


@pytest.mark.parametrize(
    "backend", ["pandas timestamps", "pandas objects", "pandas time zone", "pandas arrow"]
)
def test_partitions_are_read_alike(backend):
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(BACKENDS[backend], npartitions=2)
    np.testing.assert_array_equal(SCHEMA.read(lazy).compute().to_numpy(), EXPECTED)
    coded = SCHEMA.declared_target.encode(SCHEMA.target_cells(lazy))
    np.testing.assert_array_equal(coded.compute().to_numpy(), TARGET)


@pytest.mark.parametrize(
    "backend", ["pyarrow", "pyarrow date64", "pyarrow timestamps", "pyarrow dictionaries"]
)
def test_parquet_files_are_read_alike(backend, tmp_path):
    pq.write_table(BACKENDS[backend], tmp_path / "part.parquet", row_group_size=2)
    for source in (tmp_path, SCHEMA.source(tmp_path, engine="dask")):
        np.testing.assert_array_equal(SCHEMA.read(source), EXPECTED)
        coded = SCHEMA.declared_target.encode(SCHEMA.target_cells(source))
        np.testing.assert_array_equal(coded, TARGET)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same_counts_of_what_is_wrong(backend):
    """One date below the bounds, two missing; a number above, a code, one missing; and so on."""
    found = cells_of(SCHEMA, BACKENDS[backend]).counts()
    d, n, levels, rows = [1, 0, 2, 0, 0], [0, 1, 2, 0, 0], [1, 0, 1, 1, 1, 0, 2, 2], [5]
    assert found.tolist() == [*d, *n, *levels, *rows]
