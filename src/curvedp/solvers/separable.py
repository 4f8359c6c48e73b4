"""Separable terms r + ι_C: every coordinate on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import BoolArray, FloatArray
from curvedp.solvers.certificate import Element, norm_bound

Enough = Callable[[FloatArray], bool]  # whether a point θ will do


@dataclass(frozen=True, eq=False)
class Separable:
    """r(θ) = Σ_j l1_j|θ_j| + l2_j θ_j²/2 on C = {low ≤ θ ≤ high}."""

    l1: FloatArray
    l2: FloatArray
    low: FloatArray
    high: FloatArray

    def project(self, theta: FloatArray) -> FloatArray:
        return np.minimum(np.maximum(theta, self.low), self.high)

    def minimize(
        self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray, enough: Enough
    ) -> FloatArray:
        """As far as double precision goes, whatever is enough."""
        if self.l2.any():
            H = H + np.diag(self.l2)
            g = g + self.l2 * center
        from curvedp.solvers import kernel

        return kernel.minimize(H, g, center, self.l1, self.low, self.high, start)

    def movable(self, theta: FloatArray) -> BoolArray:
        """Off the kink, if any, and strictly between the bounds."""
        return np.asarray(((theta != 0.0) | (self.l1 == 0.0)) & (self.low < theta) & (theta < self.high))

    @cached_property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @property
    def subgradient_bound(self) -> float:
        """G ≥ ‖p‖ for every p ∈ ∂r̄."""
        return norm_bound(self.l1)

    @cached_property
    def plain(self) -> bool:
        """Nothing but the quadratic part of r."""
        return not (self.bounded or self.l1.any())

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> Element:
        """In each coordinate kink and interval contribute [a, b]: ±l1 off the kink, [−l1, l1] on it, with
        a = −∞ at the lower bound and b = +∞ at the upper one."""
        from curvedp.solvers import kernel

        return Element(kernel.smallest_element(theta, self.l1, self.low, self.high, hi, lo))

    def slope(self, theta: FloatArray, v: FloatArray, step: FloatArray) -> float:
        kinks = np.where(theta == 0.0, -np.abs(step), np.sign(theta) * step)
        return float(v @ step + self.l1 @ kinks)


def to_the_end(theta: FloatArray) -> bool:
    """Go as far as double precision goes."""
    return False
