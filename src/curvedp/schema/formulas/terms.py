"""Terms: products of factors, and the encoded columns that they are.

A factor of parts is coded in full, one column per part, unless the term without it is in the model, too: then
its first part is left out, as in R, since the other term spans it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Literal, Protocol

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.schema.columns import repeated, shown
from curvedp.schema.formulas.factors import Factor, Parts, Scalar
from curvedp.schema.formulas.intervals import Interval, with_zero
from curvedp.schema.formulas.language import Scope
from curvedp.schema.formulas.numbers import MULTIPLY, Applied, Number, Sources
from curvedp.schema.formulas.text import split
from curvedp.schema.kinds import Feature
from curvedp.schema.truths import Boolean

MOST_COLUMNS = 20_000
NO_INTERCEPT = "0"

# What is known of the columns of a group beyond their bounds: that they are parts that sum to 1 (or are 0,
# where a level is missing); that they are some of such parts; that they are a number times such parts.
Shape = Literal["whole", "some", "ray"]
Group = tuple[range, Shape]


class Rows(Sources, Protocol):
    """The declared columns of some rows."""

    def encoded(self, name: str) -> FloatArray:
        """A column as its declaration encodes it; NaN where a number is missing."""


class Block(Protocol):
    """The encoded columns of a term."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]: ...

    @property
    def groups(self) -> tuple[Group, ...]: ...

    @property
    def switched(self) -> tuple[int, ...]:
        """The columns that are 0 unless a level is named, something is true, or a cell is missing."""

    @property
    def sources(self) -> frozenset[str]: ...

    def of(self, rows: Rows) -> FloatArray: ...


@dataclass(frozen=True)
class Plain:
    """A declared column, as it is."""

    column: Feature

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def names(self) -> tuple[str, ...]:
        return self.column.encoded_names

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.column.encoded_bounds

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple((block, "whole") for block in self.column.blocks)

    @property
    def switched(self) -> tuple[int, ...]:
        width = len(self.names)
        if isinstance(self.column, Boolean):
            return tuple(range(width))
        indicator = (width - 1,) if self.column.missing == "indicator" else ()
        return (*(place for block in self.column.blocks for place in block), *indicator)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset([self.column.name])

    def of(self, rows: Rows) -> FloatArray:
        return rows.encoded(self.column.name)


@dataclass(frozen=True)
class Term:
    """The product of factors; `reduced` says of each whether its first part is left out."""

    name: str
    factors: tuple[Factor, ...]
    reduced: tuple[bool, ...]

    @property
    def names(self) -> tuple[str, ...]:
        kept = [f.names[less:] for f, less in zip(self.factors, self.reduced, strict=True)]
        return tuple(":".join(names) for names in product(*kept))

    @property
    def size(self) -> int:
        """The number of columns."""
        kept = zip(self.factors, self.reduced, strict=True)
        return prod(len(factor.names) - less for factor, less in kept)

    @cached_property
    def number(self) -> Number | None:
        """The product of the numbers; None where there are none."""
        found = [factor.number for factor in self.factors if isinstance(factor, Scalar)]
        return reduce(lambda a, b: Applied(MULTIPLY, (a, b), self.name), found) if found else None

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        interval = Interval(1.0, 1.0) if self.number is None else self.number.interval
        if self._parts:
            interval = with_zero(interval)
        return ((interval.low, interval.high),) * self.size

    @property
    def groups(self) -> tuple[Group, ...]:
        whole = range(self.size)
        if len(whole) == 1 or not self._parts:
            return ()
        if self.number is not None:
            return ((whole, "ray"),)
        return ((whole, "some" if any(self.reduced) else "whole"),)

    @property
    def switched(self) -> tuple[int, ...]:
        number = self.number is not None and self.number.is_switched
        return tuple(range(self.size)) if self._parts or number else ()

    @property
    def sources(self) -> frozenset[str]:
        return frozenset().union(*(factor.sources for factor in self.factors))

    @property
    def _parts(self) -> list[tuple[Parts, bool]]:
        pairs = zip(self.factors, self.reduced, strict=True)
        return [(f, less) for f, less in pairs if not isinstance(f, Scalar)]

    def of(self, rows: Rows) -> FloatArray:
        found: FloatArray | None = None
        for part, less in self._parts:
            columns = part.of(rows)[:, int(less) :]
            if found is None:
                found = columns
            else:
                found = (found[:, :, None] * columns[:, None, :]).reshape(len(columns), -1)
        if self.number is None:
            assert found is not None
            return found
        value = self.number.of(rows)[:, None]
        return value if found is None else found * value


def blocks(texts: Iterable[str], scope: Scope) -> tuple[Block, ...]:
    """The encoded columns of the terms of a model, in their order."""
    read = [_read(text, scope) for text in texts if text != NO_INTERCEPT]
    if not read:
        raise InvalidInput("the formula has no term: name at least one column after ~")
    model = {frozenset(one.factors) for one in read if isinstance(one, Term)}
    model |= {frozenset(scope.factors_of(one.column)) for one in read if isinstance(one, Plain)}
    found = [one if isinstance(one, Plain) else _beside(one, model) for one in read]
    count = sum(block.size if isinstance(block, Term) else len(block.names) for block in found)
    if count > MOST_COLUMNS:
        raise InvalidInput(f"the formula has {count} columns, more than {MOST_COLUMNS}: leave terms out")
    names = [name for block in found for name in block.names]
    _ = [block.bounds for block in found]  # refuses products that are too large
    twice = repeated(names)
    if twice is not None:
        raise InvalidInput(f"two terms make the same column {shown(names[twice])}: leave one out")
    return tuple(found)


def _read(text: str, scope: Scope) -> Plain | Term:
    """One term; a column alone is that column, with all that it declares."""
    parts = split(text)
    column = scope.column_alone(parts[0]) if len(parts) == 1 else None
    if column is not None:
        return Plain(column)
    factors = tuple(factor for part in parts for factor in scope.factors(part))
    return Term(text.replace("`", ""), factors, (False,) * len(factors))


def _beside(term: Term, model: set[frozenset[Factor]]) -> Term:
    """The term with its factors reduced where the model spans their first part already."""
    own = frozenset(term.factors)
    reduced = (len(own) > 1 and not isinstance(one, Scalar) and own - {one} in model for one in term.factors)
    return replace(term, reduced=tuple(reduced))
