"""`curvedp ledger`: what it prints, and that nothing printed is read as markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.charges import Release

from curvedp.ledger import Ledger

Run = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "b [bold] :smile:.db"


@pytest.fixture
def spent(path: Path) -> Path:
    ledger = Ledger.create(path, epsilon=3, delta=1e-5)
    for label in ("search [/x]", "search [/x]", "final [bold]"):
        ledger.charge(Release(), label=label)
    return path


def test_labels_and_paths_are_printed_as_they_are(run: Run, spent: Path) -> None:
    result = run("ledger", "show", spent, "--history")
    assert result.exit_code == 0
    for text in ("[bold] :smile:.db", "search [/x]", "final [bold]"):
        assert text in result.stdout


def test_history_says_what_a_search_cost_in_all(run: Run, spent: Path) -> None:
    page = run("ledger", "show", spent, "--history").stdout.partition("In all")[2]
    lines = [
        [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in page.splitlines()
    ]
    assert ["search [/x]", "qop", "2", "0.2", "2e-07"] in lines
    assert ["final [bold]", "qop", "1", "0.1", "1e-07"] in lines
    assert ["all", "", "3", "0.3", "3e-07"] in lines


def test_json_holds_the_state_the_history_and_the_subtotals(run: Run, spent: Path) -> None:
    document = json.loads(run("ledger", "show", spent, "--json", "--history", "--verify").stdout)
    assert (document["spent_epsilon"], document["charges"], document["unit"]) == (0.3, 3, None)
    assert [charge["label"] for charge in document["history"]] == ["search [/x]"] * 2 + ["final [bold]"]
    assert [(s["label"], s["charges"], s["epsilon"]) for s in document["subtotals"]] == [
        ("search [/x]", 2, 0.2),
        ("final [bold]", 1, 0.1),
    ]
    assert "history" not in json.loads(run("ledger", "show", spent, "--json").stdout)


def test_quiet_prints_nothing_but_errors(run: Run, spent: Path, tmp_path: Path) -> None:
    assert run("ledger", "show", spent, "--quiet", "--verify").output == ""
    new = tmp_path / "new.db"
    assert run("ledger", "create", new, "--epsilon", 1, "--delta", 1e-6, "--quiet").output == ""
    assert new.exists()
    result = run("ledger", "show", tmp_path / "none.db", "--quiet")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "no ledger at" in result.stderr


def test_verify_says_that_everything_was_verified(run: Run, spent: Path) -> None:
    assert "verified" not in run("ledger", "show", spent).stdout
    assert (
        "charges: 3; every charge, sum and page verified" in run("ledger", "show", spent, "--verify").stdout
    )


def test_a_zcdp_ledger_says_beforehand_that_the_default_fit_will_be_refused(run: Run, path: Path) -> None:
    amounts = ("--epsilon", 1, "--delta", 1e-6)
    result = run("ledger", "create", path, *amounts, "--filter", "zcdp")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "The default fit (recentered) has none and will be refused: pass --mechanism" in words
    other = path.with_name("other.db")
    (note,) = json.loads(run("ledger", "create", other, *amounts, "--filter", "zcdp", "--json").stdout)[
        "notes"
    ]
    assert "recentered" in note
    assert "recentered" not in run("ledger", "create", path.with_name("basic.db"), *amounts).stdout
    assert "ρ" in run("ledger", "show", path).stdout


def test_a_ledger_for_persons_says_so(run: Run, path: Path) -> None:
    result = run("ledger", "create", path, "--epsilon", 1, "--delta", 1e-6, "--unit", "patient [/x]")
    assert "rows of one patient [/x] together" in result.stdout
    assert "rows of one patient [/x] together" in run("ledger", "show", path).stdout
    assert Ledger(path).state().unit == "patient [/x]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epsilon", 0, "--delta", 1e-6),
        ("--epsilon", "nan", "--delta", 1e-6),
        ("--epsilon", 1, "--delta", 1),
        ("--epsilon", 1, "--delta", 0, "--filter", "zcdp"),
        ("--epsilon", 1, "--delta", 1e-6, "--unit", "a\nb"),
        ("--epsilon", 1, "--delta", 1e-6, "--adjacency", "both"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(run: Run, path: Path, arguments: tuple[Any, ...]) -> None:
    result = run("ledger", "create", path, *arguments)
    assert result.exit_code == 2
    assert result.stdout == "" and result.stderr.count("\n") == 1 and result.stderr.startswith("Error: ")
    assert list(path.parent.iterdir()) == []
