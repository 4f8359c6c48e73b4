"""`curvedp fit --engine dask`: Parquet folders, on threads and on a cluster."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

from curvedp.cli import workflow
from curvedp.release.ledger import Ledger


@pytest.fixture
def parquet(folder):
    """The table of `folder` as two Parquet files of several row groups."""
    table = pyarrow.csv.read_csv(folder / "data.csv")
    (folder / "data").mkdir()
    for i, part in enumerate((table.slice(0, 900), table.slice(900))):
        pq.write_table(part, folder / "data" / f"part-{i}.parquet", row_group_size=400)
    return folder / "data"


def fit(folder, data, *more, mechanism="qop"):
    options = (
        "--epsilon",
        1,
        "--delta",
        "1e-6",
        "--mechanism",
        mechanism,
        "--out",
        folder / "model.json",
        "--force",
    )
    return ("fit", data, "--schema", folder / "schema.toml", *options, *more)


def test_a_parquet_folder_gives_the_model_of_the_csv_file(run, folder, parquet):
    found = {}
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        for name, data, more in (
            ("csv", folder / "data.csv", ()),
            ("memory", parquet, ()),
            ("threads", parquet, ("--engine", "dask")),
            ("one file", parquet / "part-0.parquet", ("--engine", "dask")),
            ("cluster", parquet, ("--engine", "dask", "--scheduler", cluster.scheduler_address)),
        ):
            result = run(*fit(folder, data, "--seed", 1, "--json", *more))
            assert result.exit_code == 0, result.stderr
            found[name] = json.loads(result.stdout)
    for name in ("memory", "threads", "cluster"):
        for key in ("coefficients", "intercept"):
            np.testing.assert_allclose(found[name][key], found["csv"][key], rtol=1e-9, err_msg=name)
        for key in ("features", "guarantee"):
            assert found[name][key] == found["csv"][key], name
    assert found["one file"]["coefficients"] != found["csv"]["coefficients"]


def test_persons_of_a_parquet_folder_give_the_model_of_the_csv_file(run, folder, parquet):
    """Every row of the folder's table is given to one of 300 persons, in an order that mixes the files."""
    for path in (folder / "data.csv", *sorted(parquet.iterdir())):
        table = pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
        start = 900 if path.name == "part-1.parquet" else 0
        ids = pyarrow.array([str((start + i) * 7 % 300) for i in range(len(table))])
        table = table.append_column("person", ids)
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pq.write_table(table, path, row_group_size=400)
    schema = (folder / "schema.toml").read_text()
    (folder / "schema.toml").write_text('unit = "person"\n' + schema)
    found = []
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        for data, more in (
            (folder / "data.csv", ()),
            (parquet, ("--engine", "dask", "--scheduler", cluster.scheduler_address)),
        ):
            result = run(*fit(folder, data, "--seed", 1, "--json", *more, mechanism="gradient"))
            assert result.exit_code == 0, result.stderr
            found.append(json.loads(result.stdout))
    for key in ("coefficients", "intercept"):
        np.testing.assert_allclose(found[1][key], found[0][key], rtol=1e-9)
    assert found[0]["guarantee"] == found[1]["guarantee"] and "person" in str(found[1]["guarantee"])


def test_wrong_choices_are_one_line(run, folder, parquet, monkeypatch):
    monkeypatch.setattr(workflow, "CONNECT_SECONDS", 0.2)
    for arguments, text in (
        (fit(folder, folder / "data.csv", "--scheduler", "tcp://127.0.0.1:9"), "--engine dask, too"),
        (fit(folder, folder / "nowhere", "--engine", "dask"), "check the path"),
        (
            fit(folder, parquet, "--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"),
            "no Dask scheduler answers",
        ),
        (fit(folder, parquet, "--engine", "dask", "--scheduler", "nonsense"), "no Dask scheduler answers"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2 and text in result.stderr, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1 and "Traceback" not in result.stderr


@pytest.mark.parametrize("damage", ["cut off", "a column less", "rows that cannot be read"])
def test_a_bad_file_is_one_line_and_costs_only_what_its_rows_hid(run, folder, parquet, damage):
    bad = parquet / "part-1.parquet"
    content = bad.read_bytes()
    if damage == "cut off":
        bad.write_bytes(content[:-100])
    elif damage == "a column less":
        pq.write_table(pq.read_table(bad).drop_columns("age"), bad)
    else:
        bad.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    result = run(*fit(folder, parquet, "--engine", "dask", "--ledger", folder / "budget.db"))
    assert result.exit_code == 2 and "part-1.parquet" in result.stderr
    assert ("'age'" in result.stderr) == (damage == "a column less")
    assert len(result.stderr.strip().splitlines()) == 1 and "secret" not in result.stderr
    left = 2.0 if damage == "rows that cannot be read" else 3.0
    assert Ledger(folder / "budget.db").state().remaining_epsilon == pytest.approx(left)
    assert not (folder / "model.json").exists()
