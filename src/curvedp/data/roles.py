"""What a schema says of a record beside features and target: how much it weighs, what of its margin is known.

A weight that is missing or unreadable is 0; so is that of a record whose known part of the margin is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unicodedata import combining, normalize

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND, FloatArray
from curvedp.data.cells import Cells, Kind, level
from curvedp.data.columns import Ignored, Numeric, check_bounds, is_number, is_text, shown
from curvedp.data.dates import Column
from curvedp.data.delimited import FileFormat
from curvedp.data.files import ROLES, toml_value
from curvedp.data.targets import ClassTarget, Coded
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
class ClassWeight(Coded):
    """How much a record counts by its class, coded like `Weight`; NaN where the target is none.

    Parameters
    ----------
    target : ClassTarget
        The declared classes.
    weights : mapping {class: float}
        A public weight for each of them, none above the maximum.
    maximum : float
        The largest weight, public.

    Examples
    --------
    >>> from curvedp.data import ClassTarget
    >>> from curvedp.data.roles import ClassWeight
    >>> ClassWeight(ClassTarget(["no", "yes"]), {"no": 1, "yes": 4}, 4).encode(["yes", "no", "?"])
    array([1.  , 0.25,  nan])
    """

    target: ClassTarget
    weights: Mapping[Any, float]
    maximum: float | None

    def __post_init__(self) -> None:
        given: Any = self.weights
        known = (
            {level(label): weight for label, weight in given.items()} if isinstance(given, Mapping) else {}
        )
        labels = [level(label) for label in self.target.labels]
        if set(known) != set(labels) or not all(is_number(w) and w >= 0 for w in known.values()):
            raise InvalidInput(
                "`class_weight` must be public weights, one for each class, such as {0: 1, 1: 5}; "
                '"balanced" ones would be read off the records'
            )
        if self.maximum is None or not max(known.values()) <= self.maximum:
            largest = f"{max(known.values()):g}"
            raise InvalidInput(f"`class_weight` goes with the largest weight: pass weight_max={largest}")
        shares = [known[label] / Weight(self.maximum).maximum for label in labels]
        object.__setattr__(self, "_shares", np.array([*shares, math.nan]))

    @property
    def what(self) -> str:
        return "the weight"

    def check_kind(self, kind: Kind) -> None:
        self.target.check_kind(kind)

    def code(self, cells: Cells) -> FloatArray:
        codes, K = self.target.code(cells), len(self.target.classes)
        places = np.where(np.isnan(codes), K, codes > 0 if K == 2 else codes).astype(np.intp)
        found: FloatArray = self._shares[places]  # type: ignore[attr-defined]
        return found


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
    """The roles of columns in a schema, beside features and target, and who is protected.

    That is a row, or a person with all rows that have the same identifier (U-1).
    """

    columns: tuple[Column, ...]
    target: str | None
    weight: str | None
    offset: str | None
    exposure: str | None
    file: FileFormat
    adjacency: Adjacency
    unit: str | None
    rows_per_person: str
    absorb: str | None
    record: str

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

    @property
    def declared_weight(self) -> Weight | None:
        """How weights are coded; None: every record counts as one."""
        found = None if self.weight is None else self.role_of(self.weight)
        return found if isinstance(found, Weight) else None

    @property
    def offset_column(self) -> str:
        """The column of the offset or the exposure; "" without one."""
        return self.offset or self.exposure or ""

    @property
    def declared_offset(self) -> KnownMargin | None:
        """The part of the margin that is known; None: there is none."""
        name = self.exposure if self.offset is None else self.offset
        found = None if name is None else self.role_of(name)
        return found if isinstance(found, KnownMargin) else None

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

    @property
    def unit_advice(self) -> str:
        """What is said where a name looks like an identifier's and no unit is named; "" otherwise."""
        if self.unit is not None:
            return ""
        numbers = [c for c in self.columns if isinstance(c, Numeric) and c.name != self.target]
        feature = advice_of_unit(c.name for c in numbers if c.high - c.low >= FEW)
        ignored = advice_of_unit(column.name for column in self.columns if isinstance(column, Ignored))
        return ignored or (feature and f'{feature}, and "ignored" for the column')


def check_roles(schema: WithRoles) -> None:
    """Refuse roles that contradict each other, or columns that cannot have them."""
    if schema.offset is not None and schema.exposure is not None:
        raise InvalidInput("an exposure is an offset, its logarithm: declare one of the two")
    if len(set(schema.roles.values())) < len(schema.roles):
        raise InvalidInput("one column cannot be both the weight and a part of the margin: choose another")
    for name in schema.roles.values():
        schema.role_of(name)


def check_unit(schema: WithRoles) -> None:
    """Refuse a unit that is no name, or a column to learn from."""
    unit = schema.unit
    if schema.rows_per_person not in ("all", "one"):
        raise InvalidInput('rows_per_person must be "all" or "one"')
    if schema.absorb is not None:
        if unit is None:
            raise InvalidInput("absorb needs unit, the column that says whose row it is: name it, too")
        if schema.absorb != unit:
            raise InvalidInput(
                f"effects are absorbed person by person: absorb must be the unit, {shown(unit)}"
            )
        if schema.rows_per_person == "one":
            raise InvalidInput(
                "one row of a person does not differ from its mean: leave rows_per_person out, or absorb"
            )
    if unit is None:
        if schema.rows_per_person == "one":
            raise InvalidInput(
                "rows_per_person needs unit, the column that says whose row it is: name it, too"
            )
        return
    if not (isinstance(unit, str) and unit and is_text(unit)):
        raise InvalidInput("unit must be the name of the column that says whose row it is")
    column = next((column for column in schema.columns if column.name == unit), None)
    if unit == schema.target or not (column is None or isinstance(column, Ignored)):
        raise InvalidInput(
            f'{shown(unit)} says whose row it is and cannot be learned from: write kind = "ignored" for it'
        )


FEW = 100  # persons: a number between closer bounds, such as a yes or no, does not tell them apart


def advice_of_unit(names: Iterable[str]) -> str:
    """What is said of columns of a table without a unit; "" where none has the name of an identifier."""
    found = [name for name in names if looks_like_identifier(name)]
    if not found:
        return ""
    return (
        f"no unit is named, and {' and '.join(map(shown, found[:3]))} may say whose row it is: a person with "
        f"several rows is then protected row by row only; write unit = {toml_value(found[0])} at the top of "
        "the schema"
    )


# Words of names, without accents: who may have several rows, what is short for one of them, what identifies
# by itself, what numbers them, and of what an id is nobody's.
_WORDS = {
    "who": "person patient subject participant respondent individual proband household customer client "
    "member user employee worker student pupil citizen taxpayer insured pseudonym kunde kund klient "
    "versichert versicherte haushalt haushalts mitglied mitglieds teilnehmer mitarbeiter schuler einwohner "
    "personne menage eleve salarie adherent assure beneficiaire persona paciente cliente hogar usuario "
    "alumno empleado pessoa domicilio utente paziente famiglia persoon klant huishouden elev pacjent osoba",
    "short": "pat pers cust subj resp hh stud mem usr ind indiv case vers",
    "own": "pid uid hid hhid uuid guid ssn mrn nino pesel cpr bsn nif dni cpf curp nir svnr ahv matrikel "
    "matricule matricula username passport mergeid pidp seqn",
    "number": "id nr nummer number num no numero kennung",
    "mark": "key code ref hash",
    "thing": "region country state city county district area zone town place location site hospital clinic "
    "ward school class store shop branch company firm product item article category group type kind model "
    "brand station sensor machine row record line entry obs observation visit order transaction event "
    "session file batch page test question month year day week sex gender race diagnosis land ort kreis",
}
_MEANING = {word: meaning for meaning, words in _WORDS.items() for word in words.split()}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_GLUED = re.compile(r"(id)?(.+?)(id|nr|nummer|number|kennung)?")


def looks_like_identifier(name: str) -> bool:
    """Whether a column of this name, in one of some languages, may say whose row it is; no cell is looked at.

    True of an id of anything but a place or a thing, and of words for one who may have several rows.

    Examples
    --------
    >>> from curvedp.data.roles import looks_like_identifier
    >>> [name for name in ("patient_id", "KundenNr", "valid", "region_id") if looks_like_identifier(name)]
    ['patient_id', 'KundenNr']
    """
    letters = "".join(letter for letter in normalize("NFKD", name) if not combining(letter))
    words = [part for word in _WORD.findall(letters) for part in _unglued(word.lower())]
    found = {_MEANING.get(word, "") for word in words}
    if "thing" in found:
        return False
    known = "" not in found and ("who" in found or "own" in found or {"short", "number"} <= found)
    return words[-1:] == ["id"] or known


def _unglued(word: str) -> list[str]:
    """The parts of kundennr, kunde and nr; the word itself where these are none."""
    found = _GLUED.fullmatch(word)
    if found is not None and _MEANING.get(word) != "own":
        before, stem, after = found.groups()
        for base in (stem, stem.removesuffix("en"), stem.removesuffix("n")):
            if _MEANING.get(base) in ("who", "short", "own"):
                return [part for part in (before, base, after) if part]
    return [word]


def passed_unit(declared: str | None, unit: object) -> str:
    """The name of identifiers that are passed beside a table; refused where the schema names others."""
    name = unit_name(unit)
    if declared is not None and name not in ("unit", declared):
        raise InvalidInput(
            f"the schema says that {shown(declared)} tells whose row it is, and unit is {shown(name)}: pass "
            "that column, or declare the one that is meant"
        )
    return declared or name


def unit_name(unit: object) -> str:
    """What a column of identifiers is called: the name that a series declares, else "unit"."""
    name = getattr(unit, "name", None)
    return name if isinstance(name, str) and name and is_text(name) else "unit"
