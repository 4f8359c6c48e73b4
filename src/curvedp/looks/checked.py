"""What a check says: shares with the interval of their noise, and a verdict per column in plain words.

All intervals hold together with probability CONFIDENCE over the noise: c ± zσ for every count, and for the
number of rows where it is released, by the union bound. A share is named where its lower end is above 0. So a
table without a fault is blamed for any at all with probability at most (1 − CONFIDENCE)/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

import numpy as np
from scipy.special import ndtri

from curvedp.arrays import FloatArray
from curvedp.looks.cells import CellLayout, CountedColumn
from curvedp.privacy.guarantee import Guarantee
from curvedp.receipt import Receipt
from curvedp.record import charged
from curvedp.schema.cells import LEVEL_KINDS
from curvedp.schema.columns import Numeric, shown
from curvedp.schema.dates import Date
from curvedp.schema.kinds import Feature

CONFIDENCE = 0.95
HIDDEN = 0.5  # a column of which so many cells may be bad is not called fine
CHANCE = 0.95  # with which a share that "can be seen" is named

Cell: TypeAlias = str | float | None

_WORDS = {
    "below": "lie below {low}, the lower bound",
    "above": "lie above {high}, the upper bound",
    "missing": "are missing",
    "decimal comma": "could not be read: is the decimal sign a comma?",
    "unreadable": "could not be read as numbers: are there words, units or other signs in them?",
    "unreadable date": "could not be read as dates: are they written in the declared format?",
    "undeclared": "name a level that is not declared: compare the spelling with the codebook",
}


@dataclass(frozen=True)
class NoisyCounts:
    """What a check releases: the counts of all columns, one after another, and the number of rows."""

    counts: FloatArray
    rows: float


def width_of_intervals(layout: CellLayout) -> float:
    """z: that many σ to either side cover all counts at once."""
    numbers = layout.size + (not layout.neighbours.count_is_public)
    return -float(ndtri((1 - CONFIDENCE) / (2 * numbers)))


@dataclass(frozen=True)
class Share:
    """The share of one kind of cells in one column.

    Attributes
    ----------
    kind : str
        What is wrong with the cells; the class where `is_class`.
    is_class : bool
        Whether it is the share of a class of the target, which is nothing wrong.
    low, high : float
        The interval of its noise.
    estimate : float
        The noisy share, brought into [0, 1].
    """

    kind: str
    is_class: bool
    low: float
    high: float
    estimate: float

    @property
    def seen(self) -> bool:
        """Whether it stands out of its noise."""
        return self.low > 0

    @property
    def label(self) -> str:
        """What the cells are."""
        if self.is_class:
            return f"class {self.kind}"
        return f"{self.kind} the bounds" if self.kind in ("below", "above") else self.kind

    @property
    def interval(self) -> str:
        """[low, high] as percentages, rounded outwards."""
        unit = 10.0**self._digits
        low, high = math.floor(100 * self.low * unit) / unit, math.ceil(100 * self.high * unit) / unit
        return f"{low:.{self._digits}f} to {high:.{self._digits}f} %"

    @property
    def _digits(self) -> int:
        return min(max(math.ceil(-math.log10(max(50 * (self.high - self.low), 1e-9))), 0), 3)

    @property
    def words(self) -> str:
        """As a percentage, with no more digits than the noise leaves; "below 2 %" where it is not seen."""
        digits = self._digits
        if self.seen:
            return f"{100 * self.estimate:.{digits}f} %"
        least = math.ceil(100 * self.high * 10**digits) / 10**digits
        return f"below {min(least, 100):.{digits}f} %"


@dataclass(frozen=True)
class ColumnCheck:
    """One column of a check.

    Attributes
    ----------
    name : str
        The column.
    shares : tuple of Share
        Every kind of cells that was counted.
    verdict : str
        What stands out of the noise, in words.
    """

    name: str
    shares: tuple[Share, ...]
    verdict: str

    @property
    def unusual(self) -> bool:
        """Whether anything was seen that should not be there."""
        return any(share.seen for share in self.shares if not share.is_class)


@dataclass(frozen=True)
class TableCheck:
    """The private check of a table.

    Parameters
    ----------
    columns : tuple of ColumnCheck
        In the order of the schema, the target last.
    rows : float
        The number of rows: exact where it is public, noisy otherwise.
    sigma : float
        The standard deviation of the noise on every count, in rows.
    visible : float
        The share that would be named with a chance of 95 %; smaller ones may go unnoticed.
    privacy : Guarantee
        What the release promises.
    receipt : Receipt or None
        Where it was charged; None without a ledger.

    Examples
    --------
    >>> from curvedp.schema import Numeric, Schema
    >>> schema = Schema([Numeric("price", 0, 100)])
    >>> found = schema.check({"price": ["1,5", "12,25"] * 5000}, epsilon=0.5, random_state=0)
    >>> found.verdicts["price"]
    "about 99.8 % of 'price' could not be read: is the decimal sign a comma?"
    """

    columns: tuple[ColumnCheck, ...]
    rows: float
    sigma: float
    visible: float
    privacy: Guarantee
    receipt: Receipt | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "guarantee": self.privacy.to_dict(),
            "rows": self.rows,
            "rows_are_noisy": not self.privacy.neighbours.count_is_public,
            "sigma": self.sigma,
            "visible_share": self.visible,
            "verdicts": self.verdicts,
            "unusual": [column.name for column in self.columns if column.unusual],
            "shares": self.table(),
            **charged(self.receipt),
        }

    @property
    def verdicts(self) -> dict[str, str]:
        """What was seen, by column."""
        return {column.name: column.verdict for column in self.columns}

    @property
    def summary(self) -> str:
        """What the noise allowed to see."""
        known = self.privacy.neighbours.count_is_public
        count = f"{self.rows:,.0f} rows" if known else f"about {self.rows:,.0f} rows (noisy)"
        sight = (
            f"shares of {percent(self.visible)} and more are named with a chance of {100 * CHANCE:.0f} %, "
            "smaller ones may go unnoticed"
            if self.visible < 1
            else "even a whole column may go unnoticed, so spend more on a check, or nothing"
        )
        return (
            f"{count}, noise of {plain(self.sigma)} rows on every count: {sight}. A table without a fault is "
            f"blamed for one with a chance of {50 * (1 - CONFIDENCE):.1f} % at most."
        )

    def table(self) -> dict[str, list[Cell]]:
        """Every share by columns, ready for a data frame: pandas.DataFrame(found.table()).

        `share` is None where it cannot be told from noise; `low` and `high` hold for all shares together.
        """
        lines = [(column.name, share) for column in self.columns for share in column.shares]
        return {
            "column": [name for name, _ in lines],
            "kind": ["class" if share.is_class else share.kind for _, share in lines],
            "class": [share.kind if share.is_class else None for _, share in lines],
            "share": [share.estimate if share.seen else None for _, share in lines],
            "low": [share.low for _, share in lines],
            "high": [share.high for _, share in lines],
        }

    def __str__(self) -> str:
        width = max(len(column.name) for column in self.columns)
        lines = [f"{column.name:<{width}}  {column.verdict}" for column in self.columns]
        return "\n".join([*lines, self.summary])

    def _repr_html_(self) -> str:
        """A small table, every value escaped."""
        lines = "".join(
            f"<tr><th style='text-align:left'>{escape(column.name)}</th>"
            f"<td style='text-align:left'>{escape(column.verdict)}</td></tr>"
            for column in self.columns
        )
        return f"<table><tbody>{lines}</tbody></table><p>{escape(self.summary)}</p>"


def interpret(
    layout: CellLayout, noisy: NoisyCounts, sigma: float, visible_rows: float, privacy: Guarantee
) -> TableCheck:
    """The check that released numbers amount to; no record is touched."""
    reach = width_of_intervals(layout) * sigma
    spread = 0.0 if layout.neighbours.count_is_public else reach
    rows = max(noisy.rows, 1.0)
    stops = np.cumsum([len(counted.kinds) for counted in layout.columns])
    columns = tuple(
        _column(counted, [_share(counted, k, c, rows, reach, spread) for k, c in enumerate(counts)])
        for counted, counts in zip(layout.columns, np.split(noisy.counts, stops[:-1]), strict=True)
    )
    return TableCheck(columns, max(noisy.rows, 0.0), sigma, min(visible_rows / rows, 1.0), privacy)


def _share(counted: CountedColumn, k: int, count: float, rows: float, reach: float, spread: float) -> Share:
    """(c ± zσ)/(n ± zσ), the worst of it on either side."""
    is_class = counted.classes and k >= len(LEVEL_KINDS)
    low = max(count - reach, 0.0) / (rows + spread)
    high = min(max(count + reach, 0.0) / (rows - spread), 1.0) if rows > spread else 1.0
    low = min(low, high)
    return Share(counted.kinds[k], is_class, low, high, min(max(count / rows, low), high))


def _column(counted: CountedColumn, shares: list[Share]) -> ColumnCheck:
    column = counted.column
    wrong = [share for share in shares if share.seen and not share.is_class]
    wrong.sort(key=lambda share: -share.estimate)
    named = [
        f"about {share.words}{' of ' + shown(column.name) if i == 0 else ''} " + _words(column, share.kind)
        for i, share in enumerate(wrong)
    ]
    said = "; ".join(named).replace("?; ", "? Also ")
    said = said or _nothing(max(share.high for share in shares if not share.is_class))
    classes = ", ".join(f"{shown(share.kind)} {share.words}" for share in shares if share.is_class)
    return ColumnCheck(column.name, tuple(shares), f"{said}. Classes: {classes}" if classes else said)


def _words(column: Feature, kind: str) -> str:
    """What is wrong with such cells of this column."""
    if isinstance(column, Date):
        words = _WORDS.get(f"{kind} date", _WORDS[kind])
        return words.format(low=column.low.isoformat(), high=column.high.isoformat())
    if isinstance(column, Numeric):
        return _WORDS[kind].format(low=f"{column.low:g}", high=f"{column.high:g}")
    return _WORDS[kind]


def _nothing(most: float) -> str:
    """What is said where no kind stands out and none is above `most`."""
    if most >= HIDDEN:
        return f"nothing can be said: even {percent(most)} of bad cells would be hidden by the noise"
    return f"nothing unusual: bad cells of every kind are below {percent(most)}"


def plain(value: float) -> str:
    """A number of rows to three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.12g}"


def percent(share: float) -> str:
    """A share in words, two digits, rounded up."""
    value = 100 * share
    digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f} %"
