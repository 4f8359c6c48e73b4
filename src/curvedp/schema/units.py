"""Whose rows they are: the column of a schema that identifies persons (U-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from curvedp.errors import InvalidInput
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.schema import lazy
from curvedp.schema.columns import Ignored, is_text, shown
from curvedp.schema.delimited import csv_tables
from curvedp.schema.encoded import EncodedTable
from curvedp.schema.formats import FileFormat
from curvedp.schema.frames import Table, is_path, is_table, table_of
from curvedp.schema.identifiers import Codes, Identifiers, Persons
from curvedp.schema.kinds import Column

NO_NAMES = "an array has no column names: pass unit beside it, one entry per row, or a data frame"
NO_DASK = (
    "persons are gathered from a CSV file in memory, or from a Dask data frame in Python; this engine reads "
    "rows: choose the engine memory, or fit a Dask data frame"
)


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

    def persons(self, table: Any, *, delimiter: str | None = None) -> Any:
        """Whose row each row of a table with named columns is; None where the schema names no unit.

        `Persons`, or the column itself of a Dask data frame.
        """
        if self.unit is None:
            return None
        if isinstance(table, EncodedTable):
            return table.persons_for(self.unit)
        if lazy.is_dask(table):
            if lazy.lazy_names(table) is None:
                raise InvalidInput(NO_NAMES)
            return lazy.one_column(lazy.select(table, [self.unit]))
        tables = (
            csv_tables(table, delimiter=delimiter, file=self.file) if is_path(table) else _in_memory(table)
        )
        known = Identifiers()
        return self.joined([self.codes(each, known) for each in tables])

    def codes(self, table: Table, known: Identifiers) -> Codes:
        """Whose row each row of a part of a table is; of no row where the schema names no unit."""
        return np.empty(0, np.int64) if self.unit is None else known.codes(table.column(self.unit))

    def joined(self, parts: Sequence[Codes]) -> Persons | None:
        """Whose rows those of all parts are, one after another."""
        return None if self.unit is None else Persons(np.concatenate(parts))


def _in_memory(table: Any) -> list[Table]:
    if not is_table(table):
        raise InvalidInput(NO_NAMES)
    return [table_of(table)]


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
