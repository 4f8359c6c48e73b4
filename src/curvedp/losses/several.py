"""Several targets at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.domain import Domain
from curvedp.errors import InvalidInput, NotCovered
from curvedp.losses.margin import Squared


@dataclass(frozen=True)
class SquaredSeveral:
    """φ(s; y) = ½‖s − y‖², s and y in R^T, every |y_t| ≤ Y: T linear regressions released as one."""

    n_targets: int
    name = "squared_several"
    is_quadratic = False  # its solvers read one target

    def __post_init__(self) -> None:
        if self.n_targets != int(self.n_targets) or self.n_targets < 2:
            raise InvalidInput(f"n_targets must be an integer of at least 2, got {self.n_targets!r}")

    @property
    def n_outputs(self) -> int:
        return self.n_targets

    @property
    def rank(self) -> int:
        return self.n_targets

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(0.5 * np.sum((s - y) ** 2, axis=1))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(s - y)

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        T = self.n_targets
        return np.ascontiguousarray(np.broadcast_to(np.eye(T), (len(s), T, T)))

    def inverse_link(self, s: FloatArray) -> FloatArray:
        return s

    def margin_at(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise NotCovered("the Huberised loss has one margin; clip the gradient of several targets instead")

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        return Squared().clip_target(y, domain)

    def curvature(self, domain: Domain, radius: float) -> float:
        return 1.0

    def smoothness(self, domain: Domain, radius: float) -> float:
        return domain.x_norm**2

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B(B‖θ_c‖ + √T·Y)."""
        return domain.x_norm * (
            domain.x_norm * center_norm + math.sqrt(self.n_targets) * domain.y_bound * (1 + 1e-15)
        )

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        return 2.0 * self.center_bound(domain, center_norm)

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        return self.center_bound(domain, radius)
