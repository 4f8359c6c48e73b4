"""A folder of Parquet files as Dask arrays: a partition is a row group, encoded as it is read."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pyarrow as pa
from dask.task_spec import DataNode, Task, TaskRef
from numpy.typing import NDArray
from pyarrow.parquet import ParquetFile

from curvedp.domain import FloatArray
from curvedp.errors import CurvedpError, DataError, InvalidInput
from curvedp.rows.partitions import Stream, materialize
from curvedp.schema import Schema

# Read at a time: enough that a call per column costs little, few enough for caches. Not a power of two:
# columns that far apart would compete for the same cache lines.
BATCH_ROWS = 30_000
BUFFER_BYTES = 2**18  # of each column; without a buffer the whole row group would be held, compressed


def read_parquet(path: str | os.PathLike[str], schema: Schema) -> tuple[da.Array, da.Array]:
    """(X, y) of a Parquet file, or of those in a folder and its subfolders, as `Schema.encode` gives them.

    Only the sizes of the row groups are read here, where the engine runs. A file that cannot be read is found
    by the fit, when its rows are asked for.
    """
    files = parquet_files(Path(path))
    found = dask.compute(*(dask.delayed(_sizes, pure=False)(file) for file in files))
    groups = [
        (file, i, rows) for file, sizes in zip(files, found, strict=True) for i, rows in enumerate(sizes)
    ]
    name, chunks = f"parquet-{uuid.uuid4().hex}", tuple(rows for _, _, rows in groups)
    graph: dict[Any, Any] = {name: DataNode(name, schema)}
    for i, (file, index, rows) in enumerate(groups):
        group = Task((name, i), RowGroup, TaskRef(name), file, None if math.isnan(rows) else index)
        X = Task((f"x-{name}", i, 0), materialize, TaskRef(group.key))
        y = Task((f"y-{name}", i), RowGroup.target, TaskRef(group.key))
        graph |= {task.key: task for task in (group, X, y)}
    width = len(schema.feature_names)
    return (
        da.Array(graph, f"x-{name}", (chunks, (width,)), meta=np.empty((0, width))),
        da.Array(graph, f"y-{name}", (chunks,), meta=schema.target_column.target(())),
    )


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or every *.parquet below a folder, by name; hidden files and `_metadata` left out."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not found:
        raise InvalidInput(f"no Parquet file at {path}: pass a .parquet file, or a folder that holds some")
    return found


def _sizes(file: Path) -> list[float]:
    """The rows of each row group; NaN for the whole of a file that has none, or cannot say."""
    try:
        with ParquetFile(file) as parquet:
            about = parquet.metadata
            return [about.row_group(i).num_rows for i in range(about.num_row_groups)] or [math.nan]
    except Exception:  # the fit will say so, once it is charged
        return [math.nan]


@dataclass(frozen=True)
class RowGroup(Stream):
    """One row group of a file, or the whole file where `index` is None."""

    schema: Schema
    file: Path
    index: int | None

    def batches(self) -> Iterator[FloatArray]:
        """The encoded features; one batch at least."""
        yield np.empty((0, len(self.schema.feature_names)))
        with _said(self.file):
            for table in self._read([column.name for column in self.schema.features]):
                yield self.schema.encode_features(table)

    def target(self) -> NDArray[Any]:
        """The encoded target of every row."""
        column = self.schema.target_column
        with _said(self.file):
            parts = [self.schema.encode_target(table) for table in self._read([column.name])]
        return np.concatenate([column.target(()), *parts])

    def _read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        with ParquetFile(self.file, buffer_size=BUFFER_BYTES, pre_buffer=False) as parquet:
            groups = [*range(parquet.num_row_groups)] if self.index is None else [self.index]
            left = sum(parquet.metadata.row_group(i).num_rows for i in groups)
            for batch in parquet.iter_batches(
                BATCH_ROWS, row_groups=groups, columns=names, use_threads=False
            ):
                left -= batch.num_rows
                yield pa.Table.from_batches([batch])
            if left:
                raise DataError("it does not hold the rows that it declares")


@contextmanager
def _said(file: Path) -> Iterator[None]:
    """Whatever goes wrong with a file, in words that hold none of its values."""
    try:
        yield
    except CurvedpError as error:
        raise DataError(f"{file.name}: {error}") from None
    except Exception:
        raise DataError(f"{file.name} is damaged, or no Parquet file") from None
