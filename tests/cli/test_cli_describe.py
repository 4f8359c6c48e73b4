"""`curvedp describe` from the command line: one charge, tables, a page, JSON, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from curvedp.release.ledger import Ledger

Run = Callable[..., Result]


def arguments(folder: Path, *more: object) -> tuple[object, ...]:
    return ("describe", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 0.5, *more)


def refused(result: Result, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_tables_page_and_one_charge(run: Run, folder: Path) -> None:
    page = folder / "page.html"
    result = run(*arguments(folder, "--ledger", folder / "budget.db", "--report", page))
    assert result.exit_code == 0, result.stderr
    for text in ("2,000 records", "age", "wage", "private", "public", "privacy noise alone", "ε = 2.5"):
        assert text in result.stdout
    html = page.read_text("utf-8")
    assert "secret" not in result.stdout + html
    assert 'id="count" data-value="2000.0"' in html and html.count('<article class="card"') == 3
    assert "0.5" in html and "Not a private release" not in html
    assert [c.label for c in Ledger(folder / "budget.db").history()] == ["describe"]


def test_json_has_every_number_with_its_interval(run: Run, folder: Path) -> None:
    result = run(*arguments(folder, "--json", "--ledger", folder / "budget.db"))
    document = json.loads(result.stdout)
    assert document["guarantee"]["theorem"] == "(D-1)" and document["remaining_epsilon"] == 2.5
    age, sector, wage = document["columns"]
    assert (age["name"], sector["kind"], wage["bounds"]) == ("age", "categorical", [0.0, 100.0])
    assert age["median"]["low"] <= age["median"]["value"] <= age["median"]["high"]
    assert 40 < age["mean"]["value"] < 56 and set(sector["shares"]) == {"private", "public"}
    assert len(age["histogram"]) >= 8 and len(document["correlations"]["values"]) == 2
    assert document["count"] == {"value": 2000.0, "low": 2000.0, "high": 2000.0, "resolved": True}


def test_parquet_gives_what_csv_gives(run: Run, folder: Path) -> None:
    lines = (folder / "data.csv").read_text().splitlines()
    cells = list(zip(*(line.split(",") for line in lines[1:]), strict=True))
    pq.write_table(
        pa.table(dict(zip(lines[0].split(","), map(list, cells), strict=True))), folder / "d.parquet"
    )
    from_csv = json.loads(run(*arguments(folder, "--json", "--seed", 3)).stdout)
    parquet = ("describe", folder / "d.parquet", *arguments(folder, "--json", "--seed", 3)[2:])
    assert json.loads(run(*parquet).stdout)["columns"] == from_csv["columns"]


def test_a_seed_says_that_it_is_not_private(run: Run, folder: Path) -> None:
    result = run(*arguments(folder, "--seed", 1, "--report", folder / "p.html"))
    assert "NOT private" in result.stdout and "Not a private release" in (folder / "p.html").read_text(
        "utf-8"
    )
    refused(run(*arguments(folder, "--seed", 1, "--ledger", folder / "budget.db")), "seed")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--delta", 0), "--delta 1e-6"),
        (("--delimiter", ";"), "no column 'age'"),
        (("--ledger", "{folder}/none.db"), "none.db"),
        (("--report", "{folder}/data.csv"), "same file as the data"),
        (("--report", "{folder}/schema.toml"), "same file as the schema"),
    ],
)
def test_refusals_charge_nothing(run: Run, folder: Path, more: tuple[object, ...], words: str) -> None:
    filled = [str(part).format(folder=folder) for part in more]
    ledger = () if "--ledger" in filled else ("--ledger", folder / "budget.db")
    refused(run(*arguments(folder, *ledger, *filled)), words)
    assert Ledger(folder / "budget.db").history() == []


def test_a_column_that_is_not_there_and_quiet(run: Run, folder: Path) -> None:
    assert run(*arguments(folder, "--quiet", "--report", folder / "q.html")).output == ""
    text = (folder / "schema.toml").read_text().replace('"age"', '"years"')
    (folder / "schema.toml").write_text(text)
    refused(run(*arguments(folder, "--ledger", folder / "budget.db")), "no column 'years'")


def test_tables_by_group_with_their_page_and_document(run: Run, folder: Path) -> None:
    page = folder / "groups.html"
    paid = ("--ledger", folder / "budget.db", "--office", "statistics")
    result = run(*arguments(folder, "--by", "sector", "--columns", "wage", "--report", page, *paid))
    assert result.exit_code == 0, result.stderr
    for text in (
        "2,000 records",
        "sector",
        "public",
        "records: mean",
        "noise and chance of the sample",
        "(D-2)",
    ):
        assert text in result.stdout, text
    assert "\nage " not in result.stdout and "secret" not in result.stdout
    html = page.read_text("utf-8")
    assert (
        html.count('<article class="card"') == 2 and 'data-statistic="mean"' in html and "secret" not in html
    )
    (charge,) = Ledger(folder / "budget.db").history()
    assert (charge.label, charge.by) == ("describe", "statistics")
    document = json.loads(run(*arguments(folder, "--by", "sector", "--json", "--quartiles")).stdout)
    assert document["guarantee"]["theorem"] == "(D-2)" and document["by"] == ["sector"]
    everyone, private, public, other = document["tables"]["records"]
    assert private["levels"] == ["private"] and other["suppressed"].startswith("too few for the noise")
    counts = [group["count"]["value"] for group in (private, public, other)]
    assert sum(counts) == everyone["count"]["value"] == 2000
    assert {"mean", "median", "missing"} <= set(public["columns"]["wage"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--by", "age"), "--by: 'age' is no category"),
        (("--by", "statistics office"), "no column 'statistics office' is declared"),
        (("--rows-up-to", 3), "--rows-up-to counts rows beside persons"),
        (("--quartiles",), "--quartiles are those of groups"),
    ],
)
def test_groups_that_are_not_declared_charge_nothing(
    run: Run, folder: Path, more: tuple[object, ...], words: str
) -> None:
    refused(run(*arguments(folder, "--ledger", folder / "budget.db", *more)), words)
    assert Ledger(folder / "budget.db").history() == []
