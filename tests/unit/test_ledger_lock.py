"""The lock beside a ledger: one holder among threads, processes and forks."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from curvedp.errors import LedgerUnreadable
from curvedp.privacy.budget import Neighbours
from curvedp.release.ledger import Ledger
from curvedp.release.ledger.opening import held, transaction

FORK = multiprocessing.get_context("fork")
ROWS = Neighbours("replace")


@dataclass(frozen=True)
class Release:
    epsilon: float = 0.1
    delta: float = 0.0
    neighbours: Neighbours = ROWS
    mechanism: str = "qop"
    theorem: str = "(P-6)"
    private: bool = True
    costs: tuple[object, ...] = ()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=1, delta=1e-6, filter="basic")


def attempt(path: Path, seconds: float, found: Any) -> None:
    try:
        with held(str(path), seconds):
            found.put("held")
    except TimeoutError:
        found.put("refused")


def foreign_lock(path: Path) -> int:
    """As another program would hold it."""
    descriptor = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_there_is_one_holder(ledger, kind):
    found = FORK.Queue()
    with held(str(ledger.path), 1.0):
        if kind == "thread":
            attempts = [threading.Thread(target=attempt, args=(ledger.path, 0.05, found))]
        else:
            attempts = [FORK.Process(target=attempt, args=(ledger.path, 0.05, found))]
        for other in attempts:
            other.start()
            other.join()
        assert found.get(timeout=10) == "refused"
    attempt(ledger.path, 1.0, found)
    assert found.get(timeout=10) == "held"


def test_a_foreign_holder_is_waited_for_and_then_named(ledger, monkeypatch):
    monkeypatch.setattr("curvedp.release.ledger.opening.BUSY_SECONDS", 0.1)
    other = foreign_lock(ledger.path)
    for use in (ledger.state, lambda: ledger.charge(Release()), lambda: Ledger(ledger.path)):
        with pytest.raises(LedgerUnreadable, match="stayed locked"):
            use()
    os.close(other)
    ledger.charge(Release())
    assert ledger.state().charges == 1


def test_a_fork_waits_for_the_transaction_of_another_thread(ledger):
    inside, finished = threading.Event(), []

    def slow() -> None:
        with transaction(ledger.path, write=True):
            inside.set()
            time.sleep(0.3)
            finished.append(True)

    thread = threading.Thread(target=slow)
    thread.start()
    assert inside.wait(10)
    child = FORK.Process(target=ledger.charge, args=(Release(),))
    child.start()
    assert finished  # SQLite's mutexes were free when the child was made
    child.join(20)
    thread.join()
    assert child.exitcode == 0
    assert ledger.state().charges == 1


def test_a_child_does_not_inherit_a_thread_that_waits(ledger):
    other = foreign_lock(ledger.path)
    thread = threading.Thread(target=ledger.charge, args=(Release(),))
    thread.start()
    time.sleep(0.05)
    child = FORK.Process(target=ledger.charge, args=(Release(),))
    child.start()
    fcntl.flock(other, fcntl.LOCK_UN)
    os.close(other)
    child.join(20)
    thread.join(20)
    assert child.exitcode == 0
    assert ledger.state().charges == 2


def test_a_child_that_was_forked_inside_does_not_keep_the_lock(ledger):
    with held(str(ledger.path), 1.0):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    with held(str(ledger.path), 1.0):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_child_that_leaves_the_lock_leaves_it_to_its_parent(ledger):
    found = FORK.Queue()
    child = None
    try:
        with held(str(ledger.path), 1.0):
            child = os.fork()
            if child != 0:
                os.waitpid(child, 0)
                other = FORK.Process(target=attempt, args=(ledger.path, 0.05, found))
                other.start()
                other.join()
                assert found.get(timeout=10) == "refused"
    finally:
        if child == 0:
            os._exit(0)


def test_a_lock_file_that_was_replaced_while_waiting_is_no_lock(ledger):
    first = foreign_lock(ledger.path)
    entered = threading.Event()

    def enter() -> None:
        with held(str(ledger.path), 20.0):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    time.sleep(0.05)
    os.unlink(f"{ledger.path}-lock")
    second = foreign_lock(ledger.path)
    os.close(first)
    assert not entered.wait(0.1)
    os.close(second)
    assert entered.wait(10)
    thread.join()


def test_symbolic_links_share_the_lock_and_hard_links_are_refused(ledger, tmp_path):
    link = tmp_path / "elsewhere.db"
    link.symlink_to(ledger.path)
    Ledger(link).charge(Release())
    assert ledger.state().charges == 1
    assert not Path(f"{link}-lock").exists()
    os.link(ledger.path, tmp_path / "twin.db")
    for name in (ledger.path, tmp_path / "twin.db"):
        with pytest.raises(LedgerUnreadable, match="2 hard links"):
            Ledger(name)


def test_a_ledger_that_was_refused_keeps_the_lock_file_of_others(ledger):
    with pytest.raises(LedgerUnreadable), held(str(ledger.path), 1.0):
        raise LedgerUnreadable
    assert Path(f"{ledger.path}-lock").exists()


def test_a_lock_file_of_another_user_is_enough(ledger, monkeypatch):
    real = os.open

    def not_ours(name: str, flags: int, *mode: int) -> int:
        if str(name).endswith("-lock") and flags & os.O_RDWR and not flags & os.O_EXCL:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *mode)

    monkeypatch.setattr(os, "open", not_ours)
    ledger.charge(Release())
    assert ledger.state().charges == 1


def test_a_folder_that_cannot_be_written_says_so(ledger, monkeypatch):
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LedgerUnreadable, match=r"Permission denied\): the file and its folder must be"):
        ledger.charge(Release())
