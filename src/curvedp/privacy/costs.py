"""What a release takes from a Gaussian budget, and how such a budget is laid out (docs/theory.md, "Filters").

A release *costs* (μ, e, d) when between neighbours, in either order, at every real level ℓ,

    H_ℓ ≤ d + H_Φ(ℓ − e; μ).

Adaptively chosen releases cost (√Σμ², Σe, Σd) against a box (m, e, d) that was fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import erfinv, ndtr, ndtri_exp

from curvedp.amounts import exact, round_up
from curvedp.arrays import FloatArray
from curvedp.privacy.gaussian import calibrate_mu, epsilon_of, hockey_stick

RUNGS = 4  # boxes that hold a part of ε for releases that are not Gaussian, beside the one that holds none
RUNG_SHARE = 0.01  # of δ, for each of them: what is left pays 122 fits of 0.25 out of 3 (a test)
LEFTOVER_SHARE = 0.01  # of δ, for what releases add to their Gaussian curves
OTHER_SHARE = 1e-3  # of a release's own δ: what may lie above the Gaussian curve that is found for it
_UP, _DOWN = 1 + 1e-12, 1 - 1e-12  # cover the rounding of a few operations
_FARTHEST, _LEAST_DELTA = 1e3, 1e-300  # beyond these no Gaussian curve is evaluated: μ ≤ 100 is safe
_POINTS = 64  # levels at which two curves are compared
_HALVINGS = 40  # of a bracket of log μ: below 1e-12 of it
_WIDEST = 100.0  # a shift beyond which nothing is promised


@dataclass(frozen=True)
class Cost:
    """H_ℓ ≤ delta + H_Φ(ℓ − epsilon; mu) at every real ℓ, in both orders of the neighbours."""

    mu: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0

    def delta_at(self, epsilon: float) -> float:
        """What it promises at one level; rounded up."""
        return min(1.0, (self.delta + hockey_stick(epsilon - self.epsilon, self.mu)) * _UP)

    def epsilon_at(self, delta: float) -> float:
        """The least level found at which it promises `delta`; rounded up."""
        if not self.delta < delta:
            return self.epsilon if self.mu == 0 and self.delta == delta else math.inf
        return (self.epsilon + epsilon_of((delta - self.delta) * _DOWN, self.mu)) * _UP


def together(costs: Iterable[Cost]) -> Cost:
    """(√Σμ², Σe, Σd), rounded up."""
    parts = list(costs)
    squares = sum((Fraction(part.mu) ** 2 for part in parts), Fraction(0))
    return Cost(
        root_up(squares),
        round_up(sum((exact(part.epsilon) for part in parts), Fraction(0))),
        round_up(sum((exact(part.delta) for part in parts), Fraction(0))),
    )


def _root(square: Fraction) -> Fraction:
    """√square to at least 64 bits, from below; 0 where square ≤ 0.

    Not by way of a float: that of a square may underflow where its root does not.
    """
    if square <= 0:
        return Fraction(0)
    shift = max(0, 65 + (square.denominator.bit_length() - square.numerator.bit_length()) // 2)
    return Fraction(math.isqrt((square.numerator << 2 * shift) // square.denominator), 1 << shift)


def root_up(square: Fraction) -> float:
    """A float whose square is at least `square`, next to the root."""
    root = float(_root(square))
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def root_down(square: Fraction) -> float:
    """A float ≥ 0 whose square is at most `square`, next to the root; 0 where square ≤ 0."""
    root = float(_root(square))
    while root > 0 and Fraction(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    return root


def pure_mu(epsilon: float) -> float:
    """μ = 2Φ⁻¹(e^ε/(1+e^ε)), rounded up: every ε-private mechanism costs (μ, 0, 0)."""
    if epsilon < 1:  # 2Φ(μ/2) − 1 = tanh(ε/2), without cancellation
        return float(2 * math.sqrt(2) * erfinv(math.tanh(epsilon / 2))) * _UP
    return float(-2 * ndtri_exp(-np.logaddexp(0.0, epsilon))) * _UP


def pure_epsilon(mu: float) -> float:
    """The largest ε found with pure_mu(ε) ≤ μ; rounded down."""
    if mu > 70:  # Φ(−μ/2) is no double, and less than e^(−μ²/8)/2
        return mu * mu / 8
    epsilon = (
        math.log(ndtr(mu / 2) / ndtr(-mu / 2)) if mu > 1 else 2 * math.atanh(math.erf(mu / math.sqrt(8)))
    )
    step = 1e-12
    while epsilon > 0 and pure_mu(epsilon) > mu:
        epsilon *= 1 - step
        step *= 2
    return epsilon


def calibrated(mu: float, delta: float) -> tuple[float, float]:
    """The (ε, δ) of the largest ε found such that a release calibrated to it costs μ > 0 at most.

    Pure where δ = 0; with less δ than asked for where μ alone has it at ε = 0.
    """
    if delta <= 0:
        return pure_epsilon(mu), 0.0
    delta = min(delta, hockey_stick(0.0, mu) / 2)
    epsilon, step = epsilon_of(delta, mu), 1e-15
    while calibrate_mu(epsilon, delta) > mu:
        epsilon *= 1 - step
        step *= 2
    return epsilon, delta


@lru_cache(maxsize=64)
def boxes(epsilon: float, delta: float) -> tuple[Cost, ...]:
    """Boxes (m_k, e_k, d_k) with e_k = kε/4, k = 0…4, whose promises at ε add up to δ at most.

    The first has m with H_Φ(ε; m) = 0.95δ and d = δ/100, the last m = 0; each but the first has δ/100.
    Where δ = 0, and for budgets of no use, there is the last one alone: Σε ≤ ε and Σδ ≤ δ.
    """
    if delta < _LEAST_DELTA or epsilon > _FARTHEST:
        return (Cost(0.0, epsilon, delta),)
    share, rungs = RUNG_SHARE * delta * _DOWN, []
    for k in range(RUNGS):
        whole = (1 - RUNGS * RUNG_SHARE) * delta * _DOWN if k == 0 else share
        leftover = LEFTOVER_SHARE * delta if k == 0 else share / 10
        level = epsilon * (1 - k / RUNGS) * _DOWN
        rungs.append(Cost(calibrate_mu(level, (whole - leftover) * _DOWN), epsilon * k / RUNGS, leftover))
    return (*rungs, Cost(0.0, epsilon, share))


def least_mu(deltas: Callable[[FloatArray], FloatArray], leftover: float) -> float | None:
    """The least μ found with δ(ε) ≤ leftover + H_Φ(ε; μ) at every real ε; None where none is below 100.

    `deltas` bounds from above a curve that is convex in x = e^ε, falls, and holds in both orders. Between
    neighbouring points of a grid it lies below the chord of its bounds, H_Φ above each of its tangents; and
    beyond the last point below `leftover`. At −ε both are what they are at ε: δ(−ε) = 1 − e^−ε + e^−ε δ(ε).
    """
    at_zero = float(deltas(np.zeros(1))[0]) - leftover
    if not at_zero < 1:
        return None
    least = max(pure_mu(2 * math.atanh(max(at_zero, 0.0))), 1e-9)
    top = 4 * least
    while float(deltas(np.array([top]))[0]) > leftover:
        top *= 1.25
        if top > _WIDEST:
            return None
    points = np.linspace(0.0, top, _POINTS)
    bounds = np.minimum.accumulate(deltas(points)) - leftover
    high = least
    while not _chords_lie_below(points, bounds, high):
        high *= 1.25
        if high > _WIDEST:
            return None
    low = least
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _chords_lie_below(points, bounds, middle) else (middle, high)
    return high


def _chords_lie_below(points: FloatArray, bounds: FloatArray, mu: float) -> bool:
    """Whether each chord of (e^ε, bounds) lies below H_Φ(·; μ), by a tangent at an end or in the middle."""
    left, right = points[:-1], points[1:]
    proved = np.zeros(left.shape, dtype=bool)
    for at in (left, (left + right) / 2, right):
        height = np.asarray(hockey_stick(at, mu)) * (1 - 1e-11)  # it rounds up
        slope = ndtr(-mu / 2 - at / mu)  # −dH/dx
        before = slope * np.exp(at) * -np.expm1(left - at) * (1 - 1e-11)
        after = slope * np.exp(at) * np.expm1(right - at) * (1 + 1e-11)
        proved |= (bounds[:-1] <= height + before) & (bounds[1:] <= height - after)
    return bool(proved.all())
