"""The kinds of columns that a schema declares: numbers in bounds, levels, and what is not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, FloatArray
from curvedp.errors import InvalidInput
from curvedp.schema.cells import Cells, check_numbers, level, numbers, positions

LONGEST_ORIGIN = 300


@dataclass(frozen=True)
class Numeric:
    """A number between public bounds.

    Parameters
    ----------
    name : str
        The column's name in the table.
    low, high : float
        The bounds, from a codebook or from common knowledge, never from the data. A value outside is clipped.
    origin : str, optional
        Where bounds come from that are not public knowledge: which private release they were bought by.

    Examples
    --------
    >>> from curvedp.schema import Numeric
    >>> Numeric("age", 0, 120)
    Numeric(name='age', low=0.0, high=120.0)
    """

    name: str
    low: float
    high: float
    origin: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        what = f"column {shown(check_name(self.name))}"
        low, high = check_bounds(self.low, self.high, what)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not (isinstance(self.origin, str) and is_text(self.origin) and len(self.origin) <= LONGEST_ORIGIN):
            raise InvalidInput(f"{what}: origin must be a text of at most {LONGEST_ORIGIN} letters")

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return ((self.low, self.high),)

    def encode(self, cells: Cells) -> FloatArray:
        """The numbers as one column of a matrix, NaN where there is none; the column map clips them."""
        check_numbers(cells.kind, f"column {shown(self.name)}")
        return numbers(cells)[:, None]

    def to_dict(self) -> dict[str, Any]:
        origin = {"origin": self.origin} if self.origin else {}
        return {"name": self.name, "kind": "numeric", "bounds": [self.low, self.high], **origin}


@dataclass(frozen=True)
class Categorical:
    """One of at least two declared levels.

    Parameters
    ----------
    name : str
        The column's name in the table.
    levels : sequence of str
        What a cell may say; numbers and truth values stand for their text. Anything else counts as missing,
        which is the all-zero code. Upper and lower case differ.

    Examples
    --------
    >>> from curvedp.schema import Categorical
    >>> Categorical("union", ["no", "yes"]).encoded_names
    ('union=no', 'union=yes')
    """

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        what = f"column {shown(check_name(self.name))}"
        if not is_list(self.levels) or not all(isinstance(text, str | int | float) for text in self.levels):
            raise InvalidInput(f'{what}: levels must be a list of texts: write levels = ["a", "b"]')
        object.__setattr__(self, "levels", tuple(level_text(text) for text in self.levels))
        if any(not is_text(text) for text in self.levels):
            raise InvalidInput(f"{what}: a level is not Unicode text: write it anew")
        keys = [level(text) for text in self.levels]
        if len(keys) < 2 or "" in keys:
            raise InvalidInput(f"{what}: declare at least two levels, none of them empty")
        twice = repeated(keys)
        if twice is not None:
            raise InvalidInput(f"{what}: level {shown(self.levels[twice])} is declared twice: remove one")

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={text}" for text in self.levels)

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 1.0),) * len(self.levels)

    def encode(self, cells: Cells) -> FloatArray:
        """One column per level, 1 where the cell names it; all 0 where it names none."""
        found = positions(cells, {level(text): i for i, text in enumerate(self.levels)})
        return np.asarray(found[:, None] == np.arange(len(self.levels)), dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "categorical", "levels": list(self.levels)}


@dataclass(frozen=True)
class Ignored:
    """A column that is never read.

    Parameters
    ----------
    name : str
        The column's name in the table.

    Examples
    --------
    >>> from curvedp.schema import Ignored
    >>> Ignored("id").name
    'id'
    """

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "ignored"}


Column = Numeric | Categorical | Ignored
_HALF = re.compile("[\ud800-\udfff]")


def check_bounds(low: Any, high: Any, what: str) -> tuple[float, float]:
    """(low, high) as two finite numbers, low < high; `what` says whose bounds they are."""
    if not (is_number(low) and is_number(high)):
        raise InvalidInput(f"{what}: bounds must be two numbers: write bounds = [low, high]")
    if not (abs(low) <= LARGEST_ENTRY and abs(high) <= LARGEST_ENTRY):
        raise InvalidInput(f"{what}: both bounds must be finite numbers, public constants")
    low, high = float(low), float(high)
    if low > high:
        raise InvalidInput(f"{what}: the bounds [{low:g}, {high:g}] are reversed: write [{high:g}, {low:g}]")
    if low == high:
        raise InvalidInput(f"{what}: the lower bound must lie below the upper one")
    return low, high


def check_name(name: Any) -> str:
    if not (isinstance(name, str) and name and is_text(name)):
        raise InvalidInput("the name of a column must be a text that is not empty")
    return name


def is_number(value: Any) -> bool:
    """Whether a declared value is a real number; NaN is none."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return real and not isinstance(value, np.timedelta64) and value == value


def is_list(value: Any) -> bool:
    """Whether a declared value is a list, a tuple or an array."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def is_text(text: str) -> bool:
    """Whether the text can be written to a file: half of a surrogate pair cannot."""
    return text.isascii() or _HALF.search(text) is None


def level_text(value: str | float) -> str:
    """A declared level as text: true for a truth value, 1 for the number 1."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    return level(value)


def repeated(keys: Iterable[str]) -> int | None:
    """The position of the first key that was there before."""
    seen: set[str] = set()
    for position, key in enumerate(keys):
        if key in seen:
            return position
        seen.add(key)
    return None


def shown(text: str) -> str:
    """A declared text in quotes, on one line and not too long for a message."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
