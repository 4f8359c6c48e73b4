"""A made-up table holds what is declared, written as declared, and opens no data."""

from __future__ import annotations

import builtins
import csv
import io
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from curvedp import Boolean, Categorical, Date, Ignored, Numeric, PrivateLinearRegression, Schema, dummy
from curvedp.analyses.split import as_csv
from curvedp.cli import app
from curvedp.data import FileFormat
from curvedp.data.cells import Cells, kind_counts
from curvedp.errors import InvalidInput

VISITS = """\
record = "one row is one visit"
unit = "patient"
target = "cost"

[file]
encoding = "latin-1"
delimiter = ";"
decimal = ","

[columns]
patient = "ignored"
day = {bounds = [2023-01-01, 2023-12-31], format = "%d.%m.%Y", parts = ["month"]}
seen = [2020-01-01, 2020-01-03]
age = {bounds = [18, 110], missing_codes = [-9, 999], missing = "indicator"}
sex = {levels = {Female = ["1"], Male = ["2"]}, missing = "level"}
town = ["Köln", "a;b", "say \\"x\\""]
smoker = {kind = "boolean", words = ["nein", "ja"]}
dose = [0.12345, 0.5]
note = "ignored"
cost = {bounds = [0, 1_000_000], thousands = "."}
"""


def invoked(*words: str, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def wrong(schema: Schema, table: dict[str, list[str]]) -> dict[str, dict[str, int]]:
    """{column: {what is wrong with cells: how many}}."""
    columns = {c.name: c for c in schema.in_file.values() if not isinstance(c, Ignored)}
    return {
        name: kind_counts(column.kinds_of(Cells(table[name], "any")), column.cell_kinds)
        for name, column in columns.items()
    }


def test_every_cell_is_one_that_is_declared_and_written_as_declared() -> None:
    schema = Schema.from_toml(VISITS)
    table = dummy(schema, 4000, seed=1, missing=0)
    assert list(table) == [column.name for column in schema.columns]
    assert {len(cells) for cells in table.values()} == {4000}
    assert not any(wrong(schema, table).values())
    encoded = schema.read(table)
    low, high = np.array([b for column in schema.features for b in column.encoded_bounds]).T
    assert not np.isnan(encoded).any()
    assert (encoded >= low - 1e-12).all() and (encoded <= high + 1e-12).all()
    assert set(table["note"]) == {""} and set(table["sex"]) == {"Female", "Male"}
    assert set(table["smoker"]) == {"nein", "ja"} and set(table["seen"]) == {
        f"2020-01-0{d}" for d in (1, 2, 3)
    }
    assert all("." not in cell and "," in cell for cell in table["dose"])
    assert any(cell.count(".") == 1 and "," not in cell for cell in table["cost"])


def test_levels_numbers_and_days_are_uniform() -> None:
    schema = Schema([Categorical("a", list("abcd")), Numeric("x", 0, 2), Numeric("n", 0, 100), Boolean("b")])
    table, n = dummy(schema, 20_000, seed=3, missing=0), 20_000
    for name, k in (("a", 4), ("b", 2)):
        counts = Counter(table[name])
        assert len(counts) == k
        assert all(abs(count - n / k) < 5 * math.sqrt(n / k) for count in counts.values())
    x = np.sort([float(cell) for cell in table["x"]])
    assert np.abs(x / 2 - np.arange(n) / n).max() < 2.0 / math.sqrt(n)  # Kolmogorov: 2.0 has p < 0.001
    assert {float(cell) % 1 for cell in table["n"]} == {0.0} and len(set(table["n"])) == 101


def test_missing_and_odd_cells_are_as_many_as_asked_for() -> None:
    schema = Schema.from_toml(VISITS)
    table, n = dummy(schema, 10_000, seed=2, missing=0.2, odd=0.1), 10_000
    found = wrong(schema, table)
    for name in ("age", "sex", "smoker", "dose", "town"):
        kinds = found[name]
        assert abs(kinds["missing"] - 0.2 * n) < 5 * math.sqrt(0.2 * n), (name, kinds)
        rest = sum(kinds.values()) - kinds["missing"]
        assert abs(rest - 0.1 * n) < 5 * math.sqrt(0.1 * n), (name, kinds)
    assert {"-9"} == {cell for cell in table["age"] if cell.startswith("-")} and "999" not in table["age"]


def test_persons_have_one_row_or_several() -> None:
    schema = Schema([Numeric("x", 0, 1)], unit="who")
    table = dummy(schema, 3000, seed=4)
    rows_each = Counter(Counter(table["who"]).values())
    assert (
        list(table) == ["who", "x"]
        and rows_each[1] > 20
        and sum(rows_each[k] for k in rows_each if k > 1) > 200
    )


def test_the_same_seed_gives_the_same_table_and_none_another() -> None:
    schema = Schema.from_toml(VISITS)
    assert dummy(schema, 50, seed=5) == dummy(schema, 50, seed=5) != dummy(schema, 50, seed=6)
    assert dummy(schema, 50) != dummy(schema, 50)


def test_a_file_without_a_header_has_its_columns_in_their_order() -> None:
    file = FileFormat(delimiter="\t", names=("skipped", "b", "a"))
    schema = Schema([Numeric("a", 0, 100), Ignored("z"), Date("b", "2020-01-01", "2020-12-31")], file=file)
    table = dummy(schema, 5, seed=1, missing=0)
    rows = list(csv.reader(io.StringIO(as_csv(table, file).decode()), delimiter="\t"))
    assert list(table) == ["skipped", "b", "a"] and len(rows) == 5
    assert all(row[0] == "" and row[1].startswith("2020-") and row[2].isdigit() for row in rows)


@pytest.mark.parametrize(
    "bounds", [(-1e-300, 1e-300), (-1e150, 1e150), (0.1, 0.1 + 1e-16), (1e15, 1e15 + 2), (-0.4, 12)]
)
def test_numbers_stay_within_bounds_of_any_size(bounds: tuple[float, float]) -> None:
    if bounds[0] == bounds[1]:
        bounds = (0.1, math.nextafter(0.1, 1))
    schema = Schema([Numeric("x", *bounds)])
    values = schema.read(dummy(schema, 300, seed=1, missing=0))[:, 0]
    assert (values >= bounds[0]).all() and (values <= bounds[1]).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": 0}, "`rows` must be a positive whole number"),
        ({"rows": 2.5}, "`rows` must be a positive whole number"),
        ({"missing": 1.2}, "chances"),
        ({"missing": 0.6, "odd": 0.6}, "together at most 1"),
        ({"odd": math.nan}, "chances"),
    ],
)
def test_what_makes_no_table_is_refused(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        dummy(Schema([Numeric("x", 0, 1)]), **arguments)  # type: ignore[arg-type]


def test_it_is_a_table_for_a_fit() -> None:
    schema = Schema.from_toml(VISITS)
    model = PrivateLinearRegression(schema=schema, epsilon=1.0, delta=1e-6).fit(dummy(schema, 500, seed=1))
    assert len(model.coef_) == len(schema.feature_names)


def test_the_command_opens_the_schema_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(VISITS, "utf-8")
    invoked("dummy", "schema.toml", "--rows", "5", "--quiet")  # warm: modules are files, too
    opened: list[str] = []
    plain = builtins.open

    def watched(file: object, *rest: object, **more: object) -> object:
        opened.append(str(file))
        return plain(file, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", watched)
    monkeypatch.setattr(io, "open", watched)
    shown = invoked("dummy", "schema.toml", "--rows", "5", "--seed", "1")
    assert {Path(name).name for name in opened} == {"schema.toml"}
    assert len(shown.splitlines()) == 6 and shown.startswith("patient;day;seen;age;")


def test_an_analysis_runs_on_it_from_check_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(VISITS, "utf-8")
    said = invoked(
        "dummy", "schema.toml", "--rows", "900", "--seed", "1", "--odd", "0.01", "--out", "dummy.csv"
    )
    assert "900 made-up rows written to dummy.csv" in said
    assert "Köln".encode("latin-1") in Path("dummy.csv").read_bytes()
    assert "is complete" in invoked("schema", "--check", "schema.toml", "--table", "dummy.csv")
    invoked("ledger", "create", "budget.db", "--epsilon", "10", "--delta", "1e-4", "--unit", "patient")
    budget = ("--schema", "schema.toml", "--epsilon", "1", "--ledger", "budget.db")
    invoked("check", "dummy.csv", *budget)
    invoked("describe", "dummy.csv", *budget)
    invoked("fit", "dummy.csv", *budget, "--delta", "1e-6", "--out", "model.json", "--report", "report.html")
    assert "exists already" in invoked("dummy", "schema.toml", "--out", "dummy.csv", code=2)
    Path("open.toml").write_text('[columns]\nage = "numeric"\n')
    assert "bounds" in invoked("dummy", "open.toml", code=2)
