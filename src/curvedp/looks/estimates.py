"""Estimates from noisy numbers with the interval of their privacy noise, 95 times of 100 (D-1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEVEL = 0.95
Z = 1.959963984540054  # of a standard normal variable, |·| ≤ Z has probability LEVEL


@dataclass(frozen=True)
class Estimate:
    """A number computed from noisy sums, and where the number without noise lies, 95 times of 100.

    The interval is that of the privacy noise alone: what the table itself leaves open is not in it.

    Parameters
    ----------
    value : float
        The estimate.
    low, high : float
        The ends of the interval.
    resolved : bool, default=True
        False where the noise leaves open more than half of what was possible beforehand.
    """

    value: float
    low: float
    high: float
    resolved: bool = True

    @classmethod
    def within(cls, value: float, low: float, high: float, possible: tuple[float, float]) -> Estimate:
        """Cut to what was possible beforehand, and judged by it.

        Where the value is cut, the interval moves with it: it holds what it held, and keeps its length.
        """
        bottom, top = possible
        inside = min(max(value, bottom), top)
        low, high = max(min(low, low + inside - value), bottom), min(max(high, high + inside - value), top)
        return cls(inside, low, high, high - low <= 0.5 * (top - bottom))

    @property
    def noise(self) -> float:
        """The larger distance from the value to an end of its interval."""
        return max(self.value - self.low, self.high - self.value)

    def mapped(self, offset: float, scale: float) -> Estimate:
        """offset + scale·this, scale > 0."""
        return Estimate(
            offset + scale * self.value, offset + scale * self.low, offset + scale * self.high, self.resolved
        )


def ratio(
    top: float,
    bottom: float,
    var_top: float,
    var_bottom: float,
    covariance: float,
    possible: tuple[float, float],
) -> Estimate:
    """top/bottom of two Gaussian numbers, with Fieller's interval: all r with

        (top − r·bottom)² ≤ Z²·(var_top − 2r·covariance + r²·var_bottom).

    Exact wherever the true ratio lies; everything that is possible where bottom is not told from 0.
    """
    a = bottom**2 - Z**2 * var_bottom
    if bottom <= 0 or a <= 0:
        return Estimate.within(top / max(bottom, 1.0), *possible, possible)
    b, c = top * bottom - Z**2 * covariance, top**2 - Z**2 * var_top
    half = math.sqrt(max(b * b - a * c, 0.0)) / a
    return Estimate.within(top / bottom, b / a - half, b / a + half, possible)
