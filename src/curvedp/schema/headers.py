"""Whether the header of a table names its columns; one that looks like data is never shown."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence

from curvedp.errors import InvalidInput
from curvedp.schema.cells import number
from curvedp.schema.delimited import header_cells
from curvedp.schema.formats import PLAIN, FileFormat
from curvedp.schema.frames import check_distinct

LONGEST_NAME = 60
# A letter or an underscore, then letters, digits and what joins the words of a name. No space: a person's
# name has one.
_NAME = re.compile(r"[^\W\d][\w.:/%$#()\[\]-]*")
# What cells say, and columns are hardly ever called.
_VALUES = frozenset(
    ("yes", "no", "true", "false", "male", "female", "m", "f", "na", "n/a", "nan", "none", "null", "unknown")
)


def looks_like_data(cells: Sequence[str]) -> bool:
    """Whether a first line holds what a name of a column hardly is.

    Numbers, dates, times, e-mail addresses, words such as "yes" and "female", texts with a space or of more
    than LONGEST_NAME letters, empty and repeated cells. A line of plain words cannot be told from names.
    """
    return len(set(cells)) < len(cells) or not all(map(_could_be_a_name, cells))


def check_parquet_names(
    path: str | os.PathLike[str], names: Sequence[str], header: bool | None = None
) -> None:
    """Refuse, and do not show, names in a Parquet file that look like data, unless somebody vouches for them.

    A table that was once read without its header has a record there.
    """
    if header is False or (header is None and looks_like_data(names)):
        raise InvalidInput(
            f"{path}: its column names look like data and are not shown; if they really are names pass "
            "`header=True`, if they are not rename the columns"
        )
    check_distinct(names)


def names_in_header(
    path: str | os.PathLike[str], *, file: FileFormat = PLAIN, header: bool | None = None
) -> list[str]:
    """The names in the first line of a CSV file that somebody vouches for, or that looks like names.

    Refused, and not shown: a line that looks like data where `header` is None. A nameless third column is
    "column_3".
    """
    if header is False:
        raise InvalidInput(
            f"{path} has no column names: write them into its first line, or pass `names`, in the order of "
            "its columns"
        )
    cells = header_cells(path, file=file)
    if header is None and looks_like_data(cells):
        raise InvalidInput(
            f"{path}: the first line looks like data, not like column names, and is not shown; if it really "
            "is a header pass `header=True`, if it is not pass `header=False` and `names`"
        )
    check_distinct(filter(None, cells))
    names = [cell or f"column_{i}" for i, cell in enumerate(cells, start=1)]
    check_distinct(names)
    return names


def _could_be_a_name(cell: str) -> bool:
    return (
        len(cell) <= LONGEST_NAME
        and _NAME.fullmatch(cell) is not None
        and cell.lower() not in _VALUES
        and math.isnan(number(cell))
    )
