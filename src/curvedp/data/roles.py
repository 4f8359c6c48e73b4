"""What a schema says of a record beside features and target: how much it weighs, what of its margin is known.

A weight that is missing or unreadable is 0; so is that of a record whose known part of the margin is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND, FloatArray
from curvedp.data.cells import Cells
from curvedp.data.columns import Ignored, Numeric, check_bounds, is_number, is_text, shown
from curvedp.data.dates import Column
from curvedp.data.delimited import FileFormat
from curvedp.data.files import ROLES
from curvedp.data.frames import Table
from curvedp.data.targets import Coded
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency, Neighbours


@dataclass(frozen=True)
class Weight(Coded):
    """How much a record counts, coded as v = clip(w, 0, maximum)/maximum (W-1).

    Parameters
    ----------
    maximum : float
        The largest weight, public; larger ones are clipped to it, negative ones to 0.

    Examples
    --------
    >>> from curvedp.data.roles import Weight
    >>> Weight(10).encode([2.5, 40, -1, "?"])
    array([0.25, 1.  , 0.  ,  nan])
    """

    maximum: float
    column: Numeric | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (is_number(self.maximum) and SMALLEST_BOUND <= self.maximum <= LARGEST_ENTRY):
            raise InvalidInput("the largest weight must be a positive number, a public constant")
        object.__setattr__(self, "maximum", float(self.maximum))

    @property
    def what(self) -> str:
        return "the weight"

    def code(self, cells: Cells) -> FloatArray:
        return np.clip(np.clip(self.numbers(cells), 0.0, self.maximum) / self.maximum, 0.0, 1.0)


@dataclass(frozen=True)
class KnownMargin(Coded):
    """A part of the margin that is known: a number, or the logarithm of an exposure; coded minus its middle.

    Parameters
    ----------
    low, high : float
        The public range; what lies outside is clipped to it.
    log : bool, default=False
        Whether the logarithm is added: for exposures, such as days or persons at risk.

    Examples
    --------
    >>> from curvedp.data.roles import KnownMargin
    >>> KnownMargin(1, 100, log=True).encode([10, 1000, 0]).round(3)
    array([ 0.   ,  2.303, -2.303])
    """

    low: float
    high: float
    log: bool = False
    column: Numeric | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        low, high = check_bounds(self.low, self.high, self.what)
        if self.log and not low > 0:
            raise InvalidInput("the exposure: its lower bound must be positive, since its logarithm is added")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not self.bound >= SMALLEST_BOUND:
            raise InvalidInput(f"{self.what}: the bounds are too close to each other: use larger units")

    @property
    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    @property
    def middle(self) -> float:
        """Of the margin's part; a missing one counts as much where a prediction is made."""
        return 0.5 * self._ends[0] + 0.5 * self._ends[1]

    @property
    def bound(self) -> float:
        """The largest size of the coded part."""
        return 0.5 * self._ends[1] - 0.5 * self._ends[0]

    @property
    def what(self) -> str:
        return "the exposure" if self.log else "the offset"

    def code(self, cells: Cells) -> FloatArray:
        clipped = np.clip(self.numbers(cells), self.low, self.high)
        part = np.log(clipped) if self.log else clipped
        return np.clip(part - self.middle, -self.bound, self.bound)


class WithRoles:
    """The roles of columns in a schema, beside features and target."""

    columns: tuple[Column, ...]
    target: str | None
    weight: str | None
    offset: str | None
    exposure: str | None
    file: FileFormat

    @property
    def roles(self) -> dict[str, str]:
        """The column of every role that is given."""
        named = {role: getattr(self, role) for role in ROLES}
        return {role: name for role, name in named.items() if name is not None}

    def role_of(self, name: str) -> Weight | KnownMargin:
        """How the column of a role is coded; refused where it is none, or no number."""
        role = next(role for role, own in self.roles.items() if own == name)
        column = next((column for column in self.columns if column.name == name), None)
        if column is None:
            raise InvalidInput(
                f"the {role} {shown(name)} is not a column of the schema: declare it, with bounds"
            )
        if name == self.target:
            raise InvalidInput(f"{shown(name)} is the target, and cannot be the {role}, too: choose another")
        if not isinstance(column, Numeric):
            raise InvalidInput(
                f'the {role} {shown(name)} must be a number: write kind = "numeric" with bounds'
            )
        column = column.in_file(self.file.decimal)
        if role == "weight":
            return Weight(column.high, column)
        return KnownMargin(column.low, column.high, role == "exposure", column)

    def plain_roles(self, table: Table) -> dict[str, FloatArray]:
        """The columns of roles in a table in memory: numbers in user units, NaN where there is none."""
        return {name: self.role_of(name).numbers(table.cells(name)) for name in self.roles.values()}

    @property
    def declared_weight(self) -> Weight | None:
        """How weights are coded; None: every record counts as one."""
        found = None if self.weight is None else self.role_of(self.weight)
        return found if isinstance(found, Weight) else None

    @property
    def declared_offset(self) -> KnownMargin | None:
        """The part of the margin that is known; None: there is none."""
        name = self.exposure if self.offset is None else self.offset
        found = None if name is None else self.role_of(name)
        return found if isinstance(found, KnownMargin) else None


def check_roles(schema: WithRoles) -> None:
    """Refuse roles that contradict each other, or columns that cannot have them."""
    if schema.offset is not None and schema.exposure is not None:
        raise InvalidInput("an exposure is an offset, its logarithm: declare one of the two")
    if len(set(schema.roles.values())) < len(schema.roles):
        raise InvalidInput("one column cannot be both the weight and a part of the margin: choose another")
    for name in schema.roles.values():
        schema.role_of(name)


# Whose rows they are: the column of a schema that identifies persons (U-1).


class WithUnit:
    """Who is protected: a row, or a person with all rows that have the same identifier."""

    columns: tuple[Column, ...]
    target: str | None
    adjacency: Adjacency
    unit: str | None
    record: str
    file: FileFormat

    @property
    def protects(self) -> str:
        """Who is protected, in words."""
        if self.unit is not None:
            return f"one person is all rows with one {self.unit!r}"
        return self.record

    @property
    def neighbours(self) -> Neighbours:
        """Between which tables a release is private."""
        return Neighbours(self.adjacency, self.unit)


def check_unit(schema: WithUnit) -> None:
    """Refuse a unit that is no name, or a column to learn from."""
    unit = schema.unit
    if unit is None:
        return
    if not (isinstance(unit, str) and unit and is_text(unit)):
        raise InvalidInput("unit must be the name of the column that says whose row it is")
    column = next((column for column in schema.columns if column.name == unit), None)
    if unit == schema.target or not (column is None or isinstance(column, Ignored)):
        raise InvalidInput(
            f'{shown(unit)} says whose row it is and cannot be learned from: write kind = "ignored" for it'
        )


def passed_unit(declared: str | None, unit: object) -> str:
    """The name of identifiers that are passed beside a table; refused where the schema names others."""
    name = unit_name(unit)
    if declared is not None and name not in ("unit", declared):
        raise InvalidInput(
            f"the schema says that {shown(declared)} tells whose row it is, and unit is {shown(name)}: leave "
            "unit out, or declare the one that is meant"
        )
    return declared or name


def unit_name(unit: object) -> str:
    """What a column of identifiers is called: the name that a series declares, else "unit"."""
    name = getattr(unit, "name", None)
    return name if isinstance(name, str) and name and is_text(name) else "unit"
