"""Rows of arrays, memory maps and sparse matrices: mapped and clipped block by block."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import DataError
from curvedp.rows.base import Layout
from curvedp.rows.blocked import BlockRows, Load, Loaded, bound_of, rows_per_block
from curvedp.rows.blocks import SPARSE_ROWS_AT_MOST, make_block, stays_sparse
from curvedp.rows.inputs import as_csr, as_features, as_targets

# Mapped copies of at most this many bytes are kept between passes.
KEEP_BYTES = 2**30
# Fewer stored numbers than this are read faster by one thread than several can be started.
FEW_ENTRIES = 2**20


class ArrayRows(BlockRows):
    """Rows that can be sliced: blocks are made on demand, and kept between passes where that is worth it.

    An array in float64 and C order is never copied as a whole; a memory map is read again on every pass. In a
    sparse matrix, read in CSR order, an absent entry is the number 0; centring and the intercept stay
    implicit, and nothing is densified unless rounding forbids otherwise.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        rows = as_csr(X) if issparse(X) else as_features(X)
        n, p = rows.shape
        if columns is not None and p != columns.n_inputs:
            raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
        self._bound = bound_of(domain, columns)
        step = rows_per_block(p)
        if not issparse(rows):
            views = columns is None and rows.dtype == np.float64 and rows.flags.c_contiguous
            self._may_keep = not isinstance(X, np.memmap) and bool(views or 8 * rows.size <= KEEP_BYTES)
        else:
            self._may_keep = stays_sparse(p, columns, self._bound)
            if self._may_keep:  # a block adds d² numbers to a Gram matrix: many columns want longer blocks
                step = min(SPARSE_ROWS_AT_MOST, max(4096, 8 * p))
        self._X, self._y, self._columns = rows, as_targets(y, n), columns
        layout = Layout(domain, p if columns is None else columns.d, self._y.shape[1])
        few = threads is None and rows.size < FEW_ENTRIES
        super().__init__(layout, self._bound, 1 if few else threads)
        self._slices = [slice(start, start + step) for start in range(0, n, step)]
        self._kept: list[Loaded | None] = [None] * len(self._slices)

    def count(self) -> int:
        return int(self._X.shape[0])

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(self._load, index, keep and self._may_keep) for index in range(len(self._slices)))

    def _load(self, index: int, keep: bool) -> Loaded:
        loaded = self._kept[index]
        if loaded is None:
            rows = self._slices[index]
            loaded = make_block(self._X[rows], self._y[rows], self._columns, self._bound)
            if keep:
                self._kept[index] = loaded
        return loaded
