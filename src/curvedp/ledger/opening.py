"""Opening a ledger file: one holder, one transaction, the present format, failures in plain words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curvedp.errors import LedgerDamaged, LedgerUnreadable
from curvedp.ledger import storage
from curvedp.ledger.lock import held
from curvedp.ledger.storage import BudgetTerms, Damaged

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


def write_new(path: Path, terms: BudgetTerms) -> None:
    with held(str(path), BUSY_SECONDS):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        try:
            with storage.connect(path, BUSY_SECONDS) as connection:
                storage.create(connection, terms)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _check_file(path: Path, name: str) -> None:
    """What can be told without opening the file."""
    found = path.stat()
    if found.st_size == 0:
        raise LedgerUnreadable(
            f"{name} is empty: if its creation was interrupted, remove it and create it again"
        )
    if found.st_nlink > 1:  # SQLite's journal and our lock go by the name
        raise LedgerUnreadable(
            f"{name} has {found.st_nlink} hard links, under whose names it could be spent at once: keep one "
            "name, use symbolic links for others"
        )


def _check_format(connection: sqlite3.Connection, name: str) -> None:
    version = storage.format_of(connection)
    if version is None:
        raise LedgerUnreadable(f"{name} is a database but not a ledger: check the path")
    if version > storage.FORMAT:
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
