"""Derived columns and terms, and the one way from the cells of a table to encoded columns.

A term is a product of factors. A factor of parts is coded in full, one column per part, unless the term
without it is in the model, too: then its first part is left out, as in R, since the other term spans it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.errors import InvalidInput
from curvedp.schema.cells import Cells
from curvedp.schema.columns import Numeric, check_name, is_list, is_text, repeated, shown
from curvedp.schema.formulas.language import Scope
from curvedp.schema.formulas.notation import MOST_COLUMNS, NO_INTERCEPT, canonical, quoted, split
from curvedp.schema.formulas.numbers import (
    MULTIPLY,
    Applied,
    Factor,
    Interval,
    Number,
    Parts,
    Scalar,
    TableRows,
    with_zero,
)
from curvedp.schema.frames import Table, as_cells
from curvedp.schema.kinds import Column, Feature
from curvedp.schema.truths import Boolean

MOST_ENTRIES = 5000

# What is known of the columns of a group beyond their bounds: that they are parts that sum to 1 (or are 0,
# where a level is missing); that they are some of such parts; that they are a number times such parts.
Shape = Literal["whole", "some", "ray"]
Group = tuple[range, Shape]


@dataclass(frozen=True)
class Derived:
    """A column computed from declared ones, cell by cell.

    Its bounds follow from theirs. A missing number is first what its column declares, the middle of the
    bounds, and then transformed; a product with a level that is missing is 0.

    Parameters
    ----------
    name : str
        How it is called, in other expressions and in what is released.
    expression : str
        A function of columns, such as "log1p(capital)", "age ** 2", "C(region):female" or
        "spline(hours, knots=[20, 40])". It may look at one row at a time only.

    Examples
    --------
    >>> from curvedp.schema import Derived, Numeric, Schema
    >>> schema = Schema([Numeric("age", 0, 100)], derived=[Derived("age2", "age ** 2")])
    >>> schema.feature_names
    ('age', 'age2')
    >>> schema.bounds[1].tolist()
    [100.0, 10000.0]
    >>> schema.read({"age": [30, None]}).tolist()
    [[30.0, 900.0], [nan, 2500.0]]
    """

    name: str
    expression: str

    def __post_init__(self) -> None:
        check_name(self.name)
        if not (isinstance(self.expression, str) and is_text(self.expression) and self.expression):
            raise InvalidInput(f'column {shown(self.name)}: write expression = "log1p(x)"')
        if "`" in self.name:
            raise InvalidInput(f"the derived column {shown(self.name)} has a backtick in its name: rename it")
        object.__setattr__(self, "expression", canonical(split(self.expression)))

    def to_dict(self) -> dict[str, str]:
        return {"name": self.name, "expression": self.expression}


def derivations(content: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `Schema` about derived columns, in content that nobody vouches for."""
    formula, terms, derived = content.get("formula"), content.get("terms"), content.get("derived", [])
    if formula is not None and terms is not None:
        raise InvalidInput("the schema has a formula and terms, which say the same: remove one")
    if formula is not None and not isinstance(formula, str):
        raise InvalidInput('formula must be text: write formula = "wage ~ age + I(age**2)"')
    if not isinstance(derived, list) or len(derived) > MOST_ENTRIES:
        raise InvalidInput(
            "derived must be a list of tables: write [[derived]] with a name and an expression"
        )
    return {"formula": formula, "terms": _terms(terms), "derived": tuple(map(_derived, derived))}


def _terms(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if (
        not is_list(given)
        or len(given) > MOST_ENTRIES
        or not all(isinstance(t, str) and is_text(t) for t in given)
    ):
        raise InvalidInput('terms must be a list of texts: write terms = ["age", "I(age ** 2)"]')
    return tuple(term if term == NO_INTERCEPT else canonical(split(term)) for term in given)


def _derived(entry: Any) -> Derived:
    if not isinstance(entry, Mapping) or set(entry) != {"name", "expression"}:
        raise InvalidInput('a [[derived]] has a name and an expression: write expression = "log1p(x)"')
    return Derived(entry["name"], entry["expression"])


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
    def size(self) -> int:
        """The number of columns."""
        return len(self.names)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.column.encoded_bounds

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple((block, "whole") for block in self.column.blocks)

    @property
    def switched(self) -> tuple[int, ...]:
        """The columns that are 0 unless a level is named, something is true, or a cell is missing."""
        if isinstance(self.column, Boolean):
            return tuple(range(self.size))
        indicator = (self.size - 1,) if self.column.missing == "indicator" else ()
        return (*(place for block in self.column.blocks for place in block), *indicator)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset([self.column.name])

    def of(self, rows: TableRows) -> FloatArray:
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

    def of(self, rows: TableRows) -> FloatArray:
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


Block = Plain | Term


def _read(text: str, scope: Scope) -> Block:
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


@dataclass(frozen=True)
class Encoding:
    """The encoded columns of a schema: blocks, one after another; `columns` are those that they need."""

    columns: Mapping[str, Column]
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, terms: Sequence[str], scope: Scope) -> Encoding:
        """Of the terms of a model, in their order."""
        read = [_read(text, scope) for text in terms if text != NO_INTERCEPT]
        if not read:
            raise InvalidInput("the formula has no term: name at least one column after ~")
        model = {
            frozenset(one.factors if isinstance(one, Term) else scope.factors_of(one.column)) for one in read
        }
        blocks = tuple(_beside(one, model) if isinstance(one, Term) else one for one in read)
        count = sum(block.size for block in blocks)
        if count > MOST_COLUMNS:
            raise InvalidInput(f"the formula has {count} columns, more than {MOST_COLUMNS}: leave terms out")
        used = frozenset().union(*(block.sources for block in blocks))
        found = cls({name: column for name, column in scope.columns.items() if name in used}, blocks)
        _ = found.bounds  # refuses products that are too large
        twice = repeated(found.names)
        if twice is not None:
            raise InvalidInput(f"two terms make the same column {shown(found.names[twice])}: leave one out")
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def sources(self) -> tuple[str, ...]:
        """The declared columns that are read, in their declared order."""
        return tuple(self.columns)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        low, high = np.array([pair for block in self.blocks for pair in block.bounds], dtype=np.float64).T
        return low.copy(), high.copy()

    @property
    def _placed(self) -> list[tuple[int, Block]]:
        """Every block with the position of its first column."""
        sizes = [block.size for block in self.blocks]
        return list(zip((np.cumsum(sizes) - sizes).tolist(), self.blocks, strict=True))

    def groups(self, wanted: Shape) -> tuple[tuple[int, ...], ...]:
        """The positions of the columns of each group of that shape."""
        found = [
            (start, group)
            for start, block in self._placed
            for group, shape in block.groups
            if shape == wanted
        ]
        return tuple(tuple(start + place for place in group) for start, group in found)

    def column_map(self, intercept: float, x_norm: float | None) -> ColumnMap:
        low, high = self.bounds
        return ColumnMap.from_bounds(
            low,
            high,
            intercept=intercept,
            x_norm=x_norm,
            one_hot=self.groups("whole"),
            some=self.groups("some"),
            rays=self.groups("ray"),
            switched=[start + place for start, block in self._placed for place in block.switched],
        )

    def encode(self, table: Table) -> FloatArray:
        """The encoded columns of a table, in user units."""
        rows = TableRows(table, self.columns)
        X = np.empty((len(table), len(self.names)), order="F")  # filled column by column
        for start, block in self._placed:
            X[:, start : start + block.size] = block.of(rows)
        return X


@dataclass(frozen=True)
class DerivedTarget:
    """A number computed from the one column that is predicted; none where that cell is none."""

    name: str
    number: Number
    column: Numeric

    @property
    def declared(self) -> Numeric:
        """The target as a column of its own, with the bounds that follow."""
        return Numeric(self.name, self.number.interval.low, self.number.interval.high)

    def of(self, column: Any) -> FloatArray:
        """The targets of the cells of that column."""
        cells = as_cells(column)
        self.column.check_kind(cells.kind)
        raw = self.column.numbers(cells)
        table = Table({self.column.name: Cells(raw, "numbers")})
        plain = Numeric(self.column.name, self.column.low, self.column.high)
        found = self.number.of(TableRows(table, {plain.name: plain}))
        return np.where(np.isnan(raw), np.nan, found)


def derived_target(name: str, scope: Scope) -> DerivedTarget:
    """The target that a derived column is."""
    factor = scope.factor(quoted(name))
    sources = sorted(factor.sources)
    column = scope.columns[sources[0]]
    if not isinstance(factor, Scalar) or len(sources) != 1 or not isinstance(column, Numeric):
        raise InvalidInput(f"the target {shown(name)} must be a function of one numeric column: write log(y)")
    return DerivedTarget(name, factor.number, column)
