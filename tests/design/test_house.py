"""Modules stay small enough to be read at once."""

from __future__ import annotations

from pathlib import Path
from statistics import median

SOURCE = Path(__file__).parents[2] / "src" / "curvedp"
LENGTHS = {
    path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines())
    for path in SOURCE.rglob("*.py")
}


def test_no_module_is_longer_than_450_lines() -> None:
    assert not {name: lines for name, lines in LENGTHS.items() if lines > 450}


def test_most_modules_are_short() -> None:
    assert len(LENGTHS) > 100
    assert median(LENGTHS.values()) <= 150
