"""Tables by group: counts, shares, means and quartiles of every group, of persons and of rows (D-2).

A group is one of the declared levels of some columns, crossed. A record is in one group, and a person in
several of them adds 1 in all: the sums of all groups together have the sensitivity of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curvedp.analyses.explore.description import QUARTILES, Shown
from curvedp.analyses.explore.noisy import ENOUGH, CellCounts, Estimate, LevelCounts, Z, quantile, ratio
from curvedp.analyses.explore.tallies import TableLayout, level_places, mapped
from curvedp.arrays import FloatArray
from curvedp.data.columns import Categorical, Ignored, Numeric, repeated, shown
from curvedp.data.dates import Boolean, Date
from curvedp.data.frames import PART_STEPS
from curvedp.data.rows import blocks
from curvedp.data.rows.base import Total
from curvedp.data.schema import Schema
from curvedp.errors import InvalidInput
from curvedp.privacy.guarantee import Guarantee
from curvedp.release.ledger.storage import Receipt
from curvedp.release.record import charged

ALL, OTHER = "(all)", "(missing or other)"  # in the place of a level: of a margin, and where there is none
MOST_GROUPS = 10_000
_FEW = 256  # rows that are added one after another, within what SUM_SLACK covers
_STEPS = 2.0**20  # of a released count: sums of them are exact


def asked(
    schema: Schema, columns: Sequence[str] | None, by: Sequence[str] | None, **more: Any
) -> tuple[Schema, dict[str, Any]]:
    """(The schema of what is described, what a `TableLayout` is told of groups); refused where undeclared."""
    declared, up_to = {c.name: c for c in schema.features}, more["rows_up_to"]
    for option, names in {"columns": () if columns is None else columns, "by": by or ()}.items():
        if isinstance(names, str) or (option == "columns" and names == [] == (by or [])):
            raise InvalidInput(f"`{option}` must be a list of names, of one at least")
        if undeclared := [name for name in names if name not in declared]:
            raise InvalidInput(f"`{option}`: no column {shown(undeclared[0])} is declared: name one that is")
    if (twice := repeated(both := (*(by or ()), *(columns or ())))) is not None:
        raise InvalidInput(f"column {shown(both[twice])} is named twice: remove one")
    for column in (declared[name] for name in by or ()):
        if not isinstance(column, Categorical | Boolean):
            why = "is no category: declare a column of levels, of ranges where it is a number"
            raise InvalidInput(f"`by`: {shown(column.name)} {why}")
        if {ALL, OTHER} & {*column.levels}:
            raise InvalidInput(f"{shown(column.name)} has a level that is called {ALL} or {OTHER}: rename it")
    if up_to is not None and (schema.unit is None or schema.rows_per_person == "one"):
        raise InvalidInput("`rows_up_to` counts rows beside persons: name a unit, and keep all of its rows")
    if up_to is not None and up_to not in range(1, PART_STEPS + 1):
        raise InvalidInput(f"`rows_up_to` must be a whole number from 1 to {PART_STEPS:,}")
    if by is None and up_to is None and more["quartiles"]:
        raise InvalidInput("`quartiles` are those of groups: name columns with `by`, or leave it out")
    wanted = [c for c in schema.columns if columns is None or c.name in both or isinstance(c, Ignored)]
    made = None if by is None and up_to is None else tuple(by or ())
    return replace(schema, columns=tuple(wanted)), {"by": made, **more}


def group_levels(layout: TableLayout) -> list[tuple[str, ...]]:
    """Of each column that makes groups, what has no declared one last; refused where groups are too many."""
    of = {c.name: (*c.levels, OTHER) for c in layout.columns if isinstance(c, Categorical | Boolean)}
    found = [of[name] for name in layout.by or ()]
    if (made := math.prod(map(len, found))) > MOST_GROUPS:
        raise InvalidInput(f"`by` makes {made:,} groups, more than {MOST_GROUPS:,}: declare fewer levels")
    return found


def cell_sizes(layout: TableLayout) -> list[int]:
    """Cells of a group: one for everybody; then, of each described column, its levels and what has none, or
    two, of what has a number and what has none."""
    return [1, *(2 if isinstance(c, Numeric | Date) else len(c.levels) + 1 for c in layout.described)]


def ways(layout: TableLayout) -> dict[str, float]:
    """What is counted, and how many of these one person adds at most: 1 record or person, m rows."""
    rows = layout.rows_up_to
    return {f"{layout.neighbours.who}s": 1.0, **({"rows": PART_STEPS / (PART_STEPS // rows)} if rows else {})}


def row_parts(parts: FloatArray, up_to: int) -> FloatArray:
    """min(1/m, part), m = `up_to`, in multiples of 2⁻¹⁶: what a row counts, a person 1 at most."""
    return np.minimum(parts, (PART_STEPS // up_to) / PART_STEPS)


def group_total(block: FloatArray, parts: FloatArray, layout: TableLayout) -> Total:
    """Cells, Σx, Σ(x² − ½) of the numbers that are there, and leaves where quartiles are asked for. A row
    for each group, of all ways to count one after another; counts are exact."""
    of, n = dict(zip((column.name for column in layout.columns), block.T, strict=True)), len(block)
    K, group, sizes = 1, np.zeros(n, np.intp), cell_sizes(layout)
    for name, levels in zip(layout.by or (), group_levels(layout), strict=True):
        K, group = K * len(levels), group * len(levels) + level_places(of[name], len(levels))
    numbers = np.reshape([of[column.name] for column in layout.numeric], (len(layout.numeric), n))
    x, there = mapped(numbers.T, layout).T[: len(numbers)], ~np.isnan(numbers)
    of |= {column.name: np.where(np.isnan(of[column.name]), np.nan, 0.0) for column in layout.numeric}
    cells = [level_places(of[c.name], size) for c, size in zip(layout.described, sizes[1:], strict=True)]
    leaves = [bins.cells(own) for bins, own in zip(layout.bins, numbers, strict=True)]
    run, runs = np.arange(n) // _FEW * K + group, -(-n // _FEW)

    def counted(found: Sequence[NDArray[np.intp]], sizes: Sequence[int], each: FloatArray) -> FloatArray:
        counts = [np.bincount(group * s + place, each, K * s) for place, s in zip(found, sizes, strict=True)]
        return np.hstack([np.empty((K, 0)), *(c.reshape(K, -1) for c in counts)])

    def added(terms: FloatArray) -> FloatArray:
        sums = [np.bincount(run, own, runs * K).reshape(runs, K).sum(axis=0) for own in terms]
        return np.array(sums, dtype=np.float64).reshape(-1, K).T

    totals: list[list[FloatArray]] = []
    for each in (parts, *([row_parts(parts, layout.rows_up_to)] if layout.rows_up_to else [])):
        asked = [
            counted([np.zeros(n, np.intp), *cells], sizes, each),
            added(each * x),
            added(each * there * (x * x - 0.5)),
        ]
        if layout.quartiles:
            asked.append(counted(leaves, [bins.size + 1 for bins in layout.bins], each))
        totals.append(asked)
    return Total(tuple(map(np.vstack, zip(*totals, strict=True))), blocks.chain(n, len(numbers) + 1))


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
    def statistics(self) -> list[tuple[str, str, Estimate]]:
        """(column, name, number); count and share have no column."""
        own = [(column, name, found) for column, of in self.columns.items() for name, found in of.items()]
        return [("", "count", self.count), ("", "share", self.share), *own]


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
        sizes = np.array(cell_sizes(self.layout))
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
        levels = group_levels(self.layout)
        everyone = (ALL,) * len(levels)
        margins = [(*everyone[:i], own, *everyone[i + 1 :]) for i, of in enumerate(levels) for own in of]
        return {name: self.group(name) for name in dict.fromkeys([everyone, *margins, *product(*levels)])}

    def group(self, levels: tuple[str, ...]) -> Group:
        inside = np.ones(1, bool)
        for of, level in zip(group_levels(self.layout), levels, strict=True):
            inside = np.outer(inside, [level in (ALL, own) for own in of]).ravel()
        k, own = int(inside.sum()), float(self.counts.counts[inside].sum())
        deviation = math.sqrt(self.counts.of_cell(0, k)[0])
        hidden = own <= ENOUGH * deviation
        count = Estimate(own, max(own - Z * deviation, 0.0), max(own + Z * deviation, 0.0), not hidden)
        share = Estimate(1.0, 1.0, 1.0) if inside.all() else self._share(self.counts, 0, k, own)
        cells, columns, j = self.values["cells"][inside].sum(axis=0), {}, 0
        split = np.split(cells, np.cumsum(cell_sizes(self.layout))[:-1])[1:]
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
        mean = min(max(total / n, -1.0), 1.0)
        square = squares / n + 0.5 - (total / n) ** 2 + (sigma["sums"] / n) ** 2 + 0.5 * sigma["squares"] / n
        chance = self.most * (n + 0.5 * math.sqrt(noise)) * min(max(square, 0.0), 1.0 - mean**2)
        low, high = column.encoded_bounds[0]
        found = ratio(total, present, (sigma["sums"] ** 2 + chance, noise, 0.0), (-1.0, 1.0))
        told = {"mean": found.mapped(0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low)}
        short = 2.0 * Z * math.hypot(sigma["sums"], math.sqrt(chance)) <= present
        told["mean"] = replace(told["mean"], resolved=short)
        if self.layout.quartiles:
            bins = self.layout.bins[j]
            start = sum(before.nodes for before in self.layout.bins[:j])
            nodes = self.values["nodes"][inside, start : start + bins.nodes].sum(axis=0)
            leaves = CellCounts.of_tree(nodes, bins.size, sigma["nodes"])
            told |= {name: quantile(leaves, bins, q, self.most) for name, q in QUARTILES.items()}
        enough = present > ENOUGH * math.sqrt(noise)
        return {name: replace(e, resolved=e.resolved and enough) for name, e in told.items()}


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
    privacy : Guarantee
        What the release promises.
    record : str
        What one record is, or one person.
    receipt : Receipt or None
        Where it was charged; None without a ledger.
    """

    by: tuple[str, ...]
    tables: Mapping[str, Mapping[tuple[str, ...], Group]]
    rows_up_to: int | None
    privacy: Guarantee
    record: str = ""
    receipt: Receipt | None = None

    @classmethod
    def of(
        cls, sums: Sequence[GroupSums], privacy: Guarantee, record: str = "", receipt: Receipt | None = None
    ) -> GroupedDescription:
        """Everything that follows from the released sums, one for each way to count."""
        layout = sums[0].layout
        tables = {counted: own.groups() for counted, own in zip(ways(layout), sums, strict=True)}
        return cls(layout.by or (), tables, layout.rows_up_to, privacy, record, receipt)

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

    def table(self) -> dict[str, list[Any]]:
        """One row per number, as lists that any data frame library takes: ``pd.DataFrame(d.table())``."""
        found: dict[str, list[Any]] = {}
        for counted, groups in self.tables.items():
            for group in groups.values():
                for column, statistic, number in group.statistics:
                    own = {"counted": counted, "column": column, "statistic": statistic, **asdict(number)}
                    at = zip(self.by, group.levels, strict=True)
                    named = {f"by {name}" if name in own else name: level for name, level in at}
                    for key, cell in {**named, **own}.items():
                        found.setdefault(key, []).append(cell)
        return found

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
