"""Columns of numbers as a source: every cell read by itself, and what is no number is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, FloatArray, TableLike
from curvedp.errors import DataError, InvalidInput
from curvedp.neighbours import Neighbours
from curvedp.schema.cells import check_numbers
from curvedp.schema.columns import repeated, shown
from curvedp.schema.formats import PLAIN, FileFormat
from curvedp.schema.frames import Table
from curvedp.schema.numerals import Numerals
from curvedp.schema.source import Source, source


@dataclass(frozen=True)
class ColumnNames:
    """The public side: which columns are read, and between which tables the release is private."""

    names: tuple[str, ...]
    neighbours: Neighbours

    def __post_init__(self) -> None:
        if not self.names or not all(isinstance(name, str) and name for name in self.names):
            raise InvalidInput("name at least one column")
        twice = repeated(self.names)
        if twice is not None:
            raise InvalidInput(f"column {shown(self.names[twice])} is named twice: remove one")


@dataclass(frozen=True, eq=False)
class NumberColumns:
    """Columns that are read when a plan asks."""

    layout: ColumnNames
    source: Source
    numerals: Mapping[str, Numerals]

    def ordered(self) -> Mapping[str, FloatArray]:
        """The numbers of each column, increasing; missing cells are left out, ±1e150 is the farthest."""
        parts = self.source.over(partial(_numbers, self.numerals))
        return {name: np.sort(np.concatenate([part[name] for part in parts])) for name in self.layout.names}

    def rows(self) -> int:
        """The number of rows; public or not, `layout.neighbours` says."""
        return self.source.rows()


def _numbers(numerals: Mapping[str, Numerals], chunk: Table) -> dict[str, FloatArray]:
    found = {name: written.numbers(chunk.cells(name)) for name, written in numerals.items()}
    return {
        name: np.clip(values[~np.isnan(values)], -LARGEST_ENTRY, LARGEST_ENTRY)
        for name, values in found.items()
    }


def number_columns(
    table: TableLike,
    layout: ColumnNames,
    *,
    delimiter: str | None = None,
    file: FileFormat = PLAIN,
    numerals: Mapping[str, Numerals] | None = None,
) -> NumberColumns:
    """Those columns of a table of any kind; of one without names they are all, in their order. Refused by
    names and types alone.

    `numerals` says how numbers are written; those of a column that it does not name, as in the file.
    """
    found = source(table, layout.names, only=layout.names, file=file.but(delimiter=delimiter))
    for head in found.heads:
        for name in layout.names:
            if name not in head:
                raise DataError(f"the table has no column {shown(name)}: check the name")
            check_numbers(head.cells(name).kind, f"column {shown(name)}")
    given = numerals or {}
    own = {name: given.get(name, Numerals(decimal=file.decimal)) for name in layout.names}
    return NumberColumns(layout, found, own)
