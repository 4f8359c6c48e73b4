"""An editor who knows how the hashes are made rewrites the history: a head kept elsewhere tells."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.charges import Release

from curvedp.errors import LedgerDamaged
from curvedp.release.ledger import Charge, Ledger, storage

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

Forgery = Callable[[list[Charge], int], list[Charge]]


def edited(charges: list[Charge], at: int) -> list[Charge]:
    return [*charges[:at], replace(charges[at], epsilon=charges[at].epsilon / 2), *charges[at + 1 :]]


def renamed(charges: list[Charge], at: int) -> list[Charge]:
    return [*charges[:at], replace(charges[at], by="somebody else"), *charges[at + 1 :]]


def redated(charges: list[Charge], at: int) -> list[Charge]:
    return [*charges[:at], replace(charges[at], time="1999-01-01T00:00:00+00:00"), *charges[at + 1 :]]


def deleted(charges: list[Charge], at: int) -> list[Charge]:
    return charges[:at] + charges[at + 1 :]


def truncated(charges: list[Charge], at: int) -> list[Charge]:
    return charges[:at]


def inserted(charges: list[Charge], at: int) -> list[Charge]:
    return [*charges[:at], replace(charges[at], label="new"), *charges[at:]]


def reordered(charges: list[Charge], at: int) -> list[Charge]:
    """Its neighbour changes places with it."""
    other = at - 1 if at else 1
    order = list(charges)
    order[at], order[other] = order[other], order[at]
    return order


FORGERIES: list[Forgery] = [edited, renamed, redated, deleted, truncated, inserted, reordered]


def rewrite(path: Path, charges: list[Charge]) -> None:
    """The same budget with another history, every hash, total and head made anew as a ledger would."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("DELETE FROM entries")
    last = storage.start(connection)
    for charge in charges:
        last = storage.append(connection, last, charge)
    if not charges:
        connection.execute(
            "UPDATE head SET entries = 0, last = ?, digest = ?",
            (last.digest, storage._hash("head", 0, last.digest)),
        )
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("forge", FORGERIES)
@settings(max_examples=6, deadline=None)
@given(st.integers(2, 6), st.data())
def test_a_rewritten_history_is_noticed_by_every_head_that_it_changed(
    forge: Forgery, count: int, data
) -> None:
    at = data.draw(st.integers(0, count - 1))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "budget.db"
        Ledger.create(path, epsilon=3, delta=1e-5, filter="basic")
        ledger = Ledger(path, by="Ada", purpose="wages")
        start = ledger.state().digest
        heads = [ledger.charge(Release(), label=str(k)).head for k in range(count)]
        rewrite(path, forge(ledger.history(), at))
        Ledger(path).verify()  # the file alone cannot tell: this is why a head is kept elsewhere
        first_changed = min(at, at - 1 if forge is reordered and at else at)
        for number, head in enumerate(heads):
            if number < first_changed:
                assert Ledger(path).verify(head).found.charge == number + 1  # before the edit nothing changed
            else:
                with pytest.raises(LedgerDamaged, match="rewritten"):
                    Ledger(path).verify(head)
        assert Ledger(path).verify(start).found.charge == 0


def test_a_rewritten_budget_is_noticed_by_the_head_of_the_new_ledger(tmp_path: Path) -> None:
    """A larger budget with the same nonce and the same charges."""
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1, delta=1e-6, filter="basic")
    start = ledger.state().digest
    ledger.charge(Release())
    history = ledger.history()
    connection = sqlite3.connect(ledger.path, isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE budget SET epsilon = '100.0'")
    row = connection.execute(f"SELECT {storage._BUDGET} FROM budget").fetchone()
    connection.execute("UPDATE budget SET digest = ?", (storage._hash("budget", *row[:-1]),))
    connection.close()
    rewrite(ledger.path, history)
    assert Ledger(ledger.path).verify().charges == 1 and ledger.remaining().epsilon == 99.9
    with pytest.raises(LedgerDamaged, match="rewritten"):
        ledger.verify(start)
