"""One pass over a million records: data in memory to a released model, against the bare Gram matrix."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.tables import Table, best_time, milliseconds
from curvedp.data.rows import make_rows
from curvedp.data.rows.blocked import available_threads
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.objective import QOP
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.constraints import Box
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared
from curvedp.problems.regularizers import L1
from curvedp.release.door import execute

Array = NDArray[np.float64]

N, D, CHUNK = 1_000_000, 100, 4096


def bare_gram(X: Array, threads: int) -> Array:
    """Σ over chunks of XᵀX: one BLAS thread each, `threads` chunks at a time; nothing clipped, no target."""
    total = np.zeros((X.shape[1], X.shape[1]))
    chunks = [X[i : i + CHUNK] for i in range(0, len(X), CHUNK)]
    with ThreadPoolExecutor(threads) as pool:
        for part in pool.map(lambda chunk: chunk.T @ chunk, chunks):
            total += part
    return total


def peak_extra_memory(function: Callable[[], object]) -> float:
    """MB of resident memory at the highest, over what the process held before."""
    process = psutil.Process()
    gc.collect()
    before, peak, stop = process.memory_info().rss, 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.is_set():
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    function()
    stop.set()
    watcher.join()
    return max(peak - before, 0) / 2**20


def tables() -> list[Table]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    X *= 1.0 / np.sqrt(D)  # about half of the records are clipped
    y = np.clip(X @ rng.standard_normal(D), -1, 1)
    problem = Problem(Squared(), L1(1.0), Box(2.0), Domain(x_norm=1.0, y_bound=1.0))
    plan = make_plan(QOP(), problem, D, Budget(1.0, 1e-6))

    def fit() -> object:
        return execute(plan, make_rows(X, y, problem.domain), random_state=0)

    threads = available_threads()
    table = Table(
        f"Squared loss, n = {N}, d = {D}: data in memory to released model",
        f"{threads} threads over chunks of rows, one BLAS thread each. The fit clips every record, forms XᵀX "
        "and Xᵀy, draws, solves, certifies and releases; calibration is excluded. Asked: 1.5.",
        ("", "ms", "times the bare Gram matrix", "in processor time", "peak extra memory, MB"),
    )
    jobs = {"bare Gram matrix": lambda: bare_gram(X, threads), "private fit": fit}
    wall = {name: best_time(job, 1.0, clock=time.perf_counter) for name, job in jobs.items()}
    busy = {name: best_time(job, 1.0) for name, job in jobs.items()}
    unit, busy_unit = wall["bare Gram matrix"], busy["bare Gram matrix"]
    for name, job in jobs.items():
        ratios = f"{wall[name] / unit:.2f}", f"{busy[name] / busy_unit:.2f}"
        table.add(name, milliseconds(wall[name]), *ratios, f"{peak_extra_memory(job):.0f}")
    return [table]
