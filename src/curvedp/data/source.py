"""The one way from a table to its cells: whatever holds it, it comes in chunks of named columns.

CSV files, gzip, Parquet files and folders, data frames, Arrow, mappings, arrays, sparse matrices, lists of
rows and Dask collections are read here and nowhere else. What a table declares, its names and types, is
public; cells are touched behind one shield, in this process or in the tasks of Dask, where a failure is a
sentence that holds no value and is never logged.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.data import frames
from curvedp.data.cells import Cells
from curvedp.data.delimited import CHUNK_ROWS, PLAIN, FileFormat, csv_names, csv_rows, csv_tables, is_parquet
from curvedp.data.frames import Table, declared, is_dask, is_lazy_array, rows_table, table_of
from curvedp.errors import CurvedpError, DataError, InvalidInput, refuse_special, shielded
from curvedp.randomness import generator

# Tables on disk as Parquet: their names and types, and their cells in chunks.
#
# Of a file's footer, names, types and the number of rows are used; its statistics (minimum, maximum) and the
# values of its dictionaries are data, and are not.


# Read at a time: enough that a call per column costs little, few enough for caches. Not a power of two:
# columns that far apart would compete for the same cache lines.
BATCH_ROWS = 30_000
BUFFER_BYTES = 2**18  # of each column; without a buffer the whole row group would be held, compressed
NO_PYARROW = 'a Parquet file needs pyarrow: pip install "curvedp[pyarrow]"'
T = TypeVar("T")


def parquet_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or every *.parquet below a folder, by name; hidden files and `_metadata` left out."""
    where = Path(path)
    below = (file for file in where.rglob("*.parquet") if not file.name.startswith((".", "_")))
    found = [where] if where.is_file() else sorted(below)
    for file in (where, *found):
        refuse_special(file)
    if not found:
        raise InvalidInput(f"no Parquet file at {path}: pass a .parquet file, or a folder that holds some")
    return found


def footer(file: Path) -> tuple[Any, list[int]]:
    """What a Parquet file declares: an Arrow table of no rows, the sizes of its row groups."""

    def read() -> tuple[Any, list[int]]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(file) as parquet:
            about = parquet.metadata
            sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
            return parquet.schema_arrow.empty_table(), sizes

    return _sound(file, read)


def empty_table(path: str | os.PathLike[str]) -> Any:
    """An Arrow table of no rows with the names and types of the first file."""
    return footer(parquet_files(path)[0])[0]


def parquet_heads(files: Sequence[Path], empty: Sequence[Any], names: Collection[str] | None) -> list[Table]:
    """Those columns (None: all), as far as any file has them, of every file without its rows. Refused: a file
    that lacks one of them. Their types may differ, and every cell is read alike."""
    known = [dict.fromkeys(map(str, table.schema.names)) for table in empty]
    wanted = [name for name in known[0] if names is None or name in names]
    wanted += [name for name in names or () if name not in wanted and any(name in own for own in known)]
    for file, own in zip(files, known, strict=True):
        if (missing := next((name for name in wanted if name not in own), None)) is not None:
            raise DataError(f"{file.name}: {frames.no_column(missing)}")
    return [table_of(table.select(wanted)) for table in empty]


def _batches(file: Path, names: Sequence[str], index: int | None) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False) as parquet:
        yield table_of(parquet.schema_arrow.empty_table().select(list(names)))
        groups = [*range(parquet.num_row_groups)] if index is None else [index]
        left = sum(parquet.metadata.row_group(i).num_rows for i in groups)
        for batch in parquet.iter_batches(BATCH_ROWS, groups, list(names), use_threads=index is None):
            left -= batch.num_rows
            yield table_of(pa.Table.from_batches([batch]))
        if left:
            raise InvalidInput("it does not hold the rows that it declares")


def _sound(file: Path, work: Callable[[], T]) -> T:
    """work(); what is wrong with the file is said in words that hold none of its values."""
    reason = f"{file} is damaged, or no Parquet file: check the path"
    try:
        return work()
    except CurvedpError as error:
        reason = f"{file}: {error}"
    except ModuleNotFoundError:
        reason = NO_PYARROW
    except Exception:
        pass
    raise InvalidInput(reason)  # outside of the handlers: no context is attached


# Dask collections: what they declare, and the same reading of every partition, later.

Read = Callable[[Any], FloatArray]


def select(X: Any, names: Sequence[str]) -> Any:
    """Those columns of a Dask data frame, in this order."""
    known = dict(zip(declared(X)[0] or (), X.columns, strict=True))
    if (missing := next((name for name in names if name not in known), None)) is not None:
        raise DataError(frames.no_column(missing))
    return X[[known[name] for name in names]]


def read_table(read: Read, X: Any, names: Sequence[str]) -> Any:
    """read of every partition of a Dask array or data frame, as one of the same kind with these columns."""
    if is_lazy_array(X):
        X, width = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X, len(names)
        return X.map_blocks(read, dtype=np.float64, chunks=(X.chunks[0], (width,)), meta=np.empty((0, width)))
    empty = type(X._meta)(np.empty((0, len(names))), columns=list(names))
    return X.map_partitions(_read_lazily, read, {"columns": list(names)}, meta=empty)


def _read_lazily(part: Any, read: Read, named: dict[str, Any]) -> Any:
    return type(part)(read(part), index=part.index, **named)


def read_column(read: Read, y: Any) -> Any:
    """read of every partition of one column: a Dask array of one dimension, or a series."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0] if is_lazy_array(y) else y[y.columns[0]]
    if y.ndim != 1:
        raise InvalidInput("y must be one column: a Dask array of one dimension, or a series")
    if is_lazy_array(y):
        read(np.empty(0, y.dtype))  # refuses what the declared type rules out
        return y.map_blocks(read, dtype=np.float64, meta=np.empty(0))
    read(y._meta)
    return y.map_partitions(_read_lazily, read, {"name": y.name}, meta=(y.name, np.float64))


Engine = Literal["memory", "dask"]
RowsPerPerson = Literal["all", "one"]

_UNEQUAL = "{} must have one entry per row of X"


@dataclass(frozen=True, eq=False)
class Source:
    """A table of any container; no cell has been read.

    `heads` are tables of no rows with its names and types: several where a folder's files declare their own.
    `chunks()` are its rows in order, in this process; of a Dask table `partitions` are, where they lie.
    `whole` is the one chunk of a matrix in memory.
    """

    heads: Sequence[Table]
    chunks: Callable[[], Iterable[Table]] = tuple
    count: Callable[[], int] | None = None  # the number of rows, where it takes no pass over them
    whole: Table | None = None
    partitions: tuple[dict[Any, Any], list[Any]] | None = None

    def over(self, work: Callable[[Table], T], *, whole: bool = False) -> list[T]:
        """work(chunk) of every chunk, in order; in the tasks of Dask where the table lies there. With `whole`
        a matrix in memory is one chunk: nothing of it need be copied."""
        if self.partitions is None:
            one = [self.whole] if whole and self.whole is not None else None
            return shielded(lambda: [work(chunk) for chunk in one or self.chunks()], unreadable)
        from curvedp.data.graphs import over_parts

        graph, own = self.partitions
        parts = shielded(lambda: over_parts(graph, own, lambda chunks: [*map(work, chunks)]), unreadable)
        return list(chain.from_iterable(parts))

    def each(self) -> Iterator[Table]:
        """The chunks in this process, one after another; of a Dask table, all of its partitions."""
        chunks = self.chunks if self.partitions is None else lambda: self.over(lambda chunk: chunk)
        return guarded(chunks, unreadable)

    def rows(self) -> int:
        """The number of rows, or of persons; public or not, the neighbours say."""
        return sum(self.over(len)) if self.count is None else self.count()

    def of_persons(self, unit: str | None, rows_per_person: RowsPerPerson = "all") -> Source:
        """The same chunks, each row of which counts as the part of its person that it is: `Table.parts`.

        Parts of a person add up to 1 (U-2), so that what is counted are persons. With "one" a fresh coin
        chooses one row of each, and the others count 0.
        """
        if unit is None:
            return self
        for head in self.heads:
            frames.Identifiers().codes(unit_in(head, unit))  # refuses what the declared type rules out
        parts_of = partial(_parts, unit=unit, one=rows_per_person == "one")
        seed = secrets.randbits(64)
        if self.partitions is None:
            parts = cache(lambda: shielded(lambda: parts_of(self.chunks(), seed), unreadable))
            chunks, count = lambda: _weighed(self.chunks(), parts()), lambda: round(float(parts().sum()))
            return Source(self.heads, chunks, count)
        from curvedp.data.graphs import Packed, whole_persons

        graph, own = whole_persons(*self.partitions, partial(unit_in, unit=unit), self.heads)

        def weighed_part(coins: int, packed: Any, inputs: Sequence[Any]) -> list[Table]:
            chunks = packed.unpack()(inputs)
            return [*_weighed(chunks, parts_of(chunks, coins))]

        own = [  # partitions of whole persons, each with coins of its own
            (Packed(partial(weighed_part, seed + (i << 64), packed)), inputs)
            for i, (packed, inputs) in enumerate(own)
        ]
        found = Source(self.heads, partitions=(graph, own))
        return replace(found, count=lambda: round(math.fsum(found.over(lambda chunk: chunk.parts.sum()))))


def guarded(items: Callable[[], Iterable[T]], message: Callable[[str], str]) -> Iterator[T]:
    """items(), one after another, each behind the shield."""
    each = shielded(lambda: iter(items()), message)
    while (item := shielded(lambda: next(each, None), message)) is not None:
        yield item


def unreadable(kind: str) -> str:
    """What is said of a table that cannot be read, whatever it holds."""
    return f"the table could not be read ({kind}): check that X is a table and y one column of the same rows"


def source(
    table: TableLike,
    names: Sequence[str] = (),
    *,
    only: Collection[str] | None = None,
    beside: Mapping[str, ColumnLike] | None = None,
    file: FileFormat | None = None,
    engine: Engine = "memory",
) -> Source:
    """The chunks of a table, of which only what it declares is looked at.

    `names` are those of the columns of a table without names, by position. `only` these columns are needed.
    Columns `beside` the table have an entry for each of its rows; None: there is none. `file` says how a CSV
    file is written, PLAIN if left out. Parquet files are read by the engine "dask" in its tasks, a row group
    each.
    """
    passed = {key: column for key, column in (beside or {}).items() if column is not None}
    if passed and (frames.is_path(table) or isinstance(table, Source)):
        raise InvalidInput("a file holds its columns itself: leave y and what else is passed beside it out")

    def opened() -> Source:
        if is_dask(table):
            return _lazy(table, names, only, passed)
        for key in filter(lambda key: is_dask(passed[key]), passed):
            raise InvalidInput(f"{key} is a Dask collection and X is not: take all from one table")
        if frames.is_path(table):
            if engine == "dask" or is_parquet(table):
                return _parquet(table, only, engine)
            written = file or PLAIN
            head = Table(dict.fromkeys(csv_names(table, written), ()))
            return Source([head], partial(csv_tables, table, written), partial(csv_rows, table, written))
        named: Table = table
        if not isinstance(table, Table):
            named = table_of(table) if frames.is_table(table) else rows_table(frames.matrix_of(table), names)
        found = _with_beside(named, {key: _passed(column) for key, column in passed.items()})
        if found.matrix is None:
            return Source([found.head], lambda: [found], found.__len__)
        return Source([found.head], lambda: found.slices(CHUNK_ROWS), found.__len__, found)

    return table if isinstance(table, Source) else shielded(opened, unreadable)


def read_persons(
    found: Source, work: Callable[[Table], T], unit: str | None, rows_per_person: RowsPerPerson = "all"
) -> tuple[list[T], frames.Codes | None]:
    """(work(chunk) of every chunk in memory, whose row each row is); None where there is no unit. Rows of
    which no part counts are nobody's; with "one" so are all but one of each person, by a fresh coin."""
    if unit is None:
        return found.over(work, whole=True), None
    known = frames.Identifiers()
    for head in found.heads:
        known.codes(unit_in(head, unit))  # refuses what the declared type rules out

    def read(chunk: Table) -> tuple[T, frames.Codes]:
        return work(chunk), np.where(chunk.parts > 0.0, known.codes(unit_in(chunk, unit)), frames.NOBODY)

    pairs = found.over(read, whole=True)
    codes = np.concatenate([codes for _, codes in pairs])
    if rows_per_person == "one":
        codes = frames.one_row_each(codes, generator(secrets.randbits(64)))
    return [result for result, _ in pairs], codes


def _parts(chunks: Iterable[Table], seed: int, *, unit: str, one: bool) -> FloatArray:
    """The part of its person that every row is, of chunks that hold all rows of their persons."""
    known = frames.Identifiers()
    codes = np.concatenate([known.codes(unit_in(chunk, unit)) for chunk in chunks])
    return frames.person_parts(frames.one_row_each(codes, generator(seed)) if one else codes)


def _weighed(chunks: Iterable[Table], parts: FloatArray) -> Iterator[Table]:
    start = 0
    for chunk in chunks:
        yield _with_beside(chunk, {"part": parts[start : start + len(chunk)]})
        start += len(chunk)


def unit_in(chunk: Table, unit: str) -> Any:
    """Whose row each row of a chunk is, as it is stored."""
    return chunk.beside["unit"] if "unit" in chunk.beside else chunk.column(unit)


def joined(parts: Sequence[Any]) -> Any:
    """Arrays of several chunks as one, or cells as one column; one alone as it is."""
    if len(parts) > 1 and isinstance(parts[0], Cells):
        return Cells([cell for part in parts for cell in part.listed()], "any")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _passed(column: ColumnLike) -> Any:
    """A column of one dimension in a form that can be cut; several side by side as they are."""
    return column if len(getattr(column, "shape", ())) == 2 else frames.as_column(column)


def _with_beside(table: Table, beside: Mapping[str, Any]) -> Table:
    for key, column in beside.items():
        if len(column) != len(table):
            raise DataError(_UNEQUAL.format(key))
    return replace(table, beside={**table.beside, **beside})


def _parquet(path: Any, only: Collection[str] | None, engine: Engine) -> Source:
    files = parquet_files(path)
    if engine == "dask":
        try:
            from dask.task_spec import List

            from curvedp.data.graphs import Packed, over_parts
        except ModuleNotFoundError:
            raise InvalidInput('this engine needs Dask and pyarrow: pip install "curvedp[dask]"') from None
        footers = over_parts({}, [(file, List()) for file in files], footer)
    else:
        footers = [footer(file) for file in files]
    empty, sizes = zip(*footers, strict=True)
    heads, rows = parquet_heads(files, empty, only), sum(map(sum, sizes))
    if engine == "memory":
        groups = [RowGroup(file, tuple(head.columns)) for file, head in zip(files, heads, strict=True)]
        return Source(heads, lambda: chain.from_iterable(groups), lambda: rows)
    parts = [
        (Packed(RowGroup(file, tuple(head.columns), index)), List())
        for file, head, own in zip(files, heads, sizes, strict=True)
        for index in (range(len(own)) if own else [None])
    ]
    return Source(heads, count=lambda: rows, partitions=({}, parts))


@dataclass(frozen=True)
class RowGroup:
    """The chunks of one row group of a file, or of the whole file; every reading gives the same."""

    file: Path
    names: tuple[str, ...]
    index: int | None = None

    def __call__(self, inputs: Sequence[Any]) -> RowGroup:
        return self

    def __iter__(self) -> Iterator[Table]:
        """BATCH_ROWS rows at a time; at least one table."""
        batches = _batches(self.file, self.names, self.index)
        while (table := _sound(self.file, lambda: next(batches, None))) is not None:
            yield table


def _lazy(X: Any, names: Sequence[str], only: Collection[str] | None, beside: Mapping[str, Any]) -> Source:
    from curvedp.data.graphs import Packed, partitions

    named, width = declared(X)
    if named is None:
        assert width is not None
        head = rows_table(np.empty((0, width), X.dtype), names or [str(j) for j in range(width)])
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        count = None if math.isnan(X.shape[0]) else int(X.shape[0])
    else:
        X = X if only is None else select(X, [name for name in named if name in only])
        head, count = table_of(X._meta), None
    columns = {key: _lazy_column(column, X, key) for key, column in beside.items()}
    empty = {
        key: np.empty((0, *column.shape[1:]), column.dtype) if is_lazy_array(column) else column._meta
        for key, column in columns.items()
    }
    head = replace(head, beside=empty)
    if named is not None and columns and not any(map(is_lazy_array, columns.values())):
        collections = [_joined(X, [*columns.values()])]
    else:
        collections = [X, *(_cut_alike(column, X, key) for key, column in columns.items())]
    if named is not None and len(collections) == 1:
        collections = [collections[0].optimize(fuse=False)]  # files are read for the columns that are needed
    graph, parts = partitions(*collections)
    names, keys = head.names, tuple(columns)

    def read(packed: Any, inputs: Sequence[Any]) -> list[Table]:
        outputs = packed.unpack()(inputs)
        first, *own = outputs[0] if isinstance(outputs[0], tuple) else outputs
        table = rows_table(frames.matrix_of(first), names) if names else table_of(first)
        return [_with_beside(table, dict(zip(keys, own, strict=True)))]

    parts = [(Packed(partial(read, packed)), inputs) for packed, inputs in parts]
    return Source([head], count=None if count is None else lambda: count, partitions=(graph, parts))


def _lazy_column(column: Any, X: Any, key: str) -> Any:
    """What was passed beside a Dask table, as a Dask collection."""
    if is_dask(column):
        if not hasattr(column, "_meta"):
            raise InvalidInput(f"{key} must be a Dask array, series or data frame")
        return column
    if not is_lazy_array(X) or math.isnan(X.shape[0]):
        raise InvalidInput(f"the partitions of X have unknown lengths: pass {key} as a Dask collection, too")
    import dask.array as da

    values = _passed(column)
    array = np.asarray(values if hasattr(values, "__array__") else np.array(values, dtype=object))
    if len(array) != X.shape[0]:
        raise DataError(_UNEQUAL.format(key))
    return da.from_array(array, chunks=(X.chunks[0], *(-1,) * (array.ndim - 1)))


def _joined(X: Any, columns: Sequence[Any]) -> Any:
    """Collections of one table as one, whose partitions are tuples: read apart, the optimizer of Dask may
    cut them into different partitions."""
    import dask.dataframe as dd

    with suppress(ValueError):
        return dd.map_partitions(lambda *parts: parts, X, *columns, meta=X._meta, enforce_metadata=False)
    raise InvalidInput("X and y are cut into different partitions: take both from one table")


def _cut_alike(column: Any, X: Any, key: str) -> Any:
    """A column in the partitions of X."""
    if is_lazy_array(column):
        if column.ndim == 2 and column.numblocks[1] > 1:
            column = column.rechunk({1: -1})
        known = is_lazy_array(X) and not any(map(math.isnan, (*X.chunks[0], *column.chunks[0])))
        if known and column.chunks[0] != X.chunks[0]:
            if column.shape[0] != X.shape[0]:
                raise DataError(_UNEQUAL.format(key))
            column = column.rechunk({0: X.chunks[0]})
    both = [each.numblocks[0] if is_lazy_array(each) else each.npartitions for each in (X, column)]
    if both[0] != both[1]:
        raise InvalidInput(
            f"X has {both[0]} partitions and {key} {both[1]}, of unknown lengths: take both from one table"
        )
    return column
