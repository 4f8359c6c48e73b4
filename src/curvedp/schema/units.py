"""Whose rows they are: the column of a schema that identifies persons (U-1)."""

from __future__ import annotations

from curvedp.errors import InvalidInput
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.schema.columns import Ignored, is_text, shown
from curvedp.schema.formats import FileFormat
from curvedp.schema.kinds import Column


class WithUnit:
    """Who is protected: a row, or a person with all rows that have the same identifier."""

    columns: tuple[Column, ...]
    target: str | None
    adjacency: Adjacency
    unit: str | None
    record: str
    file: FileFormat

    @property
    def protects(self) -> str:
        """Who is protected, in words."""
        if self.unit is not None:
            return f"one person is all rows with one {self.unit!r}"
        return self.record

    @property
    def neighbours(self) -> Neighbours:
        """Between which tables a release is private."""
        return Neighbours(self.adjacency, self.unit)


def check_unit(schema: WithUnit) -> None:
    """Refuse a unit that is no name, or a column to learn from."""
    unit = schema.unit
    if unit is None:
        return
    if not (isinstance(unit, str) and unit and is_text(unit)):
        raise InvalidInput("unit must be the name of the column that says whose row it is")
    column = next((column for column in schema.columns if column.name == unit), None)
    if unit == schema.target or not (column is None or isinstance(column, Ignored)):
        raise InvalidInput(
            f'{shown(unit)} says whose row it is and cannot be learned from: write kind = "ignored" for it'
        )


def passed_unit(declared: str | None, unit: object) -> str:
    """The name of identifiers that are passed beside a table; refused where the schema names others."""
    name = unit_name(unit)
    if declared is not None and name not in ("unit", declared):
        raise InvalidInput(
            f"the schema says that {shown(declared)} tells whose row it is, and unit is {shown(name)}: leave "
            "unit out, or declare the one that is meant"
        )
    return declared or name


def unit_name(unit: object) -> str:
    """What a column of identifiers is called: the name that a series declares, else "unit"."""
    name = getattr(unit, "name", None)
    return name if isinstance(name, str) and name and is_text(name) else "unit"
