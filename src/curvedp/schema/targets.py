"""What is predicted: a number in bounds, a count, a class; and how it is coded for a fit.

A target that is missing, unreadable or undeclared is coded as NaN: its record contributes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND, FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.schema.cells import Cells, Kind, check_numbers, is_number_level, level, numbers, positions
from curvedp.schema.columns import check_bounds, is_list, is_number, is_text, repeated, shown
from curvedp.schema.frames import as_cells
from curvedp.schema.lazy import elementwise, is_dask, lazy_kind, one_column


class _Target(ABC):
    """The part that all targets share: public types first, then cell by cell, in memory or lazily."""

    def check_kind(self, kind: Kind) -> None:
        """Refuse a column whose declared type can never hold such a target."""
        check_numbers(kind, "the target")

    @abstractmethod
    def code(self, cells: Cells) -> FloatArray:
        """The cells of one column in memory, coded; their kind is known to fit."""

    def encode(self, cells: Any) -> Any:
        """The targets as a fit takes them, NaN where a cell is none.

        Parameters
        ----------
        cells : array, series, list or Dask column
            The cells of the target, in user units.

        Returns
        -------
        coded : array of float
            Of the same length; a Dask collection stays one.
        """
        if is_dask(cells):
            column = one_column(cells)
            self.check_kind(lazy_kind(column))
            return elementwise(self._encode, column)
        return self._encode(cells)

    def _encode(self, column: Any) -> FloatArray:
        cells = as_cells(column)
        self.check_kind(cells.kind)
        return self.code(cells)


@dataclass(frozen=True)
class NumericTarget(_Target):
    """A number between public bounds, coded as t = (clip(y, low, high) − offset) / scale in [−1, 1].

    Parameters
    ----------
    low, high : float
        The public range. A target outside is clipped to it.

    Examples
    --------
    >>> from curvedp.schema import NumericTarget
    >>> target = NumericTarget(0, 10)
    >>> target.encode(["2.5", 99, None])
    array([-0.5,  1. ,  nan])
    >>> float(target.decode(-0.5))
    2.5
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = check_bounds(self.low, self.high, "the target")
        if 0.5 * high - 0.5 * low < SMALLEST_BOUND:
            raise InvalidInput("the target: the bounds are too close to each other: use larger units")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def scale(self) -> float:
        """Half the range."""
        return 0.5 * self.high - 0.5 * self.low

    @property
    def offset(self) -> float:
        """The middle of the range."""
        return 0.5 * self.low + 0.5 * self.high

    def code(self, cells: Cells) -> FloatArray:
        clipped = np.clip(numbers(cells), self.low, self.high)
        return np.clip((clipped - self.offset) / self.scale, -1.0, 1.0)

    def decode(self, margins: Any) -> FloatArray:
        """Predictions in user units."""
        return np.asarray(margins, dtype=np.float64) * self.scale + self.offset


@dataclass(frozen=True)
class CountTarget(_Target):
    """A count between 0 and a public bound, coded as itself.

    Parameters
    ----------
    high : float
        The largest count. A larger one is clipped to it, a negative one to 0.

    Examples
    --------
    >>> from curvedp.schema import CountTarget
    >>> CountTarget(20).encode([3, "100", "many"])
    array([ 3., 20., nan])
    """

    high: float

    def __post_init__(self) -> None:
        if not (is_number(self.high) and 0 < self.high <= LARGEST_ENTRY):
            raise InvalidInput("the largest count must be a positive number, a public constant")
        object.__setattr__(self, "high", float(self.high))

    def code(self, cells: Cells) -> FloatArray:
        return np.clip(numbers(cells), 0.0, self.high)

    def decode(self, counts: Any) -> FloatArray:
        """Predictions in user units."""
        return np.asarray(counts, dtype=np.float64)


@dataclass(frozen=True)
class ClassTarget(_Target):
    """One of the declared classes: coded as −1 and 1 where there are two, as 0 … K−1 otherwise.

    A label matches a class when both name the same level: 1, 1.0, "1" and True do, " yes " and "yes" do,
    "Yes" and "yes" do NOT. **A record whose label matches no class is left out of the fit without a word**,
    since a word would tell about the data. With labels "no" and "yes", both ``classes=[0, 1]`` and
    ``classes=["No", "Yes"]`` learn nothing and report nothing: compare the classes with the codebook. Only
    what the declared type of the labels rules out is refused, such as numbers where every class is a word.

    Parameters
    ----------
    classes : sequence of str, int, float or bool
        The labels that may occur, at least two, all of one kind.

    Attributes
    ----------
    labels : array
        The classes in increasing order; the codes follow it.

    Examples
    --------
    >>> from curvedp.schema import ClassTarget
    >>> target = ClassTarget(["yes", "no"])
    >>> target.encode(["yes", " no", "No", None])
    array([ 1., -1., nan, nan])
    >>> target.decode([1, 0]).tolist()
    ['yes', 'no']
    """

    classes: tuple[str | int | float, ...]

    def __post_init__(self) -> None:
        values: Any = self.classes
        values = values.tolist() if hasattr(values, "tolist") else values
        if not is_list(values):
            raise InvalidInput("classes must list at least two different labels: the values that may occur")
        classes = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
        kinds = {_label_kind(label) for label in classes}
        if len(kinds) > 1 or not kinds <= {str, bool, float}:
            raise InvalidInput("classes must be all texts, all numbers or all truth values: write them alike")
        keys = [level(label) for label in classes]
        if len(keys) < 2 or "" in keys:
            raise InvalidInput("classes must list at least two different labels, none of them missing")
        twice = repeated(keys)
        if twice is not None:
            raise InvalidInput(f"class number {twice + 1} is the same label as an earlier one: remove one")
        object.__setattr__(self, "classes", classes)

    @cached_property
    def labels(self) -> NDArray[Any]:
        return np.array(sorted(self.classes))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {level(label): i for i, label in enumerate(sorted(self.classes))}

    def check_kind(self, kind: Kind) -> None:
        if kind in ("numbers", "complex") and not any(map(is_number_level, self._positions)):
            raise DataError(
                f"the labels are numbers by their type, and no declared class is one (the first is "
                f"{shown(str(self.labels[0]))}): declare the classes as the labels are written"
            )
        if kind == "dates" and all(map(is_number_level, self._positions)):
            raise DataError("the labels have a type of dates, and every declared class is a number")

    def code(self, cells: Cells) -> FloatArray:
        found = positions(cells, self._positions).astype(np.float64)
        coded = 2.0 * found - 1.0 if len(self.classes) == 2 else found
        return np.where(found < 0, np.nan, coded)

    def decode(self, index: Any) -> NDArray[Any]:
        """The labels of positions 0 … K−1."""
        return self.labels[np.asarray(index, dtype=np.intp)]


Target = NumericTarget | CountTarget | ClassTarget


def _label_kind(label: Any) -> type | None:
    """The kind of a declared label; None where it is none."""
    if isinstance(label, bool):
        return bool
    if isinstance(label, str):
        return str if is_text(label) else None
    return float if is_number(label) and abs(label) <= LARGEST_ENTRY else None
