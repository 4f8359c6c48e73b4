"""Rows seen in the coordinates of a subspace that holds every record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from curvedp.arrays import FloatArray, as_coordinates
from curvedp.errors import InvalidInput
from curvedp.losses import Loss
from curvedp.rows.base import Layout, Moments, Rows


def contrasts(d: int, blocks: Sequence[Sequence[int]]) -> FloatArray:
    """N of shape (d, r), orthonormal: the θ whose coefficients sum to zero over every block, r = d − #blocks.

    A coded level minus 1/K lies in that subspace. N must be orthonormal: ‖Nᵀx‖ ≤ ‖x‖ is what (P-10) rests on.
    """
    listed = as_coordinates(j for block in blocks for j in block)  # refuses blocks that share a column
    if max(listed, default=-1) >= d:
        raise InvalidInput(f"a block names column {max(listed)}, there are {d}")
    unit = np.eye(d)
    columns = [unit[j] for j in range(d) if j not in listed]
    for block in blocks:
        K = len(block)
        for k in range(1, K):  # Helmert: level k against the mean of those before it
            column = np.zeros(d)
            column[list(block[:k])] = -1.0 / k
            column[block[k]] = 1.0
            columns.append(column / np.linalg.norm(column))
    return np.array(columns).reshape(-1, d).T


@dataclass(frozen=True, eq=False)
class ContrastRows:
    """The records Nᵀx of `rows`, N of shape (d, r) with orthonormal columns.

    Lengths are ‖ANᵀx‖ in a metric A; without one clips and histograms see ‖x‖ ≥ ‖Nᵀx‖.
    """

    rows: Rows
    N: FloatArray

    @property
    def layout(self) -> Layout:
        return replace(self.rows.layout, d=self.d)

    @property
    def d(self) -> int:
        return int(self.N.shape[1])

    @property
    def magnitude(self) -> float:
        return self.rows.magnitude

    def count(self) -> int:
        return self.rows.count()

    def moments(self) -> Moments:
        moments = self.rows.moments()
        return Moments(self._inside(moments.xx), self.N.T @ moments.xy, moments.yy, moments.error)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        return np.asarray(self.N.T @ self.rows.gradient_sum(loss, self.N @ theta, clip))

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        N = np.kron(self.N, np.eye(theta.shape[1]))
        return np.asarray(N.T @ self.rows.hessian_sum(loss, self.N @ theta, clip) @ N)

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        return self._inside(self.rows.curvature_sum(loss, self.N @ theta, bound, clip))

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        return self._inside(self.rows.score_sum(loss, self.N @ theta, clip))

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        return self.rows.gradient_norm_histogram(loss, self.N @ theta, edges)

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        return self.rows.norm_histogram(edges)

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> ContrastRows:
        return ContrastRows(self.rows.in_metric(metric @ self.N.T, bound), self.N)

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        return self.rows.value_sum(loss, self.N @ theta, clip)

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        return self.rows.gradient_error(loss, self.N @ theta)

    def _inside(self, gram: FloatArray) -> FloatArray:
        return np.asarray(self.N.T @ gram @ self.N)
