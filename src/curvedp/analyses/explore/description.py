"""`Description`: what a private look at a table shows, column by column, each number with its noise.

Means, deviations, quartiles and correlations are functions of the released sums (D-1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.analyses.explore.noisy import CellCounts, Estimate, LevelCounts, Z, pooled_total, quantile, ratio
from curvedp.analyses.explore.tallies import TableLayout
from curvedp.arrays import FloatArray
from curvedp.data.columns import Numeric
from curvedp.data.dates import Date
from curvedp.privacy.guarantee import Guarantee
from curvedp.release.ledger.storage import Receipt
from curvedp.release.record import charged

QUARTILES = {"lower_quartile": 0.25, "median": 0.5, "upper_quartile": 0.75}

_STEADY = 3.0  # a variance of fewer deviations of its noise carries no correlation
_TURNS, _NEGATIVE = 100, 1e-12


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Noisy sums by part, the deviation of each part's noise, and the number of records if public.

    Where a unit is declared, read "persons" for "records" in all that follows (U-2).
    """

    layout: TableLayout
    values: Mapping[str, FloatArray]
    scales: Mapping[str, float]
    public_count: float | None = None

    @cached_property
    def total(self) -> tuple[float, float]:
        """The number of records and the deviation of its noise."""
        if self.public_count is not None:
            return self.public_count, 0.0
        leaves, levels = self._released
        return pooled_total([*leaves, *levels])

    @cached_property
    def leaves(self) -> tuple[CellCounts, ...]:
        """The cells of every numeric column, with sums that agree."""
        return tuple(column.given_total(*self.total) for column in self._released[0])

    @cached_property
    def levels(self) -> tuple[LevelCounts, ...]:
        """Those of every other column."""
        return tuple(column.given_total(*self.total) for column in self._released[1])

    @property
    def count(self) -> Estimate:
        """The number of records."""
        total, deviation = self.total
        reach = Z * deviation
        found = Estimate.within(total, total - reach, total + reach, (0.0, math.inf))
        return replace(found, resolved=reach < total or reach == 0)

    def share(self, cells: CellCounts | LevelCounts, cell: int) -> Estimate:
        """Of the records whose column falls into this cell; −1 is the missing one."""
        variance, shared = cells.of_cell(cell)
        noise = variance, self.total[1] ** 2, shared
        return ratio(float(cells.counts[cell]), self.total[0], noise, (0.0, 1.0))

    def mean(self, j: int) -> Estimate:
        """Of what is present in the j-th numeric column, on [−1, 1]."""
        present, deviation = self._present(j)
        noise = self.scales["sums"] ** 2, deviation**2, 0.0
        return ratio(float(self.values["sums"][j]), present, noise, (-1.0, 1.0))

    def deviation(self, j: int) -> Estimate:
        """The standard deviation of what is present in the j-th numeric column, on [−1, 1].

        From s² = Q/n + ½ − (S/n)² + (σ_S/n)², Q = Σ(x² − ½), by the derivatives in Q, S and n. Not resolved
        where it is not told from 0.
        """
        present, spread = self._present(j)
        n = max(present, 1.0)
        m, q = (float(self.values[part][j]) / n for part in ("sums", "squares"))
        noise_s, noise_q = self.scales["sums"] / n, self.scales["squares"] / n
        square = q + 0.5 - m * m + noise_s**2
        variance = noise_q**2 + 4 * m * m * noise_s**2 + 2 * noise_s**4 + ((q - 2 * m * m) * spread / n) ** 2
        reach = Z * math.sqrt(variance)
        low, value, high = (math.sqrt(max(v, 0.0)) for v in (square - reach, square, square + reach))
        found = Estimate.within(value, low, high, (0.0, 1.0))
        return replace(found, resolved=found.resolved and low > 0)

    @cached_property
    def correlations(self) -> tuple[FloatArray, FloatArray]:
        """(r, deviations of its noise), a missing cell counted as the middle of its bounds; NaN where the
        variance of a column is not told from its noise. Derivatives of r in every noisy sum (D-1)."""
        d = len(self.layout.numeric)
        n, n_noise = max(self.total[0], 1.0), self.total[1] / max(self.total[0], 1.0)
        present = np.array([self._present(j)[0] for j in range(d)]) / n
        missing = np.array([float(c.deviation(c.ones - c.present)) for c in self.leaves]) / n
        sums, squares, pairs = (self.scales.get(part, 0.0) / n for part in ("sums", "squares", "pairs"))
        m, q = self.values["sums"] / n, self.values["squares"] / n + 0.5 * present
        products = np.zeros((d, d))
        if d > 1:
            products[np.triu_indices(d, 1)] = self.values["pairs"] / n
        products += products.T
        v = q - m * m + sums**2
        v_by_n = q - 2 * m * m - 0.5
        v_noise = np.sqrt(squares**2 + (2 * m * sums) ** 2 + (missing / 2) ** 2 + (v_by_n * n_noise) ** 2)
        v = np.where(v > _STEADY * v_noise, v, np.nan)
        roots = np.sqrt(np.outer(v, v))
        r = (products - np.outer(m, m)) / roots
        by_sum = (r * (m / v)[:, None]) - m[None, :] / roots  # of r_jk in S_j; its transpose in S_k
        by_square = r / (2 * v)[:, None]
        by_count = by_square * v_by_n[:, None]
        by_count = by_count + by_count.T - (products - 2 * np.outer(m, m)) / roots
        own = (by_sum * sums) ** 2 + by_square**2 * (squares**2 + (missing[:, None] / 2) ** 2)
        noise = np.sqrt(own + own.T + (pairs / roots) ** 2 + (by_count * n_noise) ** 2)
        np.fill_diagonal(r, 1.0)
        np.fill_diagonal(noise, 0.0)
        return r, noise

    def _present(self, j: int) -> tuple[float, float]:
        cells = self.leaves[j]
        return float(cells.present @ cells.counts), float(cells.deviation(cells.present))

    @cached_property
    def _released(self) -> tuple[list[CellCounts], list[LevelCounts]]:
        """The cells of every numeric column, and of every other, as they were released."""
        ends = {
            "nodes": np.cumsum([bins.nodes for bins in self.layout.bins]),
            "levels": np.cumsum([len(column.levels) + 1 for column in self.layout.categorical]),
        }
        nodes, levels = (np.split(self.values[p], at[:-1]) if len(at) else [] for p, at in ends.items())
        trees = zip(nodes, self.layout.bins, strict=True)
        return (
            [CellCounts.of_tree(part, bins.size, self.scales["nodes"]) for part, bins in trees],
            [LevelCounts.of_levels(part, self.scales["levels"]) for part in levels],
        )


def valid_correlations(r: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """A correlation matrix near r: in turn, negative eigenvalues become 0, entries return to [low, high]."""
    near = np.asarray(r)
    for turn in range(_TURNS + 1):
        values, vectors = np.linalg.eigh(near if turn == 0 else np.clip(near, low, high))
        near = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if values[0] >= -_NEGATIVE:
            break
    size = np.sqrt(np.diag(near))
    return np.asarray(np.clip(near / np.outer(size, size), -1.0, 1.0))


@dataclass(frozen=True)
class Bar:
    """The number of records with a value in [low, high)."""

    low: float
    high: float
    count: Estimate


@dataclass(frozen=True)
class NumericSummary:
    """A numeric column: clipped to its declared bounds, what is missing or unreadable left out.

    `missing` is the share of records without a number, the other estimates are of the numbers that are there.
    The bars of the `histogram` are public. `unit`: what its numbers count, where they do not speak for
    themselves: the days of a date.
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

    @classmethod
    def of(cls, sums: NoisySums, column: Numeric | Date, j: int, cells: CellCounts) -> NumericSummary:
        """Of the j-th numeric column, whose cells these are."""
        low, high = column.encoded_bounds[0]
        middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        bins = sums.layout.bins[j]
        weights = np.zeros((len(bins.bars), len(cells.counts)))
        for row, leaves in zip(weights, bins.bars, strict=True):
            row[leaves] = 1.0
        counts, reach, bars = (weights @ cells.counts).tolist(), (Z * cells.deviation(weights)).tolist(), []
        for leaves, count, noise in zip(bins.bars, counts, reach, strict=True):
            found = Estimate.within(count, count - noise, count + noise, (0.0, math.inf))
            bars.append(Bar(*bins.ends(leaves), found))
        return cls(
            name=column.name,
            low=low,
            high=high,
            missing=sums.share(cells, -1),
            mean=sums.mean(j).mapped(middle, half),
            deviation=sums.deviation(j).mapped(0.0, half),
            histogram=tuple(bars),
            unit=f"days since {column.low.isoformat()}" if isinstance(column, Date) else "",
            **{name: quantile(cells, bins, q) for name, q in QUARTILES.items()},
        )

    @property
    def statistics(self) -> dict[str, Estimate]:
        """By name."""
        names = ("missing", "mean", "deviation", *QUARTILES)
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class LevelSummary:
    """A categorical column: the share of records at each declared level, and of those without one; they add
    up to about 1."""

    name: str
    missing: Estimate
    shares: dict[str, Estimate]

    @property
    def statistics(self) -> dict[str, Estimate]:
        """By name; a level as "share of x"."""
        return {"missing": self.missing} | {f"share of {level}": s for level, s in self.shares.items()}


Summary = NumericSummary | LevelSummary


@dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of the numeric columns, a missing cell counted as the middle of its bounds.

    `values`, of shape (d, d), are part of a valid correlation matrix, NaN where the noise leaves a
    correlation open ("not resolved"); `low` and `high` are the intervals of the noise.
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


class Shown:
    """A description, which shows itself as a table in terminals and notebooks."""

    def __str__(self: Any) -> str:
        from curvedp.analyses.explore.describe import as_text

        return as_text(self)

    def _repr_html_(self: Any) -> str:
        from curvedp.analyses.explore.describe import describe_table

        return describe_table(self)


@dataclass(frozen=True, eq=False)
class Description(Shown):
    """The released description of a table; made by `curvedp.analyses.explore.describe`.

    Parameters
    ----------
    count : Estimate
        The number of records, or of persons where a unit is declared; exact where it is public.
    columns : tuple of NumericSummary and LevelSummary
        In the declared order; `description["age"]` finds one by name.
    correlations : Correlations
        Of the numeric columns.
    privacy, receipt : Guarantee, Receipt or None
        What the release promises, and where it was charged; None without a ledger.
    record : str
        What one record is, or one person.
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
        columns: list[Summary] = []
        leaves, levels = enumerate(sums.leaves), iter(sums.levels)
        for column in sums.layout.columns:
            if isinstance(column, Numeric | Date):
                columns.append(NumericSummary.of(sums, column, *next(leaves)))
            else:
                cells = next(levels)
                shares = {level: sums.share(cells, i) for i, level in enumerate(column.levels)}
                columns.append(LevelSummary(column.name, sums.share(cells, -1), shares))
        return cls(sums.count, tuple(columns), Correlations.of(sums), privacy, record, receipt)

    def __getitem__(self, name: str) -> Summary:
        return {column.name: column for column in self.columns}[name]

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.columns)

    @property
    def numeric(self) -> tuple[NumericSummary, ...]:
        """The numeric columns."""
        return tuple(column for column in self.columns if isinstance(column, NumericSummary))

    @property
    def categorical(self) -> tuple[LevelSummary, ...]:
        """The others."""
        return tuple(column for column in self.columns if isinstance(column, LevelSummary))

    def table(self) -> dict[str, list[Any]]:
        """One row per statistic, as lists that any data frame library takes: ``pd.DataFrame(d.table())``."""
        rows = [("", "count", self.count)]
        rows += [(c.name, name, found) for c in self.columns for name, found in c.statistics.items()]
        rows += [(a, f"correlation with {b}", found) for a, b, found in self.correlations.pairs]
        names, statistics, found = zip(*rows, strict=True)
        told = {part: [getattr(e, part) for e in found] for part in ("value", "low", "high", "resolved")}
        return {"column": list(names), "statistic": list(statistics), **told}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; a correlation that is not resolved is None."""
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            of = {name: asdict(e) for name, e in column.statistics.items() if " of " not in name}
            if isinstance(column, NumericSummary):
                own = {"name": column.name, "kind": "numeric", **of, "bounds": [column.low, column.high]}
                own |= {"unit": column.unit} if column.unit else {}
                own["histogram"] = [asdict(bar) for bar in column.histogram]
            else:
                shares = {level: asdict(share) for level, share in column.shares.items()}
                own = {"name": column.name, "kind": "categorical", **of, "shares": shares}
            columns.append(own)
        r = self.correlations
        return {
            "guarantee": self.privacy.to_dict(),
            "record": self.record,
            "counted": f"{self.privacy.neighbours.who}s",
            "count": asdict(self.count),
            "columns": columns,
            "correlations": {
                "columns": list(r.names),
                "values": [[None if np.isnan(v) else v for v in row] for row in r.values.tolist()],
                "low": r.low.tolist(),
                "high": r.high.tolist(),
            },
            **charged(self.receipt),
        }
