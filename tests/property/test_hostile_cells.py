"""Whatever one record holds, every other record is read alike: same bits, same errors, same warnings."""

from __future__ import annotations

import datetime
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings

from curvedp.data import Boolean, Categorical, ClassTarget, CountTarget, Date, Numeric, NumericTarget, Schema
from curvedp.data.dates import PARTS
from curvedp.data.frames import declared
from curvedp.errors import DataError, InvalidInput

COLUMNS = ("a", "k", "y")
SCHEMA = Schema(
    (Numeric("a", 0, 10), Categorical("k", ("1", "0.5", "x", "10000000000000000")), Numeric("y", 0, 1)),
    target="y",
)
WRITTEN = Numeric("a", 0, 10, decimal=",", thousands=".", missing_codes=[7, 0.5], missing="indicator")
# The same columns declared as other kinds.
VARIANTS = (
    SCHEMA,
    Schema((Date("a", "2020-01-01", "2021-12-31", parts=PARTS, missing="indicator"), Boolean("k"))),
    Schema((WRITTEN, Categorical("k", ("1", "x"), missing="level"))),
    Schema((WRITTEN, Categorical("k", {"1": ["0.5"], "x": ["y"]}, fold_case=True, other="rest"))),
    Schema(
        (Date("a", "0001-01-01", "9999-12-31", format="%Y"), Boolean("k", ("x", "1"), missing="indicator"))
    ),
)
TARGETS = (
    NumericTarget(-1, 7),
    CountTarget(9),
    ClassTarget(["0", "1", "x"]),
    ClassTarget([1, 10**16]),
    NumericTarget(-1, 7, WRITTEN),
    ClassTarget([False, True], Boolean("y", ["x", "true"])),
)


class Hostile:
    """Answers every question with an error."""

    def __float__(self):
        raise RuntimeError("secret")

    __str__ = __repr__ = __eq__ = __hash__ = __index__ = __bool__ = __len__ = __float__


class Shouting(float):
    """A number that warns, then fails."""

    def __float__(self):
        warnings.warn("secret", stacklevel=1)
        raise RuntimeError("secret")

    __str__ = __repr__ = __float__


Pool = tuple[
    Any, ...
]  # hypothesis draws positions in it: it prints what it draws, which not every cell survives

INTEGERS: Pool = (0, 1, 2, -5, 7, 2**53 + 1, 10**16, 2**62)
FLOATS: Pool = (0.0, -0.0, 0.5, 1.0, 1e16, 1e300, 5e-324, math.inf, -math.inf, math.nan, 1.7e308)
TEXTS: Pool = ("1", "01", " 0.5", "x", "X", "true", "", "nan", "1e400", "1_0", "1,5", "10000000000000000")
TEXTS = (*TEXTS, "2020-02-29", "2020", "1.234,5", "2020-02-30T25")
TRUTHS: Pool = (True, False)
PLAIN = INTEGERS + FLOATS + TEXTS + TRUTHS
ANY: Pool = (
    *PLAIN,
    *(
        None,
        pd.NA,
        pd.NaT,
        Decimal("sNaN"),
        Decimal("0.5"),
        Decimal("1e9999"),
        b"1",
        b"\xff",
        "\ud800",
        "x\0",
    ),
    *(10**400, -(10**5000), "1" * 5000, "x" * 10**5, 1 + 2j, np.complex128(1 + 2j), np.longdouble("1e4000")),
    *([1], {"a": 1}, np.array([1.0]), np.array(1.0), np.array([]), datetime.date(2020, 1, 1), Hostile()),
    *(Shouting(1.0), np.datetime64("2020"), np.timedelta64(1, "D"), np.str_("1"), np.float32(0.5)),
    *(pd.Timestamp("2020-01-01"), pd.Interval(0, 1), float, Exception("secret")),
    *(pd.Timestamp("2020-01-01", tz="Asia/Tokyo"), np.datetime64("NaT"), datetime.datetime.max, 20200229),
)
INFERRED = (*PLAIN, None, pd.NA, 10**400, b"1")  # what pandas chooses a type for


def objects(cells: list[Any]) -> np.ndarray:
    column = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        column[i] = cell
    return column


def matrix(cells: dict[str, list[Any]]) -> np.ndarray:
    return np.column_stack([objects(cells[name]) for name in COLUMNS[:2]])


def frame(dtype: Any) -> Callable[[dict[str, list[Any]]], Any]:
    return lambda cells: pd.DataFrame(
        {name: pd.Series(objects(column), dtype=dtype) for name, column in cells.items()}
    )


def csv_file(cells: dict[str, list[Any]]) -> str:
    folder = tempfile.mkdtemp(dir=CSV_FOLDER[0])
    lines = [",".join(map(str, row)) for row in zip(*cells.values(), strict=True)]
    path = Path(folder, "data.csv")
    path.write_bytes("\n".join([",".join(cells), *lines]).encode("utf-8", "replace"))
    return str(path)


CSV_FOLDER: list[str] = []
CSV_CELLS: Pool = (
    *(
        "1",
        " 0.5",
        "x",
        "",
        "nan",
        "-inf",
        '"',
        '"1',
        'x"y',
        "1,2,3",
        "\0",
        "é",
        "1" * 5000,
        "\x85",
        "\u2028",
    ),
    *('"' + "x" * 200_000, "'", "\ufffd", "=1"),
)


@dataclass(frozen=True)
class Container:
    """A way to hold a table: what others hold in it, what one record may, and how it is made of cells."""

    make: Callable[[dict[str, list[Any]]], Any]
    plain: Pool
    odd: Pool
    target: Callable[[dict[str, list[Any]]], Any] | None = None  # of the cells; None: taken from the table


def positional(make: Callable[[dict[str, list[Any]]], Any], plain: Any, odd: Any, column: Any) -> Container:
    return Container(make, plain, odd, lambda cells: column(cells["y"]))


def numeric(dtype: Any) -> Callable[[dict[str, list[Any]]], Any]:
    return lambda cells: np.column_stack([np.array(cells[name], dtype=dtype) for name in COLUMNS[:2]])


def arrow(kind: Any) -> Callable[[dict[str, list[Any]]], Any]:
    return lambda cells: pa.table(
        {name: pa.array(column, kind, from_pandas=False) for name, column in cells.items()}
    )


def typed(kind: Any) -> Callable[[dict[str, list[Any]]], Any]:
    return lambda cells: pl.DataFrame(cells, schema=dict.fromkeys(cells, kind))


def inferred(columns):
    """A frame as pandas makes it; some releases of it refuse numbers beyond the doubles themselves."""
    try:
        return pd.DataFrame(columns)
    except OverflowError:
        reject()


def categories(columns):
    try:
        return frame(object)(columns).astype("category")
    except OverflowError:
        reject()


WHOLE, REAL, WORDS, MAYBE = ((*pool, None) for pool in (INTEGERS, FLOATS, TEXTS, TRUTHS))
TENTHS = (Decimal("0.1"), Decimal("0.5"))

CONTAINERS = {
    "lists of rows": positional(lambda c: list(zip(c["a"], c["k"], strict=True)), PLAIN, ANY, list),
    "object array": positional(matrix, PLAIN, ANY, objects),
    "float array": positional(numeric(float), FLOATS, FLOATS, np.array),
    "integer array": positional(numeric(np.int64), INTEGERS, INTEGERS, np.array),
    "text array": positional(numeric(str), TEXTS, TEXTS, np.array),
    "mapping": Container(dict, PLAIN, ANY),
    "mapping of arrays": Container(lambda c: {k: objects(v) for k, v in c.items()}, PLAIN, ANY),
    "pandas objects": Container(frame(object), PLAIN, ANY),
    "pandas inferred": Container(inferred, INTEGERS + FLOATS, (*INFERRED, Hostile())),
    "pandas inferred truths": Container(inferred, TRUTHS, (*INFERRED, Hostile())),
    "pandas inferred texts": Container(inferred, TEXTS, (*INFERRED, Hostile())),
    "pandas Int64": Container(frame("Int64"), WHOLE, WHOLE),
    "pandas Float64": Container(frame("Float64"), REAL, REAL),
    "pandas boolean": Container(frame("boolean"), MAYBE, MAYBE),
    "pandas string": Container(frame("string"), WORDS, WORDS),
    "pandas category": Container(categories, INTEGERS, INFERRED),
    "pandas arrow integers": Container(frame("int64[pyarrow]"), WHOLE, WHOLE),
    "pandas arrow floats": Container(frame("double[pyarrow]"), REAL, REAL),
    "pandas arrow texts": Container(frame("string[pyarrow]"), WORDS, WORDS),
    "pyarrow integers": Container(arrow(pa.int64()), WHOLE, WHOLE),
    "pyarrow inferred": Container(arrow(None), (1, 2, 7), WHOLE),
    "pyarrow decimals": Container(arrow(None), TENTHS, (None, Decimal("7.123456789"), Decimal(10) ** 20)),
    "polars integers": Container(typed(pl.Int64), WHOLE, WHOLE),
    "polars floats": Container(typed(pl.Float64), REAL, REAL),
    "polars texts": Container(typed(pl.String), WORDS, WORDS),
    "CSV file": Container(csv_file, (*INTEGERS, *FLOATS, "1", "x", "0.5"), CSV_CELLS),
}


def observe(container: Container, cells: dict[str, list[Any]]) -> tuple[list[np.ndarray] | str, list[str]]:
    """(encodings of the features and of every target, or the error; warnings)."""
    table = container.make(cells)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found: Any = [np.asarray(schema.read(table), dtype=np.float64) for schema in VARIANTS]
            for target in TARGETS:
                labels = container.target(cells) if container.target else SCHEMA.target_cells(table)
                found.append(target.encode(labels))
        except Exception as error:
            found = f"{type(error).__name__}: {error} {error.__context__}"
    return found, [str(warning.message) for warning in caught]


def check_neighbours(container: Container, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 5))
    plain, odd = (st.integers(0, len(pool) - 1) for pool in (container.plain, container.odd))
    drawn = {name: data.draw(st.lists(plain, min_size=n, max_size=n)) for name in COLUMNS}
    cells = {name: [container.plain[j] for j in positions] for name, positions in drawn.items()}
    i = data.draw(st.integers(0, n - 1))
    other = {name: [*column] for name, column in cells.items()}
    for name in COLUMNS:
        other[name][i] = container.odd[data.draw(odd)]
    (one, said), (two, said_too) = observe(container, cells), observe(container, other)
    assert said == said_too == []
    assert not isinstance(one, str) and not isinstance(two, str), (one, two)
    for a, b in zip(one, two, strict=True):
        assert len(a) == len(b) == n
        assert np.delete(a, i, axis=0).tobytes() == np.delete(b, i, axis=0).tobytes()


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("examples", [10, pytest.param(300, marks=pytest.mark.full)])
def test_one_record_never_changes_how_another_is_read(kind, examples, tmp_path):
    CSV_FOLDER[:] = [str(tmp_path)]

    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def run(data):
        check_neighbours(CONTAINERS[kind], data)

    run()


@pytest.mark.parametrize(
    "row", [None, [], "abc", b"12", 5, [1] * 9, {"k": "x"}, Hostile(), np.eye(2)], ids=type
)
def test_a_row_that_is_no_row_changes_itself_only(row):
    rows = [[1, "x"], [7, 0.5], [2.5, 1]]
    before, after = SCHEMA.read(rows), SCHEMA.read([rows[0], row, rows[2]])
    assert after.shape == before.shape and np.array_equal(after[[0, 2]], before[[0, 2]])


def test_the_comparison_notices_a_column_that_is_read_as_a_whole():
    """What version 0.1 did with labels: numpy's type for all of them, then its text."""
    as_texts = [[str(c) for c in np.asarray(column).tolist()] for column in ([0, 1], [0, math.nan])]
    assert as_texts[0][0] != as_texts[1][0]
    target = ClassTarget(["0", "1"])
    assert (
        target.encode([0, 1])[0] == target.encode([0, math.nan])[0] == target.encode(as_texts[1])[0] == -1.0
    )


@pytest.mark.parametrize(
    "odd", [None, "secret", 10**400, Decimal("sNaN"), b"\xff", Hostile()], ids=lambda c: type(c).__name__
)
def test_partitions_are_read_as_tables_in_memory_are(odd):
    cells = {"a": [1, 2.5, odd, "3"], "k": ["1", odd, "x", 0.5], "y": [1, odd, "x", 0]}
    whole = frame(object)(cells)
    # Dask hashes what it is given: hostile cells are made in the partitions, and kept as they are.
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_map(lambda rows: whole.iloc[rows], [[0, 1], [], [2, 3]], meta=whole.iloc[:0])
    for schema in VARIANTS:
        np.testing.assert_array_equal(schema.read(lazy).compute().to_numpy(), schema.read(whole))
    for target in TARGETS:
        expected = target.encode(SCHEMA.target_cells(whole))
        np.testing.assert_array_equal(target.encode(SCHEMA.target_cells(lazy)).compute().to_numpy(), expected)


def test_what_a_lazy_table_declares_is_known_without_computing_it():
    def fail(*_):
        raise RuntimeError("computed")

    frame_like = dd.from_map(fail, [0, 1], meta=pd.DataFrame({"a": [0.5], "k": ["x"], "y": [1]}).iloc[:0])
    array = da.from_delayed(dask.delayed(fail)(), (3, 2), dtype=object)
    assert declared(frame_like) == (("a", "k", "y"), 3) and declared(array) == (None, 2)
    for target in TARGETS[:2]:
        target.encode(SCHEMA.target_cells(frame_like))
        target.encode(array[:, 0])
    SCHEMA.read(frame_like)
    SCHEMA.read(array)
    with pytest.raises(InvalidInput, match="must be a list"):
        SCHEMA.read({"a": frame_like["a"], "k": ["x"]})
    with pytest.raises(DataError, match="two dimensions"):
        declared(array[:, 0])
