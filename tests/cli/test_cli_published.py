"""What people publish, on the command line: ratios, a table for other programs, a word about 0 and 1."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from curvedp import load
from curvedp.release.ledger import Ledger

Run = Callable[..., Result]
SCHEMA = """\
target = "status"

[columns]
age = [16, 80]
sector = {levels = {public = ["Public"], private = ["p"]}, reference = "private", fold_case = true}
status = ["control", "case"]
died = [0, 1]
"""


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    lines = ["age,sector,status,died"]
    for _ in range(4_000):
        age, public = random.uniform(16, 80), random.random() < 0.4
        case = random.random() < 1 / (1 + np.exp(-(-2 + 0.04 * age - 0.8 * public)))
        sector = random.choice(["PUBLIC", "public"] if public else ["p", "Private"])
        lines.append(f"{age:.1f},{sector},{'case' if case else 'control'},{int(case)}")
    (tmp_path / "data.csv").write_text("\n".join(lines), "utf-8")
    (tmp_path / "schema.toml").write_text(SCHEMA, "utf-8")
    Ledger.create(tmp_path / "budget.db", epsilon=20.0, delta=1e-4)
    return tmp_path


def fit(run: Run, folder: Path, *more: object) -> Result:
    return run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 8, "--delta", 1e-6),
        *("--ledger", folder / "budget.db", "--out", folder / "model.json", *more),
    )


def test_ratios_are_printed_written_and_shown(run: Run, cases: Path) -> None:
    wanted = (
        "--formula",
        "status ~ age + sector",
        "--tidy",
        cases / "table.csv",
        "--report",
        cases / "r.html",
    )
    result = fit(run, cases, "--odds-ratios", *wanted)
    assert result.exit_code == 0, result.stderr
    model = load(cases / "model.json")
    assert model.event_ == "case" and "status: case against control" in result.stdout
    assert str(model.summary(exp=True)).removeprefix("PrivateLogisticRegression") in result.stdout
    with open(cases / "table.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = model.tidy(exp=True)
    assert list(rows[0]) == list(found) and [row["term"] for row in rows] == list(found.term)
    assert rows[1]["term"] == "sector=public vs private"
    np.testing.assert_allclose([float(row["conf.low"]) for row in rows], found["conf.low"])
    assert 0.3 < float(rows[1]["estimate"]) < 0.65  # e^-0.8
    assert "Odds ratios with their 95 % intervals" in (cases / "r.html").read_text("utf-8")


def test_coefficients_are_written_where_no_ratios_are_asked_for(run: Run, cases: Path) -> None:
    result = fit(run, cases, "--formula", "status ~ age", "--tidy", cases / "table.csv", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["event"] == "case" and found["inference"]["name"] == ["age", "(intercept)"]
    assert (cases / "table.csv").read_text("utf-8").splitlines()[1].startswith("age,0.0")


def test_a_model_without_ratios_is_refused_before_the_charge(run: Run, cases: Path) -> None:
    for more in (("--target", "died"), ("--model", "svc")):
        result = fit(run, cases, *more, "--ratios")
        assert result.exit_code == 2 and "ratios are for a logistic model" in result.stderr
    assert Ledger(cases / "budget.db").state().charges == 0 and not (cases / "model.json").exists()


WORD = "linear probability model: declare it boolean for odds"


def test_a_number_from_0_to_1_is_said_to_be_one(run: Run, cases: Path) -> None:
    for more in ((), ("--model", "ridge")):
        wanted = (
            "--formula",
            "died ~ age",
            "--target",
            "died",
            "--report",
            cases / "r.html",
            "--force",
            *more,
        )
        result = fit(run, cases, *wanted)
        assert result.exit_code == 0, result.stderr
        assert WORD in " ".join(result.stdout.split()) and WORD in (cases / "r.html").read_text("utf-8")
    text = (cases / "schema.toml").read_text("utf-8").replace('target = "status"', 'target = "died"')
    (cases / "schema.toml").write_text(text, "utf-8")
    result = run("schema", "--check", cases / "schema.toml")
    assert result.exit_code == 0 and WORD in " ".join(result.stdout.split())
