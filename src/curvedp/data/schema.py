"""A schema declares, publicly and before the data are read, what each column may hold.

Numbers and dates have bounds, categorical columns have levels; neither is ever read off the data. A value
outside the bounds is clipped to them; a missing or unreadable number is the middle of the bounds, a level
that was not declared the all-zero code, unless the column declares another rule; a record without a usable
target contributes nothing. The rule is the same for every row, in fitting and in predicting, and nothing
about it is reported but what `check` buys, and what an operator is told of rows to predict (`odd_cells`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.data import files
from curvedp.data import source as sources
from curvedp.data.cells import Cells, kind_counts
from curvedp.data.columns import Ignored, Numeric, bounds_per_column, nearest, repeated, settle, shown
from curvedp.data.dates import Column, Date, Feature, TargetColumn
from curvedp.data.delimited import PLAIN, FileFormat
from curvedp.data.files import NOTHING, Stated
from curvedp.data.formulas.derived import Derived, DerivedTarget, Encoding, Term
from curvedp.data.formulas.language import Scope
from curvedp.data.formulas.notation import NO_INTERCEPT, quoted, read_formula
from curvedp.data.frames import NO_NAMES, Table, as_cells, as_floats, check_width, declared, is_dask, is_path
from curvedp.data.mapping import ColumnMap
from curvedp.data.roles import FEW, KnownMargin, Weight, advice_of_unit, check_unit
from curvedp.data.source import Engine, RowsPerPerson, Source
from curvedp.data.targets import ClassTarget, NumericTarget, target_of
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency, Neighbours


@dataclass(frozen=True)
class Schema:
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
        terms = None if self.terms is None else tuple(self.terms)
        settle(self, columns=tuple(self.columns), derived=tuple(self.derived), terms=terms)
        names = [column.name for column in (*self.columns, *self.derived)]
        if (twice := repeated(names)) is not None:
            raise InvalidInput(f"column {shown(names[twice])} is declared twice: remove one")
        Neighbours(self.adjacency)
        check_unit(self)
        what = f"the target {shown(self.target or '')}"
        if self.target is not None and self.target not in names:
            choices = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            hint = nearest(self.target, names, f"choose one of {choices}")
            raise InvalidInput(f"{what} is not a column of the schema: {hint}")
        target = next((column for column in self.columns if column.name == self.target), None)
        if isinstance(target, Ignored):
            raise InvalidInput(f"{what} is ignored: declare its bounds or its levels")
        if isinstance(target, Date):
            raise InvalidInput(f"{what} is a date, which no model predicts: choose another")
        if self.offset is not None and self.exposure is not None:
            raise InvalidInput("an exposure is an offset, its logarithm: declare one of the two")
        if len(set(self.roles.values())) < len(self.roles):
            raise InvalidInput(
                "one column cannot be both the weight and a part of the margin: choose another"
            )
        _ = self.declared_weight, self.declared_offset  # which refuse what cannot have their role
        if not self.features:
            raise InvalidInput("no column is left to learn from: declare at least one numeric or categorical")
        if (twice := repeated(self.feature_names)) is not None:  # also refuses what cannot be computed
            raise InvalidInput(f"two features are named {shown(self.feature_names[twice])}: rename a column")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """What a TOML file declares, written as `to_toml` and `schema_template` do."""
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
        """Numeric columns from the shorthand `bounds=`; those without names are "x0", "x1", ….

        ``(low, high)`` for all columns; ``[(low, high), ...]`` with a pair for each column; ``{column: (low,
        high), ...}``; or two numpy arrays ``(lows, highs)``. What could be read in two ways is refused.

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
        content = {
            **{key: getattr(self, key) for key in ("record", "adjacency", "target", "unit")},
            "rows_per_person": None if self.rows_per_person == "all" else self.rows_per_person,
            "absorb": self.absorb,
            **self.roles,
            "terms": None if self.terms is None else list(self.terms),
            "file": self.file.to_dict() or None,
            "release": self.release.to_dict() or None,
            "column": [column.to_dict() for column in self.columns],
            "derived": [column.to_dict() for column in self.derived] or None,
        }
        return {key: value for key, value in content.items() if value is not None}

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
        return tuple(c for c in self.in_file.values() if not isinstance(c, Ignored) and c.name not in taken)

    @property
    def roles(self) -> dict[str, str]:
        """The column of every role that is given."""
        named = {role: getattr(self, role) for role in files.ROLES}
        return {role: name for role, name in named.items() if name is not None}

    def _of_role(self, role: str) -> Numeric | None:
        """The column of a role, None where it is not given; refused where it is none, or no number."""
        if (name := self.roles.get(role)) is None:
            return None
        column, what = self.in_file.get(name), f"the {role} {shown(name)}"
        if column is None:
            raise InvalidInput(f"{what} is not a column of the schema: declare it, with bounds")
        if name == self.target:
            raise InvalidInput(f"{shown(name)} is the target, and cannot be the {role}, too: choose another")
        if not isinstance(column, Numeric):
            raise InvalidInput(f'{what} must be a number: write kind = "numeric" with bounds')
        return column

    @property
    def declared_weight(self) -> Weight | None:
        """How weights are coded; None: every record counts as one."""
        column = self._of_role("weight")
        return None if column is None else Weight(column.high, column)

    @property
    def offset_column(self) -> str:
        """The column of the offset or the exposure; "" without one."""
        return self.offset or self.exposure or ""

    @property
    def declared_offset(self) -> KnownMargin | None:
        """The part of the margin that is known; None: there is none."""
        log = self.exposure is not None
        column = self._of_role("exposure" if log else "offset")
        return None if column is None else KnownMargin(column.low, column.high, log, column)

    @property
    def protects(self) -> str:
        """Who is protected, in words."""
        return self.record if self.unit is None else f"one person is all rows with one {self.unit!r}"

    @property
    def neighbours(self) -> Neighbours:
        """Between which tables a release is private."""
        return Neighbours(self.adjacency, self.unit)

    @property
    def unit_advice(self) -> str:
        """What is said where a name looks like an identifier's and no unit is named; "" otherwise."""
        if self.unit is not None:
            return ""
        numbers = [c for c in self.columns if isinstance(c, Numeric) and c.name != self.target]
        feature = advice_of_unit(c.name for c in numbers if c.high - c.low >= FEW)
        ignored = advice_of_unit(column.name for column in self.columns if isinstance(column, Ignored))
        return ignored or (feature and f'{feature}, and "ignored" for the column')

    def with_formula(self, formula: str) -> Schema:
        """The same columns with the features, and perhaps the target, that a formula names.

        `terms` say then what the formula means, and `bounds` what follows from the declared ones.

        Parameters
        ----------
        formula : str
            In R's notation, "wage ~ age + I(age**2) + C(region):female + spline(hours, knots=[20, 40])", or
            without a target, "~ age + …"; a dot stands for all columns. Only transforms that look at one row
            at a time are known.

        Examples
        --------
        >>> from curvedp import Categorical, Numeric, Schema
        >>> columns = [Numeric("age", 0, 100), Categorical("region", ["n", "s"]), Numeric("wage", 1, 1e5)]
        >>> schema = Schema(columns).with_formula("log(wage) ~ age + I(age**2) + C(region):age")
        >>> schema.feature_names
        ('age', 'I(age ** 2)', 'region=s:age')
        >>> schema.target
        'log(wage)'
        """
        taken = self.roles.values()
        plain = [c.name for c in self.columns if not isinstance(c, Ignored) and c.name not in taken]
        target, terms = read_formula(formula, plain, self.target_source)
        if target is None:
            return replace(self, terms=terms)
        known = {quoted(c.name): c.name for c in (*self.columns, *self.derived)}
        name = known.get(target, target)
        more = () if target in known or name.isidentifier() else (Derived(name, target),)
        return replace(self, target=name, derived=(*self.derived, *more), terms=terms)

    def with_model(self, target: str | None, formula: str | None) -> Schema:
        """The same columns with a target and a formula, either of which may be left out; refused where they
        contradict each other."""
        schema = self if target is None else self.with_target(target)
        if formula is None:
            return schema
        found = schema.with_formula(formula)
        if target is not None and target not in (found.target, found.target_source):
            own, other = shown(target), shown(str(found.target))
            raise InvalidInput(f"the target is {own}, the formula's is {other}: leave one of them out")
        return found

    def without_formula(self) -> Schema:
        """The declared columns alone; the target is that of which a derived one is computed."""
        return replace(self, target=self.target_source, derived=(), terms=None)

    @cached_property
    def encoding(self) -> Encoding:
        """The encoded columns."""
        if self.terms is None and not self.derived:
            return Encoding({c.name: c for c in self.features}, self.features)
        if (terms := self.terms) is None:
            derived = [d.name for d in self.derived if d.name != self.target]
            terms = tuple(map(quoted, [*(c.name for c in self.features), *derived]))
        found, known = Encoding.of(terms, self._scope), {column.name for column in self.features}
        if (taken := next((name for name in found.sources if name not in known), None)) is not None:
            what = "the target" if taken == self.target_source else "the weight, the offset or an id"
            raise InvalidInput(f"{shown(taken)} is {what}: leave it out of the terms")
        return found

    @cached_property
    def derived_target(self) -> DerivedTarget | None:
        """The target where it is computed from a column; None where it is a column, or there is none."""
        name, scope = self.target or "", self._scope
        return DerivedTarget.named(name, scope) if name in scope.derived else None

    @property
    def target_source(self) -> str | None:
        """The column that is read for the target."""
        return self.target if self.derived_target is None else self.derived_target.column.name

    @cached_property
    def in_file(self) -> dict[str, Column]:
        """The columns by name, in the decimals of the file."""
        return {c.name: c.in_file(self.file.decimal) if isinstance(c, Numeric) else c for c in self.columns}

    @property
    def _scope(self) -> Scope:
        return Scope(self.in_file, {d.name: d.expression for d in self.derived})

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The encoded columns: "age" for a number, "race=black" for a level."""
        return self.encoding.names

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """(low, high) of the encoded columns; (0, 1) for a level."""
        return self.encoding.bounds

    @property
    def one_hot(self) -> tuple[tuple[int, ...], ...]:
        """The positions, among the encoded columns, of each block of levels, or of others that sum to 1."""
        return tuple(self.encoding.groups["whole"])

    def column_map(self, *, intercept: float = 1.0, x_norm: float | None = None) -> ColumnMap:
        """The public map of encoded columns to model columns: numbers onto [−1, 1], levels minus 1/K.

        `intercept` is the value of a constant column; with 0, a formula with "- 1", or absorbed effects there
        is none. `x_norm` may be a smaller bound on the length of a mapped record than the columns imply.
        """
        absorbed = self.absorb is not None
        without = absorbed or (self.terms is not None and NO_INTERCEPT in self.terms)
        found = self.encoding.column_map(0.0 if without else intercept, x_norm)
        return replace(found, absorbed=True) if absorbed else found

    @property
    def derived_bounds(self) -> list[tuple[str, float, float]]:
        """(name, low, high) of every number that is computed, a computed target among them."""
        terms = [block for block in self.encoding.blocks if isinstance(block, Term)]
        pairs = (pair for t in terms for pair in zip(t.encoded_names, t.encoded_bounds, strict=True))
        target = [] if self.derived_target is None else [self.derived_target]
        return [*((name, *ends) for name, ends in pairs), *((t.name, t.low, t.high) for t in target)]

    @property
    def has_target(self) -> bool:
        """Whether the schema names the column to predict."""
        return self.target is not None

    @property
    def target_column(self) -> TargetColumn:
        """The column to predict: numeric for regression, categorical or boolean for classification."""
        if self.derived_target is not None:
            return self.derived_target
        if (column := self.in_file.get(self.target or "")) is None or isinstance(column, Ignored | Date):
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
        return sources.joined(found.over(self.matrix, whole=True))

    def matrix(self, chunk: Table) -> Any:
        """`read` of one chunk; numbers that are encoded as they are stored are passed on."""
        if (X := chunk.matrix) is not None and self._passes(X.dtype):
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
            if isinstance(column := self.in_file[name], Ignored) or name not in chunk:
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

        Table and delimiter are as in `read`. `only` are the columns that are needed, by default all that the
        schema gives a role; `beside` are those that are passed beside the table, by role: "y", "weight",
        "offset", "unit". With the engine "dask", Dask reads the row groups of Parquet files where it runs.
        """
        roles = {self.target_source, *self.roles.values(), self.unit} - {None}
        return sources.source(
            table,
            [column.name for column in self.features],
            only={*self.encoding.sources, *map(str, roles)} if only is None else only,
            beside=beside,
            file=self.file.but(delimiter=delimiter) if is_path(table) else None,
            engine=engine,
        )

    def target_cells(self, table: Any, *, delimiter: str | None = None) -> Any:
        """The target's column of a table with named columns, for `declared_target.encode`, in user units.

        The parameters are those of `read`. Of a Dask frame, a series.
        """
        _, derived, only = self.target_column, self.derived_target, [str(self.target_source)]
        if not is_dask(table):
            found = self.source(table, only=only, delimiter=delimiter)
            return sources.joined(found.over(self.target_in, whole=True))
        if not declared(table)[0]:
            raise InvalidInput(NO_NAMES)
        raw = sources.select(table, only)
        column = raw[raw.columns[0]]
        return column if derived is None else sources.read_column(derived.of, column)

    def target_in(self, chunk: Table) -> Cells:
        """The target of a chunk in user units: as it was passed beside it, or its column."""
        if "y" in chunk.beside:
            return as_cells(chunk.beside["y"])
        if self.derived_target is None:
            return chunk.cells(self.target_column.name)
        return as_cells(self.derived_target.of(chunk.cells(self.derived_target.column.name)))

    def _passes(self, dtype: np.dtype[Any]) -> bool:
        """Whether an array of this type holds the encoded features already: numbers, all of them numeric."""
        plain = self.terms is None and not self.derived and dtype.kind in "fiub"
        return plain and all(
            isinstance(column, Numeric) and column.missing == "middle" and not column.missing_codes
            for column in self.features
        )

    def _read_lazily(self, X: Any) -> Any:
        names, width = declared(X)
        if names is not None:
            X = sources.select(X, self.encoding.sources)
            self.read(X._meta)  # refuses what the declared types rule out
        else:
            check_width(width, len(self.features))
            if self._passes(X.dtype):
                return X
            self.read(np.empty((0, len(self.features)), X.dtype))
        return sources.read_table(self.read, X, self.feature_names)
