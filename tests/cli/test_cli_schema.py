"""`curvedp schema`: from a table and what is publicly known to a schema that a fit can use."""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from curvedp.data import Schema

Run = Callable[..., Result]
CODEBOOK = (
    "name,kind,low,high,levels\nage,int,16,80,\nsector,,,,private|public\nnote,ignored,,,\nwage,,0,100,\n"
)


def test_a_dictionary_leaves_nothing_to_fill_in(run: Run, folder: Path) -> None:
    (folder / "codebook.csv").write_text(CODEBOOK)
    made = run(
        *(
            "schema",
            folder / "data.csv",
            "--dictionary",
            folder / "codebook.csv",
            "--out",
            folder / "new.toml",
        )
    )
    assert made.exit_code == 0, made.stderr
    assert "curvedp schema --check" in made.stdout
    found, told = Schema.load(folder / "new.toml").columns, Schema.load(folder / "schema.toml").columns
    assert tuple(replace(c, source="") if hasattr(c, "source") else c for c in found) == told
    assert [getattr(c, "source", None) for c in found] == [
        "codebook.csv",
        "codebook.csv",
        None,
        "codebook.csv",
    ]
    checked = run("schema", "--check", folder / "new.toml", "--table", folder / "data.csv")
    assert checked.exit_code == 0 and "is complete: 4 columns" in checked.stdout
    assert "no target is named" in checked.stdout
    fitted = run(
        *("fit", folder / "data.csv", "--schema", folder / "new.toml", "--target", "wage", "--epsilon", 1),
        *("--delta", 1e-6, "--out", folder / "model.json", "--quiet"),
    )
    assert fitted.exit_code == 0, fitted.stderr


def test_check_says_what_is_lacking_and_how_it_ended(run: Run, folder: Path) -> None:
    (folder / "open.toml").write_text(
        '[columns]\nage = [16, 80]\nsector = "categorical"\nsalary = [0, 1e12]\n'
    )
    found = run("schema", folder / "data.csv", "--check", folder / "open.toml")
    assert found.exit_code == 2 and found.stderr == ""
    for words in (
        "column 'sector': write its levels",
        "column 'salary' is not in the table",
        "2 things to do",
    ):
        assert words in found.stdout
    assert "1e+12 apart" in found.stdout and "'note', 'wage'" in found.stdout
    document = json.loads(run("schema", "--check", folder / "open.toml", "--json").stdout)
    assert document["complete"] is False and len(document["unfilled"]) == 1 and document["columns"] == 3
    quiet = run("schema", "--check", folder / "open.toml", "--quiet")
    assert quiet.exit_code == 2 and quiet.output == ""
    assert run("schema", "--check", folder / "schema.toml", "--quiet").exit_code == 0
    missing = run("schema", "--check", folder / "nope.toml")
    assert missing.exit_code == 2 and "cannot read the schema" in missing.stderr


@pytest.mark.parametrize("first", ["Anna Schmidt,37,f", "anna@example.org,x,y", "Anna,Bob,Anna", "Anna,,yes"])
def test_a_file_without_a_header_shows_nothing_of_a_patient(run: Run, tmp_path: Path, first: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"{first}\nBob,52,m\n")
    refused = run("schema", path)
    assert refused.exit_code == 2 and "--header" in refused.stderr and "--no-header" in refused.stderr
    told = run("schema", path, "--no-header")
    assert told.exit_code == 2 and "--names" in told.stderr
    for result in (refused, told):
        shown = result.output.replace(str(path), "")
        assert "Anna" not in shown and "anna" not in shown and "37" not in shown
    named = run("schema", path, "--names", "name, age, sex")
    assert named.exit_code == 0 and "Anna" not in named.stdout
    assert list(tomllib.loads(named.stdout)["columns"]) == ["name", "age", "sex"]
    both = run("schema", path, "--names", "a,b,c", "--header")
    assert both.exit_code == 2 and "leave --header or --names out" in both.stderr


def test_a_file_without_a_header_is_fitted_with_all_its_rows(run: Run, folder: Path) -> None:
    lines = (folder / "data.csv").read_text().splitlines(keepends=True)
    (folder / "bare.csv").write_text("".join(lines[1:]))
    made = run(
        *(
            "schema",
            folder / "bare.csv",
            "--names",
            "age,sector,note,wage",
            "--dictionary",
            folder / "schema.toml",
        ),
        *("--out", folder / "bare.toml", "--quiet"),
    )
    assert made.exit_code == 0, made.stderr
    schema = Schema.load(folder / "bare.toml").with_target("wage")
    own, known = folder / "bare.csv", folder / "data.csv"
    declared, X = Schema.load(folder / "schema.toml"), schema.read(own)
    assert X.tolist() == declared.read(known).tolist() and len(X) == 2_000
    assert schema.target_cells(own).listed() == declared.target_cells(known).listed()
    fitted = run(
        *("fit", folder / "bare.csv", "--schema", folder / "bare.toml", "--target", "wage", "--epsilon", 1),
        *("--delta", 1e-6, "--out", folder / "model.json", "--quiet"),
    )
    assert fitted.exit_code == 0, fitted.stderr
    predicted = run("predict", folder / "model.json", folder / "bare.csv", "--id", "age")
    assert predicted.stdout.count("\n") == 2_001 and predicted.stdout.startswith("age,wage\n")
    checked = run("schema", "--check", folder / "bare.toml", "--table", folder / "bare.csv")
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_the_header_is_asked_about_and_not_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    path, asked = tmp_path / "data.csv", []
    path.write_text("Full name,Age in years\nBob,52\n")
    monkeypatch.setattr("curvedp.cli.schema.is_watched", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text) or answer)
    result = run("schema", path)
    assert len(asked) == 1 and "2 columns" in asked[0] and "Full" not in asked[0]
    if answer:
        assert list(tomllib.loads(result.stdout)["columns"]) == ["Full name", "Age in years"]
    else:
        assert (
            result.exit_code == 2 and "has no column names" in result.stderr and "Full" not in result.output
        )
    run("schema", path, "--header")
    assert len(asked) == 1


def test_names_of_a_parquet_file_that_was_once_read_without_its_header(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"Anna Schmidt": ["Bob"], "37": [52]}), path)
    refused = run("schema", path)
    assert refused.exit_code == 2 and "--header" in refused.stderr
    shown = refused.output.replace(str(path), "")
    assert "Anna" not in shown and "37" not in shown
    assert "rename the columns" in run("schema", path, "--no-header").stderr
    assert list(tomllib.loads(run("schema", path, "--header").stdout)["columns"]) == ["Anna Schmidt", "37"]


def test_a_header_whose_names_are_declared_needs_no_question(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("full name,age in years\nBob,52\n")
    (tmp_path / "s.toml").write_text('[columns]\n"full name" = "ignored"\n"age in years" = [0, 120]\n')
    assert run("schema", "--check", tmp_path / "s.toml", "--table", tmp_path / "data.csv").exit_code == 0
    (tmp_path / "data.csv").write_text("Anna Schmidt,age in years\nBob,52\n")
    refused = run("schema", "--check", tmp_path / "s.toml", "--table", tmp_path / "data.csv")
    assert refused.exit_code == 2 and "--header" in refused.stderr and "Anna" not in refused.output


def test_a_header_that_the_dictionary_names_needs_no_question(run: Run, tmp_path: Path) -> None:
    data, codebook = tmp_path / "data.csv", tmp_path / "codebook.csv"
    data.write_text("full name,age in years\nBob,52\n")
    codebook.write_text("name,kind,low,high\nfull name,ignored,,\nage in years,,0,120\n")
    made = run("schema", data, "--dictionary", codebook)
    assert tomllib.loads(made.stdout)["columns"] == {
        "full name": "ignored",
        "age in years": {"bounds": [0, 120], "source": "codebook.csv"},
    }
    data.write_text("Anna Schmidt,age in years\nBob,52\n")
    refused = run("schema", data, "--dictionary", codebook)
    assert refused.exit_code == 2 and "--header" in refused.stderr and "Anna" not in refused.output


def test_parquet_and_gzip(run: Run, folder: Path) -> None:
    table = pa.table({"age": [4711], "city": pa.array(["gotham"]).dictionary_encode(), "ok": [True]})
    pq.write_table(table, folder / "data.parquet")
    result = run("schema", folder / "data.parquet")
    assert result.exit_code == 0, result.stderr
    assert tomllib.loads(result.stdout)["columns"] == {
        "age": "numeric",
        "city": "categorical",
        "ok": "boolean",
    }
    assert "4711" not in result.output and "gotham" not in result.output
    (folder / "data.csv.gz").write_bytes(gzip.compress((folder / "data.csv").read_bytes()))
    assert run("schema", folder / "data.csv.gz").stdout == run("schema", folder / "data.csv").stdout
    fitted = run(
        *("fit", folder / "data.csv.gz", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--out", folder / "model.json", "--quiet"),
    )
    assert fitted.exit_code == 0, fitted.stderr


def test_the_delimiter_stays_in_the_schema(run: Run, folder: Path) -> None:
    text = (folder / "data.csv").read_text().replace(",", ";").replace(".", ",")
    (folder / "semi.csv").write_text(text)
    refused = run("schema", folder / "semi.csv")
    assert refused.exit_code == 2 and "--delimiter ';'" in refused.stderr
    made = run(
        *("schema", folder / "semi.csv", "--delimiter", ";", "--decimal", ",", "--out", folder / "semi.toml"),
        *("--dictionary", folder / "schema.toml", "--quiet"),
    )
    assert made.exit_code == 0, made.stderr
    assert run("schema", "--check", folder / "semi.toml", "--table", folder / "semi.csv").exit_code == 0
    schema = Schema.load(folder / "semi.toml").with_target("wage")
    expected = Schema.load(folder / "schema.toml").read(folder / "data.csv")
    assert schema.read(folder / "semi.csv").tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "name a table, a dictionary, or both"),
        (("--table", "x.csv"), "--table goes with --check"),
        (("--check", "s.toml", "--out", "x"), "leave --out and --dictionary out"),
        (("--check", "s.toml", "--names", "a,b"), "leave --names out"),
        (("nope.csv",), "cannot read nope.csv"),
        (("--dictionary", "nope.json"), "cannot read the dictionary"),
    ],
)
def test_what_does_not_go_together_is_refused(run: Run, options: tuple[str, ...], words: str) -> None:
    result = run("schema", *options)
    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1


def test_nothing_is_overwritten(run: Run, folder: Path) -> None:
    before = (folder / "schema.toml").read_text()
    assert run("schema", folder / "data.csv", "--out", folder / "schema.toml").exit_code == 2
    same = run(
        "schema", folder / "data.csv", "--dictionary", folder / "schema.toml", "--out", folder / "schema.toml"
    )
    assert same.exit_code == 2 and "the same file as the dictionary" in same.stderr
    assert (folder / "schema.toml").read_text() == before


def test_bounds_that_were_bought_go_into_a_line(run: Run, folder: Path) -> None:
    (folder / "open.toml").write_text(
        '[columns]\nage = "numeric"    # years\nsector = ["private", "public"]\n'
    )
    bought = run(
        *(
            "bounds",
            folder / "data.csv",
            "--columns",
            "age",
            "--epsilon",
            1,
            "--ledger",
            folder / "budget.db",
        ),
        *("--schema", folder / "open.toml", "--quiet"),
    )
    assert bought.exit_code == 0, bought.stderr
    age = Schema.load(folder / "open.toml").columns[0]
    assert age.source and age.low < age.high
    assert 'sector = ["private", "public"]\n' in (folder / "open.toml").read_text()
