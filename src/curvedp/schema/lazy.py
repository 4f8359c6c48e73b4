"""Dask collections: the same reading, partition by partition. Only what they declare is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.schema.cells import Kind
from curvedp.schema.frames import NOT_TWO_DIMENSIONS, as_cells, check_distinct, no_column
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


def read_array(read: Read, X: Any, width: int) -> Any:
    """read of every block of rows of a Dask array, as one of `width` columns."""
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    return X.map_blocks(read, dtype=np.float64, chunks=(X.chunks[0], (width,)), meta=np.empty((0, width)))


def select(X: Any, names: Sequence[str]) -> Any:
    """Those columns of a Dask data frame, in this order."""
    known = dict(zip(lazy_names(X) or (), X.columns, strict=True))
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise DataError(no_column(missing))
    return X[[known[name] for name in names]]


def read_frame(read: Read, X: Any, names: Sequence[str]) -> Any:
    """read of every partition of a Dask data frame, as a data frame with these columns.

    It stays a data frame so that Dask sees X and y of one table as one computation: taken apart, it may read
    them in different partitions.
    """
    empty = type(X._meta)(np.empty((0, len(names))), columns=list(names))
    return X.map_partitions(_read_part, read, tuple(names), meta=empty)


def _read_part(part: Any, read: Read, names: tuple[str, ...]) -> Any:
    return type(part)(read(part), columns=list(names), index=part.index)


def one_column(y: Any) -> Any:
    """y as one column: a Dask array of one dimension, or a series."""
    if is_lazy_array(y):
        if y.ndim == 1:
            return y
        if y.ndim == 2 and y.shape[1] == 1:
            return y[:, 0]
    else:
        from dask.dataframe import DataFrame, Series

        if isinstance(y, Series):
            return y
        if isinstance(y, DataFrame) and len(y.columns) == 1:
            return y[y.columns[0]]
    raise InvalidInput("y must be one column: a Dask array of one dimension, or a series")


def elementwise(function: Read, y: Any) -> Any:
    """function of the cells of one column, partition by partition."""
    if is_lazy_array(y):
        return y.map_blocks(function, dtype=np.float64, meta=np.empty(0))
    return y.map_partitions(_series, function, meta=(y.name, np.float64))


def _series(part: Any, function: Read) -> Any:
    return type(part)(function(part), index=part.index, name=part.name)


def side_by_side(columns: Sequence[Any]) -> Any:
    """Columns of one table as a Dask array of shape (n, T), or a data frame of as many columns."""
    if all(map(is_lazy_array, columns)):
        import dask.array as da

        return da.stack(columns, axis=1, allow_unknown_chunksizes=True)
    import dask.dataframe as dd

    if any(map(is_lazy_array, columns)):
        raise InvalidInput("weights, offsets and targets must be Dask columns of one kind: series or arrays")
    first = columns[0]
    empty = type(first._meta.to_frame())(np.empty((0, len(columns))))
    return dd.map_partitions(_joined, *columns, meta=empty)


def _joined(*parts: Any) -> Any:
    if len({len(part) for part in parts}) > 1:
        raise DataError("weights, offsets and targets must have one entry per row of X")
    frame = type(parts[0].to_frame())
    return frame(
        np.column_stack([np.asarray(part, dtype=np.float64) for part in parts]), index=parts[0].index
    )


def lazy_kind(y: Any) -> Kind:
    """What the declared type of one column says of its cells."""
    return as_cells(np.empty(0, y.dtype) if is_lazy_array(y) else y._meta).kind
