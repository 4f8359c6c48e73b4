"""`curvedp check`: what a new user sees of a table with decimal commas, and what costs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curvedp.release.ledger import Ledger

Run = Callable[..., Any]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def commas(folder: Path) -> Path:
    """The same table with decimal commas, between semicolons."""
    text = (folder / "data.csv").read_text().replace(",", ";").replace(".", ",")
    (folder / "commas.csv").write_text(text.replace("public", "Public"))
    return folder / "commas.csv"


def arguments(folder: Path, data: Path | None = None, *more: object) -> tuple[object, ...]:
    return ("check", data or folder / "data.csv", "--schema", folder / "schema.toml", *more)


def test_decimal_commas_and_a_spelling_are_found(run: Run, folder: Path, commas: Path) -> None:
    more = ("--epsilon", 0.5, "--delimiter", ";", "--ledger", folder / "budget.db")
    result = run(*arguments(folder, commas, *more))
    assert result.exit_code == 0, result.output
    shown = words(result.stdout)
    for column in ("age", "wage"):
        assert f"of '{column}' could not be read: is the decimal sign a comma?" in shown
    assert "of 'sector' name a level that is not declared: compare the spelling" in shown
    assert "In 2,000 rows, shares of" in shown and "Ledger: ε = 2.5" in shown
    assert "secret" not in result.output and "note" not in shown
    (charge,) = Ledger(folder / "budget.db").history()
    assert (charge.epsilon, charge.delta, charge.label) == (0.5, 1e-6, "check")


def test_a_table_as_declared_has_nothing_unusual(run: Run, folder: Path) -> None:
    document = json.loads(run(*arguments(folder, None, "--epsilon", 1, "--json", "--seed", 1)).stdout)
    assert document["unusual"] == [] and list(document["verdicts"]) == ["age", "sector", "wage"]
    assert all(verdict.startswith("nothing unusual") for verdict in document["verdicts"].values())
    assert document["rows"] == 2000 and not document["rows_are_noisy"]
    assert set(document["shares"]["share"]) == {None}
    assert set(document["shares"]["low"]) == {0} and max(document["shares"]["high"]) < 0.05
    assert document["guarantee"]["theorem"] == "(C-1)" and document["remaining_epsilon"] is None


def test_classes_of_another_target_are_shared_out(run: Run, folder: Path) -> None:
    more = ("--target", "sector", "--epsilon", 2, "--json", "--seed", 1)
    document = json.loads(run(*arguments(folder, None, *more)).stdout)
    assert "Classes: 'private' 59.9 %, 'public' 40.0 %" in document["verdicts"]["sector"]
    assert document["guarantee"]["private"] is False


def test_a_page_shows_every_share(run: Run, folder: Path, commas: Path) -> None:
    page = folder / "page.html"
    more = ("--epsilon", 0.5, "--delimiter", ";", "--report", page)
    result = run(*arguments(folder, commas, *more))
    assert f"Page written to {page}." in result.stdout
    text = page.read_text(encoding="utf-8")
    assert "is the decimal sign a comma?" in text and "below the bounds" in text and text.count("<rect") == 12
    again = run(*arguments(folder, commas, *more))
    assert again.exit_code == 2 and "--force" in again.stderr


def test_a_dry_run_charges_nothing(run: Run, folder: Path) -> None:
    more = ("--epsilon", 0.5, "--ledger", folder / "budget.db", "--dry-run")
    assert "In 2,000 rows, shares of" in words(run(*arguments(folder, None, *more)).stdout)
    assert "In 90,000 rows, shares of" in words(run(*arguments(folder, None, *more, "--rows", 90_000)).stdout)
    document = json.loads(run(*arguments(folder, None, *more, "--json")).stdout)
    assert set(document) == {"outlook", "guarantee"}
    text = (folder / "schema.toml").read_text().replace('"replace"', '"add_remove"')
    (folder / "schema.toml").write_text(text)
    assert "Cells of one kind can be seen from about" in words(run(*arguments(folder, None, *more)).stdout)
    assert not Ledger(folder / "budget.db").history()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--epsilon", 0.001), "In 2,000 rows this check could not see"),
        (("--epsilon", 1, "--rows", 10), "in 10 rows this check could not see"),
        (("--epsilon", 1, "--rows", 0), "rows must be the whole number"),
        (("--epsilon", 1, "--delimiter", ";"), "no column 'age'"),
        (("--epsilon", 1, "--seed", 1), "never charged"),
        (("--epsilon", 30), "remains: ask for less"),
        (("--epsilon", 1, "--report", "schema.toml"), "is the same file as the schema"),
    ],
)
def test_refusals_are_one_line_and_cost_nothing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...], said: str
) -> None:
    monkeypatch.chdir(folder)
    result = run(*arguments(folder, None, *more, "--ledger", folder / "budget.db", "--json"))
    assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1
    assert said.lower() in result.stderr.lower()
    assert not Ledger(folder / "budget.db").history()


def test_a_refusal_speaks_of_options(run: Run, folder: Path) -> None:
    result = run(*arguments(folder, None, "--epsilon", 0.001))
    assert "Pass --epsilon 0." in result.stderr


def test_a_ledger_of_persons_refuses_a_check_of_rows(run: Run, folder: Path) -> None:
    Ledger.create(folder / "persons.db", epsilon=3, delta=1e-5, unit="person")
    result = run(*arguments(folder, None, "--epsilon", 1, "--ledger", folder / "persons.db"))
    assert result.exit_code == 2 and "all rows of one 'person' together" in result.stderr
    assert not Ledger(folder / "persons.db").history()


def test_quiet_prints_nothing(run: Run, folder: Path) -> None:
    result = run(*arguments(folder, None, "--epsilon", 1, "--quiet", "--report", folder / "check.html"))
    assert result.exit_code == 0 and result.output == "" and (folder / "check.html").is_file()
