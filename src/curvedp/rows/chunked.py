"""Rows that come in chunks, pass after pass: memory maps, files, cursors. Memory is constant in n."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from numpy.typing import ArrayLike
from scipy.sparse import issparse

from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import DataError, InvalidInput, shielded
from curvedp.rows.base import Layout
from curvedp.rows.blocked import BlockRows, Load, Loaded, bound_of, rows_per_block
from curvedp.rows.blocks import make_block
from curvedp.rows.inputs import as_csr, as_features, as_targets

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
        bound = bound_of(domain, columns)
        layout = Layout(domain, n_features if columns is None else columns.d, n_targets)
        super().__init__(layout, bound, threads)
        self._n_features = n_features
        self._columns = columns
        self._bound = bound

    def _pass(self) -> Iterator[tuple[Any, Any]]:
        """(X, y) of every chunk; whatever the source raises is replaced, since its text may hold values."""
        source = shielded(lambda: iter(self._chunks()), _failed)
        while (chunk := shielded(lambda: _next(source), _failed)) is not None:
            yield chunk

    def count(self) -> int:
        return sum(X.shape[0] for X, _ in self._pass())

    def loads(self, keep: bool) -> Iterable[Load]:
        step = rows_per_block(self.d)
        for X, y in self._pass():
            if X.shape[1] != self._n_features or y.shape[1] != self.layout.n_targets:
                raise DataError(
                    f"every chunk must have {self._n_features} columns and {self.layout.n_targets} target(s)"
                )
            for start in range(0, X.shape[0], step):
                yield partial(self._load, X[start : start + step], y[start : start + step])

    def _load(self, X: Any, y: Any) -> Loaded:
        return make_block(X, y, self._columns, self._bound)


def _next(source: Iterator[Chunk]) -> tuple[Any, Any] | None:
    """The next chunk, checked; None at the end."""
    chunk = next(source, None)
    if chunk is None:
        return None
    X, y = chunk
    features = as_csr(X) if issparse(X) else as_features(X)
    return features, as_targets(y, features.shape[0])


def _failed(kind: str) -> str:
    return f"the source of chunks failed ({kind}); it must yield pairs (X, y) of arrays"
