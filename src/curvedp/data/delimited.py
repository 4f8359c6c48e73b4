"""CSV files: one line is one record, and no line can change how another is read.

A line break inside quotes does not continue a record, so that one record, however malformed, cannot swallow
another. Cells missing at the end of a line are missing values, surplus cells are dropped, and bytes that the
encoding does not know are replaced. An empty line is no record; in a file of one column it is one, whose cell
is missing. No message holds anything of the file: its first line is a header only if somebody wrote one.
Where the format has names it is a record, and decides nothing.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import IO

from curvedp.errors import InvalidInput
from curvedp.schema.formats import PLAIN, UTF8, FileFormat
from curvedp.schema.frames import Table, check_distinct
from curvedp.schema.zipped import PARQUET, open_bytes

CHUNK_ROWS = 50_000
_NOT_TEXT = "is not a text file: pass a CSV file, saved as UTF-8"
_MAGIC = {  # how files begin that are no text
    b"PAR1": "is a Parquet file: let its name end in .parquet",
    b"\x1f\x8b": "is compressed by gzip: let its name end in .gz",
    b"PK\x03\x04": _NOT_TEXT,
    b"ARROW1": _NOT_TEXT,
    b"SQLite format 3": _NOT_TEXT,
    b"\x28\xb5\x2f\xfd": _NOT_TEXT,  # Zstandard
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WRITTEN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def csv_names(path: str | os.PathLike[str], file: FileFormat = PLAIN) -> tuple[str, ...]:
    """The column names in the first line of a CSV file; a nameless third column is "column_3"."""
    cells = header_cells(path, file)
    return tuple(cell or f"column_{i}" for i, cell in enumerate(cells, start=1))


def header_cells(path: str | os.PathLike[str], file: FileFormat = PLAIN) -> tuple[str, ...]:
    """The cells of the first line; the names of the format where it has some."""
    with closing(csv_lines(path, file)) as lines:
        header = next(lines)
    return file.names or _header(header, file, path)


def csv_tables(path: str | os.PathLike[str], file: FileFormat = PLAIN) -> Iterator[Table]:
    """The cells of a CSV file as text, CHUNK_ROWS records at a time; at least one table."""
    names = csv_names(path, file)
    check_distinct(names)
    with closing(csv_lines(path, file)) as lines:
        next(lines)
        empty = True
        while rows := [record_cells(line, file, len(names)) for line in islice(lines, CHUNK_ROWS)]:
            empty = False
            yield Table(dict(zip(names, zip(*rows, strict=True), strict=True)))
        if empty:
            yield Table(dict.fromkeys(names, ()))


def csv_rows(path: str | os.PathLike[str], file: FileFormat = PLAIN) -> int:
    """The number of records of a CSV file; no line is taken apart."""
    with closing(csv_lines(path, file)) as lines:
        next(lines)
        return sum(1 for _ in lines)


def csv_lines(path: str | os.PathLike[str], file: FileFormat = PLAIN) -> Generator[bytes]:
    """The header, b"" where the format has names, then every record: bytes of a line, "\\n" at the end.

    What opens a file is looked at only where it is a header.
    """
    if not file.names:
        _check_text(path)
    # The encodings that are read agree on line breaks, and latin-1 holds every byte.
    with io.TextIOWrapper(_opened(path), encoding="latin-1") as text:
        raw = (line.encode("latin-1") for line in text)
        lines = _without_mark(raw) if file.encoding == UTF8 else raw
        header, width = b"", len(file.names)
        if not file.names:
            header = next((line for line in lines if line != b"\n"), b"")
            width = len(_header(header, file, path))
        yield header
        for line in lines:
            if width == 1 or line != b"\n":
                yield line if line.endswith(b"\n") else line + b"\n"


def record_cells(line: bytes, file: FileFormat, width: int) -> list[str]:
    """The cells of a record, cut or filled up to `width`."""
    cells = _split(_text(line, file), file.delimiter)
    return cells if len(cells) == width else (cells + [""] * width)[:width]


def _text(line: bytes, file: FileFormat) -> str:
    return line.decode(file.encoding, "replace").rstrip("\n")


def _without_mark(lines: Iterator[bytes]) -> Generator[bytes]:
    first = next(lines, None)
    if first is not None:
        yield first.removeprefix(_BYTE_ORDER_MARK)
        yield from lines


def _opened(path: str | os.PathLike[str]) -> IO[bytes]:
    if Path(path).suffix.lower() in PARQUET:
        raise InvalidInput(f"{path} is a Parquet file by its name: a CSV file is read here")
    reason: str | None
    try:
        return open_bytes(path)
    except OSError as error:
        reason = error.strerror
    raise InvalidInput(f"cannot read {path} ({reason}): check the path")


def _check_text(path: str | os.PathLike[str]) -> None:
    """Refuse a file that does not begin as text does; only for one that begins with a header."""
    with _opened(path) as file:
        opening = file.read(4096)
    for magic, problem in _MAGIC.items():
        if opening.startswith(magic):
            raise InvalidInput(f"{path} {problem}")
    if b"\0" in re.split(rb"[\r\n]", opening.lstrip(b"\r\n"), maxsplit=1)[0]:
        raise InvalidInput(f"{path} {_NOT_TEXT}")


def _header(line: bytes, file: FileFormat, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The cells of the line that names the columns."""
    text = _text(line, file)
    if not text:
        raise InvalidInput(f"{path} is empty: its first line must name the columns")
    cells = tuple(cell.strip() for cell in _split(text, file.delimiter))
    if len(cells) == 1:
        other = next((mark for mark in ";\t|" if mark in text and mark != file.delimiter), None)
        if other is not None:
            raise InvalidInput(
                f"the header of {path} seems separated by {other!r}: pass `delimiter={other!r}`"
            )
    return cells


def _split(line: str, delimiter: str) -> list[str]:
    """The cells of one line; quotes left open end with it."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:  # a cell beyond the size that the reader allows
        return []


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
