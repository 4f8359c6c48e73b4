"""What a solver is given and what it hands back: an objective in, a certified point out.

All of it is private: none of these objects shows its contents when printed or logged.
"""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.arrays import FloatArray
from curvedp.problem import Problem
from curvedp.rows.base import Rows


@dataclass(frozen=True, eq=False, repr=False)
class Perturbation:
    """⟨a, θ−θ_c⟩ + ½ vec(θ−θ_c)ᵀ Q vec(θ−θ_c), added to J (P-1).

    vec flattens in C order (row j, class k → j·K + k). QOP has Q = σ²W, LOP has Q = Δ·I.
    """

    center: FloatArray  # θ_c, shape (d, K)
    linear: FloatArray  # a, shape (d, K)
    quadratic: FloatArray  # Q ≻ 0, shape (dK, dK)


@dataclass(frozen=True, eq=False, repr=False)
class Objective:
    """J_priv(θ) = Σ_i ℓ(θ; z_i) + r(θ) + perturbation, over θ ∈ C (P-1).

    With `clip` = ζ, ℓ is the Huberised loss, whose gradient is ∇ℓ clipped to norm ζ (section 5, LOP-Clip).
    """

    problem: Problem
    rows: Rows
    perturbation: Perturbation
    clip: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """θ ∈ C of shape (d, K) with ‖θ − argmin‖ ≤ distance, proved, rounding included (section 7)."""

    theta: FloatArray
    distance: float
