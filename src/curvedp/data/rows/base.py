"""`Rows`: the only door to private records.

Mechanisms and solvers never see an array of records. They ask a `Rows` for one of the reductions
below; clipping, centring and the intercept column have been applied before any of them.
θ always has shape (d, K). Dense, sparse, chunked and Dask rows implement this protocol.
A record whose target is no number is the zero record: it counts, and adds nothing to any sum over x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from curvedp.arrays import FloatArray
from curvedp.domain import Domain
from curvedp.losses import Loss, target_columns
from curvedp.problem import Problem

if TYPE_CHECKING:
    from curvedp.rows.reductions import VectorOf


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of the clipped records and a bound on the rounding error of computing them.

    Of weighted records those of √v·(x, y), v the weight (W-1).
    """

    xx: FloatArray  # Σ x xᵀ, shape (d, d)
    xy: FloatArray  # Σ x yᵀ, shape (d, T), T = number of targets (1 unless y has columns)
    yy: FloatArray  # Σ y yᵀ, shape (T, T)
    error: float  # |computed xx·θ − exact xx·θ| ≤ error·‖θ‖ (spectral norm), same bound for xy with ‖·‖ = 1


@dataclass(frozen=True)
class Layout:
    """What is public about rows: the domain of a record, d model columns, T columns of the target.

    In a weighted domain the last of the T is the weight.
    """

    domain: Domain
    d: int
    n_targets: int = 1

    @classmethod
    def of(cls, problem: Problem, d: int) -> Layout:
        """Of the rows that a problem with d model columns is fitted to."""
        return cls(problem.domain, d, target_columns(problem.loss))


@runtime_checkable
class Rows(Protocol):
    """Reductions over clipped records z_i = (x_i, y_i), i ≤ n."""

    @property
    def layout(self) -> Layout:
        """The domain that every record was clipped into, and the number of model columns. Public."""
        ...

    @property
    def d(self) -> int:
        """Number of model columns, intercept included. Public."""
        ...

    @property
    def magnitude(self) -> float:
        """B ≥ ‖x‖ of every record: what rounding errors of sums are proportional to. Public."""
        ...

    def count(self) -> int:
        """n. Public under `replace`; private under add_remove: then it may only be used with noise."""
        ...

    def moments(self) -> Moments:
        """Σ x xᵀ, Σ x yᵀ, Σ y yᵀ in one pass, weighted in a weighted domain; targets within ±y_bound."""
        ...

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        """Σ_i clip_c(x_i φ'(θᵀx_i; y_i)ᵀ), shape (d, K); Frobenius clip per record; None: no clip."""
        ...

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        """Σ_i φ''(θᵀx_i; y_i) ⊗ x_i x_iᵀ, shape (dK, dK), θ flattened in C order (row j, class k → j·K + k).

        With `clip` (K = 1 only): the Hessian of the Huberised loss, zero where |φ'|·‖x‖ ≥ clip.
        """
        ...

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        """Σ_i min(u_iφ''_i, bound/‖x_i‖²) x_i x_iᵀ, shape (d, d) (K = 1): no record adds more than `bound`.

        With `clip`, u_i falls from 1 to 0 while the gradient's length rises from clip to twice that: a record
        that is clipped does not move when θ does. Without it u_i = 1.
        """
        ...

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        """Σ_i g_i g_iᵀ of the clipped gradients g_i = clip_c(x_i φ'_i), shape (d, d) (K = 1)."""
        ...

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        """Counts of per-record gradient norms in the len(edges)+1 cells cut by increasing `edges`."""
        ...

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        """Counts of record lengths ‖x_i‖ in the len(edges)+1 cells cut by increasing `edges`.

        In a weighted domain lengths are √v‖x‖, and a record counts as much as it weighs.
        """
        ...

    def vector_sum(self, of: VectorOf, size: int, clip: float) -> FloatArray:
        """Σ_i clip_c(v_i), shape (size,), of a vector of every record; of a person's rows it is their sum."""
        ...

    def column_cells(self, columns: Sequence[int]) -> FloatArray:
        """Counts of the entries of some columns in 16 equal cells of [−1, 1], shape (columns, 16).

        A record counts as much as it weighs; a person once, spread evenly over the cells of its rows.
        """
        ...

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Rows:
        """The same records with lengths ‖A x‖ in every clip and histogram, A = metric; sums stay as they are.

        With `bound`, every record is shortened to ‖A x‖ ≤ bound; a weighted one to √v‖A x‖ ≤ bound.
        """
        ...

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        """Σ_i φ(θᵀx_i; y_i); with `clip` (K = 1 only) of the Huberised loss."""
        ...

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        """Bound on the rounding error (Euclidean) of `gradient_sum` at θ, clipped or not."""
        ...
