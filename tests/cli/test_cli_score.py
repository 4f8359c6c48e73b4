"""`curvedp score` as people use it: a model file, private rows, one charge, a table, JSON, a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from curvedp.release.ledger import Ledger

Run = Callable[..., Result]
CHART = '<svg class="chart"'

HIRED = """\
adjacency = "add_remove"
target = "hired"

[[column]]
name = "age"
kind = "numeric"
bounds = [16, 80]

[[column]]
name = "sector"
kind = "categorical"
levels = ["private", "public"]

[[column]]
name = "region"
kind = "ignored"

[[column]]
name = "hired"
kind = "categorical"
levels = ["no", "yes"]
"""


@pytest.fixture
def wages(folder: Path, run: Run) -> Path:
    """model.json: wages by age and sector, fitted to data.csv."""
    found = run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--out", folder / "model.json", "--quiet"),
    )
    assert found.exit_code == 0, found.stderr
    return folder


@pytest.fixture
def hired(tmp_path: Path, run: Run) -> Path:
    """model.json of a category, and test.csv."""
    random = np.random.default_rng(3)
    for name, n in (("train", 4000), ("test", 4000)):
        lines = ["age,sector,region,hired"]
        for _ in range(n):
            age, public = random.uniform(16, 80), random.random() < 0.4
            yes = random.random() < 1 / (1 + np.exp(-0.1 * (age - 45) - public))
            region = random.choice(["north", "south"])
            lines.append(f"{age:.1f},{'public' if public else 'private'},{region},{'yes' if yes else 'no'}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "hired.toml").write_text(HIRED)
    found = run(
        *(
            "fit",
            tmp_path / "train.csv",
            "--schema",
            tmp_path / "hired.toml",
            "--epsilon",
            2,
            "--delta",
            1e-6,
        ),
        *("--out", tmp_path / "model.json", "--quiet"),
    )
    assert found.exit_code == 0, found.stderr
    Ledger.create(tmp_path / "budget.db", epsilon=3.0, delta=1e-5, adjacency="add_remove")
    return tmp_path


def test_a_regression_is_scored_and_charged_once(wages: Path, run: Run) -> None:
    found = run(
        *("score", wages / "model.json", wages / "data.csv", "--epsilon", 1, "--delta", 1e-6),
        *("--ledger", wages / "budget.db", "--group", "sector", "--report", wages / "score.html"),
    )
    assert found.exit_code == 0, found.stderr
    assert "R²" in found.stdout and "RMSE" in found.stdout and "By sector" in found.stdout
    assert "Ledger: ε = 2" in found.stdout and "(V-1)" in found.stdout
    assert [entry.label for entry in Ledger(wages / "budget.db").history()] == ["scores"]
    page = (wages / "score.html").read_text()
    assert page.count(CHART) == 2 and "secret" not in page


def test_a_classifier_as_json(hired: Path, run: Run) -> None:
    found = run("score", hired / "model.json", hired / "test.csv", "--epsilon", 1, "--json")
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    scores = document["overall"]["scores"]
    assert {"auc", "accuracy", "brier", "log_loss", "recall of yes"} <= scores.keys()
    assert 0.6 < scores["auc"]["low"] < scores["auc"]["value"] < scores["auc"]["high"] < 0.95
    assert document["classes"] == ["no", "yes"] and len(document["overall"]["confusion"]) == 2
    assert document["guarantee"]["epsilon"] == 1.0 and document["remaining_epsilon"] is None
    assert {"roc", "precision recall", "calibration"} == document["overall"]["curves"].keys()


def test_levels_that_the_schema_does_not_declare(hired: Path, run: Run) -> None:
    command = ("score", hired / "model.json", hired / "test.csv", "--epsilon", 1, "--group", "region")
    refused = run(*command)
    assert refused.exit_code == 2 and "--levels" in refused.stderr
    found = run(*command, "--levels", "north,south")
    assert found.exit_code == 0, found.stderr
    assert "north" in found.stdout and "By region" in found.stdout


def test_every_refusal_comes_before_the_charge(hired: Path, run: Run) -> None:
    model, rows, book = hired / "model.json", hired / "test.csv", hired / "budget.db"
    (hired / "other.csv").write_text("height,hired\n1,yes\n")
    cases = [
        ((model, hired / "other.csv", "--epsilon", 1), "no column 'age'"),
        ((model, rows, "--epsilon", 0.01, "--rows", 500), "drowns"),
        ((model, rows, "--epsilon", 1, "--group", "agee"), "not a column"),
        ((model, rows, "--epsilon", 1, "--group", "hired"), "is the target"),
        ((model, rows, "--epsilon", 1, "--levels", "a,b"), "--group"),
        ((model, rows, "--epsilon", -1), "epsilon"),
        ((rows, rows, "--epsilon", 1), "model file"),
        ((model, hired / "nothing.csv", "--epsilon", 1), "cannot read"),
        ((model, rows, "--epsilon", 1, "--report", rows), "same file"),
        ((model, rows, "--epsilon", 1, "--seed", 1), "seed"),
        ((model, rows, "--epsilon", 4), "4"),
    ]
    for arguments, words in cases:
        found = run("score", *arguments, "--ledger", book)
        assert found.exit_code == 2, arguments
        assert words in found.stderr, (arguments, found.stderr)
        assert found.stderr.count("\n") == 1
    assert not Ledger(book).history()


def test_a_seed_says_that_it_is_not_private(hired: Path, run: Run) -> None:
    command = ("score", hired / "model.json", hired / "test.csv", "--epsilon", 0.5, "--seed", 5)
    first, second = run(*command), run(*command)
    assert first.stdout == second.stdout and "NOT private" in first.stdout
    assert run(*command, "--quiet").stdout == ""


def test_a_parquet_file_is_scored_as_its_csv_file(run: Run, hired: Path) -> None:
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(hired / "test.csv"), hired / "test.parquet")
    found = []
    for name in ("test.csv", "test.parquet"):
        options = ("--epsilon", 1, "--group", "region", "--levels", "north,south", "--seed", 3, "--json")
        result = run("score", hired / "model.json", hired / name, *options)
        assert result.exit_code == 0, result.stderr
        found.append(json.loads(result.stdout))
    assert found[0] == found[1]
