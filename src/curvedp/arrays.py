"""Names and constants of arrays that every layer shares."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from curvedp.errors import InvalidInput

FloatArray = NDArray[np.float64]
TableLike: TypeAlias = Any  # a data frame of any library, a mapping of columns, an array, a matrix
ColumnLike: TypeAlias = Any  # a series of any library, an array, a list, a lazy column
BoolArray = NDArray[np.bool_]

UNIT_ROUNDOFF = 2.0**-53
# Bounds and entries of records stay within these, so that a squared norm neither overflows nor underflows.
SMALLEST_BOUND, LARGEST_ENTRY = 1e-100, 1e150
# No table has more rows: what rounding can add up to is bounded publicly by this number, never by the data.
ROWS_AT_MOST = 10**10


def as_coordinates(indices: Iterable[int]) -> tuple[int, ...]:
    """Distinct row indices of θ as a tuple."""
    coords = tuple(operator.index(index) for index in indices)
    if len(set(coords)) < len(coords) or min(coords, default=0) < 0:
        raise InvalidInput("coordinates must be distinct integers ≥ 0: row indices of θ")
    return coords


def spliced(values: NDArray[Any], rows: Sequence[int], part: NDArray[Any]) -> NDArray[Any]:
    """A copy of `values` with `part` in the rows named."""
    values = values.copy()
    values[list(rows)] = part
    return values


def kron(first: FloatArray, second: FloatArray) -> FloatArray:
    """first ⊗ second."""
    return np.asarray(np.kron(first, second), dtype=np.float64)
