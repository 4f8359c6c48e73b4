"""Losses on margins s = θᵀx ∈ R^K: value, derivatives, and the public constants of THEORY section 6."""

from __future__ import annotations

from typing import Protocol

from curvedp.domain import Domain, FloatArray


class Loss(Protocol):
    """ℓ(θ; z) = φ(θᵀx; y), convex and C^{1,1} in the margin s ∈ R^K. Frozen, holds no data.

    Vectorised over records: s has shape (n, K), y shape (n,). `y` is a number (regression), ±1 (binary)
    or a class index 0..K−1 (multinomial).
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
        ...

    @property
    def is_quadratic(self) -> bool:
        """True when J depends on the data only through second moments (squared loss)."""
        ...

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """φ(s; y), shape (n,)."""
        ...

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """∂φ/∂s, shape (n, K)."""
        ...

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """∂²φ/∂s², shape (n, K, K)."""
        ...

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """y moved into the set the constants below assume (|y| ≤ Y, ±1, 0..K−1); a NaN too."""
        ...

    def curvature(self, domain: Domain, radius: float) -> float:
        """β ≥ ‖φ''‖ on margins reachable with ‖θ‖ ≤ radius (only Poisson needs the radius)."""
        ...

    def smoothness(self, domain: Domain, radius: float) -> float:
        """L = β B²."""
        ...

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c ≥ sup_z ‖∇ℓ(θ_c; z)‖, ‖θ_c‖ = center_norm."""
        ...

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        """Δ_c ≥ sup_{z,z'} ‖∇ℓ(θ_c; z) − ∇ℓ(θ_c; z')‖."""
        ...

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        """ζ ≥ ‖∇ℓ(θ; z)‖ for ‖θ‖ ≤ radius; may be infinite when radius is."""
        ...
