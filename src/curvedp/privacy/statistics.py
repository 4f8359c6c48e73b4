"""Private second moments: what the release of XᵀX (and Xᵀy) costs, with Wishart (S-1) or Gaussian (S-2)
noise.

A squared loss depends on the data through S = XᵀX + σ²W and v = Xᵀ(y−Xθ_c) − a only: once they are private,
everything computed from them is. No determinant enters the loss, so the bounds are below those of (P-6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.angles import (
    CELLS,
    RESOLUTIONS,
    AngularLoss,
    BoxedLoss,
    angle_bound,
    cell_law,
    corner_max,
    form_over,
)
from curvedp.privacy.directional import FEW_LEVELS, LEVELS, DirectionalDraft, pole_edges
from curvedp.privacy.quadrature import LossLaw, chi_bins, inverse_chi_square_bins, tail_edges

_LOWEST_LOSS = -50.0  # signed losses below this are raised to it


@dataclass(frozen=True)
class MomentAccounting:
    """(S-1): S = β XᵀX + σ²W with W ~ Wishart(d, m), g = βB²/σ²."""

    d: int
    m: float
    adjacency: Adjacency

    name = "statistics"
    theorem = "(S-1)"

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        n, replaced = self.m - self.d + 1, Neighbours(self.adjacency).moves == 2
        if replaced and self.d > 1:
            return angle_bound(MomentReplaced(n, g), epsilon, mu)
        laws = (moment_aligned_law(n, g),) if replaced else (moment_added_law(n, g), moment_removed_law(n, g))
        return np.asarray(np.max([law.divergence(epsilon, mu) for law in laws], axis=0))

    def draft(self) -> DirectionalDraft:
        return DirectionalDraft(self.d, self.m, self.adjacency)

    def near(self) -> MomentAccounting | MomentDraft:
        """A family whose δ is that of this one, or a little less, and is quicker to evaluate."""
        angular = Neighbours(self.adjacency).moves == 2 and self.d > 1
        return MomentDraft(self.m - self.d + 1) if angular else self


@dataclass(frozen=True)
class MomentDraft:
    """Not a bound: (S-1) for replaced records at nearly right angles alone, where δ is largest by far most
    often. It steers searches."""

    n: float

    def divergence(self, g: float, epsilon: FloatArray, mu: float) -> FloatArray:
        return cell_law(MomentReplaced(self.n, g), CELLS - 2, len(RESOLUTIONS) - 1).divergence(epsilon, mu)


def moment_added(g: float, k: float, s: FloatArray) -> FloatArray:
    """g/2 − k log(1+gs): convex, decreasing (S-1)."""
    return np.asarray(g / 2 - k * np.log1p(g * s))


def moment_removed(g: float, k: float, s: FloatArray) -> FloatArray:
    """−k log(1−gs) − g/2: convex, increasing (S-1), for gs < 1."""
    return np.asarray(-k * np.log1p(-g * s) - g / 2)


@lru_cache(maxsize=64)
def moment_added_law(n: float, g: float) -> LossLaw:
    """g/2 − k log(1+g/χ), signed, χ ~ χ²_n."""
    bins = inverse_chi_square_bins(n, tail_edges(n, tail=0.1, body=0.02))
    value = np.maximum(moment_added(g, n / 2 - 1, bins.edges), _LOWEST_LOSS)
    return LossLaw.of_bins(bins.mass, value[1:], value[:-1], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def moment_removed_law(n: float, g: float) -> LossLaw:
    """−k log(1−g/χ) − g/2, signed, χ ~ χ²_n; ∞ where χ ≤ g."""
    k = n / 2 - 1
    bins = chi_bins(n, _edges_near_pole(g, k, LEVELS))
    value = np.maximum(moment_removed(g, k, bins.edges), _LOWEST_LOSS)
    return LossLaw.of_bins(bins.mass, value[:-1], value[1:], bins.interpolate(value), bins.outside)


@lru_cache(maxsize=64)
def moment_aligned_law(n: float, g: float) -> LossLaw:
    """max(0, adding, removing) at one χ: replacement in dimension one."""
    k = n / 2 - 1
    bins = chi_bins(n, _edges_near_pole(g, k, LEVELS))
    falling = np.maximum(moment_added(g, k, bins.edges), 0.0)
    rising = np.maximum(moment_removed(g, k, bins.edges), 0.0)
    value = np.maximum(falling, rising)
    low = np.maximum(falling[1:], rising[:-1])
    high = np.maximum(value[1:], value[:-1])
    return LossLaw.of_bins(bins.mass, low, high, bins.interpolate(value), bins.outside)


def _edges_near_pole(g: float, k: float, levels: FloatArray) -> FloatArray:
    """Where −k log(1−g/χ) − g/2 takes the levels; k = 0 has no pole, the loss is infinite below g all the
    same."""
    return pole_edges(g, k, levels) if k > 0 else np.array([g * (1 + 1e-12)])


class MomentReplaced(AngularLoss):
    """The largest of 0, adding x', removing x, and both, −k log[(1+τ')(1−τ)+S²], at every angle (S-1).

    With τ = gs, τ' = gX(ψ), S = gs(cosψ − w sinψ) the bracket is 1−τ plus the form of (P-7j) with gs for s
    and (1−gs)gr for r.
    """

    @property
    def chi_edges(self) -> FloatArray:
        return _edges_near_pole(self.g, self.n / 2 - 1, FEW_LEVELS)

    def boxes(self, s: FloatArray, r: FloatArray, w: FloatArray, cell: tuple[float, float]) -> BoxedLoss:
        """Each of the four is convex in s and in r: −k log of something concave in each. In w the bracket is
        semiconcave like X, with gs + (1−gs)gr ≤ g(s+r) and 1−gs ≤ bracket."""
        g, k = self.g, self.n / 2 - 1
        left = 1 - g * s
        alone = form_over(s, r, w, cell)
        both = form_over(g * s, left * (g * r), w, cell)
        gone = np.maximum(moment_removed(g, k, s), 0.0)
        corners = np.maximum(moment_added(g, k, alone.low), gone)
        np.maximum(corners, -k * np.log(left + both.low), out=corners)
        # Multilinear in (s, r) and convex in w: the bracket is largest at a corner.
        bracket = np.minimum(*(corner_max(left + end) for end in both.ends))
        floor = np.maximum(moment_added(g, k, alone.ceiling_of_low()), gone[:-1])
        np.maximum(floor, -k * np.log(bracket), out=floor)
        return BoxedLoss(
            rise=None,
            fall=(corners, floor),
            bend=2 * k * g * math.sin(cell[1]) ** 2 * (r[1:] + s[1:]) / left[1:],
        )


def gaussian_sensitivity(x_norm: float, y_bound: float, y_weight: float, neighbours: Neighbours) -> float:
    """l2-sensitivity of (XᵀX, s·Xᵀy), XᵀX in the Frobenius norm, ‖x‖ ≤ B, |y| ≤ Y, s = y_weight  (S-2).

    add_remove: Δ² = B⁴ + s²B²Y².  replace: Δ² = 2B⁴(1 + s²Y²/(2B²))² if s²Y² ≤ 2B², else 4s²B²Y².
    """
    B, t = x_norm, (y_weight * y_bound) ** 2
    if neighbours.moves == 1:
        return B * math.sqrt(B**2 + t)
    if t <= 2 * B**2:
        return math.sqrt(2) * (B**2 + t / 2)
    return 2 * B * math.sqrt(t)


def gram_sensitivity(z_norm: float, neighbours: Neighbours) -> float:
    """l2-sensitivity of ZᵀZ in the Frobenius norm, ‖z‖ ≤ N: N² (add_remove), √2 N² (replace)  (S-2)."""
    return z_norm**2 * neighbours.gram_factor
