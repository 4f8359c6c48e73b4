"""A cluster of two worker processes: the same coefficients, one worker killed, no row in any log."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Reschedule

from curvedp.data.graphs import without_raising
from curvedp.data.rows import Rows, make_rows
from curvedp.data.rows import dask as dask_rows
from curvedp.data.rows.dask import shares_of_workers
from curvedp.errors import DataError
from curvedp.mechanisms.objective import QOP
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Squared
from curvedp.release.fit import private_fit

N, P, PARTS = 1200, 3, 12
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not find this file


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """One cluster for all tests: its logs hold what all of them caused.

    Workers are killed at the end of this file: who was sending to a killed one logs the traceback of a closed
    connection, which says nothing of the data.
    """
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as workers,
        Client(workers) as client,
    ):
        client.wait_for_workers(2)
        yield client


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(N, P))
    return X, np.sign(X @ [0.6, -0.5, 0.2] + random.normal(0, 0.3, N))


LOSSES = {"squared": Squared(), "logistic": Logistic()}


def fit(kind: str, X, y) -> np.ndarray:
    """θ of a seeded fit: one pass for the squared loss, many for the logistic one."""
    problem = Problem(LOSSES[kind], domain=Domain(2.0))
    return private_fit(problem, X, y, budget=Budget(1.0, 1e-6), mechanism=QOP(), random_state=3).value.theta


def slowly(block: np.ndarray, notes: str) -> np.ndarray:
    """The block, after a while; a note says which process reads it."""
    Path(notes, f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.05)
    return block


def slow(X: np.ndarray, notes: Path) -> da.Array:
    made = [dask.delayed(slowly)(block, str(notes)) for block in np.array_split(X, PARTS)]
    parts = [da.from_delayed(value, (N // PARTS, P), dtype=float) for value in made]
    return da.concatenate(parts)


def kill_reader(notes: Path, after: int, workers: set[int], killed: list[int]) -> None:
    """Kill -9 the worker that reads, once that many partitions were read."""
    while len(readings := sorted(notes.iterdir(), key=lambda note: note.stat().st_mtime_ns)) < after:
        time.sleep(0.002)
    pid = int(readings[-1].name.split("-")[0])
    assert pid in workers
    os.kill(pid, signal.SIGKILL)
    killed.append(pid)


def test_data_on_the_cluster_is_used_where_it_is(client, table):
    X, y = table
    lazy = dask.persist(da.from_array(X, chunks=(100, P)), da.from_array(y, chunks=100))
    np.testing.assert_allclose(fit("logistic", *lazy), fit("logistic", X, y), rtol=1e-9)


def fail(block: np.ndarray) -> np.ndarray:
    raise ValueError(f"cannot parse {block[0, 0]}, secret 4711")


def failing(X: np.ndarray, shared: bool) -> da.Array:
    """X in twelve partitions whose readings fail: each its own, or one that all of them need."""
    if not shared:
        return da.from_array(X, chunks=(N // PARTS, P)).map_blocks(fail, meta=np.empty((0, P)))
    once = dask.delayed(fail)(X)
    size = N // PARTS
    return da.concatenate(
        [da.from_delayed(once[i * size : (i + 1) * size], (size, P), dtype=float) for i in range(PARTS)]
    )


@pytest.mark.parametrize("shared", [False, True], ids=["its own source", "a source of all"])
@pytest.mark.parametrize("passes", ["one pass", "kept records"])
def test_workers_log_nothing_of_what_went_wrong_in_a_partition(client, table, shared, passes):
    X, y = table
    rows = make_rows(failing(X, shared), da.from_array(y, chunks=N // PARTS), Domain(2.0))
    with pytest.raises(DataError) as caught:
        rows.moments() if passes == "one pass" else rows.gradient_sum(Logistic(), np.zeros((P, 1)))
    start = "what several partitions need" if shared else "partition 1 of 12"
    assert f"{start} cannot be read (ValueError)" in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    for text in (str(caught.value), logs):
        for told in ("secret", f"{X[0, 0]}", "Traceback"):
            assert told not in text


def lazy_rows(table) -> dask_rows.DaskRows:
    X, y = table
    return make_rows(
        da.from_array(X, chunks=(N // PARTS, P)), da.from_array(y, chunks=N // PARTS), Domain(2.0)
    )


def test_a_pass_over_kept_records_has_one_task_per_worker(client, table):
    rows, theta = lazy_rows(table), np.ones((P, 1))
    found = rows.gradient_sum(Logistic(), theta)
    stage = rows.stage(keep=True)
    assert stage.gathered and len(stage.sources) <= 2 < PARTS
    seen = rows.in_metric(2.0 * np.eye(P))
    clipped = seen.gradient_sum(Logistic(), theta, 0.1)
    view = seen.stage(keep=True)
    assert view.gathered and len(view.sources) == len(stage.sources)
    plain = make_rows(*table, Domain(2.0))
    np.testing.assert_allclose(found, plain.gradient_sum(Logistic(), theta), rtol=1e-10)
    np.testing.assert_allclose(
        clipped, plain.in_metric(2.0 * np.eye(P)).gradient_sum(Logistic(), theta, 0.1), rtol=1e-10
    )
    np.testing.assert_array_equal(rows.gradient_sum(Logistic(), theta), found)


def test_every_partition_is_in_one_share_and_lost_ones_are_not_gathered(client, table, monkeypatch):
    rows, theta = lazy_rows(table), np.ones((P, 1))
    stage = rows.stage(keep=False)
    shares = shares_of_workers(stage._persisted(*stage._tasks(dask_rows.keep)))
    assert sorted(i for partitions, _ in shares for i in partitions) == list(range(PARTS))
    assert all(partitions == sorted(partitions) and threads == 1 for partitions, threads in shares)
    monkeypatch.setattr(client, "who_has", lambda futures: {})
    found = rows.gradient_sum(Logistic(), theta)
    stage = rows.stage(keep=True)
    assert not stage.gathered and len(stage.sources) == PARTS
    plain = make_rows(*table, Domain(2.0)).gradient_sum(Logistic(), theta)
    np.testing.assert_allclose(found, plain, rtol=1e-10)


def shuffled(X: np.ndarray, y: np.ndarray, read: Callable[[pd.DataFrame], pd.DataFrame]) -> dd.DataFrame:
    """A table of which every partition needs every other one, through the engine's own shuffle."""
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y, k=np.arange(len(X)) % 7)
    lazy = dd.from_pandas(frame, npartitions=6)
    return lazy.map_partitions(read, meta=lazy._meta).shuffle("k")


def fail_on_rows(frame: pd.DataFrame) -> pd.DataFrame:
    raise ValueError(f"cannot parse {frame['a'].iloc[0]}, secret 4711")


def test_shuffled_tables_are_read_and_their_failures_say_nothing(client, table):
    X, y = table
    lazy = shuffled(X, y, pd.DataFrame.copy)
    found = make_rows(lazy[["a", "b", "c"]], lazy["y"], Domain(2.0)).moments()
    np.testing.assert_allclose(found.xx, make_rows(X, y, Domain(2.0)).moments().xx, rtol=1e-11)
    lazy = shuffled(X, y, fail_on_rows)
    with pytest.raises(DataError) as caught:
        make_rows(lazy[["a", "b", "c"]], lazy["y"], Domain(2.0)).moments()
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    for text in (str(caught.value), logs):
        assert "secret" not in text and f"{X[0, 0]}" not in text


PEOPLE = Domain(2.0, 1.0, unit="id")
EDGES = np.linspace(0.1, 4.0, 20)


def persons(table, read: Callable[[pd.DataFrame], pd.DataFrame] = pd.DataFrame.copy) -> tuple[Rows, Rows]:
    """(in twelve partitions, in memory): 100 persons, the rows of each in every partition."""
    X, y = table
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y, k=np.arange(N) % 100)
    lazy = dd.from_pandas(frame, npartitions=PARTS).map_partitions(read, meta=frame.iloc[:0])
    ids = frame["k"].to_numpy()
    return (
        make_rows(lazy[["a", "b", "c"]], lazy["y"], PEOPLE, unit=lazy["k"]),
        make_rows(X, y, PEOPLE, unit=ids),
    )


def same_persons(lazy: Rows, plain: Rows) -> None:
    theta = np.ones((P, 1))
    assert lazy.count() == plain.count() == 100
    np.testing.assert_array_equal(lazy.norm_histogram(EDGES), plain.norm_histogram(EDGES))
    np.testing.assert_allclose(
        lazy.gradient_sum(Squared(), theta, 0.3), plain.gradient_sum(Squared(), theta, 0.3), rtol=1e-11
    )


@pytest.mark.parametrize("share", [0.5, 0.0], ids=["kept", "shuffled in every pass"])
def test_persons_meet_by_the_shuffle_of_the_cluster(client, table, share, monkeypatch):
    monkeypatch.setattr(dask_rows, "KEEP_SHARE", share)
    lazy, plain = persons(table)
    same_persons(lazy, plain)
    stage = lazy.stage(keep=True)
    assert stage.gathered == (share > 0)
    # One source for each worker that was given persons, of which there are two at most.
    assert len(stage.sources) in ((1, 2) if share else (PARTS,))


def test_a_partition_of_persons_that_fails_says_nothing(client, table):
    lazy, _ = persons(table, fail_on_rows)
    with pytest.raises(DataError, match=r"^partition \d+ of 12 cannot be read \(ValueError\)") as caught:
        lazy.count()
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    for text in (str(caught.value), logs):
        assert "secret" not in text and f"{table[0][0, 0]}" not in text


def test_what_a_worker_cannot_open_is_an_error_and_no_endless_wait(client, table):
    X, y = table
    here = types.ModuleType("only_on_the_client")
    exec("def double(block):\n    return 2.0 * block", here.__dict__)
    sys.modules[here.__name__] = here
    try:
        lazy = da.from_array(X, chunks=(100, P)).map_blocks(here.double, meta=np.empty((0, P)))
        with pytest.raises(DataError, match=r"partition 1 of 12 cannot be read \(ModuleNotFoundError\)"):
            fit("squared", lazy, da.from_array(y, chunks=100))
    finally:
        del sys.modules[here.__name__]


@pytest.mark.parametrize(
    ("kind", "after"), [pytest.param("squared", 4, marks=pytest.mark.full), ("logistic", PARTS + 2)]
)
def test_a_killed_worker_changes_nothing(client, table, tmp_path, kind, after):
    """In the middle of the only pass, and while records that were kept for later passes are lost."""
    X, y = table
    expected = fit(kind, X, y)
    client.wait_for_workers(2)
    workers, killed = set(client.run(os.getpid).values()), []
    watch = threading.Thread(
        target=kill_reader, args=(tmp_path, min(after, PARTS), workers, killed), daemon=True
    )
    watch.start()
    found = fit(kind, slow(X, tmp_path), da.from_array(y, chunks=N // PARTS))
    watch.join()
    assert killed
    assert len(list(tmp_path.iterdir())) > PARTS  # something had to be read again
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_shuffle_that_lost_a_worker_may_ask_the_engine_to_begin_again():
    def closed() -> None:
        raise Reschedule

    with pytest.raises(Reschedule):
        without_raising(closed, "partition 1 of 2", [])


def slowly_copied(part: pd.DataFrame, notes: str) -> pd.DataFrame:
    if len(part) > 1:  # not the one by which types are inferred
        Path(notes, f"{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.05)
    return part


def test_a_worker_killed_in_the_shuffle_changes_nothing(client, table, tmp_path, monkeypatch):
    """Its disk held pieces of every partition; the engine begins the shuffle again."""
    monkeypatch.setattr(dask_rows, "KEEP_SHARE", 0.0)  # one reading, which is that of the shuffle
    client.wait_for_workers(2)
    lazy, plain = persons(table, partial(slowly_copied, notes=str(tmp_path)))
    workers, killed = set(client.run(os.getpid).values()), []
    watch = threading.Thread(target=kill_reader, args=(tmp_path, 8, workers, killed), daemon=True)
    watch.start()
    assert lazy.count() == plain.count() == 100
    watch.join()
    assert killed and len(list(tmp_path.iterdir())) > PARTS
    np.testing.assert_array_equal(lazy.norm_histogram(EDGES), plain.norm_histogram(EDGES))
