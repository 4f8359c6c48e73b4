"""The spectral accounting of QOP (P-5): any loss whose Hessian has rank ≤ ρ, through λ_min of the
curvature."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.ensembles import Wishart
from curvedp.errors import NotCovered
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.quadrature import LossBound, LossLaw


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
            raise NotCovered('the spectral accounting (P-5) needs d ≥ 2; pass accounting="directional"')

    @property
    def ensemble(self) -> Wishart:
        """The law whose smallest eigenvalue enters: of W, or of W⁻¹ compressed to the directions of the
        records."""
        if self.classes == 1:
            return Wishart(self.d, self.m)
        size = min(self.d, self.classes * Neighbours(self.adjacency).moves)
        return Wishart(size, self.m - self.d + size)

    def losses(self, g: float) -> LossBound:
        return spectral_law(self.ensemble, self.rank, g, self.points)

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
