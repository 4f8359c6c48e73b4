"""Tables without a schema: every cell a number, NaN where it is none, under the same rule as everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from curvedp.arrays import LARGEST_ENTRY
from curvedp.errors import InvalidInput
from curvedp.schema.cells import numbers
from curvedp.schema.frames import as_cells, declared, is_table, table_of
from curvedp.schema.lazy import is_dask
from curvedp.schema.schema import Schema


def plain_matrix(X: Any) -> Any:
    """X as `make_rows` takes it; arrays of numbers, sparse matrices and Dask collections are passed on."""
    if is_dask(X) or issparse(X) or _is_numeric(X, ndim=2):
        return X
    names, width = declared(X)
    if width is None:
        raise InvalidInput("a list of rows does not say how many columns there are: pass an array or a table")
    return Schema.of_bounds((-LARGEST_ENTRY, LARGEST_ENTRY), n_features=width, names=names).read(X)


def plain_targets(y: Any) -> Any:
    """y as `make_rows` takes it: one column, or an array or data frame of several."""
    if is_dask(y) or _is_numeric(y, ndim=1) or _is_numeric(y, ndim=2):
        return y
    if is_table(y):
        table = table_of(y)
        return np.column_stack([numbers(table.cells(name)) for name in table.columns])
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return np.column_stack([numbers(as_cells(y[:, k])) for k in range(y.shape[1])])
    return numbers(as_cells(y))


def _is_numeric(values: Any, ndim: int) -> bool:
    plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    return plain and values.ndim == ndim and values.dtype.kind in "fiub"
