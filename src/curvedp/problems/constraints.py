"""Closed convex sets C: projection, radius, and normal cones where a certificate needs them.

θ has shape (d, K). Balls, simplex and affine sets act on all its entries together.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray, as_coordinates, spliced
from curvedp.errors import InvalidInput

Interval = tuple[FloatArray, FloatArray]


class Constraint(Protocol):
    """C ⊂ R^{d×K}, closed, convex. Frozen, holds no data."""

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{θ ∈ C} ‖θ − v‖."""

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        """max_{θ ∈ C} ‖θ‖₂ in R^{d×K} (infinite when C is unbounded, or when it needs d and d is None)."""

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        """(low, high) of shape (d, K) when C = {low ≤ θ ≤ high}, entries may be infinite; else None."""
        return None

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """The element of v + N_C(θ) of smallest norm, for θ ∈ C: −(projection of −v on the tangent cone).

        A curved or slanted boundary is met up to rounding only: θ within rounding of it counts as on it.
        """

    def drift(self, theta: FloatArray, free: BoolArray) -> float:
        """A bound of ‖θ' − θ‖, θ' a point of C, equal to θ where not `free`, with the normal cone that
        `normal_residual` takes at θ; infinite when there is none."""


def _on_boundary(size: float, r: float, entries: int) -> bool:
    """size ≥ r up to the rounding of a projection and of the sum of so many entries."""
    return size >= r * (1.0 - 4 * (entries + 8) * UNIT_ROUNDOFF)


def _scaling(theta: FloatArray, free: BoolArray, size: float, wanted: float) -> float:
    """‖tθ − θ‖ for the t that brings `size`, correct to one rounding, to `wanted`; rounded up."""
    if np.any((theta != 0) & ~free):
        return math.inf
    norm = float(np.linalg.norm(theta)) * (1.0 + 2 * (theta.size + 8) * UNIT_ROUNDOFF)
    return norm * (abs(size - wanted) / size + 4 * UNIT_ROUNDOFF)


Ends = float | tuple[float, ...] | None


@dataclass(frozen=True, init=False)
class Box(Constraint):
    """C = {low ≤ θ ≤ high}: `Box(2.0)` is [−2, 2]^d.

    Parameters
    ----------
    radius : float, optional
        |θ_j| ≤ radius for every entry; instead of `low` and `high`.
    low, high : float or one float per row of θ, optional
        The ends; without one of them the box is open on that side.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp.problems.constraints import Box
    >>> Box(1.0).project(np.array([[3.0], [0.5]])).ravel()
    array([1. , 0.5])
    """

    low: Ends
    high: Ends

    def __init__(self, radius: float | None = None, *, low: Ends = None, high: Ends = None) -> None:
        if (radius is None) == (low is None and high is None):
            raise InvalidInput("pass either Box(radius), the set |θ_j| ≤ radius, or Box(low=..., high=...)")
        if radius is not None:
            if not radius >= 0:
                raise InvalidInput(f"radius must be a number ≥ 0, got {radius!r}")
            low, high = -float(radius), float(radius)
        for name, value in (("low", low), ("high", high)):
            several = value is not None and np.ndim(value)
            object.__setattr__(self, name, tuple(float(entry) for entry in value) if several else value)  # type: ignore[union-attr]
        bottom, top = self._ends()
        if bottom.ndim and top.ndim and bottom.shape != top.shape:
            raise InvalidInput("low and high must have the same length, one number per row of θ")
        if not np.all(bottom <= top) or np.any(bottom == math.inf) or np.any(top == -math.inf):
            raise InvalidInput("every low must be at most its high, and the box must hold a point")

    def _ends(self) -> Interval:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)

    def _ends_like(self, v: FloatArray) -> Interval:
        """The ends, each broadcast to the shape of v."""
        ends = []
        for end in self._ends():
            if end.ndim and len(end) != len(v):
                raise InvalidInput(f"the box has {len(end)} bounds, θ has {len(v)} rows: pass one per row")
            column = end.reshape((-1,) + (1,) * (v.ndim - 1)) if end.ndim else end
            ends.append(np.broadcast_to(column, v.shape))
        return ends[0], ends[1]

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{low ≤ θ ≤ high} ‖θ − v‖ = min(max(v, low), high)."""
        return np.clip(v, *self._ends_like(v))

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        low, high = self._ends()
        largest = np.maximum(np.abs(low), np.abs(high))
        if not largest.ndim:
            entries = math.inf if d is None else d * n_outputs
            return float(largest) * math.sqrt(entries) if largest > 0 else 0.0
        if d is not None and d != len(largest):
            raise InvalidInput(f"the box has {len(largest)} bounds, θ has {d} rows: pass one per row")
        return float(np.linalg.norm(largest)) * math.sqrt(n_outputs)

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        low, high = self._ends_like(np.empty((d, n_outputs)))
        return low.copy(), high.copy()

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """v without what a bound in force absorbs: positive parts at low, negative parts at high."""
        low, high = self._ends_like(theta)
        kept = np.where(theta <= low, np.minimum(v, 0.0), v)
        return np.where(theta >= high, np.maximum(kept, 0.0), kept)

    def drift(self, theta: FloatArray, free: BoolArray) -> float:
        return 0.0 if np.array_equal(theta, self.project(theta)) else math.inf


class NonNegative(Box):
    """C = {θ ≥ 0}."""

    def __init__(self) -> None:
        super().__init__(low=0.0)

    def __repr__(self) -> str:
        return "NonNegative()"


class Reals(Box):
    """C = R^d."""

    def __init__(self) -> None:
        super().__init__(low=-math.inf)

    def __repr__(self) -> str:
        return "Reals()"


@dataclass(frozen=True)
class _Ball(Constraint):
    r: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.r) and self.r >= 0):
            raise InvalidInput(f"r must be a finite number ≥ 0, got {self.r!r}")

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        return self.r

    @abstractmethod
    def _size(self, theta: FloatArray) -> float:
        """The norm of θ that is at most r, correct to one rounding."""

    def drift(self, theta: FloatArray, free: BoolArray) -> float:
        size = self._size(theta)
        if size == 0.0 or not _on_boundary(size, self.r, 2 * theta.size):
            return 0.0
        return _scaling(theta, free, size, self.r)


class L2Ball(_Ball):
    """C = {‖θ‖₂ ≤ r}, the Frobenius norm of θ."""

    def _size(self, theta: FloatArray) -> float:
        return math.hypot(*theta.ravel().tolist())

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{‖θ‖₂ ≤ r} ‖θ − v‖ = v·min(1, r/‖v‖)."""
        norm = float(np.linalg.norm(v))
        return v if norm <= self.r else np.asarray(v * (self.r / norm))

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """On the sphere N_C(θ) = {tθ, t ≥ 0}: what of v points inwards, against θ, is absorbed."""
        norm = float(np.linalg.norm(theta))
        if not _on_boundary(norm, self.r, theta.size):
            return v
        if norm == 0.0:
            return np.zeros_like(v)
        outward = theta / norm
        return np.asarray(v - outward * min(0.0, float(np.sum(v * outward))))


def _waterline(w: FloatArray, a: FloatArray) -> float:
    """argmin_t Σ(t − w_j)² + Σ(a_j − t)₊²: the mean of w and of those a that exceed it; w is not empty."""
    total, count = float(w.sum()), w.size
    for level in np.sort(a)[::-1]:
        if level * count <= total:
            break
        total, count = total + float(level), count + 1
    return total / count


def _project_simplex(v: FloatArray, s: float) -> FloatArray:
    """argmin_{θ ≥ 0, Σθ = s} ‖θ − v‖ = max(v − t, 0), t such that the entries sum to s."""
    v = v - v.max()  # the projection is the same, and s is not lost beside large entries
    ordered = np.sort(v, axis=None)[::-1]
    levels = (np.cumsum(ordered) - s) / np.arange(1, ordered.size + 1)
    t = float(levels[np.flatnonzero(ordered > levels)[-1]])
    return np.maximum(v - t, 0.0)


class L1Ball(_Ball):
    """C = {‖θ‖₁ ≤ r}, summed over all entries of θ."""

    def _size(self, theta: FloatArray) -> float:
        return math.fsum(np.abs(theta).ravel().tolist())

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{‖θ‖₁ ≤ r} ‖θ − v‖: sign(v) times the projection of |v| on the simplex of sum r."""
        if np.abs(v).sum() <= self.r:
            return v
        if self.r == 0:
            return np.zeros_like(v)
        return np.asarray(np.sign(v) * _project_simplex(np.abs(v), self.r))

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """On the boundary N_C(θ) = {t·g, t ≥ 0, g ∈ ∂‖·‖₁(θ)}: the best t is a waterline."""
        if not _on_boundary(float(np.abs(theta).sum()), self.r, theta.size):
            return v
        sign = np.sign(theta)
        used = sign != 0
        if not used.any():
            return np.zeros_like(v)
        t = max(0.0, _waterline(-(v * sign)[used], np.abs(v[~used])))
        return np.where(used, v + t * sign, np.sign(v) * np.maximum(np.abs(v) - t, 0.0))


@dataclass(frozen=True)
class Simplex(Constraint):
    """C = {θ ≥ 0, Σθ = s}, summed over all entries of θ."""

    s: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.s) and self.s > 0):
            raise InvalidInput(f"s must be a positive number, the sum of the entries; got {self.s!r}")

    def project(self, v: FloatArray) -> FloatArray:
        return _project_simplex(v, self.s)

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        return self.s

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """N_C(θ) = {n: n_j = t where θ_j > 0, n_j ≤ t where θ_j = 0}: the best t is a waterline."""
        used = theta > 0
        t = _waterline(-v[used], -v[~used])
        return np.where(used, v + t, np.minimum(v + t, 0.0))

    def drift(self, theta: FloatArray, free: BoolArray) -> float:
        total = math.fsum(theta.ravel().tolist())
        return _scaling(theta, free, total, self.s) if np.all(theta >= 0) and total > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Affine(Constraint):
    """C = {θ: Aθ = b}, θ flattened in C order; A has one row per equation."""

    A: FloatArray
    b: FloatArray
    _rows: FloatArray = field(init=False, repr=False)  # orthonormal basis of the row space of A
    _point: FloatArray = field(init=False, repr=False)  # the point of C nearest to 0

    def __post_init__(self) -> None:
        A, b = np.array(self.A, dtype=np.float64, ndmin=2), np.array(self.b, dtype=np.float64, ndmin=1)
        if A.ndim != 2 or b.shape != (A.shape[0],) or not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise InvalidInput("pass Affine(A, b) with a finite matrix A and one entry of b per row of A")
        U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
        kept = sigma > sigma.max(initial=0.0) * max(A.shape) * 2.0**-50
        point = Vt[kept].T @ ((U[:, kept].T @ b) / sigma[kept])
        if np.linalg.norm(A @ point - b) > 1e-10 * (np.linalg.norm(b) + np.abs(A).max(initial=0.0)):
            raise InvalidInput("no θ satisfies Aθ = b: drop or correct the contradicting rows")
        for name, value in {"A": A, "b": b, "_rows": Vt[kept], "_point": point}.items():
            object.__setattr__(self, name, value)

    def _off(self, v: FloatArray) -> FloatArray:
        """v without its part in the row space of A; twice, which removes the rounding of the first."""
        if v.size != self.A.shape[1]:
            raise InvalidInput(f"A has {self.A.shape[1]} columns, θ has {v.size} entries")
        once = v - self._rows.T @ (self._rows @ v)
        return np.asarray(once - self._rows.T @ (self._rows @ once))

    def project(self, v: FloatArray) -> FloatArray:
        """argmin_{Aθ = b} ‖θ − v‖ = A⁺b + (I − A⁺A)v."""
        return (self._point + self._off(v.ravel())).reshape(v.shape)

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        return math.inf if len(self._rows) < self.A.shape[1] else float(np.linalg.norm(self._point))

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """N_C(θ) = range(Aᵀ): the part of v along the set, (I − A⁺A)v."""
        return self._off(v.ravel()).reshape(v.shape)

    def drift(self, theta: FloatArray, free: BoolArray) -> float:
        """Some e on the free entries has θ + e ∈ C, ‖e‖ ≤ ‖V(θ − A⁺b)‖/σ_min(V_free), V the basis of rows."""
        away = theta.ravel() - self._point
        parts = [math.fsum((row * away).tolist()) for row in self._rows]  # products rounded, sums exact
        size = float(np.linalg.norm(theta)) + float(np.linalg.norm(self._point))
        distance = math.hypot(*parts) + 4 * math.sqrt(len(parts)) * UNIT_ROUNDOFF * size
        reach = self._rows[:, free.ravel()]
        if reach.shape[1] < len(parts):
            return math.inf
        smallest = float(np.linalg.svd(reach, compute_uv=False).min(initial=1.0))
        return 1.01 * distance / smallest if smallest > 1e-6 else math.inf


@dataclass(frozen=True)
class ConstrainCoordinates(Constraint):
    """C = {θ: the chosen rows of θ lie in `inner`}; the other rows are free."""

    inner: Constraint
    coords: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "coords", as_coordinates(self.coords))

    def project(self, v: FloatArray) -> FloatArray:
        return spliced(v, self.coords, self.inner.project(v[list(self.coords)]))

    def radius(self, d: int | None = None, n_outputs: int = 1) -> float:
        return self.inner.radius(d, n_outputs) if d == len(self.coords) else math.inf

    def interval(self, d: int, n_outputs: int = 1) -> Interval | None:
        if (inner := self.inner.interval(len(self.coords), n_outputs)) is None:
            return None
        free = np.full((d, n_outputs), np.inf)
        return spliced(-free, self.coords, inner[0]), spliced(free, self.coords, inner[1])

    def normal_residual(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        rows = list(self.coords)
        return spliced(v, rows, self.inner.normal_residual(theta[rows], v[rows]))

    def drift(self, theta: FloatArray, free: BoolArray) -> float:
        rows = list(self.coords)
        return self.inner.drift(theta[rows], free[rows])
