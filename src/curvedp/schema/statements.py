"""What the operator states of a release: which table, what for, who may see it. Nothing of it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from curvedp.arrays import ROWS_AT_MOST
from curvedp.errors import InvalidInput
from curvedp.schema.columns import is_text

LONGEST = 300


@dataclass(frozen=True)
class Stated:
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

    def __post_init__(self) -> None:
        for name in ("table", "purpose", "audience"):
            text = getattr(self, name)
            line = isinstance(text, str) and is_text(text) and len(text.splitlines()) <= 1
            if not line or len(text) > LONGEST:
                raise InvalidInput(f"{name} of the release must be one line of at most {LONGEST} letters")
        if self.rows is not None and not (type(self.rows) is int and 0 < self.rows <= ROWS_AT_MOST):
            raise InvalidInput("rows of the release must be a positive whole number: write rows = 12000")

    def to_dict(self) -> dict[str, str | int]:
        """What is stated."""
        return {part.name: getattr(self, part.name) for part in fields(self) if getattr(self, part.name)}

    @classmethod
    def from_dict(cls, content: Any) -> Stated:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        known = [part.name for part in fields(cls)]
        if not isinstance(content, Mapping) or not set(content) <= set(known):
            raise InvalidInput(f"release must be a table [release] with some of {', '.join(known)}")
        return cls(**content)


NOTHING = Stated()
