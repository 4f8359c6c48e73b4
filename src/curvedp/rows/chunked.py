"""Rows that come in chunks, pass after pass: memory maps, files, cursors. Memory is constant in n."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from curvedp.domain import ColumnMap, Domain, FloatArray
from curvedp.errors import CurvedpError, DataError, InvalidInput
from curvedp.rows.blocked import BlockRows, Load, Loaded, as_features, as_targets, rows_per_block
from curvedp.rows.blocks import dense_block, sparse_block
from curvedp.rows.sparse import as_csr

Chunk = tuple[Any, ArrayLike]
Chunks = Callable[[], Iterable[Chunk]]


class ChunkedRows(BlockRows):
    """Rows of `chunks()`, called once per pass: an iterable of (X, y), each X an array or a sparse matrix.

    Every pass must see the same rows. Without `columns`, pass `n_features` or let the first chunk tell.
    """

    def __init__(
        self,
        chunks: Chunks,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        n_features: int | None = None,
        n_targets: int = 1,
        threads: int | None = None,
    ) -> None:
        self._chunks = chunks
        if columns is not None:
            n_features = columns.n_inputs
        elif n_features is None:
            n_features = next((X.shape[1] for X, _ in self._pass()), None)
            if n_features is None:
                raise InvalidInput("there is no chunk to tell the number of columns: pass n_features")
        self._n_features = n_features
        d = n_features if columns is None else columns.d
        super().__init__(domain, columns, d, n_targets, rows_per_block(d), threads)

    @classmethod
    def from_arrays(
        cls, X: Any, y: Any, domain: Domain, columns: ColumnMap | None = None, *, threads: int | None = None
    ) -> ChunkedRows:
        """Rows of two memory maps (or arrays), read a block at a time."""
        X = as_features(X)
        targets = as_targets(y, len(X))
        n, p = X.shape
        step = rows_per_block(p)

        def chunks() -> Iterator[Chunk]:
            return ((X[start : start + step], targets[start : start + step]) for start in range(0, n, step))

        return cls(chunks, domain, columns, n_features=p, n_targets=targets.shape[1], threads=threads)

    def _pass(self) -> Iterator[tuple[Any, Any]]:
        """(X, y) of every chunk; whatever the source raises is replaced, since its text may hold values."""
        try:
            for X, y in self._chunks():
                features = as_csr(X) if issparse(X) else as_features(X)
                yield features, as_targets(y, features.shape[0])
        except CurvedpError:
            raise
        except Exception:
            raise DataError("the source of chunks failed; it must yield pairs (X, y) of arrays") from None

    def count(self) -> int:
        return sum(X.shape[0] for X, _ in self._pass())

    def loads(self, keep: bool) -> Iterable[Load]:
        step = self.block_rows
        for X, y in self._pass():
            if X.shape[1] != self._n_features or y.shape[1] != self.n_targets:
                raise DataError(
                    f"every chunk must have {self._n_features} columns and {self.n_targets} target(s)"
                )
            for start in range(0, X.shape[0], step):
                yield partial(self._load, X[start : start + step], y[start : start + step])

    def _load(self, X: Any, y: Any) -> Loaded:
        make = sparse_block if issparse(X) else dense_block
        targets: FloatArray = np.asarray(y, dtype=np.float64)
        return make(X, self.columns, self.bound), targets
