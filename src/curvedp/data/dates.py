"""Columns of dates and of truth values; all kinds of columns."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import BoolArray, FloatArray
from curvedp.data.cells import LEVEL_KINDS, NUMBER_KINDS, Cells, each_cell, level, text_of, value_named
from curvedp.data.columns import Categorical, Declared, Ignored, Numeric, is_list, is_text, level_text, settle
from curvedp.errors import InvalidInput

ISO = "iso"
PARTS = ("days", "year", "month", "month_number", "weekday")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEVELS = {"month": [f"month={i}" for i in range(1, 13)], "weekday": [f"weekday={day}" for day in WEEKDAYS]}
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_LAST = datetime.date.max.toordinal()
_DIRECTIVE = re.compile("%(.?)")
_KNOWN = "YymdjHMSfz%"  # what is read alike in every language
_WHOLE = re.compile(r"([0-9]+)\.0*")


@dataclass(frozen=True)
class Date(Declared):
    """A date between public bounds.

    A cell is a date by its type, or text that the format reads; of a time of day the date is kept. A date
    outside the bounds is moved to the nearer one, and what cannot be read counts as missing.

    Parameters
    ----------
    name, source
        As in `Numeric`.
    low, high : date or str
        The first and the last day, as 2020-12-31; public, never from the data.
    format : str, default="iso"
        How a date is written: "iso" (2020-12-31, also with a time), or codes such as "%d.%m.%Y".
    parts : sequence of {"days", "year", "month", "month_number", "weekday"}, default=("days",)
        What the model learns from: the days since `low`, the year, the month as one of twelve levels or as
        a number from 1 to 12, the day of the week as one of seven levels.
    missing : {"middle", "indicator"}, default="middle"
        What a missing cell becomes: the middle of every number and no level at all; or that and a 1 in a
        column of its own, "when?missing", which has 0 elsewhere.

    Examples
    --------
    >>> from curvedp import Date, Schema
    >>> visit = Date("visit", "2020-01-01", "2024-12-31", format="%d.%m.%Y", parts=["days", "year"])
    >>> visit.encoded_names
    ('visit.days', 'visit.year')
    >>> Schema([visit]).read({"visit": ["02.01.2020", "31.12.1999", "soon"]}).tolist()
    [[1.0, 2020.0], [0.0, 2020.0], [nan, nan]]
    """

    name: str
    low: datetime.date
    high: datetime.date
    format: str = ISO
    parts: tuple[str, ...] = ("days",)
    missing: Literal["middle", "indicator"] = field(default="middle", kw_only=True)
    source: str = field(default="", repr=False, kw_only=True)

    kind = "date"
    cell_kinds = NUMBER_KINDS
    refused = (("durations", "complex"), "which are no dates: convert it")

    def __post_init__(self) -> None:
        self._check("middle", "indicator")
        low, high = (_declared(end, self.what) for end in (self.low, self.high))
        if low >= high:
            raise InvalidInput(f"{self.what}: the first day must lie before the last one")
        _check_format(self.format, self.what)
        if not is_list(self.parts) or not len(self.parts) or not set(self.parts) <= set(PARTS):
            raise InvalidInput(f"{self.what}: parts must be a list of some of {', '.join(PARTS)}")
        settle(self, low=low, high=high, parts=tuple(part for part in PARTS if part in self.parts))
        if "year" in self.parts and low.year == high.year:
            raise InvalidInput(f"{self.what}: all its dates are of one year: leave the part year out")

    @property
    def last_day(self) -> int:
        """Days from the first to the last."""
        return (self.high - self.low).days

    @property
    def _own(self) -> Sequence[tuple[str, tuple[float, float]]]:
        ends = {
            "days": (0.0, float(self.last_day)),
            "year": (float(self.low.year), float(self.high.year)),
            "month_number": (1.0, 12.0),
        }
        return [
            (f"{self.name}.{text}", ends.get(part, (0.0, 1.0)))
            for part in self.parts
            for text in _LEVELS.get(part, [part])
        ]

    @property
    def blocks(self) -> tuple[range, ...]:
        """The months, the days of the week."""
        owners = [part for part in self.parts for _ in _LEVELS.get(part, [part])]
        spans = ((owners.index(part), owners.count(part)) for part in self.parts if part in _LEVELS)
        return tuple(range(start, start + count) for start, count in spans)

    def days(self, cells: Cells) -> FloatArray:
        """Days since the first, NaN where a cell is no date of the years 1 … 9999; not clipped."""
        if cells.dates is not None:
            dates = cells.dates.astype("datetime64[D]")
            found = dates.astype(np.int64).astype(np.float64) + _EPOCH
            found[np.isnat(dates) | (found < 1) | (found > _LAST)] = np.nan
            return found - self.low.toordinal()
        days = each_cell(partial(_ordinal, format=self.format), cells.listed())
        return np.array(days, dtype=np.float64) - self.low.toordinal()

    def _columns(self, cells: Cells) -> tuple[FloatArray, BoolArray]:
        """The parts of dates within the bounds, one after another; of an unknown one NaN, or no level."""
        days = np.clip(self.days(cells), 0.0, self.last_day)
        known = ~np.isnan(days)
        since = np.where(known, days, 0.0).astype(np.int64) + self.low.toordinal()
        months = (since - _EPOCH).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        values = {
            "days": since - self.low.toordinal(),
            "year": months // 12 + 1970,
            "month": months % 12,
            "month_number": months % 12 + 1,
            "weekday": (since + 6) % 7,
        }
        parts = [
            (values[part][:, None] == np.arange(len(_LEVELS[part]))) & known[:, None]
            if part in _LEVELS
            else np.where(known, values[part], np.nan)[:, None]
            for part in self.parts
        ]
        return np.hstack(parts).astype(np.float64), ~known

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        return cells.number_kinds(self.days(cells), 0.0, float(self.last_day))

    def _range(self) -> dict[str, Any]:
        return {"bounds": [self.low.isoformat(), self.high.isoformat()]}


def _ordinal(cell: Any, format: str) -> float:
    """The day that a cell says, NaN where it says none, whatever it makes of being asked; by year, month and
    day: what a class of its own, such as that of pandas, keeps beside them differs."""
    if isinstance(cell, datetime.date | np.datetime64):
        with suppress(Exception):
            day = cell.astype("datetime64[D]").item() if isinstance(cell, np.datetime64) else cell
            return float(datetime.date(int(day.year), int(day.month), int(day.day)).toordinal())
        return np.nan
    text = (text_of(cell) if isinstance(cell, str | bytes) else level(cell)).strip()
    whole = _WHOLE.fullmatch(text)
    for tried in [text] if whole is None else [text, whole[1]]:  # 20201231.0, a number in a column of floats
        with suppress(Exception):
            if format == ISO:
                return float(datetime.datetime.fromisoformat(tried).toordinal())
            return float(datetime.datetime.strptime(tried, format).toordinal())
    return np.nan


def _declared(value: Any, what: str) -> datetime.date:
    """A bound as somebody declared it."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.date.fromisoformat(value)
    if not isinstance(value, datetime.date) or value != value:
        raise InvalidInput(f'{what}: bounds must be two dates: write bounds = ["2020-01-01", "2024-12-31"]')
    return datetime.date(value.year, value.month, value.day)


def _check_format(format: Any, what: str) -> None:
    if format == ISO:
        return
    if not (is_text(format) and "\0" not in format and len(format) <= 100):
        raise InvalidInput(f'{what}: format must be text: write format = "%d.%m.%Y"')
    codes = _DIRECTIVE.findall(format)
    if not all(code and code in _KNOWN for code in codes):
        raise InvalidInput(
            f"{what}: a format is made of %Y, %y, %m, %d, %j, %H, %M, %S, %f and %z: names of months and "
            "days differ from machine to machine"
        )
    named = [code for code in codes if code != "%"]
    if len(set(named)) < len(named) or not {"Y", "y"} & set(named):
        raise InvalidInput(f'{what}: a format names a year, and nothing twice: write format = "%d.%m.%Y"')


_ALWAYS = {"0": 0, "1": 1}
_WORDS = {"false": 0, "f": 0, "no": 0, "n": 0, "true": 1, "t": 1, "yes": 1, "y": 1, **_ALWAYS}


@dataclass(frozen=True)
class Boolean(Declared):
    """False or true, as 0 or 1.

    Parameters
    ----------
    name, source
        As in `Numeric`.
    words : pair of str, optional
        What a cell says for false and for true, such as ("nein", "ja"); 0 and 1 and truth values are read,
        too, unless a word is itself a number. Without words, false, f, no, n, 0 and true, t, yes, y, 1 are
        read. Upper and lower case are one. Anything else counts as missing.
    missing : {"middle", "indicator"}, default="middle"
        What a missing cell becomes: 1/2; or that and a 1 in a second column, "smoker?missing".

    Examples
    --------
    >>> from curvedp import Boolean, Schema
    >>> Schema([Boolean("smoker", ["nein", "ja"])]).read({"smoker": ["Ja", "nein", True, "?"]}).tolist()
    [[1.0], [0.0], [1.0], [nan]]
    """

    name: str
    words: tuple[str, str] | None = None
    missing: Literal["middle", "indicator"] = field(default="middle", kw_only=True)
    source: str = field(default="", repr=False, kw_only=True)

    kind = "boolean"
    cell_kinds = LEVEL_KINDS
    refused = (("dates", "durations", "complex"), "which say neither true nor false")

    def __post_init__(self) -> None:
        self._check("middle", "indicator")
        if self.words is None:
            return
        words: Any = self.words
        told = is_list(words) and all(isinstance(word, str | int | float) for word in words)
        texts = [level_text(word) for word in words] if told else []
        keys = {level(text).casefold() for text in texts}
        if len(texts) != 2 or len(keys) != 2 or "" in keys or not all(map(is_text, texts)):
            raise InvalidInput(
                f"{self.what}: words must be two different texts, that of false first: write words = "
                '["no", "yes"]'
            )
        settle(self, words=tuple(texts))

    @property
    def switched(self) -> tuple[int, ...]:
        return tuple(range(self.size))

    @property
    def levels(self) -> tuple[str, str]:
        """The words for false and true."""
        return ("false", "true") if self.words is None else self.words

    @property
    def _own(self) -> Sequence[tuple[str, tuple[float, float]]]:
        return [(self.name, (0.0, 1.0))]

    def places(self, cells: Cells) -> NDArray[np.intp]:
        """0 for false, 1 for true, −1 where a cell says neither."""
        return cells.positions(self._keys, fold=True)

    def _columns(self, cells: Cells) -> tuple[FloatArray, BoolArray]:
        found = self.places(cells)
        return np.where(found < 0, np.nan, found.astype(np.float64))[:, None], found < 0

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        return cells.level_kinds(self.places(cells))

    @cached_property
    def _keys(self) -> Mapping[str, int]:
        """What a cell may say, by `level` in lower case."""
        if self.words is None:
            return _WORDS
        own = {level(word).casefold(): i for i, word in enumerate(self.words)}
        return own if any(value_named(key) is not None for key in own) else own | _ALWAYS


Feature = Numeric | Categorical | Date | Boolean
Column = Feature | Ignored
TargetColumn = Numeric | Categorical | Boolean
