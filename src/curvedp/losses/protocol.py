"""What a loss is: a convex function of margins s = θᵀx ∈ R^K, its derivatives, its public constants.

A loss is a small frozen object without data. Everything is vectorised over records. The constants hold for
‖x‖ ≤ B = domain.x_norm and |y| ≤ Y = domain.y_bound, after `clip_target`  (section 6).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.domain import Domain
from curvedp.errors import NotCovered


class Loss(Protocol):
    """ℓ(θ; z) = φ(θᵀx; y), convex and C^{1,1} in the margin s ∈ R^K. Frozen, holds no data.

    Vectorised over records: s has shape (n, K), y shape (n,). `y` is a number (regression), ±1 (binary)
    or a class index 0..K−1 (multinomial). A loss that reads more of a record has an attribute `n_targets`,
    and takes y of shape (n, n_targets). A class that inherits from this one has what follows from the rest.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_outputs(self) -> int:
        """K, the number of columns of θ."""
        ...

    @property
    def rank(self) -> int:
        """ρ: the largest rank of ∇²ℓ in θ."""
        return self.n_outputs

    @property
    def is_quadratic(self) -> bool:
        """True when J depends on the data only through second moments (squared loss)."""
        return False

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """φ(s; y), shape (n,)."""
        ...

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """∂φ/∂s, shape (n, K)."""
        ...

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """∂²φ/∂s², shape (n, K, K)."""
        ...

    def inverse_link(self, s: FloatArray) -> FloatArray:
        """What the margins predict: E[y | s], or the probability of each class; shape (n, K).

        For two classes the probability of the second, shape (n, 1).
        """
        return s

    def margin_at(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        """The margin where φ'(·; y) = slope (K = 1), shape (n,); ±∞, the side of its sign, where none is."""
        raise NotCovered(
            f"the Huberised loss has one margin: clip the gradient of a {self.name} loss instead"
        )

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """y moved into the set the constants below assume (|y| ≤ Y, ±1, 0..K−1); a NaN too."""
        ...

    def curvature(self, domain: Domain, radius: float) -> float:
        """β ≥ ‖φ''‖ on margins reachable with ‖θ‖ ≤ radius (only Poisson needs the radius)."""
        ...

    def smoothness(self, domain: Domain, radius: float) -> float:
        """L = β B²."""
        return self.curvature(domain, radius) * domain.x_norm**2

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c ≥ sup_z ‖∇ℓ(θ_c; z)‖, ‖θ_c‖ ≤ center_norm."""
        ...

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        """Δ_c ≥ sup_{z,z'} ‖∇ℓ(θ_c; z) − ∇ℓ(θ_c; z')‖, at most 2γ_c."""
        return 2.0 * self.center_bound(domain, center_norm)

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        """ζ ≥ ‖∇ℓ(θ; z)‖ for ‖θ‖ ≤ radius; may be infinite when radius is. It is γ_c of that radius."""
        return self.center_bound(domain, radius)


def clipped_value(loss: Loss, s: FloatArray, y: FloatArray, slope: FloatArray) -> FloatArray:
    """The Huberised loss of LOP-Clip (section 5): φ continued linearly where |φ'| exceeds `slope` (K = 1).

    φ̃(s) = φ(s̃) + φ'(s̃)(s − s̃), s̃ the point nearest to s with |φ'(s̃)| ≤ slope.
    """
    low, high = loss.margin_at(-slope, y), loss.margin_at(slope, y)
    inside = np.clip(s[:, 0], low, high)
    beyond = np.abs(s[:, 0] - inside)
    linear = np.multiply(slope, beyond, where=beyond > 0, out=np.zeros_like(beyond))  # slope may be infinite
    return np.asarray(loss.value(inside[:, None], y) + linear)
