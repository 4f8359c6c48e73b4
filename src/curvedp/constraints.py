"""Closed convex sets C: projection, radius, and normal cones where a certificate needs them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from curvedp.domain import FloatArray


class Constraint(Protocol):
    """C ⊂ R^{d×K}, closed, convex. Frozen, holds no data."""

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{θ ∈ C} ‖θ − v‖."""
        ...

    def radius(self, d: int | None = None) -> float:
        """max_{θ ∈ C} ‖θ‖₂ in R^d (infinite when C is unbounded, or when it needs d and d is None)."""
        ...


@dataclass(frozen=True)
class Reals:
    """C = R^d."""

    def project(self, v: FloatArray) -> FloatArray:
        return v

    def radius(self, d: int | None = None) -> float:
        return math.inf
