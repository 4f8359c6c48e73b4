"""Private quantiles among candidates: the exponential mechanism on ranks, drawn exactly (Q-1).

r_j(c) says by how many records candidate c lies above the asked rank q_j·n, 0 where that rank falls on c.
Levels are answered together: candidates c₁ ≤ … ≤ c_m have probability ∝ exp(−η·N(r₁(c₁), …, r_m(c_m))) with
η = ε/(2Δ), Δ a bound on how far one record moves N. The number n of values is not assumed to be public.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from curvedp.amounts import exact
from curvedp.arrays import LARGEST_ENTRY, ColumnLike, FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.looks.laws import Integers, Law, SpanLaw, SumLaw
from curvedp.looks.numbers import ColumnNames, NumberColumns, number_columns
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.composition import pure_profile, refuse_beyond
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameters, Symbol
from curvedp.release import Account, Released, execute

UNIT = 10**6  # ranks and levels are counted in millionths, so that every rank error is an integer
LEVELS_AT_MOST = 5
CANDIDATES = Symbol("candidates", "k", "public candidates")


@dataclass(frozen=True)
class Levels:
    """0 < q₁ < … < q_m < 1 in millionths, and between which tables their quantiles are private."""

    millionths: tuple[int, ...]
    neighbours: Neighbours

    @classmethod
    def of(cls, levels: Sequence[float], neighbours: Neighbours) -> Levels:
        """Refused: levels out of order, at 0 or 1, finer than a millionth, or too many; rows of a person."""
        if not 1 <= len(levels) <= LEVELS_AT_MOST:
            raise InvalidInput(f"pass from 1 to {LEVELS_AT_MOST} levels, such as 0.005 and 0.995")
        if not all(isinstance(q, int | float) and 0 < q < 1 for q in levels):
            raise InvalidInput("a level must lie strictly between 0 and 1, such as 0.005")
        scaled = [exact(q) * UNIT for q in levels]
        if any(q.denominator != 1 for q in scaled):
            raise InvalidInput("a level must be a multiple of 0.000001, such as 0.005")
        if any(low >= high for low, high in pairwise(scaled)):
            raise InvalidInput("the levels must increase: write the lower one first")
        neighbours.refuse_units("quantiles")
        return cls(tuple(int(q) for q in scaled), neighbours)

    @property
    def spans(self) -> bool:
        """Whether N is the span: for two levels, where a replaced record moves both ranks the same way."""
        return self.neighbours.count_is_public and len(self.millionths) == 2

    @property
    def sensitivity(self) -> Fraction:
        """Δ in records (Q-1): 1 of the span, else min(m, moves·max_i (Σ_{j<i} q_j + Σ_{j≥i} (1−q_j)))."""
        if self.spans:
            return Fraction(1)
        q, m = [Fraction(level, UNIT) for level in self.millionths], len(self.millionths)
        added = max(sum(q[:i], Fraction(0)) + sum(1 - level for level in q[i:]) for i in range(m + 1))
        return min(Fraction(m), self.neighbours.moves * added)

    def law(self, ordered: FloatArray, candidates: FloatArray, epsilon: float) -> Law:
        """The law of the chosen candidates; `ordered` are the values, increasing, and so are `candidates`."""
        rate = exact(epsilon) / (2 * self.sensitivity * UNIT)
        errors = tuple(rank_errors(ordered, candidates, level) for level in self.millionths)
        return SpanLaw(errors[0], errors[1], rate, epsilon) if self.spans else SumLaw(errors, rate, epsilon)


def rank_errors(ordered: FloatArray, candidates: FloatArray, level: int) -> Integers:
    """r(c) = (#{x < c} − qn)₊ − (qn − #{x ≤ c})₊, in millionths of a record; increasing in c."""
    below = UNIT * np.searchsorted(ordered, candidates, side="left").astype(np.int64)
    upto = UNIT * np.searchsorted(ordered, candidates, side="right").astype(np.int64)
    target = level * len(ordered)
    return np.asarray(np.maximum(below - target, 0) - np.maximum(target - upto, 0))


@dataclass(frozen=True)
class QuantilePlan:
    """Quantiles of one column among public candidates."""

    layout: ColumnNames
    levels: Levels
    candidates: tuple[float, ...]
    budget: Budget

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            budget=Budget(self.budget.epsilon),
            neighbours=self.layout.neighbours,
            mechanism="quantiles",
            accounting="pure",
            theorem="(Q-1)",
            parameters=Parameters(CANDIDATES(len(self.candidates))),
            profile=pure_profile((self.budget.epsilon,)),
        )

    def accept(self, columns: NumberColumns) -> None:
        """Any column will do."""

    def release(self, columns: NumberColumns, random: np.random.Generator) -> tuple[float, ...]:
        candidates = np.array(self.candidates)
        (ordered,) = columns.ordered().values()
        chosen = self.levels.law(ordered, candidates, self.budget.epsilon).draw(random)
        return tuple(float(candidates[i]) for i in chosen)


def _declared(candidates: Sequence[float]) -> tuple[float, ...]:
    """Distinct finite numbers, increasing; refused otherwise."""
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Iterable):
        raise InvalidInput(f"candidates must be a list of numbers, got {type(candidates).__name__}")
    listed = [c.item() if isinstance(c, np.generic) else c for c in candidates]
    if not all(isinstance(c, int | float) for c in listed):
        raise InvalidInput("candidates must be numbers, such as range(120): convert text and dates first")
    if not all(abs(c) <= LARGEST_ENTRY for c in listed):
        raise InvalidInput("candidates must be finite numbers, at most 1e150 in size")
    chosen = sorted({float(c) for c in listed})
    if len(chosen) < 2:
        raise InvalidInput("pass at least two different candidates, all of them finite numbers")
    return tuple(chosen)


def private_quantiles(
    values: ColumnLike,
    levels: Sequence[float],
    candidates: Sequence[float],
    *,
    epsilon: float,
    adjacency: Adjacency = "replace",
    ledger: Account | None = None,
    random_state: int | None = None,
) -> Released[tuple[float, ...]]:
    """Quantiles of a column among candidates that you declare; without any, use `private_bounds`.

    Parameters
    ----------
    values : list, array or series
        The sensitive column. A cell that is no number is left out.
    levels : sequence of float
        From one to five increasing levels, such as ``(0.25, 0.5, 0.75)``. They are chosen together.
    candidates : sequence of float
        Public numbers among which the quantiles are chosen, in any order.
    epsilon : float
        The cost; δ is 0.
    adjacency : {"replace", "add_remove"}, default="replace"
        Which tables are neighbours.
    ledger : Ledger, optional
        Charged before anything is computed from the values.
    random_state : int, optional
        A seed, for research: the release is then not private.

    Returns
    -------
    released : Released
        Its value has one candidate for each level, never decreasing.

    Examples
    --------
    >>> from curvedp.looks import private_quantiles
    >>> ages = list(range(18, 90)) * 100
    >>> private_quantiles(ages, (0.2, 0.8), range(120), epsilon=1.0, random_state=0).value
    (32.0, 75.0)
    """
    layout = ColumnNames(("values",), Neighbours(adjacency))
    budget = Budget(epsilon)
    refuse_beyond(budget)
    plan = QuantilePlan(layout, Levels.of(levels, layout.neighbours), _declared(candidates), budget)
    _ = plan.guarantee
    columns = number_columns({"values": values}, layout)
    return execute(plan, columns, ledger=ledger, label="quantiles", random_state=random_state)
