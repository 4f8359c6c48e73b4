"""What the operator states of a release: which table, what for, who may see it. Nothing of it is checked."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.arrays import ROWS_AT_MOST
from curvedp.errors import InvalidInput
from curvedp.schema.columns import DeclaredTable, check_line


@dataclass(frozen=True)
class Stated(DeclaredTable):
    """The [release] of a schema file, in the operator's words; model files and reports repeat them.

    Parameters
    ----------
    table : str, optional
        What the table is called: "employment register, 2024".
    purpose : str, optional
        What the release is for.
    audience : str, optional
        Who may see what: "the model: everybody; the table and the ledger: the register's staff".
    rows : int, optional
        A number of records that may be known, such as 12000. It is never counted: where it is not public,
        declare a round one that does not depend on the data.

    Examples
    --------
    >>> from curvedp.schema import Numeric, Schema
    >>> from curvedp.schema.statements import Stated
    >>> stated = Stated("employment register, 2024", purpose="wage report")
    >>> Schema([Numeric("age", 0, 120)], release=stated).release.purpose
    'wage report'
    """

    table: str = ""
    purpose: str = ""
    audience: str = ""
    rows: int | None = None

    heading = "release"

    def __post_init__(self) -> None:
        for name in ("table", "purpose", "audience"):
            check_line(getattr(self, name), f"{name} of the release")
        if self.rows is not None and not (type(self.rows) is int and 0 < self.rows <= ROWS_AT_MOST):
            raise InvalidInput("rows of the release must be a positive whole number: write rows = 12000")


NOTHING = Stated()
