"""Every mechanism of the catalogue with every accounting, both kinds of neighbours and several dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

from curvedp import catalogue
from curvedp.audit.releases import Release, audit_release, release_cells
from curvedp.audit.report import AuditReport
from curvedp.audit.runner import audit
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.errors import CalibrationFailed, NotCovered
from curvedp.losses import Huber, Logistic, Loss, Squared, SquaredHinge
from curvedp.losses.margin import bounded_poisson
from curvedp.mechanisms.base import Mechanism
from curvedp.neighbours import Adjacency
from curvedp.problem import Problem

FEATURES = (1, 2, 5, 20)
# Fewer where many columns are out of reach of batches (recentered), or where fits are made one at a time and
# another number of columns makes nothing extreme.
FEWER: Mapping[str, tuple[int, ...]] = {
    "recentered": (1, 2, 5, 10),
    "gradient": (1, 2, 5),
    "output": (1, 2, 5),
    "amp": (1, 2),
    "adassp": (1, 2),
    "functional": (1, 2),
    "dp_sgd": (1, 2),
    "exponential": (1, 2),
    "pure_lop": (1, 2),
    "input": (1, 2),
}
ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)
PAPER_EPSILON = 0.9  # the paper's theorem needs ε < 1

# The losses that press on different parts of a proof; a mechanism that is not here is tried with every loss.
PRESSING: Mapping[str, tuple[Loss, ...]] = {
    "recentered": (Squared(), Logistic(), bounded_poisson()),
    "statistics": (Squared(),),
    "gradient": (Squared(), Logistic()),
    "qop": (Squared(), Logistic(), SquaredHinge(), Huber(0.5)),
    "lop": (Logistic(), Huber(0.5)),
    "lop_clip": (Squared(),),
    "output": (Logistic(),),
    "amp": (Logistic(),),
    "adassp": (Squared(),),
    "functional": (Squared(),),
    "dp_sgd": (Logistic(),),
    "exponential": (Squared(),),
    "pure_lop": (Logistic(),),
    "input": (Squared(),),
}
OPTIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "statistics": ({"noise": "gaussian"}, {"noise": "wishart"}),
    "gradient": ({"rounds": 20},),
    "lop_clip": ({"clip": 0.25},),
    "dp_sgd": ({"rounds": 20, "rate": 0.1},),
}


@dataclass(frozen=True, eq=False)
class Cell:
    """One mechanism on one problem under one budget; no mechanism covers every cell."""

    mechanism: Mechanism
    budget: Budget
    problem: Problem
    features: int

    @property
    def name(self) -> str:
        """What is attacked, in words that no other cell of a grid has."""
        options = (getattr(self.mechanism, name, None) for name in ("accounting", "noise"))
        parts = [self.mechanism.name, *(str(value) for value in options if value is not None)]
        return " ".join([*parts, self.problem.loss.name, self.problem.domain.adjacency, f"d={self.features}"])

    @property
    def file_name(self) -> str:
        """`name` as a file may be called."""
        return self.name.replace(" ", "-").replace("=", "")


@dataclass(frozen=True, eq=False)
class Entrant:
    """A mechanism, the budget it is attacked at, and the loss it is attacked with."""

    mechanism: Mechanism
    budget: Budget
    loss: Loss


def entrants(budget: Budget) -> list[Entrant]:
    """Every mechanism and accounting of the catalogue; accountings after the first with one loss each."""
    found = []
    for name, entry in catalogue.MECHANISMS.items():
        every = PRESSING.get(name) or tuple(loss.load() for loss in catalogue.LOSSES.values())
        accountings: tuple[str | None, ...] = entry.accountings or (None,)
        for options, (turn, accounting) in product(OPTIONS.get(name, ({},)), enumerate(accountings)):
            made = catalogue.mechanism(name, accounting=accounting, **options)
            spent = budget
            if name == "qop" and accounting == "paper":
                spent = Budget(min(budget.epsilon, PAPER_EPSILON), budget.delta)
            found += [Entrant(made, spent, loss) for loss in (every if turn == 0 else every[:1])]
    return found


def cells(budget: Budget, features: Sequence[int] | None = None) -> Iterator[Cell]:
    """The whole grid, combinations that no theorem covers included; by default with `FEATURES` or `FEWER`."""
    every = (
        sorted({*FEATURES, *(d for some in FEWER.values() for d in some)}) if features is None else features
    )
    for d, adjacency, entrant in product(every, ADJACENCIES, entrants(budget)):
        if features is None and d not in FEWER.get(entrant.mechanism.name, FEATURES):
            continue
        problem = Problem(entrant.loss, domain=Domain(adjacency=adjacency))
        yield Cell(entrant.mechanism, entrant.budget, problem, d)


def everything(budget: Budget) -> list[Cell | Release]:
    """`cells`, and the releases that are no fits."""
    return [*cells(budget), *release_cells(budget)]


def audit_grid(
    grid: Iterable[Cell | Release], folder: Path | None = None, **options: Any
) -> Iterator[tuple[Cell | Release, AuditReport]]:
    """Audit each cell, its state in a file of `folder`; cells that no theorem covers are passed over."""
    for cell in grid:
        if isinstance(cell, Release):
            yield cell, audit_release(cell, **options)
            continue
        kept = None if folder is None else folder / f"{cell.file_name}.npz"
        try:
            yield cell, audit_cell(cell, resume_path=kept, **options)
        except (NotCovered, CalibrationFailed):
            continue


def audit_cell(cell: Cell, **options: Any) -> AuditReport:
    """`audit` of one cell."""
    return audit(cell.mechanism, budget=cell.budget, features=cell.features, problem=cell.problem, **options)
