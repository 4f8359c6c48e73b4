"""The joint law of χ = 1/(x̂ᵀW⁻¹x̂) and χ' = 1/(x̂'ᵀW⁻¹x̂') at every angle between two directions (P-7j).

W ~ Wishart(d, m), n = m−d+1, ψ the angle of x̂ and x̂'. With independent s = 1/χ, χ ~ χ²_n; r = 1/V, V ~
χ²_{n+2}; w = T/√(n+1), T ~ Student t_{n+1}:

    1/χ' = X(ψ) = s (cosψ − w sinψ)² + r (1+w²) sin²ψ,     x̂ᵀW⁻¹x̂' = s (cosψ − w sinψ).

[0, π/2] is cut into cells. On a cell the range of such a quadratic form is exact, so a loss that holds for
the whole cell is a function of (s, r, w) alone, and the largest cell bounds the supremum over ψ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.privacy.quadrature import (
    LossGrid,
    LossLaw,
    MassBins,
    body_edges,
    chi_bins,
    inverse_chi_square_bins,
    student_bins,
)

CELLS = 16  # of ψ: more sharpen the bound, and cost as many times as much
# Ends of the cells of ψ: half uniform, half cosine, so that they are narrower at 0 and π/2, where the
# supremum often is.
_ANGLES = [math.pi / 4 * (j / CELLS + (1 - math.cos(math.pi * j / CELLS)) / 2) for j in range(CELLS + 1)]
_MANY_LEVELS = 64  # beyond that, each cell is the worst one somewhere: all are computed finely at once
_BLOCK = 12_000  # boxes treated at once: temporary arrays stay in a processor's cache


# Widths of bins: in the log-probability of χ, and in standard deviations of V and w. Each is finer.
RESOLUTIONS = ((1.6, 1.0), (0.8, 0.5), (0.4, 0.3))

# Values of a function at the corners of a grid of boxes, and a lower bound of it on every box.
Range = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class BoxedLoss:
    """A majorant log(1 + rise) + fall of a loss, for all angles of a cell, on a grid of boxes in (s, r, w).

    `rise` is convex in s, in r and in w; `fall` is convex in s, in r, and fall + bend·w²/2 is convex in w
    (`bend` is constant on each box).
    """

    rise: Range | None
    fall: Range
    bend: FloatArray


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
    def boxes(self, s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> BoxedLoss:
        """The majorant over the angles of `cell`; s, r, w are the edges, shaped to broadcast."""


def angle_bound(
    loss: AngularLoss, epsilon: FloatArray, mu: float, depths: int = len(RESOLUTIONS)
) -> FloatArray:
    """sup over ψ ∈ [0, π/2] of E[H_Φ(ε − ℓ(ψ); μ)], over `CELLS` cells  (P-7j).

    A cell is computed with finer bins only where its bound exceeds what the finest cells already reach;
    `depths` counts the resolutions that may be used.
    """
    depth = np.full(CELLS, depths - 1 if epsilon.size > _MANY_LEVELS else 0)
    bounds = np.array(
        [cell_law(loss, cell, int(depth[cell])).divergence(epsilon, mu) for cell in range(CELLS)]
    )
    while True:
        final = depth == depths - 1
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
    r, w = _bins_rw(loss.n, width)
    grid = LossGrid(loss.g / math.sqrt(2 * loss.n) / 40)  # the loss's standard deviation, roughly
    total = np.zeros(grid.points.size + 1)
    rows = math.ceil(_BLOCK / (r.mass.size * w.mass.size))
    for start in range(0, s.mass.size, rows):
        total += _collect_block(grid, loss, s.part(start, start + rows), r, w, angles)
    return grid.law(total, s.outside + r.outside + w.outside)


def _collect_block(
    grid: LossGrid, loss: AngularLoss, s: MassBins, r: MassBins, w: MassBins, cell: tuple[float, float]
) -> FloatArray:
    boxed = loss.boxes(s.edges[:, None, None], r.edges[:, None], w.edges, cell)
    pad = boxed.bend * (np.diff(w.edges) ** 2 / 8)  # the largest bend/2·(b−w)(w−a) in a bin (a, b)
    corners, low = boxed.fall
    mean = _chords(corners, s, r, w) + pad
    high = corner_max(corners) + pad
    if boxed.rise is not None:  # log is concave: E[log(1+rise)] ≤ log(1+E[rise])
        corners, floor = boxed.rise
        mean += np.log1p(_chords(corners, s, r, w))
        high += np.log1p(corner_max(corners))
        low = low + np.log1p(floor)
    mass = s.mass[:, None, None] * (r.mass[:, None] * w.mass)
    return grid.collect(mass.ravel(), low.ravel(), high.ravel(), mean.ravel())


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
            turns = _turns(s, r, [(f[at], g[at]) for f, g in slopes], start)
            top, bottom = _extremes(s, r, w[at])
            values[:, :, at] = np.where(
                turns, keep(bottom if start < 0 else top, values[:, :, at]), values[:, :, at]
            )
    return Form((ends[0], ends[1]), low, high)


def _turns(
    s: FloatArray, r: FloatArray, slopes: list[tuple[FloatArray, FloatArray]], start: int
) -> NDArray[np.bool_]:
    """Where the slope has the sign `start` at the start of the cell and the other at its end."""
    first, last = (s * f + r * g for f, g in slopes)
    return np.asarray((start * first > 0) & (start * last < 0))


def _extremes(s: FloatArray, r: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """c0 + a and c0 − a, the eigenvalues of the form; the latter as det/(c0 + a), det = s r (1+w²)."""
    spread = r * (1 + w * w)
    total = s * (1 + w * w) + spread
    top = total / 2 + np.sqrt((s - total / 2) ** 2 + (s * w) ** 2)
    return top, s * spread / top


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


@lru_cache(maxsize=64)
def _bins_rw(n: float, step: float) -> tuple[MassBins, MassBins]:
    return inverse_chi_square_bins(n + 2, body_edges(n + 2, body=step)), student_bins(n + 1, step=step)
