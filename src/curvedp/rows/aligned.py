"""X and y of a fit as Dask arrays in the same partitions. Only what the collections declare is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.rows.blocked import as_targets
from curvedp.tables import read_table


def declared(X: Any) -> tuple[tuple[str, ...], int]:
    """(names, number of columns) of X; an array has no names."""
    if isinstance(X, da.Array):
        if X.ndim != 2 or math.isnan(X.shape[1]):
            raise DataError("X must be a table: two dimensions, a row per record, a known number of columns")
        if X.dtype.kind not in "fiub":
            raise DataError("X must hold numbers; read tables of other kinds through a schema")
        return (), int(X.shape[1])
    from dask.dataframe import DataFrame

    if not isinstance(X, DataFrame):
        raise InvalidInput("X must be a Dask array or a Dask data frame")
    names = read_table(X._meta).names  # refuses a column that is known to be text
    return names, len(names)


def column(y: Any) -> Any:
    """y as one column: a Dask array of one dimension, or a series."""
    if isinstance(y, da.Array):
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


def elementwise(function: Callable[[Any], FloatArray], y: Any) -> Any:
    """function of the cells of one column, partition by partition."""
    if isinstance(y, da.Array):
        return y.map_blocks(function, meta=np.empty(0))
    return y.map_partitions(_series, function, meta=(y.name, np.float64))


def _series(part: Any, function: Callable[[Any], FloatArray]) -> Any:
    return type(part)(function(np.asarray(part)), index=part.index, name=part.name)


def aligned(X: Any, y: Any) -> tuple[da.Array, da.Array]:
    """X of shape (n, p) in one block of columns, and y of shape (n,) or (n, T) in the same partitions."""
    if not isinstance(X, da.Array):
        if dask.is_dask_collection(y) and not isinstance(y, da.Array):
            return _from_frames(X, y)
        names, p = declared(X)
        X = X.map_partitions(_numbers, names, meta=np.empty((0, p)))
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return X, _targets(y, X)


def _from_frames(X: Any, y: Any) -> tuple[da.Array, da.Array]:
    """X and y read together: read apart, the optimizer of Dask may cut them into different partitions."""
    import dask.dataframe as dd

    if not isinstance(y, dd.DataFrame | dd.Series):
        raise InvalidInput("y must be a Dask array, series or data frame")
    empty = np.asarray(y._meta)
    _check_kind(empty)
    names, p = declared(X)
    width = p + (1 if empty.ndim == 1 else empty.shape[1])
    try:
        both = dd.map_partitions(_numbers, X, names, y, meta=np.empty((0, width)))
    except ValueError:
        raise InvalidInput("X and y are cut into different partitions: take both from one table") from None
    return both[:, :p], both[:, p:] if empty.ndim == 2 else both[:, p]


def _numbers(frame: Any, names: tuple[str, ...], y: Any = None) -> FloatArray:
    """The numbers of one partition, and its targets beside them; its columns must be those of the whole."""
    found = tuple(map(str, frame.columns))
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        raise DataError(f"there is no column {missing!r}, which the data frame declares")
    if found != names:
        raise DataError("its columns are not those of the data frame, in their order")
    if y is not None:
        targets = as_targets(y, len(frame))
        frame = frame.assign(**{f"target {k} of {names}": target for k, target in enumerate(targets.T)})
    return read_table(frame).values


def _targets(y: Any, X: da.Array) -> da.Array:
    """y as a Dask array in the partitions of the array X."""
    if not dask.is_dask_collection(y):
        if math.isnan(X.shape[0]):
            raise InvalidInput("the partitions of X have unknown lengths: pass y as a Dask collection, too")
        y = da.from_array(as_targets(y, int(X.shape[0])), chunks=(X.chunks[0], -1))
    if not isinstance(y, da.Array):
        raise InvalidInput("y must be a Dask array, like X")
    _check_kind(y)
    if y.ndim == 2 and y.numblocks[1] > 1:
        y = y.rechunk({1: -1})
    if not any(map(math.isnan, (*X.chunks[0], *y.chunks[0]))) and y.chunks[0] != X.chunks[0]:
        if y.shape[0] != X.shape[0]:
            raise DataError("y must have one entry (or one row of targets) per row of X")
        y = y.rechunk({0: X.chunks[0]})
    if y.numblocks[0] != X.numblocks[0]:
        raise InvalidInput(
            f"X has {X.numblocks[0]} partitions and y {y.numblocks[0]}, of unknown lengths: "
            "take both from one table"
        )
    return y


def _check_kind(y: Any) -> None:
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError("y must hold numbers: real targets, ±1, or class indices")
