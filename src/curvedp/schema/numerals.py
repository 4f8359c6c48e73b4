"""Numbers as people write them: 1.234,5 with a decimal comma, and codes such as −9 for no value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import BoolArray, FloatArray
from curvedp.errors import InvalidInput
from curvedp.schema.cells import NUMBER_KINDS, Cells, number_kinds, numbers, text_of

# What a sign between groups of three digits may look like: a space need not break, an apostrophe may be bent.
_GROUPS = {".": ".", ",": ",", " ": " \u00a0\u202f", "'": "'\u2019"}
DECIMALS = (".", ",")
_COMMA, _UNREADABLE, _MISSING = (NUMBER_KINDS.index(k) for k in ("decimal comma", "unreadable", "missing"))


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

    @property
    def is_plain(self) -> bool:
        """Whether every cell is what Python's `float` reads."""
        return self == _PLAIN

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
        kinds[self._is_code(found)] = _MISSING
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


_PLAIN = Numerals()


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
