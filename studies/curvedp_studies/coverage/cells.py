"""The cells of the study, and what is kept of each: one row of a CSV file."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency
from curvedp_studies.coverage.outcomes import Outcomes
from curvedp_studies.coverage.populations import Population

SIZES = (1000, 5000, 20_000)
EPSILONS = (0.3, 1.0, 3.0)
ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace")
NORMAL = 1.959963984540054


@dataclass(frozen=True)
class Cell:
    population: str
    n: int
    epsilon: float
    adjacency: Adjacency

    @property
    def seed(self) -> int:
        return zlib.crc32(repr(self).encode())

    @property
    def point(self) -> tuple[str, int, float, str]:
        return self.population, self.n, self.epsilon, self.adjacency


@dataclass(frozen=True)
class Score:
    """Of one cell. Coverage among stated intervals; widths over those of a fit without privacy."""

    population: str
    n: int
    epsilon: float
    adjacency: str
    runs: int
    kappa: float
    coverage: float  # mean over runs and coefficients
    worst: float  # least of any coefficient that is stated in at least an eighth of the runs
    width: float  # median
    refused: float  # share of (run, coefficient)
    bias: float  # largest |mean of (estimate − truth)/se| of a coefficient
    deviation: float  # root mean square of (estimate − truth)/se
    noise: float  # median share of privacy noise in se

    @property
    def point(self) -> tuple[str, int, float, str]:
        return self.population, self.n, self.epsilon, self.adjacency

    @property
    def counts(self) -> bool:
        """Whether the requirements apply: not everything is refused."""
        return self.refused < 1.0


def grid(populations: Sequence[str], cells: str | None = None) -> list[Cell]:
    """All sizes, ε and adjacencies; or `cells`, such as "5000:1,20000:3:replace"."""
    if cells is None:
        wanted = [(n, epsilon, adjacency) for adjacency in ADJACENCIES for n in SIZES for epsilon in EPSILONS]
    else:
        wanted = [_parsed(cell) for cell in cells.split(",")]
    return [Cell(population, *rest) for population in populations for rest in wanted]


def _parsed(text: str) -> tuple[int, float, Adjacency]:
    n, epsilon, adjacency = (*text.split(":"), "add_remove")[:3]
    if adjacency not in ADJACENCIES:
        raise InvalidInput(f"a cell is N:EPSILON or N:EPSILON:ADJACENCY, got {text!r}")
    return int(n), float(epsilon), adjacency


def scored(cell: Cell, population: Population, outcomes: Outcomes) -> Score:
    error = outcomes.estimate - outcomes.truth
    told, runs = outcomes.resolved, len(outcomes)
    plain = NORMAL * population.deviation / np.sqrt(cell.n)
    kappa = float(np.mean(outcomes.kappa))
    if not told.any():
        return _blank(cell, runs, kappa)
    inside = (np.abs(error) <= outcomes.half) & told
    enough = told.sum(axis=0) >= max(20, runs // 8)
    each = inside.sum(axis=0)[enough] / told.sum(axis=0)[enough]
    z = np.where(told, error / np.where(told, outcomes.se, 1.0), np.nan)
    means = np.nanmean(z[:, enough], axis=0)
    return Score(
        **vars(cell),
        runs=runs,
        kappa=kappa,
        coverage=float(inside.sum() / told.sum()),
        worst=float(each.min()) if enough.any() else np.nan,
        width=float(np.nanmedian(outcomes.half / plain)),
        refused=float(1.0 - told.mean()),
        bias=float(np.abs(means).max()) if enough.any() else np.nan,
        deviation=float(np.sqrt(np.nanmean(z**2))),
        noise=float(np.median(outcomes.noise[told] / outcomes.se[told])),
    )


def _blank(cell: Cell, runs: int, kappa: float) -> Score:
    nothing: dict[str, Any] = dict.fromkeys((field.name for field in fields(Score)), np.nan)
    known = {**vars(cell), "runs": runs, "kappa": kappa, "refused": 1.0}
    return Score(**(nothing | known))
