"""`curvedp bounds` from the command line."""

from __future__ import annotations

import json
from functools import partial

import pytest

from curvedp.data import Numeric, Schema
from curvedp.release.ledger import Ledger


@pytest.fixture
def look(run, folder, monkeypatch):
    """`curvedp bounds data.csv` in the folder."""
    monkeypatch.chdir(folder)
    return partial(run, "bounds", "data.csv")


def test_bounds_are_bought_and_written_into_a_template(run, look, folder):
    made = run(*["schema", "data.csv", "--out", "new.toml"])
    assert made.exit_code == 0
    result = look("--columns", "age,wage", "--epsilon", "2", "--ledger", "budget.db", "--schema", "new.toml")
    assert result.exit_code == 0, result.output
    assert "is seen where at least about" in result.output and "Ledger: ε = 1" in result.output
    (charge,) = Ledger(folder / "budget.db").history()
    text = (folder / "new.toml").read_text()
    assert text.count(f"charge {charge.label}") == 2 and text.count("bought: ε = 2 for 2 columns, 20") == 2
    assert text.startswith("# Fill in every column")
    age = next(c for c in Schema.from_toml(text.replace('= ""', '= "ignored"')).columns if c.name == "age")
    assert isinstance(age, Numeric) and 4 <= age.low < 30 and 60 < age.high <= 512


def test_json_is_one_document_and_the_schema_of_a_fit_reports_where_they_come_from(run, look, folder):
    result = look("--columns", "age", "--epsilon", "1", "--json", "--schema", "schema.toml", "--force")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    (column,) = document["columns"]
    low, high = column["bounds"]
    assert low < 20 and high > 70 and document["guarantee"]["delta"] == 0
    assert column["below"]["interval"][0] <= column["below"]["share"] <= column["below"]["interval"][1]
    assert "not charged to a ledger" in document["source"]
    arguments = "fit data.csv --schema schema.toml --epsilon 1 --delta 1e-6 --out m.json --report r.html"
    fitted = run(*arguments.split())
    assert fitted.exit_code == 0, fitted.output
    page = (folder / "r.html").read_text()
    assert document["source"] in page and "source not stated" in page
    assert json.loads((folder / "m.json").read_text())["schema"]["column"][0]["source"] == document["source"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--columns", "age", "--epsilon", "1", "--schema", "schema.toml"], "already"),
        (["--columns", "sector", "--epsilon", "1", "--schema", "schema.toml"], "not numeric"),
        (["--columns", "height", "--epsilon", "1"], "no column 'height'"),
        (["--columns", "age", "--epsilon", "0.01"], "2,000 rows are too few"),
        (["--columns", "age", "--epsilon", "1", "--adjacency", "add_remove"], "adjacency"),
        (["--columns", "age", "--epsilon", "1", "--upper", "0.001"], "lower one first"),
        (["--columns", "age", "--epsilon", "1", "--seed", "1"], "seed"),
        (["--columns", "age", "--epsilon", "1", "--schema", "missing.toml"], "missing.toml"),
        (["--columns", "age", "--epsilon", "1", "--schema", "data.csv"], "the same file as the data"),
    ],
)
def test_what_can_be_known_beforehand_is_refused_and_costs_nothing(look, folder, arguments, words):
    before = (folder / "schema.toml").read_text()
    result = look(*arguments, "--ledger", "budget.db")
    assert result.exit_code == 2 and words in " ".join(result.output.split())
    assert Ledger(folder / "budget.db").state().charges == 0
    assert (folder / "schema.toml").read_text() == before
    assert not list(folder.glob(".curvedp-*"))


def test_a_dry_run_releases_nothing(look, folder):
    result = look(
        "--columns", "age", "--epsilon", "1", "--ledger", "budget.db", "--dry-run", "--rows", "2000"
    )
    assert result.exit_code == 0 and "values of 2,000" in result.output and "lower" not in result.output
    assert Ledger(folder / "budget.db").state().charges == 0


def test_a_column_of_text_is_said_to_be_hidden(look):
    result = look("--columns", "sector,age", "--epsilon", "2")
    assert result.exit_code == 0
    assert "sector: no scale has enough values" in result.output


def test_a_tail_that_was_cut_off_is_said_to_be(look, folder):
    tail = "\n".join(["0"] * 2000 + [str(2**k) for k in range(4, 20) for _ in range(40)])
    (folder / "data.csv").write_text("gain,wage\n" + tail.replace("\n", ",5\n") + ",5\n")
    results = [look("--columns", "gain,wage", "--epsilon", "1") for _ in range(4)]
    assert [result.exit_code for result in results] == [0] * 4, results[0].output
    told = [" ".join(result.output.split()) for result in results]
    assert all("gain: more values lie outside than were asked for" in output for output in told)
    assert sum("wage: more values" in output for output in told) <= 1  # noise says so of one in a hundred


def test_the_adjacency_of_a_ledger_is_taken_over(look, folder):
    Ledger.create(folder / "a.db", epsilon=3.0, delta=0.0, adjacency="add_remove")
    result = look("--columns", "age", "--epsilon", "1", "--ledger", "a.db", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["guarantee"]["adjacency"] == "add_remove"


def test_bounds_of_a_date_are_refused_before_the_charge_even_by_force(look, folder):
    (folder / "day.toml").write_text("[columns]\nage = [2020-01-01, 2024-12-31]\n")
    for more in ((), ("--force",)):
        result = look(
            "--columns", "age", "--epsilon", "1", "--ledger", "budget.db", "--schema", "day.toml", *more
        )
        assert result.exit_code == 2 and "is a date" in result.stderr
    assert not Ledger(folder / "budget.db").history()


def test_a_parquet_file_is_looked_at_as_its_csv_file(run, look, folder):
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv("data.csv"), "data.parquet")
    options = ("--columns", "age,wage", "--epsilon", "1", "--seed", "3", "--json")
    found = [run("bounds", name, *options).stdout for name in ("data.csv", "data.parquet")]
    assert json.loads(found[0])["columns"] == json.loads(found[1])["columns"] != []
