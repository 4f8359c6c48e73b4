"""Convex regularizers r(θ): value, prox, and what certificates and utility bounds need of them.

θ has shape (d, K); the entrywise ones accept any shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray, as_coordinates, spliced
from curvedp.errors import InvalidInput

Weights = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Face:
    """For every e on the `free` entries, ‖e‖ < reach, and every p ∈ ∂r(θ): ∂r(θ + e) meets the ball of
    radius stiffness·‖e‖ around p."""

    free: BoolArray
    stiffness: float = 0.0
    reach: float = math.inf


class Regularizer(Protocol):
    """r: R^{d×K} → R, convex. Frozen, holds no data."""

    def value(self, theta: FloatArray) -> float: ...

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """argmin_θ r(θ) + ‖θ − v‖²/(2·step)."""

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        """G ≥ ‖s‖ for every s ∈ ∂r(θ), every θ ∈ R^{d×K}; infinite for quadratics."""

    def separable(self, d: int, n_outputs: int = 1) -> Weights | None:
        """(l1, l2) of shape (d, K) with r(θ) = Σ l1·|θ| + l2·θ²/2; None when r is not of this form."""
        return None

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """argmin_{s ∈ ∂r(θ)} ‖v + s‖."""

    def drift(self, theta: FloatArray) -> float:
        """A bound of ‖θ' − θ‖, θ' the exact point that `smallest_subgradient` takes θ for."""
        return 0.0

    def face(self, theta: FloatArray) -> Face:
        """Along which entries ∂r moves with θ, and how fast."""


@dataclass(frozen=True)
class _Weighed(Regularizer):
    alpha: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise InvalidInput(
                f"alpha must be a number ≥ 0, the weight in the summed objective; got {self.alpha!r}"
            )


@dataclass(frozen=True)
class ElasticNet(_Weighed):
    """r(θ) = α(ρ‖θ‖₁ + (1−ρ)/2·‖θ‖²), ρ = l1_ratio."""

    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
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
        soft = np.sign(v) * np.maximum(np.abs(v) - step * self._l1, 0.0)
        return np.asarray(soft / (1.0 + step * self._l2))

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        """G = αρ·sqrt(dK); infinite when there is a quadratic part."""
        return math.inf if self._l2 > 0 else self._l1 * math.sqrt(d * n_outputs)

    def separable(self, d: int, n_outputs: int = 1) -> Weights | None:
        return np.full((d, n_outputs), self._l1), np.full((d, n_outputs), self._l2)

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        smooth = self._l2 * theta
        kink = np.clip(-(v + smooth), -self._l1, self._l1)
        return np.asarray(smooth + np.where(theta == 0, kink, self._l1 * np.sign(theta)))

    def face(self, theta: FloatArray) -> Face:
        if self._l1 == 0:
            return Face(np.ones(theta.shape, dtype=bool), self._l2)
        return Face(theta != 0, self._l2, float(np.abs(theta[theta != 0]).min(initial=math.inf)))


@dataclass(frozen=True)
class L1(ElasticNet):
    """r(θ) = α‖θ‖₁."""

    l1_ratio: float = field(default=1.0, init=False, repr=False)


@dataclass(frozen=True)
class L2(ElasticNet):
    """r(θ) = (α/2)‖θ‖²."""

    l1_ratio: float = field(default=0.0, init=False, repr=False)


@dataclass(frozen=True)
class NoRegularizer(L2):
    """r = 0."""

    alpha: float = field(default=0.0, init=False, repr=False)


class L2Norm(_Weighed):
    """r(θ) = α‖θ‖₂, not squared."""

    @property
    def _rows(self) -> Sequence[slice | list[int]]:
        """The rows of θ whose norm is taken together."""
        return [slice(None)]

    def value(self, theta: FloatArray) -> float:
        return self.alpha * sum(float(np.linalg.norm(theta[rows])) for rows in self._rows)

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """argmin_θ α Σ_g ‖θ_g‖₂ + ‖θ − v‖²/(2·step): v_g·max(0, 1 − α·step/‖v_g‖)."""
        out, threshold = v.copy(), step * self.alpha
        for rows in self._rows:
            norm = float(np.linalg.norm(v[rows]))
            out[rows] = v[rows] * (1.0 - threshold / norm) if norm > threshold else 0.0
        return out

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        """G = α·sqrt(number of groups)."""
        return self.alpha * math.sqrt(len(self._rows))

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """Of each group αθ/‖θ‖, or −v drawn into the ball of radius α at θ = 0."""
        s = np.zeros_like(theta)
        for rows in self._rows:
            norm, length = float(np.linalg.norm(theta[rows])), float(np.linalg.norm(v[rows]))
            if norm > 0:
                s[rows] = theta[rows] * (self.alpha / norm)
            else:
                s[rows] = -v[rows] if length <= self.alpha else v[rows] * (-self.alpha / length)
        return s

    def face(self, theta: FloatArray) -> Face:
        """x/‖x‖ moves by at most 2‖e‖/‖x‖."""
        free, shortest = np.ones(theta.shape, dtype=bool), math.inf
        for rows in self._rows:
            norm = float(np.linalg.norm(theta[rows]))
            free[rows] = norm > 0
            shortest = min(shortest, norm) if norm > 0 else shortest
        return Face(free, 2.01 * self.alpha / shortest, 0.99 * shortest)


@dataclass(frozen=True)
class GroupL2(L2Norm):
    """r(θ) = α Σ_g ‖θ_g‖₂ over disjoint groups g of rows of θ; rows in no group are free."""

    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = tuple(as_coordinates(group) for group in self.groups)
        rows = [row for group in groups for row in group]
        if len(set(rows)) < len(rows):
            raise InvalidInput("groups must not overlap: pass disjoint tuples of row indices")
        object.__setattr__(self, "groups", groups)

    @property
    def _rows(self) -> Sequence[slice | list[int]]:
        return [list(group) for group in self.groups]


def _singular(M: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """U, σ, Vᵀ of M without the singular values that are rounding beside the largest."""
    U, sigma, Vt = np.linalg.svd(M, full_matrices=False)
    kept = sigma > sigma.max(initial=0.0) * max(M.shape) * 2.0**-50
    return U[:, kept], sigma[kept], Vt[kept]


@dataclass(frozen=True)
class Nuclear(_Weighed):
    """r(θ) = α Σ_i σ_i(M), the singular values of M = θ as a d×K matrix, or of θ reshaped to `shape`."""

    shape: tuple[int, int] | None = None

    def _matrix(self, theta: FloatArray) -> FloatArray:
        if self.shape is None:
            return np.atleast_2d(theta)
        if math.prod(self.shape) != theta.size:
            raise InvalidInput(f"θ has {theta.size} entries, which cannot be reshaped to {self.shape}")
        return theta.reshape(self.shape)

    def value(self, theta: FloatArray) -> float:
        return self.alpha * float(np.linalg.svd(self._matrix(theta), compute_uv=False).sum())

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """argmin_θ α‖θ‖_* + ‖θ − v‖²/(2·step): singular values soft-thresholded by α·step."""
        U, sigma, Vt = np.linalg.svd(self._matrix(v), full_matrices=False)
        return np.asarray((U * np.maximum(sigma - step * self.alpha, 0.0)) @ Vt).reshape(v.shape)

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        """G = α·sqrt(largest rank)."""
        return self.alpha * math.sqrt(min(self.shape if self.shape is not None else (d, n_outputs)))

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """α(UVᵀ + W), W ⊥ the row and column spaces of M, ‖W‖ ≤ 1: −v on those complements, drawn in.

        Singular values below max(shape)·2⁻⁵⁰ of the largest count as zero: the answer is exact for the matrix
        without them, which is as near to θ as the rounding of its own entries.
        """
        M, residual = self._matrix(theta), self._matrix(v)
        U, _, Vt = _singular(M)
        off = residual - U @ (U.T @ residual)
        off = off - (off @ Vt.T) @ Vt
        P, length, Qt = np.linalg.svd(off, full_matrices=False)
        s = self.alpha * (U @ Vt) - (P * np.minimum(length, self.alpha)) @ Qt
        return np.asarray(s).reshape(theta.shape)

    def drift(self, theta: FloatArray) -> float:
        """‖M − UΣVᵀ‖ over the singular values that count, and what U, V lack of being orthonormal."""
        M = self._matrix(theta)
        U, sigma, Vt = _singular(M)
        lost = float(np.linalg.norm(M - (U * sigma) @ Vt))
        identity = np.eye(len(sigma))
        skew = float(np.linalg.norm(U.T @ U - identity) + np.linalg.norm(Vt @ Vt.T - identity))
        size = float(np.linalg.norm(M))
        return 1.01 * (lost + skew * size + 4 * (len(sigma) + 4) * UNIT_ROUNDOFF * size)

    def face(self, theta: FloatArray) -> Face:
        return Face(np.zeros(theta.shape, dtype=bool))


@dataclass(frozen=True)
class OnCoordinates(Regularizer):
    """r(θ) = inner(θ restricted to some rows): leaves the others, an intercept say, unpenalised."""

    inner: Regularizer
    coords: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "coords", as_coordinates(self.coords))

    def value(self, theta: FloatArray) -> float:
        return self.inner.value(theta[list(self.coords)])

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return spliced(v, self.coords, self.inner.prox(v[list(self.coords)], step))

    def subgradient_bound(self, d: int, n_outputs: int = 1) -> float:
        return self.inner.subgradient_bound(len(self.coords), n_outputs)

    def separable(self, d: int, n_outputs: int = 1) -> Weights | None:
        if (inner := self.inner.separable(len(self.coords), n_outputs)) is None:
            return None
        none = np.zeros((d, n_outputs))
        return spliced(none, self.coords, inner[0]), spliced(none, self.coords, inner[1])

    def smallest_subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        rows = list(self.coords)
        return spliced(np.zeros_like(theta), rows, self.inner.smallest_subgradient(theta[rows], v[rows]))

    def drift(self, theta: FloatArray) -> float:
        return self.inner.drift(theta[list(self.coords)])

    def face(self, theta: FloatArray) -> Face:
        rows = list(self.coords)
        inner = self.inner.face(theta[rows])
        return replace(inner, free=spliced(np.ones(theta.shape, dtype=bool), rows, inner.free))
