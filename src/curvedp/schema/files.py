"""Schema files: declarations as TOML, written by a person, read without trust; and a template to fill in."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.cells import number
from curvedp.schema.columns import Categorical, Column, Ignored, Numeric, is_list, is_text, shown
from curvedp.schema.delimited import PARQUET_MAGIC, first_bytes, header_cells
from curvedp.schema.frames import check_distinct

KINDS = 'write kind = "numeric" (with bounds), "categorical" (with levels) or "ignored"'
RECORD, ADJACENCY = "one row is one person", "replace"
LONGEST_NAME = 100
_TOP_KEYS = ("record", "adjacency", "target", "column")
_COLUMN_KEYS = ("name", "kind", "bounds", "levels", "origin")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?")


def read_toml(path: str | os.PathLike[str]) -> str:
    """The text of a schema file."""
    reason: str
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = f"cannot read the schema {path} ({error.strerror}): check the path"
    except UnicodeDecodeError:
        reason = f"the schema {path} is not UTF-8 text: save it as UTF-8"
    raise InvalidInput(reason)


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a schema file, or one line that says why it cannot be read."""
    reason = "its nesting or its numbers are beyond what can be read"
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split())
    except (ValueError, RecursionError, OverflowError):
        pass
    raise InvalidInput(f"the schema is not valid TOML ({reason[:200]}): correct that line")


def declarations(content: Any) -> dict[str, Any]:
    """The arguments of a `Schema` in content that a person, or an enemy, may have written."""
    if not isinstance(content, Mapping):
        raise InvalidInput("the schema has no columns: write one [[column]] for each")
    _known_keys(content, _TOP_KEYS, "the schema")
    entries = content.get("column")
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise InvalidInput("the schema has no columns: write one [[column]] for each")
    record, adjacency = content.get("record", RECORD), content.get("adjacency", ADJACENCY)
    target = content.get("target")
    for name, value in (("record", record), ("adjacency", adjacency), ("target", target)):
        if not (isinstance(value, str) and is_text(value)) and not (name == "target" and value is None):
            raise InvalidInput(f"{name} must be text: write it in quotes")
    columns = tuple(_column(entry, i) for i, entry in enumerate(entries, start=1))
    return {"columns": columns, "target": target, "adjacency": adjacency, "record": record}


def to_toml(content: Mapping[str, Any]) -> str:
    """The file that says the same as `Schema.to_dict`."""
    top = {key: value for key, value in content.items() if key != "column"}
    tables = [("", top), *(("[[column]]\n", entry) for entry in content["column"])]
    return "\n".join(
        head + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items()) for head, table in tables
    )


def schema_template(path: str | os.PathLike[str], *, delimiter: str = ",", header: bool | None = None) -> str:
    """A schema file for a person to fill in: the column names of a table on disk, and nothing else of it.

    Parameters
    ----------
    path : path
        A CSV file whose first line names the columns, or a Parquet file.
    delimiter : str, default=","
        What separates the cells of a CSV file.
    header : bool, optional
        Whether the first line of a CSV file names the columns. Unless you say so, a line that looks like data
        (a number, a date, an empty or a very long cell among its names) is refused and not shown.

    Returns
    -------
    text : str
        TOML, to be completed with a kind and bounds or levels for every column.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from curvedp.schema import schema_template
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "data.csv")
    ...     _ = path.write_text("age,wage\\n37,52000\\n")
    ...     text = schema_template(path)
    >>> 'name = "age"' in text, "37" in text
    (True, False)
    """
    if first_bytes(path).startswith(PARQUET_MAGIC):
        names = _parquet_names(path)
    else:
        names = _csv_names(path, delimiter, header)
    head = f"""\
# Fill in every column. Bounds and levels are public promises: take them from a codebook or from common
# knowledge, never from the data. Bounds can be bought, too: see curvedp bounds --help. Then name the target
# below, or when you fit.
#
#   kind = "numeric"      with bounds = [0, 120]        a value outside is clipped to the bounds
#   kind = "categorical"  with levels = ["no", "yes"]   any other value counts as missing
#   kind = "ignored"                                    the column is not used
#
# record: what one row of the table is, in words. Its owner is who is protected.
# adjacency: "replace" protects what a record says; "add_remove" also hides that it is there.

record = {_toml(RECORD)}
adjacency = {_toml(ADJACENCY)}
# target = "..."
"""
    column = (
        '\n[[column]]\nname = {}\nkind = ""    # numeric, categorical or ignored\nbounds = []\nlevels = []\n'
    )
    return head + "".join(column.format(_toml(name)) for name in names)


def _csv_names(path: str | os.PathLike[str], delimiter: str, header: bool | None) -> Sequence[str]:
    """The names in a first line that somebody vouches for, or that looks like names."""
    if header is False:
        raise InvalidInput(f"{path} has no column names: write them into its first line")
    cells = header_cells(path, delimiter=delimiter)
    if header is None and any(map(_looks_like_data, cells)):
        raise InvalidInput(
            f"{path}: the first line looks like data, not like column names; "
            "if it really is a header pass header=True"
        )
    check_distinct(filter(None, cells))
    names = [cell or f"column_{i}" for i, cell in enumerate(cells, start=1)]
    check_distinct(names)
    return names


def _looks_like_data(cell: str) -> bool:
    unreadable = not cell.isprintable() or "\ufffd" in cell
    return (
        not cell
        or len(cell) > LONGEST_NAME
        or unreadable
        or cell.lower() == "nan"
        or not math.isnan(number(cell))
        or _DATE.fullmatch(cell) is not None
    )


def _parquet_names(path: str | os.PathLike[str]) -> Sequence[str]:
    reason = f"{path} is damaged, or no Parquet file: check the path"
    try:
        from pyarrow.parquet import read_schema

        names = list(map(str, read_schema(path).names))
    except ModuleNotFoundError:
        reason = 'a Parquet file needs pyarrow: pip install "curvedp[pyarrow]"'
    except Exception:
        pass
    else:
        check_distinct(names)
        return names
    raise InvalidInput(reason)


def _column(entry: Any, position: int) -> Column:
    """One [[column]] of a schema file; what is not filled in is named."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidInput(f'column {position} of the schema has no name: write name = "..."')
    what = f"column {shown(name)}"
    _known_keys(entry, _COLUMN_KEYS, what)
    kind, bounds, levels = (entry.get(key) for key in ("kind", "bounds", "levels"))
    if kind != "numeric" and "origin" in entry:
        raise InvalidInput(f"{what}: an origin belongs to the bounds of a numeric column: remove it")
    bounds, levels = (None if is_list(value) and len(value) == 0 else value for value in (bounds, levels))
    if kind is None or kind == "":
        raise InvalidInput(f"{what}: the kind is not filled in: {KINDS}")
    if kind == "ignored":
        return Ignored(name)
    if kind == "numeric":
        if levels is not None:
            raise InvalidInput(f"{what}: a numeric column has no levels: remove them")
        if bounds is None:
            raise InvalidInput(f"{what}: the bounds are not filled in: write bounds = [low, high]")
        if not (is_list(bounds) and len(bounds) == 2):
            raise InvalidInput(f"{what}: bounds must be two numbers: write bounds = [low, high]")
        return Numeric(name, bounds[0], bounds[1], origin=entry.get("origin", ""))
    if kind == "categorical":
        if bounds is not None:
            raise InvalidInput(f"{what}: a categorical column has no bounds: remove them")
        if levels is None:
            raise InvalidInput(f'{what}: the levels are not filled in: write levels = ["a", "b"]')
        return Categorical(name, levels)
    said = f"unknown kind {shown(kind)}" if isinstance(kind, str) else "the kind must be text"
    raise InvalidInput(f"{what}: {said}: {KINDS}")


def _known_keys(content: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in content:
        if key not in known:
            said = shown(key) if isinstance(key, str) else "that is no text"
            raise InvalidInput(f"{where} has an unknown key {said}: use {', '.join(known)}")


def _toml(value: Any) -> str:
    """A TOML value. Its basic strings are those of JSON, but for DEL, which must be escaped."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))
