"""Persons in the partitions of Dask, on threads: they meet whole, and every number is that of memory."""

from __future__ import annotations

import gc
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from curvedp import Domain, Ledger, PrivateRidge, Schema
from curvedp.data import Numeric
from curvedp.data.graphs import Failure, Folder
from curvedp.data.rows import dask as dask_rows
from curvedp.data.rows import make_rows
from curvedp.data.rows.base import Rows
from curvedp.data.rows.blocked import ArrayRows, plain_records, rows_of
from curvedp.data.rows.dask import DaskRows, KeptRows, gather, keep
from curvedp.data.source import source
from curvedp.errors import BudgetExceeded, DataError, InvalidInput
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems.losses import Squared

SCHEMA = Schema((Numeric("a", -1, 1), Numeric("b", -1, 1), Numeric("y", -1, 1)), target="y", unit="id")
DOMAIN = Domain(2.0, 1.0, unit="id")
THETA, EDGES = np.array([[0.3], [-0.2]]), np.linspace(0.05, 4.0, 40)
N, PERSONS = 900, 150


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(7)
    a, b = random.uniform(-1, 1, (2, N))
    ids = random.permutation(np.arange(N) % PERSONS)
    return pd.DataFrame({"a": a, "b": b, "y": np.clip(a / 2 + b**2, -1, 1), "id": ids})


def spelled(part: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
    """The identifiers of each partition in another spelling and type; every fifth row is nobody's."""
    number = partition_info["number"] if partition_info else 0
    ids = part["id"].to_numpy()
    names = [lambda i: f"{i:05d}", lambda i: f" {i}.0 ", lambda i: i, lambda i: str(i).encode()][number % 4]
    column = pd.Series([names(int(i)) for i in ids], index=part.index, dtype=object)
    column[part["a"] > 0.6] = None
    return part.assign(id=column)


def same_numbers(found: Rows, expected: Rows) -> None:
    assert found.persons and found.count() == expected.count()
    near = {"rtol": 1e-12, "atol": 1e-12}
    for rows in (found, found.in_metric(np.diag([2.0, 0.5]))):
        plain = expected if rows is found else expected.in_metric(np.diag([2.0, 0.5]))
        np.testing.assert_allclose(
            rows.gradient_sum(Squared(), THETA, 0.3), plain.gradient_sum(Squared(), THETA, 0.3), **near
        )
        np.testing.assert_array_equal(rows.norm_histogram(EDGES), plain.norm_histogram(EDGES))
        np.testing.assert_array_equal(
            rows.gradient_norm_histogram(Squared(), THETA, EDGES),
            plain.gradient_norm_histogram(Squared(), THETA, EDGES),
        )
        np.testing.assert_allclose(rows.column_cells([0, 1]), plain.column_cells([0, 1]), **near)
    metric = np.eye(2)
    np.testing.assert_allclose(
        found.in_metric(metric, 0.7).moments().xx, expected.in_metric(metric, 0.7).moments().xx, **near
    )


def in_memory(frame: pd.DataFrame) -> Rows:
    return make_rows(frame[["a", "b"]].to_numpy(), frame["y"].to_numpy(), DOMAIN, unit=frame["id"])


def in_partitions(lazy: dd.DataFrame) -> Rows:
    return make_rows(lazy[["a", "b"]], lazy["y"], DOMAIN, unit=lazy["id"])


@pytest.mark.parametrize("parts", [1, 2, 40])
def test_sums_and_counts_are_those_of_memory(frame, parts):
    rows = in_partitions(dd.from_pandas(frame, npartitions=parts))
    assert isinstance(rows, DaskRows) and rows.persons
    same_numbers(rows, in_memory(frame))


def test_a_person_is_one_however_the_partitions_spell_it_and_nobody_enters_no_sum(frame):
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(frame, npartitions=8)
        lazy = lazy[lazy["b"] < 2].map_partitions(spelled, meta=frame.astype({"id": object}).iloc[:0])
        whole = frame[frame["a"] <= 0.6]
        same_numbers(in_partitions(lazy), in_memory(whole))
        counted = SCHEMA.source(lazy).of_persons("id")
        assert counted.rows() == whole["id"].nunique()


def test_empty_partitions_and_arrays_of_any_kind(frame):
    lazy = dd.from_pandas(frame, npartitions=6)
    same_numbers(in_partitions(lazy[lazy["a"] > 0.95]), in_memory(frame[frame["a"] > 0.95]))
    nobody = in_partitions(lazy[lazy["a"] > 5])
    assert nobody.count() == 0 and not nobody.norm_histogram(EDGES).any()
    X, y, ids = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy(), frame["id"].to_numpy()
    blocks = [da.from_array(values, chunks=(200, *values.shape[1:])) for values in (X, y, ids)]
    for table in (blocks[0], blocks[0].map_blocks(sparse.csr_array)):
        same_numbers(make_rows(table, blocks[1], DOMAIN, unit=blocks[2]), in_memory(frame))
    hidden = da.ma.masked_greater(blocks[0], 0.5)
    found = SCHEMA.source(hidden, beside={"y": blocks[1], "unit": blocks[2]}).of_persons("id")
    assert sum(np.ma.count_masked(chunk.matrix) for chunk in found.each()) == np.sum(X > 0.5)
    with pytest.raises(InvalidInput, match="floating type"):
        make_rows(blocks[0], blocks[1], DOMAIN, unit=blocks[2].astype(float))


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_parquet_files_may_store_identifiers_in_different_types(frame, scheduler, tmp_path):
    stored = (pa.array(frame["id"][:400]), pa.array([f"0{i}" for i in frame["id"][400:]]).dictionary_encode())
    for i, (rows, ids) in enumerate(zip((frame[:400], frame[400:]), stored, strict=True)):
        columns = {name: rows[name].to_numpy() for name in ("a", "b", "y")} | {"id": ids}
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet", row_group_size=130)
    model = PrivateRidge(schema=SCHEMA, mechanism=Recentered(Rule(rounds=2, first_rounds=1)), random_state=3)
    expected = model.fit(tmp_path).coef_.copy()
    with dask.config.set(scheduler=scheduler, num_workers=2):
        found = model.fit(SCHEMA.source(tmp_path, engine="dask")).coef_
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.full
def test_processes_of_this_machine_share_the_folder(frame):
    with dask.config.set(scheduler="processes", num_workers=2):
        assert SCHEMA.source(dd.from_pandas(frame, npartitions=3)).of_persons("id").rows() == PERSONS


def test_rows_of_a_person_stay_in_the_order_of_the_table(frame):
    """What is clipped is a sum in floating point: it must be a function of the person's own rows."""
    numbered = frame.assign(b=np.arange(N) / N)
    found = SCHEMA.source(dd.from_pandas(numbered, npartitions=7)).of_persons("id")
    seen: set[int] = set()
    for chunk in found.each():
        own = pd.DataFrame({"id": chunk.column("id"), "b": chunk.column("b"), "part": chunk.parts})
        assert own.groupby("id")["b"].is_monotonic_increasing.all()
        assert (own.groupby("id")["part"].sum() == 1.0).all()
        assert not seen & set(own["id"])
        seen |= set(own["id"])
    assert seen == set(range(PERSONS))


def test_one_row_of_each_person_by_coins_of_its_own(frame):
    twice = frame.assign(id=np.arange(N) // 2, b=np.tile([0.0, 0.5], N // 2))
    lazy = dd.from_pandas(twice, npartitions=3)
    found = SCHEMA.source(lazy).of_persons("id", "one")
    first, again = ([chunk.column("b")[chunk.parts == 1.0] for chunk in found.each()] for _ in range(2))
    assert sum(map(len, first)) == found.rows() == N // 2
    assert all(map(np.array_equal, first, again))  # a pass throws no coin
    least = min(map(len, first))
    assert least > 60  # so that equal coins are no accident
    assert not np.array_equal(first[0][:least], first[1][:least])
    table = source(lazy[["a", "b"]], beside={"y": lazy["y"], "unit": lazy["id"]})
    rows = rows_of(table, partial(plain_records, names=("a", "b")), DOMAIN, None, "one")
    assert rows.count() == N // 2
    chosen = rows.vector_sum(row_of_a_person, 2, 10.0)
    assert chosen.sum() == N // 2 and chosen.min() > 0.4 * N // 2
    np.testing.assert_array_equal(rows.vector_sum(row_of_a_person, 2, 10.0), chosen)


def row_of_a_person(block: Any, y: Any, domain: Any) -> np.ndarray:
    """Which of the two rows a record is: (1, 0) or (0, 1)."""
    return np.eye(2)[(block.margins(np.array([[0.0], [1.0]]))[:, 0] > 0.2).astype(int)]


class Reader:
    """Notes which partitions are read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __call__(self, part: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
        if partition_info:
            self.read.append(partition_info["number"])
        return part


@pytest.mark.parametrize("room", [2**30, 0], ids=["kept", "not kept"])
def test_a_table_is_shuffled_once_and_its_files_go_with_the_rows(frame, room, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_rows, "KEEP_BYTES", room)
    reader = Reader()
    lazy = dd.from_pandas(frame, npartitions=5).map_partitions(reader, meta=frame.iloc[:0])
    with dask.config.set({"temporary_directory": str(tmp_path)}):
        small = Ledger.create(tmp_path.with_suffix(".db"), epsilon=0.1, delta=1e-9, unit="id")
        with pytest.raises(BudgetExceeded):
            PrivateRidge(schema=SCHEMA, epsilon=1.0, ledger=small).fit(lazy)
        rows = in_partitions(lazy)
        assert reader.read == []  # nothing before the charge
        gc.collect()
        same_numbers(rows, in_memory(frame))
    times = 2 if room else 1  # to see whether they may be kept, and to deal them
    assert sorted(reader.read) == sorted(times * [*range(5)])
    (folder,) = tmp_path.iterdir()
    assert len([*folder.iterdir()]) == 5 and folder.stat().st_mode & 0o077 == 0
    del rows
    gc.collect()
    assert not [*tmp_path.iterdir()]


def fails(part: pd.DataFrame) -> pd.DataFrame:
    raise ValueError("secret")


def test_a_partition_that_fails_is_one_sentence(frame):
    lazy = dd.from_pandas(frame, npartitions=3).map_partitions(fails, meta=frame.iloc[:0])
    with pytest.raises(
        DataError, match=r"^partition 1 of 3 cannot be read \(ValueError\).*charge stands"
    ) as e:
        in_partitions(lazy).count()
    assert e.value.__cause__ is None and e.value.__context__ is None
    with pytest.raises(DataError, match=r"^partition 1 of 3 cannot be read \(ValueError\)"):
        SCHEMA.source(lazy).of_persons("id").rows()
    wrong = dd.from_pandas(frame, npartitions=3).map_partitions(
        lambda part: part.astype({"id": float}), meta=frame.iloc[:0], enforce_metadata=False
    )
    with pytest.raises(DataError, match="floating type"):
        in_partitions(wrong).count()


def test_what_a_worker_keeps_of_persons_is_gathered(frame):
    kept = [keep(ArrayRows(X, y, DOMAIN, threads=1, codes=ids)) for X, y, ids in halves(frame)]
    both = gather(2, kept)
    assert isinstance(both, KeptRows) and both.threads == 2 and both.count() == PERSONS
    assert both.__sizeof__() == sum(each.__sizeof__() for each in kept) == 8 * N * (2 + 2 + 1)
    assert both.blocks[0][0] is kept[0].blocks[0][0]
    failure = Failure("partition 2 of 3 cannot be read")
    assert gather(2, [kept[0], failure]) is failure


def halves(frame: pd.DataFrame) -> list[tuple[Any, Any, Any]]:
    odd = frame["id"] % 2 == 1
    return [
        (part[["a", "b"]].to_numpy(), part["y"].to_numpy(), part["id"].to_numpy())
        for part in (frame[odd], frame[~odd])
    ]


def test_the_folder_is_of_this_machine(tmp_path: Path) -> None:
    with dask.config.set({"temporary_directory": str(tmp_path)}):
        folder = Folder()
    there = pickle.loads(pickle.dumps(folder))  # as a process of this machine gets it
    assert there.path == folder.path
    del there
    assert folder.path.exists()  # it belongs to who made it
