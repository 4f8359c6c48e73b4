"""What every part of a model file is checked for: the right keys, each of its kind, every number finite."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import ModelFileError


def plain_json(text: str) -> Any:
    """The values of a JSON text that every reader reads alike: no key twice, no NaN, no half character."""
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
        json.dumps(content, ensure_ascii=False).encode()
    except ModelFileError:
        raise
    except UnicodeEncodeError:
        refuse("it holds text that no page can show: half of a surrogate pair, such as \\ud800")
    except (ValueError, RecursionError):  # also an integer of more digits than Python reads
        refuse("it is not JSON")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        refuse("it says one thing twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    refuse(f"it holds {name}, which is not a finite number")


def check(content: Mapping[str, Any], keys: Mapping[str, tuple[type, ...]], what: str) -> None:
    """Exactly these keys, each of its kind, every number finite."""
    for key, kinds in keys.items():
        if key not in content:
            refuse(f"{what} has no {key!r}")
        if not is_a(content[key], kinds):
            refuse(f"{what} has a {key!r} of the wrong kind")
        check_finite(content[key])
    if content.keys() != keys.keys():
        refuse(f"{what} holds more than a model file does")


def is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def check_finite(value: Any) -> None:
    if isinstance(value, int | float):
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            refuse("a number is too large")


def numbers(values: Any, ndim: int) -> FloatArray:
    """A nested list of plain numbers as an array."""
    rows = values if ndim == 2 else [values]
    if not all(isinstance(row, list) for row in rows) or len({len(row) for row in rows}) > 1:
        refuse("its coefficients are not a table")
    if not all(type(value) in (int, float) for row in rows for value in row):
        refuse("a coefficient is not a number")
    for value in (value for row in rows for value in row):
        check_finite(value)
    return np.array(values, dtype=np.float64)


def unsound(why: str) -> ModelFileError:
    return ModelFileError(
        f"this is not a sound curvedp model file: {why}; check the path, or release it again"
    )


def refuse(why: str) -> NoReturn:
    raise unsound(why)
