"""Rows of persons: sums and counts over persons, not over their rows (U-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import DataError, InvalidInput
from curvedp.losses import Loss
from curvedp.rows import person_sums
from curvedp.rows.base import Layout, Moments
from curvedp.rows.blocked import Reduction, SummedRows, bound_of, check_metric, increasing
from curvedp.rows.blocks import triangle_of
from curvedp.rows.inputs import as_csr, as_features, as_targets
from curvedp.rows.person_blocks import PersonBlocks, by_person, gathered
from curvedp.rows.reductions import CELLS, VectorOf
from curvedp.rows.sums import Parts, Total


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
        xx = self._sum(person_sums.moments, [(d, d)], bound=self._bound).parts[0]
        return Moments(xx, np.full((d, T), np.nan), np.full((T, T), np.nan), np.nan)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        if clip is None or self._bound is not None:
            _refuse("a gradient")
        return self._sum(person_sums.gradient, [theta.shape], loss=loss, theta=theta, clip=clip).parts[0]

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        self._check(loss, theta, None)
        edges = increasing(edges)
        shape = (len(edges) + 1,)
        return self._sum(person_sums.histogram, [shape], loss=loss, theta=theta, edges=edges).parts[0]

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        edges = increasing(edges)
        return self._sum(person_sums.norm_histogram, [(len(edges) + 1,)], edges=edges).parts[0]

    def vector_sum(self, of: VectorOf, size: int, clip: float) -> FloatArray:
        return self._sum(person_sums.vectors, [(size,)], of=of, clip=clip).parts[0]

    def column_cells(self, columns: Sequence[int]) -> FloatArray:
        shape = (len(columns), CELLS)
        return self._sum(person_sums.column_cells, [shape], columns=tuple(columns), d=self.d).parts[0]

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
