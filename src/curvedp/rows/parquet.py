"""A folder of Parquet files as Dask arrays: a partition is a row group, encoded where it is read."""

from __future__ import annotations

import math
import operator
import os
import uuid
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
from curvedp.schema import Schema

# Read at a time: enough that a call per column costs nothing, little beside a row group.
BATCH_ROWS = 2**15
Group = tuple[int | None, float]  # which row group (None: all of the file), and its rows (NaN: not known)


def read_parquet(path: str | os.PathLike[str], schema: Schema) -> tuple[da.Array, da.Array]:
    """(X, y) of a Parquet file, or of those in a folder and its subfolders, as `Schema.encode` gives them.

    Only the sizes of the row groups are read here, where the engine runs. A file that cannot be read is found
    by the fit, when its rows are asked for.
    """
    files = parquet_files(Path(path))
    sizes = dask.compute(*(dask.delayed(_groups, pure=False)(file) for file in files))
    groups = [(file, *group) for file, found in zip(files, sizes, strict=True) for group in found]
    name, rows = f"parquet-{uuid.uuid4().hex}", tuple(size for _, _, size in groups)
    graph: dict[Any, Any] = {name: DataNode(name, schema)}
    for i, (file, index, _) in enumerate(groups):
        graph[name, i] = Task((name, i), _read, TaskRef(name), file, index)
        for key, part in (((f"x-{name}", i, 0), 0), ((f"y-{name}", i), 1)):
            graph[key] = Task(key, operator.getitem, TaskRef((name, i)), part)
    width, target = len(schema.feature_names), schema.target_column.target(())
    X = da.Array(graph, f"x-{name}", (rows, (width,)), meta=np.empty((0, width)))
    return X, da.Array(graph, f"y-{name}", (rows,), meta=target)


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or every *.parquet below a folder, by name; hidden files and `_metadata` left out."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not found:
        raise InvalidInput(f"no Parquet file at {path}: pass a .parquet file, or a folder that holds some")
    return found


def _groups(file: Path) -> list[Group]:
    """The row groups of a file; the whole file as one where it has none, or cannot say."""
    found: list[Group] = []
    try:
        with ParquetFile(file) as parquet:
            about = parquet.metadata
            found = [(i, about.row_group(i).num_rows) for i in range(about.num_row_groups)]
    except Exception:  # the fit will say so, once it is charged
        pass
    return found or [(None, math.nan)]


def _read(schema: Schema, file: Path, group: int | None) -> tuple[FloatArray, NDArray[Any]]:
    """(X, y) of one row group, or of the whole file."""
    try:
        with ParquetFile(file) as parquet:
            return _encode(schema, parquet, [*range(parquet.num_row_groups)] if group is None else [group])
    except CurvedpError as error:
        raise DataError(f"{file.name}: {error}") from None
    except Exception:
        raise DataError(f"{file.name} is damaged, or no Parquet file") from None


def _encode(schema: Schema, parquet: ParquetFile, groups: list[int]) -> tuple[FloatArray, NDArray[Any]]:
    names = [column.name for column in (*schema.features, schema.target_column)]
    rows = sum(parquet.metadata.row_group(i).num_rows for i in groups)
    X = np.empty((rows, len(schema.feature_names)))
    y = np.empty(rows, dtype=schema.target_column.target(()).dtype)
    start = 0
    for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
        part = slice(start, start + batch.num_rows)
        X[part], y[part] = schema.encode(pa.Table.from_batches([batch]))
        start = part.stop
    if start != rows:
        raise DataError("it ends before its last row")
    return X, y
