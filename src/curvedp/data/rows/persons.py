"""What a block of whole persons contributes to each reduction: a person is clipped, measured, counted as one.

A person's length is ‖A Xᵢᵀ‖ in the Schatten norm of order 4, that is ‖Σ A x xᵀAᵀ‖_F^½ over the person's rows:
for one row it is ‖A x‖ (U-1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.columns import clip_factors, inside
from curvedp.domain import Domain
from curvedp.losses import Loss, clipped_targets
from curvedp.rows import products, reductions
from curvedp.rows.blocks import DenseBlock, length_error, rounded_up
from curvedp.rows.reductions import VectorOf, cell_masses, shortened_sum, weights_of
from curvedp.rows.rounding import DENSE_ROWS_AT_MOST
from curvedp.rows.sums import Parts, Total, tree_sum


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
        from curvedp.rows.person_kernels import sum_persons

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
        from curvedp.rows.person_kernels import measure_persons, sum_squares

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
    total = products.combination(sums.reshape(persons.size, -1), factors[:, None])
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
    from curvedp.rows.person_kernels import measure_sums

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
