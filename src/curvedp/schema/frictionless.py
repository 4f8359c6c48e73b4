"""Frictionless Table Schemas: fields with types and constraints, alone or in a data package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.cells import number
from curvedp.schema.known import Known, bounded
from curvedp.schema.types import kind_of_type

Json = Mapping[str, Any]


def fields_in(content: Any) -> Json | None:
    """The Table Schema in a document: the document, its "schema", or that of its only resource."""
    if not isinstance(content, Mapping):
        return None
    if isinstance(content.get("fields"), list):
        return content
    resources = content.get("resources")
    if isinstance(resources, list):
        found = [schema for schema in map(fields_in, resources) if schema is not None]
        if len(found) != 1:
            raise InvalidInput("the data package has no table or several: pass the Table Schema of one")
        return found[0]
    return fields_in(content["schema"]) if isinstance(content.get("schema"), Mapping) else None


def frictionless_entries(schema: Json) -> list[Known]:
    """The columns that a Table Schema describes."""
    keys = schema.get("primaryKey", [])
    keys = [keys] if isinstance(keys, str) else keys
    return [_known(entry, schema, isinstance(keys, list) and keys) for entry in schema["fields"]]


def _known(entry: Any, schema: Json, keys: Any) -> Known:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise InvalidInput('a field of the Table Schema has no name: write "name": "..."')
    name, constraints = entry["name"], entry.get("constraints")
    if keys and name in keys:
        return Known(name, {"kind": "ignored"})
    limits: Json = constraints if isinstance(constraints, Mapping) else {}
    levels = _values(limits.get("enum") or entry.get("categories"))
    kind = "numeric" if entry.get("type") == "year" else kind_of_type(str(entry.get("type", "")))
    if levels and kind in ("", "numeric"):
        kind = "categorical"
    own = entry.get("missingValues", schema.get("missingValues"))
    return bounded(name, kind, limits.get("minimum"), limits.get("maximum"), levels, _more(entry, kind, own))


def _more(entry: Json, kind: str, missing: Any) -> dict[str, Any]:
    """How cells are written, where it is not as everywhere."""
    if kind == "numeric":
        codes = [value for value in map(number, _values(missing)) if value == value]
        found = {
            "decimal": entry.get("decimalChar") if entry.get("decimalChar") != "." else None,
            "thousands": entry.get("groupChar"),
            "missing_codes": codes,
        }
        return {key: value for key, value in found.items() if value}
    if kind == "boolean":
        words = [next(iter(_values(entry.get(key))), None) for key in ("falseValues", "trueValues")]
        return {"words": words} if None not in words else {}
    pattern = entry.get("format")
    return {"format": pattern} if kind == "date" and isinstance(pattern, str) and "%" in pattern else {}


def _values(values: Any) -> Sequence[Any]:
    """The values of a list, each alone or as {"value": ..., "label": ...}."""
    if not isinstance(values, list):
        return []
    return [value.get("value") if isinstance(value, Mapping) else value for value in values]
