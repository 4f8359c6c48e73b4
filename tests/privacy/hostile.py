"""Cells that a hostile record may hold, and tables made of them in every kind of container."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st
from scipy import sparse


class Odd:
    """An object whose every conversion fails with a secret in its text."""

    def __float__(self) -> float:
        raise RuntimeError("token-of-odd")

    def __str__(self) -> str:
        raise RuntimeError("token-of-odd")

    __repr__ = __str__


numbers = st.sampled_from(
    [0.0, 0.3, -0.7, 1.0, np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 1e153, 5e-324, -0.0, 2.0**53 + 2]
) | st.floats(-2, 2)
integers = st.sampled_from([0, 1, 2, -1, 2**31, 2**53 + 1, 2**62, -(2**63)])
texts = st.sampled_from(
    ["", "0", "1", "1.0", "0.25", "n/a", "secret-diagnosis", "1,5", "nan", "-inf", "１２", "yes", "no"]
)
objects = (
    st.sampled_from(
        [
            None,
            True,
            False,
            10**400,
            -(10**400),
            b"12",
            b"\xff",
            1 + 2j,
            decimal.Decimal("sNaN"),
            pd.NA,
            pd.NaT,
        ]
    )
    | st.sampled_from([pd.NA, pd.NaT])
    | st.builds(Odd)
    | st.just(np.array([1.0, 2.0]))
    | numbers
    | integers
    | texts
)
STRATEGY = {"float": numbers, "int": integers, "text": texts, "object": objects}

# Containers of columns of one kind each; the declared types of both neighbours are the same.
Column = list[Any]


def object_array(column: Column) -> np.ndarray:
    out = np.empty(len(column), dtype=object)
    out[:] = column
    return out


def pandas_frame(dtype: Any) -> Callable[[dict[str, Column]], pd.DataFrame]:
    return lambda c: pd.DataFrame({name: pd.Series(cells, dtype=dtype) for name, cells in c.items()})


def polars_frame(dtype: Any) -> Callable[[dict[str, Column]], pl.DataFrame]:
    return lambda c: pl.DataFrame({name: pl.Series(cells, dtype=dtype) for name, cells in c.items()})


def array(dtype: Any) -> Callable[[dict[str, Column]], np.ndarray]:
    return lambda c: np.column_stack([np.array(cells, dtype=dtype) for cells in c.values()])


CONTAINERS: dict[str, tuple[str, Callable[[dict[str, Column]], Any]]] = {
    "lists": ("object", lambda c: [list(row) for row in zip(*c.values(), strict=True)]),
    "float array": ("float", array(np.float64)),
    "int array": ("int", array(np.int64)),
    "object array": ("object", lambda c: np.column_stack([object_array(v)[:, None] for v in c.values()])),
    "text array": ("text", array("<U32")),
    "pandas object": ("object", pandas_frame(object)),
    "pandas float": ("float", pandas_frame(float)),
    "pandas Int64": ("int", pandas_frame("Int64")),
    "pandas arrow": ("int", pandas_frame("int64[pyarrow]")),
    "polars float": ("float", polars_frame(pl.Float64)),
    "polars text": ("text", polars_frame(pl.String)),
    "arrow int": ("int", lambda c: pa.table({k: pa.array(v, pa.int64()) for k, v in c.items()})),
    "mapping": ("object", dict),
    "sparse matrix": ("float", lambda c: sparse.csr_array(array(np.float64)(c))),
    "dask array": ("float", lambda c: da.from_array(array(np.float64)(c), chunks=(4, 3))),
}


# Cells and containers of the kinds that are neither plain numbers nor levels: dates, truth values, numbers as
# people write them. A day beyond what a type can hold is missing in it.
days = st.sampled_from(
    [None, datetime.date(2020, 2, 29), datetime.date(2021, 7, 4), datetime.date.min, datetime.date.max]
)
written = st.sampled_from(
    ["2020-02-29", "29.02.2020", "2020-02-30", "20200229", "0000-00-00", "2020-02-29T25:61", "1.234,5", "1,5"]
    + ["-9", "ja", "NEIN", "wahr", "\ud800", "9" * 5000, "%Y-%m-%d", "2020-02-29\0", "secret-diagnosis"]
)


class OddDay(datetime.datetime):
    """A date whose every question fails with a secret in its text."""

    @property
    def year(self) -> int:  # type: ignore[override]
        raise RuntimeError("token-of-odd")

    month = day = year

    def toordinal(self) -> int:
        raise RuntimeError("token-of-odd")

    def __str__(self) -> str:
        raise RuntimeError("token-of-odd")

    __repr__ = isoformat = strftime = __str__  # type: ignore[assignment]


STRATEGY |= {
    "day": days,
    "kind": objects
    | days
    | written
    | st.sampled_from(
        [pd.Timestamp("2020-02-29", tz="Asia/Tokyo"), np.datetime64("NaT"), np.timedelta64(1, "D")]
    )
    | st.builds(lambda: OddDay(2020, 2, 29)),
    "written": written | texts,
}


def stamps(unit: str) -> Callable[[dict[str, Column]], pd.DataFrame]:
    """Dates as pandas holds them, in a unit that reaches all of them."""
    return lambda c: pd.DataFrame({k: pd.Series(np.array(v, f"datetime64[{unit}]")) for k, v in c.items()})


KIND_CONTAINERS: dict[str, tuple[str, Callable[[dict[str, Column]], Any]]] = {
    "mapping": ("kind", dict),
    "lists": ("kind", CONTAINERS["lists"][1]),
    "object array": ("kind", CONTAINERS["object array"][1]),
    "pandas object": ("kind", CONTAINERS["pandas object"][1]),
    "text": ("written", dict),
    "pandas dates": ("day", stamps("s")),
    "polars dates": ("day", polars_frame(pl.Date)),
    "arrow dates": ("day", lambda c: pa.table({k: pa.array(v, pa.date32()) for k, v in c.items()})),
    "arrow stamps": (
        "day",
        lambda c: pa.table({k: pa.array(v, pa.date32()).cast(pa.timestamp("s")) for k, v in c.items()}),
    ),
}
