"""Numbers computed from numbers: a closed set of functions, each with the bounds that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, FloatArray
from curvedp.errors import InvalidInput
from curvedp.schema.formulas.intervals import Function, Interval, corners, magnitude, outwards

LARGEST_POWER = 20
MOST_OPERATIONS = 1000


class Sources(Protocol):
    """The declared columns of some rows."""

    def number(self, name: str, part: str = "") -> FloatArray:
        """A column of numbers, or a part of dates, within its bounds; in their middle where it is missing."""

    def levels(self, name: str, part: str = "") -> FloatArray:
        """A column with levels, or one part of dates: one column per level."""


class Number(Protocol):
    """A number of each row, from that row alone."""

    @property
    def interval(self) -> Interval: ...

    @property
    def sources(self) -> frozenset[str]: ...

    @property
    def size(self) -> int:
        """How many operations it takes."""

    @property
    def is_switched(self) -> bool:
        """Whether it is 0 unless something is true."""

    def of(self, rows: Sources) -> FloatArray: ...


@dataclass(frozen=True)
class Source:
    """A declared column of numbers, or a part of dates."""

    name: str
    interval: Interval
    part: str = ""
    is_switched: bool = False
    size = 1

    @property
    def sources(self) -> frozenset[str]:
        return frozenset([self.name])

    def of(self, rows: Sources) -> FloatArray:
        return rows.number(self.name, self.part)


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

    def of(self, rows: Sources) -> FloatArray:
        return np.asarray(self.value, dtype=np.float64)


class Operation(Protocol):
    """A function of numbers and the interval of its values."""

    def interval(self, *arguments: Interval) -> Interval: ...

    def apply(self, *arguments: FloatArray) -> FloatArray: ...


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

    def of(self, rows: Sources) -> FloatArray:
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

    compare: Callable[..., np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]

    def interval(self, *arguments: Interval) -> Interval:
        return Interval(0.0, 1.0)

    def apply(self, *arguments: FloatArray) -> FloatArray:
        return np.asarray(self.compare(*arguments), dtype=np.float64)


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
