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
class Geometry:
    """A released metric A with AᵀA = H⁻¹ and H ≽ about XᵀX; `resolved` estimates Σ‖A x_i‖² = tr(A XᵀX Aᵀ)."""

    metric: FloatArray
    H: FloatArray
    resolved: float
    weight: float = 1.0  # about the mean weight of a record
    rows: float = 1.0  # about how many rows a unit has at most, most of them: 1 where a unit is a row

    @cached_property
    def stretch(self) -> tuple[float, float]:
        """The largest and the smallest singular value of A."""
        values = np.linalg.svd(self.metric, compute_uv=False)
        return float(values[0]), float(values[-1])

    def gram_slack(self, most: float, columns: int | None = None, unseen: float = 0.0) -> float:
        """What rounding adds to the difference of two sums Σ w A x xᵀAᵀ of records, per unit of their bound.

        Sums are computed in the given coordinates: their errors grow by the square of A's condition number. A
        squared length errs by 32(d^{3/2}+1)·2⁻⁵³ of it. `columns` is d where A sees a subspace only; then
        `unseen` bounds w‖x‖² of the part that it does not see, in units of the bound.
        """
        largest, smallest = self.stretch
        d = columns or len(self.metric)
        terms = DENSE_ROWS_AT_MOST + additions_at_most(d) + 4 * d + math.ceil(32.0 * (d**1.5 + 1.0))
        return 2.0 * most * relative_error(terms) * largest**2 * (1.0 / smallest**2 + unseen)


def geometry_of(S: FloatArray, norm: float, lift: float, n: float, pilot: Pilot) -> Geometry:
    """The metric of a released curvature S of n units whose noise has this spectral norm; post-processing."""
    lifted, U = curvature_above(S, lift, n * pilot.bound**2)
    root = np.sqrt(lifted)[:, None] * (U.T @ pilot.inverse.T)
    metric = (U / np.sqrt(lifted)).T @ pilot.metric
    return Geometry(metric, root.T @ root, _resolved((U * (S @ U)).sum(axis=0), lifted, norm), pilot.weight)


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
