"""CSV files: one line is one record, and no line can change how another is read.

A line break inside quotes does not continue a record, so that one record, however malformed, cannot swallow
another. Cells missing at the end of a line are missing values, surplus cells are dropped, empty lines are no
records, and bytes that the encoding does not know are replaced. No message holds anything of the file: its
first line is a header only if somebody wrote one.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TextIO

from curvedp.errors import InvalidInput
from curvedp.schema.formats import PLAIN, UTF8, FileFormat, check_delimiter
from curvedp.schema.frames import Table, check_distinct
from curvedp.schema.zipped import open_bytes

CHUNK_ROWS = 50_000
PARQUET_MAGIC = b"PAR1"
_OTHER_MAGIC = (b"\x1f\x8b", b"PK\x03\x04", b"ARROW1", b"SQLite format 3", b"\x28\xb5\x2f\xfd")
_WRITTEN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def csv_names(
    path: str | os.PathLike[str], *, delimiter: str | None = None, file: FileFormat = PLAIN
) -> tuple[str, ...]:
    """The column names in the first line of a CSV file; a nameless third column is "column_3"."""
    cells = header_cells(path, delimiter=delimiter, file=file)
    return tuple(cell or f"column_{i}" for i, cell in enumerate(cells, start=1))


def header_cells(
    path: str | os.PathLike[str], *, delimiter: str | None = None, file: FileFormat = PLAIN
) -> tuple[str, ...]:
    """The cells of the first line."""
    with _open(path, file) as lines:
        return _header(lines, path, _mark(delimiter, file), file.names)


def csv_tables(
    path: str | os.PathLike[str], *, delimiter: str | None = None, file: FileFormat = PLAIN
) -> Iterator[Table]:
    """The cells of a CSV file as text, CHUNK_ROWS records at a time; at least one table.

    A `delimiter` takes the place of that of the format.
    """
    mark = _mark(delimiter, file)
    names = csv_names(path, delimiter=mark, file=file)
    check_distinct(names)
    with _open(path, file) as lines:
        _header(lines, path, mark, file.names)
        empty = True
        while rows := _records(lines, mark, len(names)):
            empty = False
            yield Table(dict(zip(names, zip(*rows, strict=True), strict=True)))
        if empty:
            yield Table(dict.fromkeys(names, ()))


def csv_rows(path: str | os.PathLike[str], *, delimiter: str | None = None, file: FileFormat = PLAIN) -> int:
    """The number of records of a CSV file; no line is taken apart."""
    with _open(path, file) as lines:
        _header(lines, path, _mark(delimiter, file), file.names)
        return sum(line != "\n" for line in lines)


def _mark(delimiter: str | None, file: FileFormat) -> str:
    return file.delimiter if delimiter is None else delimiter


def first_bytes(path: str | os.PathLike[str]) -> bytes:
    """The opening of a file, which tells its kind."""
    reason: str | None
    try:
        with open_bytes(path) as file:
            return file.read(4096)
    except OSError as error:
        reason = error.strerror
    raise InvalidInput(f"cannot read {path} ({reason}): check the path")


def _open(path: str | os.PathLike[str], format: FileFormat) -> TextIO:
    opening = first_bytes(path)
    if opening.startswith(PARQUET_MAGIC):
        raise InvalidInput(f"{path} is a Parquet file: a CSV file is read here")
    if opening.startswith(_OTHER_MAGIC) or b"\0" in opening.split(b"\n", 1)[0]:
        raise InvalidInput(f"{path} is not a text file: pass a CSV file, saved as UTF-8")
    encoding = "utf-8-sig" if format.encoding == UTF8 else format.encoding
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, errors="replace")


def _header(
    file: TextIO, path: str | os.PathLike[str], delimiter: str, names: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The cells of the first line, which is read; or the declared names, and the first line is a record."""
    check_delimiter(delimiter)
    if names:
        return names
    line = next((line for line in file if line != "\n"), "").rstrip("\n")
    if not line:
        raise InvalidInput(f"{path} is empty: its first line must name the columns")
    cells = tuple(cell.strip() for cell in _split(line, delimiter))
    if len(cells) == 1:
        other = next((mark for mark in ";\t|" if mark in line and mark != delimiter), None)
        if other is not None:
            raise InvalidInput(f"the header of {path} seems separated by {other!r}: pass delimiter={other!r}")
    return cells


def _split(line: str, delimiter: str) -> list[str]:
    """The cells of one line; quotes left open end with it."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:  # a cell beyond the size that the reader allows
        return []


def _records(file: TextIO, delimiter: str, width: int) -> list[list[str]]:
    """The next records of an open CSV file, each cut or filled up to `width` cells."""
    rows = []
    for line in file:
        if line == "\n":
            continue
        cells = _split(line.rstrip("\n"), delimiter)
        if len(cells) != width:
            cells = (cells + [""] * width)[:width]
        rows.append(cells)
        if len(rows) == CHUNK_ROWS:
            break
    return rows


def write_csv_safely(file: IO[str], names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV whose text no spreadsheet takes for a formula; numbers, negative ones too, stay numbers."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_harmless(name) for name in names])
    for row in rows:
        writer.writerow([_harmless(cell) for cell in row])


def _harmless(cell: object) -> object:
    """The cell; text on one line, an apostrophe before what a spreadsheet would run (= + - @ or a tab)."""
    if not isinstance(cell, str):
        return cell
    text = " ".join(cell.splitlines())
    runs = text.lstrip(" ").startswith(("=", "+", "-", "@", "\t"))
    return f"'{text}" if runs and not _WRITTEN_NUMBER.fullmatch(text) else text
