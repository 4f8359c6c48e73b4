"""The directional accounting of QOP on linear models (P-6), by add_remove and by replace (P-7), (P-7j).

χ = ‖x‖²/(xᵀW⁻¹x) ~ χ²_n, n = m−d+1, whatever d is; k = (m−d−1)/2, g = L/σ², s = 1/χ:

    A(s) = max(log(1+gs), g/2 − k log(1+gs))          the record that D' has and D lacks
    R(s) = max(0, −(k+1) log(1−gs) − g/2)             the record that D has and D' lacks; ∞ where gs ≥ 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.angles import AngleBound, BoxedLoss, Range, floor_of_high, form_over, merge_edges
from curvedp.privacy.quadrature import (
    LARGEST_LOSS,
    Best,
    LossBound,
    LossLaw,
    ShiftedBy,
    Worst,
    inverse_chi_square_bins,
    tail_edges,
)

LEVELS = np.geomspace(LARGEST_LOSS, 0.05, 400)  # losses at which bins of χ end, near the pole χ = g
FEW_LEVELS = LEVELS[::40]


@dataclass(frozen=True)
class Directional:
    """(P-6): QOP with Wishart(d, m) on a linear model. `losses(g)` bounds δ; `joint=False` leaves (P-7j)
    out."""

    d: int
    m: float
    adjacency: Adjacency
    joint: bool = True

    name = "directional"

    @property
    def theorem(self) -> str:
        if Neighbours(self.adjacency).moves == 1:
            return "(P-6)"
        return "(P-7j)" if self.joint else "(P-7)"

    def losses(self, g: float) -> LossBound:
        n = self.m - self.d + 1
        if Neighbours(self.adjacency).moves == 1:
            return Worst((added_law(n, g), removed_law(n, g)))
        if self.d == 1:
            return aligned_law(n, g)
        split = SplitBound(n, g)
        return Best((split, AngleBound(n, Replaced(n, g)))) if self.joint else split

    def draft(self) -> DirectionalDraft:
        return DirectionalDraft(self.d, self.m, self.adjacency)


@dataclass(frozen=True)
class DirectionalDraft:
    """Not a bound: a quick approximation of `Directional` that steers searches. A replacing record is taken
    for a removed one beside a Gaussian shift of the same standard deviation, g/√(2n)."""

    d: int
    m: float
    adjacency: Adjacency

    def losses(self, g: float) -> LossBound:
        n = self.m - self.d + 1
        both = Neighbours(self.adjacency).moves == 2
        return ShiftedBy(removed_law(n, g, tail=0.5, body=0.2), g / math.sqrt(2 * n) if both else 0.0)


def added(g: float, k: float, s: FloatArray) -> FloatArray:
    """A(s) = max(log(1+gs), g/2 − k log(1+gs))  (P-6)."""
    log = np.log1p(g * s)
    return np.asarray(np.maximum(log, g / 2 - k * log))


def removed(g: float, k: float, s: FloatArray) -> FloatArray:
    """R(s) = max(0, −(k+1) log(1−gs) − g/2)  (P-6), for gs < 1."""
    return np.asarray(np.maximum(-(k + 1) * np.log1p(-g * s) - g / 2, 0.0))


def pole_edges(g: float, power: float, levels: FloatArray) -> FloatArray:
    """The χ > g at which −power·log(1−g/χ) − g/2 takes the (decreasing) `levels`."""
    return np.asarray(np.maximum(g / -np.expm1(-(levels + g / 2) / power), g * (1 + 1e-12)))


def vertex(g: float, k: float) -> float:
    """The χ at which the two branches of A meet: log(1+g/χ) = g/(2(k+1))."""
    return g / math.expm1(g / (2 * (k + 1)))


@lru_cache(maxsize=64)
def added_law(n: float, g: float) -> LossLaw:
    """A(1/χ), χ ~ χ²_n."""
    k = n / 2 - 1
    edges = np.union1d(tail_edges(n, tail=0.1, body=0.02), [vertex(g, k)])
    bins = inverse_chi_square_bins(n, edges)
    value = added(g, k, bins.edges)
    # Decreasing branch: convex in s, a chord. Increasing branch: concave in s, Jensen.
    rising = np.diff(value) > 0
    mean = np.where(rising, np.log1p(g * bins.mean), bins.interpolate(value))
    low, high = np.minimum(value[1:], value[:-1]), np.maximum(value[1:], value[:-1])
    return LossLaw.of_bins(bins.mass, low, high, mean, bins.outside)


@lru_cache(maxsize=64)
def removed_law(n: float, g: float, *, tail: float = 0.1, body: float = 0.02) -> LossLaw:
    """R(1/χ), χ ~ χ²_n: convex and nondecreasing in s."""
    k = n / 2 - 1
    near_pole = pole_edges(g, k + 1, LEVELS if tail < 0.2 else FEW_LEVELS)
    bins = inverse_chi_square_bins(n, merge_edges(tail_edges(n, tail=tail, body=body), near_pole))
    value = removed(g, k, bins.edges)
    return LossLaw.of_bins(bins.mass, value[:-1], value[1:], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def aligned_law(n: float, g: float) -> LossLaw:
    """A(1/χ) + R(1/χ): replacement in dimension one, where every x is parallel to every x'."""
    k = n / 2 - 1
    special = np.union1d(pole_edges(g, k + 1, LEVELS), [vertex(g, k)])
    special = special[special >= pole_edges(g, k + 1, LEVELS[:1])]
    bins = inverse_chi_square_bins(n, merge_edges(tail_edges(n, tail=0.1, body=0.02), special))
    a, r = added(g, k, bins.edges), removed(g, k, bins.edges)
    rising = np.diff(a) > 0
    mean = np.where(rising, np.log1p(g * bins.mean), bins.interpolate(a)) + bins.interpolate(r)
    low = np.minimum(a[1:], a[:-1]) + r[:-1]
    high = np.maximum(a[1:], a[:-1]) + r[1:]
    return LossLaw.of_bins(bins.mass, low, high, mean, bins.outside)


@dataclass(frozen=True)
class SplitBound:
    """min over u ≥ 0 of E[(1 − e^{u−A(χ')})₊] + E[H_Φ(ε − u − R(χ); μ)]: valid at every angle  (P-7)."""

    n: float
    g: float

    def divergence(self, epsilon: FloatArray, mu: float) -> FloatArray:
        a, r = added_law(self.n, self.g), removed_law(self.n, self.g)
        best = np.ones(epsilon.size)
        low, high = np.zeros(epsilon.size), np.full(epsilon.size, max(self.g, float(np.max(epsilon))))
        for _ in range(4):  # every u is valid: a shrinking grid around the best
            fractions = np.linspace(0.0, 1.0, 9)
            values = []
            for fraction in fractions:
                u = low + fraction * (high - low)
                values.append(a.divergence(u, 0.0) + r.divergence(epsilon - u, mu))
            at = np.argmin(values, axis=0)
            best = np.minimum(best, np.min(values, axis=0))
            width = (high - low) / 8
            centre = low + at * width
            low, high = np.maximum(centre - width, 0.0), centre + width
        return best


@dataclass(frozen=True)
class Replaced:
    """A(χ') + R(χ) at every angle of x and x'  (P-6), (P-7j)."""

    n: float
    g: float

    @property
    def scale(self) -> float:
        return self.g / math.sqrt(2 * self.n)

    @property
    def chi_edges(self) -> FloatArray:
        return pole_edges(self.g, self.n / 2, FEW_LEVELS)

    def boxes(self, s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> BoxedLoss:
        """Over a cell, A ≤ log(1+gX_high) + (g/2 − (k+1) log(1+gX_low))₊.

        X_high is convex in s, r and w. X_low is concave in (s, r), and X_low − sin²ψ (r+s) w² is concave in
        w: its image under the decreasing convex (g/2 − (k+1) log(1+g·))₊ is convex in s and in r, and bends
        in w by at most (k+1)g·2 sin²ψ (r+s).
        """
        g, k = self.g, self.n / 2 - 1
        form = form_over(s, r, w, cell)
        gone = removed(g, k, s)

        def fall(X: FloatArray) -> FloatArray:
            return np.asarray(np.maximum(g / 2 - (k + 1) * np.log1p(g * X), 0.0))

        return BoxedLoss(
            rise=Range(g * form.high, g * floor_of_high(s, r, w, cell)),
            fall=Range(gone + fall(form.low), gone[:-1] + fall(form.ceiling_of_low())),
            bend=2 * (k + 1) * g * math.sin(cell[1]) ** 2 * (r[1:] + s[1:]),
        )
