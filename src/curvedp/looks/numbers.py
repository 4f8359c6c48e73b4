"""Columns of numbers as a source: every cell read by itself, and what is no number is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, FloatArray, TableLike
from curvedp.errors import DataError, InvalidInput, shielded
from curvedp.neighbours import Neighbours
from curvedp.schema.cells import check_numbers
from curvedp.schema.columns import repeated, shown
from curvedp.schema.delimited import csv_names, csv_tables
from curvedp.schema.formats import PLAIN, FileFormat
from curvedp.schema.frames import Table, as_cells, as_column, check_distinct, is_path, is_table, table_of
from curvedp.schema.numerals import Numerals
from curvedp.schema.stored import is_parquet, parquet_heads, parquet_tables


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
    """Columns that are read when a plan asks; `chunks` are the tables to read them from."""

    layout: ColumnNames
    chunks: Callable[[], Iterable[Table]]
    numerals: Mapping[str, Numerals] = field(default_factory=dict)

    def ordered(self) -> Mapping[str, FloatArray]:
        """The numbers of each column, increasing; missing cells are left out, ±1e150 is the farthest."""
        parts: dict[str, list[FloatArray]] = {name: [] for name in self.layout.names}
        for table in self.chunks():
            for name, found in parts.items():
                values = self.numerals.get(name, Numerals()).numbers(table.cells(name))
                found.append(np.clip(values[~np.isnan(values)], -LARGEST_ENTRY, LARGEST_ENTRY))
        return {name: np.sort(np.concatenate(found)) for name, found in parts.items()}

    def rows(self) -> int:
        """The number of rows; public or not, `layout.neighbours` says."""
        return sum(table.n_rows(self.layout.names[0]) for table in self.chunks())


def number_columns(
    table: TableLike,
    layout: ColumnNames,
    *,
    delimiter: str | None = None,
    file: FileFormat = PLAIN,
    numerals: Mapping[str, Numerals] | None = None,
) -> NumberColumns:
    """Those columns of a data frame, a mapping, CSV or Parquet files; refused by names and types alone.

    `numerals` says how numbers are written; those of a column that it does not name, as in the file.
    """
    mark = file if delimiter is None else replace(file, delimiter=delimiter)
    own = {name: Numerals(decimal=file.decimal) for name in layout.names} | dict(numerals or {})
    return shielded(lambda: _number_columns(table, layout, mark, own), _unreadable)


def _number_columns(
    table: TableLike, layout: ColumnNames, file: FileFormat, numerals: Mapping[str, Numerals]
) -> NumberColumns:
    if is_path(table):
        path = Path(table)
        if is_parquet(path):
            for head in parquet_heads(path, layout.names):
                _require(layout, head.columns)
            return NumberColumns(layout, lambda: parquet_tables(path, layout.names), numerals)
        header = csv_names(path, file=file)
        check_distinct(header)
        _require(layout, dict.fromkeys(header, ()))
        return NumberColumns(layout, lambda: csv_tables(path, file=file), numerals)
    if not is_table(table):
        raise InvalidInput(
            "pass a table with named columns: a data frame, a mapping {column: cells}, or a CSV file"
        )
    whole = table_of(table)
    _require(layout, whole.columns)
    return NumberColumns(layout, lambda: [whole], numerals)


def _require(layout: ColumnNames, columns: Mapping[str, object]) -> None:
    for name in layout.names:
        if name not in columns:
            raise DataError(f"the table has no column {shown(name)}: check the name")
        check_numbers(as_cells(as_column(columns[name])[:0]).kind, f"column {shown(name)}")


def _unreadable(kind: str) -> str:
    return f"the table cannot be read ({kind}): pass a data frame, a mapping of columns, or a CSV file"
