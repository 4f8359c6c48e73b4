"""`curvedp report`: the page of a release, made later from its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from curvedp.release.ledger import Ledger

Run = Callable[..., Result]


@pytest.fixture
def released(run: Run, folder: Path) -> Path:
    """A fit with its report, in the folder."""
    result = run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *(
            "--ledger",
            folder / "budget.db",
            "--out",
            folder / "model.json",
            "--report",
            folder / "report.html",
        ),
    )
    assert result.exit_code == 0, result.output
    return folder


def test_the_page_is_that_of_the_fit(run: Run, released: Path) -> None:
    ledger = ("--ledger", released / "budget.db")
    result = run("report", released / "model.json", "--out", released / "later.html", *ledger)
    assert result.exit_code == 0, result.output
    later = (released / "later.html").read_text("utf-8")
    assert later == (released / "report.html").read_text("utf-8")
    book = Ledger(released / "budget.db")
    assert book.state().charges == 1 and book.state().digest in later
    assert "Nobody stated where" in result.stdout and "Report written to" in result.stdout


def test_without_a_ledger_the_receipt_is_still_there(run: Run, released: Path) -> None:
    result = run("report", released / "model.json")
    assert result.exit_code == 0, result.output
    page = (released / "model.html").read_text("utf-8")
    assert Ledger(released / "budget.db").on_record(1).receipt.head in page and 'id="ledger"' not in page


def test_another_ledger_is_named_and_a_rewritten_one_is_not_excused(run: Run, released: Path) -> None:
    other = Ledger.create(released / "other.db", epsilon=1.0, delta=1e-6)
    result = run("report", released / "model.json", "--ledger", other.path, "--out", released / "x.html")
    assert result.exit_code == 2 and not (released / "x.html").exists()
    said = " ".join(result.stderr.split())
    book = Ledger(released / "budget.db")
    assert (
        f"is of ledger {book.state().ledger} and this is ledger {other.state().ledger}: pass that one" in said
    )
    path = released / "model.json"
    path.write_text(path.read_text().replace(book.on_record(1).receipt.head, "0" * 64))
    result = run("report", path, "--ledger", released / "budget.db", "--out", released / "x.html")
    assert result.exit_code == 2 and "record.receipt.head differs" in " ".join(result.stderr.split())


def test_the_page_says_what_the_schema_says_a_row_is(released: Path) -> None:
    assert 'record = "one row is one person"' in (released / "schema.toml").read_text()
    page = (released / "report.html").read_text("utf-8")
    assert "Declared: one row is one person." in page and "one row is one record" not in page


def test_a_fit_that_promises_little_says_so_on_the_screen(run: Run, folder: Path) -> None:
    fit = (
        "fit",
        folder / "data.csv",
        "--schema",
        folder / "schema.toml",
        "--out",
        folder / "m.json",
        "--force",
    )
    weak, usual = (run(*fit, "--epsilon", e, "--delta", d) for e, d in ((50, 0.1), (1, 1e-6)))
    assert weak.exit_code == usual.exit_code == 0
    assert "promise very little" in weak.stdout and "promise very little" not in usual.stdout


def test_json_has_warnings_and_the_record(run: Run, released: Path) -> None:
    result = run("report", released / "model.json", "--json", "--out", released / "r.html")
    document = json.loads(result.stdout)
    assert document["report"] == str(released / "r.html") and document["guarantee"]["epsilon"] == 1.0
    assert [found["level"] for found in document["warnings"]] == ["amber"]
    assert document["record"]["receipt"]["charge"] == 1
    quiet = run("report", released / "model.json", "--quiet", "--force", "--out", released / "r.html")
    assert quiet.exit_code == 0 and quiet.output == ""


def test_nothing_is_overwritten_without_force(run: Run, released: Path) -> None:
    before = (released / "report.html").read_bytes()
    result = run("report", released / "model.json", "--out", released / "report.html")
    assert result.exit_code == 2 and "--force" in result.output
    result = run("report", released / "model.json", "--out", released / "model.json", "--force")
    assert result.exit_code == 2 and "same file as the model" in result.output
    ledger = ("--ledger", released / "budget.db")
    result = run("report", released / "model.json", "--out", released / "budget.db", *ledger, "--force")
    assert result.exit_code == 2
    assert (released / "report.html").read_bytes() == before
    assert run("report", released / "data.csv").exit_code == 2
    assert not (released / "data.html").exists() and not list(released.glob(".curvedp-*"))


def test_what_the_schema_states_and_the_rows_that_were_declared_are_filed(run: Run, folder: Path) -> None:
    text = (folder / "schema.toml").read_text()
    stated = '[release]\ntable = "register, 2024"\naudience = "everybody"\n\n'
    (folder / "schema.toml").write_text(text.replace("[[column]]", stated + "[[column]]", 1))
    result = run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-3),
        *("--rows", 2000, "--out", folder / "model.json", "--report", folder / "report.html"),
    )
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "model.json").read_text())["schema"]["release"] == {
        "table": "register, 2024",
        "audience": "everybody",
        "rows": 2000,
    }
    for page in ("report.html", "model.html"):
        if page == "model.html":
            assert run("report", folder / "model.json").exit_code == 0
        html = (folder / page).read_text("utf-8")
        assert "register, 2024" in html and "1/2,000" in html and "No ledger was charged" in html
