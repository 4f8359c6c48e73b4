"""Derived columns and terms, and the one way from the cells of a table to encoded columns.

A term is a product of factors. A factor of parts is coded in full, one column per part, unless the term
without it is in the model, too: then its first part, or the reference of its levels, is left out, as in R,
since the other term spans it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.cells import Cells
from curvedp.data.columns import Numeric, Shape, check_name, is_list, is_text, repeated, settle, shown
from curvedp.data.dates import Column, Date, Feature
from curvedp.data.formulas.language import Scope
from curvedp.data.formulas.notation import MOST_COLUMNS, NO_INTERCEPT, canonical, quoted, split
from curvedp.data.formulas.numbers import MULTIPLY, Factor, Interval, Number, Parts, Scalar
from curvedp.data.frames import Table, as_cells
from curvedp.data.mapping import ColumnMap, Surface
from curvedp.errors import InvalidInput

MOST_ENTRIES = 5000
_ROWS = 257  # at least, and four for each column: by them is said what columns may be together …
_MOST_JOINED = 256  # … of so many at most


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
    >>> from curvedp.data import Derived, Numeric, Schema
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
        if not (is_text(self.expression) and self.expression):
            raise InvalidInput(f'column {shown(self.name)}: write expression = "log1p(x)"')
        if "`" in self.name:
            raise InvalidInput(f"the derived column {shown(self.name)} has a backtick in its name: rename it")
        settle(self, expression=canonical(split(self.expression)))

    def to_dict(self) -> dict[str, str]:
        return {"name": self.name, "expression": self.expression}


def derivations(content: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `Schema` about derived columns, in content that nobody vouches for."""
    formula, terms, derived = content.get("formula"), content.get("terms"), content.get("derived", [])
    if formula is not None and terms is not None:
        raise InvalidInput("the schema has a formula and terms, which say the same: remove one")
    if formula is not None and not isinstance(formula, str):
        raise InvalidInput('formula must be text: write formula = "wage ~ age + I(age**2)"')
    if terms is not None:
        are_texts = is_list(terms) and all(map(is_text, terms))
        if not are_texts or len(terms) > MOST_ENTRIES:
            raise InvalidInput('terms must be a list of texts: write terms = ["age", "I(age ** 2)"]')
        terms = tuple(term if term == NO_INTERCEPT else canonical(split(term)) for term in terms)
    if not isinstance(derived, list) or len(derived) > MOST_ENTRIES:
        raise InvalidInput(
            "derived must be a list of tables: write [[derived]] with a name and an expression"
        )
    if not all(isinstance(entry, Mapping) and set(entry) == {"name", "expression"} for entry in derived):
        raise InvalidInput('a [[derived]] has a name and an expression: write expression = "log1p(x)"')
    return {"formula": formula, "terms": terms, "derived": tuple(Derived(**entry) for entry in derived)}


@dataclass(frozen=True)
class Term:
    """The product of factors; `reduced` says of each whether its first part is left out."""

    name: str
    factors: tuple[Factor, ...]
    reduced: tuple[bool, ...]

    @property
    def encoded_names(self) -> tuple[str, ...]:
        kept = ([n for k, n in enumerate(f.names) if not less or k != f.dropped] for f, less in self._pairs)
        return tuple(map(":".join, product(*kept)))

    @property
    def size(self) -> int:
        return prod(len(factor.names) - less for factor, less in self._pairs)

    @cached_property
    def number(self) -> Number | None:
        """The product of the numbers; None where there are none."""
        found = [factor.number for factor in self.factors if isinstance(factor, Scalar)]
        return reduce(lambda a, b: Number(MULTIPLY, (a, b), self.name), found) if found else None

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        interval = Interval(1.0, 1.0) if self.number is None else self.number.interval
        low, high = interval.low, interval.high
        return ((min(low, 0.0), max(high, 0.0)) if self._parts else (low, high),) * self.size

    @property
    def blocks(self) -> tuple[range, ...]:
        return (range(self.size),) if self._parts and self.size > 1 else ()

    @property
    def shape(self) -> Shape:
        return "ray" if self.number is not None else "some" if any(self.reduced) else "whole"

    @property
    def switched(self) -> tuple[int, ...]:
        number = self.number is not None and self.number.is_switched
        return tuple(range(self.size)) if self._parts or number else ()

    @property
    def sources(self) -> frozenset[str]:
        return frozenset().union(*(factor.sources for factor in self.factors))

    @property
    def _pairs(self) -> list[tuple[Factor, bool]]:
        return list(zip(self.factors, self.reduced, strict=True))

    @property
    def _parts(self) -> list[tuple[Parts, bool]]:
        return [(factor, less) for factor, less in self._pairs if not isinstance(factor, Scalar)]

    def of(self, rows: Table) -> FloatArray:
        found = [np.delete(p.of(rows), p.dropped, 1) if less else p.of(rows) for p, less in self._parts]
        found += [] if self.number is None else [self.number.of(rows)[:, None]]
        return reduce(_products, found)


def _products(left: FloatArray, right: FloatArray) -> FloatArray:
    """Every column of one times every column of the other."""
    columns = left.shape[1] * right.shape[1]
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), columns)


def _spread(count: int, columns: int) -> FloatArray:
    """(columns, count): points that fill [0, 1]^m evenly, multiples of φ⁻¹, …, φ⁻ᵐ modulo 1, φ^(m+1) = φ + 1
    (the sequence R of Roberts, 2018); of one column a grid with its ends."""
    if columns == 1:
        return np.linspace(0.0, 1.0, count)[None, :]
    ratio = 2.0
    for _ in range(64):  # which converges: its slope is below ½
        ratio = (1.0 + ratio) ** (1.0 / (columns + 1.0))
    return np.asarray((0.5 + ratio ** -np.arange(1.0, columns + 1.0)[:, None] * np.arange(count)) % 1.0)


def _at(column: Any, shares: FloatArray) -> FloatArray | list[str]:
    """Cells of a declared column so far on the way from its least number to its largest, or among levels."""
    if isinstance(column, Numeric):
        return column.low + shares * (column.high - column.low)
    last = len(column.levels) - 1
    return [column.levels[k] for k in np.minimum(shares * (last + 1), last).astype(int)]


Block = Feature | Term  # a declared column as it is, or a product


def _read(text: str, scope: Scope) -> Block:
    """One term; a column alone is that column, with all that it declares."""
    parts = split(text)
    column = scope.column_alone(parts[0]) if len(parts) == 1 else None
    if column is not None:
        return column
    factors = tuple(factor for part in parts for factor in scope.factors(part))
    return Term(text.replace("`", ""), factors, (False,) * len(factors))


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
        model = {  # a date is several factors, which no term has
            frozenset(one.factors if isinstance(one, Term) else scope.factors(quoted(one.name)))
            for one in read
            if not isinstance(one, Date)
        }
        blocks: list[Block] = []
        for one in read:
            if isinstance(one, Term):  # factors are reduced where the model spans their first part already
                own = frozenset(one.factors)
                less = (own - {factor} in model and not isinstance(factor, Scalar) for factor in one.factors)
                one = replace(one, reduced=tuple(less) if len(own) > 1 else one.reduced)
            blocks.append(one)
        if (count := sum(block.size for block in blocks)) > MOST_COLUMNS:
            raise InvalidInput(f"the formula has {count} columns, more than {MOST_COLUMNS}: leave terms out")
        used = {name for b in blocks for name in (b.sources if isinstance(b, Term) else [b.name])}
        found = cls({name: column for name, column in scope.columns.items() if name in used}, tuple(blocks))
        _ = found.bounds  # refuses products that are too large
        if (twice := repeated(found.names)) is not None:
            raise InvalidInput(f"two terms make the same column {shown(found.names[twice])}: leave one out")
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.encoded_names)

    @property
    def sources(self) -> tuple[str, ...]:
        """The declared columns that are read, in their declared order."""
        return tuple(self.columns)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        pairs = np.array([pair for block in self.blocks for pair in block.encoded_bounds], dtype=np.float64)
        return pairs[:, 0].copy(), pairs[:, 1].copy()

    @property
    def _placed(self) -> list[tuple[int, Block]]:
        """Every block with the position of its first column."""
        sizes = [block.size for block in self.blocks]
        return list(zip((np.cumsum(sizes) - sizes).tolist(), self.blocks, strict=True))

    @property
    def groups(self) -> dict[Shape, list[tuple[int, ...]]]:
        """The positions of the columns of each block of parts, by its shape."""
        found: dict[Shape, list[tuple[int, ...]]] = {"whole": [], "some": [], "ray": []}
        for start, block in self._placed:
            found[block.shape] += [tuple(start + place for place in places) for places in block.blocks]
        return found

    @property
    def _joined(self) -> Iterator[tuple[list[str], list[tuple[int, Block]]]]:
        """(declared columns, blocks) of two blocks and more that share some; declared columns come first."""
        found: list[tuple[set[str], list[tuple[int, Block]]]] = []
        for start, block in self._placed:
            sources, own = set(block.sources if isinstance(block, Term) else [block.name]), [(start, block)]
            for others, placed in [one for one in found if one[0] & sources]:
                found.remove((others, placed))
                sources, own = sources | others, placed + own
            found.append((sources, own))
        for sources, own in found:
            if len(own) > 1:
                yield sorted(sources), sorted(own, key=lambda placed: isinstance(placed[1], Term))

    def _surfaces(self, mapped: ColumnMap) -> Iterator[Surface]:
        for names, own in self._joined:
            columns = [self.columns[name] for name in names]
            places = [start + place for start, block in own for place in range(block.size)]
            if any(isinstance(column, Date) for column in columns) or len(places) > _MOST_JOINED:
                continue
            shares = _spread(max(_ROWS, 4 * len(places) + 1), len(columns))
            rows = Table({c.name: _at(c, share) for c, share in zip(columns, shares, strict=True)})
            values = [b.of(rows) if isinstance(b, Term) else rows.encoded(b) for _, b in own]
            within = np.clip(np.column_stack(values), mapped.low[places], mapped.high[places])
            points = np.asarray((within - mapped.center[places]) / mapped.scale[places])
            plain = sum(block.size for _, block in own if not isinstance(block, Term))
            levels = max(len(getattr(column, "levels", "1")) for column in columns)
            yield Surface(tuple(places), tuple(map(tuple, points.tolist())), max(plain, 1), levels)

    def column_map(self, intercept: float, x_norm: float | None) -> ColumnMap:
        groups: dict[str, Any] = dict(zip(("one_hot", "some", "rays"), self.groups.values(), strict=True))
        switched = [start + place for start, block in self._placed for place in block.switched]
        groups |= {"intercept": intercept, "x_norm": x_norm, "switched": switched}
        mapped = ColumnMap.from_bounds(*self.bounds, **groups)
        return replace(mapped, coding=replace(mapped.coding, surfaces=tuple(self._surfaces(mapped))))

    def encode(self, table: Table) -> FloatArray:
        """The encoded columns of a table, in user units."""
        rows = replace(table)  # which forgets what it has encoded
        X = np.empty((len(table), len(self.names)), order="F")  # filled column by column
        for start, block in self._placed:
            own = block.of(rows) if isinstance(block, Term) else rows.encoded(block)
            X[:, start : start + block.size] = own
        return X


@dataclass(frozen=True)
class DerivedTarget(Numeric):
    """A number computed from the one column that is predicted, with the bounds that follow; none where that
    cell is none."""

    number: Number = field(kw_only=True)
    column: Numeric = field(kw_only=True)

    @classmethod
    def named(cls, name: str, scope: Scope) -> DerivedTarget:
        """The target that a derived column of this name is."""
        factor = scope.factor(quoted(name))
        source, *more = sorted(factor.sources)
        column = scope.columns[source]
        if not isinstance(factor, Scalar) or more or not isinstance(column, Numeric):
            raise InvalidInput(
                f"the target {shown(name)} must be a function of one numeric column: write log(y)"
            )
        number, ends = factor.number, factor.number.interval
        return cls(name, ends.low, ends.high, number=number, column=column)

    def of(self, column: Any) -> FloatArray:
        """The targets of the cells of that column."""
        raw = self.column.encode(as_cells(column))[:, 0]
        table = Table({self.column.name: Cells(raw, "numbers")})
        return np.where(np.isnan(raw), np.nan, self.number.of(table))
