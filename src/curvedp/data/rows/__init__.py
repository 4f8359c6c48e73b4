"""Every pass over private records."""

from curvedp.data.frames import is_dask
from curvedp.data.rows.base import Layout, Moments, Rows
from curvedp.data.rows.blocked import ArrayRows, ChunkedRows, make_rows, plain_records, read_records, rows_of

__all__ = [
    "ArrayRows",
    "ChunkedRows",
    "Layout",
    "Moments",
    "Rows",
    "is_dask",
    "make_rows",
    "plain_records",
    "read_records",
    "rows_of",
]
