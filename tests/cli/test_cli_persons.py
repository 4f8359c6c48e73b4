"""`unit` in the schema, from the command line: whole persons are protected, and what is not is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from curvedp import load
from curvedp.release.ledger import Ledger

Run = Callable[..., Result]
SCHEMA = """
adjacency = "add_remove"
target = "y"
unit = "person"

[columns]
a = [-1, 1]
b = [-1, 1]
y = [-1, 1]
person = "ignored"
"""
BUDGET = ("--epsilon", 1, "--delta", 1e-6)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    a, b = random.uniform(-1, 1, (2, 900))
    lines = [f"secret-{i % 300},{a[i]},{b[i]},{a[i] / 2}\n" for i in random.permutation(900)]
    (tmp_path / "data.csv").write_text("person,a,b,y\n" + "".join(lines))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5, adjacency="add_remove", unit="person")
    return tmp_path


def test_a_fit_promises_a_person_and_shows_no_identifier(run: Run, place: Path) -> None:
    paths = ("--out", place / "model.json", "--report", place / "page.html", "--ledger", place / "budget.db")
    result = run("fit", place / "data.csv", "--schema", place / "schema.toml", *BUDGET, *paths)
    assert result.exit_code == 0, result.stderr
    assert "one person with all rows of one 'person' added or removed" in " ".join(result.stdout.split())
    page, model = (place / "page.html").read_text("utf-8"), (place / "model.json").read_text("utf-8")
    assert "one person" in page and "one record" not in page
    assert "secret" not in page + model + result.stdout + result.stderr
    assert load(place / "model.json").privacy_.neighbours.unit == "person"
    assert [charge.epsilon for charge in Ledger(place / "budget.db").history()] == [1]


@pytest.mark.parametrize(
    "command",
    [
        ("check", "--epsilon", 1),
        ("describe", *BUDGET),
        ("bounds", "--columns", "a", "--epsilon", 1, "--force"),
        ("fit", *BUDGET, "--out", "model.json", "--mechanism", "qop"),
        ("fit", *BUDGET, "--out", "model.json", "--engine", "dask"),
    ],
    ids=["check", "describe", "bounds", "qop", "dask"],
)
def test_what_bounds_rows_is_refused_before_the_charge(
    run: Run, place: Path, command: tuple, monkeypatch
) -> None:
    monkeypatch.chdir(place)
    name, *options = command
    ledger = ("--schema", "schema.toml", "--ledger", "budget.db")
    result = run(name, "data.csv", *ledger, *options)
    assert result.exit_code != 0 and "person" in result.stderr
    assert Ledger(place / "budget.db").state().spent_epsilon == 0


def test_a_plan_counts_persons(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvedp.planning.run.CANDIDATES", (("recentered", "auto"), ("statistics", "auto")))
    result = run("plan", "--schema", place / "schema.toml", "--rows", 3000, *BUDGET, "--trials", 20)
    assert result.exit_code == 0, result.stderr
    assert "No intervals" in result.stdout
    assert "Rows are persons here" in result.stdout
    assert "recentered" in result.stdout and "may have several" in " ".join(result.stdout.split())
    assert "statistics: this protects" in " ".join(result.stdout.split())
    assert "statistics: statistics" not in result.stdout


def test_a_verdict_says_that_rows_are_persons(run: Run, place: Path) -> None:
    paths = ("--out", place / "model.json", "--report", place / "page.html", "--rows", 900)
    result = run("fit", place / "data.csv", "--schema", place / "schema.toml", *BUDGET, *paths)
    assert result.exit_code == 0, result.stderr
    words = "Rows are persons here, one row of each 'person': declare their number."
    assert words in " ".join(result.stdout.split())
    assert words in unescape((place / "page.html").read_text("utf-8"))


def test_a_model_of_persons_is_audited_as_one(run: Run, place: Path) -> None:
    paths = ("--out", place / "model.json")
    assert run("fit", place / "data.csv", "--schema", place / "schema.toml", *BUDGET, *paths).exit_code == 0
    result = run("audit", "--model", place / "model.json", "--json")
    assert result.exit_code == 0, result.stdout
    found = json.loads(result.stdout)
    assert (found["theorem"], found["verdict"]) == ("(P-9)", "held") and found["total"] > 0.8
    result = run("score", place / "model.json", place / "data.csv", *BUDGET)
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "fit and score one row for each person" in said
