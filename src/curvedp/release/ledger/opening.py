"""Opening a ledger file: one holder, one transaction, the present format, failures in plain words."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from curvedp.errors import LedgerDamaged, LedgerUnreadable
from curvedp.release.ledger import storage
from curvedp.release.ledger.storage import Damaged, Position

# One holder of a ledger file at a time, whatever becomes of SQLite's own locks.
#
# SQLite locks by POSIX locks, and a process loses those as soon as it closes ANY descriptor of the file:
# one thread that reads the file's bytes is enough. Every transaction therefore also holds, from before it
# connects until it has closed the connection, an flock on `FILE-lock`, which nothing else opens.


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, take: bool) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if take else msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int, take: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if take else fcntl.LOCK_UN)


_turns: dict[str, threading.Lock] = {}  # flock on a network disk may not tell threads of a process apart
_descriptors: set[int] = set()  # of the lock files, held or waited for
_gate = threading.RLock()  # held while SQLite works: a fork in between would leave the child its mutexes


@contextmanager
def held(path: str, seconds: float) -> Iterator[None]:
    """The only holder of the resolved `path` among all threads and processes; TimeoutError after `seconds`.

    A lock file that this call made goes away again when the body fails.
    """
    deadline = time.monotonic() + seconds
    turn = _turns.setdefault(path, threading.Lock())
    if not turn.acquire(timeout=seconds):
        raise TimeoutError
    try:
        descriptor, made = _acquire(f"{path}-lock", deadline)
        try:
            with _gate:
                yield
        except BaseException:
            if made:
                with suppress(OSError):
                    os.unlink(f"{path}-lock")
            raise
        finally:
            _close(descriptor)
    finally:
        turn.release()


def _acquire(name: str, deadline: float) -> tuple[int, bool]:
    """A descriptor that holds the lock of the file now called `name`, and whether this made the file."""
    while True:
        descriptor, made = _open(name)
        try:
            _wait(descriptor, deadline)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(name)):
                    return descriptor, made
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)  # removed while we waited: others hold another file by now


def _open(name: str) -> tuple[int, bool]:
    with _gate:  # no fork between opening and noting it
        try:
            descriptor, made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            try:
                descriptor, made = os.open(name, os.O_RDWR | os.O_CREAT, 0o666), False
            except OSError:  # another user's: reading is enough to lock
                descriptor, made = os.open(name, os.O_RDONLY), False
        _descriptors.add(descriptor)
    return descriptor, made


def _wait(descriptor: int, deadline: float) -> None:
    pause = 0.0005
    while True:
        try:
            return _lock(descriptor, take=True)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > deadline:
                raise TimeoutError from None
        time.sleep(pause)
        pause = min(1.5 * pause, 0.01)


def _close(descriptor: int) -> None:
    with _gate:
        if descriptor not in _descriptors:  # a child that was forked inside: the lock is its parent's
            return
        _descriptors.discard(descriptor)
        with suppress(OSError):
            _lock(descriptor, take=False)  # closing is not enough where a child still has the descriptor
        os.close(descriptor)


def _forget_the_parents_locks() -> None:
    for descriptor in _descriptors:
        with suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()
    _turns.clear()
    _gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.acquire, after_in_parent=_gate.release, after_in_child=_forget_the_parents_locks
    )


BUSY_SECONDS = 300.0  # how long to wait for others


@contextmanager
def transaction(path: Path, write: bool = False) -> Iterator[sqlite3.Connection]:
    """One transaction by the file's only holder, on disk when this returns."""
    name, real = shown(path), Path(os.path.realpath(path))
    try:
        if not real.is_file():
            raise LedgerUnreadable(f"there is no ledger at {name}: create one, or check the path")
        with held(str(real), BUSY_SECONDS):
            _check_file(real, name)
            with storage.connect(real, BUSY_SECONDS) as connection:
                _check_format(connection, name)
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield connection
                connection.execute("COMMIT")
    except (sqlite3.Error, OSError, UnicodeDecodeError, Damaged) as error:
        raise _in_plain_words(error, name) from None


def write_new(path: Path, budget: Position) -> None:
    with held(str(path), BUSY_SECONDS):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        try:
            with storage.connect(path, BUSY_SECONDS) as connection:
                storage.create(connection, budget)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _check_file(path: Path, name: str) -> None:
    """What can be told without opening the file."""
    if (found := path.stat()).st_size == 0:
        raise LedgerUnreadable(
            f"{name} is empty: if its creation was interrupted, remove it and create it again"
        )
    if found.st_nlink > 1:  # SQLite's journal and our lock go by the name
        raise LedgerUnreadable(
            f"{name} has {found.st_nlink} hard links, under whose names it could be spent at once: keep one "
            "name, use symbolic links for others"
        )


def _check_format(connection: sqlite3.Connection, name: str) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != storage.APPLICATION_ID:
        raise LedgerUnreadable(f"{name} is a database but not a ledger: check the path")
    if (version := int(connection.execute("PRAGMA user_version").fetchone()[0])) > storage.FORMAT:
        raise LedgerUnreadable(
            f"{name} has format {version} and this curvedp reads up to {storage.FORMAT}: upgrade curvedp"
        )
    if version < 1:
        raise Damaged
    if version < storage.FORMAT:
        raise LedgerUnreadable(
            f"{name} has format {version}, of an earlier curvedp, and this one reads {storage.FORMAT}: see "
            "with that version what remains (curvedp ledger show), create a new ledger of no more than that, "
            "and keep this one"
        )


def shown(path: Path) -> str:
    return str(path) if str(path).isprintable() else ascii(str(path))


def _in_plain_words(error: Exception, name: str) -> LedgerUnreadable:
    if isinstance(error, TimeoutError) or "locked" in str(error):
        return LedgerUnreadable(
            f"{name} stayed locked for {BUSY_SECONDS:.0f} s: try again when others are done"
        )
    # SQLITE_ERROR is a table that lacks something; sqlite3 fails to decode messages about damaged names
    sound = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR
    if sound or isinstance(error, OSError):
        reason = getattr(error, "strerror", None) or str(error)
        return LedgerUnreadable(
            f"cannot use {name} ({reason}): the file and its folder must be readable and writable"
        )
    return LedgerDamaged(
        f"{name} is damaged or not a ledger: check the path, or restore a backup and count every release "
        "made since as spent"
    )
