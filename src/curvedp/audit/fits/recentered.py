"""The law of recentered fits (P-9) on few distinct records, in numbers that every backend can run.

Both tables of a pair are the same distinct records with two vectors of multiplicities, c₀ and c₁. Every
Gaussian release asks for Σ_r c_r v_r; with Δ = Σ (c₁ − c₀)_r v_r and v = q_s + σz its log-likelihood ratio is

    log p₁(v) − log p₀(v) = (s − ½)‖Δ‖²/σ² + ⟨z, Δ⟩/σ.

In coordinates φ with θ = Aᵀφ, A the released metric, a record is u = Ax, its margin uᵀφ, and a Newton step
subtracts (damping/b)·g: nothing of a round but u, φ and g is needed.

Noise is Gaussian here and on a grid of 2³¹ steps in the library; rounding slack of about 10⁻⁹ is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # a GPU machine needs numpy, torch and CuPy only
    from curvedp.arrays import FloatArray

MAX_D = 10
MAX_RECORDS = 8
LOOK_SIZES = 33  # root mean squares that a look tells apart
EDGES = 13  # of every histogram


class Numbers(NamedTuple):
    """Every public number of a plan, in the order in which kernels take them."""

    # what one record can do, and how many releases share what (ε, δ) allows
    x_norm: float
    public_count: float  # 1: n is public
    sum_factor: float
    histogram_factor: float
    gram_factor: float
    mu: float
    mu_count: float
    mu_pilot: float
    mu_lengths: float
    mu_spread: float
    mu_scale: float
    mu_clip: float
    mu_first: float
    mu_later: float
    sigma2: float
    m: float
    # the rule
    precise: float
    plenty: float
    rounds: float
    first_rounds: float
    step: float
    quick_rounds: float
    quick_first_rounds: float
    quick_step: float
    floor: float
    kept_lengths: float
    travel: float
    first_travel: float
    momentum: float
    weight: float
    large: float
    clipped: float
    kept: float
    doubt: float
    first_clip: float
    first_kept: float
    widest_clip: float
    # the loss: φ'' ≤ β, and the root mean square of φ'(0; y)
    beta: float
    slope: float


@dataclass(frozen=True, eq=False)
class RecenteredFits:
    """Fits of a plan on the tables c₀ and c₁ of distinct records x (r, d), y (r,).

    φ is logistic, y = ±1, or has the slope φ'(s; y) = clip(s − y, low, high), one low and high per record.
    """

    numbers: Numbers
    x: FloatArray
    y: FloatArray
    counts: FloatArray  # (2, r)
    slopes: tuple[FloatArray, FloatArray] | None = None  # (low, high); None: logistic

    @property
    def d(self) -> int:
        return int(self.x.shape[1])

    @cached_property
    def looks(self) -> Looks:
        return Looks.of(self.numbers.widest_clip)


@dataclass(frozen=True, eq=False)
class Looks:
    """`released.scales.typical_length` where the edges hang on the guess alone: its constants.

    log₂ of the root mean squares s_j and of the edges, in units of the largest edge; the mass of each cell
    given s_j; the prior of s_j for a guess at 1/widest of the largest edge, of one octave and of two.
    """

    edges: FloatArray  # (13,)
    sizes: FloatArray  # (33,), logarithms
    cells: FloatArray  # (33, 14)
    squares: FloatArray  # Σ cells²
    priors: FloatArray  # (2, 33)

    @classmethod
    def of(cls, widest: float) -> Looks:
        edges = 2.0 ** (-8.0 * np.linspace(1.0, 0.0, EDGES))
        sizes = -np.arange(1.0, 9.125, 0.25)
        erf = np.vectorize(math.erf, otypes=[float])
        below = erf(edges / (math.sqrt(2.0) * 2.0 ** sizes[:, None]))
        cells = np.diff(below, axis=1, prepend=0.0, append=1.0)
        away = sizes + math.log2(widest)
        priors = np.stack([-0.5 * (away / octaves) ** 2 for octaves in (1.0, 2.0)])
        return cls(edges, sizes, cells, np.square(cells).sum(1), priors)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Of n fits: what leaves, and log p₁ − log p₀ of everything that was released on the way."""

    theta: FloatArray  # (n, d)
    ratio: FloatArray  # (n,)


@dataclass(frozen=True, eq=False)
class Trace(Drawn):
    """`Drawn`, and what the fits released on the way, one row a fit; unused entries are 0."""

    count: FloatArray  # n̂
    bound: FloatArray  # B̃
    resolved: FloatArray
    spread: FloatArray
    typical: FloatArray
    clip: FloatArray
    kept: FloatArray

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]
