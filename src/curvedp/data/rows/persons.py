"""Rows of persons: sums and counts over persons, not over their rows (U-1)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray
from curvedp.data.mapping import ColumnMap, clip_factors, inside, kernels
from curvedp.data.rows import base, blocks
from curvedp.data.rows.base import DENSE_ROWS_AT_MOST, At, Parts, Total, rows_per_block, tree_sum
from curvedp.data.rows.blocks import Block, DenseBlock, length_error, make_block, rounded_up
from curvedp.problems.domain import Domain

# What a block of whole persons contributes to each reduction: a person is clipped, measured, counted as one.
#
# A person's length is ‖A Xᵢᵀ‖ in the Schatten norm of order 4, that is ‖Σ A x xᵀAᵀ‖_F^½ over the person's
# rows: for one row it is ‖A x‖ (U-1).

Starts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PersonBlock:
    """The rows starts[i] … starts[i+1]−1 of `block` are those of person i; none of them is elsewhere."""

    block: DenseBlock
    starts: Starts
    triangle: FloatArray  # R, upper triangular: lengths are those of R x
    bound: float | None = None  # to which persons are shortened in second moments
    _measured: dict[bytes, FloatArray] = field(default_factory=dict, repr=False)  # in the last metric

    additions = 0  # nothing is certified of a sum over persons

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    def sums(self, weights: FloatArray) -> FloatArray:
        """Σ w_r x_rᵀ over the rows of every person, shape (persons, K, d)."""
        sums = np.zeros((self.size, weights.shape[1], self.block.X.shape[1]))
        weights = np.ascontiguousarray(blocks.scaled(weights, self.block.factors))
        kernels().sum_persons(self.block.X, weights, self.starts, sums)
        return sums

    def lengths(self) -> FloatArray:
        """‖Σ R x xᵀRᵀ‖_F^½ of every person, rounded up; a second time in one metric they are known.

        It is a norm of the person's matrix of rows: errors of single rows add at most the root of their
        squares. Sums of k products, then of min(k, d)² squares, err by the factor below.
        """
        block, triangle, d = self.block, self.triangle, self.block.X.shape[1]
        key = triangle.tobytes()
        if (known := self._measured.get(key)) is not None:
            return known
        self._measured.clear()
        factors = np.ones(len(block.X)) if block.factors is None else block.factors
        found = np.empty(self.size)
        kernels().measure_persons(block.X, factors, np.ascontiguousarray(triangle.T), self.starts, found)
        rows = np.diff(self.starts).astype(np.float64)
        rank = np.minimum(rows, d)
        arithmetic = (np.maximum(rows, d) + 8.0) * np.sqrt(rank) + rank**2 + 16.0
        m, squares = block.magnitudes[:, None], np.zeros((self.size, 1, 1))
        kernels().sum_persons(m, m, self.starts, squares)
        found *= 1.0 + UNIT_ROUNDOFF * arithmetic * (1.0 + 1e-6)
        error = length_error(triangle) * np.sqrt(squares[:, 0, 0]) * (1.0 + rows * UNIT_ROUNDOFF)
        known = self._measured[key] = rounded_up(found, error)
        return known

    def weighted(self, weights: FloatArray | None) -> PersonBlock:
        """Rows √v·x of weights v ≥ 0 (W-1): their squares are the terms of Σ v x xᵀ."""
        if weights is None:
            return self
        roots = np.sqrt(weights)
        return PersonBlock(self.block.rescaled(roots, roots * self.block.norms), self.starts, self.triangle)

    @property
    def parts(self) -> FloatArray:
        """1/k of every row of a person that has k."""
        return self.each_row(1.0 / np.diff(self.starts))

    def each_row(self, factors: FloatArray) -> FloatArray:
        """A number of every person for each of its rows."""
        return np.repeat(factors, np.diff(self.starts))


def moments(persons: PersonBlock, y: FloatArray, domain: Domain) -> Parts:
    """Σ x xᵀ of persons shortened to their bound, nothing of the targets; without one second moments of
    (x, y), each of a person's k rows counting 1/k (U-2). No magnitude is stated."""
    if persons.bound is None:
        block, parts = persons.block, persons.parts
        *sums, _ = _sliced(len(y), lambda own: base.moments(block.chosen(own), y[own], domain, parts[own]))
        return (*sums, np.asarray(np.nan))
    weighed = persons.weighted(base.masses(y, domain))
    _, factors = clip_factors(weighed.lengths(), persons.bound, 4)
    each = None if factors is None else persons.each_row(factors)  # all rows of a person by one factor
    (xx,), T = moments_of(weighed.block.rescaled(each, weighed.block.norms)), y.shape[1] - domain.weighted
    return xx, np.full((len(xx), T), np.nan), np.full((T, T), np.nan), np.asarray(np.nan)


def moments_of(block: DenseBlock, weights: FloatArray | None = None) -> Parts:
    """Σ w x xᵀ; w = 1 where there are no weights."""
    return _sliced(
        len(block.X), lambda rows: (block.chosen(rows).gram(None if weights is None else weights[rows]),)
    )


def _sliced(n: int, of: Callable[[slice], Parts]) -> Parts:
    """Σ of(rows) over slices of a few thousand of n ≥ 1 rows."""
    slices = (slice(start, start + DENSE_ROWS_AT_MOST) for start in range(0, n, DENSE_ROWS_AT_MOST))
    total = tree_sum(Total(of(rows), 0) for rows in slices)
    assert total is not None
    return total.parts


def gradient(persons: PersonBlock, y: FloatArray, at: At, clip: float) -> Parts:
    """Σ_i clip_c(Σ_{r of i} x_r φ'_rᵀ): the computed sum of a person is clipped, as one vector."""
    sums, factors, _ = _clipped(persons, y, at, clip)
    total = blocks.combination(sums.reshape(persons.size, -1), factors[:, None])
    return (np.ascontiguousarray(total.reshape(sums.shape[1:]).T),)


def _clipped(persons: PersonBlock, y: FloatArray, at: At, clip: float) -> Parts:
    """(gradients of persons, shape (persons, K, d), the factors that clip them, their lengths)."""
    sums = persons.sums(at.slopes(persons.block, y))
    lengths, safe = measured(sums, persons.triangle), inside(clip, at.theta.size)
    if (lost := np.isinf(lengths)).any():  # it overflowed: nothing is left of such a person
        sums[lost] = 0.0
    return sums, np.divide(safe, lengths, out=np.ones_like(lengths), where=lengths > safe), lengths


def scores(persons: PersonBlock, y: FloatArray, at: At, clip: float) -> Parts:
    """Σ_i g_i g_iᵀ, g_i = clip_c(Σ_{r of i} x_r φ'_rᵀ), in C order."""
    sums, factors, _ = _clipped(persons, y, at, clip)
    flat = np.ascontiguousarray(sums.transpose(0, 2, 1)).reshape(persons.size, -1)
    return (blocks.gram(flat * factors[:, None]),)


def curvature(persons: PersonBlock, y: FloatArray, at: At, bound: float, clip: float | None) -> Parts:
    """Σ_i min(u_i, bound/‖A P_i Aᵀ‖_F) Q_i, Q_i = Σ_{r of i} φ''_r ⊗ x_r x_rᵀ, P_i with ‖φ''_r‖ for φ''_r.

    Without a clip u_i = 1. ‖A Q_i Aᵀ‖_F ≤ ‖A P_i Aᵀ‖_F, and equal where K = 1 (P-9).
    """
    second = at.loss.hessian(at.steady_margins(persons.block), at.targets(y))
    sizes = base.matrix_norms(second)
    largest = np.maximum.reduceat(sizes, persons.starts[:-1])
    largest = np.where(largest > 0.0, largest, 1.0)
    curved = persons.weighted(sizes / persons.each_row(largest))
    sizes = largest * np.square(curved.lengths())
    most = np.ones(persons.size)
    if clip is not None:
        most = np.clip(2.0 - _clipped(persons, y, at, clip)[2] / clip, 0.0, 1.0)
    most = np.minimum(most, base.at_most(inside(bound, at.theta.size), sizes))
    second = second * persons.each_row(most)[:, None, None]
    return (base.products(lambda weights: moments_of(persons.block, weights)[0], second),)


def histogram(persons: PersonBlock, y: FloatArray, at: At, edges: FloatArray) -> Parts:
    """Counts of persons by the length of their summed gradient, one cell each."""
    sums = persons.sums(at.slopes(persons.block, y))
    return (base.cell_masses(measured(sums, persons.triangle), edges),)


def norm_histogram(persons: PersonBlock, y: FloatArray, domain: Domain, edges: FloatArray) -> Parts:
    """Counts of persons by their length, one cell each; a weighted one counts as its heaviest row does."""
    weights = base.masses(y, domain)
    lengths = persons.weighted(weights).lengths()
    heaviest = None if weights is None else np.maximum.reduceat(weights, persons.starts[:-1])
    return (base.cell_masses(lengths, edges, heaviest),)


def vectors(persons: PersonBlock, y: FloatArray, domain: Domain, of: base.VectorOf, clip: float) -> Parts:
    """Σ_i clip_c(Σ_{r of i} v_r/k_i): of a person with k rows their mean (U-2)."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(of(persons.block, y, domain), persons.starts[:-1], axis=0)
    return (base.shortened_sum(sums / np.diff(persons.starts)[:, None], clip),)


def column_cells(persons: PersonBlock, y: FloatArray, domain: Domain, chosen: FloatArray) -> Parts:
    """Counts of persons, each spread evenly over the cells of its rows."""
    return base.column_cells(persons.block, y, domain, chosen, persons.parts)


def measured(sums: FloatArray, triangle: FloatArray) -> FloatArray:
    """‖R G_i‖ of every person's (K, d) numbers, rounded up; infinite where it overflows."""
    found, sizes = np.empty(len(sums)), np.empty(len(sums))
    kernels().measure_sums(sums, np.ascontiguousarray(triangle), found, sizes)
    arithmetic = 1.0 + (sums.shape[1] + 8) * UNIT_ROUNDOFF
    with np.errstate(over="ignore", invalid="ignore"):
        return rounded_up(found * arithmetic, length_error(triangle) * sizes)


# Where the rows of persons are: sorted by person once, read in blocks of whole persons.

_LONGER = 4  # than blocks of rows: a block has fewer persons than rows, and each costs a few calls


def person_block(
    X: FloatArray, y: FloatArray, starts: Starts, columns: ColumnMap | None, bound: float, domain: Domain
) -> tuple[PersonBlock, FloatArray]:
    """Block and targets of whole persons, mapped and clipped; differences where effects are absorbed."""
    block, targets = make_block(X, y, columns, 0.5 * bound if domain.absorbed else bound)
    if domain.absorbed:
        used = np.asarray(~np.isnan(y).any(axis=1))
        block, targets = make_block(*_differences(block, targets, used, starts, domain), None, bound)
    assert isinstance(block, DenseBlock)
    return PersonBlock(block, starts, np.eye(block.X.shape[1])), targets


def _differences(
    block: Block, y: FloatArray, used: BoolArray, starts: Starts, domain: Domain
) -> tuple[FloatArray, FloatArray]:
    """(x_r − x̄_i, y_r − ȳ_i), means over the rows of person i that are used, by their weights (U-3); others
    are 0. Means are added up row after row, of the person's own rows alone."""
    assert isinstance(block, DenseBlock)
    v, T = used * base.weights_of(y) if domain.weighted else 1.0 * used, y.shape[1] - domain.weighted
    X, Y = blocks.scaled(block.X, block.factors), 0.5 * domain.y_bound
    Z = np.column_stack([X, np.clip(y[:, :T], -Y, Y), np.ones(len(X))])
    sums = np.zeros((len(starts) - 1, 1, Z.shape[1]))
    kernels().sum_persons(Z, v[:, None], starts, sums)
    mass = sums[:, 0, -1:]
    means = sums[:, 0] / np.where(mass > 0, mass, 1.0)
    Z = np.where(v[:, None] > 0, Z - np.repeat(means, np.diff(starts), axis=0), 0.0)
    return Z[:, : -T - 1], np.column_stack([Z[:, -T - 1 : -1], y[:, T:]])


def by_person(codes: NDArray[np.int64]) -> tuple[NDArray[np.intp], Starts]:
    """The rows that belong to somebody, in the order of their persons, each person's in the given order;
    and the first of each person, the number of rows at the end."""
    order = np.argsort(codes, kind="stable")
    order = order[np.searchsorted(codes[order], 0) :]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return order, np.append(starts, len(order)).astype(np.int64)


def cut(starts: Starts, step: int) -> list[slice]:
    """The persons of every block: about `step` rows four times, or one person. No more persons than rows in a
    block of rows: the bound on additions is that of such a block. What one gives depends on no other."""
    first, cuts = 0, []
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + _LONGER * step, side="right")) - 1
        last = max(min(last, first + DENSE_ROWS_AT_MOST), first + 1)
        cuts.append(slice(first, last))
        first = last
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
