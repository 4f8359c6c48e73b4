"""The public numbers of plans, as a JSON file: what the simulator needs of the library's calibration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from curvedp.errors import InvalidInput
from curvedp.mechanisms.rule import Rule
from curvedp.neighbours import Adjacency

FILE = "calibrations.json"


@dataclass(frozen=True)
class Key:
    """What a calibration depends on: the table (d, δ), ε, the adjacency, three numbers of the rule."""

    table: str
    epsilon: float
    adjacency: Adjacency
    curvature_share: float
    share_before: float
    freedom: float

    @classmethod
    def of(cls, table: str, epsilon: float, adjacency: Adjacency, rule: Rule) -> Key:
        before = round(rule.share_before, 12)
        return cls(table, epsilon, adjacency, rule.curvature_share, before, rule.freedom)


@dataclass(frozen=True)
class Calibration:
    """Noise of the curvature, in units of the squared bound of lengths, and two Gaussian shifts."""

    sigma2: float
    m: float
    gaussian: float  # of all Gaussian releases together
    mu: float  # that (ε, δ) allows, curvature included


@dataclass(frozen=True)
class Calibrations:
    found: dict[Key, Calibration]

    def of(self, table: str, epsilon: float, adjacency: Adjacency, rule: Rule) -> Calibration:
        key = Key.of(table, epsilon, adjacency, rule)
        if key not in self.found:
            raise InvalidInput(
                f"no calibration for {table} at ε = {epsilon:g}, {adjacency}, with these shares: "
                "export again with the same variants"
            )
        return self.found[key]

    def epsilons(self, table: str, adjacency: Adjacency) -> list[float]:
        """At which a table was calibrated."""
        there = (key.epsilon for key in self.found if (key.table, key.adjacency) == (table, adjacency))
        return sorted(set(there))

    def save(self, path: Path) -> None:
        rows: Iterable[dict[str, object]] = ({**asdict(key), **asdict(c)} for key, c in self.found.items())
        path.write_text(json.dumps(list(rows), indent=0), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Calibrations:
        names = Key.__dataclass_fields__
        found = {}
        for row in json.loads(path.read_text(encoding="utf-8")):
            key = Key(**{name: row.pop(name) for name in names})
            found[key] = Calibration(**row)
        return cls(found)
