"""Datasets as few distinct records with multiplicities: worst cases of any size at the cost of a few rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.domain import Domain
from curvedp.losses import Loss, clipped_value
from curvedp.rows import make_rows
from curvedp.rows.base import Layout, Moments, Rows


@dataclass(frozen=True, eq=False)
class Records:
    """`Rows` of Σ counts records: x of shape (r, d) and y of shape (r,), row i present counts_i times.

    The rows must lie in the domain already; nothing is clipped here. Lengths are ‖Ax‖, A = `metric`.
    """

    x: FloatArray
    y: FloatArray
    counts: FloatArray
    domain: Domain
    metric: FloatArray | None = None

    @property
    def layout(self) -> Layout:
        return Layout(self.domain, self.d)

    @property
    def d(self) -> int:
        return int(self.x.shape[1])

    @property
    def magnitude(self) -> float:
        return self.domain.x_norm

    def count(self) -> int:
        return int(self.counts.sum())

    def plus(self, x: FloatArray, y: float, count: float = 1.0) -> Records:
        """These records and `count` copies of (x, y)."""
        return replace(
            self, x=np.vstack([self.x, x]), y=np.append(self.y, y), counts=np.append(self.counts, count)
        )

    def expanded(self) -> Rows:
        """The same records one by one, for mechanisms that sample them."""
        repeats = self.counts.astype(np.int64)
        return make_rows(np.repeat(self.x, repeats, axis=0), np.repeat(self.y, repeats), self.domain)

    def moments(self) -> Moments:
        weighted = self.x * self.counts[:, None]
        yy = np.array([[self.counts @ self.y**2]])
        mass = float(self.counts @ (np.square(self.x).sum(1) + self.y**2))
        return Moments(weighted.T @ self.x, weighted.T @ self.y[:, None], yy, self._rounding * mass)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        slopes = loss.gradient(self.x @ theta, self.y)
        if clip is not None:
            norms = self._lengths * np.linalg.norm(slopes, axis=1)
            slopes = slopes * np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None]
        return np.asarray(self.x.T @ (self.counts[:, None] * slopes))

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        margins = self.x @ theta
        second = self.counts[:, None, None] * loss.hessian(margins, self.y)
        if clip is not None:
            inside = self._lengths * np.abs(loss.gradient(margins, self.y)[:, 0]) < clip
            second = second * inside[:, None, None]
        size = theta.size
        return np.asarray(np.einsum("rkl,ri,rj->ikjl", second, self.x, self.x).reshape(size, size))

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        margins = self.x @ theta
        second = loss.hessian(margins, self.y)[:, 0, 0]
        if clip is not None:
            lengths = self._lengths * np.abs(loss.gradient(margins, self.y)[:, 0])
            second = second * np.clip(2.0 - lengths / clip, 0.0, 1.0)
        return self._gram(np.minimum(second, bound / np.maximum(np.square(self._lengths), 1e-300)))

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        slopes = np.abs(loss.gradient(self.x @ theta, self.y)[:, 0])
        return self._gram(np.square(np.minimum(slopes, clip / np.maximum(self._lengths, 1e-300))))

    def _gram(self, weights: FloatArray) -> FloatArray:
        return np.asarray((self.x * (self.counts * weights)[:, None]).T @ self.x)

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        return self._histogram(np.linalg.norm(loss.gradient(self.x @ theta, self.y), axis=1), edges)

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        return self._histogram(np.ones(len(self.y)), edges)

    def _histogram(self, slopes: FloatArray, edges: FloatArray) -> FloatArray:
        cells = np.searchsorted(edges, self._lengths * slopes, side="left")
        return np.asarray(np.bincount(cells, self.counts, len(edges) + 1), dtype=np.float64)

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Records:
        measured = replace(self, metric=metric)
        if bound is None:
            return measured
        factors = np.minimum(1.0, bound / np.maximum(measured._lengths, 1e-300))
        return replace(measured, x=self.x * factors[:, None])

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        margins = self.x @ theta
        if clip is None:
            return float(self.counts @ loss.value(margins, self.y))
        slope = clip / np.maximum(self._lengths, 1e-300)
        return float(self.counts @ clipped_value(loss, margins, self.y, slope))

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        slopes = np.linalg.norm(loss.gradient(self.x @ theta, self.y), axis=1)
        norms = np.sqrt(np.square(self.x).sum(1))
        reach = slopes + norms * np.linalg.norm(theta) + np.abs(self.y) + 1.0
        return self._rounding * float(self.counts @ (norms * reach))

    @property
    def _lengths(self) -> FloatArray:
        x = self.x if self.metric is None else self.x @ self.metric.T
        return np.asarray(np.sqrt(np.square(x).sum(1)))

    @property
    def _rounding(self) -> float:
        """Relative error of a sum of products over the rows, with margin for the derivatives of a loss."""
        return 8.0 * (len(self.y) + self.d + 8) * UNIT_ROUNDOFF


def no_records(domain: Domain, d: int) -> Records:
    """The empty dataset of records in R^d."""
    return Records(np.zeros((0, d)), np.zeros(0), np.zeros(0), domain)
