"""`curvedp predict`: probabilities, thresholds, copied columns, CSV and Parquet in and out, in chunks."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

import curvedp
from curvedp.data import Categorical, Numeric, Schema

Run = Callable[..., Result]
ROWS = {
    "id": ["p1", "=cmd()", "p3", "p4"],
    "age": ["20", "75", "", "x"],
    "sector": ["public", "private", "martian", ""],
}
COLUMNS = [Numeric("age", 16, 80), Categorical("sector", ["private", "public"])]


def saved(folder: Path, target: Numeric | Categorical, kind: type | None = None) -> Path:
    """A model of the target with fixed coefficients, as a file."""
    schema = Schema([*COLUMNS, target], target=target.name)
    random = np.random.default_rng(0)
    table = {"age": random.uniform(16, 80, 400), "sector": random.choice(["private", "public"], 400)}
    levels = getattr(target, "levels", None)
    table[target.name] = random.uniform(0, 100, 400) if levels is None else random.choice(list(levels), 400)
    made = kind or (curvedp.PrivateRidge if levels is None else curvedp.PrivateLogisticRegression)
    plain = {"inference": False} if hasattr(made, "inference") else {}
    model = made(schema=schema, random_state=0, **plain).fit(table)
    scale = 40.0 if levels is None else 1.0
    shape = model.release_.coefficients.shape
    coefficients = scale * np.arange(1.0, 1 + model.coef_.size).reshape(shape)
    model.release_ = replace(model.release_, coefficients=coefficients)
    model.save(folder / f"{target.name}.json")
    return folder / f"{target.name}.json"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.csv"
    lines = [",".join(ROWS), *(",".join(row) for row in zip(*ROWS.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    pq.write_table(pa.table(ROWS), tmp_path / "new.parquet")
    return path


def rows_in(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_numbers_stay_within_the_declared_range(run: Run, tmp_path: Path, new: Path) -> None:
    path = saved(tmp_path, Numeric("wage", 0, 100))
    model = curvedp.load(path)
    linear = model._margins(ROWS)[:, 0]
    assert linear.max() > 1_000
    expected = np.clip(linear, 0, 100)
    np.testing.assert_array_equal(model.predict(ROWS), expected)
    result = run("predict", path, new)
    assert result.exit_code == 0, result.stderr
    assert [float(row["wage"]) for row in rows_in(result.stdout)] == expected.tolist()
    assert run("predict", path, new, "--out", "-").stdout == result.stdout


def test_probabilities_labels_and_thresholds(run: Run, tmp_path: Path, new: Path) -> None:
    path = saved(tmp_path, Categorical("union", ["no", "yes"]))
    model = curvedp.load(path)
    p = model.predict_proba(ROWS)
    rows = rows_in(run("predict", path, new, "--proba").stdout)
    assert list(rows[0]) == ["union", "union=no", "union=yes"]
    assert [[float(row["union=no"]), float(row["union=yes"])] for row in rows] == p.tolist()
    assert [row["union"] for row in rows] == model.predict(ROWS).tolist()
    middle = float(np.sort(p[:, 1])[1])  # a probability that occurs counts as reached
    for threshold in (0.0, middle, 1.0):
        found = [row["union"] for row in rows_in(run("predict", path, new, "--threshold", threshold).stdout)]
        assert found == ["yes" if value >= threshold else "no" for value in p[:, 1]]
    document = json.loads(run("predict", path, new, "--proba", "--id", "id", "--json").stdout)
    assert document["target"] == "union" and document["copied"] == {"id": ROWS["id"]}
    assert document["probabilities"]["yes"] == p[:, 1].tolist()
    assert document["predictions"] == model.predict(ROWS).tolist()


def test_a_column_is_copied_and_no_spreadsheet_runs_it(run: Run, tmp_path: Path, new: Path) -> None:
    path = saved(tmp_path, Numeric("wage", 0, 100))
    rows = rows_in(run("predict", path, new, "--id", "id", "--id", "age").stdout)
    assert list(rows[0]) == ["id", "age", "wage"]
    assert [row["id"] for row in rows] == ["p1", "'=cmd()", "p3", "p4"]
    assert [row["age"] for row in rows] == ROWS["age"]
    refused = run("predict", path, new, "--id", "person")
    assert refused.exit_code == 2 and "no column 'person' to copy" in refused.stderr


def test_parquet_in_and_out_says_the_same(run: Run, tmp_path: Path, new: Path) -> None:
    path = saved(tmp_path, Categorical("union", ["no", "yes"]))
    expected = run("predict", path, new, "--proba", "--id", "id")
    from_parquet = run("predict", path, tmp_path / "new.parquet", "--proba", "--id", "id")
    assert from_parquet.exit_code == 0, from_parquet.stderr
    assert from_parquet.stdout == expected.stdout
    tables = []
    for source in (new, tmp_path / "new.parquet"):
        out = tmp_path / f"from-{source.suffix[1:]}.parquet"
        result = run("predict", path, source, "--proba", "--id", "id", "--out", out)
        assert result.exit_code == 0, result.stderr
        tables.append(pq.read_table(out))
    assert tables[0].equals(tables[1])
    assert tables[0].column_names == ["id", "union", "union=no", "union=yes"]
    assert tables[0]["id"].to_pylist() == ROWS["id"]
    np.testing.assert_array_equal(
        tables[0]["union=yes"].to_numpy(), curvedp.load(path).predict_proba(ROWS)[:, 1]
    )
    zipped = tmp_path / "p.csv.gz"
    assert run("predict", path, new, "--proba", "--id", "id", "--out", zipped, "--quiet").exit_code == 0
    assert gzip.decompress(zipped.read_bytes()).decode() == expected.stdout
    (tmp_path / "folder").mkdir()
    for part in ("a", "b"):
        pq.write_table(pa.table(ROWS), tmp_path / "folder" / f"{part}.parquet")
    both = rows_in(run("predict", path, tmp_path / "folder", "--id", "id").stdout)
    assert [row["id"] for row in both] == ["p1", "'=cmd()", "p3", "p4"] * 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_types_of_a_copied_column_stay_and_no_rows_give_no_rows(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    path = saved(tmp_path, Numeric("wage", 0, 100))
    empty = pa.table(
        {
            "id": pa.array([], pa.int64()),
            "age": pa.array([], pa.float64()),
            "sector": pa.array([], pa.string()),
        }
    )
    pq.write_table(empty, tmp_path / "none.parquet")
    out = tmp_path / f"out{suffix}"
    assert (
        run("predict", path, tmp_path / "none.parquet", "--id", "id", "--out", out, "--quiet").exit_code == 0
    )
    if suffix == ".csv":
        assert out.read_text() == "id,wage\n"
    else:
        assert pq.read_schema(out).types == [pa.int64(), pa.float64()]


@pytest.mark.parametrize(
    ("target", "kind", "options", "words"),
    [
        (
            Numeric("wage", 0, 100),
            None,
            ("--proba",),
            "predicts a number, not a class: leave probabilities out",
        ),
        (Numeric("wage", 0, 100), None, ("--threshold", 0.5), "predicts a number"),
        (Categorical("u", ["a", "b"]), curvedp.PrivateLinearSVC, ("--proba",), "has no probabilities"),
        (Categorical("u", ["a", "b", "c"]), None, ("--threshold", 0.5), "a threshold is for two classes"),
        (Categorical("u", ["a", "b"]), None, ("--threshold", 1.5), "between 0 and 1"),
        (Categorical("u", ["a", "b"]), None, ("--threshold", "nan"), "between 0 and 1"),
        (Numeric("wage", 0, 100), None, ("--id", "id", "--id", "id"), "once"),
    ],
)
def test_what_a_model_cannot_say_is_refused(run, tmp_path, new, target, kind, options, words) -> None:
    result = run("predict", saved(tmp_path, target, kind), new, *options)
    assert result.exit_code == 2 and words in result.stderr and result.stdout == ""


def test_a_copied_column_of_the_targets_name_stands_beside_the_prediction(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, Numeric("wage", 0, 100))
    (tmp_path / "test.csv").write_text("age,sector,wage\n20,public,55\n")
    rows = rows_in(run("predict", path, tmp_path / "test.csv", "--id", "wage").stdout)
    assert list(rows[0]) == ["wage", "prediction"] and rows[0]["wage"] == "55"


def test_an_output_is_complete_or_not_there(run: Run, tmp_path: Path, new: Path) -> None:
    path = saved(tmp_path, Numeric("wage", 0, 100))
    (tmp_path / "out.csv").write_text("precious")
    assert run("predict", path, new, "--out", tmp_path / "out.csv").exit_code == 2
    (tmp_path / "bad.csv").write_text("age,town\n1,2\n")
    for out in ("out.csv", "out.parquet"):
        refused = run("predict", path, tmp_path / "bad.csv", "--out", tmp_path / out, "--force")
        assert refused.exit_code == 2 and "no column 'sector'" in refused.stderr
    assert (tmp_path / "out.csv").read_text() == "precious" and not (tmp_path / "out.parquet").exists()
    assert not list(tmp_path.glob(".curvedp-*"))


def test_memory_does_not_grow_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from curvedp.analyses.predictions import Predictor, write_file
    from curvedp.release.modelfile import load

    monkeypatch.setattr("curvedp.data.delimited.CHUNK_ROWS", 500)
    document, peaks = load(saved(tmp_path, Numeric("wage", 0, 100))), []
    for rows in (2_000, 40_000):
        path = tmp_path / f"{rows}.csv"
        path.write_text("age,sector\n" + "33.5,public\n" * rows)
        predictor = Predictor(document)
        tracemalloc.start()
        with open(tmp_path / "out.csv", "wb") as file:
            write_file(file, Path("out.csv"), predictor.names, predictor.chunks(path))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (tmp_path / "out.csv").read_text().count("\n") == rows + 1
    assert peaks[1] < 1.5 * peaks[0]


def test_a_table_that_is_refused_leaves_no_header_behind(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("colour\nred\n")
    refused = run("predict", saved(tmp_path, Numeric("wage", 0, 100)), tmp_path / "other.csv")
    assert refused.exit_code == 2 and "no column 'age'" in refused.stderr and refused.stdout == ""


def test_odd_cells_are_counted_on_stderr_and_nowhere_else(run: Run, tmp_path: Path, new: Path) -> None:
    """One row too old, one age missing, one unreadable; one sector unknown, one missing."""
    path = saved(tmp_path, Numeric("wage", 0, 100))
    new.write_text(new.read_text().replace("75", "81"))
    age = "'age': 1 above the upper bound, 1 missing, 1 unreadable"
    said = f"{age}; 'sector': 1 missing, 1 of undeclared levels."
    for options in (
        (),
        ("--json",),
        ("--out", tmp_path / "out.csv"),
        ("--out", tmp_path / "o.csv", "--json"),
    ):
        result = run("predict", path, new, *options)
        assert result.exit_code == 0 and said in result.stderr and "--strict refuses" in result.stderr
        assert "undeclared" not in result.stdout and "martian" not in result.stderr
    assert "undeclared" not in (tmp_path / "out.csv").read_text()
    assert run("predict", path, new, "--quiet").stderr == ""
    assert "1 unreadable" in run("predict", path, tmp_path / "new.parquet").stderr


def test_strict_refuses_odd_cells_of_any_chunk_before_it_writes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curvedp.data.delimited.CHUNK_ROWS", 10)
    path, late = saved(tmp_path, Numeric("wage", 0, 100)), tmp_path / "late.csv"
    late.write_text("age,sector\n" + "20,public\n" * 40)
    assert run("predict", path, late, "--strict").exit_code == 0 == len(run("predict", path, late).stderr)
    late.write_text("age,sector\n" + "20,public\n" * 40 + '"2,5",public\n12,public\n')
    for options in ((), ("--out", tmp_path / "out.csv")):
        refused = run("predict", path, late, "--strict", *options)
        assert refused.exit_code == 2 and refused.stdout == "" and not (tmp_path / "out.csv").exists()
        assert "'age': 1 below the lower bound, 1 with a decimal comma." in refused.stderr
        assert "--decimal" in refused.stderr
    assert run("predict", path, late, "--strict", "--decimal", ",").exit_code == 2  # 12 is still too young


def test_what_a_column_has_a_rule_for_is_not_odd() -> None:
    from curvedp.data.frames import table_of

    columns = [Numeric("age", 16, 80, missing="indicator"), Categorical("s", ["a", "b"], missing="level")]
    schema = Schema(
        [*columns, Numeric("wage", 0, 1), Numeric("hours", 1, 9)], target="wage", exposure="hours"
    )
    rows = table_of(
        {"age": ["", "x", "20"], "s": ["", "c", "a"], "wage": ["", "", ""], "hours": ["1", "", "99"]}
    )
    assert schema.odd_cells(rows) == {
        "age": {"unreadable": 1},
        "hours": {"above": 1, "missing": 1},
        "s": {"undeclared": 1},
    }
    narrow = schema.with_formula("wage ~ s")
    assert narrow.odd_cells(rows) == {
        "hours": {"above": 1, "missing": 1},
        "s": {"undeclared": 1},
    }
