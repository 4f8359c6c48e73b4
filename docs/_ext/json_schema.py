"""`{json-schema} MODULE:FUNCTION` shows the properties of a JSON Schema as definitions, nested ones below."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from commands import plain
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def kind(schema: dict[str, Any] | bool, whole: dict[str, Any], within: tuple[str, ...] = ()) -> str:
    """The type of a value in a few words; a definition within itself, by its name."""
    if isinstance(schema, dict) and "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in within:
            return f"{name}s"
        within = (*within, name)
    schema = resolved(schema, whole)
    if "const" in schema:
        return f"always `{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(kind(part, whole, within) for part in schema[key]))
    types = schema.get("type", "any")
    words = " or ".join(types) if isinstance(types, list) else str(types)
    if words == "array" and "items" in schema:
        return f"array of {kind(schema['items'], whole, within)}"
    return words


def resolved(schema: dict[str, Any] | bool, whole: dict[str, Any]) -> dict[str, Any]:
    """The schema with references followed; `true` allows anything."""
    if isinstance(schema, bool):
        return {}
    while "$ref" in schema:
        found: Any = whole
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = {**found, **{k: v for k, v in schema.items() if k != "$ref"}}
    return schema


def properties(schema: dict[str, Any] | bool, whole: dict[str, Any], path: str = "") -> Iterator[str]:
    """Markdown definitions of every property, depth first."""
    schema = resolved(schema, whole)
    required = set(schema.get("required", []))
    for name, part in schema.get("properties", {}).items():
        part = resolved(part, whole)
        full = f"{path}{name}"
        optional = "" if name in required else ", optional"
        words = plain(part.get("description") or part.get("title") or "")
        yield from (f"`{full}`", f": {kind(part, whole)}{optional}{'. ' if words else ''}{words}", "")
        yield from properties(part, whole, f"{full}.")
        if "items" in part:
            yield from properties(part["items"], whole, f"{full}[].")
        if "additionalProperties" in part:
            yield from properties(part["additionalProperties"], whole, f"{full}.*.")


class JsonSchema(SphinxDirective):
    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        whole = getattr(import_module(module), name)()
        box = nodes.container(classes=["json-schema"])
        lines = [plain(whole.get("description", "")), "", *properties(whole, whole)]
        self.state.nested_parse(StringList(lines, self.arguments[0]), 0, box)
        return [box]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("json-schema", JsonSchema)
    return {"parallel_read_safe": True}
