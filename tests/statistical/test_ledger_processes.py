"""Many processes at once, and `kill -9` at any instant: never overspent, nothing released uncharged."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from curvedp.budget import Expense
from curvedp.errors import BudgetExceeded
from curvedp.ledger import Ledger

FORK = multiprocessing.get_context("fork")  # a ledger holds no connection, so a fork may use it at once


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


def test_eight_processes_spend_the_budget_exactly(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)
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


def _charge_then_release(ledger: Ledger, released: Path) -> None:
    """What a fit does: charge, and only then let something out (one byte for each release)."""
    release = Expense(1e-4, 0.0, "replace", "qop", "(P-6)")
    out = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        ledger.charge(release)
        os.write(out, b".")


def test_two_hundred_kills_never_leave_a_release_uncharged(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1e6, delta=0.0)
    released = tmp_path / "released"
    pauses = np.random.default_rng(7)
    kills, running = 0, 2
    while kills < 200:
        workers = [FORK.Process(target=_charge_then_release, args=(ledger, released)) for _ in range(running)]
        for worker in workers:
            worker.start()
        for worker in workers:
            time.sleep(pauses.uniform(0.0, 0.03))
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
            assert worker.exitcode == -signal.SIGKILL
            kills += 1
        count = released.stat().st_size if released.exists() else 0
        charges = Ledger(ledger.path).state().charges  # opening checks the file's integrity too
        assert count <= charges <= count + kills
    assert count > 200  # the kills fell among real releases
    assert ledger.spent().epsilon == round(1e-4 * ledger.state().charges, 10)
