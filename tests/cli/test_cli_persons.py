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


LOOKS = {
    "check": (("check", "--epsilon", 1, "--report", "look.html"), "persons (noisy), noise of", "rows on"),
    "describe": (("describe", *BUDGET, "--report", "look.html"), "persons, released under", "records"),
    "bounds": (("bounds", "--columns", "a", "--epsilon", 1, "--force"), "persons below", "values below"),
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("rows", ["all", "one"])
def test_looks_count_persons_and_say_so(
    run: Run, place: Path, name: str, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "schema.toml").write_text(f'rows_per_person = "{rows}"\n{SCHEMA}')
    command, said, not_said = LOOKS[name]
    shared = ("data.csv", "--schema", "schema.toml", "--ledger", "budget.db")
    result = run(command[0], *shared, *command[1:])
    assert result.exit_code == 0, result.stderr
    words = " ".join(result.stdout.split())
    assert said in words and not_said not in words and "Every person counts once" in words
    page = (place / "look.html").read_text("utf-8") if "look.html" in command else ""
    assert "secret" not in page + result.stdout + result.stderr
    assert not page or ("persons" in page and "one record" not in page and "one person with all rows" in page)
    assert [charge.epsilon for charge in Ledger(place / "budget.db").history()] == [1]


def test_bounds_without_a_schema_are_those_of_the_ledgers_persons(run: Run, place: Path) -> None:
    command = ("bounds", place / "data.csv", "--columns", "a", "--epsilon", 1)
    result = run(*command, "--ledger", place / "budget.db", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["guarantee"]["unit"] == "person"
    outlook = run(*command, "--ledger", place / "budget.db", "--rows", 300, "--dry-run").stdout
    assert "persons of 300 have it" in " ".join(outlook.split())


def test_the_number_of_persons_is_public_where_they_are_replaced(run: Run, place: Path) -> None:
    (place / "schema.toml").write_text(SCHEMA.replace("add_remove", "replace"))
    options = ("--schema", place / "schema.toml", "--epsilon", 1, "--dry-run")
    result = run("check", place / "data.csv", *options)
    assert "In 300 persons, shares of" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "command",
    [
        ("fit", *BUDGET, "--out", "model.json", "--mechanism", "qop"),
    ],
    ids=["qop"],
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
    monkeypatch.setattr("curvedp_studies.forecasts.CANDIDATES", (("recentered", "auto"), ("qop", "auto")))
    result = run("plan", "--schema", place / "schema.toml", "--rows", 3000, *BUDGET, "--trials", 20)
    assert result.exit_code == 0, result.stderr
    assert "No intervals" not in result.stdout
    assert "Rows are persons here" in result.stdout
    assert "recentered" in result.stdout and "may have several" in " ".join(result.stdout.split())
    assert "qop: this protects" in " ".join(result.stdout.split())


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


def test_a_fit_without_the_unit_says_so(run: Run, place: Path) -> None:
    schema = place / "rows.toml"
    schema.write_text(SCHEMA.replace('unit = "person"\n', ""))
    fit = ("fit", place / "data.csv", "--schema", schema, *BUDGET, "--no-inference")
    result = run(*fit, "--out", place / "model.json", "--report", place / "page.html")
    words = (
        "No unit is named, and 'person' may say whose row it is: a person with several rows is then "
        'protected row by row only; write unit = "person" at the top of the schema.'
    )
    assert result.exit_code == 0 and " ".join(result.stdout.split()).count(words) == 1
    assert "PrivacyWarning" not in result.stderr
    page = unescape((place / "page.html").read_text("utf-8"))
    assert words in page and "Ignored, and so no feature: person." in page
    told = json.loads(run(*fit, "--out", place / "other.json", "--json").stdout)["warnings"]
    assert {"level": "amber", "text": words} in told
    result = run("schema", "--check", schema)
    assert result.exit_code == 0 and f"{words[0].lower()}{words[1:-1]}" in " ".join(result.stdout.split())


def test_a_fit_prints_the_cautions_of_its_report_and_says_nothing_twice(run: Run, place: Path) -> None:
    schema = place / "levels.toml"
    levels = ", ".join(f'"l{i}"' for i in range(100))
    schema.write_text(SCHEMA.replace("b = [-1, 1]", f"b = [{levels}]"))
    fit = (
        "fit",
        place / "data.csv",
        "--schema",
        schema,
        *BUDGET,
        "--ledger",
        place / "budget.db",
        "--no-inference",
    )
    result = run(*fit, "--out", place / "model.json", "--report", place / "page.html")
    said, page = " ".join(result.stdout.split()), unescape((place / "page.html").read_text("utf-8"))
    for words in ("b has 100 levels: with few persons in each", "No check was charged to this ledger"):
        assert said.count(words) == 1 and page.count(words) == 1, words
    assert "Nobody stated where" in page and "Nobody stated where" not in said  # its operator knows
    result = run(*fit[:-3], "--out", place / "other.json", "--seed", 1)
    said = " ".join(result.stdout.split())
    assert said.count("NOT private") == 1 and "Not a private release" not in said
    assert said.count("No ledger was charged") == 1


def test_a_ledger_for_persons_says_what_it_pays_for(run: Run, tmp_path: Path) -> None:
    result = run("ledger", "create", tmp_path / "b.db", *BUDGET, "--unit", "pid")
    said = " ".join(result.stdout.split())
    assert "check, bounds, describe, fit, search and score alike" in said and 'unit = "pid"' in said
    assert "alike" not in run("ledger", "create", tmp_path / "c.db", *BUDGET).stdout


def test_ledgers_refuse_the_other_kind_with_the_next_step(run: Run, place: Path) -> None:
    run("ledger", "create", place / "rows.db", *BUDGET, "--adjacency", "add_remove")
    fit = ("fit", place / "data.csv", *BUDGET, "--out", place / "model.json")
    result = run(*fit, "--schema", place / "schema.toml", "--ledger", place / "rows.db")
    assert result.exit_code == 2
    assert "charge a ledger for persons, created with --unit person" in " ".join(result.stderr.split())
    (place / "rows.toml").write_text(SCHEMA.replace('unit = "person"\n', ""))
    result = run(*fit, "--schema", place / "rows.toml", "--ledger", place / "budget.db")
    assert result.exit_code == 2 and 'declare the same unit, unit = "person" in the schema' in " ".join(
        result.stderr.split()
    )


def test_a_score_counts_persons_and_is_charged_for_them(run: Run, place: Path) -> None:
    paths = ("--out", place / "model.json")
    assert run("fit", place / "data.csv", "--schema", place / "schema.toml", *BUDGET, *paths).exit_code == 0
    Ledger.create(place / "rows.db", epsilon=3, delta=1e-5, adjacency="add_remove")
    scored, page = ("score", place / "model.json", place / "data.csv", *BUDGET), place / "score.html"
    assert run(*scored, "--ledger", place / "rows.db").exit_code != 0
    result = run(*scored, "--ledger", place / "budget.db", "--report", page)
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "persons" in said and "Every person counts once" in said and "rows of one 'person'" in said
    assert "secret" not in said + page.read_text("utf-8") and "persons scored" in page.read_text("utf-8")
    found = json.loads(run(*scored, "--json").stdout)
    assert found["counted"] == "persons" and abs(found["overall"]["count"]["value"] - 300) < 120
    assert [charge.epsilon for charge in Ledger(place / "budget.db").history()] == [1]
    assert not Ledger(place / "rows.db").history()
