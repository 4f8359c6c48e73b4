"""What is publicly known of columns, from the documents that people have.

A dictionary is a Frictionless Table Schema (or a data package with one), a codebook CSV, a JSON map from
names to types, or another schema file; its content tells which. It becomes entries as in a [[column]], filled
in as far as it goes. It is public: whoever passes it says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from curvedp.errors import InvalidInput, refuse_special
from curvedp.schema.codebooks import codebook_entries
from curvedp.schema.columns import shown
from curvedp.schema.compact import expanded
from curvedp.schema.files import parse_toml
from curvedp.schema.frictionless import fields_in, frictionless_entries
from curvedp.schema.known import Known, check
from curvedp.schema.types import kind_of_type


@dataclass(frozen=True)
class Dictionary:
    """What is known of each column: `entries` as in a [[column]], `hints` beside what they leave open."""

    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)


def read_dictionary(source: str | os.PathLike[str] | Mapping[str, Any]) -> Dictionary:
    """The dictionary in a file, or in what such a JSON file holds."""
    found = _in_json(source) if isinstance(source, Mapping) else _sourced(_in_file(source), Path(source).name)
    for known in found:
        check(known)
    names = [known.name for known in found]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InvalidInput(f"the dictionary has column {shown(twice)} twice: remove one")
    return Dictionary(
        {known.name: known.entry for known in found},
        {known.name: known.hint for known in found if known.hint},
    )


def _sourced(found: list[Known], name: str) -> list[Known]:
    """The same, where bounds and levels say no source with this one."""
    return [
        replace(known, entry={**known.entry, "source": name})
        if known.entry.get("kind") != "ignored"
        and {"bounds", "levels"} & known.entry.keys()
        and not {"source", "origin"} & known.entry.keys()
        else known
        for known in found
    ]


def _in_file(path: str | os.PathLike[str]) -> list[Known]:
    text = _text(path)
    if Path(path).suffix == ".toml":
        return _in_schema(parse_toml(text))
    if text.lstrip().startswith(("{", "[")):
        return _in_json(_json(text, path))
    return codebook_entries(text, path)


def _in_json(content: Any) -> list[Known]:
    fields = fields_in(content)
    if fields is not None:
        return frictionless_entries(fields)
    if isinstance(content, Mapping) and content and all(isinstance(text, str) for text in content.values()):
        return [Known(str(name), {"kind": kind_of_type(text)}) for name, text in content.items()]
    raise InvalidInput(
        'this JSON is no dictionary: pass a Table Schema with "fields", or a map from names to types as in '
        '{"age": "Int64"}'
    )


def _in_schema(content: Mapping[str, Any]) -> list[Known]:
    """The columns of another schema file, those that are filled in."""
    entries = expanded(content).get("column")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidInput("this schema file has no columns: pass another dictionary")
    return [Known.of(entry) for entry in entries if isinstance(entry.get("name"), str)]


def _text(path: str | os.PathLike[str]) -> str:
    refuse_special(path)
    reason: str
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = f"cannot read the dictionary {path} ({error.strerror}): check the path"
    except UnicodeDecodeError:
        reason = f"the dictionary {path} is not UTF-8 text: save it as UTF-8"
    raise InvalidInput(reason)


def _json(text: str, path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    raise InvalidInput(f"the dictionary {path} begins as JSON and is none: correct it")
