"""A schema declares, publicly and before the data are read, what each column may hold.

Numbers and dates have bounds, categorical columns have levels; neither is ever read off the data. A value
outside the bounds is clipped to them; a missing or unreadable number is the middle of the bounds, a level
that was not declared the all-zero code, unless the column declares another rule; a record without a usable
target contributes nothing. The rule is the same for every row, in fitting and in predicting, and nothing
about it is reported but what `check` buys, and what an operator is told of rows to predict (`odd_cells`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from curvedp.arrays import ColumnLike, TableLike
from curvedp.data import files
from curvedp.data.cells import Cells, kind_counts
from curvedp.data.columns import Ignored, Numeric, bounds_per_column, is_text, repeated, shown
from curvedp.data.dates import Column, Date, Feature, TargetColumn
from curvedp.data.delimited import PLAIN, FileFormat
from curvedp.data.files import NOTHING, Stated
from curvedp.data.formulas.derived import Derived, WithFormula
from curvedp.data.frames import NO_NAMES, Table, as_cells, as_floats, check_width, is_dask, is_path
from curvedp.data.roles import WithRoles, check_roles, check_unit
from curvedp.data.source import (
    Engine,
    RowsPerPerson,
    Source,
    joined,
    joined_cells,
    lazy_names,
    lazy_width,
    read_column,
    read_table,
    select,
    source,
)
from curvedp.data.targets import ClassTarget, NumericTarget, target_of
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency, Neighbours

if TYPE_CHECKING:
    from curvedp.analyses.explore.check import TableCheck
    from curvedp.release.door import Account


@dataclass(frozen=True)
class Schema(WithRoles, WithFormula):
    """The declared columns, which of them is the target, and who is protected.

    Parameters
    ----------
    columns : sequence of Numeric, Categorical, Date, Boolean or Ignored
        Every column that the table may have, by name.
    target : str, optional
        The column to predict; it is no feature then.
    weight : str, optional
        A numeric column that says how much a record counts; its upper bound is the largest weight.
    offset, exposure : str, optional
        A numeric column that is added to the margin, or whose logarithm is: for counts, such as the days that
        were observed. One of the two.
    adjacency : {"replace", "add_remove"}, default="replace"
        Which tables are neighbours: one record differs, or one is there in one of them only.
    record : str, default="one row is one record"
        What one record is, in words: who is protected.
    file : FileFormat, optional
        How its CSV files are written: encoding, delimiter, decimal sign.
    derived : sequence of Derived, optional
        Columns computed from the others, cell by cell; features, unless `terms` says otherwise.
    terms : sequence of str, optional
        The features, where they are not all columns: the terms of a formula; see `with_formula`.
    unit : str, optional
        The column that says whose row it is: a person with all rows is protected then, not a row (U-1). Its
        cells are identifiers, and private. It is no feature: leave it out of `columns`, or ignore it.
    rows_per_person : {"all", "one"}, default="all"
        Whether all rows of a person are used, each person bounded as a whole (U-1), (U-2), or one that a
        fresh coin chooses.
    absorb : str, optional
        The unit once more, where the effects of persons are taken out of a linear model: every row counts as
        its difference from the mean of its person's (U-3).
    release : Stated, optional
        What you state of a release: table, purpose, audience, a number of rows. Reports repeat it.

    Examples
    --------
    >>> from curvedp import Categorical, Numeric, Schema
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
    file: FileFormat = PLAIN
    weight: str | None = None
    offset: str | None = None
    exposure: str | None = None
    derived: tuple[Derived, ...] = ()
    terms: tuple[str, ...] | None = None
    unit: str | None = None
    rows_per_person: RowsPerPerson = "all"
    absorb: str | None = None
    release: Stated = field(default=NOTHING, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "derived", tuple(self.derived))
        object.__setattr__(self, "terms", None if self.terms is None else tuple(self.terms))
        names = [column.name for column in (*self.columns, *self.derived)]
        twice = repeated(names)
        if twice is not None:
            raise InvalidInput(f"column {shown(names[twice])} is declared twice: remove one")
        Neighbours(self.adjacency)
        check_unit(self)
        if not (isinstance(self.record, str) and is_text(self.record)):
            raise InvalidInput("record must be text: say in words what one row is")
        if self.target is not None:
            self._check_target(self.target, names)
        check_roles(self)
        if not self.features:
            raise InvalidInput("no column is left to learn from: declare at least one numeric or categorical")
        twice = repeated(self.feature_names)  # also refuses what cannot be computed
        if twice is not None:
            raise InvalidInput(f"two features are named {shown(self.feature_names[twice])}: rename a column")

    def _check_target(self, target: str, names: Sequence[str]) -> None:
        if target not in names:
            near = difflib.get_close_matches(target, names, n=1)
            choices = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            hint = f"did you mean {shown(near[0])}?" if near else f"choose one of {choices}"
            raise InvalidInput(f"the target {shown(target)} is not a column of the schema: {hint}")
        column = (*self.columns, *self.derived)[names.index(target)]
        if isinstance(column, Ignored):
            raise InvalidInput(f"the target {shown(target)} is ignored: declare its bounds or its levels")
        if isinstance(column, Date):
            raise InvalidInput(
                f"the target {shown(target)} is a date, which no model predicts: choose another"
            )

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
        return cls.from_dict(files.parse_toml(files.read_toml(path)), folder=Path(path).parent)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """The schema of a TOML document; the inverse of `to_toml`."""
        return cls.from_dict(files.parse_toml(text))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], folder: Path | None = None) -> Schema:
        """The inverse of `to_dict`, for content that nobody vouches for; `folder` has its files of levels."""
        given = files.declarations(content, folder)
        formula = given.pop("formula")
        return cls(**given).with_model(given["target"], formula)

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
        >>> from curvedp import Schema
        >>> Schema.of_bounds([(0, 20), (18, 90)], n_features=2).columns[1]
        Numeric(name='x1', low=18.0, high=90.0)
        """
        pairs = bounds_per_column(bounds, n_features, names)
        named = [f"x{i}" for i in range(n_features)] if names is None else list(names)
        columns = tuple(Numeric(name, *pair) for name, pair in zip(named, pairs, strict=True))
        return cls(columns, adjacency=adjacency)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in the file."""
        top = {"record": self.record, "adjacency": self.adjacency, "target": self.target, "unit": self.unit}
        if self.rows_per_person != "all":
            top["rows_per_person"] = self.rows_per_person
        top |= {"absorb": self.absorb, **self.roles}
        terms, derived = self.formula_entries()
        return {
            **{k: v for k, v in top.items() if v is not None},
            **terms,
            **({} if self.file == PLAIN else {"file": self.file.to_dict()}),
            **({} if self.release == NOTHING else {"release": self.release.to_dict()}),
            "column": [c.to_dict() for c in self.columns],
            **derived,
        }

    def to_toml(self) -> str:
        """The file that `load` reads."""
        return files.to_toml(self.to_dict())

    def with_target(self, name: str | None) -> Schema:
        """The same columns with another target."""
        return replace(self, target=name)

    def with_file(
        self, *, encoding: str | None = None, delimiter: str | None = None, decimal: str | None = None
    ) -> Schema:
        """The same columns in files that are written otherwise; None: as it was."""
        file = self.file.but(encoding=encoding, delimiter=delimiter, decimal=decimal)
        return self if file == self.file else replace(self, file=file)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The columns to learn from, which have no other role, in the decimals of the file."""
        taken = {self.target_source, *self.roles.values()}
        own = (c for c in self.in_file.values() if not isinstance(c, Ignored))
        return tuple(c for c in own if c.name not in taken)

    @property
    def has_target(self) -> bool:
        """Whether the schema names the column to predict."""
        return self.target is not None

    @property
    def target_column(self) -> TargetColumn:
        """The column to predict: numeric for regression, categorical or boolean for classification."""
        if self.derived_target is not None:
            return self.derived_target.declared
        column = self.in_file.get(self.target or "")
        if column is None or isinstance(column, Ignored | Date):
            raise InvalidInput("no target was chosen: name the column to predict")
        return column

    @property
    def declared_target(self) -> NumericTarget | ClassTarget:
        """How the target is coded: a number in its bounds, or one of its levels."""
        return target_of(self.target_column)

    def read(self, X: Any, *, delimiter: str | None = None) -> Any:
        """The encoded features of a table, in user units.

        Every cell is read by itself; one that cannot be read is NaN (a number) or all zeros (levels). Cells
        are not clipped: the column map does that.

        Parameters
        ----------
        X : table
            By name: a data frame, a mapping {column: cells}, the path of a CSV or Parquet file, a Dask frame;
            columns that the schema does not declare are not read. By position: an array, a sparse matrix, a
            list of rows, a Dask array, with the features in their declared order.
        delimiter : str, optional
            What separates the cells of a CSV file; what the schema's `file` says if it is left out.

        Returns
        -------
        matrix : array, sparse matrix, memory map, or Dask array or data frame
            One column for each of `feature_names`. Arrays of numbers are passed on where all features are
            numeric.
        """
        if is_dask(X):
            return self._read_lazily(X)
        found = self.source(X, only=self.encoding.sources, delimiter=delimiter)
        return joined(found.whole_or_chunks(self.matrix))

    def matrix(self, chunk: Table) -> Any:
        """`read` of one chunk; numbers that are encoded as they are stored are passed on."""
        X = chunk.matrix
        if X is not None and self._passes(X.dtype):
            plain = issparse(X) or (X.dtype.itemsize <= 8 and not isinstance(X, np.ma.MaskedArray))
            return X if plain else as_floats(X)
        return self.encoding.encode(chunk)

    def odd_cells(self, chunk: Table) -> dict[str, dict[str, int]]:
        """{column: {kind: cells}} that are not what is declared, of features, offset and exposure of a chunk.

        Kinds are those of `cell_kinds`; missing cells are none where the column has a rule for them. Exact
        counts of records: for rows to predict, which are the operator's own, and for no others.
        """
        roles = {name for role, name in self.roles.items() if role != "weight"}
        found = {}
        for name in sorted({*self.encoding.sources, *roles}):
            column = self.in_file[name]
            if isinstance(column, Ignored) or name not in chunk:
                continue
            counts = kind_counts(column.kinds_of(chunk.cells(name)), column.cell_kinds)
            if column.missing in ("indicator", "level"):
                counts.pop("missing", None)
            if counts:
                found[name] = counts
        return found

    def source(
        self,
        table: TableLike,
        *,
        only: Collection[str] | None = None,
        beside: Mapping[str, ColumnLike] | None = None,
        delimiter: str | None = None,
        engine: Engine = "memory",
    ) -> Source:
        """The chunks of a table of any kind, of which nothing has been read yet; a fit takes it like a table.

        Parameters
        ----------
        table : data frame, mapping, array, sparse matrix, list of rows, path or Dask collection
            As in `read`.
        only : collection of str, optional
            The columns that are needed; by default all that the schema gives a role.
        beside : mapping, optional
            Columns that are passed beside the table, by role: "y", "weight", "offset", "unit".
        delimiter : str, optional
            What separates the cells of a CSV file; what the schema's `file` says if it is left out.
        engine : {"memory", "dask"}, default="memory"
            Who reads Parquet files; Dask reads their row groups where it runs.

        Returns
        -------
        source : Source
            Its names and types are known, and nothing else.
        """
        roles = {self.target_source, *self.roles.values(), self.unit} - {None}
        return source(
            table,
            [column.name for column in self.features],
            only={*self.encoding.sources, *map(str, roles)} if only is None else only,
            beside=beside,
            file=self.file.but(delimiter=delimiter) if is_path(table) else None,
            engine=engine,
        )

    def target_cells(self, table: Any, *, delimiter: str | None = None) -> Any:
        """The target's column of a table with named columns, for `declared_target.encode`.

        Parameters
        ----------
        table : data frame, mapping, path of a CSV file, or Dask data frame
            It must have the target as a column.
        delimiter : str, optional
            What separates the cells of a CSV file; what the schema's `file` says if it is left out.

        Returns
        -------
        cells : Cells or Dask series
            The column, in user units.
        """
        column, derived = self.target_column, self.derived_target
        if is_dask(table):
            raw = select(table, [str(self.target_source)]) if lazy_names(table) else None
            if raw is None:
                raise InvalidInput(NO_NAMES)
            raw = raw[raw.columns[0]]
            return raw if derived is None else read_column(derived.of, raw)
        only = [column.name if derived is None else derived.column.name]
        return joined_cells(
            self.source(table, only=only, delimiter=delimiter).whole_or_chunks(self.target_in)
        )

    def target_in(self, chunk: Table) -> Cells:
        """The target of a chunk in user units: as it was passed beside it, or its column."""
        if "y" in chunk.beside:
            return as_cells(chunk.beside["y"])
        if self.derived_target is None:
            return chunk.cells(self.target_column.name)
        return as_cells(self.derived_target.of(chunk.cells(self.derived_target.column.name)))

    def check(
        self,
        table: TableLike,
        y: ColumnLike = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        rows: int | None = None,
        ledger: Account | None = None,
        delimiter: str | None = None,
        random_state: int | None = None,
    ) -> TableCheck:
        """Count privately, in one charge, which cells are not what is declared (C-1).

        The parameters are those of `curvedp.check`. Every other method reads without charging: this one alone
        says anything about the cells.
        """
        from curvedp.analyses.explore.check import check

        options: dict[str, Any] = {"rows": rows, "delimiter": delimiter, "random_state": random_state}
        return check(self, table, y, epsilon=epsilon, delta=delta, ledger=ledger, **options)

    def _passes(self, dtype: np.dtype[Any]) -> bool:
        """Whether an array of this type holds the encoded features already: numbers, all of them numeric."""
        as_read = not self.has_derived and all(column.is_as_read for column in self.features)
        return as_read and dtype.kind in "fiub"

    def _read_lazily(self, X: Any) -> Any:
        names = [column.name for column in self.features]
        if lazy_names(X) is not None:
            X = select(X, self.encoding.sources)
            self.read(X._meta)  # refuses what the declared types rule out
        else:
            check_width(lazy_width(X), len(names))
            if self._passes(X.dtype):
                return X
            self.read(np.empty((0, len(names)), X.dtype))
        return read_table(self.read, X, self.feature_names)
