"""The kinds of columns that a schema declares: numbers in bounds, levels, and what is not read.

Dates and truth values have modules of their own; `curvedp.data.dates` lists all.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import LARGEST_ENTRY, BoolArray, FloatArray
from curvedp.data.cells import LEVEL_KINDS, NUMBER_KINDS, Cells, Kind, Numerals, check_numbers, level
from curvedp.errors import DataError, InvalidInput

LONGEST_LINE = 300
MISSING_LEVEL = "(missing)"

# What is known of encoded columns beyond their bounds: that they are parts that sum to 1 (or are 0, where a
# level is missing); that they are some of such parts; that they are a number times such parts.
Shape = Literal["whole", "some", "ray"]


def told(declared: Any) -> dict[str, Any]:
    """The fields of a declaration that differ from their defaults, as plain values."""
    defaults = {part.name: part.default for part in fields(declared) if part.default is not MISSING}
    values = ((name, getattr(declared, name)) for name in defaults)
    return {n: list(v) if isinstance(v, tuple) else v for n, v in values if v != defaults[n]}


class DeclaredTable:
    """A table of a schema file: a dataclass whose fields all have defaults."""

    heading: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """What differs from the default."""
        return told(self)

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        own = [part.name for part in fields(cls)]  # type: ignore[arg-type]
        if not isinstance(content, Mapping) or not set(content) <= set(own):
            raise InvalidInput(f"{cls.heading} must be a table [{cls.heading}] with some of {', '.join(own)}")
        return cls(**content)


class Declared(ABC):
    """What all columns that are read share."""

    kind: ClassVar[str]
    cell_kinds: ClassVar[tuple[str, ...]]  # what may be wrong with a cell
    refused: ClassVar[tuple[tuple[Kind, ...], str]] = ((), "")  # types that can never hold such cells
    shape: ClassVar[Shape] = "whole"  # of `blocks`
    name: str
    missing: str
    source: str

    @property
    def what(self) -> str:
        """How a refusal calls it."""
        return f"column {shown(self.name)}"

    def _check(self, *rules: str) -> None:
        """Refuse a name or a source that is none, and another rule for missing cells than these."""
        check_name(self.name)
        check_line(self.source, f"{self.what}: source")
        if self.missing not in rules:
            choices = " or ".join(f'"{rule}"' for rule in rules)
            raise InvalidInput(f"{self.what}: missing must be {choices}")

    @property
    @abstractmethod
    def _own(self) -> Sequence[tuple[str, tuple[float, float]]]:
        """The name and the bounds of every encoded column but that for missing cells."""

    @property
    def _encoded(self) -> Sequence[tuple[str, tuple[float, float]]]:
        indicator = [(f"{self.name}?missing", (0.0, 1.0))] if self.missing == "indicator" else []
        return [*self._own, *indicator]

    @property
    def encoded_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._encoded)

    @property
    def encoded_bounds(self) -> tuple[tuple[float, float], ...]:
        return tuple(bounds for _, bounds in self._encoded)

    @property
    def size(self) -> int:
        """The number of encoded columns."""
        return len(self._encoded)

    @property
    def blocks(self) -> tuple[range, ...]:
        """One-hot blocks among the encoded columns."""
        return ()

    @property
    def switched(self) -> tuple[int, ...]:
        """The encoded columns that are 0 unless a level is named, something is true, or a cell is missing."""
        indicator = (self.size - 1,) if self.missing == "indicator" else ()
        return (*(place for block in self.blocks for place in block), *indicator)

    def check_kind(self, kind: Kind) -> None:
        """Refuse a declared type that can never hold such cells."""
        kinds, why = self.refused
        if kind in kinds:
            raise DataError(f"{self.what} has a type of {kind}, {why}")

    def encode(self, cells: Cells) -> FloatArray:
        """The cells as columns of a matrix: NaN where a number is missing, all 0 where a level is; not
        clipped: the column map does that. For the rule "indicator" the last is 1 where a cell is missing."""
        self.check_kind(cells.kind)
        columns, missing = self._columns(cells)
        return np.column_stack([columns, missing]) if self.missing == "indicator" else columns

    @abstractmethod
    def _columns(self, cells: Cells) -> tuple[FloatArray, BoolArray]:
        """The columns of `_own`, and which cells are missing."""

    @abstractmethod
    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        """The place in `cell_kinds` of every cell; −1, or beyond it by the position of its level, where
        nothing is wrong."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, **self._range(), **told(self)}

    def _range(self) -> dict[str, Any]:
        """The bounds or the levels."""
        return {}


@dataclass(frozen=True)
class Numeric(Declared):
    """A number between public bounds.

    Parameters
    ----------
    name : str
        The column's name in the table.
    low, high : float
        The bounds, from a codebook or from common knowledge, never from the data. A value outside is clipped.
    source : str, optional
        Where bounds or levels come from, in one line: "codebook 2024, p. 12". Reports and models show it.
    decimal : {".", ","}, optional
        The decimal sign of cells that are text; that of the schema's file if there is none.
    thousands : {"", ".", ",", " ", "'"}, default=""
        What stands between groups of three digits. "." implies a decimal comma.
    missing_codes : sequence of float, optional
        Numbers that say that there is none, such as −9 and 999.
    missing : {"middle", "indicator"}, default="middle"
        What a missing or unreadable cell becomes: the middle of the bounds, which biases what it is
        compared with; or that and a 1 in a second column, "age?missing", which has 0 elsewhere.

    Examples
    --------
    >>> from curvedp import Numeric, Schema
    >>> Numeric("age", 0, 120)
    Numeric(name='age', low=0.0, high=120.0)
    >>> wage = Numeric("wage", 0, 1e5, decimal=",", thousands=".", missing_codes=[-9], missing="indicator")
    >>> wage.encoded_names
    ('wage', 'wage?missing')
    >>> Schema([wage]).read({"wage": ["1.234,5", "-9"]}).tolist()
    [[1234.5, 0.0], [nan, 1.0]]
    """

    name: str
    low: float
    high: float
    source: str = field(default="", repr=False)
    decimal: str | None = field(default=None, repr=False, kw_only=True)
    thousands: str = field(default="", repr=False, kw_only=True)
    missing_codes: tuple[float, ...] = field(default=(), repr=False, kw_only=True)
    missing: Literal["middle", "indicator"] = field(default="middle", repr=False, kw_only=True)

    kind = "numeric"
    cell_kinds = NUMBER_KINDS

    def __post_init__(self) -> None:
        self._check("middle", "indicator")
        low, high = check_bounds(self.low, self.high, self.what)
        Numerals.check(self.decimal, self.thousands, self.what)
        if not is_list(self.missing_codes) or not all(map(is_number, self.missing_codes)):
            raise InvalidInput(
                f"{self.what}: missing_codes must be a list of numbers: write missing_codes = [-9]"
            )
        settle(self, low=low, high=high, missing_codes=tuple(map(float, self.missing_codes)))

    @property
    def numerals(self) -> Numerals:
        """How its cells are read: with the decimal sign that the thousands leave, where none is declared."""
        implied = "," if self.thousands == "." else "."
        return Numerals(self.decimal or implied, self.thousands, self.missing_codes)

    def in_file(self, decimal: str) -> Numeric:
        """The same column with the decimal sign of its file, where it declares none."""
        kept = self.decimal is not None or decimal in (".", self.thousands)
        return self if kept else replace(self, decimal=decimal)

    @property
    def _own(self) -> Sequence[tuple[str, tuple[float, float]]]:
        return [(self.name, (self.low, self.high))]

    def check_kind(self, kind: Kind) -> None:
        check_numbers(kind, self.what)

    def _columns(self, cells: Cells) -> tuple[FloatArray, BoolArray]:
        found = self.numerals.numbers(cells)
        return found[:, None], np.isnan(found)

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        return self.numerals.kinds(cells, self.low, self.high)

    def _range(self) -> dict[str, Any]:
        return {"bounds": [self.low, self.high]}


@dataclass(frozen=True)
class Categorical(Declared):
    """One of at least two declared levels.

    Parameters
    ----------
    name, source
        As in `Numeric`.
    levels : sequence of str, or mapping of str to sequence of str
        What a cell may say; numbers and truth values stand for their text. Anything else counts as missing.
        Upper and lower case differ. A mapping has for each level what else cells say for it:
        {"Female": ["F", "woman"], "Male": ["M"]}.
    fold_case : bool, default=False
        Whether "Female", "female" and "FEMALE" are one.
    other : str, optional
        The level of every cell that is not missing and names no other one; it is added to the levels.
    reference : str, optional
        The level that `summary`, `tidy` and reports state the others against; by default the mean of all
        records.
    event : str, optional
        As a target with two levels: the one whose odds a model is about; by default the last.
    missing : {"zero", "level"}, default="zero"
        What a missing cell becomes: the all-zero code; or a level of its own, "race=(missing)".

    Examples
    --------
    >>> from curvedp import Categorical, Schema
    >>> Categorical("union", ["no", "yes"]).encoded_names
    ('union=no', 'union=yes')
    >>> Categorical("union", ["no", "yes"], missing="level").encoded_names
    ('union=no', 'union=yes', 'union=(missing)')
    >>> sex = Categorical("sex", {"Female": ["F", "1"], "Male": ["M", "2"]}, fold_case=True, other="rest")
    >>> Schema([sex]).read({"sex": ["FEMALE", 2, "x", None]}).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """

    name: str
    levels: tuple[str, ...]
    missing: Literal["zero", "level"] = field(default="zero", repr=False, kw_only=True)
    source: str = field(default="", repr=False, kw_only=True)
    fold_case: bool = field(default=False, repr=False, kw_only=True)
    other: str | None = field(default=None, repr=False, kw_only=True)
    reference: str | None = field(default=None, repr=False, kw_only=True)
    event: str | None = field(default=None, repr=False, kw_only=True)
    # of each level; by a factory, so that `told` leaves it to `_range`
    aliases: tuple[tuple[str, ...], ...] = field(default_factory=tuple, repr=False, kw_only=True)

    kind = "categorical"
    cell_kinds = LEVEL_KINDS

    def __post_init__(self) -> None:
        self._check("zero", "level")
        declared: Any = self.levels
        if isinstance(declared, Mapping):
            said = [[texts] if isinstance(texts, str) else texts for texts in declared.values()]
            if not all(map(_are_texts, said)):
                raise InvalidInput(f'{self.what}: write levels = {{Female = ["F", "woman"], Male = ["M"]}}')
            told = [tuple(map(level_text, texts)) for texts in said]
            while told and not told[-1]:
                told.pop()
            settle(self, aliases=tuple(told))
            declared = list(declared)
        if not _are_texts(declared):
            raise InvalidInput(f'{self.what}: levels must be a list of texts: write levels = ["a", "b"]')
        if not isinstance(self.fold_case, bool):
            raise InvalidInput(f"{self.what}: fold_case must be true or false")
        texts = tuple(map(level_text, declared))
        for role in ("other", "reference", "event"):
            if (named := getattr(self, role)) is None:
                continue
            if not isinstance(named, str | int | float):
                raise InvalidInput(f"{self.what}: {role} must be the name of a level: write it in quotes")
            own = [text for text in texts if level(text) == level(level_text(named))]
            if not own and role != "other":
                raise InvalidInput(f"{self.what}: {role} must be one of its levels")
            settle(self, **{role: own[0] if own else level_text(named)})
            texts = texts if own else (*texts, level_text(named))
        settle(self, levels=texts)
        if any(not is_text(text) for spoken in self._spoken for text in spoken):
            raise InvalidInput(f"{self.what}: a level is not Unicode text: write it anew")
        keys = [sorted({self._key(text) for text in spoken}) for spoken in self._spoken]
        if len(keys) < 2 or any("" in own for own in keys):
            raise InvalidInput(f"{self.what}: declare at least two levels, none of them empty")
        if (twice := repeated(key for own in keys for key in own)) is not None:
            owner = [text for text, own in zip(self.levels, keys, strict=True) for _ in own][twice]
            raise InvalidInput(f"{self.what}: level {shown(owner)} is declared twice: remove one")
        if self.missing == "level" and any(MISSING_LEVEL in own for own in keys):
            raise InvalidInput(f"{self.what}: the level {MISSING_LEVEL} is that of missing cells: remove one")
        if self.event is not None and len(self.levels) != 2:
            raise InvalidInput(f"{self.what}: an event is one of two levels: leave it out")

    @property
    def _spoken(self) -> list[tuple[str, ...]]:
        """What cells may say for each level, its name first."""
        more = (*self.aliases, *((),) * len(self.levels))
        return [(text, *also) for text, also in zip(self.levels, more, strict=False)]

    def _key(self, text: str) -> str:
        return level(text).casefold() if self.fold_case else level(text)

    @cached_property
    def keys(self) -> Mapping[str, int]:
        """The position of the level that each text stands for."""
        return {self._key(text): i for i, spoken in enumerate(self._spoken) for text in spoken}

    @property
    def spoken_for(self) -> str:
        """As a target: the event, or the last level that is not for all others."""
        return self.event or next(text for text in reversed(self.levels) if text != self.other)

    @property
    def _own(self) -> Sequence[tuple[str, tuple[float, float]]]:
        levels = self.levels if self.missing == "zero" else (*self.levels, MISSING_LEVEL)
        return [(f"{self.name}={text}", (0.0, 1.0)) for text in levels]

    @property
    def blocks(self) -> tuple[range, ...]:
        return (range(len(self._own)),)

    def places(self, cells: Cells) -> NDArray[np.intp]:
        """The position of every cell among the levels, −1 where it names none."""
        other = -1 if self.other is None else self.levels.index(self.other)
        return cells.positions(self.keys, fold=self.fold_case, other=other)

    def _columns(self, cells: Cells) -> tuple[FloatArray, BoolArray]:
        """One column per level, 1 where the cell names it; all 0 where it names none, or a 1 in the last."""
        width, found = len(self._own), self.places(cells)
        place = np.where(found < 0, width - 1, found) if self.missing == "level" else found
        return np.asarray(place[:, None] == np.arange(width), dtype=np.float64), found < 0

    def kinds_of(self, cells: Cells) -> NDArray[np.intp]:
        return cells.level_kinds(self.places(cells))

    def _range(self) -> dict[str, Any]:
        if not any(self.aliases):
            return {"levels": list(self.levels)}
        return {"levels": {spoken[0]: list(spoken[1:]) for spoken in self._spoken}}


@dataclass(frozen=True)
class Ignored:
    """A column that is never read.

    Parameters
    ----------
    name : str
        The column's name in the table.

    Examples
    --------
    >>> from curvedp import Ignored
    >>> Ignored("id").name
    'id'
    """

    name: str
    kind = "ignored"

    def __post_init__(self) -> None:
        check_name(self.name)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind}


_HALF = re.compile("[\ud800-\udfff]")


def settle(declared: object, **values: Any) -> None:
    """Fields of a frozen declaration as they are kept, which need not be as they were passed."""
    for name, value in values.items():
        object.__setattr__(declared, name, value)


def check_bounds(low: Any, high: Any, what: str) -> tuple[float, float]:
    """(low, high) as two finite numbers, low < high; `what` says whose bounds they are."""
    if not (is_number(low) and is_number(high)):
        raise InvalidInput(f"{what}: bounds must be two numbers: write bounds = [low, high]")
    if not (abs(low) <= LARGEST_ENTRY and abs(high) <= LARGEST_ENTRY):
        raise InvalidInput(f"{what}: both bounds must be finite numbers, public constants")
    low, high = float(low), float(high)
    if low > high:
        raise InvalidInput(f"{what}: the bounds [{low:g}, {high:g}] are reversed: write [{high:g}, {low:g}]")
    if low == high:
        raise InvalidInput(f"{what}: the lower bound must lie below the upper one")
    return low, high


def check_line(text: Any, what: str) -> None:
    """Refuse what is no short line of text."""
    if not is_text(text) or len(text.splitlines()) > 1 or len(text) > LONGEST_LINE:
        raise InvalidInput(f"{what} must be one line of at most {LONGEST_LINE} letters")


def check_name(name: Any) -> None:
    if not (is_text(name) and name):
        raise InvalidInput("the name of a column must be a text that is not empty")


def is_number(value: Any) -> bool:
    """Whether a declared value is a real number; NaN is none."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return real and not isinstance(value, np.timedelta64) and value == value


def is_list(value: Any) -> bool:
    """Whether a declared value is a list, a tuple or an array."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _are_texts(value: Any) -> bool:
    """Whether it lists texts, or numbers and truth values that stand for theirs."""
    return is_list(value) and all(isinstance(text, str | int | float) for text in value)


def is_text(value: Any) -> bool:
    """Whether it is text that can be written to a file: half of a surrogate pair cannot."""
    return isinstance(value, str) and (value.isascii() or _HALF.search(value) is None)


def level_text(value: str | float) -> str:
    """A declared level as text: true for a truth value, 1 for the number 1."""
    if isinstance(value, str | bool):
        return str(value) if isinstance(value, str) else str(value).lower()
    return level(value)


def repeated(keys: Iterable[str]) -> int | None:
    """The position of the first key that was there before."""
    first: dict[str, int] = {}
    return next((i for i, key in enumerate(keys) if first.setdefault(key, i) != i), None)


def nearest(name: str, known: Sequence[str], otherwise: str) -> str:
    """What to write in the place of a name that is not known."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {shown(near[0])}?" if near else otherwise


def shown(text: str) -> str:
    """A declared text in quotes, on one line and not too long for a message."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


Pair = tuple[float, float]


def bounds_per_column(bounds: Any, n_features: int, names: Sequence[str] | None) -> list[Pair]:
    """(low, high) of each column, as in `Schema.of_bounds`: one pair for all, a pair per column, or two
    arrays, never transposed. Messages name what was declared, never a column of the data."""
    if bounds is None:
        raise InvalidInput(
            "pass bounds=(low, high) or bounds={column: (low, high), ...}: public ranges that you declare; "
            "they are never read off the data"
        )
    if isinstance(bounds, Mapping):
        return _by_name(bounds, names)
    count = len(bounds) if is_list(bounds) else 0
    if count == 2 and all(map(is_number, bounds)):
        return [check_bounds(bounds[0], bounds[1], "bounds")] * n_features
    if count == 2 and _are_sides(bounds, n_features):
        low, high = (np.broadcast_to(side, n_features).tolist() for side in bounds)
        bounds = list(zip(low, high, strict=True))
    elif not count or count != n_features or not all(map(_is_pair, bounds)):
        raise InvalidInput(
            f"bounds must be (low, high) for all columns, a list of {n_features} pairs [(low, high), ...], "
            "one for each column, or {column: (low, high), ...}"
        )
    elif count == 2 and not isinstance(bounds, list):
        raise InvalidInput(
            "these bounds could be two pairs or two lists of ends: write [(low, high), (low, high)], one "
            "pair for each column, or {column: (low, high), ...}"
        )
    return [check_bounds(low, high, f"bounds of column {i}") for i, (low, high) in enumerate(bounds, start=1)]


def _by_name(bounds: Mapping[Any, Any], names: Sequence[str] | None) -> list[Pair]:
    if names is None:
        raise InvalidInput(
            "bounds={column: (low, high)} needs a table with column names: pass a data frame, or a list with "
            "one pair for each column"
        )
    declared, known = {str(name): pair for name, pair in bounds.items()}, set(names)
    for position, name in enumerate(names, start=1):
        if name not in declared:
            raise InvalidInput(f"bounds has no entry for column {position} of the table: declare its range")
    for name, pair in declared.items():
        if name not in known:
            raise InvalidInput(f"bounds names {shown(name)}, which is no column of the table: leave it out")
        if not _is_pair(pair):
            raise InvalidInput(f"bounds of column {shown(name)} must be two numbers: write (low, high)")
    pairs = ((name, *declared[name]) for name in names)
    return [check_bounds(low, high, f"bounds of column {shown(name)}") for name, low, high in pairs]


def _are_sides(bounds: Any, n_features: int) -> bool:
    """Whether both are arrays of ends (or one and a number): numpy's, or of a length that no pair has."""
    ends = [side for side in bounds if not is_number(side)]
    of_length = all(is_list(side) and np.ndim(side) == 1 and len(side) == n_features for side in ends)
    if not of_length or not all(is_number(end) for side in ends for end in side):
        return False
    arrays = not isinstance(bounds, np.ndarray) and any(isinstance(side, np.ndarray) for side in ends)
    return arrays or n_features != 2


def _is_pair(pair: Any) -> bool:
    return is_list(pair) and len(pair) == 2 and all(map(is_number, pair))
