"""Releases of pure ε₁, …, ε_k one after another, each chosen before the first: one profile for all (Q-2)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from curvedp.amounts import exact, round_down, round_up
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.privacy.composition import ComposedProfile
from curvedp.privacy.costs import Cost, pure_mu, together
from curvedp.privacy.profiles import PureProfile

_HALVINGS = 12
LARGEST_PURE = 100.0  # in all: e⁻¹⁰⁰ of a loss distribution is still there after truncation


def pure_profile(epsilons: Sequence[float]) -> ComposedProfile:
    """δ = 0 at Σε_i, less than that allows below, and the squares of 2Φ⁻¹(e^ε_i/(1+e^ε_i)) as μ²."""
    total = round_up(sum(map(exact, epsilons), Fraction(0)))
    cost = together(Cost(pure_mu(epsilon)) for epsilon in epsilons)
    return ComposedProfile(_composed(tuple(sorted(epsilons))), (total, 0.0), cost)


def refuse_beyond(budget: Budget) -> None:
    """Refuse an ε whose composition no loss distribution in doubles holds."""
    if budget.epsilon > LARGEST_PURE:
        raise InvalidInput(
            f"the epsilon of quantiles and bounds must be at most {LARGEST_PURE:g}, got {budget.epsilon:g}: "
            "pass less, 1 is a common choice"
        )


def pure_parts(budget: Budget, shares: Sequence[int], repeats: int) -> tuple[tuple[float, ...], Budget]:
    """ε_i ∝ shares such that all of them, `repeats` times each, stay within the budget; and what they cost.

    With δ > 0 they are as large as their composed privacy loss allows, if that exceeds ε/repeats in all;
    otherwise δ is not needed and not part of the cost.
    """

    def scaled(factor: Fraction) -> tuple[float, ...]:
        return tuple(
            round_down(factor * exact(budget.epsilon) * share / (sum(shares) * repeats)) for share in shares
        )

    def fits(factor: Fraction) -> bool:
        profile = pure_profile(scaled(factor) * repeats)
        return profile.delta_at(budget.epsilon) <= budget.delta

    refuse_beyond(budget)
    plain = scaled(Fraction(1))
    if budget.delta == 0 or repeats * len(shares) < 2:
        return plain, Budget(budget.epsilon)
    low, high = Fraction(1), Fraction(repeats * len(shares))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return (plain, Budget(budget.epsilon)) if low == 1 else (scaled(low), budget)


@lru_cache(maxsize=64)
def _composed(epsilons: tuple[float, ...]) -> Any:
    plds = [
        PureProfile(epsilon).to_pld().self_compose(epsilons.count(epsilon))
        for epsilon in sorted(set(epsilons))
    ]
    return reduce(lambda one, other: one.compose(other), plds)
