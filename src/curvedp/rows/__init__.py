"""Every pass over private records."""

from __future__ import annotations

from numpy.typing import ArrayLike

from curvedp.domain import ColumnMap, Domain
from curvedp.rows.base import Moments, Rows
from curvedp.rows.dense import DenseRows

__all__ = ["DenseRows", "Moments", "Rows", "make_rows"]


def make_rows(X: ArrayLike, y: ArrayLike, domain: Domain, columns: ColumnMap | None = None) -> Rows:
    """The `Rows` that suits X: every record mapped by `columns` and clipped into `domain`."""
    return DenseRows(X, y, domain, columns)
