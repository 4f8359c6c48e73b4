"""A table as counts per cell and second moments, one pass, chunk by chunk: all that a description reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from curvedp.arrays import FloatArray, TableLike
from curvedp.columns import ColumnMap
from curvedp.errors import DataError, NotCovered, shielded
from curvedp.looks.histograms import Bins
from curvedp.neighbours import Neighbours
from curvedp.rows import products
from curvedp.rows.rounding import DENSE_ROWS_AT_MOST
from curvedp.rows.sums import Total, tree_sum
from curvedp.schema import Boolean, Categorical, Date, EncodedTable, Numeric, Schema, lazy
from curvedp.schema.cells import Cells
from curvedp.schema.delimited import csv_names, csv_rows, csv_tables
from curvedp.schema.frames import Table, is_path, is_table, no_column, table_of
from curvedp.schema.kinds import Column, Feature
from curvedp.schema.stored import empty_table, is_parquet, parquet_files, parquet_rows, parquet_tables

Chunks = Callable[[], Iterator[FloatArray]]


@dataclass(frozen=True)
class TableLayout:
    """The public side: the columns in their declared order, a target among them, and who is a neighbour."""

    columns: tuple[Feature, ...]
    neighbours: Neighbours

    def __post_init__(self) -> None:
        if self.neighbours.unit is not None:
            raise NotCovered(
                "a description protects rows, and this table protects people with several rows: describe a "
                "table with one row for each person"
            )

    @property
    def numeric(self) -> tuple[Numeric | Date, ...]:
        """Numbers, and dates as days since their first."""
        return tuple(column for column in self.columns if isinstance(column, Numeric | Date))

    @property
    def categorical(self) -> tuple[Categorical | Boolean, ...]:
        """Levels, and truth values as two."""
        return tuple(column for column in self.columns if isinstance(column, Categorical | Boolean))

    @cached_property
    def bins(self) -> tuple[Bins, ...]:
        """Of the numeric columns."""
        return tuple(Bins.between(*column.encoded_bounds[0]) for column in self.numeric)

    @cached_property
    def map(self) -> ColumnMap:
        """Numbers onto [−1, 1], a missing one to 0, and a column of ones."""
        ends = [column.encoded_bounds[0] for column in self.numeric]
        return ColumnMap.from_bounds([low for low, _ in ends], [high for _, high in ends])

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each column begins among the encoded ones, and their number."""
        return tuple(np.cumsum([0, *(len(column.encoded_names) for column in self.columns)]).tolist())


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of the leaves of numeric columns and of the levels of others, each with what is missing last,
    and Σ zzᵀ of z = (x, 1), x the numeric columns on [−1, 1]."""

    leaves: tuple[FloatArray, ...]
    levels: tuple[FloatArray, ...]
    gram: FloatArray


@dataclass(frozen=True, eq=False)
class TalliedTable:
    """Private records behind one reduction. `chunks()` gives them as `narrow` reads them.

    `count()` is their number, for neighbours that make it public; None where it takes a pass to know it.
    """

    layout: TableLayout
    chunks: Chunks
    count: Callable[[], int] | None = None

    def tally(self) -> Tally:
        """One pass over the table."""
        total = tree_sum(part for chunk in self.chunks() for part in chunk_totals(chunk, self.layout))
        return _named(total or block_total(_no_rows(self.layout), self.layout), self.layout)


@dataclass(frozen=True, eq=False)
class LazyTable:
    """A Dask table: the same sums, taken where its partitions are. How many rows it has takes a pass."""

    layout: TableLayout
    table: Any  # a data frame of the declared columns, or an array as the schema encodes them
    count: None = None

    def tally(self) -> Tally:
        from curvedp.rows.graphs import over_partitions

        total = tree_sum(over_partitions(self.table, partial(_part_total, self.layout)))
        return _named(total or block_total(_no_rows(self.layout), self.layout), self.layout)


def tallied(table: TableLike, schema: Schema, *, delimiter: str | None = None) -> TalliedTable | LazyTable:
    """The declared columns of a table, the target among them; refused where one is not there.

    A CSV file is read when it is tallied, a chunk at a time; of it only the header is read here.
    """
    return shielded(lambda: _tallied(table, describable(schema), delimiter), _unreadable)


def describable(schema: Schema) -> Schema:
    """All columns, a target like the others, each as a description reads it: no column says what is missing,
    and a date is a number of days."""
    columns = tuple(map(_described, schema.columns))
    roles: dict[str, Any] = dict.fromkeys(("target", "weight", "offset", "exposure", "terms"))
    return replace(schema, columns=columns, derived=(), **roles)


def _described(column: Column) -> Column:
    if isinstance(column, Categorical):
        return replace(column, missing="zero")
    if isinstance(column, Numeric | Boolean):
        return replace(column, missing="middle")
    return replace(column, parts=("days",), missing="middle") if isinstance(column, Date) else column


def _tallied(table: TableLike, schema: Schema, delimiter: str | None) -> TalliedTable | LazyTable:
    layout = TableLayout(schema.features, schema.neighbours)
    names = [column.name for column in layout.columns]
    if is_path(table) and is_parquet(table):
        for file in parquet_files(table):
            narrow(table_of(empty_table(file)), layout)  # refuses by names and types
        chunks = partial(parquet_tables, table, names)
        return TalliedTable(layout, partial(_narrow_chunks, chunks, layout), partial(parquet_rows, table))
    if is_path(table):
        header = csv_names(table, delimiter=delimiter, file=schema.file)
        missing = next((name for name in names if name not in header), None)
        if missing is not None:
            raise DataError(no_column(missing))
        chunks = partial(csv_tables, table, delimiter=delimiter, file=schema.file)
        count = partial(csv_rows, table, delimiter=delimiter, file=schema.file)
        return TalliedTable(layout, partial(_narrow_chunks, chunks, layout), count)
    if is_table(table):
        records = narrow(table_of(table), layout)
        return TalliedTable(layout, lambda: iter([records]), lambda: len(records))
    encoded = table.features_for(schema) if isinstance(table, EncodedTable) else schema.read(table)
    if lazy.is_dask(encoded):
        frame = lazy.is_dask(table) and not lazy.is_lazy_array(table)
        return LazyTable(layout, lazy.select(table, names) if frame else encoded)
    matrix = csr_array(encoded) if issparse(encoded) else encoded
    return TalliedTable(layout, lambda: narrowed(matrix, layout), lambda: int(matrix.shape[0]))


def narrow(table: Table, layout: TableLayout) -> FloatArray:
    """One column for each declared one: its number, or the position of its level; NaN where there is none."""
    found = [_numbers(column, table.cells(column.name)) for column in layout.columns]
    return np.column_stack(found) if found else np.empty((0, 0))


def _numbers(column: Feature, cells: Cells) -> FloatArray:
    if not isinstance(column, Categorical):
        return column.encode(cells)[:, 0]
    places = column.places(cells)
    return np.where(places < 0, np.nan, places)


def narrowed(encoded: Any, layout: TableLayout) -> Iterator[FloatArray]:
    """The same of a matrix that the schema encoded, a block of rows at a time."""
    for first in range(0, encoded.shape[0], DENSE_ROWS_AT_MOST):
        rows = encoded[first : first + DENSE_ROWS_AT_MOST]
        block = rows.toarray() if issparse(rows) else np.asarray(rows, dtype=np.float64)
        found = []
        for column, start, stop in zip(layout.columns, layout.starts, layout.starts[1:], strict=False):
            named = block[:, start:stop] > 0.5
            level = np.where(named.any(axis=1), named.argmax(axis=1), np.nan)
            found.append(level if isinstance(column, Categorical) else block[:, start])
        yield np.column_stack(found)


def _narrow_chunks(chunks: Callable[[], Iterator[Table]], layout: TableLayout) -> Iterator[FloatArray]:
    return (narrow(chunk, layout) for chunk in chunks())


def chunk_totals(records: FloatArray, layout: TableLayout) -> Iterator[Total]:
    """What each block of some records contributes."""
    for start in range(0, len(records), DENSE_ROWS_AT_MOST):
        yield block_total(records[start : start + DENSE_ROWS_AT_MOST], layout)


def block_total(block: FloatArray, layout: TableLayout) -> Total:
    """Counts, column after column, and Σ zzᵀ; counts are exact."""
    counts, numbers, bins = [], [], iter(layout.bins)
    for column, values in zip(layout.columns, block.T, strict=True):
        if isinstance(column, Numeric | Date):
            numbers.append(values)
            leaves = next(bins)
            cells, size = leaves.cells(values), leaves.size + 1
        else:
            size = len(column.levels) + 1
            cells = np.where(np.isnan(values), size - 1, values).astype(np.intp)
        counts.append(np.bincount(cells, minlength=size).astype(np.float64))
    z = layout.map.apply(np.column_stack(numbers)) if numbers else np.ones((len(block), 1))
    z = np.clip(
        z, -1.0, 1.0
    )  # between bounds that doubles hardly tell apart, the middle is not in the middle
    return Total((*counts, products.gram(z)), products.chain(*z.shape))


def _part_total(layout: TableLayout, part: Any) -> Total:
    chunks = [narrow(table_of(part), layout)] if is_table(part) else narrowed(np.asarray(part), layout)
    totals = (total for chunk in chunks for total in chunk_totals(chunk, layout))
    return tree_sum(totals) or block_total(_no_rows(layout), layout)


def _no_rows(layout: TableLayout) -> FloatArray:
    return np.empty((0, len(layout.columns)))


def _named(total: Total, layout: TableLayout) -> Tally:
    *counts, gram = total.parts
    of = list(zip(layout.columns, counts, strict=True))
    return Tally(
        tuple(part for column, part in of if isinstance(column, Numeric | Date)),
        tuple(part for column, part in of if isinstance(column, Categorical | Boolean)),
        gram,
    )


def _unreadable(kind: str) -> str:
    return f"the table cannot be read ({kind}): pass a data frame, a mapping of columns, or a CSV file"
