"""What callers pass as X and y, as arrays of numbers. Whatever numpy would say about a value stays here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from curvedp.data.cells import check_numbers, number, numbers
from curvedp.data.frames import Table, as_cells, is_table, table_of
from curvedp.data.schema import Schema
from curvedp.data.targets import Coded
from curvedp.errors import DataError, InvalidInput, shielded

NOT_NUMBERS = "X must hold numbers; read tables of other kinds through a schema"
NO_NUMBERS = "y must hold numbers: real targets, ±1, or class indices"
UNEQUAL = "y must have one entry (or one row of targets) per row of X"


CodedColumn = tuple[str, Coded, str | None]  # its role beside a table, its coding, its name within one


def read_records(chunk: Table, *, schema: Schema, coded: Sequence[CodedColumn]) -> tuple[Any, Any]:
    """The records of a chunk: features as the schema encodes them, and coded columns side by side.

    A column is what was passed beside the table in its role, else the table's own; the target has no name.
    """
    columns = []
    for role, coding, name in coded:
        own = chunk.beside.get(role)
        if own is None:
            own = schema.target_in(chunk) if name is None else chunk.cells(name)
        columns.append(coding.encode(own))
    return schema.matrix(chunk), columns[0] if len(columns) == 1 else np.column_stack(columns)


def plain_records(chunk: Table, *, names: tuple[str, ...]) -> tuple[Any, Any]:
    """The same of a table without a schema, whose columns these are: every cell is a number, NaN where it is
    none. Numbers in an array are passed on."""
    if chunk.matrix is None and tuple(chunk.columns) != names:
        for position, name in enumerate(names, start=1):  # a name may be a cell of a file without header
            if name not in chunk:
                raise DataError(f"column {position} of those that the data frame declares is not there")
        raise DataError("its columns are not those of the data frame, in their order")
    X, y = chunk.matrix, chunk.beside.get("y")
    if y is None:
        raise InvalidInput("pass y, a target for each row of X")
    if not (issparse(X) or _is_numeric(X)):
        X = _plain([chunk.column(name) for name in names])
    return X, as_targets(y if _is_numeric(y) else _plain(_columns(y)), X.shape[0])


def require_numbers(head: Table) -> None:
    """Refuse, by declared types, a table that does not hold numbers."""
    for position, name in enumerate(head.columns, start=1):
        dtype = str(getattr(head.columns[name].to_native(), "dtype", None))
        if head.cells(name).kind != "numbers" and dtype != "object":
            raise DataError(
                f"column {position} of X does not hold numbers by its type: read it through a schema, or "
                "leave it out"
            )
    if head.matrix is not None and head.matrix.dtype.kind not in "fiub":
        raise DataError(NOT_NUMBERS)
    if any(as_cells(column).kind != "numbers" for column in _columns(head.beside.get("y", ()))):
        raise DataError(NO_NUMBERS)


def _is_numeric(values: Any) -> bool:
    plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    return plain and values.dtype.kind in "fiub"


def _plain(columns: Sequence[Any]) -> NDArray[Any]:
    """The numbers of some columns side by side."""
    cells = [as_cells(column) for column in columns]
    for position, own in enumerate(cells, start=1):
        check_numbers(own.kind, f"column {position}")
    return np.column_stack([numbers(own) for own in cells])


def _columns(y: Any) -> list[Any]:
    """Of an array of two dimensions, a data frame, or one column."""
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return [*y.T]
    return [*table_of(y).columns.values()] if is_table(y) else [y]


def as_features(X: Any) -> NDArray[np.generic]:
    """X as a two-dimensional array of real numbers; arrays of numbers are not copied.

    Cells of lists and of object arrays are read one by one: one that is no number becomes NaN.
    """
    return shielded(lambda: _features(X), _unreadable("X"))


def as_targets(y: Any, n: int) -> NDArray[np.generic]:
    """y as an (n, T) array of real numbers; arrays of numbers are not copied."""
    return shielded(lambda: _targets(y, n), _unreadable("y"))


def as_csr(X: Any) -> Any:
    """X as a csr_array of real numbers without duplicate entries; the caller's matrix is left as it is."""
    return shielded(lambda: _csr(X), _unreadable("X"))


def joined(parts: Sequence[Any]) -> Any:
    """Arrays of several chunks as one; one alone as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _features(X: Any) -> NDArray[np.generic]:
    array = _array(X)
    if array.ndim != 2:
        raise DataError("X must be a table: two dimensions, one row per record")
    return _numbers(array, NOT_NUMBERS)


def _targets(y: Any, n: int) -> NDArray[np.generic]:
    array = _numbers(_array(y), NO_NUMBERS)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n:
        raise DataError(UNEQUAL)
    return array


def _csr(X: Any) -> Any:
    if not issparse(X) or X.dtype.kind not in "fiub":
        raise DataError("X must be a scipy sparse matrix of numbers")
    rows = csr_array(X)
    rows.check_format(full_check=True)  # indices beyond the columns would be read as memory
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _array(values: Any) -> NDArray[Any]:
    """An array as it is; a list as its cells, since numpy would choose one type for all of them."""
    if hasattr(values, "dtype") or hasattr(values, "__array__"):
        return np.asanyarray(values)
    return np.array(values, dtype=object)


def _numbers(array: NDArray[Any], otherwise: str) -> NDArray[np.generic]:
    if array.dtype.kind == "O":
        return np.fromiter(map(number, array.flat), np.float64, array.size).reshape(array.shape)
    if array.dtype.kind not in "fiub":
        raise DataError(otherwise)
    return array


def _unreadable(name: str) -> Any:
    return lambda kind: f"{name} cannot be read as an array of numbers ({kind}): pass one row per record"
