"""`curvedp fit --model poisson` with weights and an exposure, from a file to predictions."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from curvedp import load
from curvedp.cli import app

SCHEMA = """\
target = "visits"
weight = "w"
exposure = "days"

[[column]]
name = "age"
kind = "numeric"
bounds = [0, 100]

[[column]]
name = "days"
kind = "numeric"
bounds = [1, 30]

[[column]]
name = "w"
kind = "numeric"
bounds = [0, 5]

[[column]]
name = "visits"
kind = "numeric"
bounds = [0, 40]
"""


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    age, days, w = random.uniform(0, 100, 3000), random.uniform(1, 30, 3000), random.uniform(0, 5, 3000)
    visits = random.poisson(days * np.exp(0.01 * age - 1.5))
    with open(tmp_path / "data.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "days", "w", "visits"])
        writer.writerows(zip(age, days, w, visits, strict=True))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_counts_with_weights_and_an_exposure(folder):
    budget = ("--epsilon", 5, "--delta", 1e-6)
    table = (folder / "data.csv", "--schema", folder / "schema.toml", *budget)
    out = ("--out", folder / "model.json", "--report", folder / "report.html")
    done = run("fit", *table, *out, "--model", "poisson", "--max-rate", 20, "--seed", 1, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["features"] == ["age"]
    model = load(folder / "model.json")
    assert model.max_rate == 20.0 and model.schema_.roles == {"weight": "w", "exposure": "days"}
    assert model.coef_[0] == pytest.approx(0.01, abs=0.004)
    assert "weight w, exposure days" in (folder / "report.html").read_text()
    predicted = run("predict", folder / "model.json", folder / "data.csv", "--out", folder / "new.csv")
    assert predicted.exit_code == 0, predicted.output
    with open(folder / "new.csv") as file:
        values = [float(row[0]) for row in list(csv.reader(file))[1:]]
    np.testing.assert_allclose(values, model.predict(_columns(folder / "data.csv")), rtol=1e-9)


def _columns(path):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_what_the_model_has_no_place_for_is_refused(folder):
    table = (folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 5, "--delta", 1e-6)
    for model, more, words in (
        ("linear", (), "has no offset and no exposure: choose the model poisson"),
        ("poisson", ("--rows", 3000), "not for counts"),
        (
            "poisson",
            ("--formula", "log1p(visits) ~ age"),
            "log1p(visits) is no count: name the column itself",
        ),
        (
            "linear",
            ("--max-rate", 3),
            "the model linear has no --max-rate: leave it out, or choose the model poisson",
        ),
    ):
        done = run("fit", *table, "--out", folder / "other.json", "--model", model, *more)
        assert done.exit_code != 0 and not (folder / "other.json").exists()
        assert words in " ".join(done.output.split())


def test_there_is_no_forecast_of_a_linear_fit_for_counts(folder):
    budget = ("--epsilon", 5, "--delta", 1e-6)
    done = run("plan", "--schema", folder / "schema.toml", "--rows", 3000, *budget)
    assert done.exit_code == 2 and "no forecast for counts" in " ".join(done.output.split())
