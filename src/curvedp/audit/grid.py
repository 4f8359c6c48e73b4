"""Every mechanism of the library with every accounting, both adjacencies and several dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from curvedp.audit.report import AuditReport
from curvedp.audit.runner import audit
from curvedp.domain import Adjacency, Domain
from curvedp.errors import NotCovered
from curvedp.losses import Huber, Logistic, Loss, Squared, SquaredHinge
from curvedp.mechanisms.adassp import AdaSSP
from curvedp.mechanisms.base import Mechanism
from curvedp.mechanisms.exponential import Exponential
from curvedp.mechanisms.functional import Functional
from curvedp.mechanisms.gradient import DPSGD, NoisyGradient
from curvedp.mechanisms.input import InputPerturbation
from curvedp.mechanisms.lop import AMP, LOP, LOPClip, PureLOP
from curvedp.mechanisms.output import OutputPerturbation
from curvedp.mechanisms.qop import QOP
from curvedp.mechanisms.recentered import Recentered, Rule
from curvedp.mechanisms.statistics import Statistics
from curvedp.problem import Problem

FEATURES = (1, 2, 5, 20)
ADJACENCIES: tuple[Adjacency, ...] = ("replace", "add_remove")


@dataclass(frozen=True, eq=False)
class Cell:
    """One mechanism on one problem; not every adjacency is covered by every mechanism."""

    mechanism: Mechanism
    problem: Problem
    features: int

    @property
    def name(self) -> str:
        parts = [type(self.mechanism).__name__, *_options(self.mechanism), self.problem.loss.name]
        return " ".join([*parts, self.problem.domain.adjacency, f"d={self.features}"])


def _options(mechanism: Mechanism) -> list[str]:
    shown = (getattr(mechanism, name, None) for name in ("accounting", "noise"))
    return [str(value) for value in shown if value is not None]


def mechanisms(epsilon: float, delta: float) -> list[tuple[Mechanism, Loss]]:
    """Every mechanism and accounting, each with losses that press on a different part of its proof."""
    sampled = DPSGD(epsilon, delta, rounds=20, rate=0.1)
    brief = Rule(rounds=16, first_rounds=4)  # the same proof as 128 rounds, an eighth of the time
    return [
        (QOP(epsilon, delta, accounting="directional"), Squared()),
        (QOP(epsilon, delta, accounting="directional"), Logistic()),
        (QOP(epsilon, delta, accounting="directional"), SquaredHinge()),
        (QOP(epsilon, delta, accounting="directional"), Huber(0.5)),
        (QOP(epsilon, delta, accounting="spectral"), Squared()),
        (QOP(min(epsilon, 0.9), delta, accounting="paper"), Squared()),
        (LOP(epsilon, delta, accounting="directional"), Logistic()),
        (LOP(epsilon, delta, accounting="directional"), Huber(0.5)),
        (LOP(epsilon, delta, accounting="paper"), Logistic()),
        (LOPClip(epsilon, delta, clip=0.25), Squared()),
        (AMP(epsilon, delta), Logistic()),
        (PureLOP(epsilon), Logistic()),
        (Statistics(epsilon, delta, noise="gaussian"), Squared()),
        (Statistics(epsilon, delta, noise="wishart"), Squared()),
        (Recentered(epsilon, delta, rule=brief), Squared()),
        (Recentered(epsilon, delta, rule=brief), Logistic()),
        (OutputPerturbation(epsilon, delta), Logistic()),
        (NoisyGradient(epsilon, delta, rounds=20), Squared()),
        (NoisyGradient(epsilon, delta, rounds=20), Logistic()),
        (sampled, Logistic()),
        (AdaSSP(epsilon, delta), Squared()),
        (Functional(epsilon), Squared()),
        (Exponential(epsilon), Squared()),
        (InputPerturbation(epsilon, delta), Squared()),
    ]


def cells(epsilon: float = 1.0, delta: float = 1e-3, features: tuple[int, ...] = FEATURES) -> Iterator[Cell]:
    """The whole grid, combinations that no theorem covers included."""
    for d, adjacency, (mechanism, loss) in product(features, ADJACENCIES, mechanisms(epsilon, delta)):
        problem = Problem(loss, domain=Domain(adjacency=adjacency))
        yield Cell(mechanism, problem, d)


def audit_grid(grid: Iterator[Cell], **options: Any) -> Iterator[tuple[Cell, AuditReport]]:
    """Audit each cell; cells that no theorem covers are passed over."""
    for cell in grid:
        try:
            yield cell, audit(cell.mechanism, features=cell.features, problem=cell.problem, **options)
        except NotCovered:
            continue
