"""What a private look at a table shows, each number with its noise: `Description`, column by column, and
`GroupedDescription`, of every group, of persons and of rows.

Means, deviations, quartiles and correlations are functions of the released sums (D-1), those of groups of
sums by group (D-2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from curvedp.analyses.explore.noisy import ENOUGH, CellCounts, Estimate, LevelCounts, Z, quantile, ratio
from curvedp.analyses.explore.tallies import ALL, TableLayout
from curvedp.arrays import FloatArray
from curvedp.data.columns import Numeric
from curvedp.data.dates import Date
from curvedp.privacy.guarantee import Guarantee
from curvedp.release.door import Released
from curvedp.release.ledger.storage import Receipt
from curvedp.release.record import charged

Named = tuple[str, str, Estimate]  # a number by its column and its name
QUARTILES = {"lower_quartile": 0.25, "median": 0.5, "upper_quartile": 0.75}

_STEADY = 3.0  # a variance of fewer deviations of its noise carries no correlation
_TURNS, _NEGATIVE = 100, 1e-12
_STEPS = 2.0**20  # of a released count of a group: sums of them are exact


def pooled_total(columns: Sequence[CellCounts | LevelCounts]) -> tuple[float, float]:
    """(n̂, deviation): every column counts every record, so their sums are weighted by precision."""
    totals = np.array([column.counts.sum() for column in columns])
    precisions = np.array([column.total_deviation**-2.0 for column in columns])
    return float(totals @ precisions / precisions.sum()), float(precisions.sum() ** -0.5)


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
        return pooled_total([*self._released[0], *self._released[1]])

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
        total, reach = self.total[0], Z * self.total[1]
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
        bins, sizes = self.layout.bins, [len(column.levels) + 1 for column in self.layout.categorical]
        nodes, levels = (self.values.get(part, np.empty(0)) for part in ("nodes", "levels"))
        trees = zip(bins, np.split(nodes, np.cumsum([own.nodes for own in bins]))[:-1], strict=True)
        numbers = [CellCounts.of_tree(part, own.size, self.scales["nodes"]) for own, part in trees]
        parts = np.split(levels, np.cumsum(sizes))[:-1]
        return numbers, [LevelCounts.of_levels(part, self.scales["levels"]) for part in parts]


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


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Noisy sums of one way to count, a row for each group, and the deviation of each one's noise.

    One person adds `most` at most, and a sample varies that many times as one of independent rows would
    (D-2). `total`: the number of all where it is public.
    """

    layout: TableLayout
    values: Mapping[str, FloatArray]
    scales: Mapping[str, float]
    most: float = 1.0
    total: float | None = None

    @cached_property
    def counts(self) -> LevelCounts:
        """Of the groups, by least squares: every column counts everybody, and all of them are `total`."""
        sizes = np.array(self.layout.cell_sizes)
        sums = np.add.reduceat(self.values["cells"], np.cumsum(sizes) - sizes, axis=1)
        precision = float((1.0 / sizes).sum())
        found = LevelCounts.of_levels(sums @ (1.0 / sizes) / precision, self.scales["cells"] / precision**0.5)
        if self.total is not None:
            found = found.given_total(self.total, 0.0)
        steps = np.round(found.counts * _STEPS)
        steps[np.argmax(steps)] += 0.0 if self.total is None else self.total * _STEPS - steps.sum()
        return replace(found, counts=steps / _STEPS)

    def groups(self) -> dict[tuple[str, ...], Group]:
        """All, the levels of each column that makes groups, then all crossed."""
        levels = self.layout.group_levels
        everyone = (ALL,) * len(levels)
        margins = [(*everyone[:i], own, *everyone[i + 1 :]) for i, of in enumerate(levels) for own in of]
        return {name: self.group(name) for name in dict.fromkeys([everyone, *margins, *product(*levels)])}

    def group(self, levels: tuple[str, ...]) -> Group:
        inside = np.ones(1, bool)
        for of, level in zip(self.layout.group_levels, levels, strict=True):
            inside = np.outer(inside, [level in (ALL, own) for own in of]).ravel()
        k, own = int(inside.sum()), float(self.counts.counts[inside].sum())
        deviation = math.sqrt(self.counts.of_cell(0, k)[0])
        hidden = own <= ENOUGH * deviation
        count = Estimate(own, max(own - Z * deviation, 0.0), max(own + Z * deviation, 0.0), not hidden)
        share = Estimate(1.0, 1.0, 1.0) if inside.all() else self._share(self.counts, 0, k, own)
        cells, columns, j = self.values["cells"][inside].sum(axis=0), {}, 0
        split = np.split(cells, np.cumsum(self.layout.cell_sizes)[:-1])[1:]
        for column, noisy in zip(self.layout.described, split, strict=True):
            found = LevelCounts.of_levels(noisy, self.scales["cells"] * k**0.5).given_total(own, deviation)
            told = {"missing": self._share(found, -1)}
            if isinstance(column, Numeric | Date):
                told |= self._number(j, column, found, inside)
                j += 1
            else:
                told |= {f"share of {level}": self._share(found, i) for i, level in enumerate(column.levels)}
            columns[column.name] = told
        if not hidden:
            return Group(levels, count, share, columns)
        none = {c: {key: replace(e, resolved=False) for key, e in of.items()} for c, of in columns.items()}
        why = f"too few for the noise: a group like this is told from about {ENOUGH * deviation:,.0f} on"
        return Group(levels, count, replace(share, resolved=False), none, why)

    def _share(self, cells: LevelCounts, cell: int, k: int = 1, part: float | None = None) -> Estimate:
        """part/whole of k cells: beside the noise, part − q·whole varies by most·whole·q(1 − q) by chance."""
        (variance, shared), deviation = cells.of_cell(cell, k), cells.total_deviation
        whole = float(cells.counts.sum())
        chance = self.most * max(whole + 0.5 * deviation, 1.0)
        own = float(cells.counts[cell]) if part is None else part
        found = ratio(own, whole, (variance, deviation**2 - chance, shared - 0.5 * chance), (0.0, 1.0))
        # By its length before it is cut: one that is short since it was cut tells little (D-2).
        return replace(found, resolved=2.0 * Z * math.sqrt(variance + 0.25 * chance) <= 0.5 * whole)

    def _number(
        self, j: int, column: Numeric | Date, cells: LevelCounts, inside: NDArray[np.bool_]
    ) -> dict[str, Estimate]:
        """Σx/present of the j-th number: beside the noise, Σx − q·present varies by most·present·s².

        s² ≤ 1 − q² on [−1, 1]. Half a deviation of its own noise is added: too small a one would mislead.
        """
        root, present, (noise, _) = math.sqrt(inside.sum()), float(cells.counts[0]), cells.of_cell(0)
        total, squares = (float(self.values[part][inside, j].sum()) for part in ("sums", "squares"))
        sigma, n = {part: root * scale for part, scale in self.scales.items()}, max(present, 1.0)
        q = min(max(total / n, -1.0), 1.0)
        square = squares / n + 0.5 - (total / n) ** 2 + (sigma["sums"] / n) ** 2 + 0.5 * sigma["squares"] / n
        chance = self.most * (n + 0.5 * math.sqrt(noise)) * min(max(square, 0.0), 1.0 - q**2)
        low, high = column.encoded_bounds[0]
        mean = ratio(total, present, (sigma["sums"] ** 2 + chance, noise, 0.0), (-1.0, 1.0))
        short = 2.0 * Z * math.hypot(sigma["sums"], math.sqrt(chance)) <= present
        mean = mean.mapped(0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low)
        told = {"mean": replace(mean, resolved=short)}
        if self.layout.quartiles:
            bins = self.layout.bins[j]
            start = sum(before.nodes for before in self.layout.bins[:j])
            nodes = self.values["nodes"][inside, start : start + bins.nodes].sum(axis=0)
            leaves = CellCounts.of_tree(nodes, bins.size, sigma["nodes"])
            told |= {name: quantile(leaves, bins, q, self.most) for name, q in QUARTILES.items()}
        enough = present > ENOUGH * math.sqrt(noise)
        return {name: replace(e, resolved=e.resolved and enough) for name, e in told.items()}


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
    def of(cls, sums: NoisySums, column: Numeric | Date, j: int) -> NumericSummary:
        """Of the j-th numeric column."""
        low, high = column.encoded_bounds[0]
        middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        bins, cells = sums.layout.bins[j], sums.leaves[j]
        weights = np.zeros((len(bins.bars), len(cells.counts)))
        for row, leaves in zip(weights, bins.bars, strict=True):
            row[leaves] = 1.0
        counts, reach, bars = (weights @ cells.counts).tolist(), (Z * cells.deviation(weights)).tolist(), []
        for leaves, count, noise in zip(bins.bars, counts, reach, strict=True):
            found = Estimate.within(count, count - noise, count + noise, (0.0, math.inf))
            bars.append(Bar(*bins.ends(leaves), found))
        mean, deviation = sums.mean(j).mapped(middle, half), sums.deviation(j).mapped(0.0, half)
        quartiles: dict[str, Any] = {name: quantile(cells, bins, q) for name, q in QUARTILES.items()}
        own = (column.name, low, high, sums.share(cells, -1), mean, deviation)
        unit = f"days since {column.low.isoformat()}" if isinstance(column, Date) else ""
        return cls(*own, **quartiles, histogram=tuple(bars), unit=unit)

    @property
    def statistics(self) -> dict[str, Estimate]:
        return {name: getattr(self, name) for name in ("missing", "mean", "deviation", *QUARTILES)}


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
        if not (names := tuple(column.name for column in sums.layout.numeric)):
            return cls(names, *(np.empty((0, 0)) for _ in range(3)))
        raw, noise = sums.correlations
        unknown = np.isnan(raw)
        low = np.where(unknown, -1.0, np.clip(raw - Z * noise, -1.0, 1.0))
        high = np.where(unknown, 1.0, np.clip(raw + Z * noise, -1.0, 1.0))
        near = valid_correlations(np.where(unknown, 0.0, np.clip(raw, -1.0, 1.0)), low, high)
        low, high = np.minimum(low, near), np.maximum(high, near)
        return cls(names, np.where(high - low <= 1.0, near, np.nan), low, high)

    @property
    def pairs(self) -> list[Named]:
        """Every pair once, the strongest first, those that are not resolved last."""
        found = []
        for j, k in combinations(range(len(self.names)), 2):
            value, low, high = (float(part[j, k]) for part in (self.values, self.low, self.high))
            resolved = not np.isnan(value)
            middle = value if resolved else 0.5 * (low + high)
            found.append((self.names[j], self.names[k], Estimate(middle, low, high, resolved)))
        return sorted(found, key=lambda pair: -abs(pair[2].value) if pair[2].resolved else 2.0)


@dataclass(frozen=True)
class Group:
    """A group, or several together: `levels` has "(all)" for each column that does not tell them apart.

    `count` is of the table, with the interval of the noise; counts add up, so that one which noise hides may
    be below 0. `share` is that of all; `columns` has, by name, missing share, mean and quartiles of a number,
    or shares of levels: these intervals are for the population, noise and chance of the sample together.
    `suppressed` says why nothing of it is resolved, "" where something is.
    """

    levels: tuple[str, ...]
    count: Estimate
    share: Estimate
    columns: Mapping[str, Mapping[str, Estimate]]
    suppressed: str = ""

    def __getitem__(self, column: str) -> Mapping[str, Estimate]:
        return self.columns[column]

    @property
    def statistics(self) -> list[Named]:
        """Count and share have no column."""
        own = [(column, name, found) for column, of in self.columns.items() for name, found in of.items()]
        return [("", "count", self.count), ("", "share", self.share), *own]


class Shown:
    """A description, which shows itself as a table in terminals and notebooks."""

    def table(self: Any) -> dict[str, list[Any]]:
        """One row per number, as lists that any data frame library takes: ``pd.DataFrame(d.table())``."""
        rows = [
            {**at, "column": column, "statistic": name, **asdict(number)}
            for at, of in self.numbers
            for column, name, number in of
        ]
        return {key: [row[key] for row in rows] for key in rows[0]}

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
    def of(cls, released: Released[NoisySums], record: str = "") -> Self:
        """Everything that follows from the released sums."""
        sums, columns = released.value, list[Summary]()
        places, levels = iter(range(len(sums.leaves))), iter(sums.levels)
        for column in sums.layout.columns:
            if isinstance(column, Numeric | Date):
                columns.append(NumericSummary.of(sums, column, next(places)))
            else:
                cells = next(levels)
                shares = {level: sums.share(cells, i) for i, level in enumerate(column.levels)}
                columns.append(LevelSummary(column.name, sums.share(cells, -1), shares))
        promise = released.privacy, record, released.receipt
        return cls(sums.count, tuple(columns), Correlations.of(sums), *promise)

    def __getitem__(self, name: str) -> Summary:
        return {column.name: column for column in self.columns}[name]

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.columns)

    @property
    def numeric(self) -> tuple[NumericSummary, ...]:
        return tuple(column for column in self.columns if isinstance(column, NumericSummary))

    @property
    def categorical(self) -> tuple[LevelSummary, ...]:
        return tuple(column for column in self.columns if isinstance(column, LevelSummary))

    @property
    def numbers(self) -> list[tuple[dict[str, str], list[Named]]]:
        """All of them, in the order of `table`."""
        rows = [("", "count", self.count)]
        rows += [(c.name, name, found) for c in self.columns for name, found in c.statistics.items()]
        rows += [(a, f"correlation with {b}", found) for a, b, found in self.correlations.pairs]
        return [({}, rows)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; a correlation that is not resolved is None."""
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            of: dict[str, Any] = {n: asdict(e) for n, e in column.statistics.items() if " of " not in n}
            if isinstance(column, NumericSummary):
                of |= {"bounds": [column.low, column.high]} | ({"unit": column.unit} if column.unit else {})
                of["histogram"] = [asdict(bar) for bar in column.histogram]
            else:
                of["shares"] = {level: asdict(share) for level, share in column.shares.items()}
            kind = "numeric" if isinstance(column, NumericSummary) else "categorical"
            columns.append({"name": column.name, "kind": kind, **of})
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


@dataclass(frozen=True, eq=False)
class GroupedDescription(Shown):
    """The released tables by group; made by `curvedp.describe` with `by`.

    Parameters
    ----------
    by : tuple of str
        The columns whose levels make the groups.
    tables : mapping
        Of "records" or "persons", and of "rows" where these were asked for: the `Group` of each tuple of
        levels of `by`, "(all)" standing for all of them.
    rows_up_to : int or None
        So many rows of one person count at most; None: rows were not asked for.
    privacy, receipt : Guarantee, Receipt or None
        What the release promises, and where it was charged; None without a ledger.
    record : str
        What one record is, or one person.
    """

    by: tuple[str, ...]
    tables: Mapping[str, Mapping[tuple[str, ...], Group]]
    rows_up_to: int | None
    privacy: Guarantee
    record: str = ""
    receipt: Receipt | None = None

    @classmethod
    def of(cls, released: Released[NoisySums], record: str = "") -> Self:
        """Everything that follows from the released sums, those of all ways to count."""
        sums, layout, ways, tables = released.value, released.value.layout, released.value.layout.ways, {}
        for way, (counted, most) in enumerate(ways.items()):
            values = {part: most * np.split(own, len(ways))[way] for part, own in sums.values.items()}
            scales = {part: most * scale for part, scale in sums.scales.items()}
            total = sums.public_count if way == 0 else None
            tables[counted] = GroupSums(layout, values, scales, most, total).groups()
        promise = released.privacy, record, released.receipt
        return cls(layout.by or (), tables, layout.rows_up_to, *promise)

    def __getitem__(self, levels: str | tuple[str, ...]) -> Group:
        """Of records or persons."""
        return next(iter(self.tables.values()))[(levels,) if isinstance(levels, str) else levels]

    @property
    def everyone(self) -> Group:
        """All records, or persons."""
        return self[(ALL,) * len(self.by)]

    @property
    def count(self) -> Estimate:
        return self.everyone.count

    @property
    def numbers(self) -> list[tuple[dict[str, str], list[Named]]]:
        """Those of each group, by what is counted and its levels, in the order of `table`."""
        own = {"counted", "column", "statistic", *(part.name for part in fields(Estimate))}
        names = [*(f"by {name}" if name in own else name for name in self.by), "counted"]
        return [
            (dict(zip(names, (*group.levels, counted), strict=True)), group.statistics)
            for counted, groups in self.tables.items()
            for group in groups.values()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "guarantee": self.privacy.to_dict(),
            "record": self.record,
            "by": list(self.by),
            "rows_up_to": self.rows_up_to,
            "tables": {name: [asdict(group) for group in of.values()] for name, of in self.tables.items()},
            **charged(self.receipt),
        }
