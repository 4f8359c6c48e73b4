"""Rows in memory: an array of records, mapped and clipped block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.rows.blocked import StoredRows, rows_per_block
from curvedp.rows.inputs import as_features

# Mapped copies of at most this many bytes are kept between passes.
KEEP_BYTES = 2**30


class DenseRows(StoredRows):
    """Rows of a numpy array; one in float64 and C order is never copied as a whole."""

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        array = as_features(X)
        views = columns is None and array.dtype == np.float64 and array.flags.c_contiguous
        super().__init__(
            array,
            y,
            domain,
            columns,
            block_rows=rows_per_block(array.shape[1]),
            may_keep=bool(views or 8 * array.size <= KEEP_BYTES),
            threads=threads,
        )
