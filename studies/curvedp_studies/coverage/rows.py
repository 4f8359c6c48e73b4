"""Tables of frozen dataclasses as CSV files that grow; only the standard library."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

AnyRow = TypeVar("AnyRow")
_PARSERS = {"int": int, "float": float, "str": str}


def read_rows(path: Path, kind: type[AnyRow]) -> list[AnyRow]:
    """The rows of a table; a line cut off by an interruption is dropped."""
    if not path.exists():
        return []
    parsers = [_PARSERS[str(field.type)] for field in fields(_dataclass(kind))]
    with path.open(newline="", encoding="utf-8") as file:
        lines = [line for line in list(csv.reader(file))[1:] if len(line) == len(parsers)]
    return [kind(*(parse(text) for parse, text in zip(parsers, line, strict=True))) for line in lines]


def append_rows(path: Path, rows: Sequence[Any]) -> None:
    """Add rows of one kind; a new file gets a header."""
    fresh = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if fresh and rows:
            writer.writerow(field.name for field in fields(rows[0]))
        writer.writerows(astuple(row) for row in rows)


def _dataclass(kind: type[Any]) -> Any:
    return kind
