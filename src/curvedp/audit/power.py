"""How much an attack can prove: with endless fits, and with how many it proves half of the claim.

L = log p_P − log p_Q of a release from P. The smallest δ at which P and Q are (ε', δ)-indistinguishable is
E_P[(1 − e^{ε'−L})₊], whose mean over draws has little variance: it ranks attacks and says what the best one
reaches. Nothing is proved by it; that is left to counts of fresh fits.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from curvedp.arrays import FloatArray
from curvedp.audit import bounds
from curvedp.privacy.gaussian import calibrate_mu, epsilon_of

POWER = 0.5  # share of the claimed ε that an attack must prove before "no attack won" means anything
_BEHIND = 10  # draws behind the smallest δ that a sample can resolve
_THRESHOLDS = np.linspace(-3.0, 9.0, 241)  # of tests, in deviations
_ENDLESS = 1e13  # fits that nobody makes


def reach(ratio: FloatArray, delta: float) -> float:
    """The ε' with E[(1 − e^{ε'−L})₊] = δ, from draws of L under P; 0 where there is none.

    A δ that so few draws cannot resolve is reached from one that they can, along the curve of a Gaussian.
    """
    ratio = np.sort(ratio[~np.isnan(ratio)])
    if not len(ratio):
        return 0.0
    distance = _excess(ratio, 0.0)
    if distance <= 0:
        return 0.0
    resolved = min(max(delta, _BEHIND / len(ratio)), distance / 2)
    below, above = 0.0, 100.0
    while above - below > 1e-6:
        level = (below + above) / 2
        below, above = (level, above) if _excess(ratio, level) > resolved else (below, level)
    if not 0 < delta < resolved or below > 50:
        return below if distance > delta else 0.0
    return epsilon_of(delta, calibrate_mu(below, resolved))


def _excess(ratio: FloatArray, epsilon: float) -> float:
    return float(np.maximum(-np.expm1(epsilon - ratio), 0.0).mean())


def expected_epsilon(epsilon: float, delta: float, tests: float, alpha: float) -> float:
    """What the best threshold proves at δ when so many fits a side give the counts that are to be expected.

    P and Q are those of a Gaussian mechanism with this (ε, δ); for δ = 0, of randomised response.
    """
    if delta > 0:
        mu = calibrate_mu(epsilon, delta)
        p, q = special.ndtr(mu - _THRESHOLDS), special.ndtr(-_THRESHOLDS)
    else:
        p = np.array([special.expit(epsilon)])
        q = np.array([special.expit(-epsilon)])
    lower = special.betaincinv(tests * p, tests * (1 - p) + 1, alpha)
    upper = special.betainccinv(tests * q + 1, tests * (1 - q), alpha)
    return float(np.nanmax(bounds.epsilon_bound(lower, upper, delta)))


def needed_tests(epsilon: float, delta: float, target: float, alpha: float) -> int | None:
    """Fits a side at which an attack that reaches ε is expected to prove `target`; None: none are enough."""
    if not target < epsilon:
        return None
    low, high = 0.0, math.log(_ENDLESS)
    if expected_epsilon(epsilon, delta, _ENDLESS, alpha) < target:
        return None
    while high - low > 0.01:
        middle = (low + high) / 2
        enough = expected_epsilon(epsilon, delta, math.exp(middle), alpha) >= target
        low, high = (low, middle) if enough else (middle, high)
    return math.ceil(math.exp(high))
