"""Leave tables out: is the rule that other tables would choose also good on these?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curvedp.errors import InvalidInput
from curvedp_studies.accuracy.opponents import Opponent
from curvedp_studies.accuracy.results import Cell
from curvedp_studies.accuracy.variants import PRESENT

TIE = 0.01  # in score: less is no difference
WORSE = 1.01  # times the error of θ = 0
LEAST_N_MU = 25.0  # below, counts are noise


@dataclass(frozen=True, order=True)
class Verdict:
    """Of a variant on some tables, the better the smaller: compared from left to right."""

    lost: int  # cells × opponents
    worse: int  # cells worse than θ = 0
    loss: float  # minus the mean score


@dataclass(frozen=True)
class Field:
    """Cells of all variants, and the opponents."""

    cells: Sequence[Cell]
    opponents: Sequence[Opponent]

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(cell.variant for cell in self.cells))

    @property
    def tables(self) -> list[str]:
        return sorted({cell.table for cell in self.cells})

    @property
    def chosen_on(self) -> list[str]:
        """Tables with opponents."""
        there = {opponent.table for opponent in self.opponents}
        return [table for table in self.tables if table in there]

    @property
    def unopposed(self) -> list[str]:
        """The others: they take no part in a choice."""
        return [table for table in self.tables if table not in self.chosen_on]

    def of(self, variant: str, tables: Iterable[str]) -> list[Cell]:
        wanted = set(tables)
        return [cell for cell in self.cells if cell.variant == variant and cell.table in wanted]

    def lost(self, cell: Cell) -> list[Opponent]:
        """The opponents that are better here, by more than a tie."""
        here = (o for o in self.opponents if (o.table, o.epsilon) == (cell.table, cell.epsilon))
        return [opponent for opponent in here if opponent.score > cell.score + TIE]

    def verdict(self, variant: str, tables: Iterable[str]) -> Verdict:
        cells = self.of(variant, tables)
        return Verdict(
            sum(len(self.lost(cell)) for cell in cells),
            sum(map(worse_than_zero, cells)),
            -float(np.mean([cell.score for cell in cells])),
        )

    def best(self, tables: Iterable[str]) -> str:
        used = list(tables)
        return min(self.variants, key=lambda variant: self.verdict(variant, used))


@dataclass(frozen=True)
class Fold:
    """Tables left out, what the others choose, and how that and the present rule do on them."""

    tables: tuple[str, ...]
    chosen: str
    inside: Verdict  # of the chosen variant on the other tables
    held_out: Verdict
    present: Verdict  # on the same held-out tables


def countable(cell: Cell) -> bool:
    return cell.n_mu >= LEAST_N_MU


def worse_than_zero(cell: Cell) -> bool:
    return countable(cell) and cell.error > WORSE


def folds(tables: Sequence[str], number: int, seed: int = 0) -> list[tuple[str, ...]]:
    """A partition; two versions of one table (unit/elevators, elevators) stay together."""
    stems = sorted({_stem(table) for table in tables})
    if not 2 <= number <= len(stems):
        raise InvalidInput(f"{len(stems)} tables make between 2 and {len(stems)} folds, not {number}")
    random.Random(seed).shuffle(stems)
    parts = [set(stems[start::number]) for start in range(number)]
    return [tuple(sorted(table for table in tables if _stem(table) in part)) for part in parts]


def _stem(table: str) -> str:
    return table.rsplit("/", 1)[-1]


def leave_out(field: Field, number: int) -> list[Fold]:
    """Every fold in turn: choose on the other tables, look at these."""
    if PRESENT not in field.variants:
        raise InvalidInput(f"the results must hold the rule as it stands, under the name {PRESENT!r}")
    told, tables = [], field.chosen_on
    for left_out in folds(tables, number):
        others = [table for table in tables if table not in left_out]
        chosen = field.best(others)
        told.append(
            Fold(
                left_out,
                chosen,
                field.verdict(chosen, others),
                field.verdict(chosen, left_out),
                field.verdict(PRESENT, left_out),
            )
        )
    return told


@dataclass(frozen=True)
class Difference:
    """A variant against the present rule, cell by cell: the same splits, noise of the same seeds."""

    better: int  # by more than a tie and twice the standard error
    worse: int
    mean: float


def against_present(field: Field, variant: str, tables: Iterable[str]) -> Difference:
    used = list(tables)
    present: Mapping[tuple[str, float, str], Cell] = {cell.place: cell for cell in field.of(PRESENT, used)}
    pairs = [(cell, present[cell.place]) for cell in field.of(variant, used)]
    gains = np.array([own.score - other.score for own, other in pairs])
    slack = np.array([max(TIE, 2.0 * np.hypot(own.se, other.se)) for own, other in pairs])
    return Difference(int(np.sum(gains > slack)), int(np.sum(gains < -slack)), float(np.mean(gains)))
