"""Tables on disk as Parquet: their names and types, and their cells in chunks.

Of a file's footer, names, types and the number of rows are used; its statistics (minimum, maximum) and the
values of its dictionaries are data, and are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from curvedp.errors import CurvedpError, DataError, InvalidInput, refuse_special
from curvedp.schema.frames import Table, no_column, table_of
from curvedp.schema.zipped import is_parquet as is_parquet

BATCH_ROWS = 50_000
NO_PYARROW = 'a Parquet file needs pyarrow: pip install "curvedp[pyarrow]"'
T = TypeVar("T")


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


def parquet_heads(path: str | os.PathLike[str], names: Collection[str]) -> list[Table]:
    """Those columns, as far as the first file has them, of every file without its rows: what it declares.

    Refused: a file that lacks one of them. Their types may differ, and every cell is read alike.
    """
    files = parquet_files(path)
    empty = [_sound(file, partial(_empty, file)) for file in files]
    wanted = [name for name in map(str, empty[0].schema.names) if name in names]
    for name in wanted:
        if any(name not in each.schema.names for each in empty):
            raise DataError(no_column(name))
    return [_sound(file, partial(_selected, each, wanted)) for file, each in zip(files, empty, strict=True)]


def parquet_tables(path: str | os.PathLike[str], names: Collection[str]) -> Iterator[Table]:
    """The same columns with their rows, BATCH_ROWS at a time; at least one table."""
    for file, head in zip(parquet_files(path), parquet_heads(path, names), strict=True):
        yield head
        batches = _batches(file, list(head.columns))
        while (table := _sound(file, partial(next, batches, None))) is not None:
            yield table


def _types(file: Path) -> list[tuple[str, str]]:
    return [(str(field.name), str(field.type)) for field in _empty(file).schema]


def _empty(file: Path) -> Any:
    from pyarrow.parquet import read_schema

    return read_schema(file).empty_table()


def _rows(file: Path) -> int:
    from pyarrow.parquet import read_metadata

    return int(read_metadata(file).num_rows)


def _selected(empty: Any, names: Sequence[str]) -> Table:
    return table_of(empty.select(list(names)))


def _batches(file: Path, names: Sequence[str]) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as parquet:  # a folder's name says nothing of its columns
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
