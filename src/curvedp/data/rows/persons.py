"""Rows of persons: sums and counts over persons, not over their rows (U-1)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.data.mapping import ColumnMap, clip_factors, inside
from curvedp.data.rows import blocks, reductions
from curvedp.data.rows.base import DENSE_ROWS_AT_MOST, Layout, Moments, Parts, Total, tree_sum
from curvedp.data.rows.blocked import (
    FEW_ENTRIES,
    KEEP_BYTES,
    Reduction,
    SummedRows,
    bound_of,
    check_metric,
    increasing,
    ordered_map,
    rows_per_block,
)
from curvedp.data.rows.blocks import DenseBlock, length_error, make_block, rounded_up, triangle_of
from curvedp.data.rows.inputs import as_csr, as_features, as_targets
from curvedp.data.rows.reductions import CELLS, VectorOf, cell_masses, shortened_sum, weights_of
from curvedp.errors import DataError, InvalidInput
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss
from curvedp.problems.losses.several import clipped_targets

# What a block of whole persons contributes to each reduction: a person is clipped, measured, counted as one.
#
# A person's length is ‖A Xᵢᵀ‖ in the Schatten norm of order 4, that is ‖Σ A x xᵀAᵀ‖_F^½ over the person's
# rows: for one row it is ‖A x‖ (U-1).


@dataclass(frozen=True, eq=False)
class PersonBlock:
    """The rows starts[i] … starts[i+1]−1 of `block` are those of person i; none of them is elsewhere."""

    block: DenseBlock
    starts: NDArray[np.int64]
    _measured: dict[bytes, FloatArray] = field(default_factory=dict, repr=False)  # in the last metric

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    def sums(self, weights: FloatArray) -> FloatArray:
        """Σ w_r x_rᵀ over the rows of every person, shape (persons, K, d)."""
        from curvedp.data.kernels import sum_persons

        found = np.zeros((self.size, weights.shape[1], self.block.X.shape[1]))
        factors = self.block.factors
        weights = np.ascontiguousarray(weights if factors is None else weights * factors[:, None])
        sum_persons(self.block.X, weights, self.starts, found)
        return found

    def lengths(self, triangle: FloatArray) -> FloatArray:
        """‖Σ R x xᵀRᵀ‖_F^½ of every person, rounded up; a second time in one metric they are known.

        It is a norm of the person's matrix of rows: errors of single rows add at most the root of their
        squares. Sums of k products, then of min(k, d)² squares, err by the factor below.
        """
        key = triangle.tobytes()
        found = self._measured.get(key)
        if found is None:
            self._measured.clear()
            found = self._measured[key] = self._lengths(triangle)
        return found

    def _lengths(self, triangle: FloatArray) -> FloatArray:
        from curvedp.data.kernels import measure_persons, sum_squares

        block, d = self.block, self.block.X.shape[1]
        factors = np.ones(len(block.X)) if block.factors is None else block.factors
        found = np.empty(self.size)
        measure_persons(block.X, factors, np.ascontiguousarray(triangle.T), self.starts, found)
        rows = np.diff(self.starts).astype(np.float64)
        rank = np.minimum(rows, d)
        arithmetic = (np.maximum(rows, d) + 8.0) * np.sqrt(rank) + rank**2 + 16.0
        squares = np.empty(self.size)
        sum_squares(block.magnitudes, self.starts, squares)
        found *= 1.0 + UNIT_ROUNDOFF * arithmetic * (1.0 + 1e-6)
        return rounded_up(found, length_error(triangle) * np.sqrt(squares) * (1.0 + rows * UNIT_ROUNDOFF))

    def weighted(self, y: FloatArray, domain: Domain) -> PersonBlock:
        """Rows √v·x in a domain with weights v (W-1): their squares are the terms of Σ v x xᵀ."""
        if not domain.weighted:
            return self
        roots = np.sqrt(weights_of(y))
        return PersonBlock(self.block.rescaled(roots, roots * self.block.norms), self.starts)

    def shortened(self, lengths: FloatArray, bound: float) -> DenseBlock:
        """The rows of persons whose lengths are at most `bound`: all rows of a person by one factor."""
        _, factors = clip_factors(lengths, bound, 4)
        each = None if factors is None else np.repeat(factors, np.diff(self.starts))
        return self.block.rescaled(each, self.block.norms)


def moments(
    persons: PersonBlock, y: FloatArray, *, domain: Domain, triangle: FloatArray, bound: float
) -> Parts:
    """Σ x xᵀ of persons shortened to `bound`, a few thousand rows at a time."""
    persons = persons.weighted(y, domain)
    block = persons.shortened(persons.lengths(triangle), bound)
    n = len(block.X)
    slices = (slice(start, start + DENSE_ROWS_AT_MOST) for start in range(0, n, DENSE_ROWS_AT_MOST))
    total = tree_sum(Total((block.chosen(rows).gram(),), 0) for rows in slices)
    assert total is not None
    return total.parts


def gradient(
    persons: PersonBlock,
    y: FloatArray,
    *,
    domain: Domain,
    triangle: FloatArray,
    loss: Loss,
    theta: FloatArray,
    clip: float,
) -> Parts:
    """Σ_i clip_c(Σ_{r of i} x_r φ'_rᵀ): the computed sum of a person is clipped, as one vector."""
    sums = _gradients(persons, y, domain, loss, theta)
    lengths, safe = measured(sums, triangle), inside(clip, theta.size)
    lost = np.isinf(lengths)  # it overflowed: nothing is left of such a person
    if lost.any():
        sums[lost] = 0.0
    factors = np.divide(safe, lengths, out=np.ones_like(lengths), where=lengths > safe)
    total = blocks.combination(sums.reshape(persons.size, -1), factors[:, None])
    return (np.ascontiguousarray(total.reshape(sums.shape[1:]).T),)


def histogram(
    persons: PersonBlock,
    y: FloatArray,
    *,
    domain: Domain,
    triangle: FloatArray,
    loss: Loss,
    theta: FloatArray,
    edges: FloatArray,
) -> Parts:
    """Counts of persons by the length of their summed gradient, one cell each."""
    return (cell_masses(measured(_gradients(persons, y, domain, loss, theta), triangle), edges),)


def norm_histogram(
    persons: PersonBlock, y: FloatArray, *, domain: Domain, triangle: FloatArray, edges: FloatArray
) -> Parts:
    """Counts of persons by their length, one cell each; a weighted one counts as its heaviest row does."""
    lengths = persons.weighted(y, domain).lengths(triangle)
    heaviest = np.maximum.reduceat(weights_of(y), persons.starts[:-1]) if domain.weighted else None
    return (cell_masses(lengths, edges, heaviest),)


def vectors(
    persons: PersonBlock,
    y: FloatArray,
    *,
    domain: Domain,
    triangle: FloatArray,
    of: VectorOf,
    clip: float,
) -> Parts:
    """Σ_i clip_c(Σ_{r of i} v_r)."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(of(persons.block, y, domain), persons.starts[:-1], axis=0)
    return (shortened_sum(sums, clip),)


def column_cells(
    persons: PersonBlock,
    y: FloatArray,
    *,
    domain: Domain,
    triangle: FloatArray,
    columns: Sequence[int],
    d: int,
) -> Parts:
    """Counts of persons, each spread evenly over the cells of its rows."""
    rows = np.diff(persons.starts)
    parts = np.repeat(1.0 / rows, rows)
    return reductions.column_cells(persons.block, y, domain=domain, columns=columns, d=d, parts=parts)


def measured(sums: FloatArray, triangle: FloatArray) -> FloatArray:
    """‖R G_i‖ of every person's (K, d) numbers, rounded up; infinite where it overflows."""
    from curvedp.data.kernels import measure_sums

    found, sizes = np.empty(len(sums)), np.empty(len(sums))
    measure_sums(sums, np.ascontiguousarray(triangle), found, sizes)
    arithmetic = 1.0 + (sums.shape[1] + 8) * UNIT_ROUNDOFF
    with np.errstate(over="ignore", invalid="ignore"):
        return rounded_up(found * arithmetic, length_error(triangle) * sizes)


def _gradients(
    persons: PersonBlock, y: FloatArray, domain: Domain, loss: Loss, theta: FloatArray
) -> FloatArray:
    """Σ φ'_r x_rᵀ over the rows of every person, shape (persons, K, d)."""
    slopes = loss.gradient(persons.block.margins(theta), clipped_targets(loss, y, domain))
    return persons.sums(slopes)


# Where the rows of persons are: sorted by person once, read in blocks of whole persons.


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


class PersonRows(SummedRows):
    """Sums and counts over persons, each shortened, clipped and counted as one.

    Only sums that bound a person are there: gradients with a clip, second moments with a bound of lengths.
    """

    persons = True

    def __init__(
        self,
        layout: Layout,
        store: PersonBlocks,
        magnitude: float,
        triangle: FloatArray,
        bound: float | None,
    ) -> None:
        super().__init__(layout, magnitude)
        self._store, self._triangle, self._bound = store, triangle, bound

    @classmethod
    def of(
        cls, X: Any, y: Any, codes: NDArray[np.int64], domain: Domain, columns: ColumnMap | None = None
    ) -> PersonRows:
        """Row r belongs to the person codes[r], to nobody where that is negative: then it is left out."""
        if domain.unit is None:
            raise InvalidInput("rows of persons need a domain with a unit: Domain(unit=...)")
        features = as_csr(X) if issparse(X) else as_features(X)
        n, p = features.shape
        targets = as_targets(y, n)
        if len(codes) != n:
            raise DataError("unit must have one entry per row of X")
        if columns is not None and p != columns.n_inputs:
            raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
        order, starts = by_person(codes)
        X, y = gathered(features, order), gathered(targets, order)
        bound, d = bound_of(domain, columns), p if columns is None else columns.d
        store = PersonBlocks(X, y, starts, columns, bound)
        return cls(Layout(domain, d, targets.shape[1]), store, bound, np.eye(d), None)

    def count(self) -> int:
        """The number of persons."""
        return self._store.persons

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> PersonRows:
        """The same persons, measured in a metric; with `bound`, shortened to that length, for moments."""
        check_metric(metric, bound, self.d)
        return PersonRows(self.layout, self._store, self.magnitude, triangle_of(metric), bound)

    def moments(self) -> Moments:
        """Σ x xᵀ of persons shortened to the bound, which there must be; nothing of the targets."""
        if self._bound is None:
            _refuse("second moments")
        d, T = self.d, self.layout.n_targets
        xx = self._sum(moments, [(d, d)], bound=self._bound).parts[0]
        return Moments(xx, np.full((d, T), np.nan), np.full((T, T), np.nan), np.nan)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        if clip is None or self._bound is not None:
            _refuse("a gradient")
        return self._sum(gradient, [theta.shape], loss=loss, theta=theta, clip=clip).parts[0]

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        self._check(loss, theta, None)
        edges = increasing(edges)
        shape = (len(edges) + 1,)
        return self._sum(histogram, [shape], loss=loss, theta=theta, edges=edges).parts[0]

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        edges = increasing(edges)
        return self._sum(norm_histogram, [(len(edges) + 1,)], edges=edges).parts[0]

    def vector_sum(self, of: VectorOf, size: int, clip: float) -> FloatArray:
        return self._sum(vectors, [(size,)], of=of, clip=clip).parts[0]

    def column_cells(self, columns: Sequence[int]) -> FloatArray:
        shape = (len(columns), CELLS)
        return self._sum(column_cells, [shape], columns=tuple(columns), d=self.d).parts[0]

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        _refuse("a Hessian")

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        _refuse("the curvature of a loss")

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        _refuse("a covariance of gradients")

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        _refuse("a loss")

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        _refuse("the rounding error of a gradient")

    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        of_persons: Callable[..., Parts] = reduction
        return self._store.total(partial(of_persons, triangle=self._triangle))


def _refuse(what: str) -> Never:
    raise InvalidInput(f"{what} of a person has no bound here: only clipped sums are over persons")
