"""The Gaussian mechanism, exactly: its hockey-stick divergence (P-2) and the two inverses of it.

Everything rounds towards more noise: `hockey_stick` is an upper bound within 1e-11 of (P-2), relative,
`calibrate_mu` and `epsilon_of` are checked against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, ndtr

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput

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


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse an (ε, δ) that no calibration can use: ε must be finite and ≥ 0, δ strictly inside (0, 1)."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise InvalidInput(f"{name} must be a number, got {type(value).__name__}")
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InvalidInput(f"epsilon must be a finite number ≥ 0, got {epsilon!r}")
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie strictly between 0 and 1, got {delta!r}; 1e-6 is a common choice")


def calibrate_mu(epsilon: float, delta: float) -> float:
    """The largest shift μ with H_Φ(ε; μ) ≤ δ (P-2), rounded down: noise σ = sensitivity/μ is enough."""
    check_budget(epsilon, delta)
    return _calibrate_mu(float(epsilon), float(delta))


@lru_cache(maxsize=1024)
def _calibrate_mu(epsilon: float, delta: float) -> float:
    def excess(log_mu: float) -> float:
        return math.log(max(hockey_stick(epsilon, math.exp(log_mu)), _TINY)) - math.log(delta)

    high = 0.0
    while excess(high) <= 0:
        high += 1.0
    low = high - 1.0
    while excess(low) > 0:
        low -= 1.0
    mu = math.exp(brentq(excess, low, high, xtol=1e-15, rtol=1e-14))
    step = 1e-15
    while hockey_stick(epsilon, mu) > delta:
        mu *= 1.0 - step
        step *= 2.0
    return mu


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
    if not (mu >= 0 and math.isfinite(mu)):
        raise InvalidInput(f"mu must be a finite number ≥ 0, got {mu!r}")
    if hockey_stick(0.0, mu) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return math.log(max(hockey_stick(epsilon, mu), _TINY)) - math.log(delta)

    high = mu * mu / 2 + mu
    while excess(high) > 0:
        high *= 2.0
    epsilon = brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14)
    step = 1e-15
    while hockey_stick(epsilon, mu) > delta:
        epsilon += step * epsilon
        step *= 2.0
    return epsilon


def discrete_gaussian_excess(mu: float, *, d: int, steps_per_sigma: float) -> float:
    """What the discrete Gaussian adds to δ over (P-2), at every level at once ("discrete-gaussian").

    Let b have independent coordinates with P(b = hk) ∝ exp(−h²k²/(2σ²)), k ∈ Z, s = σ/h ≥ 1, and let v be a
    grid vector with ‖v‖ ≤ μσ. With λ = 1/(24s²) and N = 1 + 3e^{−2π²s²}, for every real ε

        H_ε(v + b ‖ b) ≤ H_Φ(ε; μ) + dλ + [ N^{2d} (1−2λ)^{−d/2} e^{λμ²/(1−2λ)} − 1 ].

    About (2d + μ²)/(24s²): 1e-13·d at 2²⁰ steps. μ is the shift of the points once they are on the grid.
    """
    if not (mu >= 0 and math.isfinite(mu)):
        raise InvalidInput(f"mu must be a finite number ≥ 0, got {mu!r}")
    if d < 1:
        raise InvalidInput(f"the dimension d must be at least 1, got {d!r}")
    if not steps_per_sigma >= 1:
        raise InvalidInput(f"steps_per_sigma must be at least 1, got {steps_per_sigma!r}")
    lam = 1.0 / (24.0 * steps_per_sigma**2)
    log_normaliser = math.log1p(3.0 * math.exp(-2.0 * (math.pi * steps_per_sigma) ** 2))
    exponent = 2 * d * log_normaliser - d / 2 * math.log1p(-2 * lam) + lam * mu**2 / (1 - 2 * lam)
    return _ROUND_UP * (d * lam + math.expm1(exponent))
