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
from abc import ABC, abstractmethod
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
UPPER_QUANTILE = 10.0  # … and Φ(10) on the side where the loss is small


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


@lru_cache(maxsize=64)
def body_bins(n: float, *, step: float) -> MassBins:
    """MassBins of 1/χ: quantiles of χ²_n in steps of `step` deviations on both sides of the median."""
    tails = np.append(_tails(step)[::-1], 0.5)
    edges = 2 * np.concatenate([gammaincinv(n / 2, tails), gammainccinv(n / 2, tails[-2::-1])])
    return inverse_chi_square_bins(n, _positive(edges))


def _positive(edges: FloatArray) -> FloatArray:
    return np.asarray(edges[np.isfinite(edges) & (edges > 0)])


def _tails(step: float) -> FloatArray:
    """Φ(−z) at points z of (0, 10]: in steps of `step` up to 3, growing by a third beyond."""
    points = list(np.arange(step, 3.0, step))
    width = step
    while points[-1] < UPPER_QUANTILE:
        width *= 4 / 3
        points.append(min(points[-1] + width, UPPER_QUANTILE))
    return np.asarray(ndtr(-np.array(points)))


@lru_cache(maxsize=64)
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


# The joint law of χ = 1/(x̂ᵀW⁻¹x̂) and χ' = 1/(x̂'ᵀW⁻¹x̂') at every angle between two directions (P-7j).
#
# W ~ Wishart(d, m), n = m−d+1, ψ the angle of x̂ and x̂'. With independent s = 1/χ, χ ~ χ²_n; r = 1/V, V ~
# χ²_{n+2}; w = T/√(n+1), T ~ Student t_{n+1}:
#
#     1/χ' = X(ψ) = s (cosψ − w sinψ)² + r (1+w²) sin²ψ,     x̂ᵀW⁻¹x̂' = s (cosψ − w sinψ).
#
# [0, π/2] is cut into cells. On a cell the range of such a quadratic form is exact, so a loss that holds for
# the whole cell is a function of (s, r, w) alone, and the largest cell bounds the supremum over ψ.

CELLS = 16  # of ψ: more sharpen the bound, and cost as many times as much
# Ends of the cells of ψ: half uniform, half cosine, so that they are narrower at 0 and π/2, where the
# supremum often is.
_ANGLES = [math.pi / 4 * (j / CELLS + (1 - math.cos(math.pi * j / CELLS)) / 2) for j in range(CELLS + 1)]
_MANY_LEVELS = 64  # beyond that, each cell is the worst one somewhere: all are computed finely at once
_ANGLES_AT_ONCE = 12_000  # boxes treated at once: temporary arrays stay in a processor's cache
# Widths of bins: in the log-probability of χ, and in standard deviations of V and w. Each is finer.
RESOLUTIONS = ((1.6, 1.0), (0.8, 0.5), (0.4, 0.3))

# Values of a function at the corners of a grid of boxes, and a lower bound of it on every box.
Range = tuple[FloatArray, FloatArray]
Boxes = tuple[Range, Range, FloatArray]  # (rise, fall, bend) of `AngularLoss.boxes`


@dataclass(frozen=True)
class AngularLoss(ABC):
    """A privacy loss ≥ 0 that depends on (s, r, w, ψ), at one ratio g."""

    n: float
    g: float

    @property
    @abstractmethod
    def chi_edges(self) -> FloatArray:
        """χ from the point below which the loss counts as infinite, on to where it is ordinary."""

    @abstractmethod
    def boxes(self, s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> Boxes:
        """(rise, fall, bend) of a majorant log(1 + rise) + fall of the loss, for all angles of `cell`.

        s, r, w are the edges of boxes, shaped to broadcast. `rise` is convex in s, in r and in w; `fall` is
        convex in s, in r, and fall + bend·w²/2 is convex in w (`bend` is constant on each box).
        """


def angle_bound(loss: AngularLoss, epsilon: FloatArray, mu: float) -> FloatArray:
    """sup over ψ ∈ [0, π/2] of E[H_Φ(ε − ℓ(ψ); μ)], over `CELLS` cells  (P-7j).

    A cell is computed with finer bins only where its bound exceeds what the finest cells already reach.
    """
    finest = len(RESOLUTIONS) - 1
    depth = np.full(CELLS, finest if epsilon.size > _MANY_LEVELS else 0)
    bounds = np.array(
        [cell_law(loss, cell, int(depth[cell])).divergence(epsilon, mu) for cell in range(CELLS)]
    )
    while True:
        final = depth == finest
        reached = bounds[final].max(axis=0, initial=0.0)
        excess = np.where(final[:, None], 0.0, bounds) - reached
        if excess.max() <= 0:
            return np.asarray(bounds.max(axis=0))
        cell = int(np.argmax(excess.max(axis=1)))
        depth[cell] += 1
        finer = cell_law(loss, cell, int(depth[cell])).divergence(epsilon, mu)
        bounds[cell] = np.minimum(bounds[cell], finer)


@lru_cache(maxsize=512)
def cell_law(loss: AngularLoss, cell: int, depth: int) -> LossLaw:
    """A law that dominates ℓ(ψ) for every ψ of the cell, collected on a grid.

    V and w move χ' by sin ψ only: at small angles bins are coarser in them and finer in χ, by powers of √2,
    so that many cells share their bins.
    """
    angles, (tail, body) = (_ANGLES[cell], _ANGLES[cell + 1]), RESOLUTIONS[depth]
    ratio = math.sqrt(2.0) ** max(math.floor(-2 * math.log2(math.sin(angles[1]))), 0)
    width = min(1.0, body * ratio)
    s = _bins_s(loss, tail * body / width, 1.5 * width)
    r, w = body_bins(loss.n + 2, step=width), student_bins(loss.n + 1, step=width)
    grid = LossGrid(loss.g / math.sqrt(2 * loss.n) / 40)  # the loss's standard deviation, roughly
    total = np.zeros(grid.points.size + 1)
    rows = math.ceil(_ANGLES_AT_ONCE / (r.mass.size * w.mass.size))
    for start in range(0, s.mass.size, rows):
        part = s.part(start, start + rows)
        rise, fall, bend = loss.boxes(part.edges[:, None, None], r.edges[:, None], w.edges, angles)
        pad = bend * (np.diff(w.edges) ** 2 / 8)  # the largest bend/2·(b−w)(w−a) in a bin (a, b)
        (up, floor), (down, low) = rise, fall
        # log is concave: E[log(1+rise)] ≤ log(1+E[rise])
        mean = _chords(down, part, r, w) + pad + np.log1p(_chords(up, part, r, w))
        high = corner_max(down) + pad + np.log1p(corner_max(up))
        low = low + np.log1p(floor)
        mass = part.mass[:, None, None] * (r.mass[:, None] * w.mass)
        total += grid.collect(mass.ravel(), low.ravel(), high.ravel(), mean.ravel())
    return grid.law(total, s.outside + r.outside + w.outside)


def _chords(corners: FloatArray, s: MassBins, r: MassBins, w: MassBins) -> FloatArray:
    """Bounds E[f | box] for f convex in each of the independent s, r, w: chords along w, r and s in turn."""
    f = corners[:, :, :-1] + np.diff(corners, axis=2) * w.position
    f = f[:, :-1] + np.diff(f, axis=1) * r.position[:, None]
    return np.asarray(f[:-1] + np.diff(f, axis=0) * s.position[:, None, None])


def corner_max(values: FloatArray) -> FloatArray:
    """The largest of the eight corner values of every box."""
    values = np.maximum(values[1:], values[:-1])
    values = np.maximum(values[:, 1:], values[:, :-1])
    return np.maximum(values[:, :, 1:], values[:, :, :-1])


@dataclass(frozen=True, eq=False)
class Form:
    """s(cosψ − w sinψ)² + r(1+w²) sin²ψ at the corners of a grid: at both ends of a cell of ψ, and its
    least and largest value over the cell."""

    ends: tuple[FloatArray, FloatArray]
    low: FloatArray
    high: FloatArray

    def ceiling_of_low(self) -> FloatArray:
        """On every box an upper bound of `low`: nondecreasing in s and r, and each end is convex in w."""
        return np.minimum(*(np.maximum(end[1:, 1:, 1:], end[1:, 1:, :-1]) for end in self.ends))


def form_over(s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> Form:
    """The form is c0 + a cos(2ψ−ψ0): an end of the cell is extreme unless the slope changes sign inside."""
    ends, slopes = [], []
    w2 = 1 + w * w
    for psi in cell:
        cos, sin = math.cos(psi), math.sin(psi)
        along, across = cos - sin * w, -sin - cos * w
        ends.append(s * along**2 + r * (sin * sin * w2))
        slopes.append((along * across, sin * cos * w2))  # half the slope is s·(first) + r·(second)
    low, high = np.minimum(*ends), np.maximum(*ends)
    # Both slopes are linear in s and r: only columns of w where some corner is negative and some positive
    # can turn.
    ends_s, ends_r = (s.min(), s.max()), (r.min(), r.max())
    spans = [np.array([S * first + R * second for S in ends_s for R in ends_r]) for first, second in slopes]
    for start, stop, values, keep in ((-1, 1, low, np.minimum), (1, -1, high, np.maximum)):
        columns = ((start * spans[0]).max(axis=0) > 0) & ((stop * spans[1]).max(axis=0) > 0)
        if columns.any():
            at = np.flatnonzero(columns)
            first, last = (s * f[at] + r * g[at] for f, g in slopes)
            turns = (start * first > 0) & (start * last < 0)
            # The eigenvalues of the form, c0 + a and c0 − a = det/(c0 + a), det = s r (1+w²).
            spread = r * (1 + w[at] * w[at])
            total = s * (1 + w[at] * w[at]) + spread
            top = total / 2 + np.sqrt((s - total / 2) ** 2 + (s * w[at]) ** 2)
            extreme = s * spread / top if start < 0 else top
            values[:, :, at] = np.where(turns, keep(extreme, values[:, :, at]), values[:, :, at])
    return Form((ends[0], ends[1]), low, high)


def floor_of_high(s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> FloatArray:
    """On every box a lower bound of `Form.high`: its start, with s, r, (cosψ − w sinψ)² and w² least one by
    one."""
    cos, sin = math.cos(cell[0]), math.sin(cell[0])
    along = cos - sin * w
    least_along = np.where(along[1:] * along[:-1] < 0, 0.0, np.minimum(along[1:] ** 2, along[:-1] ** 2))
    least_spread = 1 + np.where(w[1:] * w[:-1] < 0, 0.0, np.minimum(w[1:] ** 2, w[:-1] ** 2))
    return np.asarray(s[:-1] * least_along + (sin * sin) * (r[:-1] * least_spread))


@lru_cache(maxsize=64)
def _bins_s(loss: AngularLoss, tail: float, body: float) -> MassBins:
    return chi_bins(loss.n, loss.chi_edges, tail=tail, body=body)
