"""Choosing the best of several private trials: how δ(ε) grows (T-1)."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.privacy.composition import ComposedProfile
from curvedp.privacy.guarantee import Profile
from curvedp.privacy.profiles import CurvatureProfile, Curve, GaussianProfile

LAW_ERROR = 1e-12  # total variation between `trials` and the Poisson law, at most
TRIALS_AT_MOST = 10**4  # on average: up to there the law is so near (T-1)


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


def with_gaussian(profile: Profile, mu: float, excess: float, beyond: float = 0.0) -> Curve:
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
