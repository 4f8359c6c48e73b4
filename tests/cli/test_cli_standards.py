"""`curvedp report --registry --nist`: files for a registry and for an authority, made from the model file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.releases import document, guarantee

from curvedp.release.ledger import Ledger
from curvedp.release.ledger.storage import Fingerprint

Run = Callable[..., Any]


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    return Ledger(tmp_path / "budget.db", by="Ada")


@pytest.fixture
def model(tmp_path: Path, book: Ledger) -> Path:
    path = tmp_path / "model.json"
    receipt = book.charge(guarantee())
    made = document(receipt=receipt)
    book.keep(receipt, Fingerprint.of(made.to_dict()))
    made.save(path)
    return path


def test_both_files_are_written_and_no_page_that_was_not_asked_for(
    run: Run, model: Path, book: Ledger
) -> None:
    registry, nist = model.with_name("release.yaml"), model.with_name("nist.html")
    result = run("report", model, "--registry", registry, "--nist", nist, "--ledger", book.path)
    assert result.exit_code == 0, result.output
    assert f"Registry entry written to {registry}" in result.stdout.replace("\n", "")
    assert "a person still has to fill in" in result.stdout and "  justification: why this ε" in result.stdout
    entry = yaml.safe_load(registry.read_text("utf-8"))
    head = book.on_record(1).receipt.head
    assert head in entry["deployment"]["implementation"]["composition"]
    assert head in nist.read_text("utf-8")
    assert not model.with_suffix(".html").exists()


def test_json_names_what_was_written(run: Run, model: Path) -> None:
    registry = model.with_name("release.yaml")
    shown = json.loads(run("report", model, "--registry", registry, "--json").stdout)
    assert (shown["registry"], shown["nist"], shown["report"]) == (str(registry), None, None)
    assert "registry_authors: who fills in this entry" in shown["to_fill_in"]
    assert json.loads(run("report", model, "--force", "--json").stdout)["to_fill_in"] == []


def test_an_existing_file_stays_unless_forced(run: Run, model: Path) -> None:
    registry = model.with_name("release.yaml")
    registry.write_text("mine", "utf-8")
    assert run("report", model, "--registry", registry).exit_code == 2
    assert registry.read_text("utf-8") == "mine"
    assert run("report", model, "--registry", registry, "--force").exit_code == 0
    assert run("report", model, "--registry", model, "--force").exit_code == 2  # it is an input


def test_another_ledger_or_a_rewritten_one_is_refused_and_nothing_written(
    run: Run, model: Path, book: Ledger
) -> None:
    other = Ledger.create(model.with_name("other.db"), epsilon=3, delta=1e-5)
    registry = model.with_name("release.yaml")
    result = run("report", model, "--registry", registry, "--ledger", other.path)
    assert result.exit_code == 2 and "pass that one" in result.stderr and not registry.exists()
    connection = sqlite3.connect(book.path)
    connection.executescript("DROP TRIGGER entries_stand; UPDATE entries SET content = '{}'")
    connection.close()
    assert run("report", model, "--registry", registry, "--ledger", book.path).exit_code == 2
    assert not registry.exists()
