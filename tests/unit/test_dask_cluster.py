"""A cluster of two worker processes: the same coefficients, one worker killed, no row in any log."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from curvedp import PrivateLinearRegression, PrivateLogisticRegression
from curvedp.errors import DataError

N, P, PARTS = 1200, 3, 12
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not find this file


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(N, P))
    return X, np.sign(X @ [0.6, -0.5, 0.2] + random.normal(0, 0.3, N))


MODELS = {
    "squared": PrivateLinearRegression(
        bounds=(-1, 1), target_bounds=(-1, 1), mechanism="qop", random_state=3
    ),
    "logistic": PrivateLogisticRegression(bounds=(-1, 1), classes=[-1, 1], mechanism="qop", random_state=3),
}


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


@pytest.mark.parametrize(("kind", "after"), [("squared", 4), ("logistic", PARTS + 2)])
def test_a_killed_worker_changes_nothing(client, table, tmp_path, kind, after):
    """In the middle of the only pass, and while records that were kept for later passes are lost."""
    X, y = table
    model = MODELS[kind]
    expected = model.fit(X, y).coef_.copy()
    client.wait_for_workers(2)
    workers, killed = set(client.run(os.getpid).values()), []
    watch = threading.Thread(target=kill_reader, args=(tmp_path, min(after, PARTS), workers, killed))
    watch.start()
    found = model.fit(slow(X, tmp_path), da.from_array(y, chunks=N // PARTS)).coef_
    watch.join()
    assert killed
    assert len(list(tmp_path.iterdir())) > PARTS  # something had to be read again
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_data_on_the_cluster_is_used_where_it_is(client, table):
    X, y = table
    client.wait_for_workers(2)
    lazy = dask.persist(da.from_array(X, chunks=(100, P)), da.from_array(y, chunks=100))
    model = MODELS["logistic"]
    expected = model.fit(X, y).coef_.copy()
    np.testing.assert_allclose(model.fit(*lazy).coef_, expected, rtol=1e-9)


def test_what_a_worker_cannot_open_is_an_error_and_no_endless_wait(client, table):
    X, y = table
    client.wait_for_workers(2)
    here = types.ModuleType("only_on_the_client")
    exec("def double(block):\n    return 2.0 * block", here.__dict__)
    sys.modules[here.__name__] = here
    try:
        lazy = da.from_array(X, chunks=(100, P)).map_blocks(here.double, meta=np.empty((0, P)))
        with pytest.raises(DataError, match=r"partition 1 of 12 cannot be read \(ModuleNotFoundError\)"):
            MODELS["squared"].fit(lazy, da.from_array(y, chunks=100))
    finally:
        del sys.modules[here.__name__]


def fail(block: np.ndarray) -> np.ndarray:
    raise ValueError(f"cannot parse {block[0, 0]}, secret 4711")


def test_workers_log_nothing_of_what_went_wrong_in_a_partition(client, table):
    X, y = table
    client.wait_for_workers(2)
    lazy = da.from_array(X, chunks=(100, P)).map_blocks(fail, meta=np.empty((0, P)))
    with pytest.raises(DataError) as caught:
        MODELS["squared"].fit(lazy, da.from_array(y, chunks=100))
    assert "partition 1 of 12 cannot be read (ValueError)" in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    for text in (str(caught.value), logs):
        assert "secret" not in text and f"{X[0, 0]}" not in text and "Traceback" not in text
