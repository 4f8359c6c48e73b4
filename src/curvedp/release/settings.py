"""The parameters of an estimator in a model file: plain values, and objects of curvedp by their fields."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from curvedp.data.schema import Schema
from curvedp.errors import InvalidInput
from curvedp.forms import check_finite, check_keys, is_a, refuse
from curvedp.problems import constraints
from curvedp.release import catalogue

ELSEWHERE = frozenset({"epsilon", "delta"})  # what the guarantee says
NEVER = frozenset({"ledger", "random_state"})  # the operator's, and what would give the noise away
_ALSO = ("curvedp.mechanisms.rule:Rule", "curvedp.data.mapping:Coding")  # what mechanisms are made of
_PLAIN = (bool, int, float, str, type(None))


class NotHeld(InvalidInput, AttributeError):
    """A parameter that the model file does not hold is used."""


@dataclass(frozen=True)
class NotKept:
    """Stands for a parameter of a loaded model that no file can hold, such as a mechanism of one's own."""

    type: str

    def __getattr__(self, name: str) -> Any:
        kind = vars(self).get("type", "parameter")  # none yet, while it is copied
        raise NotHeld(f"this model file does not hold its {kind}: set the parameter again")


def known_classes() -> dict[str, str]:
    """The classes whose objects a file may hold: by name, where they are."""
    own = [
        name for name, value in vars(constraints).items() if isinstance(value, type) and is_dataclass(value)
    ]
    paths = [*(f"curvedp.problems.constraints:{name}" for name in own), *_ALSO]
    paths += [entry.path for entry in catalogue.MECHANISMS.values()]
    return {path.rpartition(":")[2]: path for path in paths}


def _class(name: str) -> Any:
    """The class of that name, None where a file holds no such object."""
    path = known_classes().get(name)
    return None if path is None else catalogue.load(path)


def kept_parameters(estimator: type) -> dict[str, Any]:
    """The parameters that a file keeps beside its schema and its guarantee, with their annotations."""
    hints, names = get_type_hints(estimator), estimator._get_param_names()  # type: ignore[attr-defined]
    return {name: hints[name] for name in names if name not in ELSEWHERE | NEVER}


def of(model: Any, schema: Schema) -> dict[str, Any]:
    """The parameters of an estimator; its schema where that is another than the release's."""
    said = {*ELSEWHERE, *NEVER, *(["schema"] if model.schema == schema else [])}
    return {name: value for name, value in model.get_params(deep=False).items() if name not in said}


def write(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values for a file."""
    return {name: _written(value) for name, value in settings.items()}


def _written(value: Any) -> Any:
    try:
        return _plain(value)
    except Exception:  # no release is lost for a parameter that nobody thought of
        return {"not_kept": value.type if isinstance(value, NotKept) else type(value).__name__}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(one) for one in value]}
    if hasattr(value, "tolist"):
        return {"array": _plain(value.tolist())}
    if isinstance(value, Schema):
        return {"schema": value.to_dict()}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _plain(one) for key, one in value.items()}}
    name = type(value).__name__
    if _class(name) is not type(value):
        raise InvalidInput(f"no file holds a {name}")
    return {"object": name, "fields": {part: _plain(getattr(value, part)) for part in _given(type(value))}}


def _given(cls: Any) -> list[str]:
    """The fields that make an object."""
    known = inspect.signature(cls).parameters
    return [part.name for part in fields(cls) if part.init and part.name in known]


def read(estimator: type, content: Any) -> dict[str, Any]:
    """The inverse of `write`, for content that nobody vouches for; of parameters that the estimator has."""
    if not isinstance(content, dict):
        refuse("it has 'settings' of the wrong kind")
    known = kept_parameters(estimator)
    found = {name: _valued(entry) for name, entry in content.items()}
    if not all(name in known and _fits(known[name], value) for name, value in found.items()):
        refuse("it has settings that no estimator has")
    return found


def _fits(kind: Any, value: Any) -> bool:
    """Whether a parameter can have this value; what is no plain one is checked by the fit that uses it."""
    parts = get_args(kind) or (kind,)
    if isinstance(value, NotKept) or not all(part in _PLAIN for part in parts):
        return not isinstance(value, bool)
    return is_a(value, (*parts, int) if float in parts else parts)


def _valued(entry: Any) -> Any:
    if isinstance(entry, list):
        return [_valued(one) for one in entry]
    if not isinstance(entry, dict):
        check_finite(entry)
        return entry
    match list(entry.items()):
        case [("number", "inf" | "-inf" | "nan" as text)]:
            return float(text)
        case [("tuple", list(parts))]:
            return tuple(_valued(parts))
        case [("array", list(parts))]:
            return np.array(_valued(parts))
        case [("mapping", dict(parts))]:
            return {key: _valued(one) for key, one in parts.items()}
        case [("schema", dict(content))]:
            return Schema.from_dict(content)
        case [("not_kept", str(name))]:
            return NotKept(name[:100])
    check_keys(entry, ("object", "fields"), "a setting")
    cls, parts = _class(str(entry["object"])), entry["fields"]
    if cls is None:
        refuse("it has a setting that no file holds")
    check_keys(parts, _given(cls), "a setting")
    return cls(**{key: _valued(one) for key, one in parts.items()})
