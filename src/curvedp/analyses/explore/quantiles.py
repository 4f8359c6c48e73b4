"""Private quantiles among candidates: the exponential mechanism on ranks, drawn exactly (Q-1).

r_j(c) says by how many records candidate c lies above the asked rank q_j·n, 0 where that rank falls on c.
Of persons, values count as the parts of their persons (U-2), and n as the sum of those parts.
Levels are answered together: candidates c₁ ≤ … ≤ c_m have probability ∝ exp(−η·N(r₁(c₁), …, r_m(c_m))) with
η = ε/(2Δ), Δ a bound on how far one record (or person) moves N. The number n is not assumed to be public.
"""

from __future__ import annotations

import decimal
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from curvedp.analyses.explore.tallies import ColumnNames, NumberColumns, Ordered, number_columns
from curvedp.arrays import LARGEST_ENTRY, ColumnLike, FloatArray
from curvedp.data.roles import unit_name
from curvedp.errors import InvalidInput
from curvedp.numbers import exact
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import pure_profile, refuse_beyond
from curvedp.release.door import Account, Released, execute
from curvedp.transcript import UNSTATED, Unit, told

# Laws of candidates by their rank errors, drawn exactly.
#
# A weight e^{−η·N} is real. Digits of it, and bits of a uniform number, are computed until they decide which
# candidate is meant: the law that is drawn from is the one of the theorem, not a rounded one.

Integers = NDArray[np.int64]
Sums = Callable[[int], Sequence[Decimal]]  # digits → sums of weights, each to about that many digits

_DIGITS = 40  # of a weight at first, and more each time
_GUARD = 20  # more digits of an exponent, which stays below 10²⁰


@dataclass(frozen=True, eq=False)
class SumLaw:
    """N = Σ|r_j|: the candidates are independent, drawn anew until they are in order."""

    errors: tuple[Integers, ...]
    rate: Fraction
    share: float = UNSTATED  # ε_j
    name: str = "quantiles"
    unit: ClassVar[Unit] = "ε"

    def draw(self, random: np.random.Generator) -> tuple[int, ...]:
        chosen = self._chosen(random)
        while any(one > other for one, other in pairwise(chosen)):
            chosen = self._chosen(random)
        return told(random, self, chosen)

    def _chosen(self, random: np.random.Generator) -> tuple[int, ...]:
        return tuple(choice(random, sums) for sums in self._sums)

    def log_density(self, chosen: tuple[int, ...]) -> float:
        """−ηN − log Σ e^{−ηN} over all candidates in order."""
        return sum(float(cost[i]) for cost, i in zip(self._costs, chosen, strict=True)) - self._log_total

    def distance(self, other: SumLaw, chosen: tuple[int, ...]) -> float:
        """The largest |log p − log p'| of any candidates in order."""
        apart = [own - its for own, its in zip(self._costs, other._costs, strict=True)]
        shift, ends = other._log_total - self._log_total, []
        for sign in (1.0, -1.0):
            best = sign * apart[0]
            for part in apart[1:]:
                best = np.maximum.accumulate(best) + sign * part
            ends.append(float(best.max()) + sign * shift)
        return max(ends)

    def residuals(self, chosen: tuple[int, ...]) -> FloatArray:
        """None: a draw among few candidates has no density."""
        return np.empty(0)

    @cached_property
    def _costs(self) -> list[FloatArray]:
        return [-float(self.rate) * np.abs(error).astype(np.float64) for error in self.errors]

    @cached_property
    def _log_total(self) -> float:
        in_order = self._costs[0]
        for cost in self._costs[1:]:
            in_order = np.logaddexp.accumulate(in_order) + cost
        return float(logsumexp(in_order))

    @cached_property
    def _sums(self) -> tuple[Sums, ...]:
        def sums(error: Integers, digits: int) -> list[Decimal]:
            return list(accumulate(weights(np.abs(error), self.rate, digits)))

        return tuple(lru_cache(maxsize=2)(partial(sums, error)) for error in self.errors)


class SpanLaw(SumLaw):
    """N = max(r₁, r₂, 0) − min(r₁, r₂, 0): |r₁| + |r₂| where they differ in sign, else the larger one.

    The first candidate comes from its marginal law, the second from its law beside it.
    """

    def _chosen(self, random: np.random.Generator) -> tuple[int, ...]:
        one = choice(random, self._marginal)
        return one, choice(random, lambda digits: list(accumulate(self.beside(one, digits))))

    def log_density(self, chosen: tuple[int, ...]) -> float:
        size = float(_span(*(error[[i]] for error, i in zip(self.errors, chosen, strict=True)))[0, 0])
        pairs, (costs,) = _in_runs(self)
        return -float(self.rate) * size - float(logsumexp(pairs + costs))

    def distance(self, other: SumLaw, chosen: tuple[int, ...]) -> float:
        pairs, costs = _in_runs(self, other)
        own, its = (float(logsumexp(pairs + cost)) for cost in costs)
        apart = np.where(pairs > -np.inf, costs[0] - costs[1], np.nan)
        return float(np.nanmax(np.abs(apart - own + its)))

    def beside(self, one: int, digits: int) -> list[Decimal]:
        """e^{−η·N} of this first candidate and every second one."""
        own, others = self._weights(digits)[0][one], self._weights(digits)[1]
        apart = np.sign(self.errors[1]) * np.sign(self.errors[0][one]) <= 0
        return [own * w if both else min(own, w) for w, both in zip(others, apart.tolist(), strict=True)]

    @cached_property
    def _weights(self) -> Callable[[int], list[list[Decimal]]]:
        """digits → those of all first candidates, and of all second ones."""
        return lru_cache(lambda n: [weights(np.abs(r), self.rate, n) for r in self.errors])

    @cached_property
    def _marginal(self) -> Sums:
        """Σ of `beside` for every first candidate: min(w₁, w₂) is summed by prefixes, r₂ being monotone."""

        def sums(digits: int) -> list[Decimal]:
            first, second = self._weights(digits)
            zero = int(np.searchsorted(self.errors[1], 0))
            sides = [sorted(second[:zero]), sorted(second[zero:])]  # r₂ = 0 may count as either
            before = [list(accumulate(side, initial=Decimal(0))) for side in sides]

            def beside(r: int, w: Decimal) -> Decimal:
                same, below = sides[r > 0], bisect_right(sides[r > 0], w)
                return w * before[r <= 0][-1] + before[r > 0][below] + w * (len(same) - below)

            return list(accumulate(map(beside, self.errors[0].tolist(), first)))

        return lru_cache(maxsize=2)(sums)


def _span(first: Integers, second: Integers) -> FloatArray:
    """N of every pair."""
    one, other = first[:, None], second[None]
    high = np.maximum(np.maximum(one, other), 0)
    return np.asarray(high - np.minimum(np.minimum(one, other), 0), dtype=np.float64)


def _in_runs(*laws: SumLaw) -> tuple[FloatArray, list[FloatArray]]:
    """(log number of pairs in order, −ηN of each law) of pairs of runs that no law tells apart inside."""
    errors = np.stack([error for law in laws for error in law.errors])
    starts = np.append(0, 1 + np.flatnonzero(np.any(np.diff(errors, axis=1), axis=0)))
    size = np.diff(np.append(starts, errors.shape[1])).astype(np.float64)
    with np.errstate(divide="ignore"):
        pairs = np.log(np.triu(np.outer(size, size), 1) + np.diag(size * (size + 1) / 2))
    return pairs, [-float(law.rate) * _span(*(error[starts] for error in law.errors)) for law in laws]


def weights(sizes: Integers, rate: Fraction, digits: int) -> list[Decimal]:
    """e^{−rate·size} of every size ≥ 0 to `digits` digits, however small."""
    distinct, position = np.unique(sizes, return_inverse=True)
    with decimal.localcontext(_context(digits + _GUARD)):
        exponents = [Decimal(-rate.numerator * u) / Decimal(rate.denominator) for u in distinct.tolist()]
    context = _context(digits)
    found = [context.exp(exponent) for exponent in exponents]
    return [found[i] for i in position.tolist()]


def choice(random: np.random.Generator, sums: Sums) -> int:
    """i with probability (S_i − S_{i−1})/S_last of the exact sums S, known to as many digits as it takes.

    U·S_last lies between S_{i−1} and S_i. Where the digits of U and of the sums leave that open, they grow.
    """
    digits, bits, uniform = _DIGITS, 128, int.from_bytes(random.bytes(16), "little")
    while True:
        with decimal.localcontext(_context(digits)):
            found = sums(digits)
            margin = Decimal(10 * len(found) + 100).scaleb(1 - digits)
            low = found[-1] * uniform / 2**bits * (1 - margin)
            high = found[-1] * (uniform + 1) / 2**bits * (1 + margin)
            i = bisect_right(found, low)
            above = i < len(found) and high <= found[i] * (1 - margin)
            below = i == 0 or found[i - 1] * (1 + margin) <= low
        if above and below:
            return i
        digits += _DIGITS
        uniform, bits = (uniform << 128) | int.from_bytes(random.bytes(16), "little"), bits + 128


def _context(digits: int) -> decimal.Context:
    return decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])


UNIT = 10**6  # ranks and levels are counted in millionths, so that every rank error is an integer
# Of persons in ten-thousandths of a step: 10¹⁰ of them (ROWS_AT_MOST) are 10⁴·2¹⁶·10¹⁰ < 2⁶³ at most.
UNIT_OF_PERSONS = 10**4
LEVELS_AT_MOST = 5
CANDIDATES = Parameter("candidates", "k", "public candidates")


@dataclass(frozen=True)
class Levels:
    """0 < q₁ < … < q_m < 1 in millionths, and between which tables their quantiles are private."""

    millionths: tuple[int, ...]
    neighbours: Neighbours

    @classmethod
    def of(cls, levels: Sequence[float], neighbours: Neighbours) -> Levels:
        """Refused: levels out of order, at 0 or 1, finer than a millionth, or too many."""
        if not 1 <= len(levels) <= LEVELS_AT_MOST:
            raise InvalidInput(f"pass from 1 to {LEVELS_AT_MOST} levels, such as 0.005 and 0.995")
        if not all(isinstance(q, int | float) and 0 < q < 1 for q in levels):
            raise InvalidInput("a level must lie strictly between 0 and 1, such as 0.005")
        made = cls(tuple(int(exact(q) * UNIT) for q in levels), neighbours)
        if any((exact(q) * made.unit).denominator != 1 for q in levels):
            raise InvalidInput(f"a level must be a multiple of {Decimal(1) / made.unit:f}, such as 0.005")
        if any(low >= high for low, high in pairwise(made.millionths)):
            raise InvalidInput("the levels must increase: write the lower one first")
        return made

    @property
    def unit(self) -> int:
        """So many units are one step of ranks."""
        return UNIT if self.neighbours.unit is None else UNIT_OF_PERSONS

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

    def law(self, ordered: Ordered, candidates: FloatArray, epsilon: float) -> SumLaw:
        """The law of the chosen candidates, which increase."""
        rate = exact(epsilon) / (2 * self.sensitivity * self.unit * ordered.steps)
        levels = [level * self.unit // UNIT for level in self.millionths]
        errors = tuple(rank_errors(ordered, candidates, level, self.unit) for level in levels)
        return (SpanLaw if self.spans else SumLaw)(errors, rate, epsilon)


def rank_errors(ordered: Ordered, candidates: FloatArray, level: int, unit: int) -> Integers:
    """r(c) = (#{x < c} − qn)₊ − (qn − #{x ≤ c})₊, q = level/unit, in 1/unit of a step; increasing in c."""
    below, upto = unit * ordered.before(candidates, "left"), unit * ordered.before(candidates, "right")
    target = level * ordered.total
    return np.asarray(np.maximum(below - target, 0) - np.maximum(target - upto, 0))


@dataclass(frozen=True)
class QuantilePlan:
    """Quantiles of one column among public candidates."""

    persons: ClassVar[bool] = True
    layout: ColumnNames
    levels: Levels
    candidates: tuple[float, ...]
    budget: Budget

    @cached_property
    def guarantee(self) -> Guarantee:
        budget, parameters = Budget(self.budget.epsilon), Parameters(CANDIDATES(len(self.candidates)))
        named, profile = ("quantiles", "pure", "(Q-1)"), pure_profile((budget.epsilon,))
        return Guarantee(budget, self.layout.neighbours, *named, parameters, profile)

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
    if len(chosen := sorted({float(c) for c in listed})) < 2:
        raise InvalidInput("pass at least two different candidates, all of them finite numbers")
    return tuple(chosen)


def private_quantiles(
    values: ColumnLike,
    levels: Sequence[float],
    candidates: Sequence[float],
    *,
    epsilon: float,
    adjacency: Adjacency = "replace",
    unit: ColumnLike = None,
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
    unit : list, array or series, optional
        Whose value each one is: a person with all values is protected then, and counts once (U-2).
    adjacency, ledger, random_state : optional
        As in `curvedp.bounds`.

    Returns
    -------
    released : Released
        Its value has one candidate for each level, never decreasing.

    Examples
    --------
    >>> from curvedp.analyses.explore import private_quantiles
    >>> ages = list(range(18, 90)) * 100
    >>> private_quantiles(ages, (0.2, 0.8), range(120), epsilon=1.0, random_state=0).value
    (32.0, 75.0)
    """
    layout = ColumnNames(("values",), Neighbours(adjacency, None if unit is None else unit_name(unit)))
    budget = Budget(epsilon)
    refuse_beyond(budget)
    plan = QuantilePlan(layout, Levels.of(levels, layout.neighbours), _declared(candidates), budget)
    _ = plan.guarantee
    columns = number_columns({"values": values}, layout, unit=unit)
    return execute(plan, columns, ledger=ledger, label="quantiles", random_state=random_state)
