"""A codebook: a CSV with a line for each column of another table (name, kind, low, high, levels)."""

from __future__ import annotations

import csv
import os
import re
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.cells import number
from curvedp.schema.columns import shown
from curvedp.schema.known import Known, bounded
from curvedp.schema.types import kind_of_type

_HEADINGS = {
    "name": "name column variable field feature",
    "kind": "kind type dtype",
    "low": "low min minimum lower",
    "high": "high max maximum upper",
    "levels": "levels values enum categories codes",
    "format": "format",
    "decimal": "decimal",
    "thousands": "thousands",
    "missing_codes": "missing_codes missing_values",
    "missing": "missing",
}
_KEY_OF = {word: key for key, words in _HEADINGS.items() for word in words.split()}
_IGNORED = ("ignored", "ignore", "id", "identifier")


def codebook_entries(text: str, path: str | os.PathLike[str]) -> list[Known]:
    """The columns that a codebook describes; its cells may be separated by commas, semicolons or tabs."""
    for delimiter in ",;\t":
        rows = list(csv.reader(text.splitlines(), delimiter=delimiter))
        rows = [row for row in rows if any(map(str.strip, row))]
        keys = [_KEY_OF.get(cell.strip().lower().replace(" ", "_")) for cell in rows[0]] if rows else []
        if "name" in keys and len(keys) > 1:
            return [_known(dict(zip(keys, map(str.strip, row), strict=False)), path) for row in rows[1:]]
    raise InvalidInput(
        f"{path} is no dictionary: pass a codebook CSV whose first line is name, kind, low, high, levels, a "
        "Frictionless Table Schema, a JSON map from names to types, or a schema file"
    )


def _known(row: dict[str | None, str], path: str | os.PathLike[str]) -> Known:
    name = row.get("name", "")
    if not name:
        raise InvalidInput(f"the codebook {path} has a line without a name: fill it in")
    levels = [part.strip() for part in re.split(r"[|;]", row.get("levels", "")) if part.strip()]
    more: dict[str, Any] = {
        key: row[key] for key in ("format", "decimal", "thousands", "missing") if row.get(key)
    }
    codes = [number(part) for part in re.split(r"[|;]", row.get("missing_codes", "")) if part.strip()]
    if codes:
        more["missing_codes"] = codes
    return bounded(name, _kind(row.get("kind", ""), name), row.get("low"), row.get("high"), levels, more)


def _kind(text: str, name: str) -> str:
    if not text:
        return ""
    if text.lower() in _IGNORED:
        return "ignored"
    kind = kind_of_type(text)
    if not kind:
        raise InvalidInput(
            f"the codebook: column {shown(name)}: unknown kind {shown(text)}: write numeric, categorical, "
            "boolean, date or ignored"
        )
    return kind
