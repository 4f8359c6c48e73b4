"""Privacy amounts as the fractions that people mean: 10 × 0.1 is 1."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction


def exact(x: float) -> Fraction:
    """The number that a float stands for, so that sums are exact: 10 × 0.1 is 1, and so is 11 × (1/11).

    10ᵉ·p/q with q ≤ 10⁶ where that agrees with x to 15 significant digits, all that a float is sure to
    carry; the shortest decimal that reads back as x otherwise. Increasing in x.
    """
    decimal = Decimal(repr(float(x)))
    power = Fraction(10) ** decimal.adjusted() if decimal else Fraction(1)
    mantissa = Fraction(decimal) / power
    simple = mantissa.limit_denominator(10**6)
    return power * (simple if abs(simple - mantissa) <= abs(mantissa) / 10**15 else mantissa)


def round_down(value: Fraction) -> float:
    """A float that stands for at most `value` and differs from it by rounding only; 0 where value ≤ 0."""
    result = max(0.0, float(value))
    while result > 0.0 and exact(result) > value:
        result = math.nextafter(result, 0.0)
    return result


def round_up(value: Fraction) -> float:
    """A float that stands for at least `value` ≥ 0 and differs from it by rounding only."""
    result = float(value)
    while exact(result) < value:
        result = math.nextafter(result, math.inf)
    return result
