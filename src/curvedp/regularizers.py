"""Convex regularizers r(θ): value, prox, and the constants that certificates and utility bounds need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from curvedp.domain import FloatArray


class Regularizer(Protocol):
    """r: R^{d×K} → R, convex. Frozen, holds no data.."""

    def value(self, theta: FloatArray) -> float: ...

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """argmin_θ r(θ) + ‖θ − v‖²/(2·step)."""
        ...

    def subgradient_bound(self, d: int) -> float:
        """G ≥ ‖s‖ for every s ∈ ∂r(θ), every θ ∈ R^d; infinite for quadratics."""
        ...


@dataclass(frozen=True)
class NoRegularizer:
    """r = 0."""

    def value(self, theta: FloatArray) -> float:
        return 0.0

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return v

    def subgradient_bound(self, d: int) -> float:
        return 0.0
