"""Every pass over private records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from curvedp.domain import ColumnMap, Domain
from curvedp.rows.base import Moments, Rows
from curvedp.rows.chunked import ChunkedRows
from curvedp.rows.dense import DenseRows
from curvedp.rows.sparse import SparseRows

__all__ = ["ChunkedRows", "DenseRows", "Moments", "Rows", "SparseRows", "make_rows"]


def make_rows(X: Any, y: ArrayLike, domain: Domain, columns: ColumnMap | None = None) -> Rows:
    """The `Rows` for an array, a memory map or a sparse X: mapped by `columns`, clipped into `domain`."""
    if issparse(X):
        return SparseRows(X, y, domain, columns)
    if isinstance(X, np.memmap):
        return ChunkedRows.from_arrays(X, y, domain, columns)
    return DenseRows(X, y, domain, columns)
