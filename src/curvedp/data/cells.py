"""The number, the level and the kind that one cell stands for: one function of each, for every entrance.

number(cell) is what Python's `float` reads ("inf" included), 1 or 0 where the cell says true or false, and
NaN otherwise. level(cell) is the text by which a cell names a level or a class, "" where it is missing. The
kind says what is wrong with a cell, one kind at most: for a number, the first of NUMBER_KINDS that holds, a
number in its bounds having none; for a level, none where it is declared, else the first of LEVEL_KINDS.
None of them ever raises or warns, or looks at another cell: whatever one record holds, all others are read
alike.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.errors import DataError, InvalidInput

# What the declared type of a column says: numbers or truth values, dates, durations, complex numbers, or
# nothing (text, objects, categories, lists).
Kind = Literal["numbers", "dates", "durations", "complex", "any"]
Found = TypeVar("Found")

# What may be wrong with a cell, in the order in which it is decided. A declared level is never wrong.
NUMBER_KINDS = ("below", "above", "missing", "decimal comma", "unreadable")
LEVEL_KINDS = ("missing", "undeclared")
_COMMA, _UNREADABLE, _NO_NUMBER = (NUMBER_KINDS.index(k) for k in ("decimal comma", "unreadable", "missing"))

PLAIN_DECIMAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
TRUTH = {"true": 1.0, "false": 0.0}
_MISSING = ("nan", "NaN", "<NA>", "NaT")  # how the missing values of numpy and pandas print
_MISSING_WORDS = frozenset(  # how people write that there is no value
    ("", "na", "n/a", "#n/a", "nan", "-nan", "<na>", "nat", "null", "none", "-", "--", ".", "?")
)
# 1,5 or 1.234,5 or 1 234,5
_DECIMAL_COMMA = re.compile(
    r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:[.'\u00a0\u202f ][0-9]{3})+)?,[0-9]+(?:[eE][+-]?[0-9]+)?"
)


@dataclass(frozen=True, eq=False)
class Cells:
    """One column: float64 numbers (NaN: missing), or dates, where its type promises them; else anything."""

    values: FloatArray | NDArray[np.datetime64] | Sequence[Any]
    kind: Kind

    def __len__(self) -> int:
        return len(self.values)

    @property
    def floats(self) -> FloatArray | None:
        """The numbers as an array, where they are one."""
        values: Any = self.values
        return values if isinstance(values, np.ndarray) and values.dtype.kind == "f" else None

    @property
    def dates(self) -> NDArray[np.datetime64] | None:
        """The dates as an array, where they are one."""
        values: Any = self.values
        return values if isinstance(values, np.ndarray) and values.dtype.kind == "M" else None

    def listed(self) -> Sequence[Any]:
        """The cells one by one."""
        if isinstance(self.values, np.ndarray):
            # `tolist` would make integers of nanoseconds
            return list(self.values) if self.values.dtype.kind == "M" else list(self.values.tolist())
        return self.values

    def numbers(self) -> FloatArray:
        """`number` of every cell."""
        found = _each(self.listed()) if self.floats is None else self.floats
        return found + 0.0  # −0 is 0: categories of pandas hold one of the two for both

    def levels(self) -> list[str]:
        """`level` of every cell."""
        return each_cell(level, self.listed())

    def positions(self, keys: Mapping[str, int], *, fold: bool = False, other: int = -1) -> NDArray[np.intp]:
        """keys[level] of every cell, `other` where its level is not among them, −1 where it is missing, too.

        With `fold`, the keys are in lower case, and levels are looked up so.
        """
        if (floats := self.floats) is not None:
            found = np.where(np.isnan(floats), -1, other)
            for key, position in keys.items():
                if (value := value_named(key)) is not None:
                    found[floats == value] = position
            return found.astype(np.intp)

        def place(text: str) -> int:
            return keys.get(text.casefold() if fold else text, -1 if is_missing(text) else other)

        return np.array(each_cell(place, self.levels()), dtype=np.intp)

    def number_kinds(self, found: FloatArray, low: float, high: float) -> NDArray[np.intp]:
        """The place in NUMBER_KINDS of every cell, read as `found`; −1 for one in [low, high]."""
        kinds = np.where(found < low, 0, np.where(found > high, 1, -1))
        lost = np.flatnonzero(np.isnan(found))
        kinds[lost] = [
            _NO_NUMBER if is_missing(text) else _COMMA if _DECIMAL_COMMA.fullmatch(text) else _UNREADABLE
            for text in self._at(lost).levels()
        ]
        return kinds

    def level_kinds(self, found: NDArray[np.intp]) -> NDArray[np.intp]:
        """The place in LEVEL_KINDS of every cell; of a declared level, len(LEVEL_KINDS) + found."""
        undeclared = np.flatnonzero(found < 0)
        kinds = found + len(LEVEL_KINDS)
        kinds[undeclared] = [0 if is_missing(text) else 1 for text in self._at(undeclared).levels()]
        return kinds

    def _at(self, places: NDArray[np.intp]) -> Cells:
        if isinstance(self.values, np.ndarray):
            return Cells(self.values[places], self.kind)
        return Cells([self.values[i] for i in places.tolist()], self.kind)


def each_cell(of: Callable[[Any], Found], values: Sequence[Any]) -> list[Found]:
    """of(cell) of every cell, in order; a text is read once: a column has few different ones."""
    once = cache(of)
    return [once(cell) if type(cell) is str else of(cell) for cell in values]


def number(cell: object) -> float:
    """The number a cell stands for; NaN where it stands for none."""
    if type(cell) is float:
        return cell
    if isinstance(cell, str | bytes):
        text = text_of(cell)
        try:
            return float(text)
        except ValueError:
            return TRUTH.get(text.strip().lower(), math.nan)
    if not isinstance(cell, _REAL) or isinstance(cell, np.timedelta64):
        return math.nan
    try:
        value: Any = cell  # of a subclass of int or float its value, whatever it says when it is asked
        if isinstance(cell, int):
            value = int.__index__(cell)
        elif isinstance(cell, float):
            value = float.__float__(cell)
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    except Exception:  # a signalling NaN, or a class that answers as it likes
        return math.nan


def level(cell: object) -> str:
    """The text by which a cell names a level; "" where the cell is missing.

    Space around it is dropped. Numbers, plain decimals in text and truth values are named by their value as a
    double: 1, 1.0, "1", "01", True and "true" are one level, and so are 10**16 and 1e16, however a data frame
    happens to store them. A date without a time of day is named as 2020-12-31.
    """
    if isinstance(cell, str | bytes):
        text = text_of(cell).rstrip("\0").strip()  # numpy drops the NUL characters at the end of a text
        if PLAIN_DECIMAL.fullmatch(text):
            return _named(float(text))
        truth = TRUTH.get(text.lower())
        return text if truth is None else _named(truth)
    if cell is None or isinstance(cell, CONTAINERS):
        return ""
    if isinstance(cell, _REAL) and not isinstance(cell, np.timedelta64):
        return _named(number(cell))
    return level(printed(cell))


def kind_counts(kinds: NDArray[np.intp], names: Sequence[str]) -> dict[str, int]:
    """{name: cells} of a column whose cells have these places among the names; only what occurs."""
    known = kinds[(kinds >= 0) & (kinds < len(names))]
    return {names[k]: count for k, count in enumerate(np.bincount(known).tolist()) if count}


def check_numbers(kind: Kind, what: str) -> None:
    """Refuse a column whose declared type can never hold a number; the cells are not looked at."""
    if kind == "complex":
        raise DataError(f"Complex data not supported: {what} has a complex type, pass real numbers")
    if kind in ("dates", "durations"):
        raise DataError(
            f"{what} has a type of {kind}, which are no numbers: declare it as a date, convert it, or leave "
            "it out"
        )


def is_missing(text: str) -> bool:
    """Whether a text is empty, or a word for no value."""
    return text.lower() in _MISSING_WORDS


_REAL = (int, float, np.bool_, np.integer, np.floating, Decimal, Fraction)
CONTAINERS = (np.ndarray, list, tuple, dict, set, frozenset)


def _each(values: Sequence[Any]) -> FloatArray:
    if set(map(type, values)) <= {float, int, bool, str}:
        with contextlib.suppress(ValueError, OverflowError):  # the same numbers, faster
            return np.fromiter(map(float, values), dtype=np.float64, count=len(values))
    return np.fromiter(map(number, values), dtype=np.float64, count=len(values))


def text_of(cell: str | bytes) -> str:
    """A text as it is, bytes as ASCII; "" where they are none."""
    if isinstance(cell, str):
        return str.__str__(cell)  # not what a subclass makes of it
    with contextlib.suppress(UnicodeDecodeError):
        return bytes.__bytes__(cell).decode("ascii")
    return ""


def _named(value: float) -> str:
    """The name of a number as a level, as Python prints it: 1, 0.5, 1e+16; "" of NaN."""
    return "" if math.isnan(value) else repr(value + 0.0).removesuffix(".0")  # −0 is 0


def value_named(key: str) -> float | None:
    """The number whose `level` this is; None for any other text."""
    with contextlib.suppress(ValueError):
        if _named(value := float(key)) == key:
            return value
    return None


def printed(cell: Any) -> str:
    """str(cell) on one line, dates as 2020-12-31; "" for a missing value and for what cannot say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(cell, np.datetime64):
                cell = cell.astype("datetime64[us]").item()
                if isinstance(cell, int):  # beyond the years that Python knows
                    return ""
            if isinstance(cell, datetime.datetime) and cell.tzinfo is None and str(cell) not in _MISSING:
                midnight = cell.time() == datetime.time() and not getattr(cell, "nanosecond", 0)
                return cell.date().isoformat() if midnight else str(cell)
            text = str(cell).strip()
    except Exception:
        return ""
    return "" if cell is None or text in _MISSING else text


# Numbers as people write them: 1.234,5 with a decimal comma, and codes such as −9 for no value.


# What a sign between groups of three digits may look like: a space need not break, an apostrophe may be bent.
_GROUPS = {".": ".", ",": ",", " ": " \u00a0\u202f", "'": "'\u2019"}


@dataclass(frozen=True)
class Numerals:
    """How the text of a cell is read as a number, and which numbers say that there is none.

    A text in which the decimal sign or a group of thousands stands where it cannot is no number: under a
    decimal comma, neither 1.5 nor 1,2,3 is one; under thousands in points, 1.234 is 1234 and 1.5 is none.
    Cells that are numbers already are what they are.
    """

    decimal: str = "."
    thousands: str = ""
    missing_codes: tuple[float, ...] = ()

    @staticmethod
    def check(decimal: Any, thousands: Any, what: str) -> None:
        """Refuse signs of a declaration that are none, or one for both."""
        if decimal is not None:
            check_decimal(decimal, what)
        if thousands == "":
            return
        if not isinstance(thousands, str) or thousands not in _GROUPS:
            raise InvalidInput(f"""{what}: the sign between thousands must be ".", ",", " " or "'\"""")
        if thousands == decimal:
            raise InvalidInput(f"{what}: thousands and decimal are the same sign: declare two different ones")

    def numbers(self, cells: Cells) -> FloatArray:
        """The number of every cell, NaN where it has none."""
        found = self._all(cells)
        return np.where(np.isin(found, self.missing_codes), np.nan, found) if self.missing_codes else found

    def kinds(self, cells: Cells, low: float, high: float) -> NDArray[np.intp]:
        """The place in NUMBER_KINDS of every cell, −1 for a number in [low, high]."""
        found = self._all(cells)
        kinds = cells.number_kinds(found, low, high)
        if self.decimal != ".":
            kinds[kinds == _COMMA] = _UNREADABLE
        kinds[np.isin(found, self.missing_codes)] = _NO_NUMBER
        return kinds

    def _all(self, cells: Cells) -> FloatArray:
        if cells.floats is not None or (self.decimal == "." and not self.thousands):
            return cells.numbers()
        values = cells.listed()
        if not self.thousands and set(map(type, values)) <= {str}:  # the same texts, faster
            plain: list[object] = ["" if "." in text else text.replace(",", ".") for text in values]
        else:
            plain = [self.plain(cell) if isinstance(cell, str | bytes) else cell for cell in values]
        return Cells(plain, cells.kind).numbers()

    def plain(self, cell: str | bytes) -> str:
        """The text with a point and no groups; "" where the signs stand where they cannot."""
        text = text_of(cell).strip()
        if self.thousands and self._grouped.search(text):
            if not self._whole.fullmatch(text):
                return ""
            text = self._grouped.sub("", text)
        if self.decimal == ".":
            return text
        return "" if "." in text else text.replace(",", ".")

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        return re.compile(f"[{_GROUPS[self.thousands]}]")

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        group, point = self._grouped.pattern, re.escape(self.decimal)
        return re.compile(rf"[+-]?[0-9]{{1,3}}(?:{group}[0-9]{{3}})+(?:{point}[0-9]*)?(?:[eE][+-]?[0-9]+)?")


def check_decimal(decimal: Any, what: str) -> None:
    if decimal not in (".", ","):
        raise InvalidInput(f'{what}: the decimal sign must be "." or ","')
