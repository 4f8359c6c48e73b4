"""Rows of a scipy sparse matrix: centring and the intercept stay implicit, nothing is densified."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from curvedp.domain import ColumnMap, Domain
from curvedp.errors import DataError
from curvedp.rows.blocked import StoredRows
from curvedp.rows.blocks import sparse_block


def as_csr(X: Any) -> Any:
    """X as a csr_array of real numbers without duplicate entries; the caller's matrix is left as it is."""
    if not issparse(X) or X.dtype.kind not in "fiub":
        raise DataError("X must be a scipy sparse matrix of numbers")
    rows = csr_array(X)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


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
        # A block adds d² numbers to a Gram matrix, however sparse it is: many columns want longer blocks.
        block_rows = min(2**16, max(4096, 8 * rows.shape[1]))
        super().__init__(rows, y, domain, columns, sparse_block, block_rows, may_keep=True, threads=threads)
