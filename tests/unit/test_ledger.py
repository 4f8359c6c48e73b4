"""The ledger file: what it accepts, refuses, shows, and says when it cannot be read."""

from __future__ import annotations

import copy
import pickle
import sqlite3
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import pytest

from curvedp.budget import Expense
from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused, LedgerUnreadable
from curvedp.ledger import Ledger

RELEASE = Expense(0.1, 1e-7, "replace", "qop", "(P-6)")
GAUSSIAN = replace(RELEASE, parameters={"zcdp_rho": 0.001})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def test_a_new_ledger_has_everything_left(path):
    state = Ledger.create(path, epsilon=3, delta=1e-5, adjacency="add_remove").state()
    assert asdict(state) == {
        "epsilon": 3.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "filter": "basic",
        "spent_epsilon": 0.0,
        "spent_delta": 0.0,
        "remaining_epsilon": 3.0,
        "remaining_delta": 1e-5,
        "charges": 0,
        "spent_rho": None,
        "remaining_rho": None,
    }


def test_history_shows_time_mechanism_theorem_cost_and_label_and_nothing_else(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    ledger.charge(replace(RELEASE, parameters={"n": 1234, "path": "/secret"}), label="first model")
    (line,) = ledger.history()
    shown = asdict(line)
    assert shown.pop("time").endswith("+00:00")
    assert shown == {
        "mechanism": "qop",
        "theorem": "(P-6)",
        "epsilon": 0.1,
        "delta": 1e-7,
        "rho": None,
        "label": "first model",
    }
    assert b"1234" not in path.read_bytes() and b"secret" not in path.read_bytes()


@pytest.mark.parametrize(("total", "parts"), [(1.0, 10), (1.0, 11), (0.7, 100), (5.0, 6), (2.5, 49)])
def test_parts_of_the_total_fit_exactly(path, total, parts):
    ledger = Ledger.create(path, epsilon=total, delta=1e-6)
    part = replace(RELEASE, epsilon=total / parts, delta=1e-6 / parts)
    for _ in range(parts):
        ledger.charge(part)
    assert (ledger.spent().epsilon, ledger.spent().delta) == (total, 1e-6)
    assert (ledger.remaining().epsilon, ledger.remaining().delta) == (0.0, 0.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge(replace(part, epsilon=1e-15, delta=0.0))


def test_what_remains_can_be_charged_and_then_nothing(path):
    ledger = Ledger.create(path, epsilon=1.0, delta=1e-6)
    ledger.charge(replace(RELEASE, epsilon=0.123456789012345, delta=3.3e-8))
    left = ledger.remaining()
    ledger.charge(replace(RELEASE, epsilon=left.epsilon, delta=left.delta))
    assert ledger.remaining().epsilon <= 1e-16
    with pytest.raises(BudgetExceeded, match="ask for less"):
        ledger.charge(RELEASE)


def test_delta_is_a_budget_of_its_own(path):
    ledger = Ledger.create(path, epsilon=100.0, delta=1e-6)
    ledger.charge(replace(RELEASE, delta=9e-7))
    with pytest.raises(BudgetExceeded, match=r"2e-07\) and \(99.9, 1e-07\) remains"):
        ledger.charge(replace(RELEASE, delta=2e-7))
    assert ledger.state().charges == 1


def test_a_refused_charge_takes_nothing(path):
    ledger = Ledger.create(path, epsilon=0.25, delta=1e-6)
    ledger.charge(RELEASE)
    for refused in (
        replace(RELEASE, private=False),
        replace(RELEASE, adjacency="add_remove"),
        replace(RELEASE, epsilon=0.2),
        replace(RELEASE, epsilon=float("nan")),
        replace(RELEASE, epsilon=float("inf")),
        replace(RELEASE, epsilon=-0.1),
        replace(RELEASE, delta=1.0),
        replace(RELEASE, parameters={"zcdp_rho": -1.0}),
    ):
        with pytest.raises((BudgetExceeded, LedgerRefused, InvalidInput)):
            ledger.charge(refused)
    assert ledger.spent().epsilon == 0.1 and ledger.state().charges == 1


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (replace(RELEASE, private=False), "leave random_state"),
        (replace(RELEASE, adjacency="add_remove"), "pass adjacency='replace'"),
    ],
)
def test_refusals_say_what_to_do(path, release, words):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    with pytest.raises(LedgerRefused, match=words) as caught:
        ledger.charge(release)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("label", ["two\nlines", "x" * 201, "\x1b[31m"])
def test_labels_are_one_printable_line(path, label):
    with pytest.raises(InvalidInput, match="label"):
        Ledger.create(path, epsilon=1, delta=1e-6).charge(RELEASE, label=label)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": float("nan")},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"adjacency": "both"},
        {"filter": "pld"},
        {"filter": "zcdp", "delta": 0.0},
    ],
)
def test_create_checks_its_arguments_and_leaves_no_file(path, wrong):
    with pytest.raises(InvalidInput):
        Ledger.create(path, **{"epsilon": 1.0, "delta": 1e-6, **wrong})
    assert not path.exists()


def test_create_never_overwrites(path):
    Ledger.create(path, epsilon=1, delta=1e-6).charge(RELEASE)
    before = path.read_bytes()
    with pytest.raises(LedgerRefused, match="never overwritten"):
        Ledger.create(path, epsilon=100, delta=1e-6)
    assert path.read_bytes() == before


def test_create_in_a_missing_folder_says_so(tmp_path):
    with pytest.raises(LedgerUnreadable, match="folder that exists"):
        Ledger.create(tmp_path / "nowhere" / "budget.db", epsilon=1, delta=1e-6)


def test_a_failed_creation_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("curvedp.ledger._TABLES", "CREATE TABLE budget (")
    with pytest.raises(LedgerUnreadable, match="cannot create"):
        Ledger.create(tmp_path / "budget.db", epsilon=1, delta=1e-6)
    assert list(tmp_path.iterdir()) == []


def test_copies_and_pickles_share_the_file(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    for twin in (copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger)), Ledger(path)):
        twin.charge(RELEASE)
    assert ledger.spent().epsilon == 0.3


def test_odd_file_names_work(tmp_path):
    path = tmp_path / "été ? 100% #1.db"
    Ledger.create(path, epsilon=1, delta=1e-6).charge(RELEASE)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert Ledger(path).spent().epsilon == 0.1


def test_missing_empty_and_foreign_files_are_refused_in_one_line(path, tmp_path):
    with pytest.raises(LedgerUnreadable, match="no ledger at"):
        Ledger(path)
    assert not path.exists()
    with pytest.raises(LedgerUnreadable, match="no ledger at"):
        Ledger(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(LedgerUnreadable, match="create it again"):
        Ledger(path)
    path.write_text("a spreadsheet, say" * 200)
    with pytest.raises(LedgerUnreadable, match="damaged or not a ledger"):
        Ledger(path)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(LedgerUnreadable, match="not a ledger"):
        Ledger(other)


def test_a_newer_format_asks_for_an_upgrade(path):
    Ledger.create(path, epsilon=1, delta=1e-6)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=2")
    connection.close()
    with pytest.raises(LedgerUnreadable, match="upgrade curvedp"):
        Ledger(path)


def _edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(";".join(statements))
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER charges_stand; UPDATE charges SET epsilon = 'lots'",
        "DROP TRIGGER charges_stand; UPDATE charges SET epsilon = '-5.0'",
        "DROP TRIGGER charges_stand; UPDATE charges SET delta = 'nan'",
        "DROP TRIGGER budget_stays; DELETE FROM budget",
        "DROP TRIGGER budget_stands; UPDATE budget SET filter = 'pld'",
        "DROP TABLE charges",
    ],
)
def test_damage_is_noticed_on_opening(path, statement):
    Ledger.create(path, epsilon=1, delta=1e-6).charge(RELEASE)
    _edit(path, statement)
    with pytest.raises(LedgerUnreadable):
        Ledger(path)


def test_torn_pages_are_noticed(path):
    ledger = Ledger.create(path, epsilon=1000, delta=0.9)
    for _ in range(60):
        ledger.charge(RELEASE, label="x" * 150)
    content = bytearray(path.read_bytes())
    content[-4096:] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(LedgerUnreadable, match="restore a backup"):
        Ledger(path)


@pytest.mark.parametrize("table", ["charges", "budget"])
@pytest.mark.parametrize("verb", ["DELETE FROM {}", "UPDATE {} SET epsilon = '0.0'"])
def test_charges_and_budget_are_final(path, table, verb):
    Ledger.create(path, epsilon=1, delta=1e-6).charge(RELEASE)
    with pytest.raises(sqlite3.IntegrityError, match="final"):
        _edit(path, verb.format(table))


def test_a_locked_file_says_so(path, monkeypatch):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    monkeypatch.setattr("curvedp.ledger.BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerUnreadable, match="stayed locked"):
        ledger.charge(RELEASE)
    other.close()
    ledger.charge(RELEASE)


def test_commits_are_synchronous_and_journalled(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    seen = {}
    with ledger._transaction() as connection:
        for pragma in ("journal_mode", "synchronous"):
            seen[pragma] = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    assert seen == {"journal_mode": "delete", "synchronous": 3}


def test_zcdp_filter_adds_rho_and_needs_it(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="zcdp")
    with pytest.raises(LedgerRefused, match='filter="basic"'):
        ledger.charge(RELEASE)
    total = ledger.remaining().rho
    affordable = int(total / 0.001)
    for _ in range(affordable):
        ledger.charge(GAUSSIAN)
    with pytest.raises(BudgetExceeded, match=r"rho = 0\.001"):
        ledger.charge(GAUSSIAN)
    state = ledger.state()
    assert state.spent_rho == pytest.approx(0.001 * affordable, rel=1e-14)
    assert state.remaining_rho == pytest.approx(total - 0.001 * affordable, rel=1e-9)
    assert 0.9 < state.spent_epsilon <= 1.0
    assert state.spent_epsilon + state.remaining_epsilon == pytest.approx(1.0, abs=1e-12)
    ledger.charge(replace(GAUSSIAN, parameters={"zcdp_rho": state.remaining_rho}))
    assert ledger.remaining().rho == 0.0
    assert Fraction(ledger.spent().epsilon) <= 1
