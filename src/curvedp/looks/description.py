"""`Description`: what a private look at a table shows, column by column, each number with its noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.looks.estimates import Estimate, Z
from curvedp.looks.histograms import Bins, quantile
from curvedp.looks.noisy_sums import NoisySums, valid_correlations
from curvedp.privacy.guarantee import Guarantee
from curvedp.receipt import Receipt
from curvedp.record import charged
from curvedp.schema import Date, Numeric

QUARTILES = {"lower_quartile": 0.25, "median": 0.5, "upper_quartile": 0.75}


@dataclass(frozen=True)
class Bar:
    """The number of records with a value in [low, high)."""

    low: float
    high: float
    count: Estimate


@dataclass(frozen=True)
class NumericSummary:
    """A numeric column: clipped to its bounds, what is missing or unreadable left out.

    Attributes
    ----------
    name : str
        The column.
    low, high : float
        Its declared bounds.
    missing : Estimate
        The share of records without a number.
    mean, deviation, lower_quartile, median, upper_quartile : Estimate
        Of the numbers that are there.
    histogram : tuple of Bar
        Public bars between the bounds.
    unit : str
        What its numbers count, where they do not speak for themselves: the days of a date.
    """

    name: str
    low: float
    high: float
    missing: Estimate
    mean: Estimate
    deviation: Estimate
    lower_quartile: Estimate
    median: Estimate
    upper_quartile: Estimate
    histogram: tuple[Bar, ...] = field(repr=False)
    unit: str = ""

    @property
    def statistics(self) -> dict[str, Estimate]:
        """By name."""
        names = ("missing", "mean", "deviation", *QUARTILES)
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class LevelSummary:
    """A categorical column: the share of records at each declared level.

    Attributes
    ----------
    name : str
        The column.
    missing : Estimate
        The share of records without a declared level.
    shares : dict
        Level → Estimate; together with `missing` they are about 1.
    """

    name: str
    missing: Estimate
    shares: dict[str, Estimate]

    @property
    def statistics(self) -> dict[str, Estimate]:
        """By name; a level as "share of x"."""
        return {
            "missing": self.missing,
            **{f"share of {level}": share for level, share in self.shares.items()},
        }


Summary = NumericSummary | LevelSummary


@dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of the numeric columns, a missing cell counted as the middle of its bounds.

    Attributes
    ----------
    names : tuple of str
        The columns.
    values : array of shape (d, d)
        Part of a valid correlation matrix; NaN where the noise leaves a correlation open ("not resolved").
    low, high : arrays of shape (d, d)
        The intervals of the noise.
    """

    names: tuple[str, ...]
    values: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, sums: NoisySums) -> Correlations:
        names = tuple(column.name for column in sums.layout.numeric)
        if not names:
            return cls(names, *(np.empty((0, 0)) for _ in range(3)))
        raw, noise = sums.correlations
        unknown = np.isnan(raw)
        low = np.where(unknown, -1.0, np.clip(raw - Z * noise, -1.0, 1.0))
        high = np.where(unknown, 1.0, np.clip(raw + Z * noise, -1.0, 1.0))
        near = valid_correlations(np.where(unknown, 0.0, np.clip(raw, -1.0, 1.0)), low, high)
        low, high = np.minimum(low, near), np.maximum(high, near)
        return cls(names, np.where(high - low <= 1.0, near, np.nan), low, high)

    @property
    def pairs(self) -> list[tuple[str, str, Estimate]]:
        """Every pair once, the strongest first, those that are not resolved last."""
        found = []
        for j, first in enumerate(self.names):
            for k in range(j + 1, len(self.names)):
                value, low, high = (float(part[j, k]) for part in (self.values, self.low, self.high))
                resolved = not np.isnan(value)
                middle = value if resolved else 0.5 * (low + high)
                found.append((first, self.names[k], Estimate(middle, low, high, resolved)))
        return sorted(found, key=lambda pair: -abs(pair[2].value) if pair[2].resolved else 2.0)


@dataclass(frozen=True, eq=False)
class Description:
    """The released description of a table; made by `curvedp.looks.describe`.

    Parameters
    ----------
    count : Estimate
        The number of records; exact where it is public.
    columns : tuple of NumericSummary and LevelSummary
        In the declared order; `description["age"]` finds one by name.
    correlations : Correlations
        Of the numeric columns.
    privacy : Guarantee
        What the release promises.
    record : str
        What one record is.
    receipt : Receipt or None
        Where it was charged; None without a ledger.
    """

    count: Estimate
    columns: tuple[Summary, ...]
    correlations: Correlations
    privacy: Guarantee
    record: str = ""
    receipt: Receipt | None = None

    @classmethod
    def of(
        cls, sums: NoisySums, privacy: Guarantee, record: str = "", receipt: Receipt | None = None
    ) -> Description:
        """Everything that follows from the released sums."""
        layout = sums.layout
        numeric = {column.name: j for j, column in enumerate(layout.numeric)}
        columns: list[Summary] = []
        for column in layout.columns:
            missing = sums.share(column.name, -1)
            if isinstance(column, Numeric | Date):
                columns.append(_numeric(sums, column, numeric[column.name], missing))
            else:
                shares = {level: sums.share(column.name, i) for i, level in enumerate(column.levels)}
                columns.append(LevelSummary(column.name, missing, shares))
        return cls(sums.count, tuple(columns), Correlations.of(sums), privacy, record, receipt)

    def __getitem__(self, name: str) -> Summary:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.columns)

    @cached_property
    def _by_name(self) -> dict[str, Summary]:
        return {column.name: column for column in self.columns}

    @property
    def numeric(self) -> tuple[NumericSummary, ...]:
        """The numeric columns."""
        return tuple(column for column in self.columns if isinstance(column, NumericSummary))

    @property
    def categorical(self) -> tuple[LevelSummary, ...]:
        """The others."""
        return tuple(column for column in self.columns if isinstance(column, LevelSummary))

    def table(self) -> dict[str, list[Any]]:
        """One row per statistic, as lists that any data frame library takes: ``pd.DataFrame(d.table())``.

        Returns
        -------
        columns : dict
            column, statistic, value, low, high, resolved.
        """
        rows = [("", "count", self.count)]
        rows += [(c.name, name, found) for c in self.columns for name, found in c.statistics.items()]
        rows += [(a, f"correlation with {b}", found) for a, b, found in self.correlations.pairs]
        return {
            "column": [row[0] for row in rows],
            "statistic": [row[1] for row in rows],
            **{
                part: [getattr(found, part) for _, _, found in rows]
                for part in ("value", "low", "high", "resolved")
            },
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; a correlation that is not resolved is None."""
        correlations = self.correlations
        return {
            "guarantee": self.privacy.to_dict(),
            "record": self.record,
            "count": asdict(self.count),
            "columns": [
                {
                    "name": column.name,
                    "kind": "numeric" if isinstance(column, NumericSummary) else "categorical",
                    **{
                        name: asdict(found) for name, found in column.statistics.items() if " of " not in name
                    },
                    **_cells_of(column),
                }
                for column in self.columns
            ],
            "correlations": {
                "columns": list(correlations.names),
                "values": [[None if np.isnan(v) else v for v in row] for row in correlations.values.tolist()],
                "low": correlations.low.tolist(),
                "high": correlations.high.tolist(),
            },
            **charged(self.receipt),
        }

    def __str__(self) -> str:
        from curvedp.looks.describe_text import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from curvedp.looks.describe_page import fragment

        return fragment(self)


def _cells_of(column: Summary) -> dict[str, Any]:
    if isinstance(column, NumericSummary):
        unit = {"unit": column.unit} if column.unit else {}
        bars = [asdict(bar) for bar in column.histogram]
        return {"bounds": [column.low, column.high], **unit, "histogram": bars}
    return {"shares": {level: asdict(share) for level, share in column.shares.items()}}


def _numeric(sums: NoisySums, column: Numeric | Date, j: int, missing: Estimate) -> NumericSummary:
    low, high = column.encoded_bounds[0]
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    bins = sums.layout.bins[j]
    quartiles = {name: quantile(sums.cells[column.name], bins, q) for name, q in QUARTILES.items()}
    return NumericSummary(
        name=column.name,
        low=low,
        high=high,
        missing=missing,
        mean=sums.mean(j).mapped(middle, half),
        deviation=sums.deviation(j).mapped(0.0, half),
        histogram=_bars(sums, column.name, bins),
        unit=f"days since {column.low.isoformat()}" if isinstance(column, Date) else "",
        **quartiles,
    )


def _bars(sums: NoisySums, name: str, bins: Bins) -> tuple[Bar, ...]:
    cells = sums.cells[name]
    weights = np.zeros((len(bins.bars), len(cells.counts)))
    for row, leaves in zip(weights, bins.bars, strict=True):
        row[leaves] = 1.0
    counts, reach = weights @ cells.counts, Z * cells.deviation(weights)
    return tuple(
        Bar(
            *bins.ends(leaves),
            Estimate.within(count, count - noise, count + noise, (0.0, math.inf)),
        )
        for leaves, count, noise in zip(bins.bars, counts.tolist(), reach.tolist(), strict=True)
    )
