"""Gaussian releases of counts and of sums of bounded numbers, each with a fixed part of one μ² (V-1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.mechanisms.noise import Grid, gaussian_profile
from curvedp.neighbours import Neighbours
from curvedp.privacy.profiles import GaussianProfile
from curvedp.rows.rounding import SUM_SLACK

_FEW = 256  # numbers added in any order, within what SUM_SLACK covers; their sums are added exactly


@dataclass(frozen=True)
class Part:
    """One release: its dimension and its share of μ²."""

    dim: int
    share: float


@dataclass(frozen=True)
class Noisy:
    """A value with independent noise of deviation `sigma` on every entry."""

    value: FloatArray
    sigma: float


@dataclass(frozen=True)
class Split:
    """The parts of one plan by name, fixed beforehand, and the shift μ that they share: Σ shares ≤ 1."""

    parts: Mapping[str, Part]
    profile: GaussianProfile
    neighbours: Neighbours

    @classmethod
    def of(cls, parts: Mapping[str, Part], budget: Budget, neighbours: Neighbours) -> Split:
        if math.fsum(part.share for part in parts.values()) > 1.0:
            raise InvalidInput("the parts of a plan have more than the whole of its budget")
        dims, shares = [p.dim for p in parts.values()], [p.share for p in parts.values()]
        return cls(parts, gaussian_profile(budget, dims, shares), neighbours)

    def grid(self, name: str, sensitivity: float) -> Grid:
        """The noise of a part whose query has this l2-sensitivity."""
        part = self.parts[name]
        return Grid.of(sensitivity, self.profile.mu * math.sqrt(part.share), part.dim)

    def noise_of_one(self, name: str) -> float:
        """The deviation of a part whose records have size 1: so many of them vanish in its noise."""
        return self.neighbours.histogram_factor / (self.profile.mu * math.sqrt(self.parts[name].share))

    def count_grid(self, name: str) -> Grid:
        """For a histogram with one record in one cell."""
        return self.grid(name, self.neighbours.histogram_factor)

    def sum_grid(self, name: str, low: float, high: float) -> Grid:
        """For sums of numbers in [low, high] ∋ 0, a record in one of them or in none.

        Added or removed: S = max(|low|, |high|). Replaced in its sum: high − low; from one to another: √2·S.
        """
        size = max(-low, high)
        within = high - low if self.neighbours.count_is_public else size
        across = self.neighbours.histogram_factor * size if self.parts[name].dim > 1 else size
        return self.grid(name, max(within, across) * (1 + 1e-15) + SUM_SLACK * size)


@dataclass(frozen=True, eq=False)
class Releases:
    """The releases of one run of a plan: every number that leaves the records passes through here, once."""

    split: Split
    random: np.random.Generator

    def counts(self, name: str, position: NDArray[np.intp]) -> Noisy:
        """How many records are at each position; −1 is none."""
        exact = np.bincount(position[position >= 0], minlength=self.split.parts[name].dim)
        grid = self.split.count_grid(name)
        return Noisy(grid.add(exact.astype(np.float64), self.random, name), grid.sigma)

    def sums(
        self, name: str, values: FloatArray, low: float, high: float, position: NDArray[np.intp]
    ) -> Noisy:
        """Σ values, clipped into [low, high], of the records at each position; −1 is none."""
        clipped = np.clip(values, low, high)
        exact = [exact_sum(clipped[position == i]) for i in range(self.split.parts[name].dim)]
        grid = self.split.sum_grid(name, low, high)
        return Noisy(grid.add(np.array(exact), self.random, name), grid.sigma)


def cell(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """The position of the cell [e_i, e_{i+1}) that holds each number; the last holds its upper edge."""
    return np.searchsorted(edges[1:-1], values, side="right")


def exact_sum(values: FloatArray) -> float:
    """Σ: 256 numbers at a time, then those sums without rounding but the last."""
    whole = len(values) - len(values) % _FEW
    few = values[:whole].reshape(-1, _FEW).sum(axis=1)
    return math.fsum([*few, *values[whole:]])


def refuse_few(rows: int, fewest: float) -> None:
    """Refuse fewer rows than the noise drowns."""
    if rows < fewest:
        raise InvalidInput(
            f"at this epsilon the noise drowns scores of fewer than about {math.ceil(fewest):,} rows: raise "
            "epsilon, or score more rows"
        )
