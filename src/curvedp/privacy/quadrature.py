"""Laws of a privacy loss on finitely many points, rounded so that every δ computed from them is an upper
bound.

δ(ε) = E[H_Φ(ε − ℓ; μ)] (P-3) is the mean of a decreasing CONVEX function of e^{−ℓ}: for every Gaussian loss
Z, (1 − e^{ε−ℓ−Z})₊ is one. Hence the two ways to round up that are used here, on a set ("bin") of known
probability on which low ≤ ℓ ≤ high:

  ℓ may be replaced by `high`;
  given a bound E[ℓ | bin] ≤ mean, ℓ may be replaced by `high` and `low` with the weights that make
  E[e^{−ℓ}] equal to e^{−mean} (a chord of a convex function; Jensen gives E[e^{−ℓ}] ≥ e^{−mean}).

The error of the second is of the second order in the width of the bin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtr, stdtr, stdtrit

from curvedp.arrays import FloatArray
from curvedp.privacy.gaussian import hockey_stick

LARGEST_LOSS = 200.0  # a loss beyond this counts as infinite
_ROUND_UP = 1.0 + 1e-9  # covers the rounding errors of probabilities, positions and sums
_BLOCK = 1 << 18  # entries of H_Φ evaluated at once
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_LOWEST_TAIL = 92.0  # bins reach the quantiles of probability e^−92 = 1e-40
_UPPER_QUANTILE = 10.0  # … and Φ(10) on the side where the loss is small


@dataclass(frozen=True, eq=False)
class LossLaw:
    """P(ℓ = losses_i) = probabilities_i, P(ℓ = +∞) = infinite."""

    losses: FloatArray
    probabilities: FloatArray
    infinite: float

    def divergence(self, epsilon: FloatArray, mu: float) -> FloatArray:
        """E[H_Φ(ε − ℓ; μ)] (P-3) at every real level of the 1-d `epsilon`, rounded up; ∞ counts as 1."""
        value = np.empty(epsilon.size)
        rows = max(1, _BLOCK // max(self.losses.size, 1))
        for start in range(0, epsilon.size, rows):
            levels = epsilon[start : start + rows, None] - self.losses
            # Without a shift (1 − e^{ε−ℓ})₊, the differences formed before the sum: nothing cancels.
            each = -np.expm1(np.minimum(levels, 0.0)) if mu == 0 else np.asarray(hockey_stick(levels, mu))
            value[start : start + rows] = each @ self.probabilities
        return np.minimum((value + self.infinite) * _ROUND_UP, 1.0)

    @classmethod
    def of_bins(
        cls, mass: FloatArray, low: FloatArray, high: FloatArray, mean: FloatArray, infinite: float
    ) -> LossLaw:
        """The law that rounds up bins with low ≤ ℓ ≤ high and E[ℓ | bin] ≤ mean (chords in e^{−ℓ})."""
        span = -np.expm1(low - high)  # in units e^{low−ℓ}
        drop = -np.expm1(np.minimum(low - mean, 0.0))
        share = np.minimum(np.divide(drop, span, out=np.ones_like(span), where=span > 0), 1.0)
        finite = high <= LARGEST_LOSS
        return cls(
            np.concatenate([high[finite], low[finite]]),
            np.concatenate([(mass * share)[finite], (mass * (1.0 - share))[finite]]),
            infinite + float(mass[~finite].sum()),
        )


@dataclass(frozen=True)
class LossGrid:
    """Increasing points 0, step, …, bend = step·linear, then geometric to the largest loss: bins are
    collected on it."""

    step: float
    linear: int = 480
    per_e_fold: int = 150

    @cached_property
    def points(self) -> FloatArray:
        bend = self.step * self.linear
        count = math.ceil(self.per_e_fold * math.log(max(LARGEST_LOSS / bend, 1.0))) + 1
        beyond = bend * np.exp(np.arange(1, count + 1) / self.per_e_fold)
        return np.concatenate([self.step * np.arange(self.linear + 1), beyond])

    def collect(self, mass: FloatArray, low: FloatArray, high: FloatArray, mean: FloatArray) -> FloatArray:
        """Masses of the points (last entry: of +∞) for bins with 0 ≤ low ≤ ℓ ≤ high and E[ℓ | bin] ≤ mean.

        Each bin is replaced by the chord between the grid points around it.
        """
        points, decay = self.points, self._decay
        left, right = self._index(low), self._index(high) + 1
        left -= points[left] > low
        at_left = decay[left]
        span = at_left - decay[right]
        # 0 where losses are too small for doubles to tell from none: all of the mass at the larger one.
        share = np.divide(at_left - np.exp(-mean), span, out=np.ones_like(span), where=span > 0)
        at_right = mass * np.clip(share, 0.0, 1.0)
        beyond = right == points.size
        at_right[beyond] = mass[beyond]
        total = np.bincount(right, at_right, minlength=points.size + 1)
        total += np.bincount(left, mass - at_right, minlength=points.size + 1)
        return np.asarray(total)

    def law(self, total: FloatArray, outside: float) -> LossLaw:
        occupied = total[:-1] > 0
        return LossLaw(self.points[occupied], total[:-1][occupied], float(total[-1]) + outside)

    @cached_property
    def _decay(self) -> FloatArray:
        return np.append(np.exp(-self.points), 0.0)

    def _index(self, losses: FloatArray) -> NDArray[np.intp]:
        """The last grid point at or below each loss, up to rounding."""
        position = losses / self.step
        tail = position > self.linear
        position[tail] = self.linear + self.per_e_fold * np.log(position[tail] / self.linear)
        return np.minimum(position.astype(np.intp), self.points.size - 1)


@dataclass(frozen=True, eq=False)
class MassBins:
    """Consecutive bins of one real coordinate: ends, probabilities, and where E[· | bin] lies in the bin (0
    to 1).

    `outside` is the probability that no bin covers.
    """

    edges: FloatArray
    mass: FloatArray
    position: FloatArray
    outside: float

    @cached_property
    def mean(self) -> FloatArray:
        """E[coordinate | bin]."""
        return self.edges[:-1] + self.position * np.diff(self.edges)

    def part(self, start: int, stop: int) -> MassBins:
        """The bins start, …, stop−1."""
        return MassBins(self.edges[start : stop + 1], self.mass[start:stop], self.position[start:stop], 0.0)

    def interpolate(self, values: FloatArray) -> FloatArray:
        """The chord of `values` (at the edges) at E[· | bin]: bounds E[f | bin] for convex f."""
        return values[:-1] * (1 - self.position) + values[1:] * self.position


def inverse_chi_square_bins(n: float, chi_edges: FloatArray) -> MassBins:
    """MassBins of s = 1/χ, χ ~ χ²_n, between the increasing `chi_edges` (returned in increasing s)."""
    half = chi_edges / 2
    lower, upper = gammainc(n / 2, half), gammaincc(n / 2, half)
    mass = np.where(lower[1:] < 0.5, np.diff(lower), -np.diff(upper))
    # Position of the mean of s in each bin, by Gauss–Legendre in u = log χ (the density is analytic there).
    log_edges = np.log(chi_edges)
    centre, width = (log_edges[1:] + log_edges[:-1]) / 2, np.diff(log_edges) / 2
    u = centre[:, None] + width[:, None] * _NODES
    log_density = n / 2 * u - np.exp(u) / 2
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True)) * _WEIGHTS
    low, high = 1 / chi_edges[1:], 1 / chi_edges[:-1]
    position = ((np.exp(-u) - low[:, None]) * density).sum(axis=1) / density.sum(axis=1) / (high - low)
    outside = float(lower[0] + upper[-1])
    return MassBins((1 / chi_edges)[::-1], mass[::-1], np.clip(position[::-1], 0.0, 1.0), outside)


def chi_bins(n: float, special: FloatArray, *, tail: float = 0.1, body: float = 0.02) -> MassBins:
    """MassBins of s = 1/χ from χ = special[0] on: `special` edges and ordinary ones, none too close."""
    ordinary = tail_edges(n, tail=tail, body=body)
    edges = np.union1d(ordinary[ordinary > special[0]], special)
    return inverse_chi_square_bins(n, edges[np.append(True, np.diff(edges) > 1e-6 * edges[1:])])


@lru_cache(maxsize=256)
def tail_edges(n: float, *, tail: float, body: float) -> FloatArray:
    """Quantiles of χ²_n: below the median in steps of `tail` in log-probability down to e^−92, half of that
    above e^−5, 2, 4, 8 times that below e^−23, e^−41, e^−64; above the median in steps of `body` standard
    deviations."""
    bands = ((-5.0, 0.5), (-23.0, 1.0), (-41.0, 2.0), (-64.0, 4.0), (-_LOWEST_TAIL, 8.0))
    logs = [np.array([math.log(0.5)])]
    for end, width in bands:
        count = math.ceil((logs[-1][-1] - end) / (tail * width))
        logs.append(logs[-1][-1] - tail * width * np.arange(1, count + 1))
    lower = np.exp(np.concatenate(logs))[::-1]
    return _positive(2 * np.concatenate([gammaincinv(n / 2, lower), gammainccinv(n / 2, _tails(body))]))


@lru_cache(maxsize=256)
def body_edges(n: float, *, body: float) -> FloatArray:
    """Quantiles of χ²_n in steps of `body` standard deviations on both sides of the median."""
    tails = np.append(_tails(body)[::-1], 0.5)
    return _positive(2 * np.concatenate([gammaincinv(n / 2, tails), gammainccinv(n / 2, tails[-2::-1])]))


def _positive(edges: FloatArray) -> FloatArray:
    return np.asarray(edges[np.isfinite(edges) & (edges > 0)])


def _tails(step: float) -> FloatArray:
    """Φ(−z) at points z of (0, 10]: in steps of `step` up to 3, growing by a third beyond."""
    points = list(np.arange(step, 3.0, step))
    width = step
    while points[-1] < _UPPER_QUANTILE:
        width *= 4 / 3
        points.append(min(points[-1] + width, _UPPER_QUANTILE))
    return np.asarray(ndtr(-np.array(points)))


def student_bins(nu: float, *, step: float) -> MassBins:
    """MassBins of w = T/√ν, T ~ Student t_ν, density C(1+w²)^{−(ν+1)/2}; steps in standard deviations."""
    positive = -stdtrit(nu, _tails(step)) / np.sqrt(nu)
    edges = np.concatenate([-positive[::-1], [0.0], positive])
    lower = stdtr(nu, np.sqrt(nu) * np.minimum(edges, -edges))  # P(w ≤ −|edge|)
    mass = np.where(edges[1:] <= 0, np.diff(lower), -np.diff(lower))
    # E[w; bin] = C/(ν−1) [(1+a²)^{−(ν−1)/2} − (1+b²)^{−(ν−1)/2}]
    log_C = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - math.log(math.pi) / 2
    power = np.exp(log_C - (nu - 1) / 2 * np.log1p(edges**2)) / (nu - 1)
    mean = -np.diff(power) / mass
    position = np.clip((mean - edges[:-1]) / np.diff(edges), 0.0, 1.0)
    return MassBins(edges, mass, position, float(2 * lower[0]))


def half_normal_bins(*, step: float) -> MassBins:
    """MassBins of |z|, z ~ N(0, 1), up to 10 in steps of `step`; E[|z|; (a, b)] = 2(φ(a) − φ(b))."""
    edges = np.append(np.arange(0.0, _UPPER_QUANTILE, step), _UPPER_QUANTILE)
    tail = 2 * ndtr(-edges)
    mass = -np.diff(tail)
    density = np.exp(-(edges**2) / 2) * np.sqrt(2 / np.pi)
    position = np.clip((-np.diff(density) / mass - edges[:-1]) / np.diff(edges), 0.0, 1.0)
    return MassBins(edges, mass, position, float(tail[-1]))
