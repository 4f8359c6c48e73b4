"""Tables on disk as Parquet: their names and types, and their cells in chunks.

Of a file's footer, names, types and the number of rows are used; its statistics (minimum, maximum) and the
values of its dictionaries are data, and are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from curvedp.errors import CurvedpError, DataError, InvalidInput
from curvedp.schema.delimited import PARQUET_MAGIC, first_bytes
from curvedp.schema.frames import Table, no_column, table_of

BATCH_ROWS = 50_000
NO_PYARROW = 'a Parquet file needs pyarrow: pip install "curvedp[pyarrow]"'
T = TypeVar("T")


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a table is stored as Parquet: a folder of such files, or a file that begins as they do."""
    return Path(path).is_dir() or first_bytes(path).startswith(PARQUET_MAGIC)


def parquet_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or every *.parquet below a folder, by name; hidden files and `_metadata` left out."""
    where = Path(path)
    if where.is_file():
        return [where]
    found = sorted(file for file in where.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not found:
        raise InvalidInput(f"no Parquet file at {path}: pass a .parquet file, or a folder that holds some")
    return found


def parquet_types(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """(name, type) of every column, as the first file declares them."""
    file = parquet_files(path)[0]
    return _sound(file, partial(_types, file))


def empty_table(path: str | os.PathLike[str]) -> Any:
    """An Arrow table of no rows with the names and types of the first file."""
    file = parquet_files(path)[0]
    return _sound(file, partial(_empty, file))


def parquet_rows(path: str | os.PathLike[str]) -> int:
    """The number of rows, as the files declare it."""
    return sum(_sound(file, partial(_rows, file)) for file in parquet_files(path))


def parquet_tables(path: str | os.PathLike[str], names: Sequence[str]) -> Iterator[Table]:
    """Those columns, BATCH_ROWS rows at a time; at least one table."""
    for file in parquet_files(path):
        known = {name for name, _ in _sound(file, partial(_types, file))}
        for name in names:
            if name not in known:
                raise DataError(no_column(name))
        batches = _batches(file, names)
        while (table := _sound(file, partial(next, batches, None))) is not None:
            yield table


def parquet_frame(path: str | os.PathLike[str], names: Sequence[str]) -> Any:
    """Those columns, as far as they are there, as one Arrow table in memory."""
    files = parquet_files(path)
    parts = [_sound(file, partial(_whole, file, names)) for file in files]
    return _sound(Path(path), partial(_joined, parts))


def _types(file: Path) -> list[tuple[str, str]]:
    return [(str(field.name), str(field.type)) for field in _empty(file).schema]


def _empty(file: Path) -> Any:
    from pyarrow.parquet import read_schema

    return read_schema(file).empty_table()


def _rows(file: Path) -> int:
    from pyarrow.parquet import read_metadata

    return int(read_metadata(file).num_rows)


def _whole(file: Path, names: Sequence[str]) -> Any:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as parquet:  # a folder's name says nothing of its columns
        return parquet.read(columns=[name for name in parquet.schema_arrow.names if name in names])


def _joined(parts: Sequence[Any]) -> Any:
    from pyarrow import concat_tables

    return concat_tables(parts, promote_options="permissive")


def _batches(file: Path, names: Sequence[str]) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    yield table_of(_empty(file).select(list(names)))
    with ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, columns=list(names)):
            yield table_of(pa.Table.from_batches([batch]))


def _sound(file: Path, work: Callable[[], T]) -> T:
    """work(); what is wrong with the file is said in words that hold none of its values."""
    reason = f"{file} is damaged, or no Parquet file: check the path"
    try:
        return work()
    except CurvedpError as error:
        reason = str(error)
    except ModuleNotFoundError:
        reason = NO_PYARROW
    except Exception:
        pass
    raise InvalidInput(reason)  # outside of the handlers: no context is attached
