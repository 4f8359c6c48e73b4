"""A table as counts per cell and second moments, one pass, chunk by chunk: all that a description reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from curvedp.analyses.explore.noisy import Bins, Looked, tree
from curvedp.arrays import LARGEST_ENTRY, ColumnLike, FloatArray, TableLike
from curvedp.data.cells import Numerals, check_numbers
from curvedp.data.columns import Categorical, Ignored, Numeric, repeated, shown
from curvedp.data.dates import Boolean, Date, Feature
from curvedp.data.delimited import PLAIN, FileFormat
from curvedp.data.frames import PART_STEPS, Table
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import blocks
from curvedp.data.rows.base import DENSE_ROWS_AT_MOST, Total, tree_sum
from curvedp.data.schema import Schema
from curvedp.data.source import RowsPerPerson, source
from curvedp.errors import DataError, InvalidInput
from curvedp.privacy.budget import Neighbours

ALL, OTHER = "(all)", "(missing or other)"  # in the place of a level: of a margin, and where there is none
MOST_GROUPS = 10_000
_FEW = 256  # rows that are added one after another, within what SUM_SLACK covers


@dataclass(frozen=True)
class TableLayout:
    """The public side: the columns in their declared order, a target among them, and who is a neighbour.

    `by` names the columns whose levels, crossed, are groups (D-2); None: the table as a whole is described.
    Rows of a person are counted, too, up to `rows_up_to` of each, and `quartiles` of groups are released.
    """

    columns: tuple[Feature, ...]
    neighbours: Neighbours
    by: tuple[str, ...] | None = None
    rows_up_to: int | None = None
    quartiles: bool = False

    @property
    def described(self) -> tuple[Feature, ...]:
        """The columns that make no groups."""
        return tuple(column for column in self.columns if column.name not in (self.by or ()))

    @property
    def numeric(self) -> tuple[Numeric | Date, ...]:
        """Numbers, and dates as days since their first."""
        return tuple(column for column in self.columns if isinstance(column, Numeric | Date))

    @property
    def categorical(self) -> tuple[Categorical | Boolean, ...]:
        """Levels, and truth values as two; of groups only what is described."""
        return tuple(column for column in self.described if isinstance(column, Categorical | Boolean))

    @cached_property
    def bins(self) -> tuple[Bins, ...]:
        """Of the numeric columns, where their leaves are counted."""
        counted = self.numeric if self.by is None or self.quartiles else ()
        return tuple(Bins.between(*column.encoded_bounds[0]) for column in counted)

    @cached_property
    def map(self) -> ColumnMap:
        """Numbers onto [−1, 1], a missing one to 0, and a column of ones."""
        ends = [column.encoded_bounds[0] for column in self.numeric]
        return ColumnMap.from_bounds([low for low, _ in ends], [high for _, high in ends])

    @cached_property
    def group_levels(self) -> list[tuple[str, ...]]:
        """Of each column that makes groups, what has no declared one last; refused where that is too many."""
        of = {c.name: (*c.levels, OTHER) for c in self.columns if isinstance(c, Categorical | Boolean)}
        found = [of[name] for name in self.by or ()]
        if (made := math.prod(map(len, found))) > MOST_GROUPS:
            raise InvalidInput(f"`by` makes {made:,} groups, more than {MOST_GROUPS:,}: declare fewer levels")
        return found

    @property
    def cell_sizes(self) -> list[int]:
        """Cells of a group: one for everybody; then, of each described column, its levels and what has none,
        or two, of what has a number and what has none."""
        return [1, *(2 if isinstance(c, Numeric | Date) else len(c.levels) + 1 for c in self.described)]

    @property
    def ways(self) -> dict[str, float]:
        """What is counted, and how many of these one person adds at most: 1 record or person, m rows."""
        rows = {"rows": PART_STEPS / (PART_STEPS // self.rows_up_to)} if self.rows_up_to else {}
        return {f"{self.neighbours.who}s": 1.0, **rows}


class TalliedTable(Looked):
    """Private records behind one reduction, a sum over blocks of rows."""

    def sums(self) -> dict[str, FloatArray]:
        """What is counted and added up, in one pass: the queries of (D-1), or those of (D-2)."""
        layout, of_chunks = self.layout, self.source.over(partial(chunk_total, self.layout))
        total = tree_sum(part for part in of_chunks if part is not None)
        total = total or block_total(layout, np.empty((0, len(layout.columns))), np.empty(0))
        leaves, cells, *sums = total.parts
        own = np.split(leaves, np.cumsum([bins.size + 1 for bins in layout.bins]), axis=1)
        trees = (part @ tree(bins.size).T for part, bins in zip(own[:-1], layout.bins, strict=True))
        nodes = np.hstack([np.empty((len(leaves), 0)), *trees])
        if layout.by is not None:
            return {"cells": cells, "sums": sums[0], "squares": sums[1], "nodes": nodes}
        (gram,), (_, *columns) = sums, np.split(cells[0], np.cumsum(layout.cell_sizes)[:-1])
        of = dict(zip((column.name for column in layout.columns), columns, strict=True))
        d, present = len(gram) - 1, [of[column.name][0] for column in layout.numeric]
        return {
            "cells": cells,
            "levels": np.concatenate([*(of[column.name] for column in layout.categorical), np.empty(0)]),
            "nodes": nodes[0],
            "sums": gram[:d, d],
            "squares": np.diag(gram)[:d] - 0.5 * np.array(present),
            "pairs": gram[np.triu_indices(d, 1)],
        }


def tallied(table: TableLike, schema: Schema, *, delimiter: str | None = None, **asked: Any) -> TalliedTable:
    """The declared columns of a table, the target among them; refused where one is not there.

    Cells are read when it is tallied, a chunk at a time; of a CSV file only the header is read here. What is
    `asked`, `described` says.
    """
    schema, layout = described(describable(schema), **asked)
    source = schema.source(table, delimiter=delimiter).of_persons(schema.unit, schema.rows_per_person)
    for head in source.heads:
        narrow(head, layout)  # refuses by names and types
    return TalliedTable(layout, source)


def describable(schema: Schema) -> Schema:
    """All columns, a target like the others, each as a description reads it: no column says what is missing,
    and a date is a number of days."""
    read: dict[type, dict[str, Any]] = {
        Categorical: {"missing": "zero"},
        Numeric: {"missing": "middle"},
        Boolean: {"missing": "middle"},
        Date: {"missing": "middle", "parts": ("days",)},
    }
    columns = tuple(replace(column, **read.get(type(column), {})) for column in schema.columns)
    roles: dict[str, Any] = dict.fromkeys(("target", "weight", "offset", "exposure", "terms"))
    return replace(schema, columns=columns, derived=(), **roles)


def described(
    schema: Schema,
    columns: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    rows_up_to: int | None = None,
    quartiles: bool = False,
) -> tuple[Schema, TableLayout]:
    """What is described of all columns, those that make groups among it; refused where undeclared."""
    declared = {c.name: c for c in schema.features}
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
    if rows_up_to is not None and (schema.unit is None or schema.rows_per_person == "one"):
        raise InvalidInput("`rows_up_to` counts rows beside persons: name a unit, and keep all of its rows")
    if rows_up_to is not None and rows_up_to not in range(1, PART_STEPS + 1):
        raise InvalidInput(f"`rows_up_to` must be a whole number from 1 to {PART_STEPS:,}")
    if by is None and rows_up_to is None and quartiles:
        raise InvalidInput("`quartiles` are those of groups: name columns with `by`, or leave it out")
    wanted = [c for c in schema.columns if columns is None or c.name in both or isinstance(c, Ignored)]
    kept = replace(schema, columns=tuple(wanted))
    made = None if by is None and rows_up_to is None else tuple(by or ())
    return kept, TableLayout(kept.features, kept.neighbours, made, rows_up_to, quartiles)


def narrow(chunk: Table, layout: TableLayout) -> FloatArray:
    """One column for each declared one: its number, or the position of its level; NaN where there is none."""
    found = []
    for column in layout.columns:
        cells = chunk.cells(column.name)
        if isinstance(column, Categorical):
            places = column.places(cells)
            found.append(np.where(places < 0, np.nan, places))
        else:
            found.append(column.encode(cells)[:, 0])
    return np.column_stack(found)


def chunk_total(layout: TableLayout, chunk: Table) -> Total | None:
    """What a chunk contributes, a block of rows after another; None where it has no rows."""
    records, parts = narrow(chunk, layout), chunk.parts
    starts = range(0, len(records), DENSE_ROWS_AT_MOST)
    pieces = (slice(start, start + DENSE_ROWS_AT_MOST) for start in starts)
    return tree_sum(block_total(layout, records[own], parts[own]) for own in pieces)


def block_total(layout: TableLayout, block: FloatArray, parts: FloatArray) -> Total:
    """What rows add, each with its part w: a row for each group of the leaves of the numeric columns, what is
    missing last; of its cells; then of Σwx and Σw(x² − ½) of the numbers that are there, x on [−1, 1]; all
    ways to count one after another. Without groups Σ wzzᵀ of z = (x, 1) instead of the latter two.

    Counts are exact. How √w·z is rounded is among the factors that `relative_error` covers, as for weights
    (W-1).
    """
    of, n = dict(zip((column.name for column in layout.columns), block.T, strict=True)), len(block)
    numbers = np.column_stack([*(of[column.name] for column in layout.numeric), np.empty((n, 0))])
    z = layout.map.apply(numbers) if numbers.size else np.ones((n, numbers.shape[1] + 1))
    z = np.clip(z, -1.0, 1.0)  # the middle of bounds that doubles hardly tell apart may lie beside them
    x, there = z[:, : numbers.shape[1]], ~np.isnan(numbers)
    K, group = 1, np.zeros(n, np.intp)
    for name, levels in zip(layout.by or (), layout.group_levels, strict=True):
        K, group = K * len(levels), group * len(levels) + level_places(of[name], len(levels))
    known = zip(layout.numeric, there.T, strict=True)
    of |= {column.name: np.where(own, 0.0, np.nan) for column, own in known}
    sizes = layout.cell_sizes
    cells = [level_places(of[c.name], size) for c, size in zip(layout.described, sizes[1:], strict=True)]
    cells.insert(0, np.zeros(n, np.intp))
    leaves = [bins.cells(own) for bins, own in zip(layout.bins, numbers.T, strict=False)]
    run, runs = np.arange(n) // _FEW * K + group, -(-n // _FEW)

    def counted(found: Sequence[NDArray[np.intp]], sizes: Sequence[int], each: FloatArray) -> FloatArray:
        counts = [np.bincount(group * s + place, each, K * s) for place, s in zip(found, sizes, strict=True)]
        return np.hstack([np.empty((K, 0)), *(c.reshape(K, -1) for c in counts)])

    def added(terms: FloatArray) -> FloatArray:
        sums = [np.bincount(run, own, runs * K).reshape(runs, K).sum(axis=0) for own in terms.T]
        return np.array(sums, dtype=np.float64).reshape(-1, K).T

    totals = []
    for each in (parts, *([row_parts(parts, layout.rows_up_to)] if layout.rows_up_to else [])):
        asked = [counted(leaves, [bins.size + 1 for bins in layout.bins], each), counted(cells, sizes, each)]
        if layout.by is None:
            asked += [blocks.gram(z, np.sqrt(each))]
        else:
            w = each[:, None]
            asked += [added(w * x), added(w * there * (x * x - 0.5))]
        totals.append(asked)
    return Total(tuple(map(np.vstack, zip(*totals, strict=True))), blocks.chain(*z.shape))


def row_parts(parts: FloatArray, up_to: int) -> FloatArray:
    """min(1/m, part), m = `up_to`, in multiples of 2⁻¹⁶: what a row counts, a person 1 at most."""
    return np.minimum(parts, (PART_STEPS // up_to) / PART_STEPS)


def level_places(values: FloatArray, size: int) -> NDArray[np.intp]:
    """Positions of levels, the last of `size` for none."""
    return np.where(np.isnan(values), size - 1, values).astype(np.intp)


# Columns of numbers as a source: every cell read by itself, and what is no number is left out.


@dataclass(frozen=True)
class ColumnNames:
    """The public side: which columns are read, and between which tables the release is private."""

    names: tuple[str, ...]
    neighbours: Neighbours
    rows_per_person: RowsPerPerson = "all"

    def __post_init__(self) -> None:
        if not self.names or not all(isinstance(name, str) and name for name in self.names):
            raise InvalidInput("name at least one column")
        if (twice := repeated(self.names)) is not None:
            raise InvalidInput(f"column {shown(self.names[twice])} is named twice: remove one")
        if self.neighbours.unit in self.names:
            raise InvalidInput(f"{self.neighbours.unit!r} says whose row it is: it has no bounds")
        possible = ("all",) if self.neighbours.unit is None else get_args(RowsPerPerson)
        if self.rows_per_person not in possible:
            raise InvalidInput('rows_per_person must be "all" or "one", which needs unit: name it, too')


@dataclass(frozen=True, eq=False)
class Ordered:
    """Increasing numbers. The first i of them count `sums[i]` steps: a row counts one, a person (U-2)
    PART_STEPS in all, which are the `steps`."""

    values: FloatArray
    sums: NDArray[np.int64]
    steps: int

    @classmethod
    def of(cls, values: FloatArray, parts: FloatArray | None = None) -> Ordered:
        if parts is None:
            return cls(np.sort(values), np.arange(len(values) + 1), 1)
        order = np.argsort(values, kind="stable")
        steps = (PART_STEPS * parts[order]).astype(np.int64)
        return cls(values[order], np.append(0, np.cumsum(steps)), PART_STEPS)

    def before(self, ends: FloatArray | float, side: Literal["left", "right"]) -> NDArray[np.int64]:
        """Steps of the numbers below each end, those at it included where the side is "right"."""
        return np.asarray(self.sums[np.searchsorted(self.values, ends, side=side)])

    @property
    def total(self) -> int:
        """Steps of all numbers."""
        return int(self.sums[-1])


@dataclass(frozen=True, eq=False)
class NumberColumns(Looked):
    """Columns of numbers, and how these are written."""

    numerals: Mapping[str, Numerals]

    def ordered(self) -> Mapping[str, Ordered]:
        """The numbers of each column; missing cells are left out, ±1e150 is the farthest."""
        weighed, numerals = self.layout.neighbours.unit is not None, self.numerals

        def read(chunk: Table) -> dict[str, tuple[FloatArray, ...]]:
            """Numbers by column, and their parts where they are weighed."""
            found: dict[str, tuple[FloatArray, ...]] = {}
            for name, written in numerals.items():
                values = written.numbers(chunk.cells(name))
                there = ~np.isnan(values)
                kept = np.clip(values[there], -LARGEST_ENTRY, LARGEST_ENTRY)
                found[name] = (kept, chunk.parts[there]) if weighed else (kept,)
            return found

        chunks = self.source.over(read)
        columns = {name: zip(*(chunk[name] for chunk in chunks), strict=True) for name in self.layout.names}
        return {name: Ordered.of(*map(np.concatenate, column)) for name, column in columns.items()}


def number_columns(
    table: TableLike,
    layout: ColumnNames,
    *,
    delimiter: str | None = None,
    file: FileFormat = PLAIN,
    numerals: Mapping[str, Numerals] | None = None,
    unit: ColumnLike = None,
) -> NumberColumns:
    """Those columns of a table of any kind; of one without names they are all, in their order, and the unit
    comes last. Refused by names and types alone.

    `numerals` says how numbers are written; those of a column that it does not name, as in the file. `unit`
    holds the identifiers where the table does not.
    """
    whose = layout.neighbours.unit
    names = layout.names if whose is None or unit is not None else (*layout.names, whose)
    found = source(table, names, only=names, beside={"unit": unit}, file=file.but(delimiter=delimiter))
    found = found.of_persons(whose, layout.rows_per_person)
    for head in found.heads:
        for name in layout.names:
            if name not in head:
                raise DataError(f"the table has no column {shown(name)}: check the name")
            check_numbers(head.cells(name).kind, f"column {shown(name)}")
    own = {name: (numerals or {}).get(name, Numerals(decimal=file.decimal)) for name in layout.names}
    return NumberColumns(layout, found, own)
