"""Convex regularizers r(θ): value, prox, and what certificates and utility bounds need of them.

θ has shape (d, K); the entrywise ones accept any shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput

Weights = tuple[FloatArray, FloatArray]


class Regularizer(Protocol):
    """r: R^{d×K} → R, convex. Frozen, holds no data."""

    def value(self, theta: FloatArray) -> float: ...

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """argmin_θ r(θ) + ‖θ − v‖²/(2·step)."""
        ...

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        """G ≥ ‖s‖ for every s ∈ ∂r(θ), every θ ∈ R^{d×K}; infinite for quadratics."""
        ...

    def separable(self, d: int, n_outputs: int = 1) -> Weights | None:
        """(l1, l2) of shape (d, K) with r(θ) = Σ l1·|θ| + l2·θ²/2; None when r is not of this form."""
        ...

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """argmin_{s ∈ ∂r(θ)} ‖v + s‖."""
        ...


def _check_weight(alpha: float) -> None:
    if not (math.isfinite(alpha) and alpha >= 0):
        raise InvalidInput(f"alpha must be a number ≥ 0, the weight in the summed objective; got {alpha!r}")


def _soft(v: FloatArray, threshold: float) -> FloatArray:
    """argmin_θ threshold·‖θ‖₁ + ½‖θ − v‖²."""
    return np.asarray(np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0))


def _shrink(v: FloatArray, threshold: float) -> FloatArray:
    """argmin_θ threshold·‖θ‖₂ + ½‖θ − v‖²."""
    norm = float(np.linalg.norm(v))
    return np.asarray(v * (1.0 - threshold / norm)) if norm > threshold else np.zeros_like(v)


def _norm_subgradient(theta: FloatArray, v: FloatArray, alpha: float) -> FloatArray:
    """argmin_{s ∈ ∂(α‖·‖₂)(θ)} ‖v + s‖: αθ/‖θ‖, or −v drawn into the ball of radius α at θ = 0."""
    norm = float(np.linalg.norm(theta))
    if norm > 0:
        return np.asarray(theta * (alpha / norm))
    length = float(np.linalg.norm(v))
    return np.asarray(-v if length <= alpha else v * (-alpha / length))


@dataclass(frozen=True)
class NoRegularizer:
    """r = 0."""

    def value(self, theta: FloatArray) -> float:
        return 0.0

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return v

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        return 0.0

    def separable(self, d: int, n_outputs: int = 1) -> Weights | None:
        return np.zeros((d, n_outputs)), np.zeros((d, n_outputs))

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        return np.zeros_like(theta)


@dataclass(frozen=True)
class ElasticNet:
    """r(θ) = α(ρ‖θ‖₁ + (1−ρ)/2·‖θ‖²), ρ = l1_ratio."""

    alpha: float
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        _check_weight(self.alpha)
        if not 0.0 <= self.l1_ratio <= 1.0:
            raise InvalidInput(f"l1_ratio must lie in [0, 1], got {self.l1_ratio!r}")

    @property
    def _l1(self) -> float:
        return self.alpha * self.l1_ratio

    @property
    def _l2(self) -> float:
        return self.alpha * (1.0 - self.l1_ratio)

    def value(self, theta: FloatArray) -> float:
        return float(self._l1 * np.abs(theta).sum() + 0.5 * self._l2 * np.square(theta).sum())

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return _soft(v, step * self._l1) / (1.0 + step * self._l2)

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        """G = αρ·sqrt(dK); infinite when there is a quadratic part."""
        return math.inf if self._l2 > 0 else self._l1 * math.sqrt(d * n_outputs)

    def separable(self, d: int, n_outputs: int = 1) -> Weights | None:
        return np.full((d, n_outputs), self._l1), np.full((d, n_outputs), self._l2)

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        smooth = self._l2 * theta
        kink = np.clip(-(v + smooth), -self._l1, self._l1)
        return np.asarray(smooth + np.where(theta == 0, kink, self._l1 * np.sign(theta)))


@dataclass(frozen=True)
class L1(ElasticNet):
    """r(θ) = α‖θ‖₁."""

    l1_ratio: float = field(default=1.0, init=False, repr=False)


@dataclass(frozen=True)
class L2(ElasticNet):
    """r(θ) = (α/2)‖θ‖²."""

    l1_ratio: float = field(default=0.0, init=False, repr=False)
