"""Everything of `curvedp others`: three tables of numbers, two pictures, the marked parts of a page."""

from __future__ import annotations

from pathlib import Path

from curvedp_studies.others import card, simulations, tables
from curvedp_studies.others.document import document
from curvedp_studies.resume import Progress


def study(
    folder: Path,
    page: Path | None,
    runs: int,
    progress: Progress | None = None,
    *,
    workers: int | None = None,
) -> list[Path]:
    """folder/card.csv, simulations.csv and tables.csv; the pictures, beside the page where one is given."""
    requests, settings, predictions = card.requests(), simulations.settings(), tables.predictions()
    before, total = 0, len(requests) + len(settings) + len(predictions)

    def at(done: int, _: int) -> None:
        if progress:
            progress(before + done, total)

    files = [folder / f"{name}.csv" for name in ("card", "simulations", "tables")]
    asked = card.asked(requests, files[0], runs, at, workers)
    before += len(requests)
    simulated = simulations.simulated(settings, files[1], runs, at, workers)
    before += len(settings)
    predicted = tables.predicted(predictions, files[2], runs, at, workers)
    return [*files, *document(folder, page, asked, simulated, predicted)]
