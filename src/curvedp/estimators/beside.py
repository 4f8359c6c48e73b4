"""What a fit reads beside features and target: how much a record weighs, what of its margin is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from curvedp.arrays import ColumnLike
from curvedp.errors import InvalidInput
from curvedp.losses import Loss, Offset, Weighted
from curvedp.rows.inputs import CodedColumn
from curvedp.schema import Schema
from curvedp.schema.roles import KnownMargin, Weight
from curvedp.schema.targets import Target

Passed = Mapping[str, ColumnLike]  # columns beside the table, by "weight" and "offset"; else the schema's


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
        if passed.get("weight") is not None:
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

    def coded(self, schema: Schema, target: Target) -> list[CodedColumn]:
        """What a fit reads beside the features: the target, the offset, the weight."""
        coded: list[CodedColumn] = [("y", target, None)]
        if self.offset is not None:
            coded.append(("offset", self.offset, schema.exposure if schema.offset is None else schema.offset))
        if self.weight is not None:
            coded.append(("weight", self.weight, schema.weight))
        return coded
