"""Rows in memory: an array of records, mapped and clipped block by block."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvedp.domain import ColumnMap, Domain, FloatArray, clip_to_ball
from curvedp.rows.blocked import BlockRows, Load, as_features, as_targets, rows_per_block
from curvedp.rows.blocks import Block, DenseBlock

# Mapped copies of at most this many bytes are kept between passes.
KEEP_BYTES = 2**30


def dense_block(X: NDArray[np.generic], columns: ColumnMap | None, bound: float) -> DenseBlock:
    """Records mapped by `columns` and clipped to ‖x‖ ≤ bound; a view of X where nothing had to change."""
    mapped = np.ascontiguousarray(X, dtype=np.float64) if columns is None else columns.map(X)
    return DenseBlock(*clip_to_ball(mapped, bound))


class DenseRows(BlockRows):
    """Rows of a numpy array (float64 in C order is never copied as a whole) or a memory map."""

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        self._X = as_features(X)
        self._y = as_targets(y, len(self._X))
        d = self._X.shape[1] if columns is None else columns.d
        super().__init__(domain, columns, d, self._y.shape[1], threads)
        step = rows_per_block(d)
        self._slices = [slice(start, start + step) for start in range(0, len(self._X), step)]
        self._kept: list[Block | None] = [None] * len(self._slices)
        own = self._X
        views = columns is None and own.dtype == np.float64 and own.flags.c_contiguous
        self._may_keep = views or 8 * len(own) * d <= KEEP_BYTES

    def count(self) -> int:
        return len(self._X)

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(self._load, index, keep) for index in range(len(self._slices)))

    def _load(self, index: int, keep: bool) -> tuple[Block, FloatArray]:
        rows = self._slices[index]
        block = self._kept[index]
        if block is None:
            block = dense_block(self._X[rows], self.columns, self.bound)
            if keep and self._may_keep:
                self._kept[index] = block
        return block, self._y[rows]
