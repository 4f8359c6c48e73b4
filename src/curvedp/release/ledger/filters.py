"""What a total (ε, δ) allows when releases are chosen one after another: privacy filters in exact arithmetic.

A filter is a rule that stops adaptively chosen releases before their total exceeds a promise fixed at the
start. Each charge costs (μ, e, d) (`curvedp.privacy.gaussian.Cost`), and charges are granted while Σμ² ≤
m², Σe ≤ e_k and Σd ≤ d_k for one of the boxes that the budget was laid out in (docs/theory.md, "Filters").
"basic" has one box, Σε ≤ ε and Σδ ≤ δ. Numerical composition of privacy loss distributions is no filter,
nor is the sum of the charges' curves: both may be used only inside one plan that was fixed beforehand
(`curvedp.plans.compose`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Literal, get_args

from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused
from curvedp.numbers import exact as exact_fraction
from curvedp.numbers import round_down, round_up
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import Cost, boxes, calibrate_mu, calibrated, pure_mu, root_down, root_up

if TYPE_CHECKING:
    from curvedp.privacy.guarantee import Guarantee

FilterName = Literal["gaussian", "basic"]
FILTERS: tuple[FilterName, ...] = get_args(FilterName)

exact = lru_cache(maxsize=1024)(exact_fraction)
_BITS = 4096  # of a total's denominator
_CLEARLY = 1.05  # times the largest ε that fits: a plan may cost a little less than it states


@dataclass(frozen=True)
class Amount:
    """An (ε, δ)."""

    epsilon: float
    delta: float


@dataclass(frozen=True, order=True)
class Tally:
    """Exact sums over the charges made so far: `squares` = Σμ², `epsilon` = Σe, `delta` = Σd.

    Of what is left in boxes, the largest comes first in squares, then in Σe, then in Σd.
    """

    squares: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    charges: int = 0

    def plus(self, cost: Cost) -> Tally:
        """After one more charge."""
        return Tally(
            _bounded(self.squares + Fraction(cost.mu) ** 2),
            _bounded(self.epsilon + exact(cost.epsilon)),
            _bounded(self.delta + exact(cost.delta)),
            self.charges + 1,
        )

    @property
    def cost(self) -> Cost:
        """(√Σμ², Σe, Σd), rounded up."""
        return Cost(root_up(self.squares), round_up(self.epsilon), round_up(self.delta))

    def left_of(self, box: Cost) -> Tally | None:
        """What a box still holds; None where it does not hold these charges."""
        left = (
            Fraction(box.mu) ** 2 - self.squares,
            exact(box.epsilon) - self.epsilon,
            exact(box.delta) - self.delta,
        )
        return None if min(left) < 0 else Tally(*left, self.charges)


def _bounded(total: Fraction) -> Fraction:
    """total, or the next multiple of 2⁻⁴⁰⁹⁶ above where its denominator would grow without end."""
    if total.denominator.bit_length() <= _BITS:
        return total
    return Fraction(-(-(total.numerator << _BITS) // total.denominator), 1 << _BITS)


@dataclass(frozen=True)
class Filter:
    """Says whether one more release fits in (epsilon, delta), whatever the earlier ones showed."""

    name: FilterName
    epsilon: float
    delta: float

    @property
    def boxes(self) -> tuple[Cost, ...]:
        """What may be spent in all: what is in one of these."""
        if self.name == "basic":
            return (Cost(0.0, self.epsilon, self.delta),)
        return boxes(self.epsilon, self.delta)

    def grant(self, tally: Tally, release: Guarantee) -> Cost:
        """What the release is charged, the cost that leaves most; BudgetExceeded where none fits.

        The first charge may be the whole budget, as it is stated: nothing was seen when it was chosen.
        """
        stated = Cost(0.0, float(release.epsilon), float(release.delta))
        costs = [stated] if self.name == "basic" else [*release.costs, stated]
        room = {cost: max(left) for cost in costs if (left := self.left(tally.plus(cost)))}
        if room:
            return max(room, key=lambda cost: room[cost])
        if self._is_first(tally, stated):
            return stated
        raise BudgetExceeded(self._refusal(tally, stated))

    def _is_first(self, tally: Tally, stated: Cost) -> bool:
        """Whether nothing was charged yet, and the budget as it is stated holds this."""
        whole = Cost(0.0, self.epsilon, self.delta)
        return tally.charges == 0 and Tally().plus(stated).left_of(whole) is not None

    def left(self, tally: Tally) -> list[Tally]:
        """What is left in each box that holds the charges."""
        return [left for box in self.boxes if (left := tally.left_of(box)) is not None]

    @lru_cache(maxsize=64)  # noqa: B019 - a filter is a value
    def spent(self, tally: Tally) -> Amount:
        """What the charges amount to, were they one release; rounded up."""
        if (cost := tally.cost).mu == 0:
            return Amount(cost.epsilon, cost.delta)
        return Amount(min(self.epsilon, cost.epsilon_at(self.delta)), self.delta)

    @lru_cache(maxsize=64)  # noqa: B019
    def remaining(self, tally: Tally) -> Amount:
        """One more release that would be granted, Gaussian where that allows more; rounded down."""
        if tally.charges == 0:
            return Amount(self.epsilon, self.delta)
        if (left := max(self.left(tally), default=None)) is None:
            return Amount(0.0, 0.0)
        plain = Amount(round_down(left.epsilon), round_down(left.delta))
        gaussian = self.largest_epsilon(tally, self.delta) if left.squares > 0 else 0.0
        return Amount(gaussian, self.delta) if gaussian > plain.epsilon else plain

    def largest_epsilon(self, tally: Tally, delta: float) -> float:
        """The largest ε at which one more release would fit: Gaussian, or purely private where δ = 0."""
        found = self.left(tally)
        plain = [round_down(left.epsilon) for left in found if exact(delta) <= left.delta]
        square = [calibrated(root_down(left.squares), delta)[0] for left in found if left.squares > 0]
        return max([*plain, *square], default=0.0)

    def how_many(self, tally: Tally, epsilon: float, delta: float) -> int:
        """How many more releases at (ε, δ) fit: Gaussian where δ > 0, purely private where it is 0."""
        mu = 0.0
        if self.name != "basic":
            mu = calibrate_mu(epsilon, delta) if delta > 0 else pure_mu(epsilon)
        counts = [int(self._is_first(tally, Cost(0.0, epsilon, delta)))]
        for left in self.left(tally):
            parts = ((left.epsilon, exact(epsilon)), (left.delta, exact(delta)))
            counts.append(min(int(have // each) for have, each in parts if each > 0))
            counts.append(int(left.squares // Fraction(mu) ** 2) if mu > 0 else 0)
        return max(counts)

    def refuse_beyond(self, tally: Tally, epsilon: float, delta: float) -> None:
        """BudgetExceeded where (ε, δ) is clearly more than the largest release that fits, before its plan."""
        stated = Cost(0.0, epsilon, delta)
        if not self._is_first(tally, stated) and epsilon > _CLEARLY * self.largest_epsilon(tally, delta):
            raise BudgetExceeded(self._refusal(tally, stated))

    def _refusal(self, tally: Tally, stated: Cost) -> str:
        epsilon, delta = stated.epsilon, stated.delta
        if self.name == "basic":
            left = self.remaining(tally)
            return (
                f"the release costs (epsilon, delta) = ({epsilon:.12g}, {delta:.12g}) and "
                f"({left.epsilon:.12g}, {left.delta:.12g}) remains: ask for less, or stop here. "
                "Nothing was computed"
            )
        largest = self.largest_epsilon(tally, delta)
        kind = "a purely private" if delta == 0 else "a Gaussian"
        fits = f"{kind} one of ε = {floor(largest):g} would" if largest > 0 else "no other would"
        return (
            f"the release at (ε, δ) = ({epsilon:.12g}, {delta:.12g}) does not fit in what is left of "
            f"({self.epsilon:g}, {self.delta:g}), whose squares of μ add up; with this δ {fits}: ask for "
            "less, or stop here. Nothing was computed"
        )


def floor(value: float, digits: int = 3) -> float:
    """value to so many digits, rounded down."""
    if value <= 0:
        return 0.0
    unit = Fraction(10) ** (math.floor(math.log10(value)) - digits + 1)
    return float(Fraction(value) // unit * unit)


def require_amounts(epsilon: float, delta: float) -> tuple[float, float]:
    """Both as floats, once they are what a cost can be."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidInput(f"{name} must be a number, got {type(value).__name__}")
    if not 0 <= delta < 1:
        raise InvalidInput("delta must lie in [0, 1); 1e-6 is a common choice")
    if not 0 <= epsilon <= sys.float_info.max:  # 10**400 is no float
        raise InvalidInput("epsilon must be a finite number ≥ 0")
    return float(epsilon), float(delta)


def require_cost(cost: Cost) -> None:
    """Refuse what is no cost: three finite numbers ≥ 0."""
    parts = (cost.mu, cost.epsilon, cost.delta)
    if not all(isinstance(part, float | int) and math.isfinite(part) and part >= 0 for part in parts):
        raise InvalidInput(f"a cost must be three finite numbers ≥ 0, got {cost!r}")


def require_same(budget: Neighbours, release: Neighbours) -> None:
    """Refuse a release that holds between other tables than the budget."""
    if release.adjacency != budget.adjacency:
        raise LedgerRefused(
            f"this ledger counts {budget.adjacency} neighbours and the release is for "
            f"{release.adjacency}: pass `adjacency={budget.adjacency}`, or use another ledger"
        )
    if release.unit != budget.unit:
        ours, theirs = (
            "every row by itself" if unit is None else f"all rows of one {unit!r} together"
            for unit in (budget.unit, release.unit)
        )
        step = (
            f"charge a ledger for persons, created with `unit={release.unit}`"
            if budget.unit is None
            else f'declare the same unit, unit = "{budget.unit}" in the schema, or use another ledger'
        )
        raise LedgerRefused(f"this ledger counts {ours} and the release counts {theirs}: {step}")
