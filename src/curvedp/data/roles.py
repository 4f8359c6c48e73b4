"""What a schema says of a record beside features and target: how much it weighs, what of its margin is known.

A weight that is missing or unreadable is 0; so is that of a record whose known part of the margin is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unicodedata import combining, normalize

import numpy as np

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND, FloatArray
from curvedp.data.cells import Cells, Kind, level
from curvedp.data.columns import Ignored, Numeric, check_bounds, is_number, is_text, settle, shown
from curvedp.data.files import toml_value
from curvedp.data.targets import ClassTarget, Coded
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.data.schema import Schema


@dataclass(frozen=True)
class Weight(Coded):
    """How much a record counts, coded as v = clip(w, 0, maximum)/maximum (W-1); the maximum is public.

    >>> from curvedp.data.roles import Weight
    >>> Weight(10).encode([2.5, 40, -1, "?"])
    array([0.25, 1.  , 0.  ,  nan])
    """

    maximum: float
    column: Numeric | None = field(default=None, compare=False, repr=False)
    what = "the weight"

    def __post_init__(self) -> None:
        if not (is_number(self.maximum) and SMALLEST_BOUND <= self.maximum <= LARGEST_ENTRY):
            raise InvalidInput("the largest weight must be a positive number, a public constant")
        settle(self, maximum=float(self.maximum))

    def code(self, cells: Cells) -> FloatArray:
        return np.clip(np.clip(self.numbers(cells), 0.0, self.maximum) / self.maximum, 0.0, 1.0)


@dataclass(frozen=True)
class ClassWeight(Coded):
    """How much a record counts by its class, coded like `Weight`; NaN where the target is none.

    `weights` has a public weight for each class, none above the maximum.

    >>> from curvedp.data import ClassTarget
    >>> from curvedp.data.roles import ClassWeight
    >>> ClassWeight(ClassTarget(["no", "yes"]), {"no": 1, "yes": 4}, 4).encode(["yes", "no", "?"])
    array([1.  , 0.25,  nan])
    """

    target: ClassTarget
    weights: Mapping[Any, float]
    maximum: float | None
    what = "the weight"

    def __post_init__(self) -> None:
        given: Any = self.weights if isinstance(self.weights, Mapping) else {}
        known = {level(label): weight for label, weight in given.items()}
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
        settle(self, _shares=np.array([*shares, math.nan]))

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

    What lies outside the public range [low, high] is clipped to it.

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
        settle(self, low=low, high=high)
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
    def what(self) -> str:  # type: ignore[override]
        return "the exposure" if self.log else "the offset"

    def code(self, cells: Cells) -> FloatArray:
        clipped = np.clip(self.numbers(cells), self.low, self.high)
        return np.clip((np.log(clipped) if self.log else clipped) - self.middle, -self.bound, self.bound)


def check_unit(schema: Schema) -> None:
    """Refuse a unit that is no name, or a column to learn from, and a record that is not said in words."""
    unit, takes_one = schema.unit, schema.rows_per_person == "one"
    if schema.rows_per_person not in ("all", "one"):
        raise InvalidInput('rows_per_person must be "all" or "one"')
    if not is_text(schema.record):
        raise InvalidInput("record must be text: say in words what one row is")
    if unit is None:
        if needs := "absorb" if schema.absorb is not None else "rows_per_person" if takes_one else "":
            raise InvalidInput(f"{needs} needs unit, the column that says whose row it is: name it, too")
        return
    if schema.absorb not in (None, unit):
        raise InvalidInput(f"effects are absorbed person by person: absorb must be the unit, {shown(unit)}")
    if schema.absorb is not None and takes_one:
        raise InvalidInput(
            "one row of a person does not differ from its mean: leave rows_per_person out, or absorb"
        )
    if not (is_text(unit) and unit):
        raise InvalidInput("unit must be the name of the column that says whose row it is")
    column = next((column for column in schema.columns if column.name == unit), None)
    if unit == schema.target or not (column is None or isinstance(column, Ignored)):
        raise InvalidInput(
            f'{shown(unit)} says whose row it is and cannot be learned from: write kind = "ignored" for it'
        )


FEW = 100  # persons: a number between closer bounds, such as a yes or no, does not tell them apart


def advice_of_unit(names: Iterable[str]) -> str:
    """What is said of columns of a table without a unit; "" where none has the name of an identifier."""
    if not (found := [name for name in names if looks_like_identifier(name)]):
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
    if (found := _GLUED.fullmatch(word)) is not None and _MEANING.get(word) != "own":
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
    return str(name) if is_text(name) and name else "unit"
