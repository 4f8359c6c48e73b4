"""Data frames, mappings, arrays and lists as named columns of cells. Only declared types are looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse

from curvedp.arrays import FloatArray
from curvedp.data.cells import CONTAINERS, PLAIN_DECIMAL, TRUTH, Cells, Kind, each_cell, is_missing, printed
from curvedp.data.columns import repeated, shown
from curvedp.errors import DataError, InvalidInput

TABLE_KINDS = (
    "a table must be a data frame, a mapping {column: cells}, an array, a list of rows, or the path of a CSV "
    "file; this is none of them"
)
NO_NAMES = (
    "an array has no column names: pass y beside it, and whatever else is declared, or pass a data frame"
)
NOT_TWO_DIMENSIONS = (
    "X must be a table: two dimensions, a row per record. Reshape your data: X.reshape(-1, 1) if it has one "
    "feature, X.reshape(1, -1) if it is one record"
)


@dataclass(frozen=True, eq=False)
class Table:
    """A chunk of rows: columns by name, or those of a matrix by position, and what was passed beside."""

    columns: Mapping[str, Any]
    matrix: Any = None  # an array or a sparse matrix, whose columns have these names
    names: tuple[str, ...] = ()  # given to columns by position; none where the table has names of its own
    beside: Mapping[str, Any] = field(default_factory=dict)  # "y", "weight", "offset", "unit" of every row
    _encoded: dict[Any, FloatArray] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        if self.matrix is not None:
            return int(self.matrix.shape[0])
        return len(next(iter(self.columns.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self.columns or name in self.names

    @property
    def parts(self) -> FloatArray:
        """How much every row counts: 1, or the part of its person that it is (`Source.of_persons`)."""
        return np.ones(len(self)) if "part" not in self.beside else np.asarray(self.beside["part"])

    def cells(self, name: str) -> Cells:
        """The cells of a column that the schema declares."""
        return as_cells(self.column(name))

    def column(self, name: str) -> Any:
        """A column as it is stored."""
        if name in self.columns:
            return self.columns[name]
        if name not in self._places:
            raise InvalidInput(NO_NAMES) if self.names else DataError(no_column(name))
        j = self._places[name]
        return self._by_column[:, [j]].toarray()[:, 0] if issparse(self.matrix) else self.matrix[:, j]

    def encoded(self, column: Any) -> FloatArray:
        """The cells of a declared column as it encodes them, NaN where a number is missing; read once."""
        if column not in self._encoded:
            self._encoded[column] = column.encode(self.cells(column.name))
        return self._encoded[column]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {} if self.matrix is None else {name: j for j, name in enumerate(self.names)}

    @cached_property
    def _by_column(self) -> Any:
        return csc_array(self.matrix)

    def slices(self, most: int) -> Iterator[Table]:
        """A table of a matrix in pieces of at most so many rows, one at least."""
        table = replace(self, matrix=csr_array(self.matrix)) if issparse(self.matrix) else self
        for start in range(0, max(len(self), 1), most):
            yield table.mapped(partial(cut, rows=slice(start, start + most)))

    @property
    def head(self) -> Table:
        """The same columns without a row: what the table declares."""
        matrix = None if self.matrix is None else np.empty((0, self.matrix.shape[1]), self.matrix.dtype)
        return replace(self, matrix=matrix).mapped(partial(cut, rows=slice(0)))

    def mapped(self, of: Callable[[Any], Any]) -> Table:
        """The table with of(column) in the place of every column, and of the matrix."""
        columns = {name: of(column) for name, column in self.columns.items()}
        matrix = None if self.matrix is None else of(self.matrix)
        beside = {key: of(column) for key, column in self.beside.items()}
        return replace(self, columns=columns, matrix=matrix, beside=beside)


def cut(column: Any, rows: Any) -> Any:
    """Some entries of a column, or some rows of several side by side: a slice of them, or places."""
    if isinstance(column, Cells):
        return replace(column, values=column.values[rows])
    if hasattr(column, "column_names"):  # an Arrow table
        start, stop, _ = rows.indices(len(column))
        return column.slice(start, stop - start)
    return column.iloc[rows] if hasattr(column, "iloc") else column[rows]


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection. Whoever has one has imported Dask; nobody else needs it."""
    return "dask" in sys.modules and bool(sys.modules["dask"].is_dask_collection(X))


def is_lazy_array(X: Any) -> bool:
    return is_dask(X) and isinstance(X, import_module("dask.array").Array)


def is_path(X: object) -> bool:
    return isinstance(X, str | os.PathLike)


def is_table(X: object) -> bool:
    """Whether X has named columns: a mapping, a data frame in memory, or one still to collect."""
    return not is_dask(X) and _names(X) is not None


def table_of(X: object) -> Table:
    """The table of a data frame or of a mapping {name: cells}; all columns are of one length."""
    if (names := _names(X)) is None:
        raise InvalidInput(TABLE_KINDS)
    if isinstance(X, Mapping):
        columns = [as_column(cells) for cells in X.values()]
        if len(set(map(len, columns))) > 1:
            raise InvalidInput("the columns of a table must have one length: pass lists of equal length")
        return Table(dict(zip(names, columns, strict=True)))
    if not isinstance(frame := nw.from_native(X, pass_through=True), nw.DataFrame):
        raise InvalidInput("a lazy frame holds no rows yet: pass frame.collect()")
    return Table(dict(zip(names, frame.iter_columns(), strict=True)))


def rows_table(X: Any, names: Sequence[str]) -> Table:
    """The columns of a matrix or of a list of rows by position; a row of a list is cut or filled up.

    In a list, a mapping is a row by name, and what is neither a list nor a mapping is a row of one cell.
    """
    if not isinstance(X, list | tuple):
        check_width(X.shape[1], len(names))
        return Table({}, X, tuple(names))
    rows = [_row(row, names) for row in X]
    return Table({name: [row[j] for row in rows] for j, name in enumerate(names)}, names=tuple(names))


def matrix_of(X: Any) -> Any:
    """X as a two-dimensional array, or the list of rows that it is; nothing is inferred from the cells."""
    if isinstance(X, list | tuple) or issparse(X):
        return X
    if not isinstance(X, np.ndarray):
        if is_dask(X) or not hasattr(X, "__array__"):  # an array of a Dask collection would compute it
            raise InvalidInput(TABLE_KINDS)
        X = np.asarray(X)
    if X.ndim != 2:
        raise DataError(NOT_TWO_DIMENSIONS)
    if X.dtype.kind == "V":
        raise InvalidInput("a structured array is no table: pass {name: X[name] for name in X.dtype.names}")
    return X


def declared(X: Any) -> tuple[tuple[str, ...] | None, int | None]:
    """(names, number of columns) that the type of X declares; None where it does not, as a list."""
    if (names := _names(X)) is not None:
        return names, len(names)
    if not is_dask(X):
        X = matrix_of(X)
    elif X.ndim != 2 or np.isnan(X.shape[1]):
        raise DataError(NOT_TWO_DIMENSIONS)
    return None, None if isinstance(X, list | tuple) else int(X.shape[1])


def no_column(name: str) -> str:
    return f"the table has no column {shown(name)}, which the schema declares: add it"


def check_width(found: int | None, expected: int) -> None:
    if found != expected:
        # in the words of scikit-learn, whose checks look for them
        raise InvalidInput(f"X has {found} features, but Schema is expecting {expected} features as input")


def check_distinct(names: Iterable[str]) -> None:
    """Refuse two columns of one name, by their positions: a name may be a cell of a file without header."""
    listed = list(names)
    if (twice := repeated(listed)) is not None:
        both = f"columns {listed.index(listed[twice]) + 1} and {twice + 1}"
        raise InvalidInput(f"two columns have the same name ({both}): rename one")


def as_column(y: Any) -> Any:
    """y as one column of known length: an array of one dimension, a series or a sequence."""
    if isinstance(y, Cells | nw.Series | list | tuple):
        return y
    if isinstance(y, str | bytes | Mapping) or is_path(y) or is_dask(y):
        raise InvalidInput("the cells of a column must be a list, an array or a series")
    if isinstance(frame := nw.from_native(y, allow_series=True, pass_through=True), nw.Series):
        return frame
    if isinstance(frame, nw.DataFrame):
        if len(frame.columns) == 1:
            return frame.get_column(frame.columns[0])
    elif hasattr(y, "__array__"):
        array = np.asanyarray(y)
        if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
            return array if array.ndim == 1 else array[:, 0]
    elif isinstance(y, Sequence):
        return y
    raise InvalidInput("y must be one column: a list, an array of one dimension or a series")


def as_cells(column: Any) -> Cells:
    """The cells of one column, and what its type declares of them."""
    if isinstance(column := as_column(column), Cells):
        return column
    if isinstance(column, np.ndarray):
        return _array_cells(column)
    if isinstance(column, nw.Series):
        return _series_cells(column)
    return Cells(column if isinstance(column, list) else list(column), "any")


def as_floats(array: NDArray[Any]) -> FloatArray:
    """An array of real numbers in float64, NaN where it is masked; beyond the doubles is ±inf, silently."""
    with np.errstate(all="ignore"):
        values = np.asarray(np.ma.getdata(array), dtype=np.float64)
    if isinstance(array, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(array), np.nan, values)
    return values


def _array_cells(array: NDArray[Any]) -> Cells:
    if (kind := array.dtype.kind) in "fiub":
        return Cells(as_floats(array), "numbers")
    data = np.ma.getdata(array)
    if kind == "M":
        hidden = np.ma.getmaskarray(array)
        return Cells(np.where(hidden, np.datetime64("NaT"), data) if hidden.any() else data, "dates")
    cells = list(data) if kind == "m" else data.tolist()  # `tolist` would make integers of nanoseconds
    if isinstance(array, np.ma.MaskedArray):
        cells = [None if hidden else c for c, hidden in zip(cells, np.ma.getmaskarray(array), strict=True)]
    return Cells(cells, "durations" if kind == "m" else "complex" if kind == "c" else "any")


def _series_cells(series: nw.Series[Any]) -> Cells:
    native, dtype = series.to_native(), series.dtype
    if series.implementation.is_pandas() and isinstance(native.dtype, np.dtype):
        return _array_cells(native.to_numpy())
    kind: Kind = "durations" if dtype == nw.Duration else "any"
    with suppress(Exception):  # what no array can hold is listed
        if dtype in (nw.Date, nw.Datetime):
            kind = "dates"
            if getattr(dtype, "time_zone", None) is None:  # else it says which day it is
                array = series.to_numpy()
                if array.dtype.kind == "M":
                    return Cells(array, kind)
        elif dtype == nw.Boolean or (dtype.is_numeric() and dtype != nw.Decimal):
            kind = "numbers"
            return Cells(_floats(series, native), kind)
    return Cells(_listed(series), kind)


def _floats(series: nw.Series[Any], native: Any) -> FloatArray:
    """A column of integers, floats or truth values as doubles; a number may round, never fail."""
    if series.implementation.is_pyarrow() or "pyarrow" in str(getattr(native, "dtype", "")):
        import pyarrow as pa

        column = native if isinstance(native, pa.ChunkedArray) else pa.array(native.array)
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    elif series.implementation.is_pandas():
        values = native.to_numpy(dtype="float64", na_value=np.nan)
    else:
        values = series.cast(nw.Float64).to_numpy()
    return np.asarray(values, dtype=np.float64)


def _listed(series: nw.Series[Any]) -> list[Any]:
    """The cells as Python values; one that Python cannot hold (a date of the year 20000) is missing."""
    with suppress(Exception):
        return list(series.to_list())
    return [_cell(series.to_native(), i) for i in range(len(series))]


def _cell(native: Any, i: int) -> Any:
    with suppress(Exception):
        cell = cut(native, i)
        return cell.as_py() if hasattr(cell, "as_py") else cell
    return None


def _row(row: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(row, dict):
        return [row.get(name) for name in names]
    if isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
        row = [row]
    cells: list[Any] = []
    with suppress(Exception):
        cells = list(row)[: len(names)]
    return cells + [None] * (len(names) - len(cells))


def _names(X: Any) -> tuple[str, ...] | None:
    """The names of a mapping or a data frame, all different; None of what has none."""
    if issparse(X) or is_lazy_array(X):  # one kind of sparse matrix is a mapping
        return None
    columns: Iterable[Any] | None = X if isinstance(X, Mapping) else None
    if is_dask(X):
        if not isinstance(X, import_module("dask.dataframe").DataFrame):
            raise InvalidInput("X must be a Dask array or a Dask data frame")
        columns = X.columns
    elif columns is None:
        try:
            frame = nw.from_native(X, pass_through=True)
        except nw.exceptions.DuplicateError:
            columns = X.column_names if hasattr(X, "column_names") else X.columns
        else:
            if isinstance(frame, nw.LazyFrame) and frame.implementation.is_polars():
                columns = frame.collect_schema().names()
            elif isinstance(frame, nw.DataFrame):
                columns = frame.columns
    if columns is None:
        return None
    names = tuple(map(str, columns))
    check_distinct(names)
    return names


# Whose row it is: a private code for every cell of the column that identifies persons.
#
# Two cells are the same person where they have one name: the text of the cell, without space, NUL
# characters and byte order marks around it. A plain decimal is named by its exact value, so that 123,
# "0123" and "123.0" are one person however a table stores them; true is 1, and false 0. Nothing else is
# unified: one person under two names would be protected as two, and two under one name as one. A cell that
# names nobody for certain has the code −1, and its row contributes nothing: a missing one, a word for it, a
# double of 2⁵³ or more (several numbers share it).
#
# Every cell is read by itself. A column of a floating type is refused: it cannot hold keys of 2⁵³ and more,
# and readers choose it for a whole column where one cell is missing or a fraction.

Codes = NDArray[np.int64]  # of persons, −1 for nobody's; private, and never shown

NOBODY = -1
PART_STEPS = 2**16  # parts of a person are multiples of its inverse: sums of 2³⁷ of them are exact
FLOATING = (
    "the column that says whose row it is has a floating type, which cannot hold every identifier: read it "
    "as text (dtype=str in pandas), or as a nullable integer (Int64)"
)
_EXACT = 2.0**53  # doubles below it in size are as many as the whole numbers
# str.isspace holds for no character beyond U+3000.
_AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\0\ufeff"
_LONGEST_EXPONENT = 400  # of a Decimal that is written out; one beyond every double keeps its own text


def person_parts(codes: Codes) -> FloatArray:
    """How much of its person every row is, about 1/k of k rows: multiples of 2⁻¹⁶ that add up to 1 (U-2).
    Nobody's rows are 0. So are some of the rows of a person with more than 2¹⁶."""
    place, rows = _person_places(codes)
    steps = ((place + 1) * PART_STEPS) // rows - (place * PART_STEPS) // rows
    return np.where(codes == NOBODY, 0.0, steps / PART_STEPS)


def one_row_each(codes: Codes, coins: np.random.Generator) -> Codes:
    """One row of each person, chosen by a fresh coin among its own; the others are nobody's."""
    place, rows = _person_places(codes)
    people = int(codes.max(initial=NOBODY)) + 1
    chosen = np.floor(coins.random(people)[codes] * rows) if people else place
    return np.where(place == chosen, codes, NOBODY)


def _person_places(codes: Codes) -> tuple[Codes, Codes]:
    """(which of its person's rows every row is, from 0 on, and how many that person has)."""
    _, coded, rows = np.unique(codes, return_inverse=True, return_counts=True)
    order = np.argsort(coded, kind="stable")
    place = np.empty(len(coded), dtype=np.int64)
    place[order] = np.arange(len(coded)) - np.repeat(np.cumsum(rows) - rows, rows)
    return place, rows[coded].astype(np.int64)


class Identifiers:
    """Codes 0, 1, … of persons in the order in which they appear, chunk after chunk; they stay in memory."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}  # the code of every name, in their order

    def codes(self, column: Any) -> Codes:
        """The code of every cell of a list, an array or a series; refused where its type is floating."""
        if isinstance(cells := _cells_of(column), np.ndarray):
            distinct, first, places = np.unique(cells, return_index=True, return_inverse=True)
            order, codes = np.argsort(first), np.empty(len(distinct), dtype=np.int64)
            codes[order] = self._each(distinct[order].tolist())
            return codes[places.ravel()]
        return self._each(cells)

    def _each(self, cells: Sequence[Any]) -> Codes:
        return np.array(each_cell(self._code, cells), dtype=np.int64)

    def _code(self, cell: object) -> int:
        name = identifier(cell)
        return NOBODY if name is None else self.names.setdefault(name, len(self.names))


def identifier(cell: object) -> str | None:
    """The name of the person that a cell names; None where it names nobody."""
    try:
        text = _text(cell).strip(_AROUND)
    except Exception:  # a class that answers as it likes
        return None
    if PLAIN_DECIMAL.fullmatch(text):  # the one spelling of its exact value: −12.5 of "-012.50", 0 of "-0."
        whole, _, fraction = text.lstrip("+-").partition(".")
        whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
        size = f"{whole}.{fraction}" if fraction else whole
        return f"-{size}" if text[0] == "-" and size != "0" else size
    if (truth := TRUTH.get(text.lower())) is not None:
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
        cell = Decimal(repr(float(cell))) if abs(float(cell)) < _EXACT else Decimal("NaN")
    if not isinstance(cell, Decimal):
        return printed(cell)
    if not cell.is_finite():
        return ""
    return format(cell, "f") if abs(cell.adjusted()) <= _LONGEST_EXPONENT else str(cell)


def _is_floating(column: Any) -> bool:
    """Whether the declared type is floating, also that of categories; no cell is looked at."""
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
    if _is_floating(column):
        raise InvalidInput(FLOATING)
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
