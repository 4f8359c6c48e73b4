"""What is predicted: a number in bounds, a count, a class; and how it is coded for a fit.

A target that is missing, unreadable or undeclared is coded as NaN: its record contributes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND, FloatArray
from curvedp.data import columns
from curvedp.data.cells import PLAIN_DECIMAL, Cells, Kind, check_numbers, level, value_named
from curvedp.data.columns import Categorical, Numeric, check_bounds, is_number, is_text, repeated, settle
from curvedp.data.dates import Boolean, TargetColumn
from curvedp.data.frames import as_cells, is_dask, is_table, matrix_of, rows_table, table_of
from curvedp.data.source import read_column
from curvedp.errors import DataError, InvalidInput


class Coded:
    """A column that a fit reads beside the features: public types first, then cells, perhaps lazily."""

    column: Any = None  # the declared column that says how cells are read
    what: str = "the target"  # how a refusal calls it

    def check_kind(self, kind: Kind) -> None:
        """Refuse a column whose declared type can never hold such a target."""
        check_numbers(kind, self.what)

    def numbers(self, cells: Cells) -> FloatArray:
        """The cells in user units, NaN where there is none."""
        found: FloatArray = cells.numbers() if self.column is None else self.column.numerals.numbers(cells)
        return found

    def code(self, cells: Cells) -> FloatArray:
        """The cells of one column in memory, coded; their kind is known to fit."""
        raise NotImplementedError

    @property
    def bound(self) -> float:
        """The largest size of a code."""
        return 1.0

    def encode(self, cells: Any) -> Any:
        """The codes of a column in user units, NaN where a cell is none; a Dask collection stays one."""
        if is_dask(cells):
            return read_column(self.encode, cells)
        found = as_cells(cells)
        self.check_kind(found.kind)
        return self.code(found)


@dataclass(frozen=True)
class NumericTarget(Coded):
    """A number between public bounds, coded as t = (clip(y, low, high) − offset) / scale in [−1, 1].

    `column` says how cells are read: decimal sign, thousands, missing codes.

    Examples
    --------
    >>> from curvedp.data import NumericTarget
    >>> target = NumericTarget(0, 10)
    >>> target.encode(["2.5", 99, None])
    array([-0.5,  1. ,  nan])
    >>> float(target.decode(-0.5))
    2.5
    """

    low: float
    high: float
    column: Numeric | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        low, high = check_bounds(self.low, self.high, self.what)
        settle(self, low=low, high=high)
        if self.scale < SMALLEST_BOUND:
            raise InvalidInput(f"{self.what}: the bounds are too close to each other: use larger units")

    @property
    def scale(self) -> float:
        """Half the range."""
        return 0.5 * self.high - 0.5 * self.low

    @property
    def offset(self) -> float:
        """The middle of the range."""
        return 0.5 * self.low + 0.5 * self.high

    def code(self, cells: Cells) -> FloatArray:
        clipped = np.clip(self.numbers(cells), self.low, self.high)
        return np.clip((clipped - self.offset) / self.scale, -1.0, 1.0)

    def decode(self, margins: Any) -> FloatArray:
        """Predictions in user units."""
        return np.asarray(margins, dtype=np.float64) * self.scale + self.offset


@dataclass(frozen=True)
class CountTarget(Coded):
    """A count between 0 and the public bound `high`, coded in units of the public `rate`.

    A larger count is clipped to the bound, a negative one to 0. Margins are logarithms of expected counts in
    units of the rate; the known part `known` of a margin is coded as 0. `column` is as in `NumericTarget`.

    Examples
    --------
    >>> from curvedp.data import CountTarget
    >>> CountTarget(20).encode([3, "100", "many"])
    array([ 3., 20., nan])
    >>> CountTarget(20, rate=10).encode([3, 100])
    array([0.3, 2. ])
    """

    high: float
    column: Numeric | None = field(default=None, repr=False, compare=False)
    rate: float = field(default=1.0, kw_only=True)
    known: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if not (is_number(self.high) and 0 < self.high <= LARGEST_ENTRY):
            raise InvalidInput("the largest count must be a positive number, a public constant")
        if not (is_number(self.rate) and SMALLEST_BOUND <= self.rate <= LARGEST_ENTRY):
            raise InvalidInput("the rate that counts are measured in must be a positive number, public")
        if not (is_number(self.known) and abs(self.known) <= LARGEST_ENTRY):
            raise InvalidInput("the known part of a margin must be a finite number, public")
        if not SMALLEST_BOUND <= self.high / self.rate <= LARGEST_ENTRY:
            raise InvalidInput("the largest count is too far from the rate that counts are measured in")
        settle(self, high=float(self.high), rate=float(self.rate), known=float(self.known))

    @property
    def bound(self) -> float:
        return self.high / self.rate

    @property
    def shift(self) -> float:
        """log(expected count) minus the model's margin and the known part."""
        return math.log(self.rate) - self.known

    def code(self, cells: Cells) -> FloatArray:
        return np.clip(self.numbers(cells), 0.0, self.high) / self.rate

    def decode(self, counts: Any) -> FloatArray:
        """Predictions in user units."""
        return np.asarray(counts, dtype=np.float64) * self.rate


@dataclass(frozen=True)
class ClassTarget(Coded):
    """One of the declared classes: coded as −1 and 1 where there are two, as 0 … K−1 otherwise.

    Of two, the event is coded as 1: coefficients speak for it, in every file, table and report. `labels` are
    sorted all the same, as scikit-learn needs `classes_`: what answers for records (`predict_proba`,
    `decision_function`) is in that order.

    A label matches a class when both name the same level: 1, 1.0, "1" and True do, " yes " and "yes" do,
    "Yes" and "yes" do NOT. **A record whose label matches no class is left out of the fit without a word**,
    since a word would tell about the data. With labels "no" and "yes", both ``classes=[0, 1]`` and
    ``classes=["No", "Yes"]`` learn nothing and report nothing: compare the classes with the codebook. Only
    what the declared type of the labels rules out is refused, such as numbers where every class is a word.

    `classes` are at least two labels, all texts, all numbers or all truth values. `column` says how cells are
    read: its words or levels stand for the classes, in their order. The event is by default the last text, or
    the larger number.

    Examples
    --------
    >>> from curvedp.data import ClassTarget
    >>> target = ClassTarget(["control", "case"])
    >>> target.encode(["case", " control", "Case", None])
    array([ 1., -1., nan, nan])
    >>> target.event, target.labels.tolist()
    ('case', ['case', 'control'])
    """

    classes: tuple[str | int | float, ...]
    column: Boolean | Categorical | None = field(default=None, repr=False, compare=False)
    event: str | int | float | None = None

    def __post_init__(self) -> None:
        values: Any = self.classes
        values = values.tolist() if hasattr(values, "tolist") else values
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise InvalidInput("classes must list at least two different labels: the values that may occur")
        classes = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
        texts = all(map(is_text, classes))
        if not (
            texts
            or all(isinstance(label, bool) for label in classes)
            or all(is_number(label) and abs(label) <= LARGEST_ENTRY for label in classes)
        ):
            raise InvalidInput("classes must be all texts, all numbers or all truth values: write them alike")
        if len(keys := [level(label) for label in classes]) < 2 or "" in keys:
            raise InvalidInput("classes must list at least two different labels, none of them missing")
        if (twice := repeated(keys)) is not None:
            raise InvalidInput(f"class number {twice + 1} is the same label as an earlier one: remove one")
        settle(self, classes=classes)
        if len(classes) == 2:
            last = classes[1] if texts else max(classes)
            event: Any = last if self.event is None else self.event
            if not isinstance(event, str | int | float) or level(event) not in keys:
                raise InvalidInput("the event must be one of the two classes")
            settle(self, event=classes[keys.index(level(event))])
        elif self.event is not None:
            raise InvalidInput("an event is one of two classes: leave it out")

    @cached_property
    def labels(self) -> NDArray[Any]:
        return np.array(sorted(self.classes))

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The labels in the order of their codes: of two the event is the last, of more they are sorted."""
        labels = tuple(self.labels.tolist())
        return labels[::-1] if self.turned else labels

    @property
    def turned(self) -> bool:
        """Whether the event is the first of the sorted labels: margins are those against `labels[1]` then."""
        return len(self.classes) == 2 and bool(self.event == self.labels[0])

    @cached_property
    def _keys(self) -> Mapping[str, int]:
        own = {level(label): i for i, label in enumerate(self.classes)}
        return self.column.keys if isinstance(self.column, Categorical) else own

    def check_kind(self, kind: Kind) -> None:
        if isinstance(self.column, Boolean):
            self.column.check_kind(kind)
        elif isinstance(self.column, Categorical) and self.column.other is not None:
            pass  # any other label is of that class
        elif kind in ("numbers", "complex") and not any(value_named(key) is not None for key in self._keys):
            raise DataError(
                f"the labels are numbers by their type, and no declared class is one (the first is "
                f"{columns.shown(str(self.labels[0]))}): declare the classes as the labels are written"
            )
        elif kind in ("dates", "durations") and all(value_named(key) is not None for key in self._keys):
            raise DataError(f"the labels have a type of {kind}, and every declared class is a number")

    def code(self, cells: Cells) -> FloatArray:
        own = cells.positions(self._keys) if self.column is None else self.column.places(cells)
        places = [self.outputs.index(label) for label in self.classes]
        found = np.array([*places, np.nan])[own]
        return 2.0 * found - 1.0 if len(places) == 2 else found

    def decode(self, index: Any) -> NDArray[Any]:
        """The labels of positions 0 … K−1."""
        return self.labels[np.asarray(index, dtype=np.intp)]


@dataclass(frozen=True)
class SeveralTargets(Coded):
    """Several numbers, one for each column of y; a record without one of them contributes nothing.

    >>> from curvedp.data.targets import NumericTarget, SeveralTargets
    >>> SeveralTargets([NumericTarget(0, 10), NumericTarget(-1, 1)]).encode([[2.5, 1.0], [99, None]])
    array([[-0.5,  1. ],
           [ 1. ,  nan]])
    """

    targets: tuple[NumericTarget, ...]

    def __post_init__(self) -> None:
        settle(self, targets=tuple(self.targets))
        if not self.targets:
            raise InvalidInput("declare the bounds of one target at least")

    @property
    def scales(self) -> FloatArray:
        return np.array([target.scale for target in self.targets])

    @property
    def offsets(self) -> FloatArray:
        return np.array([target.offset for target in self.targets])

    def encode(self, cells: Any) -> Any:
        """The columns of y as a fit takes them, NaN where a cell is none."""
        if is_dask(cells):
            raise InvalidInput("several targets are fitted in memory: pass arrays or data frames")
        if len(getattr(cells, "shape", ())) == 1:
            cells = np.asarray(cells)[:, None]
        matrix, count = None if is_table(cells) else matrix_of(cells), len(self.targets)
        width = matrix.shape[1] if isinstance(matrix, np.ndarray) else count
        table = table_of(cells) if matrix is None else rows_table(matrix, [str(i) for i in range(width)])
        if len(names := tuple(table.columns) or table.names) != count:
            raise InvalidInput(f"y must have {count} columns, one for each pair of target_bounds")
        pairs = zip(self.targets, names, strict=True)
        return np.column_stack([target.encode(table.cells(name)) for target, name in pairs])


Target = NumericTarget | CountTarget | ClassTarget | SeveralTargets


def target_of(column: TargetColumn) -> NumericTarget | ClassTarget:
    """How a declared column is coded as a target; levels that are numbers come back as numbers."""
    if isinstance(column, Numeric):
        return NumericTarget(column.low, column.high, column)
    if isinstance(column, Boolean):
        return ClassTarget((False, True), column)
    classes: Any = column.levels
    if all(PLAIN_DECIMAL.fullmatch(text) and level(text) == text for text in classes):
        # by what is declared, not by the type of y, which may have been inferred from all rows
        classes = tuple(int(text) if text.lstrip("-").isdecimal() else float(text) for text in classes)
    spoken_for = classes[column.levels.index(column.spoken_for)] if len(classes) == 2 else None
    return ClassTarget(classes, column, spoken_for)


def target_entry(target: Target) -> dict[str, Any]:
    """What a model file says of a target."""
    if isinstance(target, ClassTarget):
        event = {} if target.event is None else {"event": target.event}
        return {"kind": "classes", "classes": list(target.classes), **event}
    if isinstance(target, NumericTarget):
        return {"kind": "numeric", "low": target.low, "high": target.high}
    if isinstance(target, SeveralTargets):
        return {"kind": "several", "targets": [target_entry(one) for one in target.targets]}
    return {"kind": "count", "high": target.high, "rate": target.rate, "known": target.known}


def entry_target(entry: Mapping[str, Any], column: TargetColumn | None = None) -> Target:
    """The inverse of `target_entry`, read as the column of the schema declares."""
    kind, values = entry.get("kind"), {key: value for key, value in entry.items() if key != "kind"}
    if kind == "classes" and {"classes"} <= values.keys() <= {"classes", "event"}:
        classes = values["classes"]
        if isinstance(classes, list) and len(classes) == 2 and "event" not in values:  # of version 0.2
            values["event"] = max(classes)
        return ClassTarget(classes, None if isinstance(column, Numeric) else column, values.get("event"))
    reading = column if isinstance(column, Numeric) else None
    if kind == "numeric" and values.keys() == {"low", "high"}:
        return NumericTarget(values["low"], values["high"], reading)
    if kind == "count" and values.keys() == {"high", "rate", "known"}:
        return CountTarget(values["high"], reading, rate=values["rate"], known=values["known"])
    if kind == "several" and values.keys() == {"targets"} and isinstance(values["targets"], list):
        ones = [entry_target(one) for one in values["targets"] if isinstance(one, Mapping)]
        numeric = tuple(one for one in ones if isinstance(one, NumericTarget))
        if len(numeric) == len(values["targets"]):
            return SeveralTargets(numeric)
    raise InvalidInput("its target is of an unknown kind")


def agrees(declared: NumericTarget | ClassTarget, target: Target) -> bool:
    """Whether a model's target is what its schema declares: a count is a number from 0 on."""
    if isinstance(target, CountTarget) and isinstance(declared, NumericTarget):
        return declared.low >= 0 and declared.high == target.high
    if isinstance(target, ClassTarget) and isinstance(declared, ClassTarget):
        event = None if not isinstance(declared.column, Categorical) else declared.column.event
        same = list(map(level, target.classes)) == list(map(level, declared.classes))
        return same and (event is None or level(event) == level(target.event))
    return declared == target


def linear_odds(target: Target, name: str | None = None) -> list[str]:
    """A word about a number from 0 to 1, which may be a no or a yes: a linear model is made of it."""
    if not isinstance(target, NumericTarget) or (target.low, target.high) != (0.0, 1.0):
        return []
    return [
        f"The target {name or 'y'} is declared as a number from 0 to 1. If it says no or yes, this is a "
        "linear probability model: declare it boolean for odds."
    ]
