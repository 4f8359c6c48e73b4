"""The cells of a table as a source of counts: how many are of each kind, in each declared column.

A record adds 1 to at most one kind of each column. Tables come in chunks, and only their counts are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.errors import InvalidInput
from curvedp.neighbours import Neighbours
from curvedp.schema import EncodedTable, Schema
from curvedp.schema.cells import Cells
from curvedp.schema.columns import Categorical
from curvedp.schema.frames import Table, as_cells
from curvedp.schema.kinds import Feature
from curvedp.schema.truths import Boolean


@dataclass(frozen=True)
class CountedColumn:
    """A declared column and the kinds of its cells that are counted; of a class target, each class, too."""

    column: Feature
    classes: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is counted, in order; the classes come last."""
        column = self.column
        own = column.levels if self.classes and isinstance(column, Categorical | Boolean) else ()
        return (*column.cell_kinds, *own)

    def counts(self, cells: Cells) -> FloatArray:
        """How many cells are of each kind; every cell is of one at most."""
        kinds, size = self.column.kinds_of(cells), len(self.kinds)
        return np.bincount(kinds[(kinds >= 0) & (kinds < size)], minlength=size).astype(np.float64)


@dataclass(frozen=True)
class CellLayout:
    """The public side of a check: its columns, the target last, and between which tables it is private."""

    columns: tuple[CountedColumn, ...]
    neighbours: Neighbours

    def __post_init__(self) -> None:
        self.neighbours.refuse_units("a check counts cells of rows", "check one row of each person")

    @classmethod
    def of(cls, schema: Schema) -> CellLayout:
        schema = schema.without_formula()
        columns = [CountedColumn(column, classes=False) for column in schema.features]
        if schema.has_target:
            target = schema.target_column
            columns.append(CountedColumn(target, classes=isinstance(target, Categorical | Boolean)))
        return cls(tuple(columns), schema.neighbours)

    @property
    def size(self) -> int:
        """The number of counts."""
        return sum(len(column.kinds) for column in self.columns)

    def counts(self, table: Table) -> FloatArray:
        """The counts of all columns, one after another, and the number of rows."""
        parts = [column.counts(self.cells(table, column.column.name)) for column in self.columns]
        return np.concatenate([*parts, self.rows(table)])

    def rows(self, table: Table) -> FloatArray:
        """The number of rows alone."""
        return np.array([float(len(table))])

    def cells(self, table: Table, name: str) -> Cells:
        """The cells of a declared column; those of a target that was passed beside the table."""
        passed = name == self.columns[-1].column.name and "y" in table.beside
        return as_cells(table.beside["y"]) if passed else table.cells(name)


@dataclass(frozen=True, eq=False)
class CheckedCells:
    """A table that is only counted: `total(f)` is Σ f(chunk) over its chunks."""

    layout: CellLayout
    total: Callable[[Callable[[Table], FloatArray]], FloatArray]

    def counts(self) -> FloatArray:
        """Cells by column and kind, then rows."""
        return self.total(self.layout.counts)

    @cached_property
    def rows(self) -> int:
        """The number of rows; whether it is public, `layout.neighbours` says."""
        return int(self.total(self.layout.rows)[0])


def cells_of(
    schema: Schema, table: TableLike, y: ColumnLike = None, *, delimiter: str | None = None
) -> CheckedCells:
    """The cells of a table, refused where a declared column is not there or can never hold what is declared.

    No cell is read here, but for the header of a file.
    """
    if isinstance(table, EncodedTable):
        raise InvalidInput("this table was read already, its cells are gone: pass the table itself")
    schema = schema.without_formula()
    layout = CellLayout.of(schema)
    beside = {"y": y if schema.has_target else None}
    found = schema.source(table, beside=beside, delimiter=delimiter)
    for head in found.heads:
        for counted in layout.columns:
            name = counted.column.name
            kind = layout.cells(head, name).kind
            (schema.declared_target if name == schema.target else counted.column).check_kind(kind)
    return CheckedCells(layout, lambda work: np.asarray(np.sum(found.over(work), axis=0), dtype=np.float64))
