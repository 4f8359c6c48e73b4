"""Every pass over private records."""

from curvedp.data.rows.base import Layout, Moments, Rows
from curvedp.data.rows.blocked import ArrayRows, ChunkedRows, make_rows

__all__ = ["ArrayRows", "ChunkedRows", "Layout", "Moments", "Rows", "make_rows"]
