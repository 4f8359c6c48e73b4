"""A schema declares, publicly and before the data are read, what each column may hold.

Numeric columns have bounds, categorical columns have levels; neither is ever read off the data. A value
outside the bounds is clipped to them; a missing or unreadable number is the middle of the bounds; a level
that was not declared is the all-zero code; a record without a usable target contributes nothing. The rule is
the same for every row, in fitting and in predicting, and nothing about it is reported but what `check` buys.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.columns import ColumnMap
from curvedp.errors import InvalidInput
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.schema import files, lazy
from curvedp.schema.bounds import bounds_per_column
from curvedp.schema.cells import Cells, levels, numbers
from curvedp.schema.columns import Categorical, Column, Ignored, Numeric, is_text, repeated, shown
from curvedp.schema.delimited import csv_tables
from curvedp.schema.frames import (
    Table,
    as_cells,
    as_floats,
    check_width,
    is_path,
    is_table,
    matrix_of,
    rows_table,
    table_of,
)
from curvedp.schema.targets import ClassTarget, NumericTarget

if TYPE_CHECKING:
    from curvedp.looks.checked import TableCheck
    from curvedp.release import Account


@dataclass(frozen=True)
class Schema:
    """The declared columns, which of them is the target, and who is protected.

    Parameters
    ----------
    columns : sequence of Numeric, Categorical or Ignored
        Every column that the table may have, by name.
    target : str, optional
        The column to predict; it is no feature then.
    adjacency : {"replace", "add_remove"}, default="replace"
        Which tables are neighbours: one record differs, or one is there in one of them only.
    record : str, default="one row is one person"
        What one record is, in words: who is protected.

    Examples
    --------
    >>> from curvedp.schema import Categorical, Numeric, Schema
    >>> schema = Schema(
    ...     [Numeric("age", 0, 120), Categorical("union", ["no", "yes"]), Numeric("wage", 0, 1e5)],
    ...     target="wage",
    ... )
    >>> schema.feature_names
    ('age', 'union=no', 'union=yes')
    >>> schema.read({"age": [37, "x"], "union": ["yes", None], "wage": [5e4, 1e4]})
    array([[37.,  0.,  1.],
           [nan,  0.,  0.]])
    """

    columns: tuple[Column, ...]
    target: str | None = None
    adjacency: Adjacency = "replace"
    record: str = files.RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        names = [column.name for column in self.columns]
        twice = repeated(names)
        if twice is not None:
            raise InvalidInput(f"column {shown(names[twice])} is declared twice: remove one")
        Neighbours(self.adjacency)
        if not (isinstance(self.record, str) and is_text(self.record)):
            raise InvalidInput("record must be text: say in words what one row is")
        if self.target is not None:
            self._check_target(self.target, names)
        if not self.features:
            raise InvalidInput("no column is left to learn from: declare at least one numeric or categorical")

    def _check_target(self, target: str, names: Sequence[str]) -> None:
        if target not in names:
            near = difflib.get_close_matches(target, names, n=1)
            choices = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            hint = f"did you mean {shown(near[0])}?" if near else f"choose one of {choices}"
            raise InvalidInput(f"the target {shown(target)} is not a column of the schema: {hint}")
        if isinstance(self.columns[names.index(target)], Ignored):
            raise InvalidInput(f"the target {shown(target)} is ignored: declare its bounds or its levels")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema file.

        Parameters
        ----------
        path : path
            A TOML file, as `to_toml` and `schema_template` write it.

        Returns
        -------
        schema : Schema
            What the file declares.
        """
        return cls.from_toml(files.read_toml(path))

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """The schema of a TOML document; the inverse of `to_toml`."""
        return cls.from_dict(files.parse_toml(text))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        return cls(**files.declarations(content))

    @classmethod
    def of_bounds(
        cls,
        bounds: Any,
        *,
        n_features: int,
        names: Sequence[str] | None = None,
        adjacency: Adjacency = "replace",
    ) -> Schema:
        """Numeric columns from the shorthand `bounds=`.

        Parameters
        ----------
        bounds : pair, sequence of pairs, mapping, or pair of arrays
            ``(low, high)`` for all columns; ``[(low, high), ...]`` with a pair for each column;
            ``{column: (low, high), ...}``; or two numpy arrays ``(lows, highs)``. What could be read in two
            ways is refused.
        n_features : int
            The number of columns.
        names : sequence of str, optional
            Their names; "x0", "x1", … if there are none.
        adjacency : {"replace", "add_remove"}, default="replace"
            Which tables are neighbours.

        Returns
        -------
        schema : Schema
            Without a target.

        Examples
        --------
        >>> from curvedp.schema import Schema
        >>> Schema.of_bounds([(0, 20), (18, 90)], n_features=2).columns[1]
        Numeric(name='x1', low=18.0, high=90.0)
        """
        pairs = bounds_per_column(bounds, n_features, names)
        named = [f"x{i}" for i in range(n_features)] if names is None else list(names)
        columns = tuple(Numeric(name, *pair) for name, pair in zip(named, pairs, strict=True))
        return cls(columns, adjacency=adjacency)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in the file."""
        top = {"record": self.record, "adjacency": self.adjacency, "target": self.target}
        return {
            **{k: v for k, v in top.items() if v is not None},
            "column": [c.to_dict() for c in self.columns],
        }

    def to_toml(self) -> str:
        """The file that `load` reads."""
        return files.to_toml(self.to_dict())

    def with_target(self, name: str | None) -> Schema:
        """The same columns with another target."""
        return replace(self, target=name)

    @cached_property
    def features(self) -> tuple[Numeric | Categorical, ...]:
        """The columns to learn from: neither ignored nor the target."""
        return tuple(c for c in self.columns if not isinstance(c, Ignored) and c.name != self.target)

    @property
    def has_target(self) -> bool:
        """Whether the schema names the column to predict."""
        return self.target is not None

    @property
    def target_column(self) -> Numeric | Categorical:
        """The column to predict: numeric for regression, categorical for classification."""
        for column in self.columns:
            if column.name == self.target and not isinstance(column, Ignored):
                return column
        raise InvalidInput("no target was chosen: name the column to predict")

    @property
    def declared_target(self) -> NumericTarget | ClassTarget:
        """How the target is coded: a number in its bounds, or one of its levels."""
        column = self.target_column
        if isinstance(column, Numeric):
            return NumericTarget(column.low, column.high)
        return ClassTarget(column.levels)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The encoded columns: "age" for a number, "race=black" for a level."""
        return tuple(name for column in self.features for name in column.encoded_names)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """(low, high) of the encoded columns; (0, 1) for a level."""
        pairs = [pair for column in self.features for pair in column.encoded_bounds]
        low, high = np.array(pairs, dtype=np.float64).T
        return low.copy(), high.copy()

    @property
    def one_hot(self) -> tuple[tuple[int, ...], ...]:
        """The positions, among the encoded columns, of each block of levels."""
        blocks, start = [], 0
        for column in self.features:
            width = len(column.encoded_names)
            if isinstance(column, Categorical):
                blocks.append(tuple(range(start, start + width)))
            start += width
        return tuple(blocks)

    def column_map(self, *, intercept: float = 1.0, x_norm: float | None = None) -> ColumnMap:
        """The public map of encoded columns to model columns: numbers onto [−1, 1], levels minus 1/K.

        Parameters
        ----------
        intercept : float, default=1.0
            The value of a constant column; 0: there is none.
        x_norm : float, optional
            A smaller bound on the length of a mapped record than the columns imply.

        Returns
        -------
        columns : ColumnMap
            Its `clip` applies the rule for cells that are missing or out of bounds.
        """
        low, high = self.bounds
        return ColumnMap.from_bounds(low, high, intercept=intercept, x_norm=x_norm, one_hot=self.one_hot)

    def read(self, X: Any, *, delimiter: str = ",") -> Any:
        """The encoded features of a table, in user units.

        Every cell is read by itself; one that cannot be read is NaN (a number) or all zeros (levels). Cells
        are not clipped: the column map does that.

        Parameters
        ----------
        X : table
            By name: a data frame, a mapping {column: cells}, the path of a CSV file, a Dask data frame;
            columns that the schema does not declare are not read. By position: an array, a sparse matrix, a
            list of rows, a Dask array, with the features in their declared order. Or an `EncodedTable`.
        delimiter : str, default=","
            What separates the cells of a CSV file.

        Returns
        -------
        matrix : array, sparse matrix, memory map, or Dask array or data frame
            One column for each of `feature_names`. Arrays of numbers are passed on where all features are
            numeric.
        """
        if isinstance(X, EncodedTable):
            return X.features_for(self)
        if lazy.is_dask(X):
            return self._read_lazily(X)
        if is_path(X):
            return np.concatenate([self._encode(table) for table in csv_tables(X, delimiter=delimiter)])
        if is_table(X):
            return self._encode(table_of(X))
        names = [column.name for column in self.features]
        if issparse(X):
            check_width(X.shape[1], len(names))
            return X if self._passes(X.dtype) else self._encode(rows_table(X.toarray(), names))
        X = matrix_of(X)
        if isinstance(X, np.ndarray) and self._passes(X.dtype):
            check_width(X.shape[1], len(names))
            plain = X.dtype.itemsize <= 8 and not isinstance(X, np.ma.MaskedArray)
            return X if plain else as_floats(X)
        return self._encode(rows_table(X, names))

    def target_cells(self, table: Any, *, delimiter: str = ",") -> Any:
        """The target's column of a table with named columns, for `declared_target.encode`.

        Parameters
        ----------
        table : data frame, mapping, path of a CSV file, Dask data frame or EncodedTable
            It must have the target as a column.
        delimiter : str, default=","
            What separates the cells of a CSV file.

        Returns
        -------
        cells : Cells or Dask series
            The column, in user units.
        """
        name = self.target_column.name
        if isinstance(table, EncodedTable):
            return table.target_for(self)
        if lazy.is_dask(table):
            if lazy.lazy_names(table) is None:
                raise InvalidInput("an array has no column names: pass y beside it, or a data frame")
            return lazy.one_column(lazy.select(table, [name]))
        if is_path(table):
            chunks = csv_tables(table, delimiter=delimiter)
            return Cells([cell for chunk in chunks for cell in chunk.cells(name).values], "any")
        if not is_table(table):
            raise InvalidInput("an array has no column names: pass y beside it, or a data frame")
        return table_of(table).cells(name)

    def encode(self, table: Any, *, delimiter: str = ",") -> EncodedTable:
        """Features and target of a table in one reading, as a fit takes them in the place of the table.

        Parameters
        ----------
        table : data frame, mapping or path of a CSV file
            It must have every feature, and the target if the schema names one.
        delimiter : str, default=","
            What separates the cells of a CSV file.

        Returns
        -------
        encoded : EncodedTable
            Unpacks as (X, y).
        """
        chunks = csv_tables(table, delimiter=delimiter) if is_path(table) else iter([table_of(table)])
        pairs = [(self._encode(chunk), self.plain_target(chunk)) for chunk in chunks]
        X = np.concatenate([X for X, _ in pairs])
        return EncodedTable(self, X, np.concatenate([y for _, y in pairs]) if self.has_target else None)

    def check(
        self,
        table: TableLike,
        y: ColumnLike = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        rows: int | None = None,
        ledger: Account | None = None,
        delimiter: str = ",",
        random_state: int | None = None,
    ) -> TableCheck:
        """Count privately, in one charge, which cells are not what is declared (C-1).

        The parameters are those of `curvedp.looks.check.check`. Every other method reads without charging:
        this one alone says anything about the cells.
        """
        from curvedp.looks.check import check

        options: dict[str, Any] = {"rows": rows, "delimiter": delimiter, "random_state": random_state}
        return check(self, table, y, epsilon=epsilon, delta=delta, ledger=ledger, **options)

    def plain_target(self, table: Table) -> Any:
        """The target of a table in memory as an array: numbers in user units (NaN: none), or level texts."""
        if not self.has_target:
            return None
        column = self.target_column
        cells = table.cells(column.name)
        self.declared_target.check_kind(cells.kind)
        if isinstance(column, Numeric):
            return numbers(cells)
        return np.array(levels(cells), dtype=object)

    def _passes(self, dtype: np.dtype[Any]) -> bool:
        """Whether an array of this type holds the encoded features already: numbers, all of them numeric."""
        return dtype.kind in "fiub" and all(isinstance(column, Numeric) for column in self.features)

    def _encode(self, table: Table) -> FloatArray:
        rows = table.n_rows(self.features[0].name)
        X, stop = np.empty((rows, len(self.feature_names)), order="F"), 0  # filled column by column
        for column in self.features:
            start, stop = stop, stop + len(column.encoded_names)
            X[:, start:stop] = column.encode(table.cells(column.name))
        return X

    def _read_lazily(self, X: Any) -> Any:
        width, names = len(self.feature_names), [column.name for column in self.features]
        if lazy.lazy_names(X) is not None:
            frame = lazy.select(X, names)
            self.read(frame._meta)  # refuses what the declared types rule out
            return lazy.read_frame(self.read, frame, self.feature_names)
        check_width(lazy.lazy_width(X), len(names))
        if self._passes(X.dtype):
            return X
        self.read(np.empty((0, len(names)), X.dtype))
        return lazy.read_array(self.read, X, width)


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

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y))

    def features_for(self, schema: Schema) -> Any:
        """X, if that schema reads the same features."""
        if schema.features != self.schema.features:
            raise InvalidInput("this table was read by another schema: read it again by this one")
        return self.X

    def target_for(self, schema: Schema) -> Any:
        """y, if that schema reads the same target."""
        if self.y is None or schema.target_column != self.schema.target_column:
            raise InvalidInput("this table was read for another target: read it again by this schema")
        return self.y if lazy.is_dask(self.y) else as_cells(self.y)
