"""`curvedp ledger`: what it prints, and that nothing printed is read as markup."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.charges import Release, gaussian

from curvedp.release.ledger import Ledger

Run = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "b [bold] :smile:.db"


@pytest.fixture
def spent(path: Path) -> Path:
    ledger = Ledger.create(path, epsilon=3, delta=1e-5, filter="basic")
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
    document = json.loads(run("ledger", "show", spent, "--json", "--history").stdout)
    assert (document["spent_epsilon"], document["charges"], document["unit"]) == (0.3, 3, None)
    assert [charge["label"] for charge in document["history"]] == ["search [/x]"] * 2 + ["final [bold]"]
    assert [(s["label"], s["charges"], s["epsilon"]) for s in document["subtotals"]] == [
        ("search [/x]", 2, 0.2),
        ("final [bold]", 1, 0.1),
    ]
    assert "history" not in json.loads(run("ledger", "show", spent, "--json").stdout)


def test_quiet_prints_nothing_but_errors(run: Run, spent: Path, tmp_path: Path) -> None:
    assert run("ledger", "show", spent, "--quiet").output == ""
    assert run("ledger", "verify", spent, "--quiet").output == ""
    new = tmp_path / "new.db"
    assert run("ledger", "create", new, "--epsilon", 1, "--delta", 1e-6, "--quiet").output == ""
    assert new.exists()
    result = run("ledger", "show", tmp_path / "none.db", "--quiet")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "no ledger at" in result.stderr


def test_verify_says_that_everything_was_verified(run: Run, spent: Path) -> None:
    assert "verified" not in run("ledger", "show", spent).stdout
    result = run("ledger", "verify", spent)
    assert result.exit_code == 0
    assert "charges: 3; every charge, sum and page verified" in result.stdout
    assert f"head: {Ledger(spent).state().digest}" in result.stdout
    assert "pass it as HEAD" in result.stdout  # what it cannot notice without one


def test_show_prints_the_head_that_verify_finds_later(run: Run, spent: Path) -> None:
    shown = run("ledger", "show", spent).stdout
    (head,) = [line.split()[1] for line in shown.splitlines() if line.startswith("head: ")]
    assert f"ledger {Ledger(spent).state().ledger}" in shown
    Ledger(spent, by="Ada [/x]", purpose="wages").charge(Release())
    result = run("ledger", "verify", spent, head)
    time = Ledger(spent).history()[2].time
    assert result.exit_code == 0
    assert f"HEAD is that of charge 3, {time}; charges after it: 1" in result.stdout
    newest = run("ledger", "verify", spent, Ledger(spent).state().digest).stdout
    assert "HEAD is that of charge 4" in newest and "by Ada [/x], for: wages; charges after it: 0" in newest
    document = json.loads(run("ledger", "verify", spent, head, "--json").stdout)
    assert (document["sound"], document["charges"], document["after"]) == (True, 4, 1)
    assert (document["found"]["charge"], document["found"]["head"]) == (3, head)


def test_the_head_of_the_new_ledger_is_found(run: Run, path: Path) -> None:
    made = Ledger.create(path, epsilon=1, delta=1e-6, filter="basic")
    head = made.state().digest
    made.charge(Release())
    assert "the new ledger, before any charge" in run("ledger", "verify", path, head).stdout


@pytest.mark.parametrize("how", [(), ("--quiet",), ("--json",)])
def test_a_head_that_was_never_there_is_exit_code_1_and_one_sentence(
    run: Run, spent: Path, how: tuple[str, ...]
) -> None:
    result = run("ledger", "verify", spent, "0" * 64, *how)
    assert result.exit_code == 1
    words = json.loads(result.stdout)["reason"] if how == ("--json",) else result.stderr
    assert "never had the head" in words and "rewritten" in words and words.count("\n") <= 1


def test_damage_is_exit_code_1_and_a_missing_file_2(run: Run, spent: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(spent)
    connection.executescript("DROP TRIGGER entries_stand; UPDATE entries SET content = '{}' WHERE id = 1")
    connection.close()
    result = run("ledger", "verify", spent)
    assert (result.exit_code, result.stdout) == (1, "") and "is damaged" in result.stderr
    assert run("ledger", "verify", tmp_path / "none.db").exit_code == 2


def test_what_is_no_head_is_a_wrong_command_line(run: Run, spent: Path) -> None:
    result = run("ledger", "verify", spent, "abc")
    assert result.exit_code == 2 and "64 hexadecimal digits" in result.stderr


def test_history_says_who_and_why_where_the_operator_said_so(run: Run, spent: Path) -> None:
    assert "purpose" not in run("ledger", "show", spent, "--history").stdout
    Ledger(spent, by="Ada [/x]", purpose="wages :smile:").charge(Release())
    shown = run("ledger", "show", spent, "--history").stdout
    for text in ("purpose", "Ada [/x]", "wages :smile:"):
        assert text in shown
    document = json.loads(run("ledger", "show", spent, "--history", "--json").stdout)
    assert [(c["by"], c["purpose"]) for c in document["history"]] == [("", "")] * 3 + [
        ("Ada [/x]", "wages :smile:")
    ]
    state = Ledger(spent).state()
    assert (document["digest"], document["ledger"]) == (state.digest, state.ledger)


def test_show_says_what_is_left_and_draws_the_curve_that_is_spent(run: Run, path: Path) -> None:
    result = run("ledger", "create", path, "--epsilon", 3, "--delta", 1e-5)
    assert "pays for about 9 more releases at ε = 1, or 122 at ε = 0.25, δ = 1e-06" in result.stdout
    for _ in range(3):
        Ledger(path).charge(gaussian(1.0, 1e-6))
    shown = run("ledger", "show", path).stdout
    assert "Left: about 6 more releases at ε = 1, or 82 at ε = 0.25, δ = 1e-06" in shown
    spent, in_all = (
        next(x for x in shown.splitlines() if x.strip().startswith(n)) for n in ("spent", "in all")
    )
    assert "█" in spent and spent.rstrip().endswith("▁") and len(spent.rstrip()) < len(in_all.rstrip())
    document = json.loads(run("ledger", "show", path, "--json").stdout)
    assert document["left"].startswith("about 6 more") and document["spent"]["mu"] > 0
    basic = path.with_name("basic.db")
    run("ledger", "create", basic, "--epsilon", 3, "--delta", 1e-5, "--filter", "basic")
    shown = run("ledger", "show", basic).stdout
    assert "Left: about 3 more releases at ε = 1, or 10 at ε = 0.25" in shown and "in all" not in shown


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
        ("--epsilon", 1, "--delta", 1e-6, "--unit", "a\nb"),
        ("--epsilon", 1, "--delta", 1e-6, "--adjacency", "both"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(run: Run, path: Path, arguments: tuple[Any, ...]) -> None:
    result = run("ledger", "create", path, *arguments)
    assert result.exit_code == 2
    assert result.stdout == "" and result.stderr.count("\n") == 1 and result.stderr.startswith("Error: ")
    assert list(path.parent.iterdir()) == []
