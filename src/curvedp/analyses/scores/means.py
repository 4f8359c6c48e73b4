"""What scores are made of: means in a window, rankings, a plan with its parts, results.

mean = centre + size·A/n̂, A the noisy Σ (clip(v) − centre)/size: the noise is that of the window, not of the
declared range, and an error of n̂ touches only what is left after centring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from curvedp.analyses.explore.noisy import ENOUGH, Ends, Noisy, Releases, Z, exact_sum, ratio_ends
from curvedp.arrays import FloatArray

Positions = NDArray[np.intp]
COARSE = 32  # cells of a round
_SPREAD = 0.002  # of the mass is taken as uniform over the cells, so that the function increases
_SEEN = 4.0  # deviations of its noise: a tail of more records than that is seen


def cell(values: FloatArray, edges: FloatArray) -> Positions:
    """The position of the cell [e_i, e_{i+1}) that holds each number; the last holds its upper edge."""
    return np.searchsorted(edges[1:-1], values, side="right")


def equal_mass(cells: int) -> FloatArray:
    """The levels 0, 1/cells, …, 1."""
    return np.linspace(0.0, 1.0, cells + 1)


def _before(counts: FloatArray) -> FloatArray:
    """At each edge of the cells, the sum of those before it."""
    return np.append(0.0, np.cumsum(counts))


def at_levels(edges: FloatArray, counts: FloatArray, levels: FloatArray) -> FloatArray:
    """Where the distribution of a noisy histogram reaches the levels, by linear interpolation."""
    reached = (1.0 - _SPREAD) * distribution(counts) + _SPREAD * equal_mass(len(counts))
    return np.interp(levels, reached, edges)


def refined(
    run: Releases, name: str, x: FloatArray, edges: FloatArray, prices: Sequence[float], last: FloatArray
) -> FloatArray:
    """About the quantiles of numbers x at the `last` levels, found in as many rounds as there are prices."""
    for t, price in enumerate(prices):
        noisy = Groups(run, cell(x, edges), COARSE).counts(f"{name} round {t}", price)
        edges = at_levels(edges, noisy.value, equal_mass(COARSE) if t < len(prices) - 1 else last)
    return edges


def octaves(reach: float, steps: int) -> FloatArray:
    """0 and reach·2^−k, k = steps − 1 … 0: cells by magnitude."""
    return np.concatenate([[0.0], reach * 2.0 ** (-np.arange(steps - 1.0, -1.0, -1.0))])


def distribution(counts: FloatArray) -> FloatArray:
    """The distribution function at the edges of a noisy histogram: from 0 to 1, never decreasing.

    Noise leaves the mean of cumulated counts as it is, so they are levelled from both sides alike.
    """
    raw = _before(counts) / max(float(counts.sum()), 1.0)
    up, down = np.maximum.accumulate(raw), np.minimum.accumulate(raw[::-1])[::-1]
    level = np.clip(0.5 * (up + down), 0.0, 1.0)
    level[0], level[-1] = 0.0, 1.0
    return np.asarray(np.maximum.accumulate(level))


@dataclass(frozen=True)
class Tail:
    """Where numbers ≥ 0 are clipped, and the scale β of the exponential tail they are taken to have there.

    A number above the clip stands for the mean of such a tail, so that clipping costs noise but little bias.
    """

    clip: float
    scale: float

    @property
    def mean(self) -> float:
        """E[v | v > c] = c + β."""
        return self.clip + self.scale

    @property
    def mean_square(self) -> float:
        """E[v² | v > c] = c² + 2cβ + 2β²."""
        return self.clip**2 + 2.0 * self.clip * self.scale + 2.0 * self.scale**2

    def heavier(self, times: float, most: float) -> Tail:
        """With a scale so many times as large, all numbers being at most `most`."""
        return Tail(self.clip, min(times * self.scale, most - self.clip))

    def values(self, numbers: FloatArray) -> FloatArray:
        """v, or the mean beyond the clip."""
        return np.where(numbers > self.clip, self.mean, numbers)

    def signed(self, numbers: FloatArray) -> FloatArray:
        """The same for numbers of both signs, by their size."""
        return np.asarray(np.sign(numbers) * self.values(np.abs(numbers)))

    def squares(self, numbers: FloatArray) -> FloatArray:
        """v², or the mean square beyond the clip."""
        return np.where(numbers > self.clip, self.mean_square, np.minimum(numbers, self.clip) ** 2)


def find_tail(upper: FloatArray, counts: FloatArray, sigma: float, factor: float) -> Tail:
    """The tail from `factor`·u on, u the value beyond which noise hides the records; (V-3).

    `upper` bounds the values of each cell, increasing; between two of them, tails fall exponentially. β is
    how they fall towards u, since more than half of the records were left.
    """
    total, last = float(counts.sum()), float(upper[-1])
    if total <= _SEEN * sigma * math.sqrt(len(counts)):
        return Tail(last, 0.0)
    noise = sigma * np.sqrt(np.arange(len(counts) - 1.0, -1.0, -1.0))
    hides = np.minimum(_SEEN * noise, 0.25 * total)
    above = np.maximum(np.append(np.cumsum(counts[::-1])[::-1][1:], 0.0), 0.5 * np.maximum(noise, 1.0))
    i = int(np.argmax(above <= hides)) if (above <= hides).any() else len(counts) - 1
    hidden = _crossing(upper, above, i, float(hides[i]), total)
    half = _crossing(upper, above, int(np.argmax(above <= 0.5 * total)), 0.5 * total, total)
    scale = max(hidden - half, 0.0) / math.log(max(0.5 * total / max(float(hides[i]), 1.0), 2.0))
    clip = min(factor * hidden, last)
    return Tail(clip, min(scale, last - clip))


def _crossing(upper: FloatArray, above: FloatArray, i: int, wanted: float, total: float) -> float:
    """Where the tail falls to `wanted` in cell i, exponentially from what is above the cell before."""
    start, height = (0.0, total) if i == 0 else (float(upper[i - 1]), float(above[i - 1]))
    end = float(above[i])
    part = math.log(height / wanted) / math.log(height / end) if height > wanted > end > 0 else 1.0
    return start + part * (float(upper[i]) - start)


@dataclass(frozen=True)
class Window:
    """Numbers are clipped to [low, high] and measured from `centre`, which lies in it; in released units."""

    low: float
    high: float
    centre: float

    @classmethod
    def to(cls, high: float, guess: float) -> Window:
        """[0, high] around a guess of the mean."""
        return cls(0.0, high, min(max(guess, 0.0), high))

    @property
    def size(self) -> float:
        """The most by which one number differs from the centre."""
        return max(self.high - self.centre, self.centre - self.low, 1e-300)

    def scaled(self, values: FloatArray) -> FloatArray:
        """(clip(v) − centre)/size, in [−1, 1]."""
        return (np.clip(values, self.low, self.high) - self.centre) / self.size


@dataclass(frozen=True)
class Mean:
    """A released Σ scaled(v) and, where it was asked for, Σ scaled(v)²."""

    window: Window
    first: Noisy[float]
    second: Noisy[float] | None = None

    def of(self, count: Noisy[float]) -> Noisy[float]:
        """The mean of v over `count` records."""
        n, size, spread = max(count.value, 1.0), self.window.size, 0.0
        mean = self.first.value / n
        noise = (size / n) ** 2 * (self.first.noise + mean**2 * count.noise)
        if self.second is not None:  # half a deviation of its noise added: too small a one would mislead
            spread = max(self.second.value / n - mean**2, 0.0) + 0.5 * self.second.sigma / n
        return Noisy(self.window.centre + size * mean, noise, size**2 * spread / n)


def piecewise(place: Positions, maps: Sequence[Callable[..., FloatArray]], *values: Any) -> FloatArray:
    """f_i of the values of each record at place i; 0 of one at none."""
    found = np.zeros(len(place))
    for i, f in enumerate(maps):
        mine = place == i
        found[mine] = f(*(own[mine] for own in values))
    return found


@dataclass(frozen=True, eq=False)
class Groups:
    """Which of `size` groups each record is in, −1: none; `share` is what a number of all of them costs, in
    units of its price for all records, and `among` how many such numbers have that price together."""

    releases: Releases
    place: Positions
    size: int = 1
    prefix: str = ""
    share: float = 1.0
    among: int = 1

    def by(self, cell: Positions, cells: int, among: int = 1) -> Groups:
        """The cells of every group, one group after another."""
        place = np.where(self.place >= 0, self.place * cells + cell, -1)
        return replace(self, place=place, size=self.size * cells, among=among)

    def counts(self, name: str, price: float) -> Noisy[FloatArray]:
        """How many records are in each group."""
        there, each = self.place >= 0, self.releases.each
        parts = None if each is None else each[there]  # multiples of 2⁻¹⁶: their sums are exact
        exact = np.bincount(self.place[there], parts, self.size).astype(np.float64)
        return self.releases.of(self.prefix + name, exact, price * self.share / self.among)

    def sums(self, name: str, values: FloatArray, ends: Ends, price: float) -> Noisy[FloatArray]:
        """Σ values, clipped into the ends, of the records in each group."""
        clipped, each = np.clip(values, *ends), self.releases.each
        clipped = clipped if each is None else each * clipped
        exact = np.array([exact_sum(clipped[self.place == i]) for i in range(self.size)])
        return self.releases.of(self.prefix + name, exact, price * self.share / self.among, ends)

    def means(
        self, name: str, values: FloatArray, windows: Window | Sequence[Window], *prices: float
    ) -> list[Mean]:
        """The mean of `values` in each group, by its own window.

        The squares say how much it varies from sample to sample; without a second price there are none.
        """
        own = [windows] * self.size if isinstance(windows, Window) else windows
        scaled = piecewise(self.place, [window.scaled for window in own], values)
        low = min((w.low - w.centre) / w.size for w in own)
        high = max((w.high - w.centre) / w.size for w in own)
        sums = [self.sums(name, scaled, (min(low, 0.0), max(high, 0.0)), prices[0])]
        sums += [self.sums(f"{name} squares", scaled**2, (0.0, 1.0), price) for price in prices[1:]]
        return [Mean(*one) for one in zip(own, *(each.each() for each in sums), strict=True)]


# What a private score gives: numbers with intervals, curves with bands, for all records and by level.


@dataclass(frozen=True)
class Score:
    """A private estimate and its 95 % interval, which covers the noise and the chance of the sample.

    Parameters
    ----------
    value : float
        The estimate; NaN where the noise leaves nothing to be said.
    low, high : float
        The interval for the value in the population that the records are a sample of.
    noise, sampling : float
        The standard deviations of the two parts: privacy noise, and another sample of the same size.

    Examples
    --------
    >>> from curvedp.analyses.scores import Score
    >>> print(Score(0.871, 0.852, 0.890, 0.006, 0.008))
    0.871 (0.852 to 0.89)
    """

    value: float
    low: float
    high: float
    noise: float = 0.0
    sampling: float = 0.0

    @classmethod
    def of(cls, found: Noisy[float], low: float = -math.inf, high: float = math.inf) -> Score:
        """The estimate and value ± 1.96 standard deviations, inside of what is possible."""
        reach = Z * math.sqrt(found.noise + found.sampling)
        value = min(max(found.value, low), high)
        ends = min(max(found.value - reach, low), value), max(min(found.value + reach, high), value)
        return cls(value, *ends, found.sigma, math.sqrt(found.sampling))

    @classmethod
    def unknown(cls, low: float = -math.inf, high: float = math.inf) -> Score:
        """Nothing can be said."""
        return cls(math.nan, low, high, math.inf, math.inf)

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate."""
        return math.isfinite(self.value)

    def __str__(self) -> str:
        if not self.is_known:
            return "cannot be said: too little data for this much noise"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class Curve:
    """Points (x, y) with a 95 % interval for each y; none where nothing can be said.

    ROC, and precision by recall: at any one x, named beforehand, the curve of the population lies between
    `low` and `high`, joined by straight lines, with at least 95 % (V-4); not all of it at once. Calibration:
    the interval is for y in the group of records, and for its distance from the diagonal. Residuals: the
    quantile of level x.
    """

    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class GroupScores:
    """The scores of all records, or of those of one level.

    `count` is the number of records with a usable target; of persons where a unit is named, each of whom
    counts by the share of its records that have one. `scores` and `curves` are by name, such as "auc" or
    "roc". `confusion` has noisy counts, true class by predicted class; it is empty in a regression.
    """

    count: Score
    scores: Mapping[str, Score]
    confusion: tuple[tuple[float, ...], ...] = ()
    curves: Mapping[str, Curve] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Score:
        return self.scores[name]


# Which share of a loss a model explains: R², and D² of deviances (V-3).

LEAST_RATE = 2e-6  # in half ranges: a smaller prediction counts as this, a millionth of the largest count
FARTHEST_DEVIANCE = 64.0  # of a count up to 2 from a prediction of at least that: 2(2·log(10⁶) + 2) is less


def deviance(y: FloatArray, expected: FloatArray | float) -> FloatArray:
    """2(y log(y/μ) − y + μ) of counts y and predictions μ, in half ranges."""
    mu = np.clip(expected, LEAST_RATE, 2.0)
    return np.asarray(np.maximum(2.0 * (xlogy(y, y / mu) - y + mu), 0.0))


def at_least(found: Noisy[float], normal: float, count: Noisy[float]) -> Noisy[float]:
    """With the variance of the sample at least half of what normal residuals have, `normal`·value²/n.

    The noisy mean of squares that says it may come out as small as 0.
    """
    least = 0.5 * normal * found.value**2 / count.value
    return Noisy(found.value, found.noise, max(found.sampling, least))


Ratio = tuple[float, bool]  # ρ, and whether it was made of the means that it is used with


def explained(
    count: Noisy[float], means: Sequence[Mean], ratio: Ratio, against: tuple[float, float] = (0.0, 0.0)
) -> Score:
    """1 − (G + ρD)/V, V the D of the best constant; by the delta method (V-3).

    Of means of the gain r² − ρd², of d² and of d, r the residual and d = y − m: D = mean d² and
    V = D − (mean d)². Of counts deviances stand for squares, those from predictions for r², from the constant
    m for d²; the mean count t is k + mean d, with (m, k) in `against`, and V is less than D by its deviance
    from m, 2(t log(t/m) − t + m).
    """
    gain, square, deviation = parts = tuple(mean.of(count) for mean in means)
    (rho, own_ratio), (m, middle) = ratio, against
    t = max(middle + deviation.value, 1e-6)
    less, slope, bend = deviation.value**2, 2.0 * deviation.value, 1.0
    if m:
        less, slope, bend = float(deviance(np.array([t]), m)[0]), 2.0 * math.log(t / m), 1.0 / t
    variance = square.value - less + bend * deviation.noise  # noise alone makes a square larger
    spread = square.noise + slope**2 * deviation.noise + 2.0 * (bend * deviation.noise) ** 2
    if variance <= ENOUGH * math.sqrt(spread):
        return Score.unknown(high=1.0)
    unexplained = (gain.value + rho * square.value) / variance
    slopes = (1.0, unexplained - rho, slope * unexplained)  # of G, D and mean d, times V
    noise = math.fsum(slope**2 * part.noise for slope, part in zip(slopes, parts, strict=True)) / variance**2
    sampled = math.fsum(abs(slope) * math.sqrt(p.sampling) for slope, p in zip(slopes, parts, strict=True))
    rest = Noisy(max(unexplained, 0.0), noise, (sampled / variance) ** 2)
    rest = at_least(rest, 4.0 * max(1.0 - unexplained, 0.0), count)
    if own_ratio:  # an error e of V is in ρ, too: 1 − R² comes out (1 − e²/V²) times as large
        squared = spread / variance**2
        value, extra = rest.value * (1.0 + squared), 2.0 * (rest.value * squared) ** 2
        rest = Noisy(value, rest.noise + extra, rest.sampling)
    return _complement(positive(rest))


def _complement(found: Score) -> Score:
    """1 − found."""
    return Score(1.0 - found.value, 1.0 - found.high, 1.0 - found.low, found.noise, found.sampling)


def positive(found: Noisy[float]) -> Score:
    """Of a positive number: the interval is symmetric in its logarithm, since large errors come upwards."""
    plain = Score.of(found, 0.0)
    relative = Z * math.sqrt(found.noise + found.sampling) / max(found.value, 1e-300)
    if relative > 1.0:  # hardly known to be positive
        return plain
    low, high = (found.value * math.exp(sign * relative) for sign in (-1.0, 1.0))
    return Score(plain.value, low, high, plain.noise, plain.sampling)


def explained_classes(loss: Noisy[float], confusion: Noisy[FloatArray], count: Noisy[float]) -> Score:
    """D² = 1 − L/H, L the log-loss and H = −Σ q_k log q_k that of the shares q of the classes (V-3)."""
    K, n = len(confusion.value), max(count.value, 1.0)
    q = np.maximum(confusion.value.sum(axis=1) / n, 1e-12)
    surprise = -np.log(q)
    H = float(q @ surprise)
    noise = K * confusion.noise * float(np.sum((surprise - H) ** 2)) / n**2
    if not count.tells or ENOUGH * math.sqrt(noise) >= H:
        return Score.unknown(high=1.0)
    u, sampling = loss.value / H, max(float(q @ (surprise - H) ** 2), 0.0) / n
    sampled = (math.sqrt(loss.sampling) + u * math.sqrt(sampling)) / H
    return _complement(positive(Noisy(u, (loss.noise + u**2 * noise) / H**2, sampled**2)))


# AUC in one step from noisy distribution functions (V-2), and bands of curves of noisy points (V-4).
#
# With any F₀ and F₁ near the distribution functions of the scores of negatives and positives,
#
#     1 − AUC = E₁[1 − F₀(z)] + E₀[F₁(z)] − ∫(1 − F₀)dF₁ − (a product of both errors),
#
# so that two means, each over bounded numbers that are mostly small, replace a sum over many noisy cells.
#
# Thresholds i = 0 … m lie before, between and after m cells. A curve rises through points (X_i, Y_i). With
# bounds x_i⁻ ≤ X_i ≤ x_i⁺ and y_i⁻ ≤ Y_i ≤ y_i⁺ it is, at any x,
#
#     at least max{y_i⁻ : x_i⁺ ≤ x},    at most min{y_i⁺ : x_i⁻ ≥ x}.

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
        return float(np.diff(positive) @ (1.0 - 0.5 * (negative[1:] + negative[:-1])))

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
    def tails(self) -> tuple[Tail, ...]:
        """Where to clip the losses of negatives and of positives: at a half, farther where more is seen."""
        below_negative, below_positive = self.below
        found = (
            find_tail(below_positive[1:], self.negatives, self.sigma, HEAVY),
            find_tail(1.0 - below_negative[:-1][::-1], self.positives[::-1], self.sigma, HEAVY),
        )
        return tuple(Tail(min(max(t.clip, 0.5), 1.0), 0.0) for t in found)

    def windows(self) -> list[Window]:
        """Of the losses of negatives and of positives."""
        return [Window(0.0, max(t.mean, self.start), self.start) for t in self.tails]

    def auc(self, means: tuple[Mean, Mean], counts: tuple[Noisy[float], Noisy[float]]) -> Score:
        """AUC from the mean losses of negatives and positives, and their numbers."""
        if not all(count.tells for count in counts):
            return Score.unknown(0.0, 1.0)
        of_negatives, of_positives = (mean.of(count) for mean, count in zip(means, counts, strict=True))
        cells, sizes = len(self.negatives), max(counts[0].value, 1.0) * max(counts[1].value, 1.0)
        product = (self.sigma**2 * cells / sizes) ** 2 / 6.0
        value = 1.0 - (of_negatives.value + of_positives.value - self.start)
        noise = of_negatives.noise + of_positives.noise + product
        return Score.of(Noisy(value, noise, of_negatives.sampling + of_positives.sampling), 0.0, 1.0)

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
    def of(cls, counts: FloatArray, sigma: float, z: float, others: FloatArray | None = None) -> Rising:
        """Of the share of all records that are in the cells before each threshold; of how many they are per
        one of all the `others` where these are given.

        The chance of the sample is reckoned with the number of the whole, half a deviation added.
        """
        c, noise, m = np.arange(len(counts) + 1.0), sigma**2, len(counts)
        whole = float((counts if others is None else others).sum())
        n = max(whole, 0.0) + 0.5 * sigma * math.sqrt(m)
        of_share, of_odds = (n - 2 * noise * c, noise * m - n), (n, noise * m + n)
        terms, most = (of_share, 1.0) if others is None else (of_odds, math.inf)
        low, high = ratio_ends(_before(counts), whole, (noise * c, *terms), z, (0.0, most))
        low[0] = high[0] = 0.0
        if others is None:
            low[-1] = high[-1] = 1.0
        return cls(np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high))

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
    x, y = (Rising.of(n[::-1], ranking.sigma, Z_OF_FOUR) for n in (ranking.negatives, ranking.positives))
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
    recall = Rising.of(down, ranking.sigma, Z_OF_FOUR)
    v = Rising.of(ranking.negatives[::-1], ranking.sigma, Z_OF_FOUR, down)
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
    return Curve(*(tuple(map(float, values)) for values in (x, np.clip(y, low, high), low, high)))
