"""Which tables count as neighbours, and how far a sum over a table can move between two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from curvedp.errors import InvalidInput

Adjacency = Literal["replace", "add_remove"]


@dataclass(frozen=True)
class Neighbours:
    """Two tables are neighbours when one unit is replaced, or when one is added or removed.

    `unit` names the column that says whose row it is; None: every row is a unit of its own.
    """

    adjacency: Adjacency = "replace"
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.adjacency not in get_args(Adjacency):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {self.adjacency!r}')

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
        """‖Σzzᵀ − Σz'z'ᵀ‖ ≤ factor·N² (Frobenius) for ‖z‖ ≤ N: 1, or √2, since ⟨P, P'⟩ ≥ 0  (S-2)."""
        return math.sqrt(self.moves)

    @property
    def words(self) -> str:
        return "one record replaced" if self.count_is_public else "one record added or removed"
