"""A table that a schema has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from curvedp.errors import InvalidInput
from curvedp.schema import lazy
from curvedp.schema.frames import as_cells
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
    X : array or Dask array of shape (n, encoded columns)
        The features, as `Schema.read` gives them.
    y : array or Dask array of shape (n,), optional
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

    def features_for(self, schema: Schema) -> Any:
        """X, if that schema reads the same features."""
        if schema.encoding != self.schema.encoding:
            raise InvalidInput("this table was read by another schema: read it again by this one")
        return self.X

    def target_for(self, schema: Schema) -> Any:
        """y, if that schema reads the same target."""
        if self.y is None or schema.target_column != self.schema.target_column:
            raise InvalidInput("this table was read for another target: read it again by this schema")
        return self.y if lazy.is_dask(self.y) else as_cells(self.y)

    def beside_for(self, schema: Schema, name: str) -> Any:
        """The column of a role, if that schema reads it alike."""
        if name not in self.beside or schema.role_of(name) != self.schema.role_of(name):
            raise InvalidInput("this table was read without that column: read it again by this schema")
        found = self.beside[name]
        return found if lazy.is_dask(found) else as_cells(found)

    def persons_for(self, unit: str) -> Persons:
        """Whose row each row is, if the table was read for that unit."""
        if self.persons is None or self.schema.unit != unit:
            raise InvalidInput(f"this table was read without {unit!r}: read it again by this schema")
        return self.persons
