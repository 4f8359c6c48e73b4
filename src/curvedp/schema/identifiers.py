"""Whose row it is: a private code for every cell of the column that identifies persons.

Two cells are the same person where they have one name: the text of the cell, without space, NUL characters
and byte order marks around it. A plain decimal is named by its exact value, so that 123, "0123" and "123.0"
are one person however a table stores them; true is 1, and false 0. Nothing else is unified: one person under
two names would be protected as two, and two under one name as one. A cell that names nobody for certain has
the code −1, and its row contributes nothing: a missing one, a word for it, a double of 2⁵³ or more (several
numbers share it).

Every cell is read by itself. A column of a floating type is refused: it cannot hold keys of 2⁵³ and more, and
readers choose it for a whole column where one cell is missing or a fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from curvedp.errors import InvalidInput
from curvedp.schema.cells import CONTAINERS, PLAIN_DECIMAL, TRUTH, Cells, is_missing, printed
from curvedp.schema.frames import as_column

Codes = NDArray[np.int64]

NOBODY = -1
FLOATING = (
    "the column that says whose row it is has a floating type, which cannot hold every identifier: read it "
    "as text (dtype=str in pandas), or as a nullable integer (Int64)"
)
_EXACT = 2.0**53  # doubles below it in size are as many as the whole numbers
# str.isspace holds for no character beyond U+3000.
_AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\0\ufeff"
_LONGEST_EXPONENT = 400  # of a Decimal that is written out; one beyond every double keeps its own text


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

    def __getitem__(self, rows: slice) -> Persons:
        return Persons(self.codes[rows])


class Identifiers:
    """Codes 0, 1, … of persons in the order in which they appear, chunk after chunk; they stay in memory."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, column: Any) -> Codes:
        """The code of every cell of a list, an array or a series; refused where its type is floating."""
        if isinstance(column, Persons):
            return column.codes
        cells = _cells_of(column)
        if isinstance(cells, np.ndarray):
            distinct, first, places = np.unique(cells, return_index=True, return_inverse=True)
            order, codes = np.argsort(first), np.empty(len(distinct), dtype=np.int64)
            codes[order] = self._each(distinct[order].tolist())
            return codes[places.ravel()]
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
    """The name of the person that a cell names; None where it names nobody."""
    try:
        text = _text(cell).strip(_AROUND)
    except Exception:  # a class that answers as it likes
        return None
    if PLAIN_DECIMAL.fullmatch(text):
        return _by_value(text)
    truth = TRUTH.get(text.lower())
    if truth is not None:
        return str(int(truth))
    return None if is_missing(text) else text


def _text(cell: object) -> str:
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, bytes):
        return bytes.__bytes__(cell).decode("utf-8", "replace")  # as a CSV file is read
    if cell is None or isinstance(cell, CONTAINERS):
        return ""
    if isinstance(cell, bool | np.bool_ | int | np.integer):
        return str(int(cell))
    if isinstance(cell, float | np.floating):
        number = float(cell)
        return _written_out(Decimal(repr(number))) if abs(number) < _EXACT else ""
    return _written_out(cell) if isinstance(cell, Decimal) else printed(cell)


def _written_out(number: Decimal) -> str:
    """Without an exponent; "" of NaN and of infinities."""
    if not number.is_finite():
        return ""
    return format(number, "f") if abs(number.adjusted()) <= _LONGEST_EXPONENT else str(number)


def _by_value(decimal: str) -> str:
    """The one spelling of a plain decimal's exact value: −12.5 of "-012.50", 0 of "-0."."""
    whole, _, fraction = decimal.lstrip("+-").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    size = f"{whole}.{fraction}" if fraction else whole
    return f"-{size}" if decimal[0] == "-" and size != "0" else size


def refuse_floating(column: Any) -> None:
    """Refuse a column whose declared type is floating, also that of its categories; no cell is looked at."""
    if _is_floating(as_column(column)):
        raise InvalidInput(FLOATING)


def _is_floating(column: Any) -> bool:
    if isinstance(column, np.ndarray):
        return column.dtype.kind in "fc"
    if isinstance(column, Cells):
        return column.floats is not None
    if not isinstance(column, nw.Series):
        return False
    native = column.to_native()
    kind = native.dtype if hasattr(native, "dtype") else native.type
    kind = getattr(kind, "pyarrow_dtype", kind)
    parts = (getattr(kind, name, None) for name in ("categories", "subtype", "value_type"))
    named = [kind, *(getattr(part, "dtype", part) for part in parts if part is not None)]
    return any(str(each).lower().startswith(("float", "double", "halffloat", "complex")) for each in named)


def _cells_of(column: Any) -> Sequence[Any] | NDArray[Any]:
    """An array of integers, else a list of cells, as they are stored."""
    column = as_column(column)
    refuse_floating(column)
    if isinstance(column, Cells):
        return column.listed()
    if isinstance(column, nw.Series):
        native = column.to_native()
        if column.implementation.is_pandas() and hasattr(native, "cat"):
            known = [*native.cat.categories.tolist(), None]  # a missing cell has the code −1
            return [known[code] for code in native.cat.codes.tolist()]
        plain = column.implementation.is_pandas() and isinstance(native.dtype, np.dtype)
        column = native.to_numpy() if plain else column.to_list()
    if not isinstance(column, np.ndarray):
        return list(column)
    data = np.ma.getdata(column)
    cells: Sequence[Any] | NDArray[Any] = data if data.dtype.kind in "iu" else list(data)
    if isinstance(column, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(column)
        cells = [None if gone else cell for cell, gone in zip(cells, hidden, strict=True)]
    return cells
