"""Bounds written into a schema file that a person is still filling in: comments and other columns stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.columns import Numeric, shown
from curvedp.schema.files import ADJACENCY, parse_toml, to_toml

_TABLE = re.compile(r"(?m)^(?=[ \t]*\[\[)")
_NAME = re.compile(r"\s*name\s*=")
_REPLACED = re.compile(r"\s*(?:kind|bounds|levels|origin)\s*=")


def with_bounds(text: str, found: Mapping[str, Numeric]) -> str:
    """The schema file with these columns declared, every other line as it was.

    Refused: a file without one of them, and one that is not laid out line by line.
    """
    content = parse_toml(text)
    for name, column in found.items():
        entry = declared_entry(content, name)
        entry.clear()
        entry.update(column.to_dict())
    edited = "".join(_edited(block, found) for block in _TABLE.split(text))
    if _parsed(edited) != content:
        raise InvalidInput(
            "this schema is not laid out as curvedp writes it, each [[column]] with one line for each key: "
            "write it so, or fill the bounds in by hand"
        )
    return edited


def declared_entry(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a schema file says of a column, filled in or not."""
    entries = content.get("column")
    own = [entry for entry in entries if _name_of(entry) == name] if isinstance(entries, list) else []
    if len(own) != 1:
        raise InvalidInput(f"the schema has no column {shown(name)}: add it, or leave it out here")
    entry: dict[str, Any] = own[0]
    return entry


def require_open(text: str, name: str) -> None:
    """Refuse a column whose kind or bounds the schema file declares already."""
    entry = declared_entry(parse_toml(text), name)
    if entry.get("kind") not in (None, "", "numeric"):
        raise InvalidInput(f"the schema declares that column {shown(name)} is not numeric: leave it out here")
    if entry.get("bounds"):
        raise InvalidInput(
            f"the schema declares bounds of column {shown(name)} already: leave it out here, or pass --force "
            "to replace them"
        )


def declared_adjacency(text: str) -> Any:
    """The adjacency that a schema file declares, filled in or not."""
    return parse_toml(text).get("adjacency", ADJACENCY)


def _edited(block: str, found: Mapping[str, Numeric]) -> str:
    entries = _parsed(block).get("column")
    name = _name_of(entries[0]) if isinstance(entries, list) and len(entries) == 1 else None
    if name is None or name not in found:
        return block
    new = {key: value for key, value in found[name].to_dict().items() if key != "name"}
    lines = [line for line in block.splitlines(keepends=True) if not _REPLACED.match(line)]
    after = next((i for i, line in enumerate(lines, start=1) if _NAME.match(line)), len(lines))
    head = "".join(lines[:after]).rstrip("\n")
    return f"{head}\n{to_toml({**new, 'column': []})}{''.join(lines[after:])}"


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _name_of(entry: object) -> str | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None
