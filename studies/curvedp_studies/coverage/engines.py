"""The study with either engine. Both go on where an earlier run stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from curvedp_studies.coverage.batched import Batched, Mapper, in_turn
from curvedp_studies.coverage.calibration import Calibrations
from curvedp_studies.coverage.catalogue import population
from curvedp_studies.coverage.cells import Cell, Score, refused, scored
from curvedp_studies.coverage.outcomes import Outcomes
from curvedp_studies.coverage.rows import append_rows, read_rows
from curvedp_studies.workers import held_back, worker_pool

Tell = Callable[[int, int, Score], None]
_CHUNK = 8  # runs whose post-processing is one piece of work


def simulate(
    cells: Sequence[Cell],
    data: Path | None,
    table: Path,
    calibrations: Calibrations,
    runs: int,
    tell: Tell,
    *,
    device: str = "cpu",
    workers: int = 1,
    seconds: float = float("inf"),
) -> list[Score]:
    """The batched engine, cell by cell; ends early, between two cells, once `seconds` are over."""
    started = time.monotonic()
    done = {score.point: score for score in read_rows(table, Score)}
    with pooled(workers) as mapper:
        for index, cell in enumerate(cells):
            point = (cell.population, cell.n, cell.epsilon, cell.adjacency, "batched")
            if point in done or time.monotonic() - started > seconds:
                continue
            score = simulated(cell, data, calibrations, runs, device, mapper)
            append_rows(table, [score])
            done[point] = score
            tell(index + 1, len(cells), score)
    return list(done.values())


def simulated(
    cell: Cell,
    data: Path | None,
    calibrations: Calibrations,
    runs: int,
    device: str,
    mapper: Mapper = in_turn,
) -> Score:
    """One cell."""
    drawn_from = population(cell.population, data)
    plan = calibrations.of(drawn_from.r, cell.epsilon, cell.adjacency)
    if cell.surely_refused(plan):
        return refused(cell, "batched", plan)
    engine = Batched(drawn_from, calibrations.constants, device)
    return scored(cell, "batched", drawn_from, outcomes(engine, plan, cell.n, runs, cell.seed, mapper))


def outcomes(
    engine: Batched, plan: Any, n: int | None, runs: int, seed: int, mapper: Mapper = in_turn
) -> Outcomes:
    """Of `runs` runs, as many at once as the device holds."""
    parts = []
    for batch, size in enumerate(engine.batches(n or len(engine.population.y), runs)):
        released = engine.releases(plan, n, size, seed + batch, mapper)
        chunks = [released[i : i + _CHUNK] for i in range(0, size, _CHUNK)]
        parts += mapper(Outcomes.of, chunks)
    return Outcomes.joined(parts)


def default_device() -> str:
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def pooled(workers: int) -> Iterator[Mapper]:
    """A map over `workers` processes, each with one BLAS thread; over none where there is one."""
    if workers <= 1:
        yield in_turn
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # read by the workers, which start afresh
    with worker_pool(workers, context=get_context("spawn")) as pool:

        def mapper(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            with held_back():
                results = pool.map(work, items, chunksize=max(1, len(items) // (4 * workers)))
            return list(results)

        yield mapper
