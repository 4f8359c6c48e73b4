"""Means of clipped, centred numbers: the noise is that of the window, not of the declared range (V-1).

mean = centre + size·A/n̂, A the noisy Σ (clip(v) − centre)/size: an error of n̂ touches only what is left after
centring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.scores.noisy import Noisy, Releases


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
class Estimate:
    """A number, the variance of its noise, and its variance from sample to sample."""

    value: float
    noise: float
    sampling: float = 0.0

    @property
    def variance(self) -> float:
        return self.noise + self.sampling


@dataclass(frozen=True)
class Mean:
    """A released Σ scaled(v) and, where it was asked for, Σ scaled(v)²."""

    window: Window
    first: float
    sigma: float
    second: float | None = None
    second_sigma: float = 0.0

    def of(self, count: Estimate) -> Estimate:
        """The mean of v over `count` records."""
        n, size = max(count.value, 1.0), self.window.size
        mean = self.first / n
        noise = (size / n) ** 2 * (self.sigma**2 + mean**2 * count.noise)
        return Estimate(self.window.centre + size * mean, noise, size**2 * self._spread(n, mean) / n)

    def _spread(self, n: float, mean: float) -> float:
        """The variance of scaled(v), half a deviation of its noise added: too small a one would mislead."""
        if self.second is None:
            return 0.0
        return max(self.second / n - mean**2, 0.0) + 0.5 * self.second_sigma / n


def release_means(
    releases: Releases,
    name: str,
    values: FloatArray,
    windows: Sequence[Window],
    block: NDArray[np.intp],
    *,
    squares: bool = True,
) -> list[Mean]:
    """The mean of `values` in each block, by its own window; a record of block −1 is in none."""
    scaled = np.zeros(len(values))
    for b, window in enumerate(windows):
        mine = block == b
        scaled[mine] = window.scaled(values[mine])
    low = min((w.low - w.centre) / w.size for w in windows)
    high = max((w.high - w.centre) / w.size for w in windows)
    first = releases.sums(name, scaled, min(low, 0.0), max(high, 0.0), block)
    if not squares:
        return [Mean(w, float(s), first.sigma) for w, s in zip(windows, first.value, strict=True)]
    second: Noisy = releases.sums(f"{name} squares", scaled**2, 0.0, 1.0, block)
    return [
        Mean(w, float(s), first.sigma, float(q), second.sigma)
        for w, s, q in zip(windows, first.value, second.value, strict=True)
    ]
