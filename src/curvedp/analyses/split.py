"""Tables that are made: two stable parts of one, by coins (T-2); one of made-up cells, from declarations."""

from __future__ import annotations

import csv
import datetime
import hmac
import io
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from curvedp.arrays import ROWS_AT_MOST, BoolArray, TableLike
from curvedp.data.columns import Ignored, Numeric
from curvedp.data.dates import ISO, Column, Date
from curvedp.data.delimited import PLAIN, FileFormat, csv_lines, csv_names, is_parquet, record_cells
from curvedp.data.frames import Identifiers, Table, declared, identifier, is_dask, is_path
from curvedp.data.schema import Schema
from curvedp.data.source import source, unreadable
from curvedp.errors import InvalidInput, refuse_special, shielded
from curvedp.randomness import generator

KEY_BYTES = 32


@dataclass(frozen=True)
class Coins:
    """Heads with probability `share`, the same coin again for the same text; unknown without the key."""

    key: bytes
    share: float

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise InvalidInput(f"the second part's share is strictly between 0 and 1, got {self.share!r}")
        if len(self.key) != KEY_BYTES:
            raise InvalidInput(f"a key of a split has {KEY_BYTES} bytes")

    def heads(self, text: str) -> bool:
        """The keyed hash of the text, as a number in [0, 1), lies below `share`."""
        digest = hmac.digest(self.key, text.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:8], "big") < self.share * 2.0**64


def split(
    table: TableLike,
    share: float,
    *,
    unit: str | None = None,
    key: bytes | None = None,
    file: FileFormat = PLAIN,
    header: bool | None = None,
) -> tuple[Any, Any]:
    """The records of any table in two parts; a record goes to the second with probability `share`.

    With `unit`, all records of one person, as a fit tells persons apart, go the same way (U-1); so do all of
    nobody. Nothing is said of how many there are: that number is private where neighbours differ by one
    record. The parts of a table in memory are of its own kind, those of a Dask collection are in memory, and
    those of a file are the bytes of two such files, of CSV each with the header. A CSV file whose format has
    names has none. Refused, since a record would go to both parts: a first line that looks like data where
    `header` is None.
    """
    if key is not None and unit is None:
        raise InvalidInput("a key is for a column that says whose row it is: pass unit, too, or no key")
    coins = Coins(secrets.token_bytes(KEY_BYTES) if key is None else key, share)
    stored = is_path(table)
    if stored and not is_parquet(table):
        names = file.names or csv_names(table, file, header=header)
        if unit is not None and unit not in names:
            raise InvalidInput(f"the table has no column {unit!r}: pass one that its first line names")
        column = None if unit is None else names.index(unit)
        return shielded(lambda: _parts(table, coins, column, file), unreadable)
    width = 1 if stored else shielded(lambda: declared(table)[1], unreadable) or 1
    found, second = source(table, [str(j) for j in range(width)]), partial(_second, coins, unit)
    for head in found.heads:
        second(head)  # refuses what names and types rule out
    if is_dask(table) or stored:
        both = list(zip(*found.over(partial(_both, second)), strict=True))
        return shielded(lambda: (_joined(both[0], stored), _joined(both[1], stored)), unreadable)
    chosen = np.concatenate(found.over(second))
    return _chosen(table, ~chosen), _chosen(table, chosen)


def _second(coins: Coins, unit: str | None, chunk: Table) -> BoolArray:
    """Which rows of a chunk go to the second part."""
    if unit is None:
        draws = np.frombuffer(secrets.token_bytes(8 * len(chunk)), np.uint64)
        return np.asarray(draws.astype(np.float64) < coins.share * 2.0**64)
    known = Identifiers()
    codes = known.codes(chunk.column(unit))
    sides = [*map(coins.heads, known.names), coins.heads("")]  # the last: nobody's, of the code −1
    return np.array(sides, dtype=np.bool_)[codes]


def _chosen(table: TableLike, rows: BoolArray) -> Any:
    """Some rows of a table in memory, of its own kind."""
    if not len(rows):
        return table
    if isinstance(table, Mapping):
        return {name: _chosen(column, rows) for name, column in table.items()}
    if isinstance(table, list | tuple):
        return [row for row, chosen in zip(table, rows.tolist(), strict=True) if chosen]
    native = nw.from_native(table, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame | nw.Series):
        return native.filter(rows.tolist()).to_native()
    return (table.tocsr() if issparse(table) else np.asanyarray(table))[rows]


def _both(second: Callable[[Table], BoolArray], chunk: Table) -> tuple[Any, Any]:
    chosen = second(chunk)
    rows = chunk.matrix if chunk.matrix is not None else nw.from_dict(dict(chunk.columns)).to_native()
    return _chosen(rows, ~chosen), _chosen(rows, chosen)


def _joined(parts: Sequence[Any], stored: bool) -> Any:
    """Pieces of a data frame or an array as one; of Parquet files, the bytes of one."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    whole = nw.concat([nw.from_native(part) for part in parts]).to_native()
    if not stored:
        return whole
    from pyarrow.parquet import write_table

    written = io.BytesIO()
    write_table(whole, written)
    return written.getvalue()


def _parts(
    path: str | os.PathLike[str], coins: Coins, column: int | None, file: FileFormat
) -> tuple[bytes, bytes]:
    lines = csv_lines(path, file=file)  # bytes that are no text stay as they are
    header = next(lines)
    parts = [header], [header]
    for number, line in enumerate(lines):
        text = str(number)
        if column is not None:
            text = identifier(record_cells(line, file, column + 1)[column]) or ""  # of nobody
        parts[coins.heads(text)].append(line)
    return b"".join(parts[0]), b"".join(parts[1])


def kept_key(path: Path) -> bytes:
    """The key in a file, made there where it does not exist; only its owner may read it."""
    refuse_special(path)
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        try:
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(key.hex() + "\n")
        except OSError as error:
            raise InvalidInput(f"the key {path} cannot be written ({error.strerror})") from None
        return key
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(f"the key {path} cannot be read: pass a file that curvedp split made") from None
    if not re.fullmatch(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", text):
        raise InvalidInput(f"{path} holds no key: pass a file that curvedp split made, or a new path")
    return bytes.fromhex(text)


_WHOLE = 10  # between bounds that are whole and at least so far apart numbers are drawn whole
_ROWS_EACH = 3  # of a person, on average
_ODD = "odd"  # no number, no date, and hardly a level


def dummy(
    schema: Schema, rows: int = 1000, *, seed: int | None = None, missing: float = 0.05, odd: float = 0.0
) -> dict[str, list[str]]:
    """A made-up table with the declared columns, to write an analysis on before the data are touched.

    Every cell is drawn by itself from what the schema declares, and from nothing else: a level with equal
    chances, a number or a day uniformly between its bounds, written as the schema says that cells are. No
    column tells anything of another. With a unit, a person has one row or several.

    Parameters
    ----------
    schema : Schema
        What is declared; a target is not needed.
    rows : int, default=1000
        How many rows.
    seed : int, optional
        The same seed, the same table.
    missing : float, default=0.05
        The chance of a cell to be missing: empty, or the first of the column's missing codes.
    odd : float, default=0
        The chance of a cell to be none of what is declared, such as a number out of bounds.

    Returns
    -------
    table : dict of str to list of str
        The cells of each column as a file has them. It is a table: pass it to a fit, or to a data frame.

    Examples
    --------
    >>> from curvedp import Categorical, Numeric, Schema, dummy
    >>> schema = Schema([Numeric("age", 18, 90), Categorical("sex", ["f", "m"]), Numeric("wage", 0, 9.5)])
    >>> table = dummy(schema, rows=3, seed=7, missing=0)
    >>> sorted(table), len(table["age"]), set(table["sex"]) <= {"f", "m"}
    (['age', 'sex', 'wage'], 3, True)
    """
    if type(rows) is not int or not 0 < rows <= ROWS_AT_MOST:
        raise InvalidInput("`rows` must be a positive whole number, such as 1000")
    if not all(0.0 <= share <= 1.0 for share in (missing, odd)) or missing + odd > 1.0:
        raise InvalidInput("`missing` and `odd` are chances: pass numbers from 0 to 1, together at most 1")
    random, columns = generator(seed), {column.name: column for column in schema.columns} | schema.in_file
    unit = [] if schema.unit is None or schema.unit in columns else [schema.unit]
    table = {}
    for name in schema.file.names or (*unit, *columns):
        if name == schema.unit:
            table[name] = [str(who) for who in random.integers(1, 1 + math.ceil(rows / _ROWS_EACH), rows)]
            continue
        cells, nothing, beyond = _made_up(columns.get(name, Ignored(name)), rows, random)
        table[name] = [
            cell if c >= missing + odd else nothing if c < missing else beyond
            for cell, c in zip(cells, random.random(rows).tolist(), strict=True)
        ]
    return table


def _made_up(column: Column, rows: int, random: np.random.Generator) -> tuple[list[str], str, str]:
    """Cells of a column, what it says for none, and what it does not declare."""
    if isinstance(column, Ignored):
        return [""] * rows, "", ""
    if isinstance(column, Numeric):
        low, high, width = column.low, column.high, column.high - column.low
        digits = 0 if width >= _WHOLE and low % 1 == high % 1 == 0 else 3 - math.floor(math.log10(width))
        signs = str.maketrans({",": column.thousands, ".": column.numerals.decimal})
        drawn = [min(max(round(x, digits), low), high) for x in random.uniform(low, high, rows).tolist()]
        values = (*drawn, *column.missing_codes[:1], high + width)
        texts = [f"{x + 0.0:,}".removesuffix(".0").translate(signs) for x in values]
        return texts[:rows], texts[rows] if column.missing_codes else "", texts[-1]
    if isinstance(column, Date):
        first = datetime.datetime.combine(column.low, datetime.time(), datetime.UTC)
        days = random.integers(0, column.last_day + 1, rows).tolist()
        pattern = "%Y-%m-%d" if column.format == ISO else column.format
        return [(first + datetime.timedelta(day)).strftime(pattern) for day in days], "", _ODD
    return [column.levels[i] for i in random.integers(0, len(column.levels), rows).tolist()], "", _ODD


def as_csv(table: Mapping[str, Sequence[str]], file: FileFormat) -> bytes:
    """The file of a table of texts; without a header where the format has names."""
    text = io.StringIO()
    lines = csv.writer(text, delimiter=file.delimiter, lineterminator="\n")
    lines.writerows([] if file.names else [list(table)])
    lines.writerows(zip(*table.values(), strict=True))
    return text.getvalue().encode(file.encoding, "replace")
