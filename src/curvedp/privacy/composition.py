"""Releases together: composed where all were fixed beforehand, by their privacy loss distributions (Q-2), and
the best of several private trials (T-1)."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from curvedp.amounts import exact, round_down, round_up
from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.privacy.costs import OTHER_SHARE, Cost, pure_mu, together
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import CurvatureProfile, Curve, GaussianProfile, PureProfile

LARGEST_PURE = 100.0  # ε in all: e⁻¹⁰⁰ of a loss distribution is still there after truncation
_HALVINGS = 12  # of the range of a factor
LAW_ERROR = 1e-12  # total variation between `trials` and the Poisson law, at most
TRIALS_AT_MOST = 10**4  # on average: up to there the law is so near (T-1)


@dataclass(frozen=True, eq=False)
class ComposedProfile(Curve):
    """δ(ε) of a composed distribution, or of basic composition at one (ε, δ) where that is less."""

    pld: Any
    basic: tuple[float, float]  # (Σε, Σδ), which holds too
    gaussian: Cost | None = None  # of all of them together

    def gaussian_cost(self, leftover: float) -> Cost | None:
        return self.gaussian or super().gaussian_cost(leftover)

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        deltas = [float(self.pld.get_delta_for_epsilon(float(level))) for level in epsilon]
        return np.where(epsilon >= self.basic[0], np.minimum(deltas, self.basic[1]), deltas)

    def epsilon_at(self, delta: float) -> float:
        epsilon = float(self.pld.get_epsilon_for_delta(delta))
        step = 1e-12
        while math.isfinite(epsilon) and self.delta_at(epsilon) > delta:  # its inverse is good to rounding
            epsilon += step * max(epsilon, 1.0)
            step *= 2.0
        return min(epsilon, self.basic[0]) if self.basic[1] <= delta else epsilon

    def to_pld(self, discretization: float = 1e-4) -> Any:
        return self.pld


def composed_profile(parts: Sequence[Guarantee], delta: float) -> ComposedProfile:
    """The profile of releases that are all fixed before the first is seen; it must reach `delta`."""
    if any(part.neighbours != parts[0].neighbours for part in parts):
        raise InvalidInput("releases are composed for the same neighbours: plan them all with one adjacency")
    pld = _composed(tuple(part.profile for part in parts))
    costs = [part.profile.gaussian_cost(OTHER_SHARE * part.delta) for part in parts]
    known = [cost for cost in costs if cost is not None]
    basic = (_sum(part.epsilon for part in parts), _sum(part.delta for part in parts))
    profile = ComposedProfile(pld, basic, together(known) if len(known) == len(parts) else None)
    if not math.isfinite(profile.epsilon_at(delta)):
        raise InvalidInput(f"no epsilon gives these releases a delta of {delta!r}: pass a larger delta")
    return profile


def pure_profile(epsilons: Sequence[float]) -> ComposedProfile:
    """Of releases of pure ε_1, …, ε_k: δ = 0 at Σε_i, less than that allows below, and the squares of
    2Φ⁻¹(e^ε_i/(1+e^ε_i)) as μ² (Q-2)."""
    cost = together(Cost(pure_mu(epsilon)) for epsilon in epsilons)
    pld = _composed(tuple(PureProfile(epsilon) for epsilon in sorted(epsilons)))
    return ComposedProfile(pld, (_sum(epsilons), 0.0), cost)


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
def _composed(profiles: tuple[Curve, ...]) -> Any:
    """The composed distribution; equal profiles are turned into distributions once."""
    plds = [profile.to_pld().self_compose(profiles.count(profile)) for profile in dict.fromkeys(profiles)]
    return reduce(lambda one, other: one.compose(other), plds)


def _sum(values: Iterable[float]) -> float:
    return round_up(sum((exact(value) for value in values), Fraction(0)))


@dataclass(frozen=True)
class PoissonSelection(Curve):
    """The best of K ~ Poisson(mean) trials, a public answer for K = 0 (T-1):

        δ(ε) ≤ mean·δ_Q(ε − mean·δ_Q(0)) + (1 + e^ε)·LAW_ERROR,    δ_Q the curve of one trial.

    Beyond `cap` the curve stays as it is there, since the last term grows.
    """

    trial: Curve
    mean: float
    cap: float

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        level = np.minimum(epsilon, self.cap)
        left = level - self.mean * self.trial.delta_at(0.0) * (1 + 1e-12)
        gap = np.abs(left)
        at = self.trial.deltas(gap)
        at = np.where(left >= 0, at, -np.expm1(-gap) + np.exp(-gap) * at)  # both orders obey δ_Q
        return np.minimum(self.mean * at * (1 + 1e-12) + (1 + np.exp(level)) * LAW_ERROR, 1.0)


@dataclass(frozen=True)
class Worst(Curve):
    """The largest of several curves: of a mechanism that is one of them, whichever."""

    curves: tuple[Curve, ...]

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        return np.asarray(np.max([curve.deltas(epsilon) for curve in self.curves], axis=0))


def with_gaussian(profile: Curve, mu: float, excess: float, beyond: float = 0.0) -> Curve:
    """The curve of a release and, in the light of it, a Gaussian one of shift μ: fact (b) of (P-2).

    Rare draws cost (1 + e^ε)p: an excess that was stated for an ε that lies `beyond` lower grows by e^beyond.
    """
    if isinstance(profile, (GaussianProfile, CurvatureProfile)):
        more = profile.excess * math.exp(beyond) + excess
        return replace(profile, mu=math.hypot(profile.mu, mu) * (1 + 1e-15), excess=more)
    pld = profile.to_pld().compose(GaussianProfile(mu, excess).to_pld())
    return ComposedProfile(pld, (math.inf, 0.0))


def worst(curves: Sequence[Curve]) -> Curve:
    """The largest of the curves, equal ones counted once."""
    distinct = tuple(dict.fromkeys(curves))
    return distinct[0] if len(distinct) == 1 else Worst(distinct)


@lru_cache(maxsize=8)
def thresholds(mean: float) -> FloatArray:
    """P(K ≤ k) of Poisson(mean), k = 0, 1, …, each rounded to the nearest multiple of 2⁻⁵³ (T-1)."""
    count = int(mean + 20.0 * math.sqrt(mean) + 40.0)
    table = np.empty(count)
    with decimal.localcontext(prec=50):
        rate = Decimal(mean)
        term = total = (-rate).exp()
        for k in range(count):
            table[k] = math.ldexp(int((total * 2**53).to_integral_value()), -53)
            term = term * rate / (k + 1)
            total += term
    return table


def trials(random: np.random.Generator, mean: float) -> int:
    """K ~ Poisson(mean), mean ≤ 10⁴, by inversion of a 53-bit number: within LAW_ERROR of that law (T-1)."""
    return int(np.searchsorted(thresholds(mean), random.random(), side="right"))
