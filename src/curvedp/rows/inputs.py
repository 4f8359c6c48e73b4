"""What callers pass as X and y, as arrays of numbers. Whatever numpy would say about a value stays here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from curvedp.errors import DataError, shielded


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


def _features(X: Any) -> NDArray[np.generic]:
    array = _array(X)
    if array.ndim != 2:
        raise DataError("X must be a table: two dimensions, one row per record")
    return _numbers(array, "X must hold numbers; read tables of other kinds through a schema")


def _targets(y: Any, n: int) -> NDArray[np.generic]:
    array = _numbers(_array(y), "y must hold numbers: real targets, ±1, or class indices")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n:
        raise DataError("y must have one entry (or one row of targets) per row of X")
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
        from curvedp.schema.cells import number

        return np.fromiter(map(number, array.flat), np.float64, array.size).reshape(array.shape)
    if array.dtype.kind not in "fiub":
        raise DataError(otherwise)
    return array


def _unreadable(name: str) -> Any:
    return lambda kind: f"{name} cannot be read as an array of numbers ({kind}): pass one row per record"
