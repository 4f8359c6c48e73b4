"""Schema files: declarations as TOML, written by a person, read without trust."""

from __future__ import annotations

import datetime
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curvedp.errors import InvalidInput, refuse_special
from curvedp.schema.column_entries import column_of
from curvedp.schema.columns import is_text, shown
from curvedp.schema.compact import expanded, key_text
from curvedp.schema.formats import FileFormat
from curvedp.schema.formulas.derived import derivations
from curvedp.schema.statements import Stated

RECORD, ADJACENCY = "one row is one record", "replace"
ROLES = ("weight", "offset", "exposure")
OPTIONAL = ("target", "unit", *ROLES)
_TOP_KEYS = (
    "record",
    "adjacency",
    "target",
    "unit",
    *ROLES,
    "formula",
    "terms",
    "file",
    "release",
    "column",
    "derived",
)


def read_toml(path: str | os.PathLike[str], what: str = "the schema") -> str:
    """The text of a schema file, or of another that a person wrote."""
    refuse_special(path)
    reason: str
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
    raise InvalidInput(f"the schema is not valid TOML ({reason[:200]}): correct that line")


def levels_files(path: Path) -> list[Path]:
    """The files of levels that a schema file names, each once; none of them is opened."""
    content = parse_toml(read_toml(path))
    lines, blocks = content.get("columns"), content.get("column")
    entries = [
        *(lines.values() if isinstance(lines, Mapping) else ()),
        *(blocks if isinstance(blocks, list) else ()),
    ]
    named = [entry.get("levels_file") for entry in entries if isinstance(entry, Mapping)]
    paths = [path.parent / name for name in named if isinstance(name, str) and name and "\0" not in name]
    return list({os.path.realpath(each): each for each in paths}.values())


def declarations(content: Any, folder: Path | None = None) -> dict[str, Any]:
    """The arguments of a `Schema` in content that a person, or an enemy, may have written.

    Without a `folder`, no other file is read.
    """
    if not isinstance(content, Mapping):
        raise InvalidInput("the schema has no columns: write one [[column]] for each")
    content = expanded(content)
    _known_keys(content, _TOP_KEYS, "the schema")
    entries = content.get("column")
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise InvalidInput("the schema has no columns: write one [[column]] for each")
    record, adjacency = content.get("record", RECORD), content.get("adjacency", ADJACENCY)
    target = content.get("target")
    roles = {role: content.get(role) for role in ROLES}
    unit = content.get("unit")
    texts = {"record": record, "adjacency": adjacency, "target": target, "unit": unit, **roles}
    for name, value in texts.items():
        if not (isinstance(value, str) and is_text(value)) and not (name in OPTIONAL and value is None):
            raise InvalidInput(f"{name} must be text: write it in quotes")
    columns = tuple(column_of(entry, i, folder) for i, entry in enumerate(entries, start=1))
    file = FileFormat.from_dict(content.get("file", {}))
    release = Stated.from_dict(content.get("release", {}))
    return {
        "columns": columns,
        "target": target,
        "adjacency": adjacency,
        "record": record,
        "file": file,
        "release": release,
        "unit": unit,
        **roles,
        **derivations(content),
    }


def to_toml(content: Mapping[str, Any]) -> str:
    """The file that says the same as `Schema.to_dict`."""
    tables: list[tuple[str, Mapping[str, Any]]] = [
        ("", {key: value for key, value in content.items() if not _is_table(value)})
    ]
    for key, value in content.items():
        if isinstance(value, Mapping):
            tables.append((f"[{key}]\n", value))
        elif _is_table(value):
            tables += [(f"[[{key}]]\n", entry) for entry in value]
    return "\n".join(
        head + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())
        for head, table in tables
    )


def _is_table(value: Any) -> bool:
    """Whether it is a table of TOML, or a list of them."""
    return isinstance(value, Mapping) or (
        isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)
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
    return key_text(name) or toml_value(name)
