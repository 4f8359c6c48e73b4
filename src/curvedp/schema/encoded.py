"""A table that a schema has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from curvedp.errors import InvalidInput
from curvedp.schema.frames import Table
from curvedp.schema.identifiers import Persons

if TYPE_CHECKING:
    from curvedp.schema.schema import Schema


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table that a schema has read: pass it to a fit in the place of the table.

    Parameters
    ----------
    schema : Schema
        What it was read by.
    X : array or sparse matrix of shape (n, encoded columns)
        The features, as `Schema.read` gives them.
    y : array of shape (n,), optional
        The target in user units: numbers, NaN where there is none, or the texts of levels.
    beside : mapping of str to array, optional
        Other columns that the schema gives a role, such as a weight: numbers in user units, by name.
    persons : Persons, optional
        Whose row each row is, where the schema names a unit.

    Examples
    --------
    >>> from curvedp.schema import Numeric, Schema
    >>> schema = Schema([Numeric("age", 0, 120), Numeric("wage", 0, 1e5)], target="wage")
    >>> X, y = schema.encode({"age": ["37"], "wage": [None]})
    >>> X.tolist(), y.tolist()
    ([[37.0]], [nan])
    """

    schema: Schema
    X: Any
    y: Any = None
    beside: Mapping[str, Any] = field(default_factory=dict)
    persons: Persons | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y))

    def table_for(self, schema: Schema) -> Table:
        """As a chunk that is read already; what this schema reads otherwise is not in it."""
        if schema.encoding != self.schema.encoding:
            raise InvalidInput("this table was read by another schema: read it again by this one")
        alike = {
            "offset" if role == "exposure" else role: self.beside[name]
            for role, name in schema.roles.items()
            if name in self.beside and schema.role_of(name) == self.schema.role_of(name)
        }
        if self.y is not None and schema.has_target and schema.target_column == self.schema.target_column:
            alike["y"] = self.y
        if self.persons is not None and schema.unit == self.schema.unit:
            alike["unit"] = self.persons
        return Table({}, self.X, beside=alike, encoding=schema.encoding)
