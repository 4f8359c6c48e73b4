"""Dask collections: what they declare, and the same reading of every partition, later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.schema.frames import NOT_TWO_DIMENSIONS, check_distinct, no_column
from curvedp.schema.frames import is_dask as is_dask

Read = Callable[[Any], FloatArray]


def is_lazy_array(X: Any) -> bool:
    import dask.array as da

    return isinstance(X, da.Array)


def lazy_names(X: Any) -> tuple[str, ...] | None:
    """The column names of a Dask data frame; None of a Dask array."""
    if is_lazy_array(X):
        return None
    from dask.dataframe import DataFrame

    if not isinstance(X, DataFrame):
        raise InvalidInput("X must be a Dask array or a Dask data frame")
    names = tuple(map(str, X.columns))
    check_distinct(names)
    return names


def lazy_width(X: Any) -> int:
    """The number of columns of a Dask array."""
    if X.ndim != 2 or np.isnan(X.shape[1]):
        raise DataError(NOT_TWO_DIMENSIONS)
    return int(X.shape[1])


def select(X: Any, names: Sequence[str]) -> Any:
    """Those columns of a Dask data frame, in this order."""
    known = dict(zip(lazy_names(X) or (), X.columns, strict=True))
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise DataError(no_column(missing))
    return X[[known[name] for name in names]]


def read_table(read: Read, X: Any, names: Sequence[str]) -> Any:
    """read of every partition of a Dask array or data frame, as one of the same kind with these columns."""
    if is_lazy_array(X):
        X, width = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X, len(names)
        return X.map_blocks(read, dtype=np.float64, chunks=(X.chunks[0], (width,)), meta=np.empty((0, width)))
    empty = type(X._meta)(np.empty((0, len(names))), columns=list(names))
    return X.map_partitions(_read_part, read, tuple(names), meta=empty)


def _read_part(part: Any, read: Read, names: tuple[str, ...]) -> Any:
    return type(part)(read(part), columns=list(names), index=part.index)


def read_column(read: Read, y: Any) -> Any:
    """read of every partition of one column: a Dask array of one dimension, or a series."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0] if is_lazy_array(y) else y[y.columns[0]]
    if y.ndim != 1:
        raise InvalidInput("y must be one column: a Dask array of one dimension, or a series")
    if is_lazy_array(y):
        read(np.empty(0, y.dtype))  # refuses what the declared type rules out
        return y.map_blocks(read, dtype=np.float64, meta=np.empty(0))
    read(y._meta)
    return y.map_partitions(_read_series, read, meta=(y.name, np.float64))


def _read_series(part: Any, read: Read) -> Any:
    return type(part)(read(part), index=part.index, name=part.name)
