"""Ledger files of other formats are refused and left alone, and the message says how to go on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from curvedp.errors import LedgerDamaged, LedgerUnreadable
from curvedp.release.ledger import Ledger, storage


def with_format(path: Path, number: int) -> Path:
    Ledger.create(path, epsilon=1, delta=1e-6)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={number}")
    connection.close()
    return path


@pytest.mark.parametrize("number", range(1, storage.FORMAT))
def test_an_earlier_format_is_refused_and_says_how_to_go_on(tmp_path: Path, number: int) -> None:
    path = with_format(tmp_path / "budget.db", number)
    before = path.read_bytes()
    with pytest.raises(
        LedgerUnreadable, match=r"ledger show.*create a new ledger of no more than that"
    ) as caught:
        Ledger(path)
    assert not isinstance(caught.value, LedgerDamaged) and f"format {number}" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "words"), [(storage.FORMAT + 1, "upgrade curvedp"), (0, "damaged"), (-1, "damaged")]
)
def test_formats_that_nobody_wrote_yet_are_refused(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(LedgerUnreadable, match=words):
        Ledger(with_format(tmp_path / "budget.db", number))
