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


def test_an_audit_that_finds_nothing_is_not_green(run: Run) -> None:
    result = run("audit", "--mechanism", "qop", "--fits", 2000, "--features", 2, "--json")
    assert result.exit_code == 3, result.stderr
    found = json.loads(result.stdout)
    assert found["beaten"] is False and found["epsilon_lower"] <= found["epsilon"] == 1.0
    assert (found["mechanism"], found["features"], found["adjacency"]) == ("qop", 2, "replace")
    assert found["verdict"] == "inconclusive" and found["share"] < 0.5 and found["reason"]


@pytest.mark.parametrize(
    ("proved", "code", "words"),
    [
        (1.5, 1, "Refuted: an attack proves ε ≥ 1.5"),
        (0.87, 0, "Held, and the attack had power: proved 0.87 of the claimed ε = 1."),
        (0.25, 3, "About 40,000 fits are needed to prove 0.5 of the claim; 100 were made."),
    ],
)
def test_the_exit_code_says_the_verdict(
    run: Run, monkeypatch: pytest.MonkeyPatch, proved: float, code: int, words: str
) -> None:
    found = replace(REPORT, attacks=(replace(REPORT.attacks[0], epsilon=proved),), reach=0.9, needed=40_000)
    monkeypatch.setattr("curvedp.audit.grid.audit", lambda mechanism, **options: found)
    result = run("audit")
    assert result.exit_code == code and words in result.stdout
    assert ("Do not release" in result.stdout) == (code == 1)
    assert run("audit", "--quiet").output == "" and run("audit", "--quiet").exit_code == code


def test_a_grid_ends_with_the_worst_and_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved = {"recentered": 0.9, "qop": 0.1, "lop": 1.7}
    asked: list[dict[str, Any]] = []

    def fake(mechanism: Any, **options: Any) -> AuditReport:
        asked.append(options)
        shown = (replace(REPORT.attacks[0], epsilon=proved.get(mechanism.name, 0.8)),)
        told = {"features": options["features"], "adjacency": options["problem"].domain.adjacency}
        return replace(REPORT, mechanism=mechanism.name, attacks=shown, **told)

    monkeypatch.setattr("curvedp.audit.grid.audit", fake)
    folder = tmp_path / "audits"
    result = run("audit", "--full", "--features", 2, "--time-limit", 9, "--resume", folder)
    assert (
        result.exit_code == 1 and "refuted: lop " in result.stdout and "inconclusive: qop " in result.stdout
    )
    told = json.loads((folder / "audits.json").read_text())
    assert len(told) == len(asked) and {one["verdict"] for one in told} == {"refuted", "held", "inconclusive"}
    assert all(options["time_limit"] == 9 and options["resume_path"].parent == folder for options in asked)
    assert len({options["resume_path"] for options in asked}) == len(asked)
    assert result.stderr.count("\n") == len(asked) and "recentered squared replace d=2: held" in result.stderr
    proved["lop"] = 0.8
    assert run("audit", "--full", "--features", 2, "--quiet").exit_code == 3
    proved["qop"] = 0.8
    done = run("audit", "--full", "--features", 2, "--json")
    assert done.exit_code == 0 and {one["verdict"] for one in json.loads(done.stdout)} == {"held"}


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
    assert "Refuted" in page.read_text() and "1.500" in page.read_text()
    assert asked["mechanism"].name == "recentered"
    assert asked["problem"].loss.name == "logistic" and asked["problem"].domain.adjacency == "add_remove"
    assert (asked["fits"], asked["features"]) == (7, 2)
    assert 0 < asked["time_limit"] < 3.0  # what is left of it once the command got there


def test_ctrl_c_says_what_is_kept(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = 2

    def stopped(mechanism: object, progress: Callable[[int, int], None], **options: Any) -> AuditReport:
        nonlocal whole
        whole -= 1
        if whole >= 0:
            return REPORT
        progress(1_200_000, 9_000_000)
        raise KeyboardInterrupt

    monkeypatch.setattr("curvedp.audit.grid.audit", stopped)
    folder = tmp_path / "audits"
    result = run("audit", "--full", "--features", 2, "--resume", folder)
    last = result.stderr.splitlines()[-1]
    kept = f"2 whole audits and counts of 1,200,000 fits are kept in {folder}"
    assert result.exit_code == 130 and last == f"Stopped: {kept}; run the same command again to go on."
    assert len(json.loads((folder / "audits.json").read_text())) == 2
    result = run("audit", "--resume", tmp_path / "counts")
    assert result.exit_code == 130 and result.stderr.startswith(
        "Stopped: counts of 1,200,000 fits are kept in "
    )
    result = run("audit")
    assert result.exit_code == 130 and "nothing is kept" in result.stderr and "--resume FILE" in result.stderr


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
    assert result.exit_code == 3 and "Inconclusive" in result.stdout
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
        (("--full", "--model", tmp_path / "m.json"), "leave --model out"),
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
