"""AUC in one step from noisy distribution functions (V-2), and bands of curves of noisy points (V-4).

With any F₀ and F₁ near the distribution functions of the scores of negatives and positives,

    1 − AUC = E₁[1 − F₀(z)] + E₀[F₁(z)] − ∫(1 − F₀)dF₁ − (a product of both errors),

so that two means, each over bounded numbers that are mostly small, replace a sum over many noisy cells.

Thresholds i = 0 … m lie before, between and after m cells. A curve rises through points (X_i, Y_i). With
bounds x_i⁻ ≤ X_i ≤ x_i⁺ and y_i⁻ ≤ Y_i ≤ y_i⁺ it is, at any x,

    at least max{y_i⁻ : x_i⁺ ≤ x},    at most min{y_i⁺ : x_i⁻ ≥ x}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.looks.noisy import ENOUGH, Noisy, ratio_ends
from curvedp.scores.means import Mean, Tail, Window, distribution, find_tail
from curvedp.scores.results import Curve

HEAVY = 16.0  # a few records are beaten by far more others than the rest
AT = np.linspace(0.0, 1.0, 101)  # where curves are told: fixed, so that what is said at x is said of x
Z_OF_FOUR = 2.241402727604945  # Φ(−z) = 0.05/4: a band holds at x if four bounds do


@dataclass(frozen=True, eq=False)
class Ranking:
    """Noisy counts of negatives and positives in cells of the score, noise of deviation `sigma` on each."""

    edges: FloatArray
    negatives: FloatArray
    positives: FloatArray
    sigma: float

    @cached_property
    def below(self) -> tuple[FloatArray, FloatArray]:
        """(F₀, F₁) at the edges."""
        return distribution(self.negatives), distribution(self.positives)

    @cached_property
    def start(self) -> float:
        """∫(1 − F₀)dF₁ = ∫F₁dF₀: what the cells alone say of 1 − AUC."""
        negative, positive = self.below
        middle = 0.5 * (negative[1:] + negative[:-1])
        return float(np.diff(positive) @ (1.0 - middle))

    def losses(self, score: FloatArray, positive: np.ndarray) -> FloatArray:
        """1 − F₀(z) of a positive record, F₁(z) of a negative one: the share of others that beat it."""
        below_negative, below_positive = self.below
        of_negative, of_positive = self.tails
        return np.where(
            positive,
            of_positive.values(1.0 - np.interp(score, self.edges, below_negative)),
            of_negative.values(np.interp(score, self.edges, below_positive)),
        )

    @cached_property
    def tails(self) -> tuple[Tail, Tail]:
        """Where to clip the losses of negatives and of positives: at a half, farther where more is seen."""
        below_negative, below_positive = self.below
        found = (
            find_tail(below_positive[1:], self.negatives, self.sigma, HEAVY),
            find_tail(1.0 - below_negative[:-1][::-1], self.positives[::-1], self.sigma, HEAVY),
        )
        first, second = (Tail(min(max(t.clip, 0.5), 1.0), 0.0) for t in found)
        return first, second

    def windows(self) -> tuple[Window, Window]:
        """Of the losses of negatives and of positives."""
        centre = self.start
        first, second = (Window(0.0, max(t.mean, centre), centre) for t in self.tails)
        return first, second

    def auc(self, means: tuple[Mean, Mean], counts: tuple[Noisy[float], Noisy[float]]) -> Noisy[float]:
        """AUC from the mean losses of negatives and positives, and their numbers."""
        of_negatives, of_positives = (mean.of(count) for mean, count in zip(means, counts, strict=True))
        cells, sizes = len(self.negatives), max(counts[0].value, 1.0) * max(counts[1].value, 1.0)
        product = (self.sigma**2 * cells / sizes) ** 2 / 6.0
        return Noisy(
            1.0 - (of_negatives.value + of_positives.value - self.start),
            of_negatives.noise + of_positives.noise + product,
            of_negatives.sampling + of_positives.sampling,
        )

    @property
    def tells(self) -> bool:
        """Whether there are more records of both kinds than noise."""
        least = ENOUGH * self.sigma * math.sqrt(len(self.positives))
        return min(float(self.negatives.sum()), float(self.positives.sum())) > least


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
        low, high = ratio_ends(
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
        low, high = ratio_ends(before, whole, (noise * c, n, noise * len(others) + n), z, (0.0, math.inf))
        low[0] = high[0] = 0.0
        return cls.of(low, high)

    def along(self, x: Rising, at: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bounds, at numbers in [0, 1], of the curve through these numbers over those of x.

        X₀ = 0 and X_m = 1 are known, so that at every x there is a threshold on either side.
        """
        surely_before = np.searchsorted(x.high, at, side="right") - 1
        surely_after = np.searchsorted(x.low, at, side="left")
        return self.low[surely_before], self.high[surely_after]


def roc(ranking: Ranking) -> Curve:
    """(share of negatives, share of positives) above a threshold, from (0, 0) to (1, 1)."""
    if not ranking.tells:
        return Curve()
    x, y = (Rising.shares(n[::-1], ranking.sigma, Z_OF_FOUR) for n in (ranking.negatives, ranking.positives))
    below, above = y.along(x, AT)
    negative, positive = ranking.below
    value = np.interp(AT, 1.0 - negative[::-1], 1.0 - positive[::-1])
    value[0], value[-1] = 0.0, 1.0
    low, high = _between(below[:-1], above[1:])
    low[0] = 0.0
    return told(AT, value, low, high)


def precision_recall(ranking: Ranking) -> Curve:
    """(recall r, precision r/(r + v)), v the negatives above a threshold per positive in all."""
    if not ranking.tells:
        return Curve()
    down = ranking.positives[::-1]
    recall = Rising.shares(down, ranking.sigma, Z_OF_FOUR)
    v = Rising.odds(ranking.negatives[::-1], down, ranking.sigma, Z_OF_FOUR)
    (fewest, most), r = v.along(recall, AT), AT[1:]
    left, right = r[:-1], r[1:]
    low, high = _between(left / (left + most[2:]), right / (right + fewest[1:-1]))
    negative, positive = ranking.below
    odds = float(ranking.negatives.sum() / ranking.positives.sum())
    value = r / (r + odds * np.interp(r, 1.0 - positive[::-1], 1.0 - negative[::-1]))
    return told(r, value, low, high)


def _between(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends at every x such that lines between them respect the bounds of each segment."""
    return (
        np.minimum(np.append(low, np.inf), np.append(np.inf, low)),
        np.maximum(np.append(high, -np.inf), np.append(-np.inf, high)),
    )


def told(x: FloatArray, y: FloatArray, low: FloatArray, high: FloatArray) -> Curve:
    inside = np.clip(y, low, high)
    return Curve(*(tuple(map(float, values)) for values in (x, inside, low, high)))


def _before(counts: FloatArray) -> FloatArray:
    return np.append(0.0, np.cumsum(counts))


def _records(whole: float, sigma: float, cells: int) -> float:
    """The number of records that the chance of the sample is reckoned with, half a deviation added."""
    return max(whole, 0.0) + 0.5 * sigma * math.sqrt(cells)
