"""The released curvature and the metric it gives: records are measured in it from then on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.rows.rounding import DENSE_ROWS_AT_MOST, additions_at_most, relative_error


@dataclass(frozen=True, eq=False)
class Pilot:
    """A metric A, its inverse, a bound B̃ of lengths, and Σ A x xᵀAᵀ of records shortened to ‖A x‖ ≤ B̃."""

    metric: FloatArray
    inverse: FloatArray
    bound: float
    gram: FloatArray  # private
    weight: float = 1.0  # about the mean weight of a record


@dataclass(frozen=True, eq=False)
class Look:
    """A released S ≈ P XᵀX Pᵀ of shortened records, its noise τ·Sym, and P⁻¹."""

    S: FloatArray
    scale: float  # τ
    inverse: FloatArray  # P⁻¹

    def seen_in(self, metric: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(T S Tᵀ, T Tᵀ), T = A P⁻¹: the look in the coordinates of A; its noise there is τ·T Sym Tᵀ."""
        T = metric @ self.inverse
        return T @ self.S @ T.T, T @ T.T

    def variation(self, constant: int | None) -> tuple[FloatArray, FloatArray]:
        """(Σ(x_j − mean)², deviation of its noise) of every column, at least 0 and rough."""
        total = self.inverse @ self.S @ self.inverse.T
        own = np.sum(self.inverse**2, axis=1)
        squares = np.diag(total)
        if constant is not None:
            squares = squares - total[:, constant] ** 2 / max(total[constant, constant], 1.0)
        return np.maximum(squares, 0.0), self.scale * own

    def sums(self, constant: int) -> tuple[FloatArray, FloatArray]:
        """(Σ x_j, deviation of its noise) of every column."""
        own = np.sum(self.inverse**2, axis=1)
        crossed = self.inverse @ self.inverse[constant]
        total = self.inverse @ self.S @ self.inverse[constant]
        return total, self.scale * np.sqrt((own * own[constant] + crossed**2) / 2.0)


@dataclass(frozen=True, eq=False)
class Geometry:
    """A released metric A with AᵀA = H⁻¹ and H ≽ about XᵀX; `resolved` estimates Σ‖A x_i‖² = tr(A XᵀX Aᵀ)."""

    metric: FloatArray
    H: FloatArray
    resolved: float
    look: Look | None = None  # what was released of XᵀX
    weight: float = 1.0  # about the mean weight of a record
    rows: float = 1.0  # about how many rows a unit has at most, most of them: 1 where a unit is a row

    @cached_property
    def stretch(self) -> tuple[float, float]:
        """The largest and the smallest singular value of A."""
        values = np.linalg.svd(self.metric, compute_uv=False)
        return float(values[0]), float(values[-1])

    def gram_slack(self, most: float) -> float:
        """What rounding adds to the difference of two sums Σ w A x xᵀAᵀ of records, per unit of their bound.

        Sums are computed in the given coordinates: their errors grow by the square of A's condition number. A
        squared length errs by 32(d^{3/2}+1)·2⁻⁵³ of it.
        """
        largest, smallest = self.stretch
        d = len(self.metric)
        terms = DENSE_ROWS_AT_MOST + additions_at_most(d) + 4 * d + math.ceil(32.0 * (d**1.5 + 1.0))
        return 2.0 * most * relative_error(terms) * (largest / smallest) ** 2


def geometry_of(
    S: FloatArray, scale: float, lift: float, n: float, pilot: Pilot, levels: FloatArray
) -> Geometry:
    """The metric of a released curvature S of n units whose noise has this scale; post-processing.

    `levels` is added to H, a diagonal in the given coordinates.
    """
    norm = noise_norm(scale, len(S))
    lifted, U = curvature_above(S, lift, n * pilot.bound**2)
    root = np.sqrt(lifted)[:, None] * (U.T @ pilot.inverse.T)
    metric, H = (U / np.sqrt(lifted)).T @ pilot.metric, root.T @ root
    resolved = _resolved((U * (S @ U)).sum(axis=0), lifted, norm)
    if levels.any():
        # A(H + L)Aᵀ = I + A L Aᵀ: the records are that much shorter along its eigenvectors.
        values, V = np.linalg.eigh(np.eye(len(S)) + (metric * levels) @ metric.T)
        kept = np.sum(V * ((U.T @ S @ U / np.sqrt(np.outer(lifted, lifted))) @ V), axis=0)
        share = float(np.sum(np.maximum(kept, 0.0) / values)) / max(
            float(np.sum(np.maximum(kept, 0.0))), 1e-9
        )
        metric, H, resolved = (
            (V / np.sqrt(values)).T @ metric,
            H + np.diag(levels),
            max(resolved * share, 0.5),
        )
    return Geometry(metric, H, resolved, Look(S, scale, pilot.inverse), pilot.weight)


def _resolved(values: FloatArray, lifted: FloatArray, norm: float) -> float:
    """Σ s_j/w_j, at least ½ and at most d; of eigenvalues below the noise Σ s_j times the mean of 1/w_j.

    There the noise decides which eigenvalue is large, and dividing each by its own w_j would bias the sum.
    """
    above = values > norm
    total = np.sum(values[above] / lifted[above])
    if not above.all():
        total += np.sum(values[~above]) * np.mean(1.0 / lifted[~above])
    return float(min(max(total, 0.5), len(values)))


def noise_norm(scale: float, d: int) -> float:
    """The spectral norm of symmetric Gaussian noise: about scale·√(2d)."""
    return scale * math.sqrt(2.0 * d)


def curvature_above(S: FloatArray, lift: float, ceiling: float) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues min(max(s, 0), ceiling) + min(lift, ceiling) and eigenvectors of S."""
    values, vectors = np.linalg.eigh(S)
    return np.clip(values, 0.0, ceiling) + min(lift, ceiling), vectors
