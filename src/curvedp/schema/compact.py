"""The compact form of a schema file: a table [columns] with one line for each column.

    age = [0, 120]                      a number between bounds
    visit = [2020-01-01, 2024-12-31]    a date between bounds
    sex = ["f", "m"]                    levels, in quotes
    smoker = "boolean"                  a kind alone
    note = {kind = "ignored"}           the keys of a [[column]]; the kind follows from bounds or levels

Each line says what one [[column]] says in the long form, and is read as that.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.columns import is_number, shown

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def expanded(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a schema file with every line of [columns] as a [[column]]; those come first."""
    if "columns" not in content:
        return content
    lines, more = content["columns"], content.get("column", [])
    if not isinstance(lines, Mapping):
        raise InvalidInput("columns must be a table: write [columns], and below it age = [0, 120]")
    if not isinstance(more, list):
        raise InvalidInput("column must be a list of tables: write [[column]]")
    rest = {key: value for key, value in content.items() if key != "columns"}
    return {**rest, "column": [*(entry_of(name, value) for name, value in lines.items()), *more]}


def entry_of(name: str, value: Any) -> dict[str, Any]:
    """The [[column]] that a line of [columns] stands for."""
    if isinstance(value, str):
        return {"name": name, "kind": value}
    if isinstance(value, list):
        return {"name": name, **_listed(name, value)}
    if isinstance(value, Mapping) and "name" not in value:
        return {"name": name, "kind": _kind_in(value), **value}
    raise InvalidInput(f"column {shown(name)}: {_HOW}")


def compact_value(entry: Mapping[str, Any]) -> Any:
    """The shortest value whose `entry_of` is this [[column]], the name left out."""
    kind, keys = entry["kind"], {key: value for key, value in entry.items() if key not in ("name", "kind")}
    if kind == "date" and isinstance(keys.get("bounds"), list):
        keys["bounds"] = [_day(end) for end in keys["bounds"]]
    if not keys:
        return kind
    if _kind_in(keys) != kind:
        return {"kind": kind, **keys}
    return next(iter(keys.values())) if len(keys) == 1 else keys


def key_text(name: str) -> str | None:
    """The name as a key of TOML where it needs no quotes."""
    return name if _BARE_KEY.fullmatch(name) else None


_HOW = (
    'write [low, high] for a number, ["a", "b"] with levels in quotes, the kind in quotes, or a table as in '
    "{bounds = [0, 1]}"
)


def _listed(name: str, values: list[Any]) -> dict[str, Any]:
    if not values:
        return {"kind": ""}
    key = "levels" if all(isinstance(value, str) for value in values) else "bounds"
    kind = _kind_in({key: values})
    if not kind:
        raise InvalidInput(f"column {shown(name)}: {_HOW}")
    return {"kind": kind, key: values}


def _kind_in(keys: Mapping[str, Any]) -> str:
    """The kind that bounds or levels imply; "" where neither does."""
    if "levels" in keys or "levels_file" in keys:
        return "categorical"
    bounds = keys.get("bounds")
    if isinstance(bounds, list) and len(bounds) == 2:
        if all(map(is_number, bounds)):
            return "numeric"
        if all(isinstance(end, datetime.date) for end in bounds):
            return "date"
    return ""


def _day(end: Any) -> Any:
    """A bound as a date of TOML, where it is one."""
    try:
        return datetime.date.fromisoformat(end) if isinstance(end, str) else end
    except ValueError:
        return end
