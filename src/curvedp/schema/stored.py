"""Tables on disk as Parquet: their names and types, and their cells in chunks.

Of a file's footer, names, types and the number of rows are used; its statistics (minimum, maximum) and the
values of its dictionaries are data, and are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from curvedp.errors import CurvedpError, DataError, InvalidInput, refuse_special
from curvedp.schema.frames import Table, no_column, table_of
from curvedp.schema.zipped import is_parquet as is_parquet

# Read at a time: enough that a call per column costs little, few enough for caches. Not a power of two:
# columns that far apart would compete for the same cache lines.
BATCH_ROWS = 30_000
BUFFER_BYTES = 2**18  # of each column; without a buffer the whole row group would be held, compressed
NO_PYARROW = 'a Parquet file needs pyarrow: pip install "curvedp[pyarrow]"'
T = TypeVar("T")


class Footer(NamedTuple):
    """What a Parquet file declares: its columns, as an Arrow table of no rows, and its row groups' sizes."""

    empty: Any
    sizes: list[int]


def parquet_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or every *.parquet below a folder, by name; hidden files and `_metadata` left out."""
    where = Path(path)
    found = [where] if where.is_file() else sorted(where.rglob("*.parquet"))
    found = [file for file in found if file == where or not file.name.startswith((".", "_"))]
    for file in (where, *found):
        refuse_special(file)
    if not found:
        raise InvalidInput(f"no Parquet file at {path}: pass a .parquet file, or a folder that holds some")
    return found


def footer(file: Path) -> Footer:
    """Of one file."""

    def read() -> Footer:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(file) as parquet:
            about = parquet.metadata
            sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
            return Footer(parquet.schema_arrow.empty_table(), sizes)

    return _sound(file, read)


def empty_table(path: str | os.PathLike[str]) -> Any:
    """An Arrow table of no rows with the names and types of the first file."""
    return footer(parquet_files(path)[0]).empty


def parquet_types(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """(name, type) of every column, as the first file declares them."""
    return [(str(field.name), str(field.type)) for field in empty_table(path).schema]


def parquet_rows(path: str | os.PathLike[str]) -> int:
    """The number of rows, as the files declare it."""
    return sum(sum(footer(file).sizes) for file in parquet_files(path))


def heads(files: Sequence[Path], footers: Sequence[Footer], names: Collection[str] | None) -> list[Table]:
    """Those columns (None: all), as far as any file has them, of every file without its rows.

    Refused: a file that lacks one of them. Their types may differ, and every cell is read alike.
    """
    known = [set(map(str, each.empty.schema.names)) for each in footers]
    wanted = [name for name in map(str, footers[0].empty.schema.names) if names is None or name in names]
    wanted += [name for name in names or () if name not in wanted and any(name in own for own in known)]
    for file, own in zip(files, known, strict=True):
        missing = next((name for name in wanted if name not in own), None)
        if missing is not None:
            raise DataError(f"{file.name}: {no_column(missing)}")
    return [table_of(each.empty.select(wanted)) for each in footers]


def group_tables(file: Path, names: Sequence[str], index: int | None = None) -> Iterator[Table]:
    """Those columns of a row group (None: of all), BATCH_ROWS rows at a time; at least one table."""
    batches = _batches(file, names, index)
    while (table := _sound(file, lambda: next(batches, None))) is not None:
        yield table


def _batches(file: Path, names: Sequence[str], index: int | None) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False) as parquet:
        yield table_of(parquet.schema_arrow.empty_table().select(list(names)))
        groups = [*range(parquet.num_row_groups)] if index is None else [index]
        left = sum(parquet.metadata.row_group(i).num_rows for i in groups)
        for batch in parquet.iter_batches(
            BATCH_ROWS, row_groups=groups, columns=list(names), use_threads=index is None
        ):
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
