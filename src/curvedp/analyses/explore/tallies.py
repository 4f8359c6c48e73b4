"""A table as counts per cell and second moments, one pass, chunk by chunk: all that a description reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from curvedp.analyses.explore.noisy import Bins, Looked
from curvedp.arrays import LARGEST_ENTRY, ColumnLike, FloatArray, TableLike
from curvedp.data.cells import Numerals, check_numbers
from curvedp.data.columns import Categorical, Numeric, repeated, shown
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
        """Of the numeric columns."""
        return tuple(Bins.between(*column.encoded_bounds[0]) for column in self.numeric)

    @cached_property
    def map(self) -> ColumnMap:
        """Numbers onto [−1, 1], a missing one to 0, and a column of ones."""
        ends = [column.encoded_bounds[0] for column in self.numeric]
        return ColumnMap.from_bounds([low for low, _ in ends], [high for _, high in ends])


BlockTotal = Callable[[FloatArray, FloatArray, TableLayout], Total]


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of the leaves of numeric columns and of the levels of others, each with what is missing last,
    and Σ wzzᵀ of z = (x, 1), x the numeric columns on [−1, 1]; every row counts w, its part."""

    leaves: tuple[FloatArray, ...]
    levels: tuple[FloatArray, ...]
    gram: FloatArray


class TalliedTable(Looked):
    """Private records behind one reduction, a sum over blocks of rows."""

    def tally(self) -> Tally:
        """One pass over the table."""
        *counts, gram = self.total(block_total).parts
        of = list(zip(self.layout.columns, counts, strict=True))
        leaves = tuple(part for column, part in of if isinstance(column, Numeric | Date))
        return Tally(leaves, tuple(part for c, part in of if isinstance(c, Categorical | Boolean)), gram)

    def total(self, of: BlockTotal) -> Total:
        """Σ of(block, parts, layout) over blocks of rows, in one pass."""
        found = self.source.over(partial(chunk_total, self.layout, of))
        total = tree_sum(part for part in found if part is not None)
        return total or of(np.empty((0, len(self.layout.columns))), np.empty(0), self.layout)


def tallied(table: TableLike, schema: Schema, *, delimiter: str | None = None, **asked: Any) -> TalliedTable:
    """The declared columns of a table, the target among them; refused where one is not there.

    Cells are read when it is tallied, a chunk at a time; of a CSV file only the header is read here. What is
    `asked` of groups, a `TableLayout` says.
    """
    schema = describable(schema)
    layout = TableLayout(schema.features, schema.neighbours, **asked)
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


def chunk_total(layout: TableLayout, of: BlockTotal, chunk: Table) -> Total | None:
    """What a chunk contributes, a block of rows after another; None where it has no rows."""
    records, parts = narrow(chunk, layout), chunk.parts
    starts = range(0, len(records), DENSE_ROWS_AT_MOST)
    pieces = (slice(start, start + DENSE_ROWS_AT_MOST) for start in starts)
    return tree_sum(of(records[own], parts[own], layout) for own in pieces)


def block_total(block: FloatArray, parts: FloatArray, layout: TableLayout) -> Total:
    """Counts, column after column, and Σ wzzᵀ, each row with its part w; counts are exact.

    How √w·z is rounded is among the factors that `relative_error` covers, as for weights (W-1).
    """
    counts, numbers, bins = [], [], iter(layout.bins)
    for column, values in zip(layout.columns, block.T, strict=True):
        if isinstance(column, Numeric | Date):
            numbers.append(values)
            leaves = next(bins)
            cells, size = leaves.cells(values), leaves.size + 1
        else:
            size = len(column.levels) + 1
            cells = level_places(values, size)
        counts.append(np.bincount(cells, parts, minlength=size).astype(np.float64))
    z = mapped(np.column_stack([*numbers, np.empty((len(block), 0))]), layout)
    return Total((*counts, blocks.gram(z, np.sqrt(parts))), blocks.chain(*z.shape))


def level_places(values: FloatArray, size: int) -> NDArray[np.intp]:
    """Positions of levels, the last of `size` for none."""
    return np.where(np.isnan(values), size - 1, values).astype(np.intp)


def mapped(numbers: FloatArray, layout: TableLayout) -> FloatArray:
    """z = (x, 1) of every row of numeric columns."""
    z = layout.map.apply(numbers) if numbers.size else np.ones((len(numbers), numbers.shape[1] + 1))
    return np.clip(z, -1.0, 1.0)  # the middle of bounds that doubles hardly tell apart may lie beside them


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
        twice = repeated(self.names)
        if twice is not None:
            raise InvalidInput(f"column {shown(self.names[twice])} is named twice: remove one")
        if self.neighbours.unit in self.names:
            raise InvalidInput(f"{self.neighbours.unit!r} says whose row it is: it has no bounds")
        possible = ("all",) if self.neighbours.unit is None else get_args(RowsPerPerson)
        if self.rows_per_person not in possible:
            raise InvalidInput('rows_per_person must be "all" or "one", which needs unit: name it, too')


@dataclass(frozen=True, eq=False)
class Ordered:
    """Increasing numbers. The first i of them count `sums[i]` steps, so that a person counts PART_STEPS in
    all (U-2); without `sums` they count i steps, one each."""

    values: FloatArray
    sums: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, values: FloatArray, parts: FloatArray | None = None) -> Ordered:
        if parts is None:
            return cls(np.sort(values))
        order = np.argsort(values, kind="stable")
        steps = (PART_STEPS * parts[order]).astype(np.int64)
        return cls(values[order], np.append(0, np.cumsum(steps)))

    @property
    def steps(self) -> int:
        """Of one row, or of one person."""
        return 1 if self.sums is None else PART_STEPS

    @property
    def parts(self) -> FloatArray | None:
        """How much each number counts; None: 1."""
        return None if self.sums is None else np.diff(self.sums) / PART_STEPS

    def before(self, ends: FloatArray | float, side: Literal["left", "right"]) -> NDArray[np.int64]:
        """Steps of the numbers below each end, those at it included where the side is "right"."""
        first = np.searchsorted(self.values, ends, side=side).astype(np.int64)
        return first if self.sums is None else self.sums[first]

    @property
    def total(self) -> int:
        """Steps of all numbers."""
        return len(self.values) if self.sums is None else int(self.sums[-1])


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
    given = numerals or {}
    own = {name: given.get(name, Numerals(decimal=file.decimal)) for name in layout.names}
    return NumberColumns(layout, found, own)
