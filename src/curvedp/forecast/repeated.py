"""A larger table of the same kind."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.arrays import FloatArray
from curvedp.losses import Loss
from curvedp.rows.base import Layout, Moments, Rows


@dataclass(frozen=True, eq=False)
class Repeated:
    """`base` with every record counted `times` times (a positive real): a larger table of the same kind."""

    base: Rows
    times: float

    @property
    def layout(self) -> Layout:
        return self.base.layout

    @property
    def d(self) -> int:
        return self.base.d

    @property
    def magnitude(self) -> float:
        return self.base.magnitude

    def count(self) -> int:
        return round(self.times * self.base.count())

    def moments(self) -> Moments:
        m = self.base.moments()
        return Moments(self.times * m.xx, self.times * m.xy, self.times * m.yy, self.times * m.error)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        return self.times * self.base.gradient_sum(loss, theta, clip)

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        return self.times * self.base.hessian_sum(loss, theta, clip)

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        return self.times * self.base.curvature_sum(loss, theta, bound, clip)

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        return self.times * self.base.score_sum(loss, theta, clip)

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        return self.times * self.base.gradient_norm_histogram(loss, theta, edges)

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        return self.times * self.base.norm_histogram(edges)

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Repeated:
        return Repeated(self.base.in_metric(metric, bound), self.times)

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        return self.times * self.base.value_sum(loss, theta, clip)

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        return self.times * self.base.gradient_error(loss, theta)
