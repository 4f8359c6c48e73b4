"""Parquet files, row group by row group: the cells of a table in memory, and errors without a value."""

from __future__ import annotations

from decimal import Decimal

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvedp import PrivateRidge
from curvedp.analyses.explore.check import cells_of
from curvedp.analyses.explore.tallies import ColumnNames, number_columns
from curvedp.analyses.predictions import Predictor, Wanted, write_file
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.cells import number
from curvedp.data.graphs import over_parts
from curvedp.errors import CurvedpError, DataError
from curvedp.privacy.budget import Neighbours
from curvedp.release.modelfile import Release

SCHEMA = Schema(
    (Numeric("a", 0, 10), Categorical("k", ("1", "x")), Numeric("b", 0, 1), Numeric("y", 0, 1)), target="y"
)
TABLE = pa.table(
    {
        "a": pa.array([2**53 + 1, None, 3, -(2**62)]),
        "k": pa.array(["1", None, "x", "secret"]).dictionary_encode(),
        "b": pa.array([Decimal("0.1"), None, Decimal("7.25"), Decimal("0.5")]),
        "y": pa.array([2**60, None, 0, 1], pa.uint64()),
        "unused": pa.array([["secret"]] * 4),
    }
)


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="synchronous"):
        yield


def rows_of_chunks(chunks) -> int:
    return sum(map(len, chunks))


def test_every_type_is_read_as_in_memory(tmp_path):
    pq.write_table(TABLE, tmp_path / "0.parquet", row_group_size=3)
    for schema in (SCHEMA, SCHEMA.with_target("k"), SCHEMA.with_target(None)):
        lazy = schema.source(tmp_path, engine="dask")
        assert over_parts(*lazy.partitions, rows_of_chunks) == [3, 1] and lazy.rows() == 4
        for found in (lazy, tmp_path):
            np.testing.assert_array_equal(schema.read(found), schema.read(TABLE))
            if schema.has_target:
                target = schema.declared_target
                coded, expected = (target.encode(schema.target_cells(t)) for t in (found, TABLE))
                np.testing.assert_array_equal(coded, expected)
    assert [number(cell) for cell in SCHEMA.target_cells(tmp_path).listed()][:1] == [2.0**60]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TABLE.drop_columns("b"), "the table has no column 'b'"),
        (TABLE.set_column(0, "a", pa.array([0] * 4, pa.timestamp("s"))), "column 'a' has a type of dates"),
        (b"PAR1secretPAR1", "0.parquet is damaged, or no Parquet file"),
        (b"a,k\nsecret,1\n", "0.parquet is damaged, or no Parquet file"),
    ],
    ids=["no column", "dates", "damaged", "text"],
)
def test_what_cannot_be_read_is_one_line_without_a_value_or_a_cause(tmp_path, content, words):
    path = tmp_path / "0.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)
    for engine in ("memory", "dask"):
        with pytest.raises(CurvedpError, match=words) as caught:
            SCHEMA.read(SCHEMA.source(path, engine=engine))
        assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
        assert caught.value.__context__ is None and caught.value.__cause__ is None


TYPES = {
    "text": lambda values: pa.array([str(value) for value in values]),
    "integers": lambda values: pa.array([int(value) for value in values]),
    "dictionary": lambda values: pa.array([str(value) for value in values]).dictionary_encode(),
    "decimals": lambda values: pa.array(values).cast(pa.decimal128(10, 2)),
}


@pytest.mark.parametrize("kind", TYPES)
def test_files_of_a_folder_may_store_a_column_in_different_types(tmp_path, kind):
    """Every cell is read alike: by a fit in memory and by Dask, by bounds, scores and predictions."""
    schema = Schema((Numeric("a", 0, 10), Numeric("y", 0, 10)), target="y")
    values = [float(i % 10) for i in range(20)]
    usual, odd = tmp_path / "usual", tmp_path / "odd"
    for folder, column in ((usual, pa.array(values)), (odd, TYPES[kind](values))):
        folder.mkdir()
        pq.write_table(pa.table({"a": values, "y": values}), folder / "1.parquet")
        pq.write_table(pa.table({"a": column, "y": values}), folder / "2.parquet")
    for engine in ("memory", "dask"):
        left, right = (schema.read(schema.source(folder, engine=engine)) for folder in (usual, odd))
        assert np.array_equal(left, right)
    layout = ColumnNames(("a",), Neighbours("replace"))
    left, right = (number_columns(folder, layout) for folder in (usual, odd))
    assert left.rows == right.rows == 40
    assert np.array_equal(left.ordered()["a"].values, right.ordered()["a"].values)


def test_every_reader_refuses_a_folder_whose_files_lack_a_column(tmp_path):
    schema = Schema((Numeric("a", 0, 10), Numeric("y", 0, 10)), target="y")
    pq.write_table(pa.table({"a": [1.0], "y": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": [1.0]}), tmp_path / "2.parquet")
    for work in (
        lambda: schema.source(tmp_path),
        lambda: schema.read(schema.source(tmp_path, engine="dask")),
        lambda: cells_of(schema, tmp_path),
        lambda: number_columns(tmp_path, ColumnNames(("a",), Neighbours("replace"))),
    ):
        with pytest.raises(DataError, match="no column 'a'"):
            work()


def test_copied_columns_of_different_types_are_written_as_text(tmp_path):
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, 50)
    model = PrivateRidge(bounds={"a": (0, 1)}, target_bounds=(0, 1), random_state=0).fit(
        pd.DataFrame({"a": x}), x
    )
    folder = tmp_path / "new"
    folder.mkdir()
    pq.write_table(pa.table({"a": [0.5, 0.6], "id": [1, 2]}), folder / "1.parquet")
    pq.write_table(pa.table({"a": [0.7], "id": ["x"]}), folder / "2.parquet")
    predictor = Predictor(Release.of(model), Wanted(copied=("id",)))
    with open(tmp_path / "o.parquet", "wb") as file:
        write_file(file, tmp_path / "o.parquet", predictor.names, predictor.chunks(folder))
    assert pq.read_table(tmp_path / "o.parquet")["id"].to_pylist() == ["1", "2", "x"]
