"""The kinds of columns that a schema declares: numbers in bounds, levels, and what is not read.

Dates and truth values have modules of their own; `curvedp.schema.kinds` lists all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import LARGEST_ENTRY, FloatArray
from curvedp.errors import InvalidInput
from curvedp.schema.cells import (
    LEVEL_KINDS,
    NUMBER_KINDS,
    Cells,
    Kind,
    check_numbers,
    level,
    level_kinds,
    positions,
)
from curvedp.schema.numerals import Numerals, check_decimal, check_thousands, numerals

LONGEST_SOURCE = 300
MISSING_LEVEL = "(missing)"


@dataclass(frozen=True)
class Numeric:
    """A number between public bounds.

    Parameters
    ----------
    name : str
        The column's name in the table.
    low, high : float
        The bounds, from a codebook or from common knowledge, never from the data. A value outside is clipped.
    source : str, optional
        Where the bounds come from, in one line: "codebook 2024, p. 12". Reports and model files show it.
    decimal : {".", ","}, optional
        The decimal sign of cells that are text; that of the schema's file if there is none.
    thousands : {"", ".", ",", " ", "'"}, default=""
        What stands between groups of three digits. "." implies a decimal comma.
    missing_codes : sequence of float, optional
        Numbers that say that there is none, such as −9 and 999.
    missing : {"middle", "indicator"}, default="middle"
        What a missing or unreadable cell becomes: the middle of the bounds, which biases what it is
        compared with; or that and a 1 in a second column, "age?missing", which has 0 elsewhere.

    Examples
    --------
    >>> from curvedp.schema import Numeric, Schema
    >>> Numeric("age", 0, 120)
    Numeric(name='age', low=0.0, high=120.0)
    >>> wage = Numeric("wage", 0, 1e5, decimal=",", thousands=".", missing_codes=[-9], missing="indicator")
    >>> wage.encoded_names
    ('wage', 'wage?missing')
    >>> Schema([wage]).read({"wage": ["1.234,5", "-9"]}).tolist()
    [[1234.5, 0.0], [nan, 1.0]]
    """

    name: str
    low: float
    high: float
    source: str = field(default="", repr=False)
    decimal: str | None = field(default=None, repr=False, kw_only=True)
    thousands: str = field(default="", repr=False, kw_only=True)
    missing_codes: tuple[float, ...] = field(default=(), repr=False, kw_only=True)
    missing: Literal["middle", "indicator"] = field(default="middle", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        what = f"column {shown(check_name(self.name))}"
        low, high = check_bounds(self.low, self.high, what)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        check_source(self.source, what)
        if self.decimal is not None:
            check_decimal(self.decimal, what)
        check_thousands(self.thousands, self.decimal, what)
        if not is_list(self.missing_codes) or not all(map(is_number, self.missing_codes)):
            raise InvalidInput(f"{what}: missing_codes must be a list of numbers: write missing_codes = [-9]")
        object.__setattr__(self, "missing_codes", tuple(float(code) for code in self.missing_codes))
        check_missing(self.missing, ("middle", "indicator"), what)

    @property
    def numerals(self) -> Numerals:
        """How its cells are read."""
        return numerals(self.decimal, self.thousands, self.missing_codes)

    def in_file(self, decimal: str) -> Numeric:
        """The same column with the decimal sign of its file, where it declares none."""
        if self.decimal is not None or decimal in (".", self.thousands):
            return self
        return replace(self, decimal=decimal)

    @property
    def is_as_read(self) -> bool:
        """Whether a number stands for itself, and needs no second column."""
        return self.missing == "middle" and not self.missing_codes

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return (self.name,) if self.missing == "middle" else (self.name, missing_name(self.name))

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        own = (self.low, self.high)
        return (own,) if self.missing == "middle" else (own, (0.0, 1.0))

    @property
    def blocks(self) -> tuple[range, ...]:
        """One-hot blocks among the encoded columns."""
        return ()

    def check_kind(self, kind: Kind) -> None:
        """Refuse a declared type that can never hold such cells."""
        check_numbers(kind, f"column {shown(self.name)}")

    def numbers(self, cells: Cells) -> FloatArray:
        """The number of every cell, NaN where there is none; not clipped."""
        return self.numerals.numbers(cells)

    def encode(self, cells: Cells) -> FloatArray:
        """The numbers as one column of a matrix, NaN where there is none, and 1 there in a second; the
        column map clips them."""
        self.check_kind(cells.kind)
        return with_indicator(self.numbers(cells)[:, None], self.missing)

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        """What may be wrong with a cell."""
        return NUMBER_KINDS

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        """The place in `cell_kinds` of every cell, −1 where nothing is wrong."""
        return self.numerals.kinds(cells, self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        more = {
            "source": self.source,
            "decimal": self.decimal,
            "thousands": self.thousands,
            "missing_codes": list(self.missing_codes),
            "missing": "" if self.missing == "middle" else self.missing,
        }
        own = {"name": self.name, "kind": "numeric", "bounds": [self.low, self.high]}
        return own | {key: value for key, value in more.items() if value}


@dataclass(frozen=True)
class Categorical:
    """One of at least two declared levels.

    Parameters
    ----------
    name : str
        The column's name in the table.
    levels : sequence of str
        What a cell may say; numbers and truth values stand for their text. Anything else counts as missing.
        Upper and lower case differ.
    missing : {"zero", "level"}, default="zero"
        What a missing cell becomes: the all-zero code; or a level of its own, "race=(missing)".
    source : str, optional
        Where the levels come from, in one line.

    Examples
    --------
    >>> from curvedp.schema import Categorical
    >>> Categorical("union", ["no", "yes"]).encoded_names
    ('union=no', 'union=yes')
    >>> Categorical("union", ["no", "yes"], missing="level").encoded_names
    ('union=no', 'union=yes', 'union=(missing)')
    """

    name: str
    levels: tuple[str, ...]
    missing: Literal["zero", "level"] = field(default="zero", repr=False, kw_only=True)
    source: str = field(default="", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        what = f"column {shown(check_name(self.name))}"
        check_source(self.source, what)
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
        check_missing(self.missing, ("zero", "level"), what)
        if self.missing == "level" and MISSING_LEVEL in keys:
            raise InvalidInput(f"{what}: the level {MISSING_LEVEL} is that of missing cells: remove one")

    @property
    def encoded_names(self) -> tuple[str, ...]:
        own = self.levels if self.missing == "zero" else (*self.levels, MISSING_LEVEL)
        return tuple(f"{self.name}={text}" for text in own)

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 1.0),) * len(self.encoded_names)

    @property
    def blocks(self) -> tuple[range, ...]:
        """One-hot blocks among the encoded columns."""
        return (range(len(self.encoded_names)),)

    @property
    def is_as_read(self) -> bool:
        return False

    def check_kind(self, kind: Kind) -> None:
        """Every declared type may hold levels."""

    def places(self, cells: Cells) -> NDArray[np.intp]:
        """The position of every cell among the levels, −1 where it names none."""
        return positions(cells, {level(text): i for i, text in enumerate(self.levels)})

    def encode(self, cells: Cells) -> FloatArray:
        """One column per level, 1 where the cell names it; all 0 where it names none, or a 1 in the last."""
        width, found = len(self.encoded_names), self.places(cells)
        if self.missing == "level":
            found = np.where(found < 0, width - 1, found)
        return np.asarray(found[:, None] == np.arange(width), dtype=np.float64)

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        """What may be wrong with a cell."""
        return LEVEL_KINDS

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        """The place in `cell_kinds` of every cell; beyond it by the position of a declared level."""
        return level_kinds(cells, self.places(cells))

    def to_dict(self) -> dict[str, Any]:
        more = {"missing": "" if self.missing == "zero" else self.missing, "source": self.source}
        own = {"name": self.name, "kind": "categorical", "levels": list(self.levels)}
        return own | {key: value for key, value in more.items() if value}


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


def check_source(text: Any, what: str) -> None:
    """Refuse what is no short line of text."""
    line = isinstance(text, str) and is_text(text) and len(text.splitlines()) <= 1
    if not line or len(text) > LONGEST_SOURCE:
        raise InvalidInput(f"{what}: source must be one line of at most {LONGEST_SOURCE} letters")


def check_missing(value: Any, known: Sequence[str], what: str) -> None:
    """Refuse a rule for missing cells that this kind of column does not have."""
    if value not in known:
        choices = " or ".join(f'"{rule}"' for rule in known)
        raise InvalidInput(f"{what}: missing must be {choices}")


def missing_name(name: str) -> str:
    """The column that is 1 where a cell of that one is missing."""
    return f"{name}?missing"


def with_indicator(columns: FloatArray, missing: str) -> FloatArray:
    """The columns, and for the rule "indicator" one more: 1 where the first is NaN, 0 elsewhere."""
    if missing != "indicator":
        return columns
    return np.column_stack([columns, np.isnan(columns[:, 0]).astype(np.float64)])


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
