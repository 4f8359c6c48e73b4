"""What noisy histograms say: quantiles, where to clip. And means of clipped, centred numbers (V-1).

mean = centre + size·A/n̂, A the noisy Σ (clip(v) − centre)/size: the noise is that of the window, not of the
declared range, and an error of n̂ touches only what is left after centring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.looks.noisy import Noisy, Releases

_SPREAD = 0.002  # of the mass is taken as uniform over the cells, so that the function increases
_SEEN = 4.0  # deviations of its noise: a tail of more records than that is seen


def cell(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """The position of the cell [e_i, e_{i+1}) that holds each number; the last holds its upper edge."""
    return np.searchsorted(edges[1:-1], values, side="right")


def equal_mass(cells: int) -> FloatArray:
    """The levels 0, 1/cells, …, 1."""
    return np.linspace(0.0, 1.0, cells + 1)


def at_levels(edges: FloatArray, counts: FloatArray, levels: FloatArray) -> FloatArray:
    """Where the distribution of a noisy histogram reaches the levels, by linear interpolation."""
    reached = (1.0 - _SPREAD) * distribution(counts) + _SPREAD * equal_mass(len(counts))
    return np.interp(levels, reached, edges)


def octaves(reach: float, steps: int) -> FloatArray:
    """0 and reach·2^−k, k = steps − 1 … 0: cells by magnitude."""
    return np.concatenate([[0.0], reach * 2.0 ** (-np.arange(steps - 1.0, -1.0, -1.0))])


def distribution(counts: FloatArray) -> FloatArray:
    """The distribution function at the edges of a noisy histogram: from 0 to 1, never decreasing.

    Noise leaves the mean of cumulated counts as it is, so they are levelled from both sides alike.
    """
    total = max(float(counts.sum()), 1.0)
    raw = np.concatenate([[0.0], np.cumsum(counts)]) / total
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

    def beyond(self, least: float, most: float) -> Tail:
        """Clipped at `least` at the earliest, all numbers being at most `most`."""
        clip = min(max(self.clip, least), most)
        return Tail(clip, min(self.scale, most - clip))

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
    j = int(np.argmax(above <= 0.5 * total))
    half = _crossing(upper, above, j, 0.5 * total, total)
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
        n, size = max(count.value, 1.0), self.window.size
        mean = self.first.value / n
        noise = (size / n) ** 2 * (self.first.noise + mean**2 * count.noise)
        return Noisy(self.window.centre + size * mean, noise, size**2 * self._spread(n, mean) / n)

    def _spread(self, n: float, mean: float) -> float:
        """The variance of scaled(v), half a deviation of its noise added: too small a one would mislead."""
        if self.second is None:
            return 0.0
        return max(self.second.value / n - mean**2, 0.0) + 0.5 * self.second.sigma / n


def release_means(
    releases: Releases,
    name: str,
    values: FloatArray,
    windows: Sequence[Window],
    block: NDArray[np.intp],
    price: float,
    price_of_squares: float = 0.0,
) -> list[Mean]:
    """The mean of `values` in each block, by its own window; a record of block −1 is in none.

    The squares say how much it varies from sample to sample; without a price there are none.
    """
    scaled = np.zeros(len(values))
    for b, window in enumerate(windows):
        mine = block == b
        scaled[mine] = window.scaled(values[mine])
    low = min((w.low - w.centre) / w.size for w in windows)
    high = max((w.high - w.centre) / w.size for w in windows)
    size, ends = len(windows), (min(low, 0.0), max(high, 0.0))
    first = releases.sums(name, scaled, ends, block, size, price).each()
    if not price_of_squares:
        return [Mean(*pair) for pair in zip(windows, first, strict=True)]
    squares = releases.sums(f"{name} squares", scaled**2, (0.0, 1.0), block, size, price_of_squares).each()
    return [Mean(*three) for three in zip(windows, first, squares, strict=True)]
