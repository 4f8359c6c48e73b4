"""`audit` from the command line, and commands of other distributions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from curvedp.audit import Attack, AuditReport
from curvedp.budget import Budget
from curvedp.cli import add_commands
from curvedp.cli.console import Commands

Run = Callable[..., Result]

REPORT = AuditReport(
    mechanism="qop",
    accounting="directional",
    theorem="(P-7j)",
    adjacency="replace",
    loss="squared",
    features=2,
    epsilon=1.0,
    delta=1e-3,
    confidence=0.99,
    fits=100,
    seconds=0.1,
    complete=True,
    pairs_tried=3,
    attacks=(Attack("aligned", "D' against D", "linear", 50, 0.5, 0.4, 0.25, 1e-4),),
)


def test_an_audit_that_finds_nothing(run: Run) -> None:
    result = run("audit", "--mechanism", "qop", "--fits", 2000, "--features", 2, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["beaten"] is False and found["epsilon_lower"] <= found["epsilon"] == 1.0
    assert (found["mechanism"], found["features"], found["adjacency"]) == ("qop", 2, "replace")


def test_exit_code_1_when_an_attack_wins(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def fake(mechanism: object, **options: Any) -> AuditReport:
        asked.update(options, mechanism=mechanism)
        return replace(REPORT, attacks=(replace(REPORT.attacks[0], epsilon=1.5),))

    monkeypatch.setattr("curvedp.audit.grid.audit", fake)
    page = tmp_path / "audit.html"
    options = (
        "--loss",
        "logistic",
        "--adjacency",
        "add_remove",
        "--fits",
        7,
        "--time-limit",
        3,
        "--report",
        page,
    )
    result = run("audit", *options)
    assert result.exit_code == 1, result.stderr
    assert "1 of 1 claims refuted" in page.read_text() and "1.500" in page.read_text()
    assert "BEATS the claim" in result.stdout and "1.5" in result.stdout
    assert asked["problem"].loss.name == "logistic" and asked["problem"].domain.adjacency == "add_remove"
    assert (asked["fits"], asked["time_limit"], asked["features"]) == (7, 3.0, 2)


def test_the_audit_of_a_model_file(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 0.7, "--delta", 1e-5),
        *("--mechanism", "qop", "--accounting", "spectral", "--out", folder / "model.json", "--quiet"),
    )
    asked: dict[str, Any] = {}

    def fake(mechanism: object, **options: Any) -> AuditReport:
        asked.update(options, mechanism=mechanism)
        return REPORT

    monkeypatch.setattr("curvedp.audit.grid.audit", fake)
    result = run("audit", "--model", folder / "model.json")
    assert result.exit_code == 0 and "No attack beat the claim" in result.stdout
    mechanism = asked["mechanism"]
    assert asked["budget"] == Budget(0.7, 1e-5) and mechanism.accounting == "spectral"
    assert asked["features"] == 4 and asked["problem"].loss.name == "squared"  # age, two levels, intercept


def test_refusals_of_an_audit_are_not_verdicts(run: Run, tmp_path: Path) -> None:
    for arguments, words in [
        (("--features", -1), "--features must be at least 1"),
        (("--features", 0), "--features must be at least 1"),
        (("--seed", -1), "--seed"),
        (("--mechanism", "magic"), "'auto', 'recentered'"),
        (("--loss", "magic"), "'squared', 'logistic'"),
        (("--mechanism", "output", "--accounting", "paper"), "has no accounting"),
        (("--full", "--model", tmp_path / "m.json"), "leave --model and --resume out"),
        (("--model", tmp_path / "m.json"), "cannot read"),
        (("--report", tmp_path / "a", "--png", tmp_path / "a"), "same file as --report"),
    ]:
        result = run("audit", *arguments)
        assert result.exit_code == 2, result.output
        assert words in result.stderr and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_commands_of_other_distributions_are_found_by_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "greetings.py").write_text("def hello():\n    print('hello')\n")
    monkeypatch.syspath_prepend(tmp_path)
    group = typer.Typer(cls=Commands)
    group.callback()(lambda: None)
    found = [EntryPoint("hello", "greetings:hello", "x"), EntryPoint("broken", "nowhere:hello", "x")]
    add_commands(group, found)
    assert CliRunner().invoke(group, ["hello"]).stdout == "hello\n"
    for command, words in [
        ("broken", "cannot be loaded (ModuleNotFoundError)"),
        ("compare", "pip install curvedp-studies"),
        ("reproduce", "pip install curvedp-studies"),
    ]:
        result = CliRunner(env={"COLUMNS": "200"}).invoke(group, [command, "figure1", "--folder", "x"])
        assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1
