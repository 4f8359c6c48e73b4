"""From a δ(ε) curve to a privacy loss distribution that dominates it, for composition with dp_accounting.

For plans fixed beforehand only: numerical composition is no filter ("Filters").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput

_POINTS = 1000
_NEGLIGIBLE = 1e-18
_FARTHEST = 100.0


def pessimistic_pld(deltas: Callable[[FloatArray], FloatArray], discretization: float) -> Any:
    """A PrivacyLossDistribution whose hockey-stick curve is at least δ(ε) in both directions, at every ε.

    The true curve is convex in e^ε, so the lower convex hull of upper bounds at grid points bounds it
    between them as well ("connect the dots"). Both directions obey the same bound, hence δ(−ε) = 1 − e^−ε +
    e^−ε δ(ε).
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # slow to load, and seldom needed

    if not discretization > 0:
        raise InvalidInput(f"discretization must be a positive number, got {discretization!r}")
    levels = _levels(deltas, discretization)
    positive = levels * discretization
    delta = np.minimum.accumulate(deltas(positive))
    mirrored = -np.expm1(-positive) + np.exp(-positive) * delta
    rounded = np.concatenate([-levels[:0:-1], levels])
    values = np.minimum.accumulate(np.concatenate([mirrored[:0:-1], delta]))
    keep = _lower_hull(rounded * discretization, values)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(discretization, rounded[keep], values[keep])
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _levels(deltas: Callable[[FloatArray], FloatArray], discretization: float) -> Any:
    """Increasing integers from 0 on, dense near 0, up to where δ is negligible or stops falling."""
    top = 1.0
    floor = float(deltas(np.array([_FARTHEST]))[0])
    while top < _FARTHEST and deltas(np.array([top]))[0] > 1.001 * floor + _NEGLIGIBLE:
        top *= 1.5
    spaced = np.concatenate(
        [np.linspace(0.0, top, _POINTS // 2), np.geomspace(discretization, top, _POINTS // 2)]
    )
    return np.unique(np.rint(spaced / discretization).astype(np.int64))


def _lower_hull(epsilon: FloatArray, values: FloatArray) -> list[int]:
    """Indices of the lower convex hull of the points (e^ε, δ)."""
    hull: list[int] = []
    for i in range(epsilon.size):
        while len(hull) >= 2 and not _turns_up(epsilon, values, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    return hull


def _turns_up(epsilon: FloatArray, values: FloatArray, i: int, j: int, k: int) -> bool:
    """Whether point j lies below the chord from i to k in the coordinate e^ε (scaled by e^−ε_j)."""
    left, right = -np.expm1(epsilon[i] - epsilon[j]), np.expm1(epsilon[k] - epsilon[j])
    return bool((values[j] - values[i]) * right < (values[k] - values[j]) * left)
