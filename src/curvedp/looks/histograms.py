"""Noisy histograms on public cells between declared bounds; medians and quartiles follow for free (D-1).

A numeric column has up to 256 leaves, counted at four widths at once: single leaves, and groups of 4, 16
and 64. Least squares makes one histogram of the four, in which sums over long ranges are far less noisy
than sums of as many leaves would be. A last cell counts what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from curvedp.arrays import SMALLEST_BOUND, FloatArray
from curvedp.looks.noisy import Estimate, Z

MISSING_WEIGHT = 2
FAN_OUT, WIDTHS = 4, MISSING_WEIGHT**2  # a record adds a vector of norm² WIDTHS, missing or not
LEAVES = FAN_OUT**WIDTHS
LEAVES_PER_BAR, _FEWEST_BARS = 8, 8
_INTEGERS = 2.0**40  # whole bounds up to here are taken for those of whole numbers


@dataclass(frozen=True)
class Bins:
    """Leaves [start + k·width, start + (k+1)·width), k < size, that cover the bounds.

    Between whole bounds the width is a power of two and the leaves start half below the lower bound, so that
    all wide bars hold equally many whole numbers.
    """

    low: float
    high: float
    start: float
    width: float
    size: int

    @classmethod
    def between(cls, low: float, high: float) -> Bins:
        whole = low.is_integer() and high.is_integer() and max(abs(low), abs(high)) <= _INTEGERS
        if not whole:
            return cls(low, high, low, max(high / LEAVES - low / LEAVES, SMALLEST_BOUND), LEAVES)
        width = 2.0 ** math.ceil(math.log2((high - low + 1.0) / LEAVES))
        return cls(low, high, low - 0.5, width, math.ceil((high - low + 1.0) / width))

    @cached_property
    def edges(self) -> FloatArray:
        """size + 1 ends of leaves, cut to the bounds."""
        return np.clip(self.start + self.width * np.arange(self.size + 1), self.low, self.high)

    def cells(self, values: FloatArray) -> NDArray[np.intp]:
        """The leaf of every value, clipped to the bounds first; `size` of a NaN."""
        missing = np.isnan(values)
        clipped = np.clip(np.where(missing, self.low, values), self.low, self.high)
        leaves = np.clip(np.floor((clipped - self.start) / self.width), 0, self.size - 1)
        return np.where(missing, self.size, leaves).astype(np.intp)

    @property
    def bars(self) -> tuple[slice, ...]:
        """Runs of leaves for a picture, 32 at most; between whole bounds far apart, no narrower than 1."""
        step = LEAVES_PER_BAR
        if self._whole and self.high - self.low >= _FEWEST_BARS:
            step = max(step, round(1.0 / self.width))
        return tuple(slice(k, min(k + step, self.size)) for k in range(0, self.size, step))

    def in_leaf(self, leaf: int, share: float) -> float:
        """The value that stands for a leaf: its whole number if it can hold one only, else by the share."""
        left, right = float(self.edges[leaf]), float(self.edges[leaf + 1])
        if self._whole and self.width <= 1.0 and math.ceil(left) < right:
            return float(math.ceil(left))
        return left + share * (right - left)

    @property
    def _whole(self) -> bool:
        return self.start < self.low

    def ends(self, leaves: slice) -> tuple[float, float]:
        """Of a run of leaves; the outer ones may reach beyond the bounds."""
        return self.start + self.width * leaves.start, self.start + self.width * leaves.stop


@lru_cache(maxsize=32)
def tree(size: int) -> FloatArray:
    """A: the counted sums of `size` leaves, widest last, and the missing cell times MISSING_WEIGHT."""
    leaves = np.arange(size)
    levels = [leaves // FAN_OUT**level for level in range(WIDTHS)]
    rows = [level[None, :] == np.arange(level[-1] + 1)[:, None] for level in levels]
    A = np.zeros((sum(map(len, rows)) + 1, size + 1))
    A[:-1, :-1] = np.vstack(rows)
    A[-1, -1] = MISSING_WEIGHT
    A.setflags(write=False)
    return A


@lru_cache(maxsize=32)
def _least_squares(size: int) -> FloatArray:
    """(AᵀA)⁻¹Aᵀ."""
    return np.asarray(np.linalg.pinv(tree(size)))


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Unbiased counts of the cells of one column, the missing cell last, with covariance root·rootᵀ."""

    counts: FloatArray
    root: FloatArray

    @classmethod
    def of_tree(cls, noisy: FloatArray, size: int, sigma: float) -> CellCounts:
        solve = _least_squares(size)
        return cls(solve @ noisy, sigma * solve)

    @property
    def ones(self) -> FloatArray:
        return np.ones(len(self.counts))

    @property
    def present(self) -> FloatArray:
        """The weights that count what is not missing."""
        return np.append(np.ones(len(self.counts) - 1), 0.0)

    def deviation(self, weights: FloatArray) -> FloatArray:
        """Of weights·counts; one for each row of weights."""
        return np.asarray(np.linalg.norm(weights @ self.root, axis=-1))

    def of_cell(self, cell: int) -> tuple[float, float]:
        """(variance of the count of a cell, its covariance with the sum of all)."""
        own = self.root[cell]
        return float(own @ own), float(own @ (self.ones @ self.root))

    @property
    def total_deviation(self) -> float:
        """Of the sum of all counts."""
        return float(self.deviation(self.ones))

    def given_total(self, total: float, deviation: float) -> CellCounts:
        """The same counts once their sum is known better: `total`, from `pooled_total` or public (D-1)."""
        variance = float(self.deviation(self.ones)) ** 2
        gain = self.root @ (self.ones @ self.root) / variance
        counts = self.counts + gain * (total - self.counts.sum())
        rest = self.root - np.outer(gain, self.ones @ self.root)
        return CellCounts(counts, np.column_stack([rest, deviation * gain]))


@dataclass(frozen=True, eq=False)
class LevelCounts:
    """Unbiased counts of L levels, the missing cell last; aᵀcounts and bᵀcounts have the covariance
    σ²(a − ā)ᵀ(b − b̄) + τ²āb̄, ā the mean of a and τ the deviation of their sum: no matrix of L × L."""

    counts: FloatArray
    sigma: float
    total_deviation: float

    @classmethod
    def of_levels(cls, noisy: FloatArray, sigma: float) -> LevelCounts:
        """Independent noise σ: τ = σ√L."""
        return cls(noisy, sigma, sigma * math.sqrt(len(noisy)))

    def of_cell(self, cell: int) -> tuple[float, float]:
        """(variance of the count of a cell, its covariance with the sum of all)."""
        L, shared = len(self.counts), self.total_deviation**2
        return self.sigma**2 * (1.0 - 1.0 / L) + shared / L**2, shared / L

    def given_total(self, total: float, deviation: float) -> LevelCounts:
        """The same counts once their sum is known better: `total`, from `pooled_total` or public (D-1)."""
        shift = (total - self.counts.sum()) / len(self.counts)
        return LevelCounts(self.counts + shift, self.sigma, deviation)


def pooled_total(columns: Sequence[CellCounts | LevelCounts]) -> tuple[float, float]:
    """(n̂, deviation): every column counts every record, so their sums are weighted by precision."""
    totals = np.array([column.counts.sum() for column in columns])
    precisions = np.array([column.total_deviation**-2.0 for column in columns])
    return float(totals @ precisions / precisions.sum()), float(precisions.sum() ** -0.5)


def quantile(cells: CellCounts, bins: Bins, q: float) -> Estimate:
    """The smallest value that a share q of the present values does not exceed.

    T_k = (records below edge k) − q·(present records) is negative up to the quantile and positive after it.
    The interval starts at the last edge before any T_k is above −Z deviations, and ends at the first edge
    after which all are above Z deviations: each end fails with probability (1 − LEVEL)/2 at most (D-1). The
    value is where the monotone histogram reaches q, so values of increasing q increase.
    """
    below = _running(cells.counts[:-1, None])[:, 0]  # at each edge, all leaves before it
    present = float(below[-1])
    roots = _running(cells.root[:-1])
    gaps, reach = below - q * present, Z * np.linalg.norm(roots - q * roots[-1], axis=1)
    open_below, open_above = gaps > -reach, gaps < reach
    open_below[-1] = open_above[0] = True  # the bounds are public
    first = max(int(np.argmax(open_below)) - 1, 0)
    last = min(bins.size - int(np.argmax(open_above[::-1])) + 1, bins.size)
    present = max(present, 0.0)
    inner = isotonic_regression(below[1:-1]).x
    cumulative = np.clip(np.concatenate([[0.0], inner, [present]]), 0.0, present)
    at = min(max(int(np.searchsorted(cumulative, q * present)), 1), bins.size)
    step = cumulative[at] - cumulative[at - 1]
    share = (q * present - cumulative[at - 1]) / step if step > 0 else 0.5
    value = bins.in_leaf(at - 1, float(share))
    low, high = float(bins.edges[first]), float(bins.edges[last])
    return Estimate.within(min(max(value, low), high), low, high, (bins.low, bins.high))


def _running(rows: FloatArray) -> FloatArray:
    """0 and the running sums of the rows."""
    return np.vstack([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
