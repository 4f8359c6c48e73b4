"""The cells of a table as a source of counts: how many are of each kind, in each declared column.

A record adds 1 to at most one kind of each column. Tables come in chunks, and only their counts are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.errors import DataError, InvalidInput, shielded
from curvedp.neighbours import Neighbours
from curvedp.schema import EncodedTable, Schema, lazy
from curvedp.schema.cells import Cells
from curvedp.schema.columns import Categorical
from curvedp.schema.delimited import CHUNK_ROWS, csv_names, csv_tables
from curvedp.schema.frames import (
    Table,
    as_cells,
    as_column,
    check_width,
    is_path,
    is_table,
    matrix_of,
    no_column,
    rows_table,
    table_of,
)
from curvedp.schema.kinds import Feature
from curvedp.schema.stored import is_parquet, parquet_files
from curvedp.schema.truths import Boolean

UNEQUAL = "y must have one cell for each row of the table"
NO_TARGET = "an array has no column names: pass y beside it, or a data frame"

Counting = Callable[[Table], FloatArray]


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
        parts = [column.counts(table.cells(column.column.name)) for column in self.columns]
        return np.concatenate([*parts, [float(self._rows(table))]])

    def rows(self, table: Table) -> FloatArray:
        """The number of rows alone."""
        return np.array([float(self._rows(table))])

    def _rows(self, table: Table) -> int:
        return table.n_rows(self.columns[0].column.name)


@dataclass(frozen=True, eq=False)
class CheckedCells:
    """A table that is only counted: `total(f)` is Σ f(chunk) over its chunks."""

    layout: CellLayout
    total: Callable[[Counting], FloatArray]

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
    return shielded(lambda: _cells_of(schema, table, y, delimiter), _unreadable)


def _cells_of(schema: Schema, table: TableLike, y: ColumnLike, delimiter: str | None) -> CheckedCells:
    if isinstance(table, EncodedTable):
        raise InvalidInput("this table was read already, its cells are gone: pass the table itself")
    schema = schema.without_formula()
    layout = CellLayout.of(schema)
    if lazy.is_dask(table):
        return _lazy_cells(schema, layout, table, y)
    if is_path(table):
        if y is not None:
            raise InvalidInput("a file holds its target: leave y out")
        path = Path(table)
        if is_parquet(path):
            return _parquet_cells(schema, layout, path)
        _require(schema, layout, dict.fromkeys(csv_names(path, delimiter=delimiter, file=schema.file), ()))
        return CheckedCells(
            layout, partial(_sum, partial(csv_tables, path, delimiter=delimiter, file=schema.file))
        )
    if is_table(table):
        whole = _with_target(schema, table_of(table), y)
        _require(schema, layout, whole.columns)
        return CheckedCells(layout, partial(_sum, lambda: [whole]))
    if schema.has_target and y is None:
        raise InvalidInput(NO_TARGET)
    chunks = partial(_positional, schema, csr_array(table) if issparse(table) else matrix_of(table), y)
    _require(schema, layout, next(iter(chunks())).columns)
    return CheckedCells(layout, partial(_sum, chunks))


def _sum(chunks: Callable[[], Iterator[Table] | Sequence[Table]], work: Counting) -> FloatArray:
    return _added([work(table) for table in chunks()])


def _added(counts: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(np.sum(counts, axis=0), dtype=np.float64)


def _positional(schema: Schema, X: Any, y: ColumnLike) -> Iterator[Table]:
    """An array, a sparse matrix or a list of rows by the declared order of the features."""
    names = [column.name for column in schema.features]
    if not isinstance(X, list | tuple):
        check_width(X.shape[1], len(names))
    count = len(X) if isinstance(X, list | tuple) else X.shape[0]
    column = None if y is None else as_column(y)
    if column is not None and len(column) != count:
        raise DataError(UNEQUAL)
    for start in range(0, max(count, 1), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        chunk = X[part].toarray() if issparse(X) else X[part]
        yield _with_target(schema, rows_table(chunk, names), None if column is None else column[part])


def _with_target(schema: Schema, table: Table, y: ColumnLike) -> Table:
    if y is None or not schema.has_target:
        return table
    column = as_column(y)
    if any(len(other) != len(column) for other in table.columns.values()):
        raise DataError(UNEQUAL)
    return replace(table, columns={**table.columns, schema.target_column.name: column})


def _require(schema: Schema, layout: CellLayout, columns: Mapping[str, Any]) -> None:
    """Refuse, by names and declared types, columns that are not there or can never hold what is declared."""
    for counted in layout.columns:
        name = counted.column.name
        if name not in columns:
            raise DataError(no_column(name))
        column = columns[name]
        kind = (column if isinstance(column, Cells) else as_cells(as_column(column)[:0])).kind
        if name == schema.target:
            schema.declared_target.check_kind(kind)
        else:
            counted.column.check_kind(kind)


def _parquet_cells(schema: Schema, layout: CellLayout, path: Path) -> CheckedCells:
    try:
        from curvedp.rows.parquet import RowGroup, read_parquet
    except ModuleNotFoundError:
        raise InvalidInput('Parquet files need Dask and pyarrow: pip install "curvedp[dask]"') from None
    read_parquet(path, schema)  # refuses by names and types, from the metadata
    names = [counted.column.name for counted in layout.columns]

    def chunks() -> Iterator[Table]:
        yield table_of({name: [] for name in names})
        for file in parquet_files(path):
            yield from map(table_of, RowGroup(schema, file, None).tables(names))

    return CheckedCells(layout, partial(_sum, chunks))


def _lazy_cells(schema: Schema, layout: CellLayout, X: Any, y: ColumnLike) -> CheckedCells:
    if y is not None:
        raise InvalidInput("pass a Dask data frame that has the target as a column, and leave y out")
    if lazy.is_lazy_array(X):
        if schema.has_target:
            raise InvalidInput(NO_TARGET.replace(" y beside it, or", ""))
        import dask.dataframe as dd

        check_width(lazy.lazy_width(X), len(schema.features))
        X = dd.from_dask_array(X, columns=[column.name for column in schema.features])
    frame = lazy.select(X, [counted.column.name for counted in layout.columns])
    _require(schema, layout, table_of(frame._meta).columns)

    def total(work: Counting) -> FloatArray:
        from curvedp.rows.graphs import over_partitions

        return _added(over_partitions(frame, partial(_counted, work)))

    return CheckedCells(layout, total)


def _counted(work: Counting, part: Any) -> FloatArray:
    return work(table_of(part))


def _unreadable(kind: str) -> str:
    return f"the table cannot be read ({kind}): pass a data frame, a mapping of columns, or a CSV file"
