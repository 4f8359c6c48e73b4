"""Every verb takes every container, and gives what it gives for any other: there is one source of records.

And whoever reads the identifiers, a person is the same person: whom `fit` sums up, `split` keeps together.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from curvedp import PrivateRidge
from curvedp.analyses.explore.bounds import private_bounds
from curvedp.analyses.explore.check import check
from curvedp.analyses.explore.describe import describe
from curvedp.analyses.scores import private_scores
from curvedp.analyses.search import PrivateSearch
from curvedp.analyses.split import split
from curvedp.data import Numeric, Schema
from curvedp.data.source import read_persons

N = 600
NAMES = ["a", "b", "t"]
COLUMNS = [Numeric("a", -1, 1), Numeric("b", 0, 2), Numeric("t", -1, 1)]
SCHEMA = Schema(COLUMNS, target="t")
PLAIN = Schema(COLUMNS)
KEY = bytes(range(32))


def frame() -> pd.DataFrame:
    """Numbers that a text holds exactly, some out of bounds or missing; two or three rows of each person."""
    random = np.random.default_rng(7)
    a, b = (random.normal(0, 0.6, (2, N)) * 64).round() / 64
    table = pd.DataFrame({"a": a, "b": b + 1, "t": (a / 2 * 64).round() / 64, "id": np.arange(N) % 250})
    table.loc[::50, "b"] = np.nan
    return table


TABLE = frame()
MATRIX = TABLE[NAMES].to_numpy()


def csv(folder: Path, name: str) -> Path:
    TABLE.to_csv(folder / name, index=False)
    return folder / name


def parquet(folder: Path) -> Path:
    """Two files of several row groups, in one of which the identifiers are text."""
    table, half = pa.Table.from_pandas(TABLE), N // 2
    texts = pa.array([str(key) for key in TABLE["id"]])
    pq.write_table(table.slice(0, half), folder / "1.parquet", row_group_size=100)
    pq.write_table(table.set_column(3, "id", texts).slice(half), folder / "2.parquet", row_group_size=100)
    return folder


NAMED: dict[str, Callable[[Path], Any]] = {
    "mapping": lambda _: {name: TABLE[name].tolist() for name in TABLE},
    "pandas": lambda _: TABLE,
    "polars": lambda _: pl.from_pandas(TABLE),
    "arrow": lambda _: pa.Table.from_pandas(TABLE),
    "csv": lambda folder: csv(folder, "table.csv"),
    "gzip": lambda folder: str(csv(folder, "table.csv.gz")),
    "parquet": parquet,
    "dask": lambda _: dd.from_pandas(TABLE, npartitions=4),
}
POSITIONAL: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda X: X,
    "objects": lambda X: X.astype(object),
    "rows": lambda X: X.tolist(),
    "csr": sparse.csr_array,
    "dask array": lambda X: da.from_array(X, chunks=(170, X.shape[1])),
}
FIT = PrivateRidge(schema=SCHEMA, mechanism="qop", random_state=1)
FITTED = PrivateRidge(schema=SCHEMA, epsilon=5.0, random_state=1).fit(TABLE)


# Each with the table, and its target where the table has no names.
def checked(X: Any, y: Any = None) -> Any:
    return check(SCHEMA, X, y, epsilon=1.0, random_state=0).to_dict()


def scored(X: Any, y: Any = None) -> Any:
    found = private_scores(FITTED, X, y, epsilon=2.0, delta=1e-5, random_state=0).to_dict()
    return [score["value"] for score in found["overall"]["scores"].values()]


def searched(X: Any, y: Any = None) -> Any:
    search = PrivateSearch(PrivateRidge(schema=SCHEMA), {"alpha": [0.1, 10.0]}, random_state=0).fit(X, y)
    return search.best_estimator_.coef_


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


VERBS: dict[str, Callable[..., Any]] = {
    "fit": lambda X, y=None: FIT.fit(X, y).coef_,
    "check": checked,
    "score": scored,
    "search": searched,
    "predict": lambda X, y=None: FITTED.predict(X),
    "read": lambda X, y=None: dense(SCHEMA.read(X)),
}
WHOLE: dict[str, Callable[..., Any]] = {
    "bounds": lambda X: [
        (c.name, c.low, c.high) for c in private_bounds(X, NAMES, epsilon=20.0, random_state=0).columns
    ],
    "describe": lambda X: describe(X, PLAIN, epsilon=2.0, random_state=0).table(),
}


@cache
def expected_of(verb: str) -> Any:
    return (VERBS | WHOLE)[verb](TABLE)


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-7, atol=1e-9)
    else:
        assert found == expected


@pytest.mark.parametrize("verb", [*VERBS, *WHOLE])
@pytest.mark.parametrize("container", NAMED)
def test_a_table_with_names(container, verb, tmp_path):
    assert_same((VERBS | WHOLE)[verb](NAMED[container](tmp_path)), expected_of(verb))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("container", POSITIONAL)
def test_a_table_by_position(container, verb):
    X = POSITIONAL[container](MATRIX[:, :2])
    assert_same(VERBS[verb](X, TABLE["t"].to_numpy()), expected_of(verb))


@pytest.mark.parametrize("verb", WHOLE)
@pytest.mark.parametrize("container", POSITIONAL)
def test_all_columns_by_position(container, verb):
    assert_same(WHOLE[verb](POSITIONAL[container](MATRIX)), expected_of(verb))


def identifiers(part: Any) -> list[int]:
    """Whose rows a part of a split has, whatever holds it."""
    if isinstance(part, bytes):
        part = pq.read_table(io.BytesIO(part)) if part[:4] == b"PAR1" else pd.read_csv(io.BytesIO(part))
    column = part["id"]
    return [int(key) for key in (column.to_pylist() if hasattr(column, "to_pylist") else list(column))]


@pytest.mark.parametrize("container", NAMED)
def test_a_split_keeps_together_whom_a_fit_takes_for_one_person(container, tmp_path):
    """The same persons by the same key, in whatever container, however its files store the identifiers."""
    if container == "parquet":
        table = tmp_path / "one.parquet"
        pq.write_table(pa.Table.from_pandas(TABLE.assign(id=TABLE["id"].astype(str))), table)
    else:
        table = NAMED[container](tmp_path)
    first, second = (identifiers(part) for part in split(table, 0.4, unit="id", key=KEY))
    reference = split(TABLE, 0.4, unit="id", key=KEY)[1]["id"]
    assert sorted(second) == sorted(reference) and len(first) + len(second) == N
    assert not set(first) & set(second)


@pytest.mark.parametrize("container", NAMED)
def test_a_fit_tells_the_same_persons_apart(container, tmp_path):
    schema = Schema(COLUMNS, target="t", unit="id", adjacency="add_remove")
    table, (expected, _) = NAMED[container](tmp_path), np.unique(TABLE["id"], return_inverse=True)
    if container != "dask":
        _, codes = read_persons(schema.source(table), len, "id")
        assert len(np.unique(codes)) == len(expected)
        assert [TABLE["id"].iloc[np.flatnonzero(codes == 3)].nunique()] == [1]
    model = PrivateRidge(schema=schema, epsilon=3.0, random_state=2)
    reference = model.fit(TABLE).coef_
    np.testing.assert_allclose(model.fit(table).coef_, reference, rtol=1e-7)


SPELLINGS = ["7", " 7", "007", "7.0", 7, 7.0, True, "true", "1", None, "n/a", "Ann", "Ann ", "ann"]


def test_one_reading_of_a_person_for_split_and_fit():
    """Two cells go the same way under every key where, and only where, a fit takes them for one person."""
    table = {"id": SPELLINGS, "a": [0.0] * len(SPELLINGS)}
    persons = read_persons(Schema([Numeric("a", 0, 1)], unit="id").source(table), len, "id")[1]
    sides = []
    for key in range(64):
        second = split(dict(table, a=list(range(len(SPELLINGS)))), 0.5, unit="id", key=bytes([key] * 32))[1]
        sides.append([row in second["a"] for row in range(len(SPELLINGS))])
    together = np.all(np.array(sides)[:, :, None] == np.array(sides)[:, None, :], axis=0)
    np.testing.assert_array_equal(together, persons[:, None] == persons[None, :])


@pytest.mark.parametrize("container", [*POSITIONAL, "pandas", "dask", "gzip"])
def test_a_split_by_rows_loses_none(container, tmp_path):
    if container in NAMED:
        table = NAMED[container](tmp_path)
    else:
        table = POSITIONAL[container](MATRIX)
    parts = split(table, 0.5)
    if isinstance(parts[0], bytes):
        rows = [len(pd.read_csv(io.BytesIO(part))) for part in parts]
    else:
        rows = [part.shape[0] if hasattr(part, "shape") else len(part) for part in parts]
    assert sum(rows) == N and min(rows) > N // 4
