"""Intervals of doubles, and what arithmetic makes of them.

f(I, J) holds the computed f(x, y) of all doubles x in I, y in J. Rounding to nearest is monotone; so where f
is monotone in each argument its computed corners are bounds as they stand. Logarithms and exponentials may be
several units in the last place off, differently for an array and for a number: their bounds move outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from curvedp.arrays import FloatArray

ULPS = 8  # vectorised logarithms and exponentials are within 4 of the true value, at either end


@dataclass(frozen=True)
class Interval:
    """[low, high]."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def reach(self) -> float:
        """max |x|."""
        return max(abs(self.low), abs(self.high))


Function = Callable[..., FloatArray]


def corners(function: Function, *intervals: Interval) -> Interval:
    """The range of a function that is monotone in each argument, computed as the function is."""
    ends = product(*((interval.low, interval.high) for interval in intervals))
    with np.errstate(all="ignore"):
        found = [float(function(*(np.float64(end) for end in corner))) for corner in ends]
    if any(math.isnan(value) for value in found):
        return Interval(-math.inf, math.inf)
    return Interval(min(found), max(found))


def outwards(interval: Interval) -> Interval:
    """ULPS further out at both ends; an end at 0 is exact."""
    low, high = interval.low, interval.high
    if low and math.isfinite(low):
        low -= ULPS * float(np.spacing(abs(low)))
    if high and math.isfinite(high):
        high += ULPS * float(np.spacing(abs(high)))
    return Interval(low, high)


def magnitude(interval: Interval) -> Interval:
    """|x|."""
    least = 0.0 if 0.0 in interval else min(abs(interval.low), abs(interval.high))
    return Interval(least, interval.reach)


def with_zero(interval: Interval) -> Interval:
    """The interval and 0."""
    return Interval(min(interval.low, 0.0), max(interval.high, 0.0))
