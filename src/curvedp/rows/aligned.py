"""X and y of a fit as Dask arrays in the same partitions. Only what the collections declare is looked at."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import dask
import dask.array as da
import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.rows.inputs import as_targets
from curvedp.schema.cells import numbers
from curvedp.schema.frames import as_cells, table_of
from curvedp.schema.lazy import lazy_names, lazy_width

NO_NUMBERS = "y must hold numbers: real targets, ±1, or class indices"
UNEQUAL = "y must have one entry (or one row of targets) per row of X"


def declared(X: Any) -> tuple[tuple[str, ...], int]:
    """(names, number of columns) of X; an array has no names."""
    names = lazy_names(X)
    if names is None:
        width = lazy_width(X)
        if X.dtype.kind not in "fiub":
            raise DataError("X must hold numbers; read tables of other kinds through a schema")
        return (), width
    for position, column in enumerate(table_of(X._meta).columns.values(), start=1):
        if as_cells(column).kind != "numbers" and column.to_native().dtype != object:
            raise DataError(
                f"column {position} of X does not hold numbers by its type: read it through a schema, or "
                "leave it out"
            )
    return names, len(names)


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
    targets = [as_cells(column) for column in _columns(y._meta)]
    if any(cells.kind != "numbers" for cells in targets):
        raise DataError(NO_NUMBERS)
    names, p = declared(X)
    width = p + len(targets)
    both = None
    with suppress(ValueError):
        both = dd.map_partitions(_numbers, X, names, y, meta=np.empty((0, width)))
    if both is None:
        raise InvalidInput("X and y are cut into different partitions: take both from one table")
    return both[:, :p], both[:, p:] if isinstance(y, dd.DataFrame) else both[:, p]


def _numbers(frame: Any, names: tuple[str, ...], y: Any = None) -> FloatArray:
    """The numbers of one partition, and its targets beside them; its columns must be those of the whole."""
    table = table_of(frame)
    for position, name in enumerate(names, start=1):  # names may be cells of a file without header
        if name not in table.columns:
            raise DataError(f"column {position} of those that the data frame declares is not there")
    if tuple(table.columns) != names:
        raise DataError("its columns are not those of the data frame, in their order")
    cells = [table.cells(name) for name in names]
    if y is not None:
        if len(y) != len(frame):
            raise DataError(UNEQUAL)
        cells += [as_cells(column) for column in _columns(y)]
    values = np.empty((len(frame), len(cells)))
    for j, column in enumerate(cells):
        values[:, j] = numbers(column)
    return values


def _columns(y: Any) -> list[Any]:
    """The columns of a series or a data frame in memory."""
    return [*table_of(y).columns.values()] if y.ndim == 2 else [y]


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
            raise DataError(UNEQUAL)
        y = y.rechunk({0: X.chunks[0]})
    if y.numblocks[0] != X.numblocks[0]:
        raise InvalidInput(
            f"X has {X.numblocks[0]} partitions and y {y.numblocks[0]}, of unknown lengths: "
            "take both from one table"
        )
    return y


def _check_kind(y: Any) -> None:
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError(NO_NUMBERS)
