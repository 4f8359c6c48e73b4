"""One column as a dictionary knows it: an entry as in a [[column]], as far as it is known."""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.schema.cells import number
from curvedp.schema.column_entries import column_of
from curvedp.schema.columns import level_text, shown
from curvedp.schema.dates import ISO
from curvedp.schema.files import toml_value

_NEEDED = {"numeric": ("bounds",), "date": ("bounds",), "categorical": ("levels", "levels_file")}


@dataclass(frozen=True)
class Known:
    """A column's name, what is known of it, and in words what is known of it by half."""

    name: str
    entry: Mapping[str, Any]
    hint: str = ""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Known:
        """A [[column]], what is not filled in left out."""
        filled = {key: value for key, value in entry.items() if key != "name" and value not in ("", [], None)}
        return cls(entry["name"], filled)

    @property
    def is_complete(self) -> bool:
        """Whether it has all that a schema needs, right or wrong."""
        kind = self.entry.get("kind", "")
        needed = _NEEDED.get(kind) if isinstance(kind, str) else None
        return bool(kind) and (needed is None or any(key in self.entry for key in needed))


def check(known: Known) -> None:
    """Refuse what no schema could hold."""
    if known.is_complete and "levels_file" not in known.entry:
        try:
            column_of({"name": known.name, **known.entry}, 1)
        except InvalidInput as error:
            raise InvalidInput(f"the dictionary: {error}") from None


def bounded(
    name: str, kind: str, low: Any, high: Any, levels: Sequence[Any], more: Mapping[str, Any]
) -> Known:
    """A column of that kind ("": by what is there) with ends and levels as a dictionary writes them.

    One end alone becomes a hint.
    """
    ends = [None if value in (None, "") else value for value in (low, high)]
    kind = kind or _implied(ends, levels, more)
    if kind == "categorical":
        return Known(name, {"kind": kind, **({"levels": [*map(_level, levels)]} if levels else {}), **more})
    if kind not in ("numeric", "date"):
        return Known(name, {"kind": kind, **more})
    pattern = str(more.get("format", ISO))
    first, last = (
        None if value is None else _day(name, value, pattern) if kind == "date" else _number(name, value)
        for value in ends
    )
    if first is not None and last is not None:
        return Known(name, {"kind": kind, "bounds": [first, last], **more})
    by_half = first is not None or last is not None
    return Known(
        name, {"kind": kind, **more}, f"[{_shown(first, 'low')}, {_shown(last, 'high')}]" if by_half else ""
    )


def _implied(ends: Sequence[Any], levels: Sequence[Any], more: Mapping[str, Any]) -> str:
    """The kind that follows from the rest; a number such as 20201231 is no date unless a format says so."""
    if levels:
        return "categorical"
    days = all(_iso_day(end) is not None and math.isnan(number(end)) for end in ends)
    if days or "%" in str(more.get("format", "")):
        return "date"
    return "numeric" if None not in ends else ""


def _level(value: Any) -> str:
    return level_text(value) if isinstance(value, str | int | float) else ""


def _shown(end: float | datetime.date | None, word: str) -> str:
    return word if end is None else toml_value(end)


def _number(name: str, value: Any) -> float:
    found = number(value)
    if not math.isfinite(found):
        raise InvalidInput(f"the dictionary: column {shown(name)}: an end of its bounds is no number")
    return found


def _day(name: str, value: Any, pattern: str) -> datetime.date:
    """As everywhere, or as the cells are written."""
    found = _iso_day(value)
    if found is None and pattern != ISO:
        with contextlib.suppress(ValueError):
            found = datetime.datetime.strptime(str(value), pattern).date()
    if found is None:
        raise InvalidInput(
            f"the dictionary: column {shown(name)}: write its first and last day as 2020-12-31"
        )
    return found


def _iso_day(value: Any) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(str(value)[:10])
    except ValueError:
        return None
