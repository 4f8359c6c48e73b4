"""Where the rows of persons are: sorted by person once, read in blocks of whole persons."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.rows.arrays import FEW_ENTRIES, KEEP_BYTES
from curvedp.rows.blocked import rows_per_block
from curvedp.rows.blocks import DenseBlock, make_block
from curvedp.rows.passes import ordered_map
from curvedp.rows.person_sums import PersonBlock
from curvedp.rows.rounding import DENSE_ROWS_AT_MOST
from curvedp.rows.sums import Parts, Total, tree_sum

_LONGER = 4  # than blocks of rows: a block has fewer persons than rows, and each costs a few calls

Loaded = tuple[PersonBlock, FloatArray]
Work = Callable[[PersonBlock, FloatArray], Parts]


class PersonBlocks:
    """Rows in the order of their persons, `starts[i]` the first of person i: blocks of whole persons.

    A block holds some thousand rows, or one person: what a person gives does not depend on others.
    """

    def __init__(
        self,
        X: Any,
        y: NDArray[np.generic],
        starts: NDArray[np.int64],
        columns: ColumnMap | None,
        bound: float,
    ) -> None:
        self._X, self._y, self._starts = X, y, starts
        self._columns, self._bound = columns, bound
        self._cuts = _cuts(starts, _LONGER * rows_per_block(X.shape[1]))
        self._may_keep = 8 * X.shape[0] * X.shape[1] <= KEEP_BYTES
        self._kept: list[Loaded | None] = [None] * (len(self._cuts) - 1)
        self._threads = 1 if X.shape[0] * X.shape[1] < FEW_ENTRIES else None

    @property
    def persons(self) -> int:
        return len(self._starts) - 1

    def total(self, work: Work) -> Total | None:
        """Σ work(block, y) over the blocks, along a tree; None where there is nobody."""

        def one(index: int) -> Total:
            return Total(work(*self._load(index)), 0)

        return tree_sum(ordered_map(one, range(len(self._kept)), self._threads))

    def _load(self, index: int) -> Loaded:
        """Block and targets, mapped and clipped; kept for the next pass where that is little memory."""
        loaded = self._kept[index]
        if loaded is None:
            first, last = self._cuts[index], self._cuts[index + 1]
            rows = slice(int(self._starts[first]), int(self._starts[last]))
            X = self._X[rows].toarray() if issparse(self._X) else np.asarray(self._X[rows])
            block, y = make_block(X, np.asarray(self._y[rows]), self._columns, self._bound)
            assert isinstance(block, DenseBlock)
            loaded = PersonBlock(block, self._starts[first : last + 1] - self._starts[first]), y
            if self._may_keep:
                self._kept[index] = loaded
        return loaded


def by_person(codes: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The rows that belong to somebody, in the order of their persons, each person's in the given order;
    and the first of each person, the number of rows at the end."""
    order = np.argsort(codes, kind="stable")
    order = order[np.searchsorted(codes[order], 0) :]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return order, np.append(starts, len(order)).astype(np.int64)


def _cuts(starts: NDArray[np.int64], most: int) -> list[int]:
    """The first person of every block, and the number of persons: `most` rows, or one person.

    No more persons than rows in a block of rows: the bound on additions is that of such a block.
    """
    cuts, persons = [0], len(starts) - 1
    while cuts[-1] < persons:
        first = cuts[-1]
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        cuts.append(max(min(last, first + DENSE_ROWS_AT_MOST), first + 1))
    return cuts


def gathered(rows: Any, order: NDArray[np.intp]) -> Any:
    """rows[order]: in memory; of a memory map in another one, whose file has no name and goes with it."""
    if not isinstance(rows, np.memmap) or not len(order):
        return rows[order]
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, rows.dtype, "w+", shape=(len(order), *rows.shape[1:]))
    step = rows_per_block(rows.shape[1] if rows.ndim > 1 else 1)
    for start in range(0, len(order), step):
        found[start : start + step] = rows[order[start : start + step]]
    return found
