"""Noisy numbers: what they cost, how they are released, what is told of them. For looks and for scores.

A plan has parts, each a vector of numbers with a price. All prices together are one μ²: a part of price p is
released with Gaussian noise at shift μ√(p/Σp). An `Estimate` is what is told of a number: the interval of its
noise holds 95 times of 100.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from curvedp.arrays import SMALLEST_BOUND, FloatArray
from curvedp.data.rows.base import SUM_SLACK
from curvedp.data.source import Source
from curvedp.mechanisms.base import Grid, gaussian_profile
from curvedp.numbers import decimals_of, rounded
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.guarantee import MU, Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import GaussianProfile

Z = 1.959963984540054  # of a standard normal variable, |·| ≤ Z has probability 0.95
ENOUGH = 3.0  # times its noise: a count below it tells nothing
NOT_RESOLVED = "not resolved"
N = TypeVar("N", float, FloatArray)
Ends = tuple[float, float]  # of an interval
ONCE = "Every person counts once, however many rows: shares, means and quantiles are those of persons."
_FEW = 256  # numbers added in any order, within what SUM_SLACK covers; their sums are added exactly


@dataclass(frozen=True)
class Part:
    """Numbers that are released together: how many they are, their price, the l2-sensitivity of their query
    where it is known beforehand, and what the noise is on."""

    dim: int
    price: float
    sensitivity: float = math.nan
    meaning: str = ""


@dataclass(frozen=True, eq=False)
class Split:
    """Parts by name, fixed beforehand, and the shift μ whose square they share by their prices."""

    parts: Mapping[str, Part]
    profile: GaussianProfile
    shares: Mapping[str, float]  # p/Σp, rounded so that all of them are at most 1

    @classmethod
    def of(cls, parts: Mapping[str, Part], budget: Budget) -> Split:
        whole = math.fsum(part.price for part in parts.values()) * (1 + 1e-15)
        dims, shares = [part.dim for part in parts.values()], {n: p.price / whole for n, p in parts.items()}
        return cls(parts, gaussian_profile(budget, dims, list(shares.values())), shares)

    def shift(self, name: str) -> float:
        """μ√(p/Σp)."""
        return self.profile.mu * math.sqrt(self.shares[name])

    def grid(self, name: str, sensitivity: float) -> Grid:
        """The noise of a part whose query has this l2-sensitivity."""
        return Grid.of(sensitivity, self.shift(name), self.parts[name].dim)


@dataclass(frozen=True, eq=False)
class Looked:
    """A table that is looked at: what is public about it, and its chunks, which are read when a plan asks."""

    layout: Any
    source: Source

    @cached_property
    def rows(self) -> int:
        """The number of rows, or of persons; public or not, `layout.neighbours` says."""
        return self.source.rows()


@dataclass(frozen=True, eq=False)
class GaussianPlan(ABC):
    """A plan of Gaussian parts; a subclass says what is released."""

    layout: Any
    budget: Budget
    split: Split
    persons: ClassVar[bool] = True  # each counts 1 in all (U-2)
    mechanism: ClassVar[str]
    theorem: ClassVar[str]

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """The noise of parts whose sensitivity is known beforehand."""
        return {name: self.split.grid(name, part.sensitivity) for name, part in self.split.parts.items()}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What is public beside μ."""
        return ()

    @cached_property
    def guarantee(self) -> Guarantee:
        named, profile = (self.mechanism, "gaussian", self.theorem), self.split.profile
        parameters = Parameters(MU(profile.mu), *self.parameters)
        return Guarantee(self.budget, self.layout.neighbours, *named, parameters, profile)

    def accept(self, looked: Any) -> None:
        if self.layout.neighbours.count_is_public:
            self.require(looked.rows)

    @abstractmethod
    def require(self, rows: int) -> None:
        """Refuse so few rows that nothing could be said of them."""


@dataclass(frozen=True)
class Noisy(Generic[N]):
    """A number, or several, the variance of the noise on each, and its variance from sample to sample."""

    value: N
    noise: float
    sampling: float = 0.0

    @property
    def sigma(self) -> float:
        """The deviation of the noise."""
        return math.sqrt(self.noise)

    def each(self) -> list[Noisy[float]]:
        """Several numbers one by one."""
        return [Noisy(value, self.noise) for value in np.ravel(self.value).tolist()]

    @property
    def tells(self) -> bool:
        """Whether it is more than noise."""
        return bool(np.all(self.value > ENOUGH * self.sigma))


@dataclass(frozen=True, eq=False)
class Releases:
    """The releases of one run of a plan: every number that leaves the records passes through here, once.

    Without a split all answers are 0. Such a run, on no records, tells which `parts` a plan has. A record
    counts `each`, its part of a person: those of one add up to 1 at most, so that what it adds to counts or
    sums is in the hull of what single records do, and 0 (U-2). None: 1.
    """

    neighbours: Neighbours
    split: Split | None = None
    random: np.random.Generator | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    each: FloatArray | None = None

    def of(self, name: str, exact: FloatArray, price: float, ends: Ends | None = None) -> Noisy[FloatArray]:
        """Counts with noise, a record in one of them or in none; or sums of numbers between the ends."""
        if name in self.parts:
            raise AssertionError(f"{name} is paid for once, and released twice")
        self.parts[name] = Part(exact.size, price)
        if self.split is None or self.random is None:
            return Noisy(np.zeros_like(exact), 1.0)
        sensitivity = count_sensitivity(self.neighbours)
        if ends is not None:
            sensitivity = sum_sensitivity(self.neighbours, *ends, exact.size > 1)
        grid = self.split.grid(name, sensitivity)
        return Noisy(grid.add(exact, self.random, name), grid.sigma**2)

    def shift(self, name: str) -> float:
        """Of a part, perhaps of one to come."""
        return 1.0 if self.split is None else self.split.shift(name)


def count_sensitivity(neighbours: Neighbours) -> float:
    """Of a histogram with one record in one cell."""
    return neighbours.histogram_factor


def sum_sensitivity(neighbours: Neighbours, low: float, high: float, several: bool) -> float:
    """Of sums of numbers in [low, high] ∋ 0, a record in one of them or in none.

    Added or removed: S = max(|low|, |high|). Replaced in its sum: high − low; from one to another: √2·S.
    """
    size = max(-low, high)
    within = high - low if neighbours.count_is_public else size
    across = neighbours.histogram_factor * size if several else size
    return max(within, across) * (1 + 1e-15) + SUM_SLACK * size


def exact_sum(values: FloatArray) -> float:
    """Σ: 256 numbers at a time, then those sums without rounding but the last."""
    whole = len(values) - len(values) % _FEW
    return math.fsum([*values[:whole].reshape(-1, _FEW).sum(axis=1), *values[whole:]])


@dataclass(frozen=True)
class Estimate:
    """A number computed from noisy ones, and where the number without noise lies, 95 times of 100.

    The interval is that of the privacy noise alone: what the table itself leaves open is not in it, but for
    shares, means and quartiles of groups, where it is that of the population. Not `resolved`: the noise
    leaves open more than half of what was possible beforehand, or hides the group.
    """

    value: float
    low: float
    high: float
    resolved: bool = True

    @classmethod
    def within(cls, value: float, low: float, high: float, possible: Ends) -> Estimate:
        """Cut to what was possible beforehand, and judged by it.

        Where the value is cut, the interval moves with it: it holds what it held, and keeps its length.
        """
        bottom, top = possible
        inside = min(max(value, bottom), top)
        low, high = max(min(low, low + inside - value), bottom), min(max(high, high + inside - value), top)
        return cls(inside, low, high, high - low <= 0.5 * (top - bottom))

    @property
    def noise(self) -> float:
        """The larger distance from the value to an end of its interval."""
        return max(self.value - self.low, self.high - self.value)

    def mapped(self, offset: float, scale: float) -> Estimate:
        """offset + scale·this, scale > 0."""
        value, low, high = (offset + scale * number for number in (self.value, self.low, self.high))
        return Estimate(value, low, high, self.resolved)

    def words(self, unit: float = 1.0, sign: str = "") -> str:
        """value ± noise, both to two digits of the noise; `unit` 0.01 with the sign % for shares."""
        if not self.resolved:
            return NOT_RESOLVED
        value, noise = self.value / unit, self.noise / unit
        if not noise > 0:
            return f"{value:,.6g}{sign}"
        if (decimals := decimals_of(noise)) > 8 or abs(value) >= 1e12:
            return f"{value:.4g} ±{noise:.2g}{sign}"
        return f"{rounded(value, decimals)} ±{rounded(noise, decimals)}{sign}"

    def interval(self, unit: float = 1.0) -> str:
        """low to high, to the digits of `words`."""
        low, high, noise = self.low / unit, self.high / unit, self.noise / unit
        decimals = decimals_of(noise) if noise > 0 else 6
        if decimals > 8 or max(abs(low), abs(high)) >= 1e12:
            return f"{low:.4g} to {high:.4g}"
        return f"{rounded(low, decimals)} to {rounded(high, decimals)}"


Term = FloatArray | float


def ratio_ends(
    part: Term, whole: float, variance: tuple[Term, Term, Term], z: float, within: Ends
) -> tuple[FloatArray, FloatArray]:
    """Fieller's interval of part/whole: the ends of {q : |part − q·whole| ≤ z·√(k₀ + k₁q + k₂q²)}.

    The variance (k₀, k₁, k₂) is that of part − q·whole if q is the ratio. So it is exact wherever q lies; all
    of `within` where the whole is not told from 0.
    """
    k0, k1, k2 = (np.asarray(k, dtype=np.float64) for k in variance)
    a = np.broadcast_to(whole**2 - z**2 * k2, np.shape(part))
    half = part * whole + 0.5 * z**2 * k1
    root = np.sqrt(np.maximum(half**2 - a * (np.square(part) - z**2 * k0), 0.0))
    known = (a > 0.0) & (whole > 0.0)
    safe = np.where(known, a, 1.0)
    low, high = (np.clip((half + sign * root) / safe, *within) for sign in (-1.0, 1.0))
    return np.where(known, low, within[0]), np.where(known, high, within[1])


def ratio(top: float, bottom: float, noise: tuple[float, float, float], possible: Ends) -> Estimate:
    """top/bottom of two Gaussian numbers; everything that is possible where bottom is not told from 0.

    The noise: both variances, and the covariance.
    """
    terms = (noise[0], -2.0 * noise[2], noise[1])
    low, high = map(float, ratio_ends(top, bottom, terms, Z, (-math.inf, math.inf)))
    value = top / (bottom if math.isfinite(low) else max(bottom, 1.0))
    return Estimate.within(value, low, high, possible)


# Noisy histograms on public cells between declared bounds; medians and quartiles follow for free (D-1).
#
# A numeric column has up to 256 leaves, counted at four widths at once: single leaves, and groups of 4, 16
# and 64. Least squares makes one histogram of the four, in which sums over long ranges are far less noisy
# than sums of as many leaves would be. A last cell counts what is missing.

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
        if self.whole and self.high - self.low >= _FEWEST_BARS:
            step = max(step, round(1.0 / self.width))
        return tuple(slice(k, min(k + step, self.size)) for k in range(0, self.size, step))

    @property
    def whole(self) -> bool:
        return self.start < self.low

    def ends(self, leaves: slice) -> Ends:
        """Of a run of leaves; the outer ones may reach beyond the bounds."""
        return self.start + self.width * leaves.start, self.start + self.width * leaves.stop

    @property
    def nodes(self) -> int:
        """Counted sums."""
        return len(tree(self.size))


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
        own = self.ones @ self.root
        gain = self.root @ own / self.total_deviation**2
        counts = self.counts + gain * (total - self.counts.sum())
        rest = self.root - np.outer(gain, own)
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

    def of_cell(self, cell: int, cells: int = 1) -> tuple[float, float]:
        """(variance of the count of a cell, or of so many together, its covariance with the sum of all)."""
        part, shared = cells / len(self.counts), self.total_deviation**2
        return self.sigma**2 * cells * (1.0 - part) + shared * part**2, shared * part

    def given_total(self, total: float, deviation: float) -> LevelCounts:
        """The same counts once their sum is known better: `total`, from `pooled_total` or public (D-1)."""
        shift = (total - self.counts.sum()) / len(self.counts)
        return LevelCounts(self.counts + shift, self.sigma, deviation)


def quantile(cells: CellCounts, bins: Bins, q: float, sampling: float = 0.0) -> Estimate:
    """The smallest value that a share q of the present values does not exceed; of the population that n of
    them are a sample of where n·`sampling`·q(1 − q) is the variance of how many lie below it.

    T_k = (records below edge k) − q·(present records) is negative up to the quantile and positive after it.
    The interval starts at the last edge before any T_k is above −Z deviations, and ends at the first edge
    after which all are above Z deviations: each end fails with probability (1 − LEVEL)/2 at most (D-1). The
    value is where the monotone histogram reaches q, so values of increasing q increase.
    """
    cumulated = np.cumsum(np.column_stack([cells.counts, cells.root])[:-1], axis=0)
    running = np.vstack([np.zeros((1, cumulated.shape[1])), cumulated])  # at each edge, all leaves before it
    below, roots, present = running[:, 0], running[:, 1:], float(running[-1, 0])
    chance = sampling * max(present, 0.0) * q * (1.0 - q)
    noise = np.hypot(np.linalg.norm(roots - q * roots[-1], axis=1), chance**0.5)
    gaps, reach = below - q * present, Z * noise
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
    left, right = float(bins.edges[at - 1]), float(bins.edges[at])
    value = left + float(share) * (right - left)
    if bins.whole and bins.width <= 1.0 and math.ceil(left) < right:
        value = float(math.ceil(left))  # the leaf can hold one whole number only
    low, high = float(bins.edges[first]), float(bins.edges[last])
    return Estimate.within(min(max(value, low), high), low, high, (bins.low, bins.high))
