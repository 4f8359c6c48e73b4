"""Rows of a scipy sparse matrix: centring and the intercept stay implicit, nothing is densified."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.rows.blocked import StoredRows, bound_of, rows_per_block
from curvedp.rows.blocks import SPARSE_ROWS_AT_MOST, stays_sparse
from curvedp.rows.inputs import as_csr


class SparseRows(StoredRows):
    """Rows of a scipy sparse matrix, read in CSR order; an absent entry is the number 0."""

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        rows = as_csr(X)
        p, bound = rows.shape[1] if columns is None else columns.n_inputs, bound_of(domain, columns)
        # A block adds d² numbers to a Gram matrix, however sparse it is: many columns want longer blocks.
        longer = min(SPARSE_ROWS_AT_MOST, max(4096, 8 * p))
        super().__init__(
            rows,
            y,
            domain,
            columns,
            block_rows=longer if stays_sparse(p, columns, bound) else rows_per_block(p),
            may_keep=stays_sparse(p, columns, bound),
            threads=threads,
        )
