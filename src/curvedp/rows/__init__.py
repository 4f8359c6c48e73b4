"""Every pass over private records."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from scipy.sparse import issparse

from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import InvalidInput, shielded
from curvedp.rows.base import Layout, Moments, Rows
from curvedp.rows.chunked import ChunkedRows
from curvedp.rows.dense import DenseRows
from curvedp.rows.sparse import SparseRows
from curvedp.schema.identifiers import Persons

__all__ = ["ChunkedRows", "DenseRows", "Layout", "Moments", "Rows", "SparseRows", "is_dask", "make_rows"]


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection. Whoever has one has imported Dask; nobody else needs it."""
    return "dask" in sys.modules and bool(sys.modules["dask"].is_dask_collection(X))


def make_rows(X: Any, y: Any, domain: Domain, columns: ColumnMap | None = None, unit: Any = None) -> Rows:
    """The `Rows` for an array, a memory map, a sparse matrix or a Dask collection X.

    Records are mapped by `columns` and clipped into `domain`. Nothing is said of a value that cannot be read.
    In a domain with a unit, `unit` has an identifier for every row: sums are over persons (U-1).
    """
    if (unit is None) != (domain.unit is None):
        raise InvalidInput(
            "pass unit, an identifier for every row, where the domain declares one, and only there"
        )
    if unit is not None:
        return shielded(lambda: _person_rows(X, y, domain, columns, unit), _unreadable)
    return shielded(lambda: _make_rows(X, y, domain, columns), _unreadable)


def _person_rows(X: Any, y: Any, domain: Domain, columns: ColumnMap | None, unit: Any) -> Rows:
    from curvedp.rows.persons import PersonRows

    if is_dask(X):
        from curvedp.rows.person_dask import dask_person_rows

        return dask_person_rows(X, y, unit, domain, columns)
    if is_dask(y) or is_dask(unit):
        raise InvalidInput("y or unit is a Dask collection and X is not: pass all from one table")
    return PersonRows.of(X, y, Persons.of(unit).codes, domain, columns)


def _make_rows(X: Any, y: Any, domain: Domain, columns: ColumnMap | None) -> Rows:
    if is_dask(X):
        from curvedp.rows.dask import DaskRows

        return DaskRows(X, y, domain, columns)
    if is_dask(y):
        raise InvalidInput("y is a Dask collection and X is not: pass both from one table")
    if issparse(X):
        return SparseRows(X, y, domain, columns)
    if isinstance(X, np.memmap):
        return ChunkedRows.from_arrays(X, y, domain, columns)
    return DenseRows(X, y, domain, columns)


def _unreadable(kind: str) -> str:
    return f"X and y cannot be read ({kind}): pass an array, a sparse matrix or a Dask collection of numbers"
