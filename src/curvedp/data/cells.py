"""The number, the level and the kind that one cell stands for: one function of each, for every entrance.

number(cell) is what Python's `float` reads ("inf" included), 1 or 0 where the cell says true or false, and
NaN otherwise. level(cell) is the text by which a cell names a level or a class, "" where it is missing. The
kind says what is wrong with a cell, one kind at most: for a number, the first of NUMBER_KINDS that holds, a
number in its bounds having none; for a level, none where it is declared, else the first of LEVEL_KINDS.
None of them ever raises or warns, or looks at another cell: whatever one record holds, all others are read
alike.
"""

from __future__ import annotations

import datetime
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import BoolArray, FloatArray
from curvedp.errors import DataError, InvalidInput

# What the declared type of a column says: numbers or truth values, dates, durations, complex numbers, or
# nothing (text, objects, categories, lists).
Kind = Literal["numbers", "dates", "durations", "complex", "any"]

# What may be wrong with a cell, in the order in which it is decided. A declared level is never wrong.
NUMBER_KINDS = ("below", "above", "missing", "decimal comma", "unreadable")
LEVEL_KINDS = ("missing", "undeclared")
_NO_KIND = -1

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
    """One column: float64 numbers (NaN: missing) or dates where its type promises them, else a list of
    anything."""

    values: FloatArray | NDArray[np.datetime64] | Sequence[Any]
    kind: Kind

    def __len__(self) -> int:
        return len(self.values)

    @property
    def floats(self) -> FloatArray | None:
        """The numbers as an array, where they are one."""
        return self._array("f")

    @property
    def dates(self) -> NDArray[np.datetime64] | None:
        """The dates as an array, where they are one."""
        return self._array("M")

    def _array(self, kind: str) -> NDArray[Any] | None:
        values = self.values
        return values if isinstance(values, np.ndarray) and values.dtype.kind == kind else None

    def listed(self) -> Sequence[Any]:
        """The cells one by one."""
        if isinstance(self.values, np.ndarray):
            # `tolist` would make integers of nanoseconds
            return list(self.values) if self.values.dtype.kind == "M" else list(self.values.tolist())
        return self.values


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
        return float(_plain(cell))
    except OverflowError:
        return math.inf if _is_positive(cell) else -math.inf
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


def numbers(cells: Cells) -> FloatArray:
    """`number` of every cell."""
    floats = cells.floats
    found = _each(cells.listed()) if floats is None else floats
    return found + 0.0  # −0 is 0: categories of pandas hold one of the two for both


def levels(cells: Cells) -> list[str]:
    """`level` of every cell."""
    values = cells.listed()
    texts = {cell for cell in values if type(cell) is str}
    known = {cell: level(cell) for cell in texts}  # a column has few different texts
    return [known[cell] if type(cell) is str else level(cell) for cell in values]


def positions(
    cells: Cells, keys: Mapping[str, int], *, fold: bool = False, other: int = -1
) -> NDArray[np.intp]:
    """keys[level] of every cell, `other` where its level is not among them, −1 where it is missing, too.

    With `fold`, the keys are in lower case, and levels are looked up so.
    """
    floats = cells.floats
    if floats is not None:
        found = np.where(np.isnan(floats), -1, other)
        for key, position in keys.items():
            value = _value_named(key)
            if value is not None:
                found[floats == value] = position
        return found.astype(np.intp)
    texts = levels(cells)
    known = {
        text: keys.get(text.casefold() if fold else text, -1 if is_missing(text) else other)
        for text in set(texts)
    }
    return np.fromiter((known[text] for text in texts), np.intp, len(texts))


def number_kinds(cells: Cells, found: FloatArray, low: float, high: float) -> NDArray[np.intp]:
    """The place in NUMBER_KINDS of every cell, −1 for one in [low, high]; `found`: what each was read as."""
    kinds = np.where(found < low, 0, np.where(found > high, 1, _NO_KIND))
    lost = np.flatnonzero(np.isnan(found))
    kinds[lost] = np.fromiter(map(_kind_of_no_number, _levels_at(cells, lost)), np.intp, len(lost))
    return kinds


def level_kinds(cells: Cells, found: NDArray[np.intp]) -> NDArray[np.intp]:
    """The place in LEVEL_KINDS of every cell; len(LEVEL_KINDS) + found, the position of a declared level."""
    undeclared = np.flatnonzero(found < 0)
    missing = np.fromiter(map(is_missing, _levels_at(cells, undeclared)), np.bool_, len(undeclared))
    kinds = found + len(LEVEL_KINDS)
    kinds[undeclared] = np.where(missing, 0, 1)
    return kinds


def kind_counts(kinds: NDArray[np.intp], names: Sequence[str]) -> dict[str, int]:
    """{name: cells} of a column whose cells have these places among the names; only what occurs."""
    known = kinds[(kinds >= 0) & (kinds < len(names))]
    return {names[k]: count for k, count in enumerate(np.bincount(known).tolist()) if count}


def _levels_at(cells: Cells, places: NDArray[np.intp]) -> list[str]:
    """`level` of some of the cells."""
    values = cells.values
    if isinstance(values, np.ndarray):
        return levels(Cells(values[places], cells.kind))
    return levels(Cells([values[i] for i in places.tolist()], cells.kind))


def is_number_level(key: str) -> bool:
    """Whether a number can have this `level`."""
    return _value_named(key) is not None


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


def _kind_of_no_number(text: str) -> int:
    """The place in NUMBER_KINDS of a cell that is no number, by its `level`."""
    if is_missing(text):
        return 2
    return 3 if _DECIMAL_COMMA.fullmatch(text) else 4


_REAL = (int, float, np.bool_, np.integer, np.floating, Decimal, Fraction)
CONTAINERS = (np.ndarray, list, tuple, dict, set, frozenset)


def _each(values: Sequence[Any]) -> FloatArray:
    if set(map(type, values)) <= {float, int, bool, str}:
        try:  # the same numbers, faster
            return np.fromiter(map(float, values), dtype=np.float64, count=len(values))
        except (ValueError, OverflowError):
            pass
    return np.fromiter(map(number, values), dtype=np.float64, count=len(values))


def text_of(cell: str | bytes) -> str:
    """A text as it is, bytes as ASCII; "" where they are none."""
    if isinstance(cell, str):
        return str.__str__(cell)  # not what a subclass makes of it
    try:
        return bytes.__bytes__(cell).decode("ascii")
    except UnicodeDecodeError:
        return ""


def _plain(cell: Any) -> Any:
    """The value of a subclass of int or float, whatever it says when it is asked."""
    if isinstance(cell, int):
        return int.__index__(cell)
    return float.__float__(cell) if isinstance(cell, float) else cell


def _is_positive(cell: Any) -> bool:
    """The sign of a number too large for a double."""
    try:
        return bool(_plain(cell) > 0)
    except Exception:
        return True


def _named(value: float) -> str:
    """The name of a number as a level, as Python prints it: 1, 0.5, 1e+16; "" of NaN."""
    return "" if math.isnan(value) else repr(value + 0.0).removesuffix(".0")  # −0 is 0


def _value_named(key: str) -> float | None:
    """The number whose `_named` this is; None for any other text."""
    try:
        value = float(key)
    except ValueError:
        return None
    return value if key and _named(value) == key else None


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
DECIMALS = (".", ",")
_COMMA, _UNREADABLE, _NO_NUMBER = (NUMBER_KINDS.index(k) for k in ("decimal comma", "unreadable", "missing"))


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

    def numbers(self, cells: Cells) -> FloatArray:
        """The number of every cell, NaN where it has none."""
        found = self._all(cells)
        return np.where(self._is_code(found), np.nan, found) if self.missing_codes else found

    def kinds(self, cells: Cells, low: float, high: float) -> NDArray[np.intp]:
        """The place in NUMBER_KINDS of every cell, −1 for a number in [low, high]."""
        found = self._all(cells)
        kinds = number_kinds(cells, found, low, high)
        if self.decimal != ".":
            kinds[kinds == _COMMA] = _UNREADABLE
        kinds[self._is_code(found)] = _NO_NUMBER
        return kinds

    def _is_code(self, found: FloatArray) -> BoolArray:
        return np.isin(found, self.missing_codes)

    def _all(self, cells: Cells) -> FloatArray:
        if cells.floats is not None or (self.decimal == "." and not self.thousands):
            return numbers(cells)
        values = cells.listed()
        if not self.thousands and set(map(type, values)) <= {str}:  # the same texts, faster
            plain: list[object] = ["" if "." in text else text.replace(",", ".") for text in values]
        else:
            plain = [self.plain(cell) if isinstance(cell, str | bytes) else cell for cell in values]
        return numbers(Cells(plain, cells.kind))

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


def numerals(decimal: str | None, thousands: str, codes: tuple[float, ...]) -> Numerals:
    """With the decimal sign that the thousands leave, where none is declared."""
    return Numerals(decimal or ("," if thousands == "." else "."), thousands, codes)


def check_decimal(decimal: Any, what: str) -> None:
    if decimal not in DECIMALS:
        raise InvalidInput(f'{what}: the decimal sign must be "." or ","')


def check_thousands(thousands: Any, decimal: str | None, what: str) -> None:
    if thousands == "":
        return
    if not isinstance(thousands, str) or thousands not in _GROUPS:
        raise InvalidInput(f"""{what}: the sign between thousands must be ".", ",", " " or "'\"""")
    if thousands == decimal:
        raise InvalidInput(f"{what}: thousands and decimal are the same sign: declare two different ones")
