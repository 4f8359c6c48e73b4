"""Fits of Dask collections and Parquet folders: the coefficients and the rules of the in-memory fit."""

from __future__ import annotations

from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvedp import PrivateElasticNet, PrivateLinearRegression, PrivateLogisticRegression, private_fit
from curvedp.data import Schema
from curvedp.data.graphs import over_parts
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.errors import BudgetExceeded, CurvedpError, DataError, InvalidInput
from curvedp.mechanisms import QOP, Recentered, Statistics
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.constraints import Box
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Squared
from curvedp.problems.regularizers import L1
from curvedp.release.ledger import Ledger
from curvedp_studies.mechanisms.baselines import NoisyGradient, OutputPerturbation
from curvedp_studies.mechanisms.dpsgd import sampled_gradient_sum
from curvedp_studies.mechanisms.lop import AMP, LOP, LOPClip

N, P = 1500, 3
COLUMNS = ColumnMap.from_bounds(-np.ones(P), np.ones(P))
DOMAIN = Domain(x_norm=COLUMNS.norm_bound)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
CLOSE = {"rtol": 1e-9, "atol": 0.0}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.uniform(-1.2, 1.2, size=(N, P))
    return X, np.clip(X @ [0.5, -0.4, 0.1] + random.normal(0, 0.2, N), -1, 1)


def uneven(parts: int) -> tuple[int, ...]:
    """N rows in that many partitions, some of them empty where there are several."""
    random = np.random.default_rng(parts)
    ends = np.sort(random.integers(0, N + 1, parts - 1))
    return tuple(np.diff([0, *ends, N]).tolist())


@pytest.mark.parametrize("parts", [1, 2, 13, 1000])
def test_coefficients_do_not_depend_on_the_partitions(table, parts):
    X, y = table
    chunks = uneven(parts)
    assert parts < 1000 or 0 in chunks
    model = PrivateElasticNet(
        bounds=(-1, 1), target_bounds=(-1, 1), mechanism="qop", random_state=5, **BUDGET
    )
    expected = model.fit(X, y).coef_
    lazy = model.fit(da.from_array(X, chunks=(chunks, P)), da.from_array(y, chunks=(chunks,)))
    np.testing.assert_allclose(lazy.coef_, expected, **CLOSE)


@pytest.mark.parametrize(
    "mechanism",
    [
        QOP(),
        LOP(),
        LOPClip(clip=0.5),
        AMP(),
        Recentered(),
        Statistics(),
        OutputPerturbation(),
        NoisyGradient(),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_every_mechanism_that_works_by_passes(table, mechanism, loss):
    X, y = table
    if isinstance(mechanism, Statistics) and not loss.is_quadratic:
        mechanism = QOP()
    targets = y if loss.is_quadratic else np.sign(y)
    problem = Problem(loss, L1(0.5), Box(2.0), DOMAIN)
    options = {"budget": Budget(**BUDGET), "mechanism": mechanism, "random_state": 7, "columns": COLUMNS}
    expected = private_fit(problem, X, targets, **options)
    chunks = uneven(4)
    lazy = private_fit(
        problem, da.from_array(X, chunks=(chunks, P)), da.from_array(targets, chunks=(chunks,)), **options
    )
    np.testing.assert_allclose(lazy.value.theta, expected.value.theta, **CLOSE)
    assert lazy.privacy.to_dict() == expected.privacy.to_dict()


def test_records_are_sampled_where_they_are(table):
    """The coins are tossed in the partitions: the sum of a sample of all is the sum of all."""
    X, y = table
    rows = make_rows(da.from_array(X, chunks=(400, P)), da.from_array(np.sign(y), chunks=400), DOMAIN)
    theta, random = np.ones((P, 1)), np.random.default_rng(0)
    whole = rows.gradient_sum(Logistic(), theta, 0.3)
    np.testing.assert_allclose(sampled_gradient_sum(rows, Logistic(), theta, 0.3, 1.0, random), whole)
    half = [sampled_gradient_sum(rows, Logistic(), theta, 0.3, 0.5, random) for _ in range(8)]
    assert not np.array_equal(half[0], half[1])
    assert np.linalg.norm(np.mean(half, axis=0) - whole / 2) <= 0.3 * 0.5 * np.sqrt(N / 8) * 5


def test_data_frames_keep_their_names_and_labels_their_classes(table):
    X, y = table
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=np.where(y > 0, "yes", "no"))
    frame.loc[3, "label"] = "maybe"
    model = PrivateLogisticRegression(
        bounds=dict.fromkeys("abc", (-1, 1)),
        classes=["no", "yes"],
        mechanism="qop",
        random_state=5,
        **BUDGET,
    )
    expected = model.fit(frame[["a", "b", "c"]], frame["label"]).coef_
    lazy = dd.from_pandas(frame, npartitions=3)
    for labels in (lazy["label"], lazy[["label"]], lazy["label"].to_dask_array(lengths=True)):
        model.fit(lazy[["a", "b", "c"]], labels)
        assert model.feature_names_in_.tolist() == ["a", "b", "c"] and model.n_features_in_ == P
        np.testing.assert_allclose(model.coef_, expected, **CLOSE)
    model.set_params(bounds=(-1, 1)).fit(
        da.from_array(X), da.from_array(frame["label"].to_numpy(object), chunks=N)
    )
    np.testing.assert_allclose(model.coef_, expected, **CLOSE)
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(da.from_array(X, chunks=(400, P))).tolist() == model.predict(X).tolist()
    mapped = da.from_array(X, chunks=(400, P)).map_blocks(model.predict, drop_axis=1, dtype=object)
    assert mapped.compute().tolist() == model.predict(X).tolist()


def test_columns_of_one_frame_stay_together_however_dask_reads_them(table, tmp_path):
    """The optimizer of Dask may read one column in fewer partitions than twenty."""
    X, y = table
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, **{f"z{i}": 0.0 for i in range(30)})
    for i, rows in enumerate(np.array_split(np.arange(N), 6)):
        frame.iloc[rows].to_parquet(tmp_path / f"{i}.parquet")
    lazy = dd.read_parquet(tmp_path)
    model = PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1), mechanism="qop", random_state=1)
    expected = model.fit(X, y).coef_
    np.testing.assert_allclose(model.fit(lazy[["a", "b", "c"]], lazy["y"]).coef_, expected, **CLOSE)


def test_a_charge_comes_before_any_reading_and_stays_when_reading_fails(table, tmp_path):
    X, y = table
    read = []

    def load(block: np.ndarray) -> np.ndarray:
        read.append(len(block))
        raise OSError("secret 4711: no such file")

    lazy = da.from_delayed(dask.delayed(load)(X), (N, P), dtype=float)
    book = Ledger.create(tmp_path / "budget.db", epsilon=1.5, delta=1e-5, filter="basic")
    model = PrivateLinearRegression(
        bounds=(-1, 1), target_bounds=(-1, 1), mechanism="qop", ledger=str(tmp_path / "budget.db"), **BUDGET
    )
    with pytest.raises(DataError, match="partition 1 of 1 cannot be read") as caught:
        model.fit(lazy, da.from_array(y))
    assert "secret" not in str(caught.value) and read == [N]
    assert book.state().remaining_epsilon == pytest.approx(0.5)
    with pytest.raises(BudgetExceeded):
        model.fit(lazy, da.from_array(y))
    assert read == [N]


SCHEMA = """
target = "y"
[[column]]
name = "a"
kind = "numeric"
bounds = [-1, 1]
[[column]]
name = "b"
kind = "numeric"
bounds = [0, 2]
[[column]]
name = "k"
kind = "categorical"
levels = ["u", "v"]
[[column]]
name = "y"
kind = "numeric"
bounds = [-1, 1]
"""


def messy(rows: int, seed: int) -> dict[str, list]:
    """Cells of every kind: numbers as text, words, nothing at all."""
    random = np.random.default_rng(seed)
    a = [
        [f"{v:.3f}", "secret", None, "true", " 7 "][min(i % 9, 4)]
        for i, v in enumerate(random.normal(size=rows))
    ]
    b = [None if i % 7 == 0 else float(v) for i, v in enumerate(random.normal(size=rows))]
    k = [["u", "v", "w", None][i % 4] for i in range(rows)]
    return {"a": a, "b": b, "k": k, "y": random.normal(size=rows).tolist()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of several row groups; one of them is empty."""
    data = tmp_path / "data"
    (data / "deeper").mkdir(parents=True)
    for name, rows in (("0", 500), ("1", 0), ("deeper/2", 333)):
        schema = pa.schema([("a", pa.string()), ("b", pa.float32()), ("k", pa.string()), ("y", pa.float64())])
        pq.write_table(pa.table(messy(rows, len(name)), schema), data / f"{name}.parquet", row_group_size=200)
    (data / "_metadata.parquet").write_bytes(b"not read")
    return data


def rows_of_chunks(chunks) -> int:
    return sum(map(len, chunks))


def test_parquet_cells_follow_the_public_rule(folder):
    schema = Schema.from_toml(SCHEMA)
    found = schema.source(folder, engine="dask")
    assert over_parts(*found.partitions, rows_of_chunks) == [200, 200, 100, 0, 200, 133]
    files = (folder / f"{name}.parquet" for name in ("0", "1", "deeper/2"))
    whole = pa.concat_tables(map(pq.read_table, files)).to_pydict()
    features, target = schema.read(whole), schema.declared_target.encode(schema.target_cells(whole))
    X, y = schema.read(found), schema.declared_target.encode(schema.target_cells(found))
    assert np.array_equal(X, features, equal_nan=True) and np.array_equal(y, target)
    model = PrivateLinearRegression(schema=schema, mechanism="qop", random_state=2)
    reference = model.fit(whole).coef_
    for table in (found, folder):
        np.testing.assert_allclose(model.fit(table).coef_, reference, **CLOSE)
    assert schema.read(folder / "0.parquet").shape == (500, 4)
    by_label = schema.with_target("k")
    stored, labels = (by_label.declared_target.encode(by_label.target_cells(t)) for t in (folder, whole))
    np.testing.assert_array_equal(stored, labels)


def test_files_that_cannot_be_read_fail_the_fit_with_one_line(folder):
    schema = Schema.from_toml(SCHEMA)
    model = PrivateLinearRegression(schema=schema, mechanism="qop", random_state=2)
    table = pq.read_table(folder / "0.parquet")
    good = (folder / "0.parquet").read_bytes()
    for content, text in (
        (table.drop_columns("b"), "3.parquet: the table has no column 'b'"),
        (good[:2000], "3.parquet is damaged"),
        (good[:1000] + bytes(300) + good[1300:], "3.parquet is damaged"),
        (b"a,b,k,y\n1,2,u,secret\n", "3.parquet is damaged, or no Parquet file"),
    ):
        broken = folder / "3.parquet"
        (folder / "deeper" / "2.parquet").unlink(missing_ok=True)
        if isinstance(content, bytes):
            broken.write_bytes(content)
        else:
            pq.write_table(content, broken, row_group_size=200)
        with pytest.raises(CurvedpError) as caught:
            model.fit(schema.source(folder, engine="dask"))
        assert text.split(": ", 1)[-1] in str(caught.value)
        assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
        assert caught.value.__context__ is None
    with pytest.raises(InvalidInput, match="no Parquet file"):
        schema.source(folder / "nowhere.parquet", engine="dask")


def test_one_integer_beyond_every_double_is_clipped_like_any_number(table):
    """Arrow would refuse to turn it into a double, and say which one it was."""
    X, y = table
    frame = pd.DataFrame({"a": (100 * X[:, 0]).astype(np.int64), "b": X[:, 1]}).assign(y=y)
    frame.loc[7, "a"] = 2**60 + 1
    arrow = frame.convert_dtypes(dtype_backend="pyarrow")
    columns = ColumnMap.from_bounds([-100, -1], [100, 1])
    expected = make_rows(frame[["a", "b"]].to_numpy(float), y, DOMAIN, columns).moments()
    lazy = dd.from_pandas(arrow, npartitions=3)
    found = make_rows(lazy[["a", "b"]], lazy["y"], DOMAIN, columns).moments()
    np.testing.assert_allclose(found.xx, expected.xx, rtol=1e-11)
    np.testing.assert_allclose(found.xy, expected.xy, rtol=1e-9, atol=1e-9)
