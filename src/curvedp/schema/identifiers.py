"""Whose row it is: a private code for every cell of the column that identifies persons.

Two cells are the same person where their texts are equal, space around them dropped; a whole number is its
decimal digits, however a table happens to store it. Nothing else is unified: one person under two texts would
be protected as two, and two under one text as one. A cell that names nobody for certain has the code −1, and
its row contributes nothing: a missing one, a word for it, a double of 2⁵³ or more (several numbers share it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from curvedp.schema.cells import Cells
from curvedp.schema.frames import as_column

Codes = NDArray[np.int64]

NOBODY = -1
_EXACT = 2.0**53  # doubles below it in size are as many as the whole numbers
_NOBODY_WORDS = frozenset(
    ("", "na", "n/a", "#n/a", "nan", "-nan", "<na>", "nat", "null", "none", "-", "--", ".", "?")
)


@dataclass(frozen=True, eq=False, repr=False)
class Persons:
    """Whose row each row is: codes of persons, −1 for nobody's. Private, and never shown."""

    codes: Codes

    @classmethod
    def of(cls, column: Any) -> Persons:
        """Of a column of identifiers, unless it is coded already."""
        return column if isinstance(column, Persons) else cls(Identifiers().codes(column))

    def __len__(self) -> int:
        return len(self.codes)


class Identifiers:
    """Codes 0, 1, … of persons in the order in which they appear, chunk after chunk; they stay in memory."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, column: Any) -> Codes:
        """The code of every cell of a list, an array or a series."""
        cells = _cells_of(column)
        if isinstance(cells, np.ndarray):
            distinct, places = np.unique(cells, return_inverse=True)
            return self._each(distinct.tolist())[places.ravel()]
        return self._each(cells)

    def _each(self, cells: Sequence[Any]) -> Codes:
        known: dict[str, int] = {}
        found = np.empty(len(cells), dtype=np.int64)
        for i, cell in enumerate(cells):
            code = known.get(cell) if type(cell) is str else None
            if code is None:
                code = self._code(cell)
                if type(cell) is str:
                    known[cell] = code
            found[i] = code
        return found

    def _code(self, cell: object) -> int:
        name = identifier(cell)
        return NOBODY if name is None else self._codes.setdefault(name, len(self._codes))


def identifiers(column: Any) -> list[str | None]:
    """`identifier` of every cell of a column."""
    cells = _cells_of(column)
    return [identifier(cell) for cell in (cells.tolist() if isinstance(cells, np.ndarray) else cells)]


def identifier(cell: object) -> str | None:
    """The text by which a cell names a person; None where it names nobody."""
    try:
        return _identifier(cell)
    except Exception:  # a class that answers as it likes
        return None


def _identifier(cell: object) -> str | None:
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "surrogateescape")
    if isinstance(cell, str):
        text = cell.rstrip("\0").strip()
        return None if text.lower() in _NOBODY_WORDS else text
    if cell is None or isinstance(cell, list | tuple | dict | set | np.ndarray):
        return None
    if isinstance(cell, bool | np.bool_ | int | np.integer):
        return str(int(cell))
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if not (math.isfinite(number) and abs(number) < _EXACT):
            return None
        return str(int(number)) if number == int(number) else repr(number)
    text = str(cell).strip()
    return None if text.lower() in _NOBODY_WORDS else text


def _cells_of(column: Any) -> Sequence[Any] | NDArray[Any]:
    """An array of integers or doubles, else a list of cells, as they are stored."""
    column = as_column(column)
    if isinstance(column, Cells):
        column = column.values
    if isinstance(column, nw.Series):
        native = column.to_native()
        plain = column.implementation.is_pandas() and isinstance(native.dtype, np.dtype)
        column = native.to_numpy() if plain else column.to_list()
    if not isinstance(column, np.ndarray):
        return list(column)
    data = np.ma.getdata(column)
    cells: Sequence[Any] | NDArray[Any] = data if data.dtype.kind in "iuf" else list(data)
    if isinstance(column, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(column)
        cells = [None if gone else cell for cell, gone in zip(cells, hidden, strict=True)]
    return cells
