"""δ(ε) curves of whole mechanisms: a law of the curvature's loss and a Gaussian shift, evaluated by (P-3)."""

from __future__ import annotations

import decimal
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Literal, Protocol

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput, NotCovered
from curvedp.numbers import exact, round_down
from curvedp.privacy import gaussian
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.privacy.curvature import Directional, Spectral
from curvedp.privacy.gaussian import Cost
from curvedp.privacy.guarantee import Guarantee

AccountingName = Literal["auto", "spectral", "directional"]
_LARGEST_EPSILON = 1e4  # that is searched
_POINTS = 1000  # levels of a loss distribution: half of them equally spaced, half geometrically
_NEGLIGIBLE = 1e-18  # δ below which levels end, as where it stops falling
_FARTHEST = 100.0  # level


class LossFamily(Hashable, Protocol):
    """The loss ℓ* (P-4) of one random curvature, for each ratio g = L/σ²: proved, or a draft for searches."""

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        """A bound of E[H_Φ(ε − ℓ*; μ)] (P-3) at every level of the 1-d array `epsilon`, rounded up."""


class Curve(ABC):
    """An upper bound δ(ε) on the hockey-stick divergence of a mechanism, both directions."""

    @abstractmethod
    def deltas(self, epsilon: FloatArray) -> FloatArray:
        """The bound at an array of levels ε ≥ 0; rounded up."""

    def delta_at(self, epsilon: float) -> float:
        """δ(ε), rounded up."""
        if not (isinstance(epsilon, (int, float, np.integer, np.floating)) and epsilon >= 0):
            raise InvalidInput(f"epsilon must be a number ≥ 0, got {epsilon!r}")
        return _delta_at(self, float(epsilon))

    def epsilon_at(self, delta: float) -> float:
        """The smallest ε ≥ 0 found with δ(ε) ≤ delta, rounded up; ∞ when there is none below 1e4."""
        gaussian.check_budget(0.0, delta)
        if self.delta_at(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta_at(high) > delta:
            high *= 2.0
            if high > _LARGEST_EPSILON:
                return math.inf

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta_at(epsilon), 1e-320)) - math.log(delta)

        found = gaussian.brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-10)
        return gaussian.raised(found, lambda epsilon: self.delta_at(epsilon) <= delta, 1e-12, 1.0)

    def gaussian_cost(self, leftover: float) -> Cost | None:
        """(μ, 0, d) with the least μ found for d = `leftover`; None where there is none ("Filters")."""
        return _gaussian_cost(self, leftover)

    def to_pld(self, discretization: float = 1e-4) -> Any:
        """A dp_accounting PrivacyLossDistribution whose hockey-stick curve is at least δ(ε), in both orders.

        The true curve is convex in e^ε, so the lower convex hull of upper bounds at grid points bounds it
        between them as well ("connect the dots"). Both directions obey the same bound, hence δ(−ε) = 1 − e^−ε
        + e^−ε δ(ε). For plans fixed beforehand only: numerical composition is no filter ("Filters").
        """
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # slow to load, and seldom needed

        if not discretization > 0:
            raise InvalidInput(f"discretization must be a positive number, got {discretization!r}")
        top, floor = 1.0, self.deltas(np.array([_FARTHEST]))[0]
        while top < _FARTHEST and self.deltas(np.array([top]))[0] > 1.001 * floor + _NEGLIGIBLE:
            top *= 1.5
        spaced = [np.linspace(0.0, top, _POINTS // 2), np.geomspace(discretization, top, _POINTS // 2)]
        levels: Any = np.unique(np.rint(np.concatenate(spaced) / discretization).astype(np.int64))
        positive = levels * discretization
        delta = np.minimum.accumulate(self.deltas(positive))
        mirrored = -np.expm1(-positive) + np.exp(-positive) * delta
        rounded = np.concatenate([-levels[:0:-1], levels])
        values = np.minimum.accumulate(np.concatenate([mirrored[:0:-1], delta]))
        keep = _lower_hull(rounded * discretization, values)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(discretization, rounded[keep], values[keep])
        return privacy_loss_distribution.PrivacyLossDistribution(pmf)


@lru_cache(maxsize=4096)
def _delta_at(curve: Curve, epsilon: float) -> float:
    """Evaluated once: a calibration's last check is the guarantee's proof."""
    return float(curve.deltas(np.array([epsilon]))[0])


@lru_cache(maxsize=256)
def _gaussian_cost(curve: Curve, leftover: float) -> Cost | None:
    mu = gaussian.least_mu(curve.deltas, leftover)
    return None if mu is None else Cost(mu, 0.0, leftover)


@dataclass(frozen=True)
class CurvatureProfile(Curve):
    """δ(ε) ≤ E_W[H_Φ(ε − ℓ*(W); μ)] + excess  (Theorem A, (P-3)): curvature at ratio g, Gaussian shift μ.

    `excess` is what the discreteness of noise and rare draws of it add at every level; beyond `cap`, above
    which rare draws may cost more, the curve stays as it is there ("Certificates").
    """

    accounting: LossFamily
    g: float
    mu: float
    excess: float = 0.0
    cap: float = math.inf

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        levels = np.minimum(epsilon, self.cap)
        if levels.size == 1:  # what a calibration evaluated, with another excess
            value = np.array([_divergence(self.accounting, self.g, self.mu, float(levels[0]))])
        else:
            value = self.accounting.divergence(self.g, levels, self.mu)
        return np.minimum(value + self.excess, 1.0)


@lru_cache(maxsize=4096)
def _divergence(accounting: LossFamily, g: float, mu: float, epsilon: float) -> float:
    return float(accounting.divergence(g, np.array([epsilon]), mu)[0])


@dataclass(frozen=True)
class GaussianProfile(Curve):
    """δ(ε) = H_Φ(ε; μ) + excess  (P-2): Gaussian mechanisms of total shift μ, nothing else.

    `excess` and `cap` as in `CurvatureProfile`.
    """

    mu: float
    excess: float = 0.0
    cap: float = math.inf

    def gaussian_cost(self, leftover: float) -> Cost:
        """(μ, 0, excess), and what the curve no longer falls by beyond `cap`, whatever `leftover` is."""
        return Cost(self.mu, 0.0, self.excess + gaussian.hockey_stick(self.cap, self.mu))

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        value = np.asarray(gaussian.hockey_stick(np.minimum(epsilon, self.cap), self.mu))
        return np.minimum(value + self.excess, 1.0)


@dataclass(frozen=True)
class PointProfile(Curve):
    """All that one proved (ε0, δ0) says of every ε: δ(ε) = δ0 + (1−δ0)(e^ε0 − e^ε)₊/(1 + e^ε0)."""

    epsilon: float
    delta: float

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        gap = np.maximum(self.epsilon - epsilon, 0.0)  # (e^ε0 − e^ε)/(1+e^ε0), without overflow
        excess = (1 - self.delta) * -np.expm1(-gap) / (1 + math.exp(-self.epsilon))
        return np.minimum(self.delta + excess, 1.0)

    def gaussian_cost(self, leftover: float) -> Cost:
        """(2Φ⁻¹(e^ε0/(1+e^ε0)), 0, δ0), whatever `leftover` is."""
        return Cost(gaussian.pure_mu(self.epsilon), 0.0, self.delta)


@dataclass(frozen=True)
class TabledProfile(Curve):
    """What proved (ε_i, δ_i) say of every ε: δ_i at ε_i, elsewhere the least of their point profiles."""

    points: tuple[tuple[float, float], ...]

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        least = np.min([PointProfile(*point).deltas(epsilon) for point in self.points], axis=0)
        known = dict(self.points)
        return np.array([known.get(e, d) for e, d in zip(epsilon.tolist(), least.tolist(), strict=True)])


@dataclass(frozen=True)
class PureProfile(PointProfile):
    """Pure ε-differential privacy: δ(ε0) = 0."""

    delta: float = 0.0


def curvature_accounting(
    d: int, m: float, *, rank: int, classes: int, adjacency: Adjacency, accounting: str
) -> Directional | Spectral:
    """The accounting by name; "auto" is directional (P-6) for linear models with one output, else spectral
    (P-5)."""
    linear = rank == 1 and classes == 1
    if accounting not in ("auto", "spectral", "directional"):
        raise InvalidInput(
            f'accounting must be "auto", "spectral" or "directional" here, got {accounting!r}; '
            '"paper" is a calibration, not a curve: see calibrate_qop'
        )
    if accounting == "spectral" or (accounting == "auto" and not linear):
        return Spectral(d, m, rank, adjacency, classes)
    if not linear:
        raise NotCovered(
            "the directional accounting (P-6) covers linear models with one output and rank-one Hessians; "
            "for several classes pass `accounting=spectral`"
        )
    return Directional(d, m, adjacency)


def count_shift(epsilon: float, delta: float) -> float:
    """The shift that a count of the rows gets where their number is private: a four-hundredth of μ²."""
    return min(0.05 * gaussian.calibrate_mu(epsilon, delta), 1.0)


def rare_cap(epsilon: float, rare: float) -> float:
    """The level up to which `rare` pays for draws of probability e^`log_rare_probability`; ∞ without any."""
    return min(2.0 * epsilon + 2.0, epsilon + 10.0) if rare > 0 else math.inf


def log_rare_probability(epsilon: float, rare: float) -> float:
    """log p with (1 + e^cap)·p = rare: a branch that the noise takes with probability p costs `rare` of δ."""
    return math.log(rare) - float(np.logaddexp(0.0, rare_cap(epsilon, rare)))


def _lower_hull(epsilon: FloatArray, values: FloatArray) -> list[int]:
    """Indices of the lower convex hull of the points (e^ε, δ)."""
    hull: list[int] = []
    for k in range(epsilon.size):
        while len(hull) >= 2:
            i, j = hull[-2:]
            left, right = -np.expm1(epsilon[i] - epsilon[j]), np.expm1(epsilon[k] - epsilon[j])
            if (values[j] - values[i]) * right < (values[k] - values[j]) * left:
                break  # point j lies below the chord from i to k, in units of e^ε_j
            hull.pop()
        hull.append(k)
    return hull


# Releases together: composed where all were fixed beforehand, by their privacy loss distributions, and
# the best of several private trials (T-1).

LARGEST_PURE = 100.0  # ε in all: e⁻¹⁰⁰ of a loss distribution is still there after truncation
_HALVINGS = 12  # of the range of a factor
LAW_ERROR = 1e-12  # total variation between `trials` and the Poisson law, at most
TRIALS_AT_MOST = 10**4  # on average: up to there the law is so near (T-1)


@dataclass(frozen=True, eq=False)
class ComposedProfile(Curve):
    """δ(ε) of a composed distribution, or of basic composition at one (ε, δ) where that is less."""

    pld: Any
    basic: tuple[float, float]  # (Σε, Σδ), which holds too
    cost: Cost | None = None  # of all of them together

    def gaussian_cost(self, leftover: float) -> Cost | None:
        return self.cost or super().gaussian_cost(leftover)

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        deltas = [float(self.pld.get_delta_for_epsilon(float(level))) for level in epsilon]
        return np.where(epsilon >= self.basic[0], np.minimum(deltas, self.basic[1]), deltas)

    def epsilon_at(self, delta: float) -> float:
        def holds(epsilon: float) -> bool:
            return math.isinf(epsilon) or self.delta_at(epsilon) <= delta

        found = float(self.pld.get_epsilon_for_delta(delta))  # good to rounding
        epsilon = gaussian.raised(found, holds, 1e-12, 1.0)
        return min(epsilon, self.basic[0]) if self.basic[1] <= delta else epsilon

    def to_pld(self, discretization: float = 1e-4) -> Any:
        return self.pld


def composed_profile(parts: Sequence[Guarantee], delta: float) -> ComposedProfile:
    """The profile of releases that are all fixed before the first is seen; it must reach `delta`."""
    if any(part.neighbours != parts[0].neighbours for part in parts):
        raise InvalidInput("releases are composed for the same neighbours: plan them all with one adjacency")
    pld = _composed(tuple(part.profile for part in parts))
    costs = [part.profile.gaussian_cost(gaussian.OTHER_SHARE * part.delta) for part in parts]
    known = [cost for cost in costs if cost is not None]
    basic = gaussian.sum_up(part.epsilon for part in parts), gaussian.sum_up(part.delta for part in parts)
    profile = ComposedProfile(pld, basic, gaussian.together(known) if len(known) == len(parts) else None)
    if not math.isfinite(profile.epsilon_at(delta)):
        raise InvalidInput(f"no epsilon gives these releases a delta of {delta!r}: pass a larger delta")
    return profile


def pure_profile(epsilons: Sequence[float]) -> ComposedProfile:
    """Of releases of pure ε_1, …, ε_k: δ = 0 at Σε_i, less than that allows below, and the squares of
    2Φ⁻¹(e^ε_i/(1+e^ε_i)) as μ² (Q-2)."""
    cost = gaussian.together(Cost(gaussian.pure_mu(epsilon)) for epsilon in epsilons)
    pld = _composed(tuple(PureProfile(epsilon) for epsilon in sorted(epsilons)))
    return ComposedProfile(pld, (gaussian.sum_up(epsilons), 0.0), cost)


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
    refuse_beyond(budget)

    def scaled(factor: Fraction) -> tuple[float, ...]:
        unit = factor * exact(budget.epsilon) / (sum(shares) * repeats)
        return tuple(round_down(unit * share) for share in shares)

    plain = scaled(Fraction(1))
    if budget.delta == 0 or repeats * len(shares) < 2:
        return plain, Budget(budget.epsilon)
    low, high = Fraction(1), Fraction(repeats * len(shares))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = pure_profile(scaled(middle) * repeats).delta_at(budget.epsilon) <= budget.delta
        low, high = (middle, high) if fits else (low, middle)
    return (plain, Budget(budget.epsilon)) if low == 1 else (scaled(low), budget)


@lru_cache(maxsize=64)
def _composed(profiles: tuple[Curve, ...]) -> Any:
    """The composed distribution; equal profiles are turned into distributions once."""
    plds = [profile.to_pld().self_compose(profiles.count(profile)) for profile in dict.fromkeys(profiles)]
    return reduce(lambda one, other: one.compose(other), plds)


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
