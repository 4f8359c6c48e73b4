"""The part of a schema that knows formulas: which encoded columns there are, and which target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.errors import InvalidInput
from curvedp.schema.columns import Ignored, Numeric, shown
from curvedp.schema.formats import FileFormat
from curvedp.schema.formulas.derived import Derived, DerivedTarget, Encoding, Plain, derived_target
from curvedp.schema.formulas.language import Scope
from curvedp.schema.formulas.notation import NO_INTERCEPT, quoted, read_formula
from curvedp.schema.kinds import Column, Feature

if TYPE_CHECKING:
    from curvedp.schema.schema import Schema


class WithFormula:
    """The encoded columns of a schema: the terms of its formula, or all features and derived columns."""

    columns: tuple[Column, ...]
    target: str | None
    file: FileFormat
    derived: tuple[Derived, ...]
    terms: tuple[str, ...] | None
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
        >>> from curvedp.schema import Categorical, Numeric, Schema
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
            return Encoding({c.name: c for c in self.features}, tuple(map(Plain, self.features)))
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
            The value of a constant column; 0, or a formula with "- 1": there is none.
        x_norm : float, optional
            A smaller bound on the length of a mapped record than the columns imply.

        Returns
        -------
        columns : ColumnMap
            Its `clip` applies the rule for cells that are missing or out of bounds.
        """
        without = self.terms is not None and NO_INTERCEPT in self.terms
        return self.encoding.column_map(0.0 if without else intercept, x_norm)

    @property
    def derived_bounds(self) -> list[tuple[str, float, float]]:
        """(name, low, high) of every number that is computed, a computed target among them."""
        blocks = [block for block in self.encoding.blocks if not isinstance(block, Plain)]
        found = [(name, *ends) for b in blocks for name, ends in zip(b.names, b.bounds, strict=True)]
        computed = self.derived_target
        return found if computed is None else [*found, (computed.name, *computed.declared.encoded_bounds[0])]

    def formula_entries(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a schema file says of it: before the columns, and after them."""
        derived: Sequence[dict[str, str]] = [d.to_dict() for d in self.derived]
        return (
            {} if self.terms is None else {"terms": list(self.terms)},
            {"derived": list(derived)} if derived else {},
        )
