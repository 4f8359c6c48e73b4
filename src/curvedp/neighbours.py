"""Which tables count as neighbours, and how far a sum over a table can move between two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from curvedp.errors import InvalidInput, NotCovered

Adjacency = Literal["replace", "add_remove"]


@dataclass(frozen=True)
class Neighbours:
    """Two tables are neighbours when one unit is replaced, or when one is added or removed.

    `unit` names the column that says whose row it is: a unit is a person, with all rows of that person
    (U-1). None: every row is a unit of its own.
    """

    adjacency: Adjacency = "replace"
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.adjacency not in get_args(Adjacency):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {self.adjacency!r}')
        if self.unit is not None and not (isinstance(self.unit, str) and self.unit):
            raise InvalidInput("unit must be the name of the column that says whose row it is")

    @property
    def count_is_public(self) -> bool:
        """Whether all neighbours have the same number of units."""
        return self.adjacency == "replace"

    @property
    def moves(self) -> int:
        """Units by which neighbours differ: one comes (or goes), or one goes and one comes."""
        return 2 if self.count_is_public else 1

    @property
    def sum_factor(self) -> float:
        """‖Σv − Σv'‖ ≤ factor·c for vectors of norm ≤ c."""
        return float(self.moves)

    @property
    def histogram_factor(self) -> float:
        """The l2 distance of two histograms with one unit in one cell: 1, or √2."""
        return math.sqrt(self.moves)

    @property
    def gram_factor(self) -> float:
        """‖Σ P − Σ P'‖ ≤ factor·F (Frobenius) for P ≽ 0, ‖P‖ ≤ F: 1, or √2, since ⟨P, P'⟩ ≥ 0 (S-2)."""
        return math.sqrt(self.moves)

    @property
    def who(self) -> str:
        """What is protected: a person where a column says whose row it is, else a record."""
        return "record" if self.unit is None else "person"

    @property
    def words(self) -> str:
        whose = "" if self.unit is None else f" with all rows of one {self.unit!r}"
        return f"one {self.who}{whose} {'replaced' if self.count_is_public else 'added or removed'}"

    def refuse_units(self, what: str, instead: str = "bring the table to one row for each person") -> None:
        """Refuse what bounds the contribution of a row, not of a person."""
        if self.unit is not None:
            raise NotCovered(
                f"{what}: this protects single rows, and {self.unit!r} says that a person may have several; "
                f"{instead}, or leave unit out if a row is what is to be protected"
            )
