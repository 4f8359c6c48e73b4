"""Whatever is asked of a table on a cluster, a partition that fails leaves no word in any log.

The second of three partitions cannot be read: its reader raises an error that quotes a cell. Every verb is
run on it, those that compute and those that refuse, for a table that fails by itself and one whose reading
all partitions share. Nothing of the quote may be logged, said, or attached to what is raised.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.task_spec import Task
from distributed import Client, LocalCluster

import curvedp
from curvedp import Budget, Domain, Problem, Schema, private_fit
from curvedp.analyses.explore import tallies
from curvedp.analyses.explore.bounds import private_bounds
from curvedp.analyses.explore.check import check
from curvedp.analyses.explore.describe import describe
from curvedp.analyses.scores import private_scores
from curvedp.analyses.search import PrivateSearch
from curvedp.analyses.split import split
from curvedp.data import Categorical, Numeric
from curvedp.data.graphs import handed_over
from curvedp.errors import CurvedpError, DataError
from curvedp.mechanisms import QOP
from curvedp.problems.losses import Squared
from curvedp.release.fit import PrivateStatistics
from curvedp_studies.mechanisms.baselines import NoisyGradient

SECRET = "cell 4711-secret"
N = 900
COLUMNS = [Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("g", ("x", "y"))]
PLAIN = Schema(COLUMNS, adjacency="add_remove")
TARGET = Schema([*COLUMNS, Numeric("t", -1, 1)], target="t", adjacency="add_remove")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def frame() -> pd.DataFrame:
    random = np.random.default_rng(5)
    a, b = random.uniform(-1, 1, (2, N))
    return pd.DataFrame({"a": a, "b": b, "g": random.choice(["x", "y"], N), "t": a / 2, "id": np.arange(N)})


def spoil(part: pd.DataFrame) -> pd.DataFrame:
    """The partition in the middle quotes a cell; the others are as they were."""
    if len(part) and part["id"].iloc[0] == N // 3:
        raise ValueError(f"cannot parse {SECRET} of {part['a'].iloc[0]}")
    return part


def spoil_whole(whole: pd.DataFrame) -> pd.DataFrame:
    raise ValueError(f"cannot parse {SECRET} of {whole['a'].iloc[0]}")


def spoiled(shared: bool) -> dd.DataFrame:
    """Three partitions: one fails by itself, or all cut their rows from one reading that fails."""
    if not shared:
        return dd.from_pandas(frame(), npartitions=3).map_partitions(spoil, meta=frame().iloc[:0])
    whole = dask.delayed(spoil_whole)(frame())
    return dd.from_delayed([whole.iloc[k : k + N // 3] for k in range(0, N, N // 3)], meta=frame().iloc[:0])


@pytest.fixture(scope="module")
def logged() -> Iterator[io.StringIO]:
    """Everything that the scheduler, the worker and the client of a cluster within this process log."""
    with (
        dask.config.set({"dataframe.convert-string": False}),
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as workers,
        Client(workers),
    ):
        written = io.StringIO()
        handler = logging.StreamHandler(written)
        names = ("distributed", "distributed.worker", "distributed.scheduler", "distributed.client", "dask")
        for name in names:
            logging.getLogger(name).addHandler(handler)
        yield written
        for name in names:
            logging.getLogger(name).removeHandler(handler)


@pytest.fixture
def log(logged: io.StringIO) -> io.StringIO:
    logged.seek(0)
    logged.truncate()
    return logged


def numbers(table: dd.DataFrame) -> tuple[da.Array, da.Array]:
    return table[["a", "b"]].to_dask_array(), table["t"].to_dask_array()


def ridge(**more: Any) -> curvedp.PrivateRidge:
    return curvedp.PrivateRidge(schema=TARGET, **BUDGET, **more)


def fitted() -> curvedp.PrivateRidge:
    return ridge().fit(frame())


def released_by(mechanism: Any) -> Callable[[dd.DataFrame], object]:
    problem = Problem(Squared(), domain=Domain(2.0, adjacency="add_remove"))
    return lambda t: private_fit(problem, *numbers(t), budget=Budget(1.0, 1e-6), mechanism=mechanism)


VERBS: dict[str, Callable[[dd.DataFrame], object]] = {
    "check": lambda t: check(TARGET, t, **BUDGET),
    "describe": lambda t: describe(t, PLAIN, **BUDGET),
    "describe an array": lambda t: describe(
        numbers(t)[0], Schema(COLUMNS[:2], adjacency="add_remove"), **BUDGET
    ),
    "fit": lambda t: ridge().fit(t),
    "fit apart": lambda t: ridge().fit(t[["a", "b", "g"]], t["t"]),
    "fit arrays": lambda t: curvedp.PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(*numbers(t)),
    "fit with weights": lambda t: ridge(weight_max=1.0).fit(t[["a", "b", "g"]], t["t"], t["b"]),
    "fit with inference": lambda t: curvedp.PrivateLinearRegression(schema=TARGET, inference=True).fit(t),
    "fit by objective": released_by(QOP()),
    "fit by gradients": released_by(NoisyGradient()),
    "statistics": lambda t: PrivateStatistics.release(
        *numbers(t), budget=Budget(1.0, 1e-6), domain=Domain(2.0)
    ),
    "bounds": lambda t: private_bounds(t, ["a"], epsilon=1.0),
    "score": lambda t: private_scores(fitted(), t, **BUDGET),
    "predict": lambda t: fitted().predict(t[["a", "b", "g"]]),
    "split": lambda t: split(t, 0.5, unit="id"),
    "search": lambda t: PrivateSearch(ridge(), {"alpha": [1.0, 10.0]}, **BUDGET).fit(t),
    "fit persons": lambda t: ridge().fit(t[["a", "b", "g"]], t["t"], unit=t["id"]),
    "count persons": lambda t: TARGET.source(t, only={"a", "id"}).of_persons("id").rows(),
}


def say_nothing(caught: BaseException, log: io.StringIO) -> None:
    chain: list[str] = []
    problem: BaseException | None = caught
    while problem is not None:
        chain.append(repr(problem))
        problem = problem.__cause__ or problem.__context__
    for text in (*chain, log.getvalue()):
        assert SECRET not in text and str(frame()["a"][N // 3]) not in text and "Traceback" not in text


@pytest.mark.parametrize("shared", [False, True], ids=["its own source", "a source of all"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_failing_partition_is_one_sentence_and_nothing_is_logged(log, verb, shared):
    with pytest.raises(DataError, match=r"cannot be read \(ValueError\)") as caught:
        VERBS[verb](spoiled(shared))
    say_nothing(caught.value, log)


@pytest.mark.parametrize("verb", [describe, lambda t, s, **b: curvedp.PrivateRidge(schema=s, **b).fit(t)])
def test_a_damaged_row_group_is_one_sentence_and_nothing_is_logged(log, verb, tmp_path):
    """The footer is sound, the bytes of a column are not."""
    columns = {name: frame()[name].to_numpy() for name in ("a", "b", "t")}
    file = tmp_path / "people.parquet"
    pq.write_table(pa.table(columns), file, row_group_size=300, compression="zstd")
    group = pq.ParquetFile(file).metadata.row_group(1)
    content = bytearray(file.read_bytes())
    for j in range(3):
        start = group.column(j).dictionary_page_offset or group.column(j).data_page_offset
        content[start : start + 64] = b"4711-secret " * 5 + b"abcd"
    file.write_bytes(content)
    schema = Schema([Numeric(name, -1, 1) for name in columns], target="t", adjacency="add_remove")
    with pytest.raises(CurvedpError) as caught:
        verb(
            (tallies.describable(schema) if verb is describe else schema).source(tmp_path, engine="dask"),
            schema,
            **BUDGET,
        )
    say_nothing(caught.value, log)


def quoting(part: Any) -> Any:
    raise ValueError(f"cannot parse {SECRET}")


def test_a_task_that_may_raise_never_reaches_the_engine():
    """What makes it impossible to forget the shield."""
    with pytest.raises(AssertionError, match="may raise"):
        handed_over("name", {"k": Task("k", quoting, 1)}, ["k"])
    with pytest.raises(AssertionError, match="may raise"):
        handed_over("name", {"k": (quoting, 1)}, ["k"])
