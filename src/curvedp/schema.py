"""A schema declares, publicly and before the data are read, what each column may hold.

Numeric columns have bounds, categorical columns have levels; neither is ever read off the data. A value
outside the bounds is clipped to them; a missing or unreadable number is the middle of the bounds; a level
that was not declared is the all-zero code, and as a target the first class. The rule is the same for every
row, in fitting and in predicting, and nothing about it is reported.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from curvedp.domain import LARGEST_ENTRY, Adjacency, ColumnMap, FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.tables import Cells, Columns, columns_of, csv_chunks, csv_names, level, levels, numbers

KINDS = 'write kind = "numeric" (with bounds), "categorical" (with levels) or "ignored"'
_TOP_KEYS = ("unit", "adjacency", "target", "column")
_COLUMN_KEYS = ("name", "kind", "bounds", "levels")


@dataclass(frozen=True)
class Numeric:
    """A number between public bounds."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(abs(end) <= LARGEST_ENTRY for end in (self.low, self.high)):
            raise InvalidInput(f"column {self.name!r}: both bounds must be finite numbers, public constants")
        if self.low > self.high:
            raise InvalidInput(
                f"column {self.name!r}: the bounds [{self.low:g}, {self.high:g}] are reversed: "
                f"write [{self.high:g}, {self.low:g}]"
            )
        if self.low == self.high:
            raise InvalidInput(f"column {self.name!r}: the lower bound must lie below the upper one")

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return ((self.low, self.high),)

    def target(self, cells: Cells) -> FloatArray:
        """The numbers of the column, all within the bounds."""
        values = np.clip(numbers(cells), self.low, self.high)
        np.copyto(values, 0.5 * self.low + 0.5 * self.high, where=np.isnan(values))
        return values

    def encode(self, cells: Cells) -> FloatArray:
        """The same as one column of a matrix."""
        return self.target(cells)[:, None]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "numeric", "bounds": [self.low, self.high]}


@dataclass(frozen=True)
class Categorical:
    """One of at least two declared levels."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        texts = [level(text) for text in self.levels]
        if len(texts) < 2 or "" in texts:
            raise InvalidInput(f"column {self.name!r}: declare at least two levels, none of them empty")
        twice = next((self.levels[i] for i, text in enumerate(texts) if text in texts[:i]), None)
        if twice is not None:
            raise InvalidInput(f"column {self.name!r}: level {twice!r} is declared twice: remove one")

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={text}" for text in self.levels)

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 1.0),) * len(self.levels)

    def target(self, cells: Cells) -> NDArray[np.str_]:
        """The declared level of each cell, the first where it is none of them."""
        return np.array(self.levels)[np.maximum(self._positions(cells), 0)]

    def encode(self, cells: Cells) -> FloatArray:
        """One column per level, 1 where the cell names it; all 0 where it names none."""
        return np.asarray(self._positions(cells)[:, None] == np.arange(len(self.levels)), dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "categorical", "levels": list(self.levels)}

    def _positions(self, cells: Cells) -> NDArray[np.intp]:
        """The position of each cell among the levels, −1 where it is none of them."""
        position = {level(text): i for i, text in enumerate(self.levels)}
        return np.array([position.get(text, -1) for text in levels(cells)], dtype=np.intp)


@dataclass(frozen=True)
class Ignored:
    """A column that is never read."""

    name: str

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "ignored"}


Column = Numeric | Categorical | Ignored


@dataclass(frozen=True)
class Schema:
    """The declared columns, which of them is the target, and who is protected.

    `unit` says in words what one record is; `adjacency` is "replace" or "add_remove".
    """

    columns: tuple[Column, ...]
    target: str | None = None
    adjacency: Adjacency = "replace"
    unit: str = "one row is one person"

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise InvalidInput(f"column {twice!r} is declared twice: remove one")
        if self.adjacency not in get_args(Adjacency):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {self.adjacency!r}')
        if self.target is not None:
            if self.target not in names:
                near = difflib.get_close_matches(self.target, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
                raise InvalidInput(f"the target {self.target!r} is not a column of the schema: {hint}")
            if isinstance(self.columns[names.index(self.target)], Ignored):
                raise InvalidInput(f"the target {self.target!r} is ignored: declare its bounds or its levels")
        if not self.features:
            raise InvalidInput("no column is left to learn from: declare at least one numeric or categorical")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema file (TOML)."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise InvalidInput(f"cannot read the schema {path} ({error.strerror}): check the path") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"the schema {path} is not UTF-8 text: save it as UTF-8") from None
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"the schema is not valid TOML ({error}): correct that line") from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`, for content that a person may have written."""
        _known_keys(content, _TOP_KEYS, "the schema")
        entries = content.get("column")
        if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
            raise InvalidInput("the schema has no columns: write one [[column]] for each")
        unit, target = content.get("unit", cls.unit), content.get("target")
        if not isinstance(unit, str) or not (target is None or isinstance(target, str)):
            raise InvalidInput("unit and target must be text: write them in quotes")
        columns = tuple(_column(entry, i) for i, entry in enumerate(entries, start=1))
        return cls(columns, target, content.get("adjacency", cls.adjacency), unit)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in the file."""
        top = {"unit": self.unit, "adjacency": self.adjacency, "target": self.target}
        return {
            **{k: v for k, v in top.items() if v is not None},
            "column": [c.to_dict() for c in self.columns],
        }

    def to_toml(self) -> str:
        """The file that `load` reads."""
        content = self.to_dict()
        entries = content.pop("column")
        tables = [content, *entries]
        heads = ["", *("[[column]]\n" for _ in entries)]
        return "\n".join(
            head + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
            for head, table in zip(heads, tables, strict=True)
        )

    def with_target(self, name: str) -> Schema:
        """The same columns with another target."""
        return replace(self, target=name)

    @property
    def features(self) -> tuple[Numeric | Categorical, ...]:
        """The columns to learn from: neither ignored nor the target."""
        return tuple(c for c in self.columns if not isinstance(c, Ignored) and c.name != self.target)

    @property
    def target_column(self) -> Numeric | Categorical:
        """The column to predict: numeric for regression, categorical for classification."""
        for column in self.columns:
            if column.name == self.target and not isinstance(column, Ignored):
                return column
        raise InvalidInput("no target was chosen: name the column to predict")

    @property
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
        """The public map of encoded columns to model columns: numbers onto [−1, 1], levels minus 1/K."""
        low, high = self.bounds
        return ColumnMap.from_bounds(low, high, intercept=intercept, x_norm=x_norm, one_hot=self.one_hot)

    def encode(self, table: Any, *, delimiter: str = ",") -> tuple[FloatArray, NDArray[Any]]:
        """(X, y): encoded columns in the user's units, and the target as numbers or as declared levels.

        `table` is the path of a CSV file, a data frame or a mapping {column: cells}.
        """
        chunks = [(self._features(c), self._target(c)) for c in _chunks(table, delimiter)]
        return _joined([X for X, _ in chunks]), _joined([y for _, y in chunks])

    def encode_features(self, table: Any, *, delimiter: str = ",") -> FloatArray:
        """The X of `encode`; the target need not be there."""
        return _joined([self._features(chunk) for chunk in _chunks(table, delimiter)])

    def encode_target(self, table: Any, *, delimiter: str = ",") -> NDArray[Any]:
        """The y of `encode`; the features need not be there."""
        return _joined([self._target(chunk) for chunk in _chunks(table, delimiter)])

    def _features(self, columns: Columns) -> FloatArray:
        rows = len(_cells(columns, self.features[0].name))
        X, stop = np.empty((rows, len(self.feature_names)), order="F"), 0  # filled column by column
        for column in self.features:
            start, stop = stop, stop + len(column.encoded_names)
            X[:, start:stop] = column.encode(_cells(columns, column.name))
        return X

    def _target(self, columns: Columns) -> NDArray[Any]:
        column = self.target_column
        return column.target(_cells(columns, column.name))


def schema_template(path: str | os.PathLike[str], *, delimiter: str = ",") -> str:
    """A schema file for a person to fill in: the column names of a CSV file, and nothing else of it."""
    head = f"""\
# Fill in every column. Bounds and levels are public promises: take them from a codebook or from common
# knowledge, never from the data. Then name the target below, or when you fit.
#
#   kind = "numeric"      with bounds = [0, 120]        a value outside is clipped to the bounds
#   kind = "categorical"  with levels = ["no", "yes"]   any other value counts as missing
#   kind = "ignored"                                    the column is not used
#
# adjacency: "replace" protects what a record says; "add_remove" also hides that it is there.

unit = {_toml(Schema.unit)}
adjacency = {_toml(Schema.adjacency)}
# target = "..."
"""
    column = (
        '\n[[column]]\nname = {}\nkind = ""    # numeric, categorical or ignored\nbounds = []\nlevels = []\n'
    )
    return head + "".join(column.format(_toml(name)) for name in csv_names(path, delimiter=delimiter))


def _column(entry: Any, position: int) -> Column:
    """One [[column]] of a schema file; what is not filled in is named."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise InvalidInput(f'column {position} of the schema has no name: write name = "..."')
    name, kind = entry["name"], entry.get("kind") or None
    _known_keys(entry, _COLUMN_KEYS, f"column {name!r}")
    bounds, declared = entry.get("bounds") or None, entry.get("levels") or None
    if kind is None:
        raise InvalidInput(f"column {name!r}: the kind is not filled in: {KINDS}")
    if kind == "ignored":
        return Ignored(name)
    if kind == "numeric":
        if declared is not None:
            raise InvalidInput(f"column {name!r}: a numeric column has no levels: remove them")
        if bounds is None:
            raise InvalidInput(f"column {name!r}: the bounds are not filled in: write bounds = [low, high]")
        if not (_is_list(bounds) and len(bounds) == 2 and all(map(_is_number, bounds))):
            raise InvalidInput(f"column {name!r}: bounds must be two numbers: write bounds = [low, high]")
        return Numeric(name, float(bounds[0]), float(bounds[1]))
    if kind == "categorical":
        if bounds is not None:
            raise InvalidInput(f"column {name!r}: a categorical column has no bounds: remove them")
        if declared is None:
            raise InvalidInput(f'column {name!r}: the levels are not filled in: write levels = ["a", "b"]')
        if not (_is_list(declared) and all(isinstance(text, str | int | float) for text in declared)):
            raise InvalidInput(f'column {name!r}: levels must be a list of texts: write levels = ["a", "b"]')
        return Categorical(name, tuple(text if isinstance(text, str) else level(text) for text in declared))
    raise InvalidInput(f"column {name!r}: unknown kind {kind!r}: {KINDS}")


def _known_keys(content: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in content:
        if key not in known:
            raise InvalidInput(f"{where} has an unknown key {key!r}: use {', '.join(known)}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _chunks(table: Any, delimiter: str) -> Iterable[Columns]:
    if isinstance(table, str | os.PathLike):
        return csv_chunks(table, delimiter=delimiter)
    return (columns_of(table),)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _cells(columns: Columns, name: str) -> Cells:
    try:
        return columns[name]
    except KeyError:
        raise DataError(f"the table has no column {name!r}, which the schema declares: add it") from None


def _toml(value: Any) -> str:
    """A TOML value. Its basic strings are those of JSON, but for DEL, which must be escaped."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))
