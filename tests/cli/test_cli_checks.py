"""`audit` from the command line, and commands of other distributions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from curvedp.auditing import Answer, Audit
from curvedp.cli import add_commands
from curvedp.cli.console import Commands

Run = Callable[..., Result]

SOUND = Audit(
    name="recentered squared d=2, replace",
    theorem="(P-9)",
    adjacency="replace",
    epsilon=1.0,
    delta=1e-3,
    pairs=("one pair", "another"),
    replays=20,
    answers=(Answer("pilot", "μ", 0.1, 0.97, "another"),),
    total=0.95,
    total_pair="one pair",
    total_by="shift",
)
BROKEN = replace(SOUND, name="gradient", problems=("round: a record moves it by 2 times", "and more"))


def told(monkeypatch: pytest.MonkeyPatch, *audits: Audit) -> dict[str, Any]:
    asked: dict[str, Any] = {}

    def fake(budget: Any, **options: Any) -> Iterator[Audit]:
        asked.update(options, budget=budget)
        return iter(audits)

    monkeypatch.setattr("curvedp.auditing.cases.audit_everything", fake)
    return asked


def test_everything_held_is_green(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, SOUND, replace(SOUND, name="check", total=float("nan"), answers=()))
    result = run("audit", "--epsilon", 2.0, "--seed", 4)
    assert result.exit_code == 0 and "All 2 held on the pairs tried" in result.stdout
    assert asked["budget"].epsilon == 2.0 and asked["seed"] == 4 and asked["replays"] == 20
    documents = json.loads(run("audit", "--json").stdout)
    assert [d["verdict"] for d in documents] == ["held", "held"] and documents[1]["total"] is None
    assert run("audit", "--quiet").stdout == ""


def test_a_refuted_premise_ends_with_1_and_names_the_pair(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, SOUND, BROKEN)
    result = run("audit", "--report", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "gradient: Premise refuted: round: a record moves it by 2 times." in result.stdout
    assert "1 of 2 refuted" in result.stdout
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "1 of 2 refuted" in page and "another" in page and "and more" in page
    told(monkeypatch, BROKEN)
    result = run("audit", "--only", "gradient")
    assert result.exit_code == 1 and "Do not release with this." in result.stdout


@pytest.mark.parametrize(
    "mechanism", [("--mechanism", "qop", "--accounting", "spectral"), (), ("--no-inference",)]
)
def test_the_audit_of_a_model_file(run: Run, folder: Path, mechanism: tuple[str, ...]) -> None:
    fitted = run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 0.7, "--delta", 1e-5),
        *(*mechanism, "--out", folder / "model.json", "--quiet"),
    )
    assert fitted.exit_code == 0, fitted.stderr
    page = folder / "audit.html"
    asked = ("audit", "--model", folder / "model.json", "--transcripts", 100)
    result = run(*asked, "--json", "--report", page)
    assert result.exit_code == 0, result.stdout
    found = json.loads(result.stdout)
    assert found["sentence"].startswith("Held on the") and "Held on the" in page.read_text("utf-8")
    if not mechanism:
        assert "Held on the" in run(*asked).stdout
    assert (found["epsilon"], found["delta"]) == (0.7, 1e-5) and len(found["pairs"]) == 15
    assert not found["remarks"] and found["replays"] >= 15


def test_refusals_of_an_audit_are_not_verdicts(run: Run, tmp_path: Path) -> None:
    for arguments, words in [
        (("--seed", -1), "--seed"),
        (("--only", "magic"), "nothing that is released has 'magic' in its name"),
        (("--delta", 2.0), "delta"),
        (("--model", tmp_path / "m.json"), "cannot read"),
    ]:
        result = run("audit", *arguments)
        assert result.exit_code == 2, result.output
        assert words in result.stderr and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(budget: Any, **options: Any) -> Iterator[Audit]:
        raise KeyboardInterrupt

    monkeypatch.setattr("curvedp.auditing.cases.audit_everything", stopped)
    result = run("audit")
    assert result.exit_code == 130 and "Stopped" in result.stderr


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
