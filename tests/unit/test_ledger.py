"""The ledger file: what it accepts, refuses, shows, and says when it cannot be read."""

from __future__ import annotations

import copy
import pickle
import sqlite3
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import pytest
from tests.charges import Release, gaussian, pure

from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused, LedgerUnreadable, StoppedAfterCharge
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import Cost, boxes, calibrate_mu, pure_mu
from curvedp.release.ledger import Ledger, Subtotal
from curvedp.release.ledger.opening import transaction

RELEASE = Release()
MU = 0.03
GAUSSIAN = Release(costs=(Cost(MU),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def test_a_new_ledger_has_everything_left(path):
    state = Ledger.create(
        path, epsilon=3, delta=1e-5, adjacency="add_remove", unit="patient", filter="basic"
    ).state()
    shown = asdict(state)
    assert len(shown.pop("digest")) == 64 and len(shown.pop("ledger")) == 12
    assert shown == {
        "epsilon": 3.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "filter": "basic",
        "spent_epsilon": 0.0,
        "spent_delta": 0.0,
        "remaining_epsilon": 3.0,
        "remaining_delta": 1e-5,
        "charges": 0,
        "spent": {"mu": 0.0, "epsilon": 0.0, "delta": 0.0},
        "left": "about 3 more releases at ε = 1, or 10 at ε = 0.25, δ = 1e-06",
        "unit": "patient",
    }


@pytest.mark.parametrize("filter", ["gaussian", "basic"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_what_is_refused_before_it_is_planned_would_be_refused_by_the_charge(path, filter, delta):
    ledger = Ledger.create(path, epsilon=2, delta=1e-5, filter=filter)
    ledger.refuse_beyond(2, 1e-5)  # the first release may be the whole
    refused = granted = 0

    def answer(ask):
        try:
            ask()
        except BudgetExceeded as refusal:
            return str(refusal)
        return "granted"

    for epsilon in (2.5, 0.5, 1.9, 0.7, 1.2, 0.6, 0.4, 0.3, 0.2, 0.1):
        release = gaussian(epsilon, delta) if delta else pure(epsilon)
        early = answer(lambda: ledger.refuse_beyond(epsilon, delta))  # noqa: B023
        late = answer(lambda: ledger.charge(release))  # noqa: B023
        assert early in (late, "granted")
        refused, granted = refused + (early != "granted"), granted + (late == "granted")
    assert refused > 1 and granted > 1
    with pytest.raises(InvalidInput):
        ledger.refuse_beyond(-1, delta)


def test_history_shows_what_was_charged_by_whom_and_nothing_else(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")
    ledger.charge(RELEASE, label="first model")
    (line,) = ledger.history()
    shown = asdict(line)
    assert shown.pop("time").endswith("+00:00") and len(shown.pop("nonce")) == 32
    assert shown == {
        "mechanism": "qop",
        "theorem": "(P-6)",
        "epsilon": 0.1,
        "delta": 1e-7,
        "mu": 0.0,
        "charged_epsilon": 0.1,
        "charged_delta": 1e-7,
        "label": "first model",
        "by": "",
        "purpose": "",
    }


def test_subtotals_say_what_a_search_cost_in_all(path):
    ledger = Ledger.create(path, epsilon=10, delta=1e-4, filter="basic")
    for part in range(11):
        ledger.charge(replace(GAUSSIAN, epsilon=1 / 11, mechanism="output"), label="search")
        if part % 5 == 0:
            ledger.charge(RELEASE, label="final")
    assert ledger.subtotals() == [
        Subtotal("search", "output", 11, 1.0, 11e-7, 0.0),
        Subtotal("final", "qop", 3, 0.3, 3e-7, 0.0),
    ]
    state = ledger.state()
    assert (state.charges, state.spent_epsilon, state.spent_delta) == (14, 1.3, 14e-7)


@pytest.mark.parametrize(("total", "parts"), [(1.0, 10), (1.0, 11), (0.7, 100), (5.0, 6), (2.5, 49)])
def test_parts_of_the_total_fit_exactly(path, total, parts):
    ledger = Ledger.create(path, epsilon=total, delta=1e-6, filter="basic")
    part = replace(RELEASE, epsilon=total / parts, delta=1e-6 / parts)
    for _ in range(parts):
        ledger.charge(part)
    assert (ledger.spent().epsilon, ledger.spent().delta) == (total, 1e-6)
    assert (ledger.remaining().epsilon, ledger.remaining().delta) == (0.0, 0.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge(replace(part, epsilon=1e-15, delta=0.0))


def test_what_remains_can_be_charged_and_then_nothing(path):
    ledger = Ledger.create(path, epsilon=1.0, delta=1e-6, filter="basic")
    ledger.charge(replace(RELEASE, epsilon=0.123456789012345, delta=3.3e-8))
    left = ledger.remaining()
    ledger.charge(replace(RELEASE, epsilon=left.epsilon, delta=left.delta))
    assert ledger.remaining().epsilon <= 1e-16
    with pytest.raises(BudgetExceeded, match="ask for less"):
        ledger.charge(RELEASE)


def test_delta_is_a_budget_of_its_own(path):
    ledger = Ledger.create(path, epsilon=100.0, delta=1e-6, filter="basic")
    ledger.charge(replace(RELEASE, delta=9e-7))
    with pytest.raises(BudgetExceeded, match=r"2e-07\) and \(99.9, 1e-07\) remains"):
        ledger.charge(replace(RELEASE, delta=2e-7))
    assert ledger.state().charges == 1


def test_a_refused_charge_takes_nothing(path):
    ledger = Ledger.create(path, epsilon=0.25, delta=1e-6, filter="basic")
    ledger.charge(RELEASE)
    for refused in (
        replace(RELEASE, private=False),
        replace(RELEASE, neighbours=Neighbours("add_remove")),
        replace(RELEASE, epsilon=0.2),
        replace(RELEASE, epsilon=float("nan")),
        replace(RELEASE, epsilon=float("inf")),
        replace(RELEASE, epsilon=-0.1),
        replace(RELEASE, epsilon=10**400),
        replace(RELEASE, epsilon="0.1"),
        replace(RELEASE, delta=1.0),
        replace(RELEASE, neighbours=Neighbours("replace", "patient")),
    ):
        with pytest.raises((BudgetExceeded, LedgerRefused, InvalidInput)):
            ledger.charge(refused)
    assert ledger.spent().epsilon == 0.1 and ledger.state().charges == 1


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (replace(RELEASE, private=False), "leave `random_state`"),
        (replace(RELEASE, neighbours=Neighbours("add_remove")), "pass `adjacency=replace`"),
        (
            replace(RELEASE, neighbours=Neighbours("replace", "patient")),
            "for persons, created with `unit=patient`",
        ),
    ],
)
def test_refusals_say_what_to_do(path, release, words):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")
    with pytest.raises(LedgerRefused, match=words) as caught:
        ledger.charge(release)
    assert "\n" not in str(caught.value)


def test_a_budget_for_persons_refuses_a_release_that_counts_rows(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, unit="patient", filter="basic")
    with pytest.raises(
        LedgerRefused, match="all rows of one 'patient' together and the release counts every"
    ):
        ledger.charge(RELEASE)
    ledger.charge(replace(RELEASE, neighbours=Neighbours("replace", "patient")))
    assert ledger.state().charges == 1


@pytest.mark.parametrize("label", ["two\nlines", "x" * 201, "\x1b[31m", 7])
def test_labels_are_one_printable_line(path, label):
    with pytest.raises(InvalidInput, match="label"):
        Ledger.create(path, epsilon=1, delta=1e-6, filter="basic").charge(RELEASE, label=label)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": float("nan")},
        {"epsilon": 10**5000},
        {"epsilon": True},
        {"delta": "1e-6"},
        {"delta": 10**5000},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"adjacency": "both"},
        {"filter": "pld"},
        {"unit": "two\nlines"},
        {"filter": "zcdp"},
    ],
)
def test_create_checks_its_arguments_and_leaves_no_file(path, wrong):
    with pytest.raises(InvalidInput):
        Ledger.create(path, **{"epsilon": 1.0, "delta": 1e-6, **wrong})
    assert list(path.parent.iterdir()) == []


def test_create_never_overwrites(path):
    Ledger.create(path, epsilon=1, delta=1e-6, filter="basic").charge(RELEASE)
    before = path.read_bytes()
    with pytest.raises(LedgerRefused, match="never overwritten"):
        Ledger.create(path, epsilon=100, delta=1e-6, filter="basic")
    assert path.read_bytes() == before


def test_create_in_a_missing_folder_says_so(tmp_path):
    with pytest.raises(LedgerUnreadable, match="folder that exists"):
        Ledger.create(tmp_path / "nowhere" / "budget.db", epsilon=1, delta=1e-6, filter="basic")


def test_a_failed_creation_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("curvedp.release.ledger.storage._TABLES", "CREATE TABLE budget (;")
    with pytest.raises(LedgerUnreadable, match="cannot create"):
        Ledger.create(tmp_path / "budget.db", epsilon=1, delta=1e-6, filter="basic")
    assert list(tmp_path.iterdir()) == []


def test_copies_and_pickles_share_the_file(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")
    for twin in (copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger)), Ledger(path)):
        twin.charge(RELEASE)
    assert ledger.spent().epsilon == 0.3


def test_odd_file_names_work(tmp_path):
    path = tmp_path / "été ? 100% #1.db"
    Ledger.create(path, epsilon=1, delta=1e-6, filter="basic").charge(RELEASE)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, f"{path.name}-lock"]
    assert Ledger(path).spent().epsilon == 0.1


def test_a_name_that_could_steer_a_terminal_is_spelled_out(tmp_path):
    with pytest.raises(LedgerUnreadable) as caught:
        Ledger(tmp_path / "a\x1b[31m\nb.db")
    assert str(caught.value).isprintable() and "\\x1b[31m\\nb.db" in str(caught.value)


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
    assert not list(tmp_path.glob("*-lock"))  # what is no ledger gets no lock beside it


def _edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(";".join(statements))
    connection.close()


@pytest.mark.parametrize("table", ["entries", "budget"])
@pytest.mark.parametrize("verb", ["DELETE FROM {}", "UPDATE {} SET digest = ''"])
def test_charges_and_budget_are_final(path, table, verb):
    Ledger.create(path, epsilon=1, delta=1e-6, filter="basic").charge(RELEASE)
    with pytest.raises(sqlite3.IntegrityError, match="final"):
        _edit(path, verb.format(table))


def test_a_locked_file_says_so(path, monkeypatch):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")
    monkeypatch.setattr("curvedp.release.ledger.opening.BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerUnreadable, match="stayed locked"):
        ledger.charge(RELEASE)
    other.close()
    ledger.charge(RELEASE)


def test_commits_are_synchronous_and_journalled(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")
    seen = {}
    with transaction(ledger.path) as connection:
        for pragma in ("journal_mode", "synchronous"):
            seen[pragma] = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    assert seen == {"journal_mode": "delete", "synchronous": 3}


def test_the_gaussian_filter_adds_squares_and_says_what_would_fit(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    total = Fraction(boxes(1.0, 1e-6)[0].mu) ** 2
    affordable = int(total / Fraction(MU) ** 2)
    for _ in range(affordable):
        ledger.charge(GAUSSIAN)
    with pytest.raises(
        BudgetExceeded, match=r"with this δ a Gaussian one of ε = 0\.1\d+ would: ask for less"
    ):
        ledger.charge(replace(GAUSSIAN, delta=1e-6))
    with pytest.raises(BudgetExceeded, match=r"with this δ a purely private one of ε = 0\.0\d+ would"):
        ledger.charge(replace(GAUSSIAN, delta=0.0))
    state, left = ledger.state(), ledger.remaining()
    assert state.spent.mu == pytest.approx(MU * affordable**0.5, rel=1e-15)
    assert (state.spent.epsilon, state.spent.delta, state.charges) == (0.0, 0.0, affordable)
    assert 0.98 < state.spent_epsilon < 1.0 and state.spent_delta == 1e-6
    assert state.left == f"no more than one release at ε = {float(f'{left.epsilon:.3g}'):g}, δ = 1e-06"
    ledger.charge(gaussian(left.epsilon, left.delta))  # granted, as it says
    assert ledger.remaining().epsilon < 1e-6
    assert Fraction(ledger.spent().epsilon) <= 1


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 9), (0.25, 122)])
def test_a_budget_of_3_pays_nine_fits_at_1_or_122_at_a_quarter(path, epsilon, count):
    """As fits are: their excess is charged, too, and in the first box there is room for it."""
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-5)
    excess = 1e-11
    fit = Release(epsilon, 1e-6, costs=(Cost(calibrate_mu(epsilon, 1e-6 - excess), 0.0, excess),))
    assert ledger.state().left == "about 9 more releases at ε = 1, or 122 at ε = 0.25, δ = 1e-06"
    for _ in range(count):
        ledger.charge(fit)
    with pytest.raises(BudgetExceeded):
        ledger.charge(fit)
    assert ledger.state().charges == count


def test_what_is_not_gaussian_is_charged_what_leaves_most(path):
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-5)
    for epsilon in (0.05, 0.6, 0.05):  # pure: small ones by μ, large ones by ε
        ledger.charge(Release(epsilon, 0.0, costs=(Cost(pure_mu(epsilon)),)))
    ledger.charge(Release(1.0, 1e-6, costs=(Cost(2.0, 0.0, 1e-9), Cost(0.0, 0.8, 1e-9))))
    charged = [(charge.mu > 0, charge.charged_epsilon) for charge in ledger.history()]
    assert charged == [(True, 0.0), (False, 0.6), (False, 0.05), (False, 0.8)]
    with pytest.raises(BudgetExceeded):  # (1, 1e-6) as it is stated has more δ than is set aside
        ledger.charge(Release(1.0, 1e-6))
    ledger.charge(gaussian(0.5, 1e-6))


def test_what_is_no_cost_is_refused(path):
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-5)
    for wrong in (Cost(-1.0), Cost(float("nan")), Cost(0.1, float("inf")), Cost(0.1, 0.0, "0")):
        with pytest.raises(InvalidInput, match="three finite numbers"):
            ledger.charge(replace(RELEASE, costs=(wrong,)))
    assert ledger.state().charges == 0


def test_a_stop_while_charging_says_that_the_charge_may_stand(path, monkeypatch):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("curvedp.release.ledger.storage.append", stop)
        with pytest.raises(StoppedAfterCharge, match=r"ε = 0\.1, δ = 1e-07 were charged, which may be spent"):
            ledger.charge(RELEASE)
    with monkeypatch.context() as patch:
        patch.setattr("curvedp.release.ledger.storage.position", stop)
        with pytest.raises(KeyboardInterrupt) as caught:
            ledger.charge(RELEASE)
        assert caught.type is KeyboardInterrupt
    ledger.charge(RELEASE)  # and the lock is free
