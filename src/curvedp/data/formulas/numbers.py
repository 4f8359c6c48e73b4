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
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise, product
from typing import ClassVar

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, BoolArray, FloatArray
from curvedp.data.columns import settle
from curvedp.data.dates import Boolean, Feature
from curvedp.data.frames import Table
from curvedp.errors import InvalidInput

LARGEST_POWER = 20
MOST_OPERATIONS = 1000
ROWS_AT_A_TIME = 50_000
ULPS = 8  # vectorised logarithms and exponentials are within 4 of the true value, at either end


@dataclass(frozen=True)
class Interval:
    """[low, high]."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def size(self) -> Interval:
        """[min |x|, max |x|]."""
        sizes = abs(self.low), abs(self.high)
        return Interval(0.0 if 0.0 in self else min(sizes), max(sizes))


def _step(end: float) -> float:
    """ULPS units in the last place of an end; one at 0 is exact."""
    return ULPS * float(np.spacing(abs(end))) if end and math.isfinite(end) else 0.0


@dataclass(frozen=True)
class Operation:
    """f(x, …, parameters), monotone in each argument, or in |x| if `even`; or one that `compares`: 0 or 1.

    `exact` where its rounding is monotone, too. It is defined where x ≥ low, or x > low if `open`; `instead`
    says what to write elsewhere.
    """

    function: Callable[..., FloatArray | BoolArray]
    exact: bool = True
    even: bool = False
    compares: bool = False
    parameters: tuple[float, ...] = ()
    arity: int = 1
    low: float = -np.inf
    open: bool = False
    instead: str = ""

    def interval(self, *arguments: Interval) -> Interval:
        """Of all results: from the corners, computed as they are, and beyond them unless it is `exact`."""
        if self.compares:
            return Interval(0.0, 1.0)
        ends = [(one.size.low, one.size.high) if self.even else (one.low, one.high) for one in arguments]
        with np.errstate(all="ignore"):
            found = [float(self.apply(*map(np.float64, corner))) for corner in product(*ends)]
        if any(map(math.isnan, found)):
            return Interval(-math.inf, math.inf)
        low, high = min(found), max(found)
        return Interval(low, high) if self.exact else Interval(low - _step(low), high + _step(high))

    def apply(self, *arguments: FloatArray | np.float64) -> FloatArray:
        return np.asarray(self.function(*arguments, *self.parameters), dtype=np.float64)


def _multiplied(x: FloatArray, n: int) -> FloatArray:
    """x^n for a whole n ≥ 1, by multiplication: |x|^n rounds monotonely in |x|."""
    return reduce(operator.mul, [x] * n)


def power(exponent: float) -> Operation:
    """x^p for a whole p ≥ 1; for another p, of x > 0, or of x ≥ 0 and p > 0."""
    if exponent == int(exponent):
        return Operation(_multiplied, even=exponent % 2 == 0, parameters=(int(exponent),))
    return Operation(np.power, exact=False, parameters=(exponent,))


@dataclass(frozen=True)
class Number:
    """A declared column of numbers, or a date of which one part is read; the same number for every row; or an
    operation on numbers, of which `text` says in a refusal what it is."""

    made: Feature | float | Operation
    arguments: tuple[Number, ...] = ()
    text: str = field(default="", compare=False)
    interval: Interval = field(init=False, compare=False)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        size = 1 + sum(argument.size for argument in self.arguments)
        if size > MOST_OPERATIONS:
            raise InvalidInput(f"an expression takes more than {MOST_OPERATIONS} operations: simplify it")
        if isinstance(self.made, Operation):
            found = self.made.interval(*(argument.interval for argument in self.arguments))
            if not found.size.high <= LARGEST_ENTRY:
                raise InvalidInput(
                    f"{self.text} can exceed 1e150 within the declared bounds: narrow them, or use a milder "
                    "function such as log1p"
                )
        elif isinstance(self.made, float):
            found = Interval(self.made, self.made)
        else:
            found = Interval(*self.made.encoded_bounds[0])
        settle(self, size=size, interval=found)

    @property
    def sources(self) -> frozenset[str]:
        own = [] if isinstance(self.made, Operation | float) else [self.made.name]
        return frozenset(own).union(*(argument.sources for argument in self.arguments))

    @property
    def is_switched(self) -> bool:
        if not isinstance(self.made, Operation):
            return isinstance(self.made, Boolean)
        return self.made.compares or (self.made == MULTIPLY and any(a.is_switched for a in self.arguments))

    def of(self, rows: Table) -> FloatArray:
        """Of a column within its bounds, in their middle where it is missing."""
        if isinstance(self.made, Operation):
            with np.errstate(all="ignore"):
                return self.made.apply(*(argument.of(rows) for argument in self.arguments))
        if isinstance(self.made, float):
            return np.asarray(self.made, dtype=np.float64)
        values, low, high = rows.encoded(self.made)[:, 0], self.interval.low, self.interval.high
        return np.clip(np.where(np.isnan(values), 0.5 * low + 0.5 * high, values), low, high)


MULTIPLY, DIVIDE, NEGATE = map(Operation, (np.multiply, np.divide, np.negative))
FUNCTIONS: Mapping[str, Operation] = {
    **{
        function.__name__: Operation(function, exact=False, low=0.0, open=True, instead="write log1p({x})")
        for function in (np.log, np.log2, np.log10)
    },
    "log1p": Operation(np.log1p, exact=False, low=-1.0, open=True, instead="write log1p(abs({x}))"),
    "sqrt": Operation(np.sqrt, low=0.0, instead="write sqrt(abs({x}))"),
    "exp": Operation(np.exp, exact=False),
    "expm1": Operation(np.expm1, exact=False),
    "abs": Operation(np.abs, even=True),
    "minimum": Operation(np.minimum, arity=2),
    "maximum": Operation(np.maximum, arity=2),
}
_COMPARISONS = {"Lt": np.less, "LtE": np.less_equal, "Gt": np.greater, "GtE": np.greater_equal}
_COMPARISONS |= {"Eq": np.equal, "NotEq": np.not_equal}
SIGNS: Mapping[str, Operation] = {  # by what Python's `ast` calls them
    "Add": Operation(np.add),
    "Sub": Operation(np.subtract),
    "Mult": MULTIPLY,
    "Div": DIVIDE,
    **{name: Operation(function, compares=True) for name, function in _COMPARISONS.items()},
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
        return (first, *(f"{self.name} in ({low:g}, {high:g}]" for low, high in pairwise(ends[1:])))

    def of(self, rows: Table) -> FloatArray:
        place = np.searchsorted(self.breaks, self.number.of(rows), side="left")
        return np.asarray(place[:, None] == np.arange(len(self.breaks) + 1), dtype=np.float64)


@dataclass(frozen=True)
class Spline(_OfNumber):
    """B-splines of a degree at declared knots; the bounds of the number are the boundary knots."""

    knots: tuple[float, ...]
    degree: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}[{k}]" for k in range(1, len(self.knots) + self.degree + 2))

    def of(self, rows: Table) -> FloatArray:
        from scipy.interpolate import BSpline

        low, high, ends = self.number.interval.low, self.number.interval.high, self.degree + 1
        knots = np.array([low] * ends + list(self.knots) + [high] * ends)
        values = self.number.of(rows)
        found = np.empty((len(values), len(self.names)))
        for start in range(0, len(values), ROWS_AT_A_TIME):
            part = slice(start, start + ROWS_AT_A_TIME)
            inside = np.clip(values[part], low, high)
            found[part] = BSpline.design_matrix(inside, knots, self.degree).toarray()
        return np.clip(found, 0.0, 1.0, out=found)


Parts = Levels | Bins | Spline
Factor = Scalar | Levels | Bins | Spline
