"""Many processes at once, and `kill -9` at any instant: never overspent, nothing released uncharged."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvedp.budget import Expense
from curvedp.errors import BudgetExceeded
from curvedp.ledger import Ledger

FORK = multiprocessing.get_context("fork")  # a ledger holds no connection, so a fork may use it at once


MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path):
    """Races and kills are the same in memory, where a sync costs nothing; on a busy disk each takes 30 ms."""
    root = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=root) as name:
        yield Path(name)


def _charge_many(path: Path, times: int, release: Expense, accepted: Any) -> None:
    ledger = Ledger(path)
    count = 0
    for _ in range(times):
        try:
            ledger.charge(release)
        except BudgetExceeded:
            continue
        count += 1
    accepted.put(count)


def test_eight_processes_spend_the_budget_exactly(folder):
    ledger = Ledger.create(folder / "budget.db", epsilon=1.0, delta=1e-6)
    release = Expense(1.0 / 1000, 1e-6 / 1000, "replace", "qop", "(P-6)")
    accepted = FORK.Queue()
    workers = [
        FORK.Process(target=_charge_many, args=(ledger.path, 500, release, accepted)) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    counts = [accepted.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert sum(counts) == 1000
    state = Ledger(ledger.path).state()
    assert state.charges == 1000
    assert (state.spent_epsilon, state.remaining_epsilon) == (1.0, 0.0)
    assert (state.spent_delta, state.remaining_delta) == (1e-6, 0.0)


RELEASE = Expense(1e-4, 0.0, "replace", "qop", "(P-6)")


def _charge_then_release(ledger: Ledger, released: Path, ready: Any) -> None:
    """What a fit does: charge, and only then let something out (one byte for each release)."""
    out = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ready.set()
    while True:
        ledger.charge(RELEASE)
        os.write(out, b".")


def test_two_hundred_kills_never_leave_a_release_uncharged(folder):
    ledger = Ledger.create(folder / "budget.db", epsilon=1e6, delta=0.0)
    released = folder / "released"
    released.touch()
    start = time.perf_counter()
    for _ in range(20):
        ledger.charge(RELEASE)
    one_charge = (time.perf_counter() - start) / 20
    pauses = np.random.default_rng(7)
    for kills in range(4, 204, 4):
        ready = [FORK.Event() for _ in range(4)]
        workers = [
            FORK.Process(target=_charge_then_release, args=(ledger, released, event)) for event in ready
        ]
        for worker in workers:
            worker.start()
        for worker, event in zip(workers, ready, strict=True):
            assert event.wait(60)
            time.sleep(pauses.uniform(0.0, 4 * one_charge))
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
            assert worker.exitcode == -signal.SIGKILL
        count = released.stat().st_size
        charges = Ledger(ledger.path).state().charges - 20  # opening checks the file's integrity too
        assert count <= charges <= count + kills
    assert count > 100  # the kills fell among real releases
    assert ledger.spent().epsilon == round(1e-4 * (charges + 20), 10)
