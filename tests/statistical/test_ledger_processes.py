"""Many processes at once, and `kill -9` at any instant: never overspent, nothing released uncharged."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvedp.errors import BudgetExceeded
from curvedp.privacy.budget import Neighbours
from curvedp.release.ledger import Ledger, storage

FORK = multiprocessing.get_context("fork")  # a ledger holds no connection, so a fork may use it at once
ROWS = Neighbours("replace")


@dataclass(frozen=True)
class Release:
    epsilon: float
    delta: float
    neighbours: Neighbours = ROWS
    mechanism: str = "qop"
    theorem: str = "(P-6)"
    private: bool = True
    costs: tuple[object, ...] = ()


MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path):
    """Races and kills are the same in memory, where a sync costs nothing; on a busy disk each takes 30 ms."""
    root = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=root) as name:
        yield Path(name)


def _charge_many(ledger: Ledger, times: int, release: Release) -> int:
    count = 0
    for _ in range(times):
        try:
            ledger.charge(release)
        except BudgetExceeded:
            continue
        count += 1
    return count


def _run(target: Any, count: int, *arguments: Any) -> list[int]:
    """What `count` processes put into a queue, which is their last argument."""
    found = FORK.Queue()
    workers = [FORK.Process(target=target, args=(*arguments, found)) for _ in range(count)]
    for worker in workers:
        worker.start()
    results = [found.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * count
    return results


def _require_spent_exactly(path: Path, charges: int) -> None:
    ledger = Ledger(path)
    ledger.verify()
    state = ledger.state()
    assert state.charges == charges
    assert (state.spent_epsilon, state.remaining_epsilon) == (1.0, 0.0)
    assert (state.spent_delta, state.remaining_delta) == (1e-6, 0.0)


def _charge_in_process(path: Path, times: int, release: Release, found: Any) -> None:
    found.put(_charge_many(Ledger(path), times, release))


@pytest.mark.parametrize("times", [50, pytest.param(500, marks=pytest.mark.full)])
def test_eight_processes_spend_the_budget_exactly(folder, times):
    ledger = Ledger.create(folder / "budget.db", epsilon=1.0, delta=1e-6, filter="basic")
    affordable = 2 * times
    release = Release(1.0 / affordable, 1e-6 / affordable)
    counts = _run(_charge_in_process, 8, ledger.path, times, release)
    assert sum(counts) == affordable
    _require_spent_exactly(ledger.path, affordable)


def _charge_among_readers(path: Path, times: int, release: Release, found: Any) -> None:
    """Three threads charge while two read the bytes of the file, whose closing drops SQLite's locks."""
    ledger, done, reads = Ledger(path), threading.Event(), []

    def read() -> None:
        while not done.is_set():
            with open(path, "rb") as file:
                reads.append(len(file.read()))

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        charging = [pool.submit(_charge_many, ledger, times, release) for _ in range(3)]
        try:
            total = sum(thread.result() for thread in charging)
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert len(reads) > times
    found.put(total)


@pytest.mark.parametrize("times", [40, pytest.param(400, marks=pytest.mark.full)])
def test_threads_that_read_the_file_do_not_let_two_charges_through(folder, times):
    ledger = Ledger.create(folder / "budget.db", epsilon=1.0, delta=1e-6, filter="basic")
    affordable = 5 * times  # of 9·times attempts
    release = Release(1.0 / affordable, 1e-6 / affordable)
    counts = _run(_charge_among_readers, 3, ledger.path, times, release)
    assert sum(counts) == affordable
    _require_spent_exactly(ledger.path, affordable)


def _charge_when_told(path: Path, go: Any, found: Any) -> None:
    go.wait()
    found.put(_charge_many(Ledger(path), 1, Release(1.0, 1e-6)))


def test_a_budget_of_one_is_granted_once_though_sqlite_lost_its_locks(folder, monkeypatch):
    """Between the check and the write of one process, a reader in it drops the locks and another charges."""
    ledger = Ledger.create(folder / "budget.db", epsilon=1.0, delta=1e-6, filter="basic")
    go, found = FORK.Event(), FORK.Queue()
    rival = FORK.Process(target=_charge_when_told, args=(ledger.path, go, found))
    rival.start()
    append = storage.append

    def interrupted(*arguments: Any) -> Any:
        ledger.path.read_bytes()
        go.set()
        time.sleep(0.5)  # long enough for it to be granted, were it not for the lock
        return append(*arguments)

    monkeypatch.setattr(storage, "append", interrupted)
    ledger.charge(Release(1.0, 1e-6))
    assert found.get(timeout=60) == 0
    rival.join()
    _require_spent_exactly(ledger.path, 1)


RELEASE = Release(1e-4, 0.0)


def _charge_then_release(ledger: Ledger, released: Path, ready: Any) -> None:
    """What a fit does: charge, and only then let something out (one byte for each release)."""
    out = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ready.set()
    while True:
        ledger.charge(RELEASE)
        os.write(out, b".")


@pytest.mark.parametrize("total", [20, pytest.param(200, marks=pytest.mark.full)])
def test_kills_never_leave_a_release_uncharged(folder, total):
    ledger = Ledger.create(folder / "budget.db", epsilon=1e6, delta=0.0, filter="basic")
    released = folder / "released"
    released.touch()
    start = time.perf_counter()
    for _ in range(20):
        ledger.charge(RELEASE)
    one_charge = (time.perf_counter() - start) / 20
    pauses = np.random.default_rng(7)
    for kills in range(4, total + 1, 4):
        ready = [FORK.Event() for _ in range(4)]
        workers = [
            FORK.Process(target=_charge_then_release, args=(ledger, released, event)) for event in ready
        ]
        for worker in workers:
            worker.start()
        for worker, event in zip(workers, ready, strict=True):
            assert event.wait(60)
            time.sleep(pauses.uniform(0.0, 8 * one_charge))
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
            assert worker.exitcode == -signal.SIGKILL
        count = released.stat().st_size
        charges = Ledger(ledger.path).state().charges - 20
        assert count <= charges <= count + kills
    assert count > total / 2  # the kills fell among real releases
    ledger.verify()
    assert ledger.spent().epsilon == round(1e-4 * (charges + 20), 10)
