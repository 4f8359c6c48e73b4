"""Tables at the edge of the library: CSV files and data frames, read cell by cell under one public rule.

A cell is a number when Python's `float` reads it ("inf" is clipped later), 1 or 0 when it says true or false
in any case, and missing otherwise. What a cell becomes never depends on the other cells: nothing is inferred
from a column, nothing is counted, nothing is reported.

In a CSV file one line is one record: a line break inside quotes does not continue it, so that one record,
however malformed, cannot change how another is read. Cells missing at the end of a line are missing values,
surplus cells are dropped, empty lines are no records, and bytes that are not UTF-8 are replaced.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import narwhals as nw
import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import DataError, InvalidInput

Cells = Sequence[Any] | nw.Series[Any] | np.ndarray[Any, Any]
Columns = Mapping[str, Cells]

CHUNK_ROWS = 50_000
_PLAIN_NUMBER = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]*))?")
_WRITTEN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TRUTH = {"true": 1.0, "false": 0.0}
_MISSING = ("None", "nan", "<NA>", "NaT")  # how None and the missing values of numpy and pandas print


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame as numbers: column names and an (n, columns) matrix, NaN where a value is missing."""

    names: tuple[str, ...]
    values: FloatArray


def number(cell: object) -> float:
    """The number a cell stands for; NaN where it stands for none."""
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if cell > 0 else -math.inf  # type: ignore[operator]
    except (TypeError, ValueError):
        return _TRUTH.get(str(cell).strip().lower(), math.nan)


def level(cell: object) -> str:
    """The text by which a cell names a level; "" where the cell is missing.

    Whitespace around it is dropped, truth values are lower case, and plain decimals lose idle zeros and a
    plus sign: 1, 1.0, "1" and "01" are one level, however a data frame happens to store them.
    """
    text = str(cell).strip()
    if not isinstance(cell, str) and text in _MISSING:
        return ""
    if text.lower() in _TRUTH:
        return text.lower()
    plain = _PLAIN_NUMBER.fullmatch(text)
    if plain is None:
        return text
    sign, whole, fraction = (
        plain.group(1),
        plain.group(2).lstrip("0") or "0",
        (plain.group(3) or "").rstrip("0"),
    )
    digits = f"{whole}.{fraction}" if fraction else whole
    return f"-{digits}" if sign == "-" and digits != "0" else digits


def numbers(cells: Cells) -> FloatArray:
    """`number` of every cell."""
    if isinstance(cells, nw.Series):
        if cells.dtype.is_numeric():
            return np.asarray(cells.cast(nw.Float64).to_numpy(), dtype=np.float64)
        cells = cells.to_list()
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        return cells.astype(np.float64)
    try:
        return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(number, cells), dtype=np.float64, count=len(cells))


def levels(cells: Cells) -> list[str]:
    """`level` of every cell."""
    if isinstance(cells, nw.Series):
        cells = cells.to_list()
    if set(map(type, cells)) != {str}:
        return [level(cell) for cell in cells]
    known = {cell: level(cell) for cell in set(cells)}  # a column has few different cells
    return [known[cell] for cell in cells]


def is_table(X: object) -> bool:
    """Whether X is a data frame in memory (pandas, polars, pyarrow, …), or a polars one still to collect."""
    frame = nw.from_native(X, pass_through=True)
    return isinstance(frame, nw.DataFrame) or (
        isinstance(frame, nw.LazyFrame) and frame.implementation.is_polars()
    )


def read_table(X: object) -> Table:
    """The columns of a data frame as numbers. A column whose declared type is text is refused."""
    columns = _frame_columns(X)
    if not columns:
        raise InvalidInput("the table has no columns: pass at least one")
    for name, cells in columns.items():
        dtype = cells.dtype
        if not (dtype.is_numeric() or dtype in (nw.Boolean, nw.Object, nw.Unknown)):
            raise DataError(
                f"column {name!r} does not hold numbers: convert it, leave it out, or declare its levels as "
                "a categorical column of a schema"
            )
    return Table(tuple(columns), np.column_stack([numbers(cells) for cells in columns.values()]))


def columns_of(table: object) -> dict[str, Cells]:
    """The columns of a data frame or of a mapping {name: cells} by name, all of one length."""
    if not isinstance(table, Mapping):
        return dict(_frame_columns(table))
    if len({len(cells) for cells in table.values()}) > 1:
        raise InvalidInput("the columns of a table must have one length: pass lists of equal length")
    return {str(name): cells for name, cells in table.items()}


def _frame_columns(table: object) -> dict[str, nw.Series[Any]]:
    try:
        frame = nw.from_native(table, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise InvalidInput("two columns have the same name: rename one") from None
    if isinstance(frame, nw.LazyFrame):
        raise InvalidInput("a lazy frame holds no rows yet: pass frame.collect()")
    if not isinstance(frame, nw.DataFrame):
        raise InvalidInput(
            "a table must be a data frame, a mapping {column: cells} or the path of a CSV file"
        )
    columns = {str(series.name): series for series in frame.iter_columns()}
    if len(columns) != len(frame.columns):
        raise InvalidInput("two columns have the same name: rename one")
    return columns


def csv_names(path: str | os.PathLike[str], *, delimiter: str = ",") -> tuple[str, ...]:
    """The column names in the first line of a CSV file; a nameless third column is "column_3"."""
    with _open(path) as file:
        return _header(file, Path(path), delimiter)


def csv_chunks(path: str | os.PathLike[str], *, delimiter: str = ",") -> Iterator[dict[str, Sequence[str]]]:
    """The cells of a CSV file as text, column by column, CHUNK_ROWS records at a time; at least one chunk."""
    with _open(path) as file:
        names = _header(file, Path(path), delimiter)
        empty = True
        while rows := _records(file, delimiter, len(names)):
            empty = False
            yield dict(zip(names, zip(*rows, strict=True), strict=True))
        if empty:
            yield dict.fromkeys(names, ())


def read_csv(path: str | os.PathLike[str], *, delimiter: str = ",") -> dict[str, list[str]]:
    """All cells of a CSV file as text, column by column."""
    columns: dict[str, list[str]] = {name: [] for name in csv_names(path, delimiter=delimiter)}
    for chunk in csv_chunks(path, delimiter=delimiter):
        for name, cells in chunk.items():
            columns[name].extend(cells)
    return columns


def _open(path: str | os.PathLike[str]) -> TextIO:
    try:
        return open(path, encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}): check the path") from None


def _header(file: TextIO, path: Path, delimiter: str) -> tuple[str, ...]:
    if len(delimiter) != 1:
        raise InvalidInput(f"delimiter must be one character, got {delimiter!r}")
    line = next((line for line in file if line != "\n"), "").rstrip("\n")
    if not line:
        raise InvalidInput(f"{path} is empty: its first line must name the columns")
    cells = [cell.strip() for cell in _split(line, delimiter)]
    names = tuple(cell or f"column_{i}" for i, cell in enumerate(cells, start=1))
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InvalidInput(f"the header of {path} names {twice!r} twice: rename one")
    if len(names) == 1:
        other = next((mark for mark in ";\t|" if mark in line and mark != delimiter), None)
        if other is not None:
            raise InvalidInput(f"the header of {path} seems separated by {other!r}: pass delimiter={other!r}")
    return names


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


def write_csv_safely(file: TextIO, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
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
