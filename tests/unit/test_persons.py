"""Person-level fits through every entrance: estimators, tables, files, memory maps, Dask."""

from __future__ import annotations

import json
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from curvedp import (
    Budget,
    Domain,
    Ledger,
    PrivateLogisticRegression,
    PrivateRidge,
    Problem,
    Schema,
    load,
    private_fit,
)
from curvedp.data import Ignored, Numeric
from curvedp.data.frames import Identifiers, identifier
from curvedp.data.rows import make_rows
from curvedp.errors import CurvedpError, InvalidInput, LedgerRefused
from curvedp.mechanisms import Recentered, make_plan
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Neighbours
from curvedp.problems.losses import Squared
from curvedp_studies.mechanisms.baselines import NoisyGradient

QUICK = Recentered(Rule(rounds=6, first_rounds=3))
COLUMNS = (Numeric("a", -1, 1), Numeric("b", -1, 1), Numeric("y", -1, 1))
SCHEMA = Schema(COLUMNS, target="y", unit="person")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random, size = np.random.default_rng(0), 400
    ids = random.permutation(np.repeat(np.arange(size), random.integers(1, 6, size)))
    X = random.uniform(-1, 1, (len(ids), 2))
    y = np.clip(0.5 * X[:, 0] + 0.1 * random.standard_normal(len(ids)), -1, 1)
    names = [f"patient-{i}" for i in ids]
    return pd.DataFrame({"person": names, "a": X[:, 0], "b": X[:, 1], "y": y})


def ridge(**options) -> PrivateRidge:
    return PrivateRidge(**{"schema": SCHEMA, "mechanism": QUICK, "random_state": 0, **options})


@pytest.mark.parametrize(
    "container",
    [
        lambda f: f,
        lambda f: f.sample(frac=1.0, random_state=3).groupby("person", sort=False).head(99),
        pl.from_pandas,
        lambda f: pa.Table.from_pandas(f),
        lambda f: {name: f[name].tolist() for name in f},
        lambda f: f.astype({"person": "category"}),
    ],
    ids=["pandas", "shuffled", "polars", "arrow", "lists", "category"],
)
def test_every_container_gives_the_same_fit(frame, container):
    expected = ridge().fit(frame)
    found = ridge().fit(container(frame))
    assert found.coef_ == pytest.approx(expected.coef_, rel=1e-6)
    assert found.privacy_.neighbours == Neighbours("replace", "person")
    assert found.privacy_.theorem == "(P-9)"


def test_a_file_a_source_and_arrays_give_the_same_fit(frame, tmp_path):
    expected = ridge().fit(frame).coef_
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    for table in (path, SCHEMA.source(path), SCHEMA.source(frame)):
        assert ridge().fit(table).coef_ == pytest.approx(expected, rel=1e-6)
    shorthand = ridge(schema=None, bounds=(-1, 1), target_bounds=(-1, 1))
    shorthand.fit(frame[["a", "b"]].to_numpy(), frame["y"], unit=frame["person"])
    assert shorthand.coef_ == pytest.approx(expected, rel=1e-6)
    assert shorthand.schema_.unit == "person"  # the name of the series


@pytest.mark.parametrize("parts", [1, 4])
def test_dask_frames_and_arrays_shuffle_by_person(frame, parts):
    expected = ridge().fit(frame).coef_
    lazy = dd.from_pandas(frame, npartitions=parts)
    assert ridge().fit(lazy).coef_ == pytest.approx(expected, rel=1e-6)
    domain = Domain(2.0, 1.0, unit="person")
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()
    ids = frame["person"].str.removeprefix("patient-").astype(int).to_numpy()
    chunks = -(-len(X) // parts)
    rows = make_rows(
        da.from_array(X, chunks=(chunks, 2)),
        da.from_array(y, chunks=chunks),
        domain,
        unit=da.from_array(ids, chunks=chunks),
    )
    plain = make_rows(X, y, domain, unit=ids)
    theta = np.array([[0.3], [-0.2]])
    assert rows.count() == plain.count() == 400
    assert rows.gradient_sum(Squared(), theta, 0.3) == pytest.approx(
        plain.gradient_sum(Squared(), theta, 0.3), rel=1e-9
    )
    measured = [r.in_metric(np.eye(2), 0.7).moments().xx for r in (rows, plain)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-9)


def test_a_memory_map_is_gathered_in_a_file_without_a_name(frame, tmp_path):
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()
    mapped = np.memmap(tmp_path / "X.bin", np.float64, "w+", shape=X.shape)
    mapped[:] = X
    domain, theta = Domain(2.0, 1.0, unit="person"), np.array([[0.3], [-0.2]])
    sums = [
        make_rows(M, y, domain, unit=frame["person"]).gradient_sum(Squared(), theta, 0.3) for M in (X, mapped)
    ]
    assert np.array_equal(*sums)


def test_rows_of_their_own_persons_give_the_sums_of_rows(frame):
    """k = 1: the sums that a row-level mechanism sees, up to rounding."""
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()
    rows = make_rows(X, y, Domain(1.2))
    persons = make_rows(X, y, Domain(1.2, unit="p"), unit=np.arange(len(X)))
    A, theta = np.array([[1.0, 0.4], [0.0, 0.7]]), np.array([[0.3], [-0.2]])
    left, right = (each.in_metric(A) for each in (rows, persons))
    sums = [each.gradient_sum(Squared(), theta, 0.2) for each in (left, right)]
    assert sums[0] == pytest.approx(sums[1])
    edges = np.array([0.1, 0.3, 0.5])
    assert left.norm_histogram(edges).tolist() == right.norm_histogram(edges).tolist()
    histograms = [each.gradient_norm_histogram(Squared(), theta, edges).tolist() for each in (left, right)]
    assert histograms[0] == histograms[1]
    grams = [each.in_metric(A, 0.6).moments().xx for each in (rows, persons)]
    assert grams[0] == pytest.approx(grams[1])


def test_identifiers_under_another_name_than_the_promised_one_are_refused(frame, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=5.0, delta=1e-5, unit="person")
    with pytest.raises(InvalidInput, match="'person' tells whose row it is, and unit is 'household'"):
        ridge(random_state=None, ledger=ledger).fit(frame, unit=frame["person"].rename("household"))
    assert ledger.state().spent_epsilon == 0
    beside = frame[["a", "b"]].to_numpy()
    assert ridge().fit(beside, frame["y"], unit=frame["person"]).privacy_.neighbours.unit == "person"


def test_nothing_derived_from_an_identifier_leaves(frame, tmp_path, capsys, caplog):
    model = ridge(random_state=None, schema=Schema((*COLUMNS, Ignored("person")), target="y", unit="person"))
    model.fit(frame)
    model.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    assert "patient" not in text + repr(model) + repr(vars(model)) + capsys.readouterr().out + caplog.text
    assert "patient" not in repr(SCHEMA.source(frame).of_persons("person"))
    again = load(tmp_path / "model.json")
    assert again.privacy_.neighbours == Neighbours("replace", "person")
    assert again.schema_.unit == "person"
    assert again.predict(frame).shape == (len(frame),)
    assert np.isfinite(model.predict(frame.drop(columns="person"))).all()  # predictions need no identifier
    assert json.loads(text)["schema"]["unit"] == "person"


def test_a_ledger_of_rows_and_one_of_persons_are_told_apart(frame, tmp_path):
    of_rows = Ledger.create(tmp_path / "rows.db", epsilon=5.0, delta=1e-5)
    of_persons = Ledger.create(tmp_path / "persons.db", epsilon=5.0, delta=1e-5, unit="person")
    with pytest.raises(LedgerRefused, match="person"):
        ridge(random_state=None, ledger=of_rows).fit(frame)
    ridge(random_state=None, ledger=of_persons).fit(frame)
    assert of_rows.state().spent_epsilon == 0 and of_persons.state().spent_epsilon > 0


def test_classes_and_descent_bound_persons_too(frame):
    labels = np.where(frame["y"] > 0, "yes", "no")
    X = frame[["a", "b"]].to_numpy()
    model = PrivateLogisticRegression(bounds=(-1, 1), classes=["no", "yes"], mechanism=QUICK, random_state=0)
    model.fit(X, labels, unit=frame["person"].tolist())
    assert model.privacy_.neighbours.unit == "unit" and model.coef_[0, 0] > 0
    descent = ridge(mechanism=NoisyGradient(rounds=20)).fit(frame)
    assert descent.privacy_.theorem == "(U-1)" and descent.coef_[0] > 0


def test_private_fit_takes_identifiers_where_the_domain_declares_them(frame):
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()
    problem = Problem(Squared(), domain=Domain(2.0, 1.0, "add_remove", unit="person"))
    options = {"budget": Budget(1.0, 1e-6), "mechanism": QUICK, "random_state": 0}
    released = private_fit(problem, X, y, unit=frame["person"], **options)
    assert released.privacy.neighbours.words == "one person with all rows of one 'person' added or removed"
    with pytest.raises(InvalidInput, match="unit"):
        private_fit(problem, X, y, **options)
    with pytest.raises(InvalidInput, match="unit"):
        private_fit(Problem(Squared()), X, y, unit=frame["person"], **options)
    with pytest.raises(CurvedpError, match="one entry per row"):
        private_fit(problem, X, y, unit=frame["person"][:-1], **options)


def test_a_schema_names_its_unit_in_its_file_and_learns_nothing_from_it():
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    assert "person" not in SCHEMA.feature_names
    assert SCHEMA.neighbours == Neighbours("replace", "person")
    for wrong in ({"unit": "a"}, {"unit": "y"}, {"unit": ""}, {"unit": 3}):
        with pytest.raises(InvalidInput, match="whose row"):
            Schema(COLUMNS, target="y", **wrong)
    with pytest.raises(InvalidInput, match="text"):
        Schema.from_dict({**SCHEMA.to_dict(), "unit": 3})


def test_decimals_are_named_by_value_and_nothing_else_is_unified():
    cells = [
        "7",
        7,
        7.0,
        " 7 ",
        "07",
        "p",
        "P",
        2**60,
        2**60 + 1,
        None,
        "",
        "N/A",
        float("nan"),
        2.0**53,
        [1],
    ]
    assert [identifier(cell) for cell in cells] == [
        *["7"] * 5, "p", "P", str(2**60), str(2**60 + 1), *[None] * 6
    ]  # fmt: skip
    codes = Identifiers().codes(np.array([2**60, 2**60 + 1, 2**60]))
    assert codes.tolist() == [0, 1, 0]
    assert Identifiers().codes(pd.Series([1, None, 1], dtype="Int64")).tolist() == [0, -1, 0]
    known = Identifiers()
    assert [known.codes(chunk).tolist() for chunk in (["a", "b"], ["b", "c"])] == [[0, 1], [1, 2]]


def test_plans_that_bound_rows_are_refused_and_say_what_to_do():
    problem = Problem(Squared(), domain=Domain(unit="person"))
    from curvedp.mechanisms import QOP
    from curvedp_studies.mechanisms.lop import LOPClip

    for mechanism in (QOP(), LOPClip(clip=0.25)):
        with pytest.raises(CurvedpError, match="'person' says that a person may have several"):
            make_plan(mechanism, problem, 2, Budget(1.0, 1e-6))


def test_the_report_says_one_person_only_where_a_unit_was_declared(frame):
    from curvedp.cli.workflow import release_report

    page = release_report(ridge().fit(frame))
    assert "one person" in page and "one record" not in page
    plain = release_report(ridge(schema=Schema(COLUMNS, target="y")).fit(frame))
    assert "one person" not in plain and "one record" in plain


def test_the_temporary_file_is_gone_when_the_rows_are(frame, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mapped = np.memmap(tmp_path / "X.bin", np.float64, "w+", shape=(50, 2))
    rows = make_rows(mapped, np.zeros(50), Domain(unit="p"), unit=np.arange(50) % 7)
    rows.norm_histogram(np.array([1.0]))
    assert [path.name for path in Path(tmp_path).iterdir()] == ["X.bin"]
