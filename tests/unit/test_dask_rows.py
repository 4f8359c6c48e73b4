"""Rows in Dask partitions: every reduction equals that of the same records in memory, however cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.task_spec import DataNode
from scipy import sparse
from tests.values import value_sum

from curvedp.data.frames import is_dask
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows, make_rows
from curvedp.data.rows import dask as dask_rows
from curvedp.data.rows.base import Total, tree_sum
from curvedp.data.rows.dask import DaskRows
from curvedp.errors import DataError, InvalidInput
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Multinomial, Squared

N, P = 700, 4
DOMAIN = Domain(x_norm=1.3, y_bound=1.0)
COLUMNS = ColumnMap.from_bounds([-1.0, 0.0, -2.0, 0.5], [1.0, 2.0, 2.0, 0.7], intercept=0.5)
CLOSE = {"rtol": 1e-11, "atol": 1e-11}
CUTS = {
    "one": (N,),
    "even": (100,) * 7,
    "uneven": (1, 499, 2, 198),
    "empty ones": (0, 300, 0, 0, 400, 0),
    "a record each": (1,) * N,
}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.normal(size=(N, P))
    X[3, 1], X[4, 2], X[5] = np.nan, np.inf, 1e6
    return X, np.sign(random.normal(size=N)) * random.uniform(0.5, 2.0, N)


def cut(X: np.ndarray, lengths: tuple[int, ...], unknown: bool = False) -> da.Array:
    """X as a Dask array in partitions of these lengths, which Dask may be told or not."""
    starts = np.cumsum([0, *lengths])
    parts = [X[a:b] for a, b in itertools.pairwise(starts)]
    shapes = [(np.nan if unknown else len(part), *X.shape[1:]) for part in parts]
    made = [dask.delayed(np.copy)(part) for part in parts]
    arrays = [da.from_delayed(value, shape, dtype=X.dtype) for value, shape in zip(made, shapes, strict=True)]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def assert_same(rows, reference, theta, loss):
    assert rows.d == reference.d and rows.count() == reference.count()
    assert np.array_equal(rows.moments().xx, rows.moments().xx.T)
    for name in ("xx", "xy", "yy"):
        np.testing.assert_allclose(getattr(rows.moments(), name), getattr(reference.moments(), name), **CLOSE)
    for clip in (None, 0.4):
        pairs = [
            (r.gradient_sum(loss, theta, clip), value_sum(r, loss, theta, clip)) for r in (rows, reference)
        ]
        for one, other in zip(*pairs, strict=True):
            np.testing.assert_allclose(one, other, **CLOSE)
    np.testing.assert_allclose(
        rows.hessian_sum(loss, theta, 0.4), reference.hessian_sum(loss, theta, 0.4), **CLOSE
    )
    edges = np.array([0.1, 0.31, 0.9])
    counts = [r.gradient_norm_histogram(loss, theta, edges) for r in (rows, reference)]
    assert np.array_equal(*counts)
    assert np.array_equal(rows.norm_histogram(edges), reference.norm_histogram(edges))


@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["plain", "mapped"])
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("unknown", [False, True], ids=["lengths known", "lengths unknown"])
def test_reductions_do_not_depend_on_the_partitions(table, columns, cuts, unknown):
    X, y = table
    if len(cuts) == N and (unknown or columns is None):
        cuts = (350, 350)  # one case of many partitions will do
    reference = ArrayRows(X, y, DOMAIN, columns)
    rows = make_rows(cut(X, cuts, unknown), cut(y, cuts, unknown), DOMAIN, columns)
    assert isinstance(rows, DaskRows)
    theta = np.random.default_rng(1).normal(size=(reference.d, 1))
    with dask.config.set(scheduler="synchronous"):
        assert_same(rows, reference, theta, Logistic())


@pytest.mark.parametrize("bound", [None, 0.7])
def test_records_are_measured_in_a_metric(table, bound):
    X, y = table
    A = np.random.default_rng(2).normal(size=(5, 5))
    theta = np.random.default_rng(1).normal(size=(5, 1))
    rows = make_rows(cut(X, (300, 0, 400)), cut(y, (300, 0, 400)), DOMAIN, COLUMNS)
    assert_same(
        rows.in_metric(A, bound), ArrayRows(X, y, DOMAIN, COLUMNS).in_metric(A, bound), theta, Squared()
    )
    with pytest.raises(InvalidInput, match="5 columns"):
        rows.in_metric(A[:, :2])


def test_several_outputs_and_several_targets(table):
    X, _ = table
    labels = np.arange(N) % 3.0
    theta = np.random.default_rng(1).normal(size=(5, 3))
    rows = make_rows(cut(X, CUTS["uneven"]), cut(labels, CUTS["uneven"]), DOMAIN, COLUMNS)
    reference = ArrayRows(X, labels, DOMAIN, COLUMNS)
    loss = Multinomial(3)
    np.testing.assert_allclose(rows.gradient_sum(loss, theta), reference.gradient_sum(loss, theta), **CLOSE)
    np.testing.assert_allclose(rows.hessian_sum(loss, theta), reference.hessian_sum(loss, theta), **CLOSE)
    Y = np.random.default_rng(3).normal(size=(N, 2))
    several = make_rows(cut(X, (200, 500)), da.from_array(Y, chunks=(100, 1)), DOMAIN, COLUMNS)
    np.testing.assert_allclose(several.moments().xy, ArrayRows(X, Y, DOMAIN, COLUMNS).moments().xy, **CLOSE)


def test_data_frames_sparse_blocks_and_columns_in_blocks(table):
    X, y = table
    reference = ArrayRows(X, y, DOMAIN, COLUMNS).moments()
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(y=y), npartitions=5)
    known = da.from_array(X, chunks=(100, 3))
    as_sparse = cut(X, (300, 400)).map_blocks(sparse.csr_array, meta=sparse.csr_array((0, 0), dtype=float))
    for name, features, targets in (
        ("frame", frame[list("abcd")], frame["y"]),
        ("frame and its target as a frame", frame[list("abcd")], frame[["y"]]),
        ("columns in blocks", known, y),
        ("other blocks of y", known, da.from_array(y, chunks=333)),
        ("sparse", as_sparse, cut(y, (300, 400))),
        ("float32", known.astype(np.float32), y),
    ):
        m = make_rows(features, targets, DOMAIN, COLUMNS).moments()
        tolerance = {"rtol": 1e-5, "atol": 1e-3} if name == "float32" else CLOSE
        np.testing.assert_allclose(m.xx, reference.xx, err_msg=name, **tolerance)
        np.testing.assert_allclose(m.xy, reference.xy, err_msg=name, **tolerance)


def test_the_tree_is_balanced_ordered_and_counts_its_additions():
    ones = [Total((np.array(2.0**-i),), 3) for i in range(1000)]
    total = tree_sum(ones)
    assert total is not None and tree_sum([]) is None
    assert total.parts[0] == pytest.approx(2.0, rel=1e-15)
    assert total.additions == 3 + 10  # ⌈log₂ 1000⌉ levels
    texts = [Total((np.array(str(i), dtype=object),), 0) for i in range(11)]
    joined = tree_sum(texts)
    assert joined is not None and joined.parts[0] == "012345678910"


def test_stated_errors_hold_along_the_tree():
    """Against exact sums, on records of many sizes that nearly cancel."""
    from fractions import Fraction

    random = np.random.default_rng(4)
    X = random.normal(size=(400, 3)) * 10.0 ** random.uniform(-8, 0, size=(400, 1))
    X[1::2] = -X[::2] * (1 + 1e-10 * random.normal(size=(200, 1)))
    y = random.choice([-1.0, 1.0], 400)
    dense = ArrayRows(X, y, Domain(x_norm=100.0))
    rows = make_rows(da.from_array(X, chunks=(7, 3)), da.from_array(y, chunks=7), Domain(x_norm=100.0))
    m = rows.moments()
    exact = [[Fraction(float(v)) for v in row] for row in X]
    wrong = max(
        abs(float(Fraction(float(m.xx[j, k])) - sum(row[j] * row[k] for row in exact)))
        for j in range(3)
        for k in range(3)
    )
    wrong_xy = max(
        abs(
            float(
                Fraction(float(m.xy[j, 0]))
                - sum(row[j] * Fraction(t) for row, t in zip(exact, y, strict=True))
            )
        )
        for j in range(3)
    )
    assert 0 < wrong <= m.error and 0 < wrong_xy <= m.error
    assert m.error <= dense.moments().error  # shorter chains of additions
    theta = np.array([[3.0], [-2.0], [1.0]])
    slopes = [sum(a * Fraction(float(t)) for a, t in zip(row, theta[:, 0], strict=True)) for row in exact]
    gradient = [
        sum(row[j] * (s - Fraction(t)) for row, s, t in zip(exact, slopes, y, strict=True)) for j in range(3)
    ]
    found = rows.gradient_sum(Squared(), theta)[:, 0]
    off = [float(Fraction(float(f)) - g) for f, g in zip(found, gradient, strict=True)]
    assert 0 < np.linalg.norm(off) <= rows.gradient_error(Squared(), theta)


class Source:
    """Partitions that note each reading in a folder, and that fail when told to."""

    def __init__(self, folder: Path, fails: int = 0) -> None:
        self.folder, self.fails = folder, fails

    def __call__(self, block: np.ndarray, number: int) -> np.ndarray:
        (self.folder / f"{number}-{len(self.readings(number))}").touch()
        if number == 1 and len(self.readings(number)) <= self.fails:
            raise MemoryError("secret 4711")
        return block

    def readings(self, number: int) -> list[Path]:
        return [*self.folder.glob(f"{number}-*")]

    def array(self, X: np.ndarray, parts: int) -> da.Array:
        made = [dask.delayed(self, pure=False)(block, i) for i, block in enumerate(np.array_split(X, parts))]
        shape = (np.nan, *X.shape[1:])
        arrays = [da.from_delayed(value, shape, dtype=float) for value in made]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)


def test_nothing_is_read_before_a_reduction_and_kept_records_are_read_once(table, tmp_path):
    X, y = table
    source = Source(tmp_path)
    rows = make_rows(source.array(X, 3), cut(y, (234, 233, 233)), DOMAIN, COLUMNS)
    assert rows.d == 5 and not source.readings(0)
    theta = np.zeros((5, 1))
    for _ in range(6):
        rows.gradient_sum(Logistic(), theta)
    rows.in_metric(np.eye(5)).gradient_sum(Logistic(), theta, 0.1)
    assert all(len(source.readings(i)) <= 2 for i in range(3))  # one to count, one to keep


def test_records_that_do_not_fit_are_read_on_every_pass(table, tmp_path, monkeypatch):
    X, y = table
    source = Source(tmp_path)
    monkeypatch.setattr(dask_rows, "room_for_rows", lambda: 100.0)
    rows = make_rows(source.array(X, 3), cut(y, (234, 233, 233)), DOMAIN, COLUMNS)
    theta = np.ones((5, 1))
    passes = [rows.gradient_sum(Logistic(), theta) for _ in range(4)]
    assert len(source.readings(0)) == 5  # and one to count
    assert all(np.array_equal(passes[0], other) for other in passes)
    np.testing.assert_allclose(
        passes[0], ArrayRows(X, y, DOMAIN, COLUMNS).gradient_sum(Logistic(), theta), **CLOSE
    )


def test_when_keeping_fails_the_source_is_read_again(table, tmp_path):
    X, y = table
    source = Source(tmp_path, fails=1)
    rows = make_rows(source.array(X, 3), cut(y, (234, 233, 233)), DOMAIN, COLUMNS)
    rows._count = N  # the first reading is the one that keeps
    found = rows.gradient_sum(Logistic(), np.ones((5, 1)))
    reference = ArrayRows(X, y, DOMAIN, COLUMNS).gradient_sum(Logistic(), np.ones((5, 1)))
    np.testing.assert_allclose(found, reference, **CLOSE)
    rows.gradient_sum(Logistic(), np.ones((5, 1)))
    assert len(source.readings(0)) == 3  # never kept again


def test_records_are_never_handed_back_by_other_processes():
    with dask.config.set(scheduler="processes"):
        assert dask_rows.room_for_rows() == 0.0
    with dask.config.set(scheduler="threads"):
        assert dask_rows.room_for_rows() == 2.0**30


def test_a_partition_is_one_task_beside_data_and_what_is_shared(table):
    X, y = table
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(y=y), npartitions=6)
    frame = frame.map_partitions(lambda part: part * 2.0)
    stage = make_rows(frame[list("abcd")], frame["y"], DOMAIN)._origin
    assert len(stage.sources) == 6 and all(isinstance(node, DataNode) for node in stage.graph.values())
    whole = frame.shuffle("a", npartitions=6)  # every partition needs every other
    stage = make_rows(whole[list("abcd")], whole["y"], DOMAIN)._origin
    assert not all(isinstance(node, DataNode) for node in stage.graph.values())


@pytest.mark.parametrize("shared", [False, True], ids=["its own source", "a source of all"])
def test_what_goes_wrong_in_a_partition_is_said_without_values(table, shared, caplog):
    X, y = table

    def fail(block: np.ndarray, number: int) -> np.ndarray:
        if number == 2:
            raise ValueError(f"cannot read {block[0, 0]} of secret 4711")
        return block

    if shared:
        once = dask.delayed(fail)(X, 2)
        parts = [da.from_delayed(once[a : a + 100], (100, P), dtype=float) for a in range(0, N, 100)]
    else:
        made = [dask.delayed(fail)(X[a : a + 100], a // 100) for a in range(0, N, 100)]
        parts = [da.from_delayed(value, (100, P), dtype=float) for value in made]
    rows = make_rows(da.concatenate(parts), y, DOMAIN, COLUMNS)
    with pytest.raises(DataError) as caught:
        rows.moments()
    text = str(caught.value)
    assert ("several partitions" if shared else "partition 3 of 7") in text and "ValueError" in text
    assert "secret" not in text and "\n" not in text and "secret" not in caplog.text
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_partitions_of_another_shape_are_refused(table):
    X, y = table
    longer = cut(X, (300, 400), unknown=True)
    with pytest.raises(DataError, match="partition 1 of 2: y must have one entry"):
        make_rows(longer, cut(y, (400, 300), unknown=True), DOMAIN).moments()
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")), npartitions=2, sort=False)
    narrower = frame.map_partitions(
        lambda part: part.drop(columns="c") if part.index[0] else part,
        meta=frame._meta,
        enforce_metadata=False,
    )
    missing = "partition 2 of 2: column 3 of those that the data frame declares is not there"
    with pytest.raises(DataError, match=missing):
        make_rows(narrower, cut(y, (350, 350), unknown=True), DOMAIN).moments()


def test_what_is_wrong_before_anything_is_computed(table):
    X, y = table
    lazy = cut(X, (300, 400))
    texts = dd.from_pandas(pd.DataFrame({"a": [1.0], "b": ["secret"]}), npartitions=1)
    bag = dask.bag.from_sequence([1])
    for features, targets, error, text in (
        (lazy, y[:5], DataError, "one entry"),
        (lazy, da.from_array(y[:5]), DataError, "one entry"),
        (cut(X, (300, 400), unknown=True), y, InvalidInput, "pass y as a Dask collection"),
        (cut(X, (300, 400), unknown=True), cut(y, (700,)), InvalidInput, "2 partitions and y 1"),
        (lazy, da.from_array(np.array(["a"] * N)), DataError, "y must hold numbers"),
        (lazy.astype(str), y, DataError, "X must hold numbers"),
        (lazy[:, 0], y, DataError, "two dimensions"),
        (lazy[:, :2], y, DataError, "4 columns"),
        (texts, da.from_array(np.zeros(1)), DataError, "column 2 of X does not hold numbers"),
        (bag, y, InvalidInput, "X must be a Dask array"),
        (lazy, bag, InvalidInput, "y must be a Dask array"),
        (X, da.from_array(y), InvalidInput, "y is a Dask collection and X is not"),
    ):
        with pytest.raises(error, match=text) as caught:
            make_rows(features, targets, DOMAIN, COLUMNS)
        assert "secret" not in str(caught.value)
    assert is_dask(lazy) and not is_dask(X)
