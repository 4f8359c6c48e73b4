"""Frozen dataclasses as plain values: written, and read again from what nobody vouches for.

The annotation of a field says how. Every field is written, None as null; a reader asks for all of them, each
of its kind, every number finite.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import ModelFileError

LARGEST = 1e100  # of a released number in a file: products of three stay finite
LONGEST = 1000  # letters of a text
_UNIONS = (Union, UnionType)


@dataclass(frozen=True)
class Within:
    """A number of at least this and at most `LARGEST`."""

    least: float


@dataclass(frozen=True)
class Packed:
    """An array as its shape and the base64 of its little-endian doubles.

    `axes` has a letter for each axis; in one object a letter stands for one size. Of a symmetric matrix the
    lower triangle is kept.
    """

    axes: str
    symmetric: bool = False


@dataclass(frozen=True)
class Listed:
    """An array of `ndim` axes as lists of numbers; with `gaps`, null stands for NaN."""

    ndim: int
    gaps: bool = False


Positive = Annotated[float, Within(1.0 / LARGEST)]


@cache
def written_fields(cls: Any) -> dict[str, Any]:
    """The fields of a dataclass that a file holds, with their kinds."""
    hints = get_type_hints(cls, include_extras=True)
    return {part.name: hints[part.name] for part in fields(cls) if part.metadata.get("written", True)}


def mark_of(kind: Any) -> Any:
    """What an annotation says beside its type, None where it says nothing."""
    if get_origin(kind) is Annotated:
        return get_args(kind)[1]
    return next(filter(None, map(mark_of, get_args(kind))), None) if get_origin(kind) in _UNIONS else None


def write(value: Any, mark: Any = None) -> Any:
    """The plain values that stand for a value, of a field with this mark."""
    if isinstance(value, np.ndarray) and isinstance(mark, Packed):
        kept = value[np.tril_indices(len(value))] if mark.symmetric else value
        doubles = np.ascontiguousarray(kept, dtype="<f8").tobytes()
        return {"shape": list(value.shape), "doubles": base64.b64encode(doubles).decode("ascii")}
    if isinstance(value, np.ndarray):
        listed = value.astype(object)
        if mark.gaps:
            listed[np.isnan(value)] = None
        return listed.tolist()
    if is_dataclass(value):
        kinds: dict[str, Any] = written_fields(value.__class__)  # type: ignore[arg-type]
        return {name: write(getattr(value, name), mark_of(kind)) for name, kind in kinds.items()}
    if isinstance(value, tuple):
        return [write(one) for one in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if isinstance(value, np.generic) else value


def read(kind: Any, entry: Any, what: str) -> Any:
    """The value of this kind that plain values stand for, refused where they stand for none."""
    origin, arguments, wrong = get_origin(kind), get_args(kind), f"{what} of the wrong kind"
    if origin is Annotated:
        inner, mark = arguments
        if isinstance(mark, Packed | Listed):
            return _unpacked(mark, entry, what) if isinstance(mark, Packed) else _listed(mark, entry, what)
        value = read(inner, entry, what)
        if isinstance(mark, tuple) and value not in mark:
            refuse(f"{what} that no file has")
        if isinstance(mark, Within) and not mark.least <= value <= LARGEST:
            refuse(f"{what} that is too small or too large")
        return value
    if origin in _UNIONS:
        if entry is None and NoneType in arguments:
            return None
        several = [part for part in arguments if part is not NoneType]
        own = [part for part in several if part in (int, float, str) and is_a(entry, (part,))]
        return read((own or several)[0], entry, what)
    if origin is Literal:
        return entry if isinstance(entry, str) and entry in arguments else refuse(wrong)
    if origin is tuple:
        any_length = arguments[1:] == (...,)
        if not isinstance(entry, list) or not (any_length or len(entry) == len(arguments)):
            refuse(wrong)
        parts = [arguments[0]] * len(entry) if any_length else arguments
        return tuple(read(part, one, what) for part, one in zip(parts, entry, strict=True))
    if origin is not None:  # a mapping
        pairs = entry.items() if isinstance(entry, dict) else refuse(wrong)
        return {read(str, key, what): read(arguments[1], one, what) for key, one in pairs}
    if is_dataclass(kind):
        return read_object(kind, entry, what)
    if not is_a(entry, (int, float) if kind is float else (kind,)):
        refuse(wrong)
    check_finite(entry)
    if isinstance(entry, str) and len(entry) > LONGEST:
        refuse(f"{what} that is no short text")
    return float(entry) if kind is float else entry


def read_object(kind: Any, entry: Any, what: str) -> Any:
    """The dataclass whose fields an entry holds, exactly these."""
    parts = written_fields(kind)
    check_keys(entry, parts, what)
    values = {name: read(part, entry[name], f"{what} has a {name!r}") for name, part in parts.items()}
    sizes: dict[str, int] = {}
    for name, part in parts.items():
        mark = mark_of(part)
        if isinstance(mark, Packed):
            for letter, size in zip(mark.axes, values[name].shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    refuse(f"{what} has a {name!r} that does not match the rest")
    return kind(**values)


def _unpacked(mark: Packed, entry: Any, what: str) -> FloatArray:
    check_keys(entry, ("shape", "doubles"), what)
    shape = entry["shape"]
    sound = isinstance(shape, list) and all(type(n) is int and 0 <= n <= 10**6 for n in shape)
    if not sound or len(shape) != len(mark.axes) or (mark.symmetric and len(set(shape)) > 1):
        refuse(f"{what} of no sound shape")
    size = shape[0] * (shape[0] + 1) // 2 if mark.symmetric else math.prod(shape)
    try:
        doubles = base64.b64decode(entry["doubles"], validate=True)
    except (TypeError, ValueError, binascii.Error):
        refuse(f"{what} of the wrong kind")
    if len(doubles) != 8 * size:
        refuse(f"{what} that does not match its shape")
    values = np.frombuffer(doubles, dtype="<f8").astype(np.float64)
    if not np.all(np.abs(values) <= LARGEST):
        refuse(f"{what} with a number that is too large")
    if not mark.symmetric:
        return values.reshape(shape)
    lower = np.zeros(shape)
    lower[np.tril_indices(shape[0])] = values
    return lower + np.tril(lower, -1).T


def _listed(mark: Listed, entry: Any, what: str) -> FloatArray:
    rows = entry if mark.ndim == 2 else [entry]
    lists = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    if not lists or len({len(row) for row in rows}) > 1:
        refuse(f"{what} that is not a table")
    for value in (value for row in rows for value in row):
        if not (type(value) in (int, float) or (value is None and mark.gaps)):
            refuse(f"{what} in which something is not a number")
        check_finite(value)
    return np.array(entry, dtype=np.float64)


def check_keys(entry: Any, keys: Any, what: str) -> None:
    """Refuse what is no object with exactly these keys."""
    if not isinstance(entry, dict):
        refuse(f"{what} of the wrong kind")
    for key in keys:
        if key not in entry:
            refuse(f"{what} has no {key!r}")
    if len(entry) > len(keys):
        refuse(f"{what} holds more than a model file does")


def is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def check_finite(value: Any) -> None:
    """Refuse NaN, infinity, and an integer that no double holds."""
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        refuse("a number is too large")


def plain_json(text: str) -> Any:
    """The values of a JSON text that every reader reads alike: no key twice, no NaN, no half character."""
    try:
        content = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
        json.dumps(content, ensure_ascii=False).encode()
    except ModelFileError:
        raise
    except UnicodeEncodeError:
        refuse("it holds text that no page can show: half of a surrogate pair, such as \\ud800")
    except (ValueError, RecursionError):  # also an integer of more digits than Python reads
        refuse("it is not JSON")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        refuse("it says one thing twice")
    return found


def _no_constant(name: str) -> NoReturn:
    refuse(f"it holds {name}, which is not a finite number")


def unsound(why: str) -> ModelFileError:
    return ModelFileError(
        f"this is not a sound curvedp model file: {why}; check the path, or release it again"
    )


def refuse(why: str) -> NoReturn:
    raise unsound(why)
