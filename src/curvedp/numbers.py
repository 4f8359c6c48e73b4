"""Numbers as people write them: a few digits, those that noise leaves, exact fractions of budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(value: float, digits: int = 4) -> str:
    """A number to so many digits, without an exponent where it can do without."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def mantissa(value: float, digits: int) -> tuple[str, int | None]:
    """(3, −7) for 3·10⁻⁷ to so many digits; (12,000, None) where no power of ten is needed."""
    lead, _, power = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if not -3 <= exponent < 9:
        return f"{float(lead):.{digits}g}".replace("-", "−"), exponent
    decimals = max(0, digits - 1 - exponent)
    text = f"{round(value, digits - 1 - exponent):,.{decimals}f}".replace("-", "−")
    return (text.rstrip("0").rstrip(".") if decimals else text), None


def shown(value: float, digits: int = 4) -> str:
    """0.25, −12,000 or 3 × 10⁻⁷, to so many digits."""
    if not math.isfinite(value):
        return "more than 10³⁰⁰" if value > 0 else "—"
    lead, exponent = mantissa(value, digits)
    if exponent is None:
        return lead
    raised = f"10{str(exponent).translate(RAISED)}"
    return raised if lead == "1" else f"{lead} × {raised}"


def rounded_up(value: float, digits: int = 3) -> float:
    """The least number of so many digits that is not below a positive value."""
    if not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / unit) * unit


def percent(share: float) -> str:
    """A share in words, two digits, rounded up."""
    value = 100 * share
    decimals = max(0, decimals_of(value)) if value > 0 else 0
    return f"{math.ceil(value * 10**decimals) / 10**decimals:.{decimals}f} %"


def decimals_of(noise: float) -> int:
    """The decimals that show two digits of the noise; negative from 100 on."""
    return 1 - math.floor(math.log10(noise))


def rounded(value: float, decimals: int) -> str:
    """`value` rounded to so many decimals, none of them shown where they are negative; no −0."""
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"


# Privacy amounts as the fractions that people mean: 10 × 0.1 is 1.


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


def finite(value: Any) -> Any:
    """Plain values for JSON, which knows no infinity and no NaN: they become None."""
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float, digits: int = 4) -> str:
    """To so many digits, without an exponent where it can do without."""
    return f"{float(f'{value:.{digits}g}'):,.12g}".replace("-", "−")
