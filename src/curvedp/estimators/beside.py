"""What a fit reads beside features and target: how much a record weighs, what of its margin is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curvedp.arrays import ColumnLike, TableLike
from curvedp.errors import InvalidInput
from curvedp.losses import Loss, Offset, Weighted
from curvedp.schema import Schema
from curvedp.schema.roles import KnownMargin, Weight, stacked


@dataclass(frozen=True, eq=False)
class Passed:
    """Columns that a caller passes beside the table; None: the schema names them, or there are none."""

    weight: ColumnLike = None
    offset: ColumnLike = None


NOTHING = Passed()


@dataclass(frozen=True)
class Beside:
    """How weights and the known part of the margin are coded; None where there are none. Public."""

    weight: Weight | None = None
    offset: KnownMargin | None = None

    @classmethod
    def declared(cls, schema: Schema, passed: Passed, weight_max: float | None) -> Beside:
        """Of the schema's columns, or of those that are passed; what is undeclared is refused."""
        weight = schema.declared_weight
        if weight is not None and weight_max is not None:
            raise InvalidInput(
                f"the bounds of {schema.weight!r} declare the largest weight: leave weight_max out"
            )
        if passed.weight is not None:
            if weight is not None:
                raise InvalidInput(
                    f"the schema declares the weight {schema.weight!r}: leave sample_weight out"
                )
            if weight_max is None:
                raise InvalidInput(
                    "pass weight_max=, the largest weight, a public constant: nobody could say otherwise how "
                    "much one record may count"
                )
            weight = Weight(weight_max)
        return cls(weight, schema.declared_offset)

    def loss(self, inner: Loss) -> Loss:
        """The loss of records with this weight and this offset."""
        shifted = inner if self.offset is None else Offset(inner, self.offset.bound)
        return shifted if self.weight is None else Weighted(shifted)

    def targets(self, schema: Schema, table: TableLike, coded: Any, passed: Passed) -> Any:
        """Targets as rows take them: the coded target, the offset, the weight, side by side."""
        columns = [coded]
        if self.offset is not None:
            name = schema.exposure if schema.offset is None else schema.offset
            columns.append(self._encoded(self.offset, schema, table, name, passed.offset))
        if self.weight is not None:
            columns.append(self._encoded(self.weight, schema, table, schema.weight, passed.weight))
        return stacked(columns)

    @staticmethod
    def _encoded(
        role: Weight | KnownMargin, schema: Schema, table: TableLike, name: str | None, cells: ColumnLike
    ) -> Any:
        if cells is None:
            assert name is not None
            cells = schema.role_cells(table, name)
        return role.encode(cells)
