"""One [[column]] of a schema file as a column: every key belongs to its kind; what is missing is named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.cells import level
from curvedp.schema.columns import Categorical, Ignored, Numeric, is_list, repeated, shown
from curvedp.schema.dates import Date
from curvedp.schema.kinds import Column
from curvedp.schema.truths import Boolean

KINDS = (
    'write kind = "numeric" (with bounds), "categorical" (with levels), "date" (with bounds), "boolean" or '
    '"ignored"'
)
_KEYS = {
    "numeric": ("bounds", "source", "decimal", "thousands", "missing_codes", "missing"),
    "categorical": ("levels", "levels_file", "source", "missing"),
    "date": ("bounds", "source", "format", "parts", "missing"),
    "boolean": ("words", "source", "missing"),
    "ignored": (),
}
_ALL_KEYS = ("name", "kind", *dict.fromkeys(key for keys in _KEYS.values() for key in keys))
_LONGEST_FILE = 2**24  # bytes of a file of levels


def column_of(entry: Any, position: int, folder: Path | None = None) -> Column:
    """The column that an entry declares; files of levels are read from `folder`, refused without one."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidInput(f'column {position} of the schema has no name: write name = "..."')
    what = f"column {shown(name)}"
    if entry.get("kind") == "numeric" and "origin" in entry and "source" not in entry:  # an earlier name
        entry = {"source" if key == "origin" else key: value for key, value in entry.items()}
    for key in entry:
        if key not in _ALL_KEYS:
            said = shown(key) if isinstance(key, str) else "that is no text"
            raise InvalidInput(f"{what} has an unknown key {said}: use {', '.join(_ALL_KEYS)}")
    kind = entry.get("kind")
    if kind is None or kind == "":
        raise InvalidInput(f"{what}: the kind is not filled in: {KINDS}")
    if not isinstance(kind, str) or kind not in _KEYS:
        said = f"unknown kind {shown(kind)}" if isinstance(kind, str) else "the kind must be text"
        raise InvalidInput(f"{what}: {said}: {KINDS}")
    told = {key: value for key, value in entry.items() if key not in ("name", "kind") and not _is_open(value)}
    if kind == "ignored":
        told = {key: value for key, value in told.items() if key not in ("bounds", "levels")}
    _check_keys(told, kind, what)
    return _made(name, kind, told, what, folder)


def _is_open(value: Any) -> bool:
    """Whether a template's list was left empty."""
    return is_list(value) and len(value) == 0


def _check_keys(told: Mapping[str, Any], kind: str, what: str) -> None:
    for key in told:
        if key in _KEYS[kind]:
            continue
        if key in ("bounds", "levels"):
            raise InvalidInput(f"{what}: a {kind} column has no {key}: remove them")
        owners = " or ".join(owner for owner, keys in _KEYS.items() if key in keys)
        raise InvalidInput(f"{what}: {key} belongs to a column that is {owners}, not {kind}: remove it")


def _made(name: str, kind: str, told: dict[str, Any], what: str, folder: Path | None) -> Column:
    if kind in ("numeric", "date"):
        bounds = told.pop("bounds", None)
        example = "[low, high]" if kind == "numeric" else '["2020-01-01", "2024-12-31"]'
        if bounds is None:
            raise InvalidInput(f"{what}: the bounds are not filled in: write bounds = {example}")
        if not (is_list(bounds) and len(bounds) == 2):
            things = "numbers" if kind == "numeric" else "dates"
            raise InvalidInput(f"{what}: bounds must be two {things}: write bounds = {example}")
        made = Numeric if kind == "numeric" else Date
        return made(name, bounds[0], bounds[1], **told)
    if kind == "categorical":
        levels = _levels(told, what, folder)
        source = told.get("source", Path(told.get("levels_file", "")).name)
        return Categorical(name, levels, missing=told.get("missing", "zero"), source=source)
    return Boolean(name, **told) if kind == "boolean" else Ignored(name)


def _levels(told: Mapping[str, Any], what: str, folder: Path | None) -> Any:
    levels, file = told.get("levels"), told.get("levels_file")
    if levels is not None and file is not None:
        raise InvalidInput(f"{what}: pass levels or levels_file, not both: remove one")
    if file is None:
        if levels is None:
            raise InvalidInput(f'{what}: the levels are not filled in: write levels = ["a", "b"]')
        return levels
    if not isinstance(file, str) or not file or "\0" in file:
        raise InvalidInput(f'{what}: levels_file must be a path in quotes: write levels_file = "levels.txt"')
    if folder is None:
        raise InvalidInput(
            f"{what}: a file of levels is found beside a schema file: load the schema from its file, or "
            'write levels = ["a", "b"]'
        )
    return level_lines(folder, file, what)


def level_lines(folder: Path, name: str, what: str) -> tuple[str, ...]:
    """The levels in a text file at or below a folder, one in each line; empty lines are none.

    Nothing of its content is in a message: it may be another file than it should be.
    """
    home, path = Path(os.path.realpath(folder)), Path(os.path.realpath(folder / name))
    if not path.is_relative_to(home) or (path.exists() and not path.is_file()):
        raise InvalidInput(
            f"{what}: its file of levels must be a plain file beside the schema, or in a folder below it: "
            "copy it there"
        )
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST_FILE + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        problem = f"its file of levels cannot be read ({error.strerror}): check the path {shown(name)}"
    except UnicodeDecodeError:
        problem = f"its file of levels {shown(name)} is not UTF-8 text: save it as UTF-8"
    else:
        found = tuple(line.strip() for line in text.splitlines() if line.strip())
        if len(content) > _LONGEST_FILE:
            problem = f"its file of levels {shown(name)} is larger than 16 MiB: is it the right one?"
        elif repeated([level(text) for text in found]) is not None:
            problem = f"its file of levels {shown(name)} has a level twice: is it the right one?"
        else:
            return found
    raise InvalidInput(f"{what}: {problem}")
