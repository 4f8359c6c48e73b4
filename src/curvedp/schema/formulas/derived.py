"""Derived columns, and the one way from the cells of a table to encoded columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.errors import InvalidInput
from curvedp.schema.cells import Cells
from curvedp.schema.columns import Ignored, Numeric, check_name, is_text, shown
from curvedp.schema.dates import Date
from curvedp.schema.formulas.factors import Scalar
from curvedp.schema.formulas.language import Scope
from curvedp.schema.formulas.numbers import Number
from curvedp.schema.formulas.terms import Block, Shape, blocks
from curvedp.schema.formulas.text import canonical, quoted, split
from curvedp.schema.frames import Table, as_cells
from curvedp.schema.kinds import Column, Feature


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


@dataclass(frozen=True, eq=False)
class TableRows:
    """The declared columns of the rows of a table; each is read once."""

    table: Table
    columns: Mapping[str, Column]

    def encoded(self, name: str) -> FloatArray:
        return self._read(name, "")

    def number(self, name: str, part: str = "") -> FloatArray:
        return within(self._read(name, part)[:, 0], self._of(name, part))

    def levels(self, name: str, part: str = "") -> FloatArray:
        return self._read(name, part)

    def _of(self, name: str, part: str) -> Feature:
        column = self.columns[name]
        assert not isinstance(column, Ignored)
        return (
            replace(column, parts=(part,), missing="middle") if part and isinstance(column, Date) else column
        )

    def _read(self, name: str, part: str) -> FloatArray:
        if (name, part) not in self._known:
            self._known[name, part] = self._of(name, part).encode(self.table.cells(name))
        return self._known[name, part]

    @cached_property
    def _known(self) -> dict[tuple[str, str], FloatArray]:
        return {}


def within(values: FloatArray, column: Feature) -> FloatArray:
    """Numbers clipped to the first bounds of a column, NaN in their middle: the rule of the column map."""
    low, high = column.encoded_bounds[0]
    return np.clip(np.where(np.isnan(values), 0.5 * low + 0.5 * high, values), low, high)


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


@dataclass(frozen=True)
class Encoding:
    """The encoded columns of a schema: blocks, one after another; `columns` are those that they need."""

    columns: Mapping[str, Column]
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, terms: Sequence[str], scope: Scope) -> Encoding:
        found = blocks(terms, scope)
        used = frozenset().union(*(block.sources for block in found))
        return cls({name: column for name, column in scope.columns.items() if name in used}, found)

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

    def groups(self, *shapes: Shape) -> tuple[tuple[int, ...], ...]:
        """The positions of the columns of each group of one of these shapes."""
        found: list[tuple[int, ...]] = []
        start = 0
        for block in self.blocks:
            places = (group for group, shape in block.groups if shape in shapes)
            found.extend(tuple(start + place for place in group) for group in places)
            start += len(block.names)
        return tuple(found)

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
            switched=self.switched,
        )

    @property
    def switched(self) -> tuple[int, ...]:
        """The positions of columns that are 0 unless a level is named, something is true or missing."""
        sizes = [len(block.names) for block in self.blocks]
        pairs = zip(self.blocks, (np.cumsum(sizes) - sizes).tolist(), strict=True)
        return tuple(start + place for block, start in pairs for place in block.switched)

    def encode(self, table: Table) -> FloatArray:
        """The encoded columns of a table, in user units."""
        rows, stop = TableRows(table, self.columns), 0
        count = table.n_rows(self.sources[0])
        X = np.empty((count, len(self.names)), order="F")  # filled column by column
        for block in self.blocks:
            start, stop = stop, stop + len(block.names)
            X[:, start:stop] = block.of(rows)
        return X
