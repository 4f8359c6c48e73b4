"""The shorthand `bounds=`: one pair for all columns, a pair per column, or two arrays. Never transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curvedp.errors import InvalidInput
from curvedp.schema.columns import check_bounds, is_list, is_number, shown

Pair = tuple[float, float]


def bounds_per_column(bounds: Any, n_features: int, names: Sequence[str] | None) -> list[Pair]:
    """(low, high) of each column. Messages name what was declared, never a column of the data."""
    if bounds is None:
        raise InvalidInput(
            "pass bounds=(low, high) or bounds={column: (low, high), ...}: public ranges that you declare; "
            "they are never read off the data"
        )
    if isinstance(bounds, Mapping):
        return _by_name(bounds, names)
    if not is_list(bounds) or len(bounds) == 0:
        raise InvalidInput(_how_to_write(n_features))
    if len(bounds) == 2:
        if all(map(is_number, bounds)):
            return [check_bounds(bounds[0], bounds[1], "bounds")] * n_features
        if _are_sides(bounds, n_features):
            low, high = (np.broadcast_to(side, n_features).tolist() for side in bounds)
            return _checked(zip(low, high, strict=True))
        if n_features == 2 and not isinstance(bounds, list) and all(map(_is_pair, bounds)):
            raise InvalidInput(
                "these bounds could be two pairs or two lists of ends: write [(low, high), (low, high)], one "
                "pair for each column, or {column: (low, high), ...}"
            )
    if len(bounds) != n_features or not all(map(_is_pair, bounds)):
        raise InvalidInput(_how_to_write(n_features))
    return _checked(bounds)


def _by_name(bounds: Mapping[Any, Any], names: Sequence[str] | None) -> list[Pair]:
    if names is None:
        raise InvalidInput(
            "bounds={column: (low, high)} needs a table with column names: pass a data frame, or a list with "
            "one pair for each column"
        )
    declared = {str(name): pair for name, pair in bounds.items()}
    for position, name in enumerate(names, start=1):
        if name not in declared:
            raise InvalidInput(f"bounds has no entry for column {position} of the table: declare its range")
    known = set(names)
    unknown = next((name for name in declared if name not in known), None)
    if unknown is not None:
        raise InvalidInput(f"bounds names {shown(unknown)}, which is no column of the table: leave it out")
    for name, pair in declared.items():
        if not _is_pair(pair):
            raise InvalidInput(f"bounds of column {shown(name)} must be two numbers: write (low, high)")
    pairs = ((name, *declared[name]) for name in names)
    return [check_bounds(low, high, f"bounds of column {shown(name)}") for name, low, high in pairs]


def _are_sides(bounds: Any, n_features: int) -> bool:
    """Whether both are arrays of ends (or one and a number): numpy's, or of a length that no pair has."""

    def of_length(side: Any) -> bool:
        return is_list(side) and np.ndim(side) == 1 and len(side) == n_features and all(map(is_number, side))

    if not all(is_number(side) or of_length(side) for side in bounds) or not any(map(of_length, bounds)):
        return False
    if n_features == 2:
        return not isinstance(bounds, np.ndarray) and any(isinstance(side, np.ndarray) for side in bounds)
    return True


def _is_pair(pair: Any) -> bool:
    return is_list(pair) and len(pair) == 2 and all(map(is_number, pair))


def _checked(pairs: Any) -> list[Pair]:
    return [check_bounds(low, high, f"bounds of column {i}") for i, (low, high) in enumerate(pairs, start=1)]


def _how_to_write(n_features: int) -> str:
    return (
        f"bounds must be (low, high) for all columns, a list of {n_features} pairs [(low, high), ...], one "
        "for each column, or {column: (low, high), ...}"
    )
