"""Every pass over private records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from curvedp.data.frames import Persons, Table, is_dask
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows.base import Layout, Moments, Rows
from curvedp.data.rows.blocked import ArrayRows, ChunkedRows
from curvedp.data.rows.inputs import joined, plain_records, require_numbers
from curvedp.data.source import Source, lazy_names, read_persons, source
from curvedp.errors import InvalidInput, shielded
from curvedp.problems.domain import Domain

__all__ = ["ArrayRows", "ChunkedRows", "Layout", "Moments", "Rows", "is_dask", "make_rows", "rows_of"]


def make_rows(X: Any, y: Any, domain: Domain, columns: ColumnMap | None = None, unit: Any = None) -> Rows:
    """The `Rows` for an array, a memory map, a sparse matrix or a Dask collection X.

    Records are mapped by `columns` and clipped into `domain`. Nothing is said of a value that cannot be read.
    In a domain with a unit, `unit` has an identifier for every row: sums are over persons (U-1).
    """
    if (unit is None) != (domain.unit is None):
        raise InvalidInput(
            "pass unit, an identifier for every row, where the domain declares one, and only there"
        )
    if is_dask(X):
        names = shielded(lambda: lazy_names(X), _unreadable) or ()
        found = source(X, beside={"y": y, "unit": unit})
        require_numbers(found.heads[0])
        return rows_of(found, partial(plain_records, names=names), domain, columns)
    if is_dask(y) or is_dask(unit):
        lazy = "y" if is_dask(y) else "unit"
        raise InvalidInput(f"{lazy} is a Dask collection and X is not: take all from one table")
    return shielded(lambda: _in_memory(X, y, domain, columns, unit), _unreadable)


def rows_of(
    found: Source,
    read: Callable[[Table], tuple[Any, Any]],
    domain: Domain,
    columns: ColumnMap | None = None,
) -> Rows:
    """The `Rows` of a table, each chunk of which becomes records (X, y) by `read`; Dask keeps its own."""
    if found.partitions is None or domain.unit is not None:
        if found.partitions is not None:
            from curvedp.data.rows.dask import open_client

            if open_client() is not None:
                raise InvalidInput(
                    "persons are gathered on one machine, and a Dask cluster is connected: fit without it, "
                    "or leave unit out if a row is what is to be protected"
                )
        parts, persons = read_persons(found, read, domain.unit)
        X, y = map(joined, zip(*parts, strict=True))
        return make_rows(X, y, domain, columns, persons)
    from curvedp.data.rows.dask import DaskRows

    return shielded(lambda: DaskRows.of(found, read, domain, columns), _unreadable)


def _in_memory(X: Any, y: Any, domain: Domain, columns: ColumnMap | None, unit: Any) -> Rows:
    if unit is None:
        return ArrayRows(X, y, domain, columns)
    from curvedp.data.rows.persons import PersonRows

    return PersonRows.of(X, y, Persons.of(unit).codes, domain, columns)


def _unreadable(kind: str) -> str:
    return f"X and y cannot be read ({kind}): pass an array, a sparse matrix or a Dask collection of numbers"
