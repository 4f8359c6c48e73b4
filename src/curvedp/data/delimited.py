"""CSV files: one line is one record, and no line can change how another is read.

A line break inside quotes does not continue a record, so that one record, however malformed, cannot swallow
another. Cells missing at the end of a line are missing values, surplus cells are dropped, and bytes that the
encoding does not know are replaced. An empty line is no record; in a file of one column it is one, whose cell
is missing. No message holds anything of the file: its first line is a header only if somebody wrote one.
Where the format has names it is a record, and decides nothing.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import os
import re
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

from curvedp.data.cells import check_decimal, number
from curvedp.data.columns import DeclaredTable, settle
from curvedp.data.frames import Table, check_distinct
from curvedp.errors import DataError, InvalidInput, refuse_special

# How a text file is written: encoding, delimiter, decimal sign. Declared, not guessed.

UTF8 = "utf-8"
_ALL_BYTES = bytes(range(256))
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class FileFormat(DeclaredTable):
    """How the CSV files of a schema are written.

    Parameters
    ----------
    encoding : str, default="utf-8"
        UTF-8, or an encoding with one byte for each character, such as latin-1 or cp1252. In others, one
        record could change how those after it are read.
    delimiter : str, default=","
        What separates the cells of a line.
    decimal : {".", ","}, default="."
        The decimal sign of numeric columns that declare none. Where it is the delimiter, too, numbers must
        stand in quotes.
    names : sequence of str, optional
        The columns, in their order, where the first line does not name them: it is a record then.

    Examples
    --------
    >>> from curvedp.data import FileFormat
    >>> FileFormat(delimiter=";", decimal=",")
    FileFormat(encoding='utf-8', delimiter=';', decimal=',', names=())
    """

    encoding: str = UTF8
    delimiter: str = ","
    decimal: str = "."
    names: tuple[str, ...] = ()
    heading = "file"

    def __post_init__(self) -> None:
        names = self.names
        told = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
        if not told or len(set(names)) < len(names):
            raise InvalidInput('names must be different texts, one for each column: write names = ["a", "b"]')
        settle(self, names=tuple(names), encoding=_encoding(self.encoding))
        if not isinstance(self.delimiter, str) or len(self.delimiter) != 1 or self.delimiter in '\r\n"':
            raise InvalidInput(f"delimiter must be one character, got {self.delimiter!r}"[:120])
        check_decimal(self.decimal, "the file")

    def but(self, **given: Any) -> FileFormat:
        """The same, with what is given in the place of what it says; None: nothing."""
        return replace(self, **{key: value for key, value in given.items() if value is not None})


def _encoding(name: Any) -> str:
    """The name as Python spells it, of an encoding in which no byte changes what another stands for."""
    with suppress(Exception):
        codec = codecs.lookup(name)
        text = _ALL_BYTES.decode(codec.name, "replace")
        # A table of 256 characters (that of latin-1 is not written out), the first half of them ASCII: others
        # remember what came before.
        table = getattr(sys.modules.get(codec.incrementaldecoder.__module__), "decoding_table", None)
        known = codec.name in ("iso8859-1", "ascii") or table is not None
        if codec.name == UTF8 or (known and text[:128] == _ALL_BYTES[:128].decode("ascii")):
            return codec.name
    raise InvalidInput(
        "the encoding must be utf-8, or one with a byte for each character, such as latin-1 or cp1252: save "
        "the file as UTF-8"
    )


PLAIN = FileFormat()


# Files as bytes, those named .gz unpacked; a damaged one says so, and nothing of itself.
#
# What a file is, its name says: the first bytes of a table without a header are a record's.

PARQUET = (".parquet", ".pq")


def is_parquet(path: PathLike) -> bool:
    """Whether a table is stored as Parquet, as its name says: a folder, or a file named .parquet or .pq."""
    return Path(path).suffix.lower() in PARQUET or Path(path).is_dir()


class _Unpacked(gzip.GzipFile):
    def read(self, size: int | None = -1) -> bytes:
        with suppress(EOFError, zlib.error, gzip.BadGzipFile):
            return super().read(size)
        raise DataError("the gzip file is damaged: make it again")  # outside of the handler: no context


CHUNK_ROWS = 50_000
_NOT_TEXT = "is not a text file: pass a CSV file, saved as UTF-8"
_MAGIC = {  # how files begin that are no text; the last is Zstandard
    b"PAR1": "is a Parquet file: let its name end in .parquet",
    b"\x1f\x8b": "is compressed by gzip: let its name end in .gz",
    **dict.fromkeys((b"PK\x03\x04", b"ARROW1", b"SQLite format 3", b"\x28\xb5\x2f\xfd"), _NOT_TEXT),
}
_WRITTEN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def csv_names(path: PathLike, file: FileFormat = PLAIN, *, header: bool | None = True) -> tuple[str, ...]:
    """The column names in the first line of a CSV file; a nameless third column is "column_3".

    Somebody vouches for them, or they look like names: refused, and not shown, is a line that looks like data
    where `header` is None.
    """
    if header is False:
        raise InvalidInput(
            f"{path} has no column names: write them into its first line, or pass `names`, in the order of "
            "its columns"
        )
    cells = header_cells(path, file)
    if header is None and looks_like_data(cells):
        raise InvalidInput(
            f"{path}: the first line looks like data, not like column names, and is not shown; if it really "
            "is a header pass `header=True`, if it is not pass `header=False` and `names`"
        )
    names = tuple(cell or f"column_{i}" for i, cell in enumerate(cells, start=1))
    check_distinct(names)
    return names


def header_cells(path: PathLike, file: FileFormat = PLAIN) -> tuple[str, ...]:
    """The cells of the first line; the names of the format where it has some."""
    with closing(csv_lines(path, file)) as lines:
        header = next(lines)
    return file.names or _header(header, file, path)


def csv_tables(path: PathLike, file: FileFormat = PLAIN) -> Iterator[Table]:
    """The cells of a CSV file as text, CHUNK_ROWS records at a time; at least one table."""
    names = csv_names(path, file)
    with closing(csv_lines(path, file)) as lines:
        next(lines)
        empty = True
        while rows := [record_cells(line, file, len(names)) for line in islice(lines, CHUNK_ROWS)]:
            empty = False
            yield Table(dict(zip(names, zip(*rows, strict=True), strict=True)))
        if empty:
            yield Table(dict.fromkeys(names, ()))


def csv_rows(path: PathLike, file: FileFormat = PLAIN) -> int:
    """The number of records of a CSV file; no line is taken apart."""
    with closing(csv_lines(path, file)) as lines:
        next(lines)
        return sum(1 for _ in lines)


def csv_lines(path: PathLike, file: FileFormat = PLAIN) -> Generator[bytes]:
    """The header, b"" where the format has names, then every record: bytes of a line, "\\n" at the end. What
    opens a file is looked at only where it is a header."""
    if not file.names:
        _check_text(path)
    # The encodings that are read agree on line breaks, and latin-1 holds every byte.
    with io.TextIOWrapper(_opened(path), encoding="latin-1") as text:
        lines: Iterator[bytes] = (line.encode("latin-1") for line in text)
        if file.encoding == UTF8:
            lines = chain([line.removeprefix(codecs.BOM_UTF8) for line in islice(lines, 1)], lines)
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


def _opened(path: PathLike) -> IO[bytes]:
    """The file as a stream of bytes, unpacked where its name ends in .gz; refused where it is no file."""
    if (suffix := Path(path).suffix.lower()) in PARQUET:
        raise InvalidInput(f"{path} is a Parquet file by its name: a CSV file is read here")
    try:
        refuse_special(path)
        packed = suffix == ".gz"
        return cast(IO[bytes], io.BufferedReader(_Unpacked(path, "rb"))) if packed else open(path, "rb")
    except OSError as error:
        reason = error.strerror
    raise InvalidInput(f"cannot read {path} ({reason}): check the path")


def _check_text(path: PathLike) -> None:
    """Refuse a file that does not begin as text does; only for one that begins with a header."""
    with _opened(path) as file:
        opening = file.read(4096)
    for magic, problem in _MAGIC.items():
        if opening.startswith(magic):
            raise InvalidInput(f"{path} {problem}")
    if b"\0" in re.split(rb"[\r\n]", opening.lstrip(b"\r\n"), maxsplit=1)[0]:
        raise InvalidInput(f"{path} {_NOT_TEXT}")


def _header(line: bytes, file: FileFormat, path: PathLike) -> tuple[str, ...]:
    """The cells of the line that names the columns."""
    if not (text := _text(line, file)):
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
    with suppress(csv.Error):  # a cell beyond the size that the reader allows
        return next(csv.reader([line], delimiter=delimiter))
    return []


def write_csv_safely(file: IO[str], names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV whose text no spreadsheet takes for a formula; numbers, negative ones too, stay numbers."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([_harmless(cell) for cell in row] for row in chain([names], rows))


def _harmless(cell: object) -> object:
    """The cell; text on one line, an apostrophe before what a spreadsheet would run (= + - @ or a tab)."""
    if not isinstance(cell, str):
        return cell
    text = " ".join(cell.splitlines())
    runs = text.lstrip(" ").startswith(("=", "+", "-", "@", "\t"))
    return f"'{text}" if runs and not _WRITTEN_NUMBER.fullmatch(text) else text


# Whether the header of a table names its columns; one that looks like data is never shown.

LONGEST_NAME = 60
# A letter or an underscore, then letters, digits and what joins the words of a name. No space: a person's
# name has one.
_NAME = re.compile(r"[^\W\d][\w.:/%$#()\[\]-]*")
# What cells say, and columns are hardly ever called.
_VALUES = frozenset(
    ("yes", "no", "true", "false", "male", "female", "m", "f", "na", "n/a", "nan", "none", "null", "unknown")
)


def looks_like_data(cells: Sequence[str]) -> bool:
    """Whether a first line holds what a name of a column hardly is.

    Numbers, dates, times, e-mail addresses, words such as "yes" and "female", texts with a space or of more
    than LONGEST_NAME letters, empty and repeated cells. A line of plain words cannot be told from names.
    """
    return len(set(cells)) < len(cells) or any(
        len(cell) > LONGEST_NAME
        or _NAME.fullmatch(cell) is None
        or cell.lower() in _VALUES
        or not math.isnan(number(cell))
        for cell in cells
    )


def check_parquet_names(path: PathLike, names: Sequence[str], header: bool | None = None) -> None:
    """Refuse, and do not show, names in a Parquet file that look like data, unless somebody vouches for
    them: a table that was once read without its header has a record there."""
    if header is False or (header is None and looks_like_data(names)):
        raise InvalidInput(
            f"{path}: its column names look like data and are not shown; if they really are names pass "
            "`header=True`, if they are not rename the columns"
        )
    check_distinct(names)
