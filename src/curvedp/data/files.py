"""Schema files: declarations as TOML, written by a person, read without trust."""

from __future__ import annotations

import datetime
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvedp.arrays import ROWS_AT_MOST
from curvedp.data import columns
from curvedp.data.cells import level
from curvedp.data.columns import DeclaredTable, is_list, is_text, shown
from curvedp.data.dates import Boolean, Column, Date
from curvedp.data.delimited import FileFormat
from curvedp.data.formulas.derived import derivations
from curvedp.errors import InvalidInput, refuse_special

# One [[column]] of a schema file as a column: every key belongs to its kind; what is missing is named.

KINDS = (
    'write kind = "numeric" (with bounds), "categorical" (with levels), "date" (with bounds), "boolean" or '
    '"ignored"'
)
_KEYS = {
    "numeric": ("bounds", "source", "decimal", "thousands", "missing_codes", "missing"),
    "categorical": ("levels", "levels_file", "source", "missing", "fold_case", "other", "reference", "event"),
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
    _known_keys(entry, _ALL_KEYS, what)
    if (kind := entry.get("kind")) is None or kind == "":
        raise InvalidInput(f"{what}: the kind is not filled in: {KINDS}")
    if not isinstance(kind, str) or kind not in _KEYS:
        said = f"unknown kind {shown(kind)}" if isinstance(kind, str) else "the kind must be text"
        raise InvalidInput(f"{what}: {said}: {KINDS}")
    read = ("name", "kind", "bounds", "levels") if kind == "ignored" else ("name", "kind")
    told = {  # a list that a template left open is empty
        key: value
        for key, value in entry.items()
        if key not in read and not (is_list(value) and len(value) == 0)
    }
    other = next((key for key in told if key not in _KEYS[kind]), None)
    if other in ("bounds", "levels"):
        raise InvalidInput(f"{what}: a {kind} column has no {other}: remove them")
    if other is not None:
        owners = " or ".join(owner for owner, keys in _KEYS.items() if other in keys)
        raise InvalidInput(f"{what}: {other} belongs to a column that is {owners}, not {kind}: remove it")
    if kind in ("numeric", "date"):
        bounds = told.pop("bounds", None)
        example = "[low, high]" if kind == "numeric" else '["2020-01-01", "2024-12-31"]'
        if bounds is None:
            raise InvalidInput(f"{what}: the bounds are not filled in: write bounds = {example}")
        if not (is_list(bounds) and len(bounds) == 2):
            things = "numbers" if kind == "numeric" else "dates"
            raise InvalidInput(f"{what}: bounds must be two {things}: write bounds = {example}")
        made = columns.Numeric if kind == "numeric" else Date
        return made(name, bounds[0], bounds[1], **told)
    if kind == "categorical":
        file = told.pop("levels_file", None)
        levels = _levels(told.pop("levels", None), file, what, folder)
        return columns.Categorical(name, levels, **{"source": Path(file or "").name, **told})
    return Boolean(name, **told) if kind == "boolean" else columns.Ignored(name)


def _levels(levels: Any, file: Any, what: str, folder: Path | None) -> Any:
    """The levels, or those in a text file at or below the folder, one in each line; empty lines are none.
    Nothing of its content is in a message: it may be another file than it should be."""
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
    home, path = Path(os.path.realpath(folder)), Path(os.path.realpath(folder / file))
    if not path.is_relative_to(home) or (path.exists() and not path.is_file()):
        raise InvalidInput(
            f"{what}: its file of levels must be a plain file beside the schema, or in a folder below it: "
            "copy it there"
        )
    try:
        with open(path, "rb") as opened:
            content = opened.read(_LONGEST_FILE + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        problem = f"its file of levels cannot be read ({error.strerror}): check the path {shown(file)}"
    except UnicodeDecodeError:
        problem = f"its file of levels {shown(file)} is not UTF-8 text: save it as UTF-8"
    else:
        found = tuple(line.strip() for line in text.splitlines() if line.strip())
        if len(content) > _LONGEST_FILE:
            problem = f"its file of levels {shown(file)} is larger than 16 MiB: is it the right one?"
        elif columns.repeated([level(text) for text in found]) is not None:
            problem = f"its file of levels {shown(file)} has a level twice: is it the right one?"
        else:
            return found
    raise InvalidInput(f"{what}: {problem}")


# The compact form of a schema file: a table [columns] with one line for each column.
#
#     age = [0, 120]                      a number between bounds
#     visit = [2020-01-01, 2024-12-31]    a date between bounds
#     sex = ["f", "m"]                    levels, in quotes
#     smoker = "boolean"                  a kind alone
#     note = {kind = "ignored"}           the keys of a [[column]]; the kind follows from bounds or levels
#
# Each line says what one [[column]] says in the long form, and is read as that.

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


def lines_and_blocks(content: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Any]]:
    """The lines of [columns] and every [[column]] of a file; nothing where it has something else there."""
    lines, blocks = content.get("columns"), content.get("column")
    return lines if isinstance(lines, Mapping) else {}, blocks if isinstance(blocks, list) else []


def entry_of(name: str, value: Any) -> dict[str, Any]:
    """The [[column]] that a line of [columns] stands for."""
    if isinstance(value, str):
        return {"name": name, "kind": value}
    if isinstance(value, list) and not value:
        return {"name": name, "kind": ""}
    if isinstance(value, list):
        levels = all(isinstance(cell, str) for cell in value)
        keys: Mapping[str, Any] = {"levels" if levels else "bounds": value}
        if _kind_in(keys):
            return {"name": name, "kind": _kind_in(keys), **keys}
    if isinstance(value, Mapping) and "name" not in value:
        return {"name": name, "kind": _kind_in(value), **value}
    raise InvalidInput(
        f'column {shown(name)}: write [low, high] for a number, ["a", "b"] with levels in quotes, the kind '
        "in quotes, or a table as in {bounds = [0, 1]}"
    )


def compact_value(entry: Mapping[str, Any]) -> Any:
    """The shortest value whose `entry_of` is this [[column]], the name left out."""
    kind, keys = entry["kind"], {key: value for key, value in entry.items() if key not in ("name", "kind")}
    with suppress(ValueError, TypeError):  # as dates of TOML, where they are texts of dates
        if kind == "date" and isinstance(keys.get("bounds"), list):
            keys["bounds"] = [datetime.date.fromisoformat(end) for end in keys["bounds"]]
    if not keys:
        return kind
    if _kind_in(keys) != kind:
        return {"kind": kind, **keys}
    value = next(iter(keys.values()))
    return keys if len(keys) > 1 or isinstance(value, Mapping) else value


def _kind_in(keys: Mapping[str, Any]) -> str:
    """The kind that bounds or levels imply; "" where neither does."""
    if "levels" in keys or "levels_file" in keys:
        return "categorical"
    if isinstance(bounds := keys.get("bounds"), list) and len(bounds) == 2:
        if all(map(columns.is_number, bounds)):
            return "numeric"
        if all(isinstance(end, datetime.date) for end in bounds):
            return "date"
    return ""


# What the operator states of a release: which table, what for, who may see it. Nothing of it is checked.


@dataclass(frozen=True)
class Stated(DeclaredTable):
    """The [release] of a schema file, in the operator's words; model files and reports repeat them.

    Parameters
    ----------
    table : str, optional
        What the table is called: "employment register, 2024".
    purpose : str, optional
        What the release is for.
    audience : str, optional
        Who may see what: "the model: everybody; the table and the ledger: the register's staff".
    rows : int, optional
        A number of records that may be known, such as 12000. It is never counted: where it is not public,
        declare a round one that does not depend on the data.

    Examples
    --------
    >>> from curvedp import Numeric, Schema
    >>> from curvedp.data.files import Stated
    >>> stated = Stated("employment register, 2024", purpose="wage report")
    >>> Schema([Numeric("age", 0, 120)], release=stated).release.purpose
    'wage report'
    """

    table: str = ""
    purpose: str = ""
    audience: str = ""
    rows: int | None = None

    heading = "release"

    def __post_init__(self) -> None:
        for name in ("table", "purpose", "audience"):
            columns.check_line(getattr(self, name), f"{name} of the release")
        if self.rows is not None and not (type(self.rows) is int and 0 < self.rows <= ROWS_AT_MOST):
            raise InvalidInput("rows of the release must be a positive whole number: write rows = 12000")


NOTHING = Stated()
RECORD, ADJACENCY = "one row is one record", "replace"
ROLES = ("weight", "offset", "exposure")
TEXTS = {"record": RECORD, "adjacency": ADJACENCY, "rows_per_person": "all"}  # and what they are by default
OPTIONAL = ("target", "unit", "absorb", *ROLES)
_TOP_KEYS = (*TEXTS, *OPTIONAL, "formula", "terms", "file", "release", "column", "derived")


def read_toml(path: str | os.PathLike[str], what: str = "the schema") -> str:
    """The text of a schema file, or of another that a person wrote."""
    refuse_special(path)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = f"cannot read {what} {path} ({error.strerror}): check the path"
    except UnicodeDecodeError:
        reason = f"{what} {path} is not UTF-8 text: save it as UTF-8"
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
    raise InvalidInput(f'the schema is not valid TOML ({reason[:200]}): correct it, quote names as "ä b"')


def levels_files(path: Path) -> list[Path]:
    """The files of levels that a schema file names, each once; none of them is opened."""
    lines, blocks = lines_and_blocks(parse_toml(read_toml(path)))
    entries = [entry for entry in (*lines.values(), *blocks) if isinstance(entry, Mapping)]
    named = [entry.get("levels_file") for entry in entries]
    paths = [path.parent / name for name in named if isinstance(name, str) and name and "\0" not in name]
    return list({os.path.realpath(each): each for each in paths}.values())


def declarations(content: Any, folder: Path | None = None) -> dict[str, Any]:
    """The arguments of a `Schema` in what anybody may have written; no `folder`: no other file is read."""
    if not isinstance(content, Mapping):
        raise InvalidInput("the schema has no columns: write one [[column]] for each")
    content = expanded(content)
    _known_keys(content, _TOP_KEYS, "the schema")
    entries = content.get("column")
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise InvalidInput("the schema has no columns: write one [[column]] for each")
    texts = {name: content.get(name, TEXTS.get(name)) for name in (*TEXTS, *OPTIONAL)}
    for name, value in texts.items():
        if not is_text(value) and not (name in OPTIONAL and value is None):
            raise InvalidInput(f"{name} must be text: write it in quotes")
    return {
        **texts,
        "columns": tuple(column_of(entry, i, folder) for i, entry in enumerate(entries, start=1)),
        "file": FileFormat.from_dict(content.get("file", {})),
        "release": Stated.from_dict(content.get("release", {})),
        **derivations(content),
    }


def to_toml(content: Mapping[str, Any]) -> str:
    """The file that says the same as `Schema.to_dict`."""
    top: dict[str, Any] = {}
    tables: list[tuple[str, Mapping[str, Any]]] = [("", top)]
    for key, value in content.items():
        if isinstance(value, Mapping):
            tables.append((f"[{key}]\n", value))
        elif isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
            tables += [(f"[[{key}]]\n", entry) for entry in value]
        else:
            top[key] = value
    return "\n".join(
        head + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())
        for head, table in tables
    )


def _known_keys(content: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in content:
        if key not in known:
            said = shown(key) if isinstance(key, str) else "that is no text"
            raise InvalidInput(f"{where} has an unknown key {said}: use {', '.join(known)}")


def toml_value(value: Any) -> str:
    """A TOML value. Its basic strings are those of JSON, but for DEL, which must be escaped."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_key(key)} = {toml_value(v)}' for key, v in value.items())}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))


def toml_key(name: str) -> str:
    """A TOML key, in quotes where it needs them."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


# Where declared bounds and levels come from, as a schema keeps it: one line of text for each column.

NOT_STATED = "declared by the operator, source not stated"
BY_KIND = "by its kind"
SEEDED = "from a seeded run, NOT private"
_BOUGHT = ("bought: ", "private, ε")  # the second as schemas of version 0.2 have it


def bought(cost: str, day: str, charge: str) -> str:
    """The source of bounds that a private release of that cost gave; `charge` is its label in the ledger."""
    return f"bought: {cost}, {day}, {f'charge {charge}' if charge else 'not charged to a ledger'}"


def is_bought(source: str) -> bool:
    """Whether they were bought, by a release whose cost comes on top."""
    return source.startswith(_BOUGHT)
