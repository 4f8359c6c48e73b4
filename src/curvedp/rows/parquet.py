"""A folder of Parquet files as Dask arrays: a partition is a row group, encoded as it is read."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
from dask.task_spec import DataNode, List, Task, TaskRef
from numpy.typing import NDArray
from pyarrow.parquet import ParquetFile

from curvedp.arrays import FloatArray
from curvedp.errors import CurvedpError, DataError
from curvedp.rows.graphs import attempted
from curvedp.rows.partitions import Failure, Packed, Stream, materialize
from curvedp.schema import EncodedTable, Numeric, Schema
from curvedp.schema.frames import table_of
from curvedp.schema.stored import parquet_files

# Read at a time: enough that a call per column costs little, few enough for caches. Not a power of two:
# columns that far apart would compete for the same cache lines.
BATCH_ROWS = 30_000
BUFFER_BYTES = 2**18  # of each column; without a buffer the whole row group would be held, compressed


def read_parquet(path: str | os.PathLike[str], schema: Schema) -> EncodedTable:
    """A Parquet file, or those in a folder and its subfolders, as `Schema.encode` reads a table in memory.

    Only the names of the columns and the sizes of the row groups are read here, where the engine runs: a file
    without them is refused before anything is charged. One whose rows cannot be read is found by the fit.
    """
    files = parquet_files(path)
    calls = [(file.name, Packed(partial(_sizes, file, schema)), List()) for file in files]
    found = attempted(calls, {})
    problem = next((sizes for sizes in found if isinstance(sizes, Failure)), None)
    if problem is not None:
        raise DataError(problem.reason)
    groups = [
        (file, i, rows) for file, sizes in zip(files, found, strict=True) for i, rows in enumerate(sizes)
    ]
    name, chunks = f"parquet-{uuid.uuid4().hex}", tuple(rows for _, _, rows in groups)
    graph: dict[Any, Any] = {name: DataNode(name, schema)}
    for i, (file, index, rows) in enumerate(groups):
        group = Task((name, i), RowGroup, TaskRef(name), file, None if math.isnan(rows) else index)
        X = Task((f"x-{name}", i, 0), materialize, TaskRef(group.key))
        y = Task((f"y-{name}", i), RowGroup.target, TaskRef(group.key))
        beside = [
            Task((f"{k}-{name}", i), RowGroup.role, TaskRef(group.key), k) for k in schema.roles.values()
        ]
        graph |= {task.key: task for task in (group, X, y, *beside)}
    width = len(schema.feature_names)
    return EncodedTable(
        schema,
        da.Array(graph, f"x-{name}", (chunks, (width,)), meta=np.empty((0, width))),
        da.Array(graph, f"y-{name}", (chunks,), meta=_no_targets(schema)) if schema.has_target else None,
        {k: da.Array(graph, f"{k}-{name}", (chunks,), meta=np.empty(0)) for k in schema.roles.values()},
    )


def _no_targets(schema: Schema) -> NDArray[Any]:
    """The target of no rows, which says of what type targets are."""
    return np.empty(0) if isinstance(schema.target_column, Numeric) else np.empty(0, dtype=object)


def _sizes(file: Path, schema: Schema, inputs: Sequence[Any]) -> list[float] | Failure:
    """The rows of each row group, NaN for the whole of a file that has none; or why it will not do."""
    try:
        with ParquetFile(file) as parquet:
            about, empty = parquet.metadata, parquet.schema_arrow.empty_table()
            sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
        schema.read(empty)  # names and declared types, no row
        if schema.has_target:
            schema.declared_target.encode(schema.target_cells(empty))
        schema.plain_roles(table_of(empty))
    except CurvedpError as error:
        return Failure(f"{file.name}: {error}")
    except Exception:
        return Failure(f"{file.name} is damaged, or no Parquet file")
    return sizes or [math.nan]


@dataclass(frozen=True)
class RowGroup(Stream):
    """One row group of a file, or the whole file where `index` is None."""

    schema: Schema
    file: Path
    index: int | None

    def batches(self) -> Iterator[FloatArray]:
        """The encoded features; one batch at least."""
        yield np.empty((0, len(self.schema.feature_names)))
        tables = self.tables(self.schema.encoding.sources)
        yield from _said(self.file, (self.schema.read(table) for table in tables))

    def target(self) -> NDArray[Any]:
        """The target of every row, in user units."""
        tables = map(table_of, self.tables([str(self.schema.target_source)]))
        parts = _said(self.file, map(self.schema.plain_target, tables))
        return np.concatenate([_no_targets(self.schema), *parts])

    def role(self, name: str) -> FloatArray:
        """The column of a role, such as the weight, of every row in user units."""
        tables = map(table_of, self.tables([name]))
        parts = _said(self.file, (self.schema.role_of(name).numbers(table.cells(name)) for table in tables))
        return np.concatenate([np.empty(0), *parts])

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Those columns as they are stored, BATCH_ROWS rows at a time."""
        with ParquetFile(self.file, buffer_size=BUFFER_BYTES, pre_buffer=False) as parquet:
            groups = [*range(parquet.num_row_groups)] if self.index is None else [self.index]
            left = sum(parquet.metadata.row_group(i).num_rows for i in groups)
            for batch in parquet.iter_batches(
                BATCH_ROWS, row_groups=groups, columns=list(names), use_threads=False
            ):
                left -= batch.num_rows
                yield pa.Table.from_batches([batch])
            if left:
                raise DataError("it does not hold the rows that it declares")


def _said(file: Path, parts: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """The parts of a file. Whatever goes wrong with it is said in words that hold none of its values."""
    while (part := _next(file, parts)) is not None:
        yield part


def _next(file: Path, parts: Iterator[NDArray[Any]]) -> NDArray[Any] | None:
    try:
        return next(parts, None)
    except CurvedpError as error:
        reason = f"{file.name}: {error}"
    except Exception:
        reason = f"{file.name} is damaged, or no Parquet file"
    raise DataError(reason)  # outside of the handlers: no context is attached
