"""`audit`, `compare` and `reproduce` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from curvedp.audit import Attack, AuditReport

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

    monkeypatch.setattr("curvedp.audit.audit", fake)
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
        "--html",
        page,
    )
    result = run("audit", *options)
    assert result.exit_code == 1
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

    monkeypatch.setattr("curvedp.audit.audit", fake)
    result = run("audit", "--model", folder / "model.json")
    assert result.exit_code == 0 and "No attack beat the claim" in result.stdout
    mechanism = asked["mechanism"]
    assert (mechanism.epsilon, mechanism.delta, mechanism.accounting) == (0.7, 1e-5, "spectral")
    assert asked["features"] == 4 and asked["problem"].loss.name == "squared"  # age, two levels, intercept


def test_compare_on_a_table_with_a_schema(run: Run, folder: Path) -> None:
    tables = folder / "tables"
    tables.mkdir()
    (tables / "people.csv").write_text((folder / "data.csv").read_text())
    (tables / "people.toml").write_text((folder / "schema.toml").read_text())
    result = run(
        *("compare", "--data", tables, "--mechanisms", "qop,statistics", "--epsilon", "1", "--seeds", 1),
        *("--workers", 1, "--out", folder / "results", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    written = [Path(path) for path in json.loads(result.stdout)["written"]]
    assert {path.suffix for path in written} >= {".csv", ".png", ".html"}
    assert all(path.stat().st_size > 0 for path in written)


def test_compare_refuses_in_one_line(run: Run, tmp_path: Path) -> None:
    for arguments, words in [
        (("--data", tmp_path / "nowhere"), "no folder"),
        (("--data", tmp_path, "--epsilon", "a,b"), "not a list of numbers"),
        (("--data", tmp_path, "--datasets", "x", "--mechanisms", "magic"), "magic"),
    ]:
        result = run("compare", *arguments, "--out", tmp_path / "results")
        assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("what", ["figure1", "figure2", "tables"])
def test_reproduce_calls_the_study(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fake(name: str, folder: Path, *, progress: Callable[[int, int], None]) -> list[Path]:
        progress(1, 2)
        return [folder / f"{name}.csv"]

    monkeypatch.setattr(import_module("curvedp.studies.reproduce"), "reproduce", fake)
    result = run("reproduce", what, "--out", tmp_path)
    assert result.exit_code == 0 and result.stdout.split() == [str(tmp_path / f"{what}.csv")]


def test_reproduce_knows_what_there_is(run: Run, tmp_path: Path) -> None:
    result = run("reproduce", "figure9", "--out", tmp_path)
    assert result.exit_code == 2 and "'figure1', 'figure2', 'tables'" in result.stderr
