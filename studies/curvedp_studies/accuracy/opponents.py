"""Scores of other methods, read from files that are passed in."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from curvedp_studies.peers_data import UNIT

PUBLISHED = ("ihm", "adassp")
DESCENT = "descent"


@dataclass(frozen=True)
class Opponent:
    """A score in the units of `results.Cell.score`."""

    table: str
    epsilon: float
    method: str
    score: float


def descents(path: Path) -> Iterator[Opponent]:
    """Tuned descents rescored with fresh noise: columns dataset, epsilon, full_fresh."""
    for row in _rows(path):
        yield Opponent(row["dataset"], float(row["epsilon"]), DESCENT, float(row["full_fresh"]))


def published(path: Path) -> Iterator[Opponent]:
    """Test errors of `unit` tables (dataset, epsilon, method, test_mse) as 1 − MSE/MSE of 0."""
    rows = _rows(path)
    zero = {row["dataset"]: float(row["test_mse"]) for row in rows if row["method"] == "zero"}
    for row in rows:
        if row["method"] in PUBLISHED:
            name, score = row["dataset"], 1.0 - float(row["test_mse"]) / zero[row["dataset"]]
            yield Opponent(f"{UNIT}/{name}", float(row["epsilon"]), row["method"], score)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
