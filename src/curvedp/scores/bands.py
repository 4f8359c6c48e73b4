"""Bounds of ratios of noisy counts, and bands of curves through points with noise in both coordinates (V-4).

Thresholds i = 0 … m lie before, between and after m cells. The curve rises through points (X_i, Y_i). With
bounds x_i⁻ ≤ X_i ≤ x_i⁺ and y_i⁻ ≤ Y_i ≤ y_i⁺ it is, at any x,

    at least max{y_i⁻ : x_i⁺ ≤ x},    at most min{y_i⁺ : x_i⁻ ≥ x}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.scores.ranking import Ranking
from curvedp.scores.results import Curve

AT = np.linspace(0.0, 1.0, 101)  # where curves are told: fixed, so that what is said at x is said of x
Z_OF_FOUR = 2.241402727604945  # Φ(−z) = 0.05/4: a band holds at x if four bounds do
_ENOUGH = 3.0  # times its noise: a count below it tells nothing


@dataclass(frozen=True, eq=False)
class Rising:
    """Bounds of numbers Y₀ ≤ Y₁ ≤ … ≤ Y_m at the thresholds.

    A lower bound is at most those that come later, an upper one at least those before: never narrower.
    """

    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, low: FloatArray, high: FloatArray) -> Rising:
        return cls(np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high))

    @classmethod
    def shares(cls, counts: FloatArray, sigma: float, z: float) -> Rising:
        """Of the share of all records that are in the cells before each threshold."""
        before, whole, c = _before(counts), float(counts.sum()), np.arange(len(counts) + 1.0)
        n, noise = _records(whole, sigma, len(counts)), sigma**2
        low, high = ratio(
            before, whole, (noise * c, n - 2 * noise * c, noise * len(counts) - n), z, (0.0, 1.0)
        )
        low[0] = high[0] = 0.0
        low[-1] = high[-1] = 1.0
        return cls.of(low, high)

    @classmethod
    def odds(cls, counts: FloatArray, others: FloatArray, sigma: float, z: float) -> Rising:
        """Of the number of records in the cells before each threshold per one of all the others."""
        before, whole, c = _before(counts), float(others.sum()), np.arange(len(counts) + 1.0)
        n, noise = _records(whole, sigma, len(others)), sigma**2
        low, high = ratio(before, whole, (noise * c, n, noise * len(others) + n), z, (0.0, math.inf))
        low[0] = high[0] = 0.0
        return cls.of(low, high)


@dataclass(frozen=True, eq=False)
class Band:
    """Bounds, at some numbers x in [0, 1], of a curve that never falls."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, x: Rising, y: Rising, at: FloatArray) -> Band:
        """X₀ = 0 and X_m = 1 are known, so that at every x there is a threshold on either side."""
        surely_before = np.searchsorted(x.high, at, side="right") - 1
        surely_after = np.searchsorted(x.low, at, side="left")
        return cls(y.low[surely_before], y.high[surely_after])


def roc(ranking: Ranking) -> Curve:
    """(share of negatives, share of positives) above a threshold, from (0, 0) to (1, 1)."""
    if not _is_enough(ranking):
        return Curve()
    x, y = (Rising.shares(n[::-1], ranking.sigma, Z_OF_FOUR) for n in (ranking.negatives, ranking.positives))
    band = Band.of(x, y, AT)
    negative, positive = ranking.below
    value = np.interp(AT, 1.0 - negative[::-1], 1.0 - positive[::-1])
    value[0], value[-1] = 0.0, 1.0
    low, high = _between(band.low[:-1], band.high[1:])
    low[0] = 0.0
    return _told(AT, value, low, high)


def precision_recall(ranking: Ranking) -> Curve:
    """(recall r, precision r/(r + v)), v the negatives above a threshold per positive in all."""
    if not _is_enough(ranking):
        return Curve()
    down = ranking.positives[::-1]
    recall = Rising.shares(down, ranking.sigma, Z_OF_FOUR)
    v = Rising.odds(ranking.negatives[::-1], down, ranking.sigma, Z_OF_FOUR)
    band, r = Band.of(recall, v, AT), AT[1:]
    left, right = r[:-1], r[1:]
    low, high = _between(left / (left + band.high[2:]), right / (right + band.low[1:-1]))
    negative, positive = ranking.below
    odds = float(ranking.negatives.sum() / ranking.positives.sum())
    value = r / (r + odds * np.interp(r, 1.0 - positive[::-1], 1.0 - negative[::-1]))
    return _told(r, value, low, high)


Term = FloatArray | float


def ratio(
    part: Term, whole: float, variance: tuple[Term, Term, Term], z: float, within: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """The ends of {q : |part − q·whole| ≤ z·√(k₀ + k₁q + k₂q²)}, all of `within` where the whole is drowned.

    The variance is that of part − q·whole if q is the ratio: of noise, in which it is linear, and of chance.
    """
    k0, k1, k2 = (np.asarray(k, dtype=np.float64) for k in variance)
    a = np.broadcast_to(whole**2 - z**2 * k2, np.shape(part))
    half = part * whole + 0.5 * z**2 * k1
    root = np.sqrt(np.maximum(half**2 - a * (np.square(part) - z**2 * k0), 0.0))
    known = (a > 0.0) & (whole > 0.0)
    safe = np.where(known, a, 1.0)
    low, high = (np.clip((half + sign * root) / safe, *within) for sign in (-1.0, 1.0))
    return np.where(known, low, within[0]), np.where(known, high, within[1])


def _is_enough(ranking: Ranking) -> bool:
    least = _ENOUGH * ranking.sigma * math.sqrt(len(ranking.positives))
    return min(float(ranking.negatives.sum()), float(ranking.positives.sum())) > least


def _between(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends at every x such that lines between them respect the bounds of each segment."""
    return (
        np.minimum(np.append(low, np.inf), np.append(np.inf, low)),
        np.maximum(np.append(high, -np.inf), np.append(-np.inf, high)),
    )


def _told(x: FloatArray, y: FloatArray, low: FloatArray, high: FloatArray) -> Curve:
    inside = np.clip(y, low, high)
    return Curve(*(tuple(map(float, values)) for values in (x, inside, low, high)))


def _before(counts: FloatArray) -> FloatArray:
    return np.append(0.0, np.cumsum(counts))


def _records(whole: float, sigma: float, cells: int) -> float:
    """The number of records that the chance of the sample is reckoned with, half a deviation added."""
    return max(whole, 0.0) + 0.5 * sigma * math.sqrt(cells)
