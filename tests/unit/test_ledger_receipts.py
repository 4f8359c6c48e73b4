"""Receipts: where a release was charged, by whom and why, and that the history up to there still stands."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from tests.charges import Release

from curvedp import Budget, Problem
from curvedp.data.rows import make_rows
from curvedp.errors import InvalidInput, LedgerDamaged, LedgerRefused
from curvedp.mechanisms import Recentered
from curvedp.problems.losses import Squared
from curvedp.release.door import execute
from curvedp.release.ledger import Ledger, Receipt, storage
from curvedp.release.ledger.storage import Fingerprint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    Ledger.create(path, epsilon=3, delta=1e-5, filter="basic")
    return path


def test_a_receipt_says_where_the_charge_stands(path: Path) -> None:
    ledger = Ledger(path, by="Ada", purpose="wages of 2025")
    first, second = ledger.charge(Release()), ledger.charge(Release(), label="again")
    state, (_, line) = ledger.state(), ledger.history()
    assert second == Receipt(state.ledger, 2, state.digest, line.time, "Ada", "wages of 2025")
    assert (first.charge, first.ledger) == (1, second.ledger) and first.head != second.head
    assert (line.by, line.purpose, line.label) == ("Ada", "wages of 2025", "again")


def test_a_release_carries_the_receipt_of_its_ledger(path: Path) -> None:
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
    problem = Problem(Squared())
    plan = Recentered().plan(problem, 2, Budget(1.0, 1e-6))
    rows = make_rows(X, X[:, 0], problem.domain)
    ledger = Ledger(path, by="Ada")
    released = execute(plan, rows, ledger=ledger)
    assert released.receipt is not None
    assert (released.receipt.head, released.receipt.charge) == (ledger.state().digest, 1)
    assert execute(plan, rows).receipt is None


def test_two_ledgers_of_one_second_and_one_budget_have_their_own_ids(tmp_path: Path) -> None:
    made = [
        Ledger.create(tmp_path / f"{k}.db", epsilon=1, delta=1e-6, filter="basic").state() for k in range(20)
    ]
    assert len({state.ledger for state in made}) == len({state.digest for state in made}) == 20


def test_pickles_and_the_representation_keep_who_and_why(path: Path) -> None:
    ledger = pickle.loads(pickle.dumps(Ledger(path, by="Ada", purpose="a model")))
    assert repr(ledger) == f"Ledger({str(path)!r}, by='Ada', purpose='a model')"
    assert repr(Ledger(path)) == f"Ledger({str(path)!r})"
    assert (ledger.charge(Release()).by, ledger.history()[0].purpose) == ("Ada", "a model")


@pytest.mark.parametrize("text", ["two\nlines", "x" * 201, "\x1b[31m", 7])
@pytest.mark.parametrize("name", ["by", "purpose"])
def test_who_and_why_are_one_printable_line(path: Path, name: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be one printable line"):
        Ledger(path, **{name: text})


def test_every_head_there_ever_was_is_found_with_its_charge(path: Path) -> None:
    ledger = Ledger(path, by="Ada")
    heads = [ledger.state().digest]
    receipts = [ledger.charge(Release(), label=str(k)) for k in range(5)]
    heads += [receipt.head for receipt in receipts]
    assert len(set(heads)) == 6
    for number, head in enumerate(heads):
        found = ledger.verify(f"  {head.upper()}\n")
        assert found.found is not None
        assert (found.found.charge, found.found.head, found.after) == (number, head, 5 - number)
        assert number == 0 or found.found == receipts[number - 1]
    assert (found.charges, found.head) == (5, heads[-1])
    assert ledger.verify().found is None and ledger.verify().after is None


def test_a_head_of_another_ledger_is_not_found(path: Path, tmp_path: Path) -> None:
    other = Ledger.create(tmp_path / "other.db", epsilon=3, delta=1e-5, filter="basic").charge(Release())
    Ledger(path).charge(Release())
    with pytest.raises(LedgerDamaged, match="never had the head") as caught:
        Ledger(path).verify(other.head)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", ["", "abc", "0" * 63, "g" * 64, "0" * 48, 7])
def test_what_is_no_head_is_refused(path: Path, head: str) -> None:
    with pytest.raises(InvalidInput, match="copy all of them"):
        Ledger(path).verify(head)


def test_a_receipt_is_plain_text_and_numbers(path: Path) -> None:
    assert [type(part) for part in astuple(Ledger(path).charge(Release()))] == [str, int, str, str, str, str]


def test_two_copies_that_are_charged_alike_in_one_second_have_different_heads(
    path: Path, monkeypatch
) -> None:
    """Else a head that was kept elsewhere could not tell a spent copy from the ledger."""
    monkeypatch.setattr(storage, "now", lambda: "2026-01-01T00:00:00+00:00")
    copy = Path(shutil.copy(path, path.with_name("copy.db")))
    first, second = (Ledger(name).charge(Release()) for name in (path, copy))
    assert replace(first, head="") == replace(second, head="") and first.head != second.head


def test_what_a_charge_released_is_kept_once_and_joins_the_chain(path: Path) -> None:
    ledger = Ledger(path)
    first, second = ledger.charge(Release(), label="a"), ledger.charge(Release(), label="b")
    mark = Fingerprint.of({"theta": [1.0, 2.0], "guarantee": {"epsilon": 1.0}})
    ledger.keep(first, mark)  # after another charge: releases end when they end
    head = ledger.state().digest
    assert head != second.head and ledger.state().charges == 2
    assert [ledger.verify(known).found.charge for known in (first.head, second.head, head)] == [1, 2, 2]
    found = ledger.on_record(1)
    assert found is not None and found.document is not None and found.page is None
    assert (found.receipt, found.charge.label) == (first, "a")
    assert (found.document.sha256, found.document.fields) == (mark.sha256, mark.fields)
    assert (
        ledger.on_record(2).document is None and ledger.on_record(3) is None and ledger.on_record(0) is None
    )
    with pytest.raises(LedgerRefused, match="is on record and stays"):
        ledger.keep(first, Fingerprint.of({"theta": [3.0]}))
    ledger.keep(first, Fingerprint.of({"page": ""}), page=True)
    assert ledger.on_record(1).document == found.document and ledger.on_record(1).page is not None
    assert [charge.label for charge in ledger.history()] == ["a", "b"] and ledger.verify().charges == 2


def test_only_the_ledger_that_gave_a_receipt_keeps_its_release(path: Path) -> None:
    receipt = Ledger(path).charge(Release())
    for other in (replace(receipt, ledger="0" * 12), replace(receipt, charge=2), replace(receipt, charge=0)):
        with pytest.raises(LedgerRefused, match="did not give that receipt"):
            Ledger(path).keep(other, Fingerprint.of({}))


def test_a_fingerprint_is_of_every_value_and_of_nothing_else() -> None:
    document = {"a": {"b": 1.0, "c": [1, "x", None]}, "d": True, "e": {}}
    same = {"e": {}, "d": True, "a": {"c": [1, "x", None], "b": 1.0}}
    mark = Fingerprint.of(document)
    assert Fingerprint.of(same) == mark and set(mark.fields) == {"a.b", "a.c", "d", "e"}
    edits = [
        ({**document, "a": {"b": 1.0, "c": [1, "x", 0]}}, {"a.c"}),
        ({**document, "a": {"b": 1.0 + 2**-52, "c": [1, "x", None]}}, {"a.b"}),
        ({**document, "d": 1}, {"d"}),
        ({**document, "e": {"f": None}}, {"e", "e.f"}),
        ({"a": document["a"], "d": True}, {"e"}),
    ]
    for edited, names in edits:
        other = Fingerprint.of(edited)
        assert other.sha256 != mark.sha256
        assert {
            n for n in {*mark.fields, *other.fields} if mark.fields.get(n) != other.fields.get(n)
        } == names
    assert Fingerprint.of({"a": {"b": 1}}).sha256 != Fingerprint.of({"a.b": 1}).sha256
    assert Fingerprint.of({"a": float("nan")}) == Fingerprint.of({"a": None})  # as JSON writes it
