"""Parquet files, row group by row group: the cells of a table in memory, and errors without a value."""

from __future__ import annotations

from decimal import Decimal

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvedp.errors import DataError
from curvedp.rows.parquet import RowGroup, read_parquet
from curvedp.schema import Categorical, Numeric, Schema

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


def test_every_type_is_read_as_in_memory(tmp_path):
    pq.write_table(TABLE, tmp_path / "0.parquet", row_group_size=3)
    for schema in (SCHEMA, SCHEMA.with_target("k"), SCHEMA.with_target(None)):
        lazy, whole = read_parquet(tmp_path, schema), schema.encode(TABLE)
        np.testing.assert_array_equal(lazy.X.compute(), whole.X)
        assert schema.read(lazy) is lazy.X and lazy.X.chunks[0] == (3, 1)
        if schema.has_target:
            assert lazy.y.compute().tolist() == pytest.approx(whole.y.tolist(), nan_ok=True)
            coded = schema.declared_target.encode(schema.target_cells(lazy)).compute()
            np.testing.assert_array_equal(coded, schema.declared_target.encode(whole.y))
        else:
            assert lazy.y is None
    np.testing.assert_array_equal(read_parquet(tmp_path, SCHEMA).y.compute(), [2.0**60, np.nan, 0, 1])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TABLE.drop_columns("b"), "0.parquet: the table has no column 'b'"),
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
    group = RowGroup(SCHEMA, path, None)
    with pytest.raises(DataError, match=words) as caught:
        list(group.batches())
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.__context__ is None and caught.value.__cause__ is None
