"""The accountings of QOP: directional on linear models (P-6), by add_remove and by replace (P-7), (P-7j), and
spectral for any loss whose Hessian has rank ≤ ρ, through λ_min of the curvature (P-5).

χ = ‖x‖²/(xᵀW⁻¹x) ~ χ²_n, n = m−d+1, whatever d is; k = (m−d−1)/2, g = L/σ², s = 1/χ:

    A(s) = max(log(1+gs), g/2 − k log(1+gs))          the record that D' has and D lacks
    R(s) = max(0, −(k+1) log(1−gs) − g/2)             the record that D has and D' lacks; ∞ where gs ≥ 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.ensembles import Wishart
from curvedp.errors import NotCovered
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.angles import AngularLoss, BoxedLoss, angle_bound, floor_of_high, form_over
from curvedp.privacy.quadrature import (
    LARGEST_LOSS,
    LossLaw,
    MassBins,
    chi_bins,
    inverse_chi_square_bins,
    tail_edges,
)

LEVELS = np.geomspace(LARGEST_LOSS, 0.05, 400)  # losses at which bins of χ end, near the pole χ = g
FEW_LEVELS = LEVELS[::40]  # of drafts, and of bins in three coordinates


@dataclass(frozen=True)
class Directional:
    """(P-6): QOP with Wishart(d, m) on a linear model; `joint=False` leaves (P-7j) out."""

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

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        n = self.m - self.d + 1
        if Neighbours(self.adjacency).moves == 1:
            laws = added_law(n, g), removed_law(n, g)
            return np.asarray(np.maximum(*(law.divergence(epsilon, mu) for law in laws)))
        if self.d == 1:
            return aligned_law(n, g).divergence(epsilon, mu)
        split = split_bound(n, g, epsilon, mu)
        return np.minimum(split, angle_bound(Replaced(n, g), epsilon, mu)) if self.joint else split

    def draft(self) -> DirectionalDraft:
        return DirectionalDraft(self.d, self.m, self.adjacency)


@dataclass(frozen=True)
class DirectionalDraft:
    """Not a bound: a quick approximation of `Directional` that steers searches. A replacing record is taken
    for a removed one beside a Gaussian shift of the same standard deviation, g/√(2n)."""

    d: int
    m: float
    adjacency: Adjacency

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        n = self.m - self.d + 1
        shift = g / math.sqrt(2 * n) if Neighbours(self.adjacency).moves == 2 else 0.0
        return removed_law(n, g, tail=0.5, body=0.2).divergence(epsilon, math.hypot(mu, shift))


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


def _added_on(bins: MassBins, g: float, k: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(least, largest, bound of the mean) of A on every bin.

    Decreasing branch: convex in s, a chord. Increasing branch: concave in s, Jensen.
    """
    value = added(g, k, bins.edges)
    mean = np.where(np.diff(value) > 0, np.log1p(g * bins.mean), bins.interpolate(value))
    return np.minimum(value[1:], value[:-1]), np.maximum(value[1:], value[:-1]), mean


@lru_cache(maxsize=64)
def added_law(n: float, g: float) -> LossLaw:
    """A(1/χ), χ ~ χ²_n."""
    k = n / 2 - 1
    bins = inverse_chi_square_bins(n, np.union1d(tail_edges(n, tail=0.1, body=0.02), [vertex(g, k)]))
    return LossLaw.of_bins(bins.mass, *_added_on(bins, g, k), bins.outside)


@lru_cache(maxsize=64)
def removed_law(n: float, g: float, *, tail: float = 0.1, body: float = 0.02) -> LossLaw:
    """R(1/χ), χ ~ χ²_n: convex and nondecreasing in s."""
    k = n / 2 - 1
    bins = chi_bins(n, pole_edges(g, k + 1, LEVELS if tail < 0.2 else FEW_LEVELS), tail=tail, body=body)
    value = removed(g, k, bins.edges)
    return LossLaw.of_bins(bins.mass, value[:-1], value[1:], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def aligned_law(n: float, g: float) -> LossLaw:
    """A(1/χ) + R(1/χ): replacement in dimension one, where every x is parallel to every x'."""
    k = n / 2 - 1
    special = np.union1d(pole_edges(g, k + 1, LEVELS), [vertex(g, k)])
    bins = chi_bins(n, special[special >= pole_edges(g, k + 1, LEVELS[:1])])
    low, high, mean = _added_on(bins, g, k)
    r = removed(g, k, bins.edges)
    return LossLaw.of_bins(bins.mass, low + r[:-1], high + r[1:], mean + bins.interpolate(r), bins.outside)


def split_bound(n: float, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
    """min over u ≥ 0 of E[(1 − e^{u−A(χ')})₊] + E[H_Φ(ε − u − R(χ); μ)]: valid at every angle  (P-7)."""
    a, r = added_law(n, g), removed_law(n, g)
    best = np.ones(epsilon.size)
    low, high = np.zeros(epsilon.size), np.full(epsilon.size, max(g, float(np.max(epsilon))))
    for _ in range(4):  # every u is valid: a shrinking grid around the best
        values = []
        for fraction in np.linspace(0.0, 1.0, 9):
            u = low + fraction * (high - low)
            values.append(a.divergence(u, 0.0) + r.divergence(epsilon - u, mu))
        best = np.minimum(best, np.min(values, axis=0))
        width = (high - low) / 8
        centre = low + np.argmin(values, axis=0) * width
        low, high = np.maximum(centre - width, 0.0), centre + width
    return best


class Replaced(AngularLoss):
    """A(χ') + R(χ) at every angle of x and x'  (P-6), (P-7j)."""

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
            rise=(g * form.high, g * floor_of_high(s, r, w, cell)),
            fall=(gone + fall(form.low), gone[:-1] + fall(form.ceiling_of_low())),
            bend=2 * (k + 1) * g * math.sin(cell[1]) ** 2 * (r[1:] + s[1:]),
        )


@dataclass(frozen=True)
class Spectral:
    """(P-5): ℓ* = −(k+1) log(1 − g/λ) + ρ log(1 + g/λ), λ = λ_min(W), W ~ Wishart(d, m); ∞ where λ ≤ g.

    `classes` = K > 1 (θ has d/K rows and K columns, Hessians live in R^K ⊗ x): λ is then that of
    Wishart_K(m−d+K) under add_remove and of Wishart_2K(m−d+2K) under replace; k is the same.
    """

    d: int
    m: float
    rank: int
    adjacency: Adjacency
    classes: int = 1
    points: int = 16_000

    name = "spectral"
    theorem = "(P-5)"

    def __post_init__(self) -> None:
        if self.d < 2:
            raise NotCovered("the spectral accounting (P-5) needs d ≥ 2; pass `accounting=directional`")

    @property
    def ensemble(self) -> Wishart:
        """The law whose smallest eigenvalue enters: of W, or of W⁻¹ compressed to the directions of the
        records."""
        if self.classes == 1:
            return Wishart(self.d, self.m)
        size = min(self.d, self.classes * Neighbours(self.adjacency).moves)
        return Wishart(size, self.m - self.d + size)

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        return spectral_law(self.ensemble, self.rank, g, self.points).divergence(epsilon, mu)

    def draft(self) -> Spectral:
        return replace(self, points=1000)


def spectral(g: float, k: float, rank: int, eigenvalue: FloatArray) -> FloatArray:
    """−(k+1) log(1 − g/λ) + ρ log(1 + g/λ)  (P-5), decreasing in λ > g."""
    ratio = g / eigenvalue
    return np.asarray(-(k + 1) * np.log1p(-ratio) + rank * np.log1p(ratio))


@lru_cache(maxsize=64)
def spectral_law(ensemble: Wishart, rank: int, g: float, points: int) -> LossLaw:
    """Each bin of λ at its largest loss, under a law with P(λ ≤ s) ≤ the tail bound: larger losses only."""
    top = max((math.sqrt(ensemble.m) + math.sqrt(ensemble.d) + 8) ** 2, 2 * g)
    near_pole = g + np.geomspace(1e-12 * g, top, points // 4)
    edges = np.union1d(near_pole, np.geomspace(g * (1 + 1e-12), top, points - points // 4))
    tail = np.maximum.accumulate(ensemble.lambda_min_tail(edges))
    loss = spectral(g, ensemble.k, rank, edges)
    mass = np.append(np.diff(tail), 1.0 - tail[-1])
    return LossLaw.of_bins(mass, loss, loss, loss, float(tail[0]))
