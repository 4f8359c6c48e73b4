"""Checks, descriptions and scores of tables with dates, truth values and numbers as people write them."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from curvedp import PrivateRidge, check
from curvedp.analyses.explore import describe, private_bounds
from curvedp.analyses.explore.tallies import describable, tallied
from curvedp.analyses.scores import private_scores
from curvedp.cli import app
from curvedp.data import Boolean, Categorical, Date, Numeric, Schema
from curvedp.errors import DataError, InvalidInput

N = 4000
SCHEMA = Schema(
    [
        Date("d", "2020-01-01", "2020-12-31", parts=["weekday"], missing="indicator"),
        Boolean("b", ["nein", "ja"], missing="indicator"),
        Numeric("n", 0, 100, decimal=",", missing_codes=[-9], missing="indicator"),
        Categorical("c", ["x", "z"], missing="level"),
        Numeric("y", -1, 1),
    ],
    target="y",
)


def table():
    """A quarter of each column is missing; the rest is known by heart."""
    rng = np.random.default_rng(0)
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(int(k)) for k in rng.integers(0, 100, N)]
    lost = np.arange(N) % 4 == 0
    return {
        "d": ["?" if gone else day.isoformat() for gone, day in zip(lost, days, strict=True)],
        "b": ["" if gone else ("ja" if i % 2 else "nein") for i, gone in enumerate(lost)],
        "n": ["-9" if gone else "12,5" for gone in lost],
        "c": [None if gone else "x" for gone in lost],
        "y": rng.uniform(-1, 1, N),
    }


def test_a_check_finds_what_is_wrong_with_every_kind():
    cells = table() | {"d": ["31.12.2020"] * N, "b": ["yes"] * N, "n": ["12.5"] * N, "c": ["X"] * N}
    verdicts = check(SCHEMA, cells, epsilon=10.0, delta=1e-3, random_state=0).verdicts
    assert "could not be read as dates: are they written in the declared format?" in verdicts["d"]
    assert "not declared" in verdicts["b"] and "not declared" in verdicts["c"]
    assert "could not be read as numbers" in verdicts["n"] and "comma" not in verdicts["n"]
    verdicts = check(
        SCHEMA, table() | {"d": ["2021-06-01"] * N}, epsilon=10.0, delta=1e-3, random_state=0
    ).verdicts
    assert "lie above 2020-12-31, the upper bound" in verdicts["d"]
    for name in ("b", "n", "c"):
        assert "are missing" in verdicts[name] and "25" in verdicts[name]


def test_a_boolean_target_has_its_classes_counted():
    schema = Schema([Numeric("n", 0, 1), Boolean("b", ["nein", "ja"])], target="b")
    cells = {"n": [0.5] * N, "b": ["ja"] * 1000 + ["nein"] * 3000}
    classes = check(schema, cells, epsilon=20.0, delta=1e-3, random_state=0).columns[-1].shares[2:]
    assert [(share.kind, round(share.estimate, 2)) for share in classes] == [("nein", 0.75), ("ja", 0.25)]


def test_counts_of_a_description_are_those_of_the_table():
    source = tallied(table(), SCHEMA)
    sums, nodes = source.sums(), np.cumsum([bins.nodes for bins in source.layout.bins])
    assert (sums["nodes"][nodes - 1] / 2).tolist() == [N / 4, N / 4, 0]  # missing: d, n, y
    assert sums["levels"].tolist() == [N / 4, N / 2, N / 4, 3 * N / 4, 0, N / 4]


def test_a_description_shows_days_and_words():
    found = describe(table(), SCHEMA, epsilon=20.0, delta=1e-3, random_state=0)
    days = [
        (datetime.date.fromisoformat(d) - datetime.date(2020, 1, 1)).days for d in table()["d"] if d != "?"
    ]
    when = found["d"]
    assert when.unit == "days since 2020-01-01" and (when.low, when.high) == (0, 365)
    assert abs(when.mean.value - np.mean(days)) < 2 and abs(when.missing.value - 0.25) < 0.02
    assert list(found["b"].shares) == ["nein", "ja"]
    assert abs(found["b"].shares["ja"].value - 0.5) < 0.02
    assert abs(found["n"].mean.value - 12.5) < 1 and abs(found["c"].missing.value - 0.25) < 0.02
    assert "d counts days since 2020-01-01." in " ".join(str(found).split())
    assert found.to_dict()["columns"][0]["unit"] == "days since 2020-01-01"


def test_parquet_is_described_alike(tmp_path):
    frame = pd.DataFrame(table())
    frame["d"] = pd.to_datetime(frame["d"], format="%Y-%m-%d", errors="coerce")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "part.parquet")
    lazy = describable(SCHEMA).source(tmp_path, engine="dask")
    one, two = (tallied(source, SCHEMA).sums() for source in (table(), lazy))
    for part in ("nodes", "levels"):
        np.testing.assert_array_equal(one[part], two[part])
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    options = ["--schema", str(tmp_path / "schema.toml"), "--epsilon", "20", "--seed", "1"]
    done = CliRunner().invoke(app, ["describe", str(tmp_path / "part.parquet"), *options])
    assert done.exit_code == 0 and "d counts days since 2020-01-01" in " ".join(done.output.split())


def test_scores_compare_the_words_of_a_truth_value():
    model = PrivateRidge(schema=SCHEMA, alpha=1.0, epsilon=5.0, delta=1e-3, random_state=0).fit(table())
    found = private_scores(model, table(), by="b", epsilon=20.0, delta=1e-3, random_state=0)
    assert list(found.levels) == ["nein", "ja"]
    assert abs(found.levels["ja"].count.value - N / 2) < 100
    with pytest.raises(InvalidInput, match="'d' is a date"):
        private_scores(model, table(), by="d", epsilon=1.0, delta=1e-3)


def test_bounds_of_dates_are_not_for_sale():
    with pytest.raises(DataError, match="has a type of dates"):
        private_bounds(pd.DataFrame({"d": pd.to_datetime(["2020-01-01"] * 50)}), ["d"], epsilon=1.0)
