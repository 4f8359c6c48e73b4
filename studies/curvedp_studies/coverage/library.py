"""The engine "code": the library's own plan on rows, one process per cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from curvedp.mechanisms.inference import InferencePlan
from curvedp.randomness import generator
from curvedp.released.inference import Releases
from curvedp.rows import make_rows
from curvedp_studies.coverage.calibrate import calibration, domain_of, plan_of
from curvedp_studies.coverage.catalogue import population
from curvedp_studies.coverage.cells import Cell, Score, refused, scored
from curvedp_studies.coverage.outcomes import Outcomes
from curvedp_studies.coverage.populations import Population
from curvedp_studies.resume import Progress, complete


@dataclass(frozen=True, eq=False)
class Library:
    """Fits of samples of one population."""

    population: Population
    plan: InferencePlan

    def releases(self, n: int | None, runs: int, seed: int) -> list[Releases]:
        """Of `runs` samples of n records with replacement; None: of all records, each once."""
        return [self._one(n, seed + run) for run in range(runs)]

    def _one(self, n: int | None, seed: int) -> Releases:
        everyone = np.arange(len(self.population.y))
        rows = everyone if n is None else np.random.default_rng(seed).integers(0, len(everyone), n)
        domain = domain_of(self.population, self.plan.problem.domain.adjacency)
        sample = make_rows(self.population.X[rows], self.population.y[rows], domain)
        inference = self.plan.release(sample, generator(seed)).inference
        assert inference is not None
        return inference.releases


def fitted(cell: Cell, data: Path | None, runs: int) -> Score:
    """One cell."""
    drawn_from = population(cell.population, data)
    plan = plan_of(drawn_from, cell.epsilon, cell.adjacency)
    if cell.surely_refused(calibration(plan)):
        return refused(cell, "code", calibration(plan))
    releases = Library(drawn_from, plan).releases(cell.n, runs, cell.seed)
    return scored(cell, "code", drawn_from, Outcomes.of(releases))


def study(
    cells: Sequence[Cell],
    data: Path | None,
    table: Path,
    runs: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[Score]:
    """Every cell on all cores; finished ones are read back from `table`."""
    work = partial(_rows, data=data, runs=runs)
    return complete(table, Score, cells, _points, work, progress=progress, workers=workers)


def _points(cell: Cell) -> list[tuple[str, int, float, str, str]]:
    return [(cell.population, cell.n, cell.epsilon, cell.adjacency, "code")]


def _rows(cell: Cell, data: Path | None, runs: int) -> list[Score]:
    return [fitted(cell, data, runs)]
