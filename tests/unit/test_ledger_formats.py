"""Ledger files of earlier formats keep what was spent, and their heads; newer formats are refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from curvedp.errors import BudgetExceeded, LedgerDamaged, LedgerUnreadable
from curvedp.ledger import Charge, Ledger, storage
from curvedp.neighbours import Neighbours

FORK = multiprocessing.get_context("fork")

# As version 0.1 wrote it.
TABLES_0_1 = """
PRAGMA application_id=1668695120; PRAGMA user_version=1;
CREATE TABLE budget (
    id INTEGER PRIMARY KEY CHECK (id = 1), created TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, adjacency TEXT NOT NULL, filter TEXT NOT NULL
);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, mechanism TEXT NOT NULL, theorem TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, rho TEXT, label TEXT NOT NULL
);
CREATE TRIGGER charges_stay BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER charges_stand BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER budget_stays BEFORE DELETE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
CREATE TRIGGER budget_stands BEFORE UPDATE ON budget BEGIN SELECT RAISE(ABORT, 'the budget is final'); END;
"""
CHARGES = [
    ("2025-01-01T10:00:00+00:00", "qop", "(P-6)", 0.1, 1e-7, None, "first"),
    ("2025-01-02T10:00:00+00:00", "output", "(P-2)", 1 / 11, 2e-7, 0.001, "[/x] 'second'; --"),
    ("2025-01-03T10:00:00+00:00", "recentered", "(P-9)", 0.5, 3.3e-7, None, ""),
]


@dataclass(frozen=True)
class Release:
    epsilon: float
    delta: float
    neighbours: Neighbours
    mechanism: str = "output"
    theorem: str = "(P-2)"
    private: bool = True
    zcdp_rho: float | None = 0.001


def write_0_1(
    path: Path, charges: list[tuple[Any, ...]], adjacency: str = "replace", rule: str = "basic"
) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(TABLES_0_1)
    connection.execute(
        "INSERT INTO budget VALUES (1, '2025-01-01T09:00:00+00:00', '1.0', '1e-06', ?, ?)", (adjacency, rule)
    )
    for *words, epsilon, delta, rho, label in charges:
        connection.execute(
            "INSERT INTO charges (time, mechanism, theorem, epsilon, delta, rho, label) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*words, repr(epsilon), repr(delta), None if rho is None else repr(rho), label),
        )
    connection.close()


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_a_ledger_of_0_1_opens_with_its_spent_budget(path, adjacency):
    write_0_1(path, CHARGES, adjacency)
    ledger = Ledger(path)
    assert version(path) == 3
    assert ledger.history() == [Charge(*row) for row in CHARGES]
    state = ledger.state()
    assert (state.epsilon, state.delta, state.adjacency, state.unit) == (1.0, 1e-6, adjacency, None)
    assert (state.charges, state.filter) == (3, "basic")
    assert state.spent_epsilon == pytest.approx(0.6 + 1 / 11, rel=1e-15)
    assert state.remaining_epsilon == pytest.approx(0.4 - 1 / 11, rel=1e-15)
    assert (state.spent_delta, state.remaining_delta) == (6.3e-7, 3.7e-7)
    ledger.verify()
    with pytest.raises(BudgetExceeded):
        ledger.charge(Release(0.31, 0.0, Neighbours(adjacency)))
    ledger.charge(Release(state.remaining_epsilon, 0.0, Neighbours(adjacency)))
    assert Ledger(path).remaining().epsilon <= 1e-16


def test_an_unspent_ledger_and_a_zcdp_one_of_0_1_open_too(path):
    write_0_1(path, [])
    assert Ledger(path).remaining().epsilon == 1.0
    other = path.with_name("other.db")
    write_0_1(other, [CHARGES[1]] * 4, rule="zcdp")
    assert Ledger(other).spent().rho == 0.004


def test_an_open_ledger_object_finds_an_old_file_in_its_place(path):
    ledger = Ledger.create(path, epsilon=5, delta=1e-6)
    path.unlink()
    write_0_1(path, CHARGES)
    assert ledger.state().charges == 3


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_kill_during_the_migration_loses_nothing(path, at, monkeypatch):
    write_0_1(path, CHARGES)
    append, done = storage.append, []

    def killed(*arguments: Any) -> Any:
        done.append(1)
        if len(done) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return append(*arguments)

    monkeypatch.setattr(storage, "append", killed)
    worker = FORK.Process(target=Ledger, args=(path,))
    worker.start()
    worker.join()
    monkeypatch.undo()
    assert worker.exitcode == -signal.SIGKILL
    assert version(path) == 1
    assert Ledger(path).history() == [Charge(*row) for row in CHARGES]


def _open(path: Path, start: Any) -> None:
    start.wait()
    assert Ledger(path).state().charges == 3


def test_processes_that_migrate_at_once_agree(path):
    write_0_1(path, CHARGES)
    start = FORK.Event()
    workers = [FORK.Process(target=_open, args=(path, start)) for _ in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    Ledger(path).verify()


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TRIGGER charges_stay; DELETE FROM charges WHERE id = 3",
        "DROP TRIGGER charges_stay; DELETE FROM charges WHERE id = 1",
        "DROP TRIGGER charges_stand; UPDATE charges SET epsilon = '-5.0' WHERE id = 2",
        "DROP TRIGGER charges_stand; UPDATE charges SET delta = 'nan' WHERE id = 2",
        "DROP TRIGGER charges_stand; UPDATE charges SET label = x'00ff' WHERE id = 2",
        "DROP TRIGGER budget_stays; DELETE FROM budget",
        "DROP TRIGGER budget_stands; UPDATE budget SET filter = 'pld'",
    ],
)
def test_a_damaged_ledger_of_0_1_is_refused_and_left_alone(path, damage):
    write_0_1(path, CHARGES)
    connection = sqlite3.connect(path)
    connection.executescript(damage)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerUnreadable, match="restore a backup"):
        Ledger(path)
    assert path.read_bytes() == before and version(path) == 1


@pytest.mark.parametrize(
    ("number", "words"),
    [(4, "upgrade curvedp"), (0, "damaged"), (1, "damaged"), (2, "damaged"), (-1, "damaged")],
)
def test_formats_that_nobody_wrote_yet_are_refused(path, number, words):
    Ledger.create(path, epsilon=1, delta=1e-6)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={number}")
    connection.close()
    with pytest.raises(LedgerUnreadable, match=words):
        Ledger(path)


# As format 2 was: a chain of 128-bit digests that said neither by whom nor why.
TABLES_2 = """
PRAGMA application_id=1668695120; PRAGMA user_version=2;
CREATE TABLE budget (
    id INTEGER PRIMARY KEY CHECK (id = 1), created TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
    adjacency TEXT NOT NULL, unit TEXT, filter TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, mechanism TEXT NOT NULL, theorem TEXT NOT NULL,
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, rho TEXT, label TEXT NOT NULL,
    total_epsilon TEXT NOT NULL, total_delta TEXT NOT NULL, total_rho TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1), charges INTEGER NOT NULL, last TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TRIGGER charges_stay BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER charges_stand BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'a charge is final'); END;
CREATE TRIGGER head_grows BEFORE UPDATE ON head WHEN NEW.charges IS NOT OLD.charges + 1
BEGIN SELECT RAISE(ABORT, 'the head only grows'); END;
"""
QUARTERS = [("2025-01-01T10:00:00+00:00", "qop", "(P-6)", "0.25", "1e-07", None, f"{k}") for k in range(3)]


def hashed(*parts: Any) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def write_2(path: Path) -> list[str]:
    """The heads after 0, 1, 2, 3 charges of (1/4, 10⁻⁷)."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(TABLES_2)
    budget = ("2025-01-01T09:00:00+00:00", "1.0", "1e-06", "replace", None, "basic")
    heads = [hashed("budget", *budget)]
    connection.execute("INSERT INTO budget VALUES (1, ?, ?, ?, ?, ?, ?, ?)", (*budget, heads[0]))
    for k, charge in enumerate(QUARTERS, 1):
        row = (k, *charge, str(Fraction(k, 4)), str(Fraction(k, 10**7)), "0")
        heads.append(hashed(heads[-1], *row))
        connection.execute(f"INSERT INTO charges VALUES ({', '.join('?' * 12)})", (*row, heads[-1]))
    connection.execute("INSERT INTO head VALUES (1, 3, ?, ?)", (heads[-1], hashed("head", 3, heads[-1])))
    connection.close()
    return heads


def test_a_ledger_of_format_2_opens_with_its_spent_budget_and_keeps_its_heads(path):
    heads = write_2(path)
    ledger = Ledger(path, by="Ada")
    assert version(path) == 3
    state = ledger.state()
    assert (state.spent_epsilon, state.spent_delta, state.charges) == (0.75, 3e-7, 3)
    assert (state.digest, state.ledger) == (heads[-1], heads[0][:12])
    assert [(c.label, c.by, c.purpose) for c in ledger.history()] == [(f"{k}", None, None) for k in range(3)]
    with pytest.raises(BudgetExceeded):
        ledger.charge(Release(0.26, 0.0, Neighbours("replace")))
    receipt = ledger.charge(Release(0.25, 0.0, Neighbours("replace")))
    assert (receipt.charge, receipt.by, len(receipt.head)) == (4, "Ada", 64)
    for number, head in enumerate([*heads, receipt.head]):
        found = ledger.verify(head)
        assert found.found is not None and (found.found.charge, found.after) == (number, 4 - number)
    assert (found.inherited, found.inherited_head) == (3, heads[-1])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE charges SET label = 'else' WHERE id = 1",
        "UPDATE charges SET total_epsilon = '1/4' WHERE id = 3",
        "UPDATE charges SET digest = '' WHERE id = 3",
        "DROP TRIGGER charges_stay; DELETE FROM charges WHERE id = 3",
    ],
)
def test_a_damaged_ledger_of_format_2_is_refused_and_left_alone(path, damage):
    write_2(path)
    connection = sqlite3.connect(path)
    connection.executescript(f"DROP TRIGGER charges_stand; {damage}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged, match="restore a backup"):
        Ledger(path)
    assert path.read_bytes() == before and version(path) == 2


def test_a_charge_of_an_earlier_format_after_a_later_one_is_damage(path):
    """Its hash would be sound, yet no version writes it."""
    write_2(path)
    ledger = Ledger(path)
    ledger.charge(Release(0.1, 0.0, Neighbours("replace")))
    with ledger._transaction(write=True) as connection:
        storage.append(connection, storage.position(connection), Charge("", "qop", "", 0.0, 0.0, None, ""))
    with pytest.raises(LedgerDamaged):
        ledger.verify()


def test_a_kill_while_columns_are_added_loses_nothing(path, monkeypatch):
    heads = write_2(path)
    monkeypatch.setattr(storage, "require_totals", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    worker = FORK.Process(target=Ledger, args=(path,))
    worker.start()
    worker.join()
    monkeypatch.undo()
    assert worker.exitcode == -signal.SIGKILL and version(path) == 2
    assert Ledger(path).verify(heads[-1]).after == 0
