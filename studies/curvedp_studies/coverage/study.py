"""The whole study: the table of cells and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from curvedp_studies.coverage.catalogue import chosen, population
from curvedp_studies.coverage.cells import Cell, Score, grid, scored
from curvedp_studies.coverage.document import draw
from curvedp_studies.coverage.library import chunks, plan_of, releases
from curvedp_studies.coverage.outcomes import Outcomes
from curvedp_studies.resume import Progress, complete_in_parts


@dataclass(frozen=True)
class Chunk:
    """Some runs of a cell."""

    cell: Cell
    data: Path | None
    runs: range


def study(
    folder: Path,
    data: Path | None,
    populations: str | None,
    cells: str | None,
    runs: int,
    progress: Progress | None = None,
    *,
    workers: int | None = None,
) -> list[Path]:
    """folder/coverage.csv, one row per cell, and the figure of those that state something."""
    table = folder / "coverage.csv"
    scores = measured(grid(chosen(populations, data), cells), data, table, runs, progress, workers)
    figure = draw(scores, folder) if any(score.counts for score in scores) else []
    return [table, *figure]


def measured(
    cells: Sequence[Cell],
    data: Path | None,
    table: Path,
    runs: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[Score]:
    """Every cell on all cores; finished ones are read back from `table`."""

    def score(cell: Cell, parts: Sequence[Outcomes]) -> list[Score]:
        return [scored(cell, population(cell.population, data), Outcomes.joined(parts))]

    return complete_in_parts(
        table,
        Score,
        cells,
        lambda cell: [cell.point],
        lambda cell: [Chunk(cell, data, part) for part in chunks(runs)],
        fitted,
        score,
        progress=progress,
        workers=workers,
    )


def fitted(chunk: Chunk) -> Outcomes:
    """Some runs of a cell."""
    cell = chunk.cell
    drawn_from = population(cell.population, chunk.data)
    plan = plan_of(drawn_from, cell.epsilon, cell.adjacency)
    runs = releases(drawn_from, plan, cell.n, (cell.seed + run for run in chunk.runs))
    return Outcomes.of(runs, drawn_from)
