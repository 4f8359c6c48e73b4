"""What a total (ε, δ) allows when releases are chosen one after another: privacy filters in exact arithmetic.

A filter is a rule that stops adaptively chosen releases before their total exceeds a promise fixed at the
start. Basic composition (Σεᵢ ≤ ε and Σδᵢ ≤ δ) is one, and so is Σρᵢ ≤ ρ for zCDP. Numerical composition of
privacy loss distributions is not: it may be used only inside one plan that was fixed beforehand
(`curvedp.plans.compose`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol

from curvedp.amounts import exact as exact_fraction
from curvedp.amounts import round_down, round_up
from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused
from curvedp.neighbours import Neighbours
from curvedp.privacy.zcdp import epsilon_of_rho, rho_within

FilterName = Literal["basic", "zcdp"]

NO_RHO = (
    "A zcdp filter adds up ρ, which releases that are Gaussian or purely ε-private throughout have (output, "
    "gradient, statistics with Gaussian noise, check, describe, score, bounds)"
)

exact = lru_cache(maxsize=1024)(exact_fraction)
_BITS = 4096  # of a total's denominator


class Chargeable(Protocol):
    """What a ledger needs to know of a release; every `Guarantee` says it."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def neighbours(self) -> Neighbours: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def theorem(self) -> str: ...
    @property
    def private(self) -> bool: ...
    @property
    def zcdp_rho(self) -> float | None: ...


@dataclass(frozen=True)
class Amount:
    """An (ε, δ), and the ρ it stands for under the zCDP filter."""

    epsilon: float
    delta: float
    rho: float | None = None


@dataclass(frozen=True)
class Tally:
    """Exact sums over the charges made so far. `rho` is over those that have one."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    charges: int = 0

    def plus(self, epsilon: float, delta: float, rho: float | None) -> Tally:
        """After one more charge."""
        return Tally(
            _bounded(self.epsilon + exact(epsilon)),
            _bounded(self.delta + exact(delta)),
            self.rho if rho is None else _bounded(self.rho + exact(rho)),
            self.charges + 1,
        )


def _bounded(total: Fraction) -> Fraction:
    """total, or the next multiple of 2⁻⁴⁰⁹⁶ above where its denominator would grow without end."""
    if total.denominator.bit_length() <= _BITS:
        return total
    return Fraction(-(-(total.numerator << _BITS) // total.denominator), 1 << _BITS)


class Filter(Protocol):
    """Says whether one more release fits, whatever the earlier ones showed."""

    def require_room(self, tally: Tally, release: Chargeable) -> None:
        """Raise unless the release fits in what remains."""
        ...

    def spent(self, tally: Tally) -> Amount:
        """What the charges amount to; rounded up."""
        ...

    def remaining(self, tally: Tally) -> Amount:
        """What is left; rounded down."""
        ...


@dataclass(frozen=True)
class BasicFilter:
    """Σεᵢ ≤ epsilon and Σδᵢ ≤ delta."""

    epsilon: float
    delta: float

    def require_room(self, tally: Tally, release: Chargeable) -> None:
        left = self.remaining(tally)
        fits_epsilon = tally.epsilon + exact(release.epsilon) <= exact(self.epsilon)
        if not (fits_epsilon and tally.delta + exact(release.delta) <= exact(self.delta)):
            raise BudgetExceeded(
                f"the release costs (epsilon, delta) = ({release.epsilon:.12g}, {release.delta:.12g}) and "
                f"({left.epsilon:.12g}, {left.delta:.12g}) remains: ask for less, or stop here. "
                "Nothing was computed"
            )

    def spent(self, tally: Tally) -> Amount:
        return Amount(round_up(tally.epsilon), round_up(tally.delta))

    def remaining(self, tally: Tally) -> Amount:
        return Amount(
            round_down(exact(self.epsilon) - tally.epsilon), round_down(exact(self.delta) - tally.delta)
        )


@dataclass(frozen=True)
class ZCDPFilter:
    """Σρᵢ ≤ ρ, the largest ρ for which ρ-zCDP implies (epsilon, delta). δ is spent once, not added up."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if self.delta <= 0:
            raise InvalidInput('the zcdp filter needs delta > 0: pass one, or filter="basic"')

    @property
    def rho(self) -> Fraction:
        return exact(rho_within(self.epsilon, self.delta))

    def require_room(self, tally: Tally, release: Chargeable) -> None:
        rho = release.zcdp_rho
        if rho is None:
            raise LedgerRefused(
                f"{release.mechanism} has no ρ. {NO_RHO}: use one of those, or a ledger created with "
                'filter="basic"'
            )
        if tally.rho + exact(rho) > self.rho:
            raise BudgetExceeded(
                f"the release costs rho = {rho:.12g} and {round_down(self.rho - tally.rho):.12g} remains: "
                "ask for less, or stop here. Nothing was computed"
            )

    def spent(self, tally: Tally) -> Amount:
        rho = round_up(tally.rho)
        epsilon = min(self.epsilon, epsilon_of_rho(rho, self.delta))
        return Amount(epsilon, self.delta if tally.charges else 0.0, rho)

    def remaining(self, tally: Tally) -> Amount:
        left = round_down(exact(self.epsilon) - exact(self.spent(tally).epsilon))
        return Amount(left, self.delta, round_down(self.rho - tally.rho))


FILTERS: Mapping[FilterName, type[BasicFilter] | type[ZCDPFilter]] = {
    "basic": BasicFilter,
    "zcdp": ZCDPFilter,
}


def require_same(budget: Neighbours, release: Neighbours) -> None:
    """Refuse a release that holds between other tables than the budget."""
    if release.adjacency != budget.adjacency:
        raise LedgerRefused(
            f"this ledger counts {budget.adjacency} neighbours and the release is for "
            f"{release.adjacency}: pass adjacency={budget.adjacency!r}, or use another ledger"
        )
    if release.unit != budget.unit:
        ours, theirs = (
            "every row by itself" if unit is None else f"all rows of one {unit!r} together"
            for unit in (budget.unit, release.unit)
        )
        raise LedgerRefused(
            f"this ledger counts {ours} and the release counts {theirs}: declare the same unit, or use "
            "another ledger"
        )
