"""The public numbers of plans, as a small JSON file: what the simulator needs of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from curvedp.errors import InvalidInput
from curvedp.neighbours import Adjacency, Neighbours


@dataclass(frozen=True)
class Calibration:
    """Of one plan: the curvature's noise, the shift of every Gaussian release, what rounding adds."""

    r: int
    epsilon: float
    adjacency: Adjacency
    sigma2: float  # of the curvature, in units of the squared bound of record lengths
    m: float
    mu: float  # the shift that (ε, δ) allows
    far: float  # n̂ + far of its deviations is practically never below n
    gram_slack: float  # per record and unit of a metric's squared condition number
    shifts: Mapping[str, float]  # of the walk
    looks: Mapping[str, float]  # of what inference adds

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.adjacency)

    @property
    def count_scale(self) -> float:
        return 0.0 if self.neighbours.count_is_public else 1.0 / self.shifts["count"]

    def kappa(self, n: float) -> float:
        return n * self.mu / self.r


@dataclass(frozen=True)
class LossConstants:
    """β, and the root mean square slope at θ = 0 of targets that are uniform within their bounds."""

    beta: float
    slope: float


@dataclass(frozen=True)
class Constants:
    """What all plans share."""

    delta: float
    rule: Mapping[str, float]  # the fields of the walk's Rule
    edges: int  # of the tail's histogram
    second_bound: float
    bread_bounds: tuple[float, float]
    bread_growth: float
    losses: Mapping[str, LossConstants]

    def whole(self, name: str) -> int:
        """A constant of the rule that is a number of things."""
        return int(self.rule[name])


@dataclass(frozen=True)
class Calibrations:
    constants: Constants
    plans: tuple[Calibration, ...]

    def of(self, r: int, epsilon: float, adjacency: Adjacency) -> Calibration:
        for plan in self.plans:
            if (plan.r, plan.epsilon, plan.adjacency) == (r, epsilon, adjacency):
                return plan
        raise InvalidInput(
            f"no calibration for {r} coordinates, ε = {epsilon:g}, {adjacency}: calibrate it first"
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Calibrations:
        stored = json.loads(path.read_text(encoding="utf-8"))
        constants = stored["constants"]
        constants["losses"] = {name: LossConstants(**entry) for name, entry in constants["losses"].items()}
        constants["bread_bounds"] = tuple(constants["bread_bounds"])
        return cls(Constants(**constants), tuple(Calibration(**entry) for entry in stored["plans"]))
