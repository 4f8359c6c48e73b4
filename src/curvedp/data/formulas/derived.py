"""Derived columns and terms, and the one way from the cells of a table to encoded columns.

A term is a product of factors. A factor of parts is coded in full, one column per part, unless the term
without it is in the model, too: then its first part, or the reference of its levels, is left out, as in R,
since the other term spans it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.cells import Cells
from curvedp.data.columns import Ignored, Numeric, check_name, is_list, is_text, repeated, shown
from curvedp.data.dates import Column, Feature
from curvedp.data.delimited import FileFormat
from curvedp.data.formulas.language import Scope
from curvedp.data.formulas.notation import MOST_COLUMNS, NO_INTERCEPT, canonical, quoted, read_formula, split
from curvedp.data.formulas.numbers import (
    MULTIPLY,
    Applied,
    Factor,
    Interval,
    Number,
    Parts,
    Scalar,
    with_zero,
)
from curvedp.data.frames import Table, as_cells
from curvedp.data.mapping import ColumnMap
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.data.schema import Schema

MOST_ENTRIES = 5000
_GRID = 65  # values of a number on which its curve is looked at

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
class Term:
    """The product of factors; `reduced` says of each whether its first part is left out."""

    name: str
    factors: tuple[Factor, ...]
    reduced: tuple[bool, ...]

    @property
    def encoded_names(self) -> tuple[str, ...]:
        pairs = zip(self.factors, self.reduced, strict=True)
        kept = [[n for k, n in enumerate(f.names) if not (less and k == f.dropped)] for f, less in pairs]
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
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
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

    def of(self, rows: Table) -> FloatArray:
        found: FloatArray | None = None
        for part, less in self._parts:
            columns = np.delete(part.of(rows), part.dropped, axis=1) if less else part.of(rows)
            if found is None:
                found = columns
            else:
                found = (found[:, :, None] * columns[:, None, :]).reshape(len(columns), -1)
        if self.number is None:
            assert found is not None
            return found
        value = self.number.of(rows)[:, None]
        return value if found is None else found * value


Block = Feature | Term  # a declared column as it is, or a product


def _read(text: str, scope: Scope) -> Block:
    """One term; a column alone is that column, with all that it declares."""
    parts = split(text)
    column = scope.column_alone(parts[0]) if len(parts) == 1 else None
    if column is not None:
        return column
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
        model = {frozenset(one.factors if isinstance(one, Term) else scope.factors_of(one)) for one in read}
        blocks = tuple(_beside(one, model) if isinstance(one, Term) else one for one in read)
        count = sum(block.size for block in blocks)
        if count > MOST_COLUMNS:
            raise InvalidInput(f"the formula has {count} columns, more than {MOST_COLUMNS}: leave terms out")
        used = {name for b in blocks for name in (b.sources if isinstance(b, Term) else [b.name])}
        found = cls({name: column for name, column in scope.columns.items() if name in used}, blocks)
        _ = found.bounds  # refuses products that are too large
        twice = repeated(found.names)
        if twice is not None:
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
        low, high = np.array(
            [pair for block in self.blocks for pair in block.encoded_bounds], dtype=np.float64
        ).T
        return low.copy(), high.copy()

    @property
    def _placed(self) -> list[tuple[int, Block]]:
        """Every block with the position of its first column."""
        sizes = [block.size for block in self.blocks]
        return list(zip((np.cumsum(sizes) - sizes).tolist(), self.blocks, strict=True))

    def groups(self, wanted: Shape) -> tuple[tuple[int, ...], ...]:
        """The positions of the columns of each group of that shape."""
        found = []
        for start, block in self._placed:
            own = block.groups if isinstance(block, Term) else [(places, "whole") for places in block.blocks]
            found += [tuple(start + place for place in places) for places, shape in own if shape == wanted]
        return tuple(found)

    @property
    def _curves(self) -> Iterator[tuple[tuple[int, ...], FloatArray]]:
        """Columns that are functions of the same number, and what they are on a grid of its bounds."""
        for name, column in self.columns.items():
            own = [
                (start, block)
                for start, block in self._placed
                if block.size == 1
                and (block.sources == {name} if isinstance(block, Term) else block is column)
            ]
            if isinstance(column, Numeric) and len(own) > 1:
                grid = Table({name: Cells(np.linspace(column.low, column.high, _GRID), "numbers")})
                values = [b.of(grid) if isinstance(b, Term) else grid.encoded(b) for _, b in own]
                yield tuple(start for start, _ in own), np.column_stack(values)

    def column_map(self, intercept: float, x_norm: float | None) -> ColumnMap:
        low, high = self.bounds
        mapped = ColumnMap.from_bounds(
            low,
            high,
            intercept=intercept,
            x_norm=x_norm,
            one_hot=self.groups("whole"),
            some=self.groups("some"),
            rays=self.groups("ray"),
            switched=[start + place for start, block in self._placed for place in block.switched],
        )
        curves = []
        for columns, values in self._curves:
            at = list(columns)
            points = (np.clip(values, low[at], high[at]) - mapped.center[at]) / mapped.scale[at]
            curves.append((columns, tuple(map(tuple, points.tolist()))))
        return replace(mapped, coding=replace(mapped.coding, curves=tuple(curves)))

    def encode(self, table: Table) -> FloatArray:
        """The encoded columns of a table, in user units."""
        rows = replace(table)  # which forgets what it has encoded
        X = np.empty((len(table), len(self.names)), order="F")  # filled column by column
        for start, block in self._placed:
            columns = block.of(rows) if isinstance(block, Term) else rows.encoded(block)
            X[:, start : start + block.size] = columns
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
        return np.where(np.isnan(raw), np.nan, self.number.of(table))


def derived_target(name: str, scope: Scope) -> DerivedTarget:
    """The target that a derived column is."""
    factor = scope.factor(quoted(name))
    sources = sorted(factor.sources)
    column = scope.columns[sources[0]]
    if not isinstance(factor, Scalar) or len(sources) != 1 or not isinstance(column, Numeric):
        raise InvalidInput(f"the target {shown(name)} must be a function of one numeric column: write log(y)")
    return DerivedTarget(name, factor.number, column)


# The part of a schema that knows formulas: which encoded columns there are, and which target.


class WithFormula:
    """The encoded columns of a schema: the terms of its formula, or all features and derived columns."""

    columns: tuple[Column, ...]
    target: str | None
    file: FileFormat
    derived: tuple[Derived, ...]
    terms: tuple[str, ...] | None
    absorb: str | None
    if TYPE_CHECKING:

        @property
        def features(self) -> tuple[Feature, ...]: ...

    def with_formula(self: Schema, formula: str) -> Schema:  # type: ignore[misc]
        """The same columns with the features, and perhaps the target, that a formula names.

        Parameters
        ----------
        formula : str
            In R's notation, "wage ~ age + I(age**2) + C(region):female + spline(hours, knots=[20, 40])", or
            without a target, "~ age + …"; a dot stands for all columns. Only transforms that look at one row
            at a time are known.

        Returns
        -------
        schema : Schema
            Its `terms` say what the formula means, and its `bounds` what follows from the declared ones.

        Examples
        --------
        >>> from curvedp import Categorical, Numeric, Schema
        >>> columns = [Numeric("age", 0, 100), Categorical("region", ["n", "s"]), Numeric("wage", 1, 1e5)]
        >>> schema = Schema(columns).with_formula("log(wage) ~ age + I(age**2) + C(region):age")
        >>> schema.feature_names
        ('age', 'I(age ** 2)', 'region=s:age')
        >>> schema.target
        'log(wage)'
        """
        taken = self.roles.values()
        plain = [c.name for c in self.columns if not isinstance(c, Ignored) and c.name not in taken]
        target, terms = read_formula(formula, plain, self.target_source)
        if target is None:
            return replace(self, terms=terms)
        known = {quoted(c.name): c.name for c in (*self.columns, *self.derived)}
        name = known.get(target, target)
        more = () if target in known or name.isidentifier() else (Derived(name, target),)
        return replace(self, target=name, derived=(*self.derived, *more), terms=terms)

    def with_model(self: Schema, target: str | None, formula: str | None) -> Schema:  # type: ignore[misc]
        """The same columns with a target and a formula, either of which may be left out; refused where they
        contradict each other."""
        schema = self if target is None else self.with_target(target)
        if formula is None:
            return schema
        found = schema.with_formula(formula)
        if target is not None and target not in (found.target, found.target_source):
            other = shown(str(found.target))
            raise InvalidInput(
                f"the target is {shown(target)}, the formula's is {other}: leave one of them out"
            )
        return found

    def without_formula(self: Schema) -> Schema:  # type: ignore[misc]
        """The declared columns alone; the target is that of which a derived one is computed."""
        return replace(self, target=self.target_source, derived=(), terms=None)

    @cached_property
    def encoding(self) -> Encoding:
        """The encoded columns."""
        if not self.has_derived:
            return Encoding({c.name: c for c in self.features}, self.features)
        terms = self.terms
        if terms is None:
            derived = [d.name for d in self.derived if d.name != self.target]
            terms = tuple(map(quoted, [*(c.name for c in self.features), *derived]))
        found, known = Encoding.of(terms, self._scope), {column.name for column in self.features}
        taken = next((name for name in found.sources if name not in known), None)
        if taken is not None:
            what = "the target" if taken == self.target_source else "the weight, the offset or an id"
            raise InvalidInput(f"{shown(taken)} is {what}: leave it out of the terms")
        return found

    @cached_property
    def derived_target(self) -> DerivedTarget | None:
        """The target where it is computed from a column; None where it is a column, or there is none."""
        if self.target is None or self.target not in [d.name for d in self.derived]:
            return None
        return derived_target(self.target, self._scope)

    @property
    def target_source(self) -> str | None:
        """The column that is read for the target."""
        return self.target if self.derived_target is None else self.derived_target.column.name

    @property
    def in_file(self) -> dict[str, Column]:
        """The columns by name, in the decimals of the file."""
        decimal = self.file.decimal
        return {c.name: c.in_file(decimal) if isinstance(c, Numeric) else c for c in self.columns}

    @property
    def _scope(self) -> Scope:
        return Scope(self.in_file, {d.name: d.expression for d in self.derived})

    @property
    def has_derived(self) -> bool:
        """Whether an encoded column is more than a declared one."""
        return self.terms is not None or len(self.derived) > 0

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The encoded columns: "age" for a number, "race=black" for a level."""
        return self.encoding.names

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """(low, high) of the encoded columns; (0, 1) for a level."""
        return self.encoding.bounds

    @property
    def one_hot(self) -> tuple[tuple[int, ...], ...]:
        """The positions, among the encoded columns, of each block of levels, or of others that sum to 1."""
        return self.encoding.groups("whole")

    def column_map(self, *, intercept: float = 1.0, x_norm: float | None = None) -> ColumnMap:
        """The public map of encoded columns to model columns: numbers onto [−1, 1], levels minus 1/K.

        Parameters
        ----------
        intercept : float, default=1.0
            The value of a constant column; 0, a formula with "- 1", or absorbed effects: there is none.
        x_norm : float, optional
            A smaller bound on the length of a mapped record than the columns imply.

        Returns
        -------
        columns : ColumnMap
            Its `clip` applies the rule for cells that are missing or out of bounds.
        """
        absorbed = self.absorb is not None
        without = absorbed or (self.terms is not None and NO_INTERCEPT in self.terms)
        found = self.encoding.column_map(0.0 if without else intercept, x_norm)
        return replace(found, absorbed=True) if absorbed else found

    @property
    def derived_bounds(self) -> list[tuple[str, float, float]]:
        """(name, low, high) of every number that is computed, a computed target among them."""
        terms = [block for block in self.encoding.blocks if isinstance(block, Term)]
        pairs = (pair for t in terms for pair in zip(t.encoded_names, t.encoded_bounds, strict=True))
        found = [(name, *ends) for name, ends in pairs]
        computed = self.derived_target
        return found if computed is None else [*found, (computed.name, *computed.declared.encoded_bounds[0])]

    def formula_entries(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a schema file says of it: before the columns, and after them."""
        derived: Sequence[dict[str, str]] = [d.to_dict() for d in self.derived]
        return (
            {} if self.terms is None else {"terms": list(self.terms)},
            {"derived": list(derived)} if derived else {},
        )
