"""What a total (ε, δ) allows when releases are chosen one after another: privacy filters in exact arithmetic.

A filter is a rule that stops adaptively chosen releases before their total exceeds a promise fixed at the
start. Basic composition (Σεᵢ ≤ ε and Σδᵢ ≤ δ) is one, and so is Σρᵢ ≤ ρ for zCDP. Numerical composition of
privacy loss distributions is not: it may be used only inside one plan fixed beforehand (`compose_plan`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

from curvedp.domain import Adjacency
from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.zcdp import epsilon_of_rho, rho_within


class Chargeable(Protocol):
    """What a budget needs to know of a release; every `Guarantee` says it."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def adjacency(self) -> Adjacency: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def theorem(self) -> str: ...
    @property
    def private(self) -> bool: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Expense:
    """A release stated by hand. `parameters={"zcdp_rho": ρ}` where it is ρ-zCDP."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    mechanism: str
    theorem: str
    private: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Amount:
    """An (ε, δ), and the ρ it stands for under the zCDP filter."""

    epsilon: float
    delta: float
    rho: float | None = None


@dataclass(frozen=True)
class Tally:
    """Exact sums over the charges made so far."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    charges: int = 0

    @classmethod
    def of(cls, groups: Iterable[tuple[float, float, float | None, int]]) -> Tally:
        """The sums of groups (ε, δ, ρ, how many charges of these)."""
        known = list(groups)
        return cls(
            epsilon=sum((count * exact(epsilon) for epsilon, _, _, count in known), Fraction(0)),
            delta=sum((count * exact(delta) for _, delta, _, count in known), Fraction(0)),
            rho=sum((count * exact(rho) for _, _, rho, count in known if rho is not None), Fraction(0)),
            charges=sum(count for *_, count in known),
        )


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
        rho = rho_of(release)
        if rho is None:
            raise LedgerRefused(
                "this budget has a zcdp filter and the mechanism states no zcdp_rho (it is not Gaussian "
                'throughout): use a Gaussian mechanism, or a ledger created with filter="basic"'
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


def compose_plan(guarantees: Sequence[Guarantee], *, delta: float) -> Expense:
    """The releases of `guarantees` as one expense (ε, delta).

    Valid only when the whole list, every parameter in it, is fixed before the first release is seen. ε is
    that of the composed privacy loss distribution, or Σεᵢ where Σδᵢ ≤ delta and that is less.
    """
    if not guarantees:
        raise InvalidInput("a plan needs at least one guarantee")
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"the delta of a plan must lie strictly between 0 and 1, got {delta!r}")
    first = guarantees[0]
    if any(g.adjacency != first.adjacency for g in guarantees):
        raise LedgerRefused("the releases of a plan must share one adjacency: plan them all with the same")
    composed = first.to_pld()
    for guarantee in guarantees[1:]:
        composed = composed.compose(guarantee.to_pld())
    epsilon = float(composed.get_epsilon_for_delta(delta))
    rhos = [rho_of(g) for g in guarantees]
    tally = Tally.of((g.epsilon, g.delta, rho, 1) for g, rho in zip(guarantees, rhos, strict=True))
    if tally.delta <= exact(delta):
        epsilon = min(epsilon, round_up(tally.epsilon))
    if not math.isfinite(epsilon):
        raise InvalidInput(f"no epsilon gives this plan a delta of {delta!r}: pass a larger delta")
    return Expense(
        epsilon=epsilon,
        delta=delta,
        adjacency=first.adjacency,
        mechanism=f"plan of {len(guarantees)}: {', '.join(dict.fromkeys(g.mechanism for g in guarantees))}",
        theorem=f"composition of {', '.join(dict.fromkeys(g.theorem for g in guarantees))}",
        private=all(g.private for g in guarantees),
        parameters={} if None in rhos else {"zcdp_rho": round_up(tally.rho)},
    )


def rho_of(release: Chargeable) -> float | None:
    """The ρ of a release that says it is ρ-zCDP."""
    rho = release.parameters.get("zcdp_rho")
    if rho is None:
        return None
    if not (math.isfinite(rho) and rho >= 0):
        raise InvalidInput(f"zcdp_rho must be a finite number ≥ 0, got {rho!r}")
    return float(rho)


def exact(x: float) -> Fraction:
    """The number that a float stands for, so that sums are exact: 10 × 0.1 is 1, and so is 11 × (1/11).

    10ᵉ·p/q with q ≤ 10⁶ where that agrees with x to 15 significant digits, all that a float is sure to
    carry; the shortest decimal that reads back as x otherwise. Increasing in x.
    """
    decimal = Decimal(repr(float(x)))
    power = Fraction(10) ** decimal.adjusted() if decimal else Fraction(1)
    mantissa = Fraction(decimal) / power
    simple = mantissa.limit_denominator(10**6)
    return power * (simple if abs(simple - mantissa) <= abs(mantissa) / 10**15 else mantissa)


def round_down(value: Fraction) -> float:
    """A float that stands for at most `value` and differs from it by rounding only; 0 where value ≤ 0."""
    result = max(0.0, float(value))
    while result > 0.0 and exact(result) > value:
        result = math.nextafter(result, 0.0)
    return result


def round_up(value: Fraction) -> float:
    """A float that stands for at least `value` ≥ 0 and differs from it by rounding only."""
    result = float(value)
    while exact(result) < value:
        result = math.nextafter(result, math.inf)
    return result
