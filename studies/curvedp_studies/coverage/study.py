"""The whole study with one engine: the table of cells and its picture."""

from __future__ import annotations

from pathlib import Path

from curvedp.rows.passes import available_threads
from curvedp_studies.coverage.calibration import Calibrations
from curvedp_studies.coverage.catalogue import chosen, population
from curvedp_studies.coverage.cells import ADJACENCIES, EPSILONS, grid
from curvedp_studies.coverage.document import draw
from curvedp_studies.resume import Progress


def study(
    folder: Path,
    data: Path | None,
    engine: str,
    populations: str | None,
    cells: str | None,
    runs: int,
    progress: Progress,
    *,
    workers: int | None = None,
) -> list[Path]:
    """folder/coverage.csv, one row per cell, and the figure of those that state something."""
    folder.mkdir(parents=True, exist_ok=True)
    table, wanted = folder / "coverage.csv", grid(chosen(populations, data), cells)
    if engine == "code":
        from curvedp_studies.coverage import library

        scores = library.study(wanted, data, table, runs, progress, workers)
    else:
        from curvedp_studies.coverage.engines import default_device, simulate

        made = calibrations_for([cell.population for cell in wanted], data)
        scores = simulate(
            wanted,
            data,
            table,
            made,
            runs,
            lambda done, total, score: progress(done, total),
            device=default_device(),
            workers=workers or available_threads(),
        )
    figure = draw(scores, folder) if any(score.counts for score in scores) else []
    return [table, *figure]


def calibrations_for(names: list[str], data: Path | None) -> Calibrations:
    """Made here, for the dimensions of these populations."""
    from curvedp_studies.coverage.calibrate import calibrated

    return calibrated({population(name, data).r for name in dict.fromkeys(names)}, EPSILONS, ADJACENCIES)
