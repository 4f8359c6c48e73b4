"""Bounds written into a schema file that a person is still filling in: comments and other columns stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.columns import Numeric, shown
from curvedp.schema.compact import compact_value, entry_of
from curvedp.schema.files import ADJACENCY, parse_toml, to_toml, toml_key, toml_value
from curvedp.schema.formats import FileFormat
from curvedp.schema.numerals import Numerals

_TABLE = re.compile(r"(?m)^(?=[ \t]*\[)")
_NAME = re.compile(r"\s*name\s*=")
_REPLACED = re.compile(r"\s*(?:kind|bounds|levels|source|origin)\s*=")


def with_bounds(text: str, found: Mapping[str, Numeric]) -> str:
    """The schema file with these columns declared, every other line as it was.

    Refused: a file without one of them, and one that is not laid out line by line.
    """
    content = parse_toml(text)
    for name, column in found.items():
        bounded = _bounded(declared_entry(content, name), column)
        if name in _lines(content):
            content["columns"][name] = compact_value(bounded)
        else:
            entry = next(entry for entry in content["column"] if _name_of(entry) == name)
            entry.clear()
            entry.update(bounded)
    edited = "".join(_edited(block, found) for block in _TABLE.split(text))
    if _parsed(edited) != content:
        raise InvalidInput(
            "this schema is not laid out as curvedp writes it, with one line for each column, or each "
            "[[column]] with one line for each key: write it so, or fill the bounds in by hand"
        )
    return edited


def declared_entry(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a schema file says of a column, filled in or not, as a [[column]] says it."""
    entries = content.get("column")
    own = [entry for entry in entries if _name_of(entry) == name] if isinstance(entries, list) else []
    if name in _lines(content):
        own.append(entry_of(name, _lines(content)[name]))
    if len(own) != 1:
        raise InvalidInput(f"the schema has no column {shown(name)}: add it, or leave it out here")
    entry: Mapping[str, Any] = own[0]
    return entry


def require_open(text: str, name: str, *, force: bool = False) -> None:
    """Refuse a column whose kind or bounds the schema file declares already; with `force`, dates alone."""
    entry = declared_entry(parse_toml(text), name)
    if entry.get("kind") == "date":
        raise InvalidInput(
            f"column {shown(name)} is a date, whose bounds cannot be bought: declare its first and last day"
        )
    if force:
        return
    if entry.get("kind") not in (None, "", "numeric"):
        raise InvalidInput(f"the schema declares that column {shown(name)} is not numeric: leave it out here")
    if entry.get("bounds"):
        raise InvalidInput(
            f"the schema declares bounds of column {shown(name)} already: leave it out here, or pass --force "
            "to replace them"
        )


def declared_file(text: str) -> FileFormat:
    """How the files of a schema are written."""
    return FileFormat.from_dict(parse_toml(text).get("file", {}))


def declared_numerals(text: str, names: Iterable[str], file: FileFormat) -> dict[str, Numerals]:
    """How the numbers of these columns are written, filled in or not."""
    content, found = parse_toml(text), {}
    for name in names:
        entry = declared_entry(content, name)
        told = {key: entry[key] for key in ("decimal", "thousands", "missing_codes") if entry.get(key)}
        found[name] = Numeric(name, 0.0, 1.0, **told).in_file(file.decimal).numerals
    return found


def declared_adjacency(text: str) -> Any:
    """The adjacency that a schema file declares, filled in or not."""
    return parse_toml(text).get("adjacency", ADJACENCY)


def declared_unit(text: str) -> Any:
    """The column that says whose row it is, where a schema file names one."""
    return parse_toml(text).get("unit")


def _edited(block: str, found: Mapping[str, Numeric]) -> str:
    """A part of the file that begins with [columns], with one [[column]], or with neither."""
    parsed = _parsed(block)
    if _lines(parsed):
        return "".join(_edited_line(line, found) for line in block.splitlines(keepends=True))
    entries = parsed.get("column")
    name = _name_of(entries[0]) if isinstance(entries, list) and len(entries) == 1 else None
    if name is None or name not in found:
        return block
    new = {key: value for key, value in found[name].to_dict().items() if key != "name"}
    lines = [line for line in block.splitlines(keepends=True) if not _REPLACED.match(line)]
    after = next((i for i, line in enumerate(lines, start=1) if _NAME.match(line)), len(lines))
    head = "".join(lines[:after]).rstrip("\n")
    return f"{head}\n{to_toml({**new, 'column': []})}{''.join(lines[after:])}"


def _edited_line(line: str, found: Mapping[str, Numeric]) -> str:
    """A line of [columns], replaced where it declares one of these."""
    for name, value in _parsed(line).items():
        if name in found:
            bounded = _bounded(entry_of(name, value), found[name])
            return f"{toml_key(name)} = {toml_value(compact_value(bounded))}\n"
    return line


def _bounded(entry: Mapping[str, Any], column: Numeric) -> dict[str, Any]:
    """The entry with these bounds; how its cells are written stays."""
    replaced = ("kind", "bounds", "levels", "source", "origin")
    kept = {key: value for key, value in entry.items() if key not in replaced}
    return {**kept, **column.to_dict()}


def _lines(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The compact form of a file, a value for each column; empty where it has none."""
    lines = content.get("columns")
    return lines if isinstance(lines, Mapping) else {}


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _name_of(entry: object) -> str | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None
