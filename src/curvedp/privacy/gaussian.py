"""The Gaussian mechanism, exactly: its hockey-stick divergence (P-2) and the two inverses of it.

Everything rounds towards more noise: `hockey_stick` is an upper bound within 1e-11 of (P-2), relative,
`calibrate_mu` and `epsilon_of` are checked against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, erfinv, ndtr, ndtri_exp

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.numbers import exact, round_up

# Rounding errors in (P-2) stay below 1e-12 of the value for μ ≤ 100: this factor makes an upper bound of it.
_ROUND_UP = 1.0 + 2e-12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_TINY = 1e-320  # keeps logarithms finite
_OUT_OF_SIGHT = 40.0  # φ(40) is 0 in double precision


def _mills(x: FloatArray) -> FloatArray:
    """R(x) = Φ(x)/φ(x), increasing; for x ≤ 1 or so."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x * -math.sqrt(0.5)), dtype=np.float64)


def _mills_slope(x: FloatArray) -> FloatArray:
    """R'(x) = 1 + x R(x); below −5 by Laplace's continued fraction, where that sum cancels."""
    z = np.maximum(-x, 5.0)
    tail = np.zeros_like(z)
    for j in range(30, 0, -1):
        tail = j / (z + tail)
    return np.asarray(np.where(x < -5.0, tail / (z + tail), 1.0 + x * _mills(np.maximum(x, -5.0))))


def _hockey_stick_nonnegative(epsilon: FloatArray, mu: FloatArray, a: FloatArray) -> FloatArray:
    """(P-2) for ε ≥ 0 and a = μ/2 − ε/μ > −40, without cancellation.

    With b = a − μ, φ(a) = e^ε φ(b), hence H = φ(a)(R(a) − R(b)) = φ(a)∫_b^a R'.
    """
    pdf = np.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    mills_b = _mills(-mu / 2 - epsilon / mu)
    value = pdf * (_mills(np.minimum(a, 0.0)) - mills_b)
    above = a > 0
    value[above] = ndtr(a[above]) - pdf[above] * mills_b[above]
    close = mu * 256 < 1 + np.abs(a)  # R(a) − R(b) would cancel: integrate R' instead
    if close.any():
        points = a[close, None] - mu[close, None] * (1 - _NODES) / 2
        value[close] = pdf[close] * mu[close] * (_mills_slope(points) @ (_WEIGHTS / 2))
    return np.asarray(value)


@overload
def hockey_stick(epsilon: float, mu: float) -> float: ...
@overload
def hockey_stick(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray | float: ...
def hockey_stick(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray | float:
    """H_Φ(ε; μ) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), H_Φ(ε; 0) = max(0, 1 − e^ε)  (P-2), rounded up.

    The smallest δ at which two unit Gaussians at distance μ are (ε, δ)-indistinguishable, for every
    real ε (−∞ gives 1, +∞ gives 0) and μ ≥ 0; arrays broadcast. A value below 1e-300 may come out as 0.
    """
    level, shift = np.broadcast_arrays(
        np.asarray(epsilon, dtype=np.float64), np.asarray(mu, dtype=np.float64)
    )
    if np.isnan(level).any() or not (shift >= 0).all():
        raise InvalidInput("hockey_stick needs a real epsilon (not NaN) and a shift mu ≥ 0")
    size = np.abs(level)
    value = np.asarray(np.isinf(shift), dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        a = shift / 2 - size / shift
        seen = (a > -_OUT_OF_SIGHT) & (value == 0)
        value[seen] = _hockey_stick_nonnegative(size[seen], shift[seen], a[seen])
    # H(−ε) = 1 − e^−ε + e^−ε H(ε): no cancellation for negative levels.
    negative = level < 0
    value[negative] = -np.expm1(level[negative]) + np.exp(level[negative]) * value[negative]
    value = np.minimum(value * _ROUND_UP, 1.0)
    return float(value) if value.ndim == 0 else value


def require_number(name: str, value: float, *, positive: bool = False) -> None:
    """Refuse what is not a finite number ≥ 0 (> 0 where `positive`)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInput(f"{name} must be a number, got {type(value).__name__}")
    if not (math.isfinite(value) and (value > 0 or (value == 0 and not positive))):
        raise InvalidInput(f"{name} must be a finite number {'>' if positive else '≥'} 0, got {value!r}")


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse an (ε, δ) that no calibration can use: ε must be finite and ≥ 0, δ strictly inside (0, 1)."""
    require_number("epsilon", epsilon)
    if isinstance(delta, bool) or not isinstance(delta, (int, float, np.integer, np.floating)):
        raise InvalidInput(f"delta must be a number, got {type(delta).__name__}")
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie strictly between 0 and 1, got {delta!r}; 1e-6 is a common choice")


@lru_cache(maxsize=1024, typed=True)
def calibrate_mu(epsilon: float, delta: float) -> float:
    """The largest shift μ with H_Φ(ε; μ) ≤ δ (P-2), rounded down: noise σ = sensitivity/μ is enough."""
    check_budget(epsilon, delta)

    def excess(log_mu: float) -> float:
        return math.log(max(hockey_stick(epsilon, math.exp(log_mu)), _TINY)) - math.log(delta)

    high = 0.0
    while excess(high) <= 0:
        high += 1.0
    low = high - 1.0
    while excess(low) > 0:
        low -= 1.0
    found = math.exp(brentq(excess, low, high, xtol=1e-15, rtol=1e-14))
    return _lowered(found, lambda mu: hockey_stick(epsilon, mu) <= delta)


def _lowered(x: float, holds: Callable[[float], bool], step: float = 1e-15) -> float:
    """x, as a search found it, lowered by steps that double until it `holds`."""
    while not holds(x):
        x *= 1.0 - step
        step *= 2.0
    return x


def raised(x: float, holds: Callable[[float], bool], step: float = 1e-15, unit: float = 0.0) -> float:
    """x raised likewise, by steps in units of x, of `unit` where that is larger."""
    while not holds(x):
        x += step * max(x, unit)
        step *= 2.0
    return x


def brentq(f: Callable[[float], float], low: float, high: float, xtol: float, rtol: float) -> float:
    """x with f(x) = 0 between points where f has two signs, to the last bit as scipy.optimize finds it.

    Here, since that takes longer to load than a ledger takes to refuse.
    """
    before, x, other = low, high, 0.0
    f_before, f_x, f_other = f(before), f(x), 0.0
    step_before = step = 0.0
    while f_x != 0:
        if f_before != 0 and (f_before < 0) != (f_x < 0):
            other, f_other = before, f_before
            step_before = step = x - before
        if abs(f_other) < abs(f_x):
            before, x, other = x, other, x
            f_before, f_x, f_other = f_x, f_other, f_x
        least, half = (xtol + rtol * abs(x)) / 2, (other - x) / 2
        if f_x == 0 or abs(half) < least:
            break
        tried = math.inf
        if abs(step_before) > least and abs(f_x) < abs(f_before):
            if before == other:
                tried = -f_x * (x - before) / (f_x - f_before)
            else:
                slope, across = (f_before - f_x) / (before - x), (f_other - f_x) / (other - x)
                tried = -f_x * (f_other * across - f_before * slope) / (across * slope * (f_other - f_before))
        if 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - least):
            step_before, step = step, tried
        else:
            step_before = step = half
        before, f_before = x, f_x
        x += step if abs(step) > least else math.copysign(least, half)
        f_x = f(x)
    return x


def epsilon_of(delta: float, mu: float) -> float:
    """The smallest ε ≥ 0 with H_Φ(ε; μ) ≤ δ (P-2), rounded up."""
    check_budget(0.0, delta)
    require_number("mu", mu)
    if hockey_stick(0.0, mu) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return math.log(max(hockey_stick(epsilon, mu), _TINY)) - math.log(delta)

    high = mu * mu / 2 + mu
    while excess(high) > 0:
        high *= 2.0
    found = brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14)
    return raised(found, lambda epsilon: hockey_stick(epsilon, mu) <= delta)


def discrete_gaussian_excess(mu: float, *, d: int, steps_per_sigma: float) -> float:
    """What the discrete Gaussian adds to δ over (P-2), at every level at once ("discrete-gaussian").

    Let b have independent coordinates with P(b = hk) ∝ exp(−h²k²/(2σ²)), k ∈ Z, s = σ/h ≥ 1, and let v be a
    grid vector with ‖v‖ ≤ μσ. With λ = 1/(24s²) and N = 1 + 3e^{−2π²s²}, for every real ε

        H_ε(v + b ‖ b) ≤ H_Φ(ε; μ) + dλ + [ N^{2d} (1−2λ)^{−d/2} e^{λμ²/(1−2λ)} − 1 ].

    About (2d + μ²)/(24s²): 1e-13·d at 2²⁰ steps. μ is the shift of the points once they are on the grid.
    """
    require_number("mu", mu)
    if d < 1:
        raise InvalidInput(f"the dimension d must be at least 1, got {d!r}")
    if not steps_per_sigma >= 1:
        raise InvalidInput(f"steps_per_sigma must be at least 1, got {steps_per_sigma!r}")
    lam = 1.0 / (24.0 * steps_per_sigma**2)
    log_normaliser = math.log1p(3.0 * math.exp(-2.0 * (math.pi * steps_per_sigma) ** 2))
    exponent = 2 * d * log_normaliser - d / 2 * math.log1p(-2 * lam) + lam * mu**2 / (1 - 2 * lam)
    return _ROUND_UP * (d * lam + math.expm1(exponent))


# What a release takes from a Gaussian budget, and how such a budget is laid out (docs/theory.md, "Filters").
#
# A release *costs* (μ, e, d) when between neighbours, in either order, at every real level ℓ,
#
#     H_ℓ ≤ d + H_Φ(ℓ − e; μ).
#
# Adaptively chosen releases cost (√Σμ², Σe, Σd) against a box (m, e, d) that was fixed beforehand.

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
    return Cost(root_up(squares), sum_up(p.epsilon for p in parts), sum_up(p.delta for p in parts))


def sum_up(values: Iterable[float]) -> float:
    """Σ of the numbers that these floats stand for, rounded up."""
    return round_up(sum(map(exact, values), Fraction(0)))


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
    return _lowered(epsilon, lambda epsilon: epsilon <= 0 or pure_mu(epsilon) <= mu, 1e-12)


def calibrated(mu: float, delta: float) -> tuple[float, float]:
    """The (ε, δ) of the largest ε found such that a release calibrated to it costs μ > 0 at most.

    Pure where δ = 0; with less δ than asked for where μ alone has it at ε = 0.
    """
    if delta <= 0:
        return pure_epsilon(mu), 0.0
    delta = min(delta, hockey_stick(0.0, mu) / 2)
    return _lowered(epsilon_of(delta, mu), lambda epsilon: calibrate_mu(epsilon, delta) <= mu), delta


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
    low, high = least, least
    while not _chords_lie_below(points, bounds, high):
        high *= 1.25
        if high > _WIDEST:
            return None
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
