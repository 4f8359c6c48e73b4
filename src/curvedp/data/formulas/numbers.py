"""Numbers and parts computed from the cells of a row: a closed set of functions, with the bounds that follow.

f(I, J) of intervals holds the computed f(x, y) of all doubles x in I, y in J. Rounding to nearest is
monotone; so where f is monotone in each argument its computed corners are bounds as they stand. Logarithms
and exponentials may be several units in the last place off, differently for an array and for a number: their
bounds move outwards.

What a term multiplies is a number, or parts of one whole: columns p_1 … p_K ≥ 0 of each row with Σ p_k = 1,
or all 0 where a level is missing: one-hot levels, bins, B-splines. Products of parts are parts again, and
‖p‖₂ ≤ Σ p_k ≤ 1 whatever K is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from typing import ClassVar

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, BoolArray, FloatArray
from curvedp.data.dates import Boolean, Feature
from curvedp.data.frames import Table
from curvedp.errors import InvalidInput

LARGEST_POWER = 20
MOST_OPERATIONS = 1000
ROWS_AT_A_TIME = 50_000
ULPS = 8  # vectorised logarithms and exponentials are within 4 of the true value, at either end
Function = Callable[..., FloatArray]


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


@dataclass(frozen=True)
class Source:
    """A declared column of numbers, or a date of which one part is read."""

    column: Feature
    size = 1

    @property
    def interval(self) -> Interval:
        return Interval(*self.column.encoded_bounds[0])

    @property
    def is_switched(self) -> bool:
        return isinstance(self.column, Boolean)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset([self.column.name])

    def of(self, rows: Table) -> FloatArray:
        """Within its bounds, in their middle where it is missing."""
        values, low, high = rows.encoded(self.column)[:, 0], self.interval.low, self.interval.high
        return np.clip(np.where(np.isnan(values), 0.5 * low + 0.5 * high, values), low, high)


@dataclass(frozen=True)
class Constant:
    """The same number for every row."""

    value: float
    size = 1
    is_switched = False

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.value)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset()

    def of(self, rows: Table) -> FloatArray:
        return np.asarray(self.value, dtype=np.float64)


@dataclass(frozen=True)
class Applied:
    """An operation on numbers; `text` says what it is in a refusal."""

    operation: Operation
    arguments: tuple[Number, ...]
    text: str = field(compare=False)
    interval: Interval = field(init=False, compare=False)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        size = 1 + sum(argument.size for argument in self.arguments)
        if size > MOST_OPERATIONS:
            raise InvalidInput(f"an expression takes more than {MOST_OPERATIONS} operations: simplify it")
        object.__setattr__(self, "size", size)
        found = self.operation.interval(*(argument.interval for argument in self.arguments))
        if not found.reach <= LARGEST_ENTRY:
            raise InvalidInput(
                f"{self.text} can exceed 1e150 within the declared bounds: narrow them, or use a milder "
                "function such as log1p"
            )
        object.__setattr__(self, "interval", found)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset().union(*(argument.sources for argument in self.arguments))

    @property
    def is_switched(self) -> bool:
        if isinstance(self.operation, Comparison):
            return True
        return self.operation == MULTIPLY and any(argument.is_switched for argument in self.arguments)

    def of(self, rows: Table) -> FloatArray:
        with np.errstate(all="ignore"):
            return self.operation.apply(*(argument.of(rows) for argument in self.arguments))


@dataclass(frozen=True)
class Monotone:
    """A function that is monotone in each argument; `exact` where its rounding is monotone, too."""

    apply: Function
    exact: bool = True

    def interval(self, *arguments: Interval) -> Interval:
        found = corners(self.apply, *arguments)
        return found if self.exact else outwards(found)


@dataclass(frozen=True)
class Magnitude:
    """|x|."""

    def interval(self, *arguments: Interval) -> Interval:
        return magnitude(arguments[0])

    def apply(self, *arguments: FloatArray) -> FloatArray:
        return np.abs(arguments[0])


@dataclass(frozen=True)
class Power:
    """x^n for a whole n ≥ 1, by multiplication: |x|^n rounds monotonely in |x|."""

    n: int

    def interval(self, *arguments: Interval) -> Interval:
        base = magnitude(arguments[0]) if self.n % 2 == 0 else arguments[0]
        return corners(self.apply, base)

    def apply(self, *arguments: FloatArray) -> FloatArray:
        value = arguments[0]
        for _ in range(self.n - 1):
            value = value * arguments[0]
        return value


@dataclass(frozen=True)
class RealPower:
    """x^p for x > 0, or x ≥ 0 and p > 0."""

    p: float

    def interval(self, *arguments: Interval) -> Interval:
        return outwards(corners(self.apply, *arguments))

    def apply(self, *arguments: FloatArray) -> FloatArray:
        return np.asarray(np.power(arguments[0], self.p))


@dataclass(frozen=True)
class Comparison:
    """1 where x and y compare so, else 0."""

    compare: Callable[..., BoolArray]

    def interval(self, *arguments: Interval) -> Interval:
        return Interval(0.0, 1.0)

    def apply(self, *arguments: FloatArray) -> FloatArray:
        return np.asarray(self.compare(*arguments), dtype=np.float64)


Operation = Monotone | Magnitude | Power | RealPower | Comparison
Number = Source | Constant | Applied
ADD, SUBTRACT, MULTIPLY, DIVIDE = map(Monotone, (np.add, np.subtract, np.multiply, np.divide))
NEGATE = Monotone(np.negative)


@dataclass(frozen=True)
class Named:
    """A function that a formula may call, and where it is defined: x ≥ low, or x > low if `open`."""

    operation: Operation
    arity: int = 1
    low: float = -np.inf
    open: bool = False
    instead: str = ""

    def refusal(self, argument: Interval) -> str | None:
        """Why it is not defined on all of that interval."""
        if argument.low < self.low or (self.open and argument.low == self.low):
            sign = ">" if self.open else "≥"
            return f"needs values {sign} {self.low:g}, and {argument.low:g} is within the declared bounds"
        return None


FUNCTIONS: Mapping[str, Named] = {
    "log": Named(Monotone(np.log, exact=False), low=0.0, open=True, instead="write log1p({x})"),
    "log2": Named(Monotone(np.log2, exact=False), low=0.0, open=True, instead="write log1p({x})"),
    "log10": Named(Monotone(np.log10, exact=False), low=0.0, open=True, instead="write log1p({x})"),
    "log1p": Named(Monotone(np.log1p, exact=False), low=-1.0, open=True, instead="write log1p(abs({x}))"),
    "sqrt": Named(Monotone(np.sqrt), low=0.0, instead="write sqrt(abs({x}))"),
    "exp": Named(Monotone(np.exp, exact=False)),
    "expm1": Named(Monotone(np.expm1, exact=False)),
    "abs": Named(Magnitude()),
    "minimum": Named(Monotone(np.minimum), arity=2),
    "maximum": Named(Monotone(np.maximum), arity=2),
}
COMPARISONS: Mapping[str, Comparison] = {
    "Lt": Comparison(np.less),
    "LtE": Comparison(np.less_equal),
    "Gt": Comparison(np.greater),
    "GtE": Comparison(np.greater_equal),
    "Eq": Comparison(np.equal),
    "NotEq": Comparison(np.not_equal),
}


@dataclass(frozen=True)
class _OfNumber:
    number: Number
    name: str = field(compare=False)
    dropped: ClassVar[int] = 0  # the part that is left out where another term spans it

    @property
    def sources(self) -> frozenset[str]:
        return self.number.sources


class Scalar(_OfNumber):
    """One number."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True)
class Levels:
    """The levels of a declared column, or of the one part of a date that is read."""

    names: tuple[str, ...]
    column: Feature = field(compare=False)
    dropped: int = field(default=0, compare=False)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset([self.column.name])

    def of(self, rows: Table) -> FloatArray:
        return rows.encoded(self.column)


@dataclass(frozen=True)
class Bins(_OfNumber):
    """[low, b_1], (b_1, b_2], …, (b_m, high] of a number."""

    breaks: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        interval = self.number.interval
        ends = [interval.low, *self.breaks, interval.high]
        first = f"{self.name} in [{ends[0]:g}, {ends[1]:g}]"
        others = pairwise(ends[1:])
        return (first, *(f"{self.name} in ({low:g}, {high:g}]" for low, high in others))

    def of(self, rows: Table) -> FloatArray:
        place = np.searchsorted(self.breaks, self.number.of(rows), side="left")
        return np.asarray(place[:, None] == np.arange(len(self.breaks) + 1), dtype=np.float64)


@dataclass(frozen=True)
class Spline(_OfNumber):
    """B-splines of a degree at declared knots; the bounds of the number are the boundary knots."""

    knots: tuple[float, ...]
    degree: int

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.knots) + self.degree + 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}[{k}]" for k in range(1, self.size + 1))

    @cached_property
    def _all_knots(self) -> FloatArray:
        low, high = self.number.interval.low, self.number.interval.high
        ends = self.degree + 1
        return np.array([low] * ends + list(self.knots) + [high] * ends)

    def of(self, rows: Table) -> FloatArray:
        from scipy.interpolate import BSpline

        interval, values = self.number.interval, self.number.of(rows)
        found = np.empty((len(values), self.size))
        for start in range(0, len(values), ROWS_AT_A_TIME):
            part = slice(start, start + ROWS_AT_A_TIME)
            inside = np.clip(values[part], interval.low, interval.high)
            found[part] = BSpline.design_matrix(inside, self._all_knots, self.degree).toarray()
        return np.clip(found, 0.0, 1.0, out=found)


Parts = Levels | Bins | Spline
Factor = Scalar | Levels | Bins | Spline
