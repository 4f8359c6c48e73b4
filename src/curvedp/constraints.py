"""Closed convex sets C: projection, radius, and normal cones where a certificate needs them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput

Interval = tuple[FloatArray, FloatArray]


class Constraint(Protocol):
    """C ⊂ R^{d×K}, closed, convex. Frozen, holds no data."""

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{θ ∈ C} ‖θ − v‖."""
        ...

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        """max_{θ ∈ C} ‖θ‖₂ in R^{d×K} (infinite when C is unbounded, or when it needs d and d is None)."""
        ...

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        """(low, high) of shape (d, K) when C = {low ≤ θ ≤ high}, entries may be infinite; else None."""
        ...

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """The element of v + N_C(θ) of smallest norm, for θ ∈ C: −(projection of −v on the tangent cone)."""
        ...


@dataclass(frozen=True)
class Reals:
    """C = R^d."""

    def project(self, v: FloatArray) -> FloatArray:
        return v

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        return math.inf

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        return np.full((d, n_outputs), -np.inf), np.full((d, n_outputs), np.inf)

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        return v


@dataclass(frozen=True)
class Box:
    """C = {low ≤ θ ≤ high}: `Box(2.0)` is [−2, 2]^d; low and high are numbers or one number per row of θ."""

    kappa: float | None = None
    low: float | tuple[float, ...] | None = None
    high: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if (self.kappa is None) == (self.low is None and self.high is None):
            raise InvalidInput("pass either Box(kappa), the set |θ_j| ≤ kappa, or Box(low=..., high=...)")
        if self.kappa is not None and not self.kappa >= 0:
            raise InvalidInput(f"kappa must be a number ≥ 0, got {self.kappa!r}")
        for name in ("low", "high"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, (int, float)):
                object.__setattr__(self, name, tuple(float(entry) for entry in value))
        low, high = self._ends()
        if low.ndim and high.ndim and low.shape != high.shape:
            raise InvalidInput("low and high must have the same length, one number per row of θ")
        if not np.all(low <= high):
            raise InvalidInput("every low must be at most its high")

    def _ends(self) -> Interval:
        if self.kappa is not None:
            return np.asarray(-self.kappa), np.asarray(self.kappa)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)

    def _ends_like(self, v: FloatArray) -> Interval:
        """The ends, each broadcast along the columns of θ."""
        low, high = self._ends()
        for end in (low, high):
            if end.ndim and len(end) != len(v):
                raise InvalidInput(f"the box has {len(end)} bounds, θ has {len(v)} rows: pass one per row")
        shape = (-1,) + (1,) * (v.ndim - 1)
        return (low.reshape(shape) if low.ndim else low), (high.reshape(shape) if high.ndim else high)

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{low ≤ θ ≤ high} ‖θ − v‖ = min(max(v, low), high)."""
        return np.clip(v, *self._ends_like(v))

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        low, high = self._ends()
        if d is None:
            if not (low.ndim or high.ndim):
                return math.inf if float(max(abs(low), abs(high))) > 0 else 0.0
            d = max(low.size, high.size)
        low, high = self._ends_like(np.empty((d, n_outputs)))
        return float(np.linalg.norm(np.broadcast_to(np.maximum(np.abs(low), np.abs(high)), (d, n_outputs))))

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        shape = (d, n_outputs)
        low, high = self._ends_like(np.empty(shape))
        return np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy()

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """v without what a bound in force absorbs: positive parts at low, negative parts at high."""
        low, high = self._ends_like(theta)
        kept = np.where(theta <= low, np.minimum(v, 0.0), v)
        return np.where(theta >= high, np.maximum(kept, 0.0), kept)


@dataclass(frozen=True)
class NonNegative(Box):
    """C = {θ ≥ 0}."""

    kappa: None = field(default=None, init=False, repr=False)
    low: float = field(default=0.0, init=False, repr=False)
    high: None = field(default=None, init=False, repr=False)


@dataclass(frozen=True)
class L2Ball:
    """C = {‖θ‖₂ ≤ r}, the Frobenius norm of θ."""

    r: float

    def __post_init__(self) -> None:
        _check_size("r", self.r)

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{‖θ‖₂ ≤ r} ‖θ − v‖ = v·min(1, r/‖v‖)."""
        norm = float(np.linalg.norm(v))
        return v if norm <= self.r else np.asarray(v * (self.r / norm))

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        return self.r

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        return None

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """On the sphere N_C(θ) = {tθ, t ≥ 0}: the part of v that points inwards against θ is absorbed."""
        norm = float(np.linalg.norm(theta))
        if norm < self.r * (1.0 - ON_BOUNDARY):
            return v
        if norm == 0.0:
            return np.zeros_like(v)
        outward = theta / norm
        return np.asarray(v - outward * min(0.0, float(np.sum(v * outward))))


# A point this close to the boundary, relatively, counts as on it: projections land there up to rounding.
ON_BOUNDARY = 1e-14


def _check_size(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"{name} must be a finite number ≥ 0, got {value!r}")
