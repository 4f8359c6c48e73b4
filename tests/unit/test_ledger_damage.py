"""A ledger file that is not as it was written: noticed before it can give budget back."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from curvedp.errors import LedgerUnreadable
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import Cost
from curvedp.release.ledger import Charge, Ledger, storage
from curvedp.release.ledger.opening import transaction
from curvedp.release.ledger.storage import Fingerprint

ROWS = Neighbours("replace")
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Release:
    epsilon: float = 0.1
    delta: float = 1e-7
    neighbours: Neighbours = ROWS
    mechanism: str = "qop"
    theorem: str = "(P-6)"
    private: bool = True
    costs: tuple[Cost, ...] = (Cost(0.01),)


@pytest.fixture
def path(tmp_path):
    """In memory where that can be had: a sync costs nothing there."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else tmp_path) as name:
        yield Path(name) / "budget.db"


def small_ledger(path: Path) -> Ledger:
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    receipts = [ledger.charge(Release(), label=f"model {number}") for number in range(3)]
    ledger.keep(receipts[0], Fingerprint.of({"a": 1, "b": {"c": 2}}))
    return ledger


def fill(ledger: Ledger, count: int) -> None:
    """Charge many times in one transaction."""
    with transaction(ledger.path, write=True) as connection:
        last, charge = (
            storage.position(connection),
            Charge(storage.now(), "qop", "", 1e-4, 0.0, 0.0, 1e-4, 0.0, ""),
        )
        for _ in range(count):
            last = storage.append(connection, last, charge)


def edit(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def require_noticed_or_harmless(path: Path, content: bytes, bits: list[int]) -> int:
    """Flip each bit: opening refuses, or the state is the old one. Returns how many were refused."""
    before = Ledger(path).state()
    refused = 0
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        try:
            assert Ledger(path).state() == before, f"bit {bit}"
        except LedgerUnreadable:
            refused += 1
    return refused


def test_a_flipped_bit_gives_no_budget_back(path):
    """One bit of every byte that is used, and all bits of the costs and totals."""
    small_ledger(path)
    content = path.read_bytes()
    used = [byte for byte, value in enumerate(content) if value]
    bits = [8 * byte + byte % 8 for byte in used]
    for text in (b"0.1", b"1e-07", b"1/10", b"3/10", b"1.0", b"1e-06"):
        start = content.find(text)
        while start >= 0:
            bits += range(8 * start, 8 * (start + len(text)))
            start = content.find(text, start + 1)
    assert len(bits) > 2000
    assert require_noticed_or_harmless(path, content, bits) > len(bits) / 2


@pytest.mark.full
def test_no_flipped_bit_gives_budget_back(path):
    small_ledger(path)
    content = path.read_bytes()
    assert require_noticed_or_harmless(path, content, list(range(8 * len(content)))) > 10_000


LAST = "(SELECT MAX(id) FROM entries)"
EDITS = "DROP TRIGGER entries_stand; UPDATE entries SET "


def content(name: str, value: str) -> str:
    return f"{EDITS} content = json_set(content, '$.{name}', {value})"


OLDER = [  # an edit of the past, which does not decide about the budget
    *(
        f"{content(name, value)} WHERE id = 1"
        for name, value in (
            ("epsilon", "0.01"),
            ("label", "'else'"),
            ("mu", "0.5"),
            ("by", "'else'"),
            ("purpose", "'else'"),
            ("nonce", "'00'"),
            ("mechanism", "'output'"),
        )
    ),
    f"{content('sha256', repr('0' * 64))} WHERE kind = 'document'",
    f"{content('fields.a', repr('0' * 16))} WHERE kind = 'document'",
    f"{EDITS} charge = 2 WHERE kind = 'document'",
    f"{EDITS} kind = 'page' WHERE kind = 'document'",
    "DROP TRIGGER entries_stay; DELETE FROM entries WHERE id = 1",
]
DECISIVE = [
    content("epsilon", "'lots'"),
    f"{EDITS} totals = json_set(totals, '$.epsilon', '0') WHERE id = {LAST}",
    f"{EDITS} totals = json_set(totals, '$.delta', '0') WHERE id = {LAST}",
    f"{EDITS} totals = json_set(totals, '$.charges', '0') WHERE id = {LAST}",
    f"DROP TRIGGER entries_stay; DELETE FROM entries WHERE id = {LAST}",
    "DROP TRIGGER entries_stay; DELETE FROM entries WHERE id = 3",
    "DROP TRIGGER entries_stay; DELETE FROM entries",
    f"INSERT INTO entries SELECT {LAST} + 1, kind, 4, content, totals, digest FROM entries WHERE id = 1",
    "DROP TRIGGER head_grows; UPDATE head SET entries = 2",
    "UPDATE head SET entries = 5",
    "DROP TRIGGER head_stays; DELETE FROM head",
    "DROP TRIGGER budget_stays; DELETE FROM budget",
    "DROP TRIGGER budget_stands; UPDATE budget SET epsilon = '100.0'",
    "DROP TRIGGER budget_stands; UPDATE budget SET filter = 'basic'",
    "DROP TRIGGER budget_stands; UPDATE budget SET unit = 'patient'",
    "DROP TRIGGER budget_stands; UPDATE budget SET nonce = ''",
    "DROP TABLE entries",
    "DROP TABLE head",
    "ALTER TABLE entries RENAME COLUMN content TO name",
]


@pytest.mark.parametrize("script", [*OLDER, *DECISIVE])
def test_an_edit_is_noticed_on_opening(path, script):
    small_ledger(path)
    edit(path, script)
    with pytest.raises(LedgerUnreadable, match="restore a backup"):
        Ledger(path)


@pytest.mark.parametrize("script", DECISIVE)
def test_an_edit_that_decides_about_the_budget_is_noticed_before_a_charge(path, script):
    ledger = small_ledger(path)
    edit(path, script)
    for use in (ledger.state, lambda: ledger.charge(Release())):
        with pytest.raises(LedgerUnreadable, match="restore a backup"):
            use()


def test_torn_pages_are_noticed(path):
    ledger = Ledger.create(path, epsilon=1000, delta=0.9)
    fill(ledger, 60)
    content = bytearray(path.read_bytes())
    content[-4096:] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(LedgerUnreadable, match="restore a backup"):
        Ledger(path)


def test_an_edit_of_old_history_gives_nothing_back_and_the_history_notices(path):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    fill(ledger, 1100)
    before = ledger.state()
    edit(path, f"{content('epsilon', '0.0')} WHERE id = 5")
    assert Ledger(path).state() == before  # only the newest 1,000 are read again on opening
    for reading in (ledger.history, ledger.subtotals, ledger.verify):
        with pytest.raises(LedgerUnreadable, match="restore a backup"):
            reading()


def test_the_digest_of_a_state_tells_histories_apart(path, monkeypatch):
    monkeypatch.setattr(storage, "now", lambda: "2025-01-01T00:00:00+00:00")
    monkeypatch.setattr(storage, "nonce", lambda: "00")
    digests = []
    for number, label in enumerate(("a", "b")):
        ledger = Ledger.create(path.with_name(f"{number}.db"), epsilon=1, delta=1e-6)
        digests.append(ledger.state().digest)
        ledger.charge(Release(), label=label)
        ledger.charge(Release())
        digests.append(ledger.state().digest)
    assert digests[0] == digests[2] and len(set(digests)) == 3


def test_a_wrong_total_with_sound_hashes_is_found_by_verify(path, monkeypatch):
    ledger = Ledger.create(path, epsilon=1, delta=1e-6)
    ledger.charge(Release())
    ledger.verify()
    monkeypatch.setattr("curvedp.release.ledger.filters.Tally.plus", lambda self, *_: type(self)(charges=2))
    ledger.charge(Release())
    monkeypatch.undo()
    assert ledger.history()
    with pytest.raises(LedgerUnreadable, match="restore a backup"):
        ledger.verify()


def opening_time(path: Path, charges: int) -> float:
    ledger = Ledger.create(path, epsilon=1e6, delta=0.0)
    fill(ledger, charges)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        state = Ledger(path).state()
        times.append(time.perf_counter() - start)
    assert state.charges == charges
    start = time.perf_counter()
    ledger.charge(Release(delta=0.0))
    assert time.perf_counter() - start < 0.5
    return min(times)


def test_opening_does_not_slow_down_with_the_history(path):
    assert opening_time(path, 20_000) < 0.1


@pytest.mark.full
def test_a_million_charges_open_in_half_a_second(path):
    assert opening_time(path, 1_000_000) < 0.5
