"""The JSON Schema of model files, for those who read them without curvedp, made from a release's fields."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib.resources import files
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from curvedp.forms import LARGEST, LONGEST, Listed, Packed, written_fields
from curvedp.release import catalogue
from curvedp.release.modelfile import FORMAT, FORMAT_VERSION, Release, Stated, kept_parameters, known_classes

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}
_WORDS = (
    f"Format {FORMAT_VERSION}. It holds what was released and what is public, nothing else. A reader must "
    "also check what a schema cannot say: that shapes agree with the declared columns, and that numbers are "
    "finite."
)


def model_schema() -> dict[str, Any]:
    """Make the JSON Schema (draft 2020-12) of the model files that this version writes.

    Returns
    -------
    schema : dict
        For any validator of JSON Schema. `curvedp.load` checks more: that shapes agree with the declared
        columns, that a matrix is positive.

    Examples
    --------
    >>> from curvedp.release.json_schema import model_schema
    >>> model_schema()["properties"]["format_version"]
    {'const': 2}
    """
    template = files("curvedp").joinpath("templates/declarations.schema.json").read_text(encoding="utf-8")
    declarations = json.loads(template)
    own = {
        "estimator": {"enum": [entry.class_name for entry in catalogue.ESTIMATORS.values()]},
        "settings": _settings(),
        "guarantee": form(Stated),
        "schema": declarations["schema"],
        "target": declarations["target"],
    }
    whole = form(Release, own)
    envelope = {
        "format": {"const": FORMAT},
        "format_version": {"const": FORMAT_VERSION},
        "curvedp_version": {"description": "The version that made the release.", "type": "string"},
        "features": {
            "description": "The encoded columns, in the order of the coefficients.",
            "type": "array",
            "items": {"type": "string"},
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:curvedp:model:{FORMAT_VERSION}",
        "title": "A model released by curvedp",
        **whole,
        "description": _WORDS,
        "required": [*envelope, *whole["required"]],
        "properties": {**envelope, **whole["properties"]},
        "$defs": {**declarations["$defs"], "setting": _setting()},
    }


def form(kind: Any, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What `curvedp.forms` writes for a value of this kind; `own` has the forms of some fields."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind], **({"maxLength": LONGEST} if kind is str else {})}
    if origin is Annotated:
        return _marked(form(arguments[0]) if arguments[0] in _PLAIN else {}, arguments[1])
    if origin in (Union, UnionType):
        parts = [form(part) for part in arguments]
        return {**parts[0], "type": [part["type"] for part in parts]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[1:] == (...,):
        return {"type": "array", "items": form(arguments[0])}
    if origin is tuple:
        parts = [form(part) for part in arguments]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
    if isinstance(kind, type) and is_dataclass(kind):
        words = described(kind)
        told = {name: (own or {}).get(name) or form(part) for name, part in written_fields(kind).items()}
        for name in told.keys() & words.keys():
            told[name] = {**told[name], "description": words[name]}
        return {"description": words[""], **_object(told)}
    return {"type": "object", "additionalProperties": form(arguments[1])}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    needed = [*properties]
    return {"type": "object", "additionalProperties": False, "required": needed, "properties": properties}


def _marked(plain: dict[str, Any], mark: Any) -> dict[str, Any]:
    if isinstance(mark, tuple):
        return {"enum": list(mark)}
    if isinstance(mark, Listed):
        rows: dict[str, Any] = {"type": ["number", "null"], "minimum": 0} if mark.gaps else {"type": "number"}
        for _ in range(mark.ndim):
            rows = {"type": "array", "items": rows}
        return rows
    if isinstance(mark, Packed):
        sizes = {"type": "integer", "minimum": 0}
        shape = {"type": "array", "items": sizes, "minItems": len(mark.axes), "maxItems": len(mark.axes)}
        which = "of its lower triangle" if mark.symmetric else "of its entries"
        words = f"The base64 {which}, little-endian doubles."
        text = {"description": words, "type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"}
        return _object({"shape": shape, "doubles": text})
    return {**plain, "minimum": mark.least, "maximum": LARGEST}


def _settings() -> dict[str, Any]:
    """Every parameter of every estimator; none has to be there."""
    properties: dict[str, Any] = {}
    for entry in catalogue.ESTIMATORS.values():
        words = described(entry.load())
        for name, kind in kept_parameters(entry.load()).items():
            parts = get_args(kind) or (kind,)
            plain = all(part in _PLAIN for part in parts)
            own = {"type": [_PLAIN[part] for part in parts]} if plain else {"$ref": "#/$defs/setting"}
            properties.setdefault(name, {"description": words.get(name, ""), **own})
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _setting() -> dict[str, Any]:
    """A parameter that is no plain value, or may be none."""
    inner = {"anyOf": [{"$ref": "#/$defs/setting"}, {"type": "boolean"}]}
    several, named = {"type": "array", "items": inner}, {"type": "object", "additionalProperties": inner}
    tagged: dict[str, Any] = {
        "number": {"enum": ["inf", "-inf", "nan"]},
        "tuple": several,
        "array": several,
        "mapping": named,
        "schema": {"type": "object"},
        "not_kept": {"type": "string"},
    }
    known = {"enum": sorted(known_classes())}
    objects = [_object({tag: part}) for tag, part in tagged.items()]
    objects.append(_object({"object": known, "fields": named}))
    words = "A value, or an object that says of what type it is."
    return {"description": words, "anyOf": [{"type": ["number", "string", "null"]}, several, *objects]}


def described(cls: type) -> dict[str, str]:
    """What the docstring of a class says of each parameter or attribute; by "" what it says of the class."""
    text = inspect.cleandoc(cls.__doc__ or "")
    found = {"": " ".join(text.partition("\n\n")[0].split())}
    for names, words in re.findall(r"^(\w+(?:, \w+)*) : .*\n((?:    .*\n?)+)", text, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    return found
