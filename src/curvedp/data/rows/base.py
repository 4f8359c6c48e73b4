"""`Rows`: the only door to private records.

Mechanisms and solvers never see an array of records. They ask a `Rows` for one of the reductions
below; clipping, centring and the intercept column have been applied before any of them.
θ always has shape (d, K). Dense, sparse, chunked and Dask rows implement this protocol.
A record whose target is no number is the zero record: it counts, and adds nothing to any sum over x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.data.rows import blocks
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss
from curvedp.problems.losses.several import offset_bound, target_columns

if TYPE_CHECKING:
    from curvedp.data.rows.reductions import VectorOf


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


# Sums of what blocks contribute: a fixed order, and a count of the additions that a term has met.
#
# Adding k numbers in any order errs by at most about k·2⁻⁵³ times the sum of their sizes, k being the longest
# chain of additions behind one term. A balanced tree keeps that chain short, however many blocks there are.


Parts = tuple[FloatArray, ...]

FAN_IN = 2**4  # sums that one task of an engine joins
# Blocks of a partition along one tree, partitions along another, ROWS_AT_MOST of each.
LEVELS_AT_MOST = math.ceil(math.log2(ROWS_AT_MOST)) + 4 * math.ceil(math.log(ROWS_AT_MOST, FAN_IN))


@dataclass(frozen=True, eq=False)
class Total:
    """Sums over some records; no record has passed through more than `additions` additions."""

    parts: Parts
    additions: int

    def __add__(self, other: Total) -> Total:
        parts = tuple(a + b for a, b in zip(self.parts, other.parts, strict=True))
        return Total(parts, max(self.additions, other.additions) + 1)


def zeros(*shapes: tuple[int, ...]) -> Total:
    """The sum over no record."""
    return Total(tuple(np.zeros(shape) for shape in shapes), 0)


def tree_sum(terms: Iterable[Total]) -> Total | None:
    """Σ terms along a balanced binary tree over their order, one sum per level in memory; None of none."""
    levels: list[tuple[int, Total]] = []
    for total in terms:
        height = 0
        while levels and levels[-1][0] == height:
            total = levels.pop()[1] + total
            height += 1
        levels.append((height, total))
    if not levels:
        return None
    _, total = levels.pop()
    for _, earlier in reversed(levels):
        total = earlier + total
    return total


# What rounding adds to a sum over records: after the sum was computed, and before, for any table.
#
# Both come from the same formulas. The first takes the sums of magnitudes of the records that were there, the
# second the largest that `ROWS_AT_MOST` records can have: so the second is public, and never the smaller one.


DENSE_ROWS_AT_MOST = 4096  # in one block
_RECORDS = 1.002 * ROWS_AT_MOST  # sums of magnitudes are rounded; those of sparse rows are 1.0004·B at most


def relative_error(additions: int) -> float:
    """γ = (additions + 16)·2⁻⁵³: relative error of a sum, the products and factors of its terms included."""
    return 1.01 * (additions + 16) * UNIT_ROUNDOFF


def moments_error(mass: float, target_mass: float, additions: int) -> float:
    """γ·max(Σm², sqrt(Σm²·Σ‖y‖²)): of Σxxᵀ and of Σxyᵀ, in the Frobenius norm."""
    return relative_error(additions) * max(mass, math.sqrt(mass) * math.sqrt(target_mass))


def gradient_error(
    layout: Layout, loss: Loss, theta_norm: float, masses: tuple[float, float, float], additions: int
) -> float:
    """Σ_i m_i(β·δs_i + evaluation error of φ'_i) + γ Σ_i m_i‖φ'_i‖, with |δs_i| ≤ (d+16)·2⁻⁵³·(m_i‖θ‖ + |o|).

    `masses` are (Σm, Σm², Σm‖φ'‖), |o| bounds the offsets.
    """
    m, m2, m_slope = masses
    reach = m2 * theta_norm + m * offset_bound(loss)
    margin = loss.curvature(layout.domain, theta_norm) * (layout.d + 16) * reach
    evaluation = 16 * loss.n_outputs * ((1.0 + layout.domain.y_bound) * m + m_slope)
    return 1.01 * (UNIT_ROUNDOFF * (margin + evaluation) + relative_error(additions) * m_slope)


def additions_at_most(d: int) -> int:
    """Additions behind a term of any sum over records of d columns."""
    return blocks.chain(DENSE_ROWS_AT_MOST, d) + LEVELS_AT_MOST


def moments_error_bound(layout: Layout, magnitude: float) -> float:
    """A public bound of `Moments.error` for any table in this layout whose records have m_i ≤ magnitude.

    γ·N·max(M², M·Y·√T), N = `ROWS_AT_MOST`.
    """
    targets = layout.n_targets * layout.domain.y_bound**2
    return moments_error(_RECORDS * magnitude**2, _RECORDS * targets, additions_at_most(layout.d))


def gradient_error_bound(layout: Layout, loss: Loss, theta_norm: float, magnitude: float) -> float:
    """A public bound of `gradient_error` at any ‖θ‖ ≤ theta_norm, for any table in this layout.

    The masses are N·M, N·M² and N·M·S, S ≥ ‖φ'‖ the public bound of a slope.
    """
    slope = loss.gradient_bound(layout.domain, theta_norm) / layout.domain.x_norm
    # Slopes are taken at rounded margins.
    beside = (layout.d + 16) * UNIT_ROUNDOFF * (magnitude * theta_norm + offset_bound(loss))
    slope += loss.curvature(layout.domain, theta_norm) * beside
    masses = (_RECORDS * magnitude, _RECORDS * magnitude**2, 1.001 * _RECORDS * magnitude * slope)
    return gradient_error(layout, loss, theta_norm, masses, additions_at_most(layout.d))


def slope_slack(
    problem: Problem, d: int, theta: FloatArray, clip: float, *, rows: float = _RECORDS, stretch: float = 1.0
) -> float:
    """What rounding of slopes adds to the difference of two sums of clipped gradients, in units of the clip.

    2N·(β|δs| + 16K·2⁻⁵³·(1 + Y))·B·stretch/c + 32NK·2⁻⁵³, |δs| ≤ (d+16)·2⁻⁵³(B‖θ‖ + |o|); a metric stretches.
    A product of arrays may round a record's margin by where the record stands, and removing another moves it.
    """
    domain, K = problem.domain, problem.loss.n_outputs
    margin = (d + 16) * (domain.x_norm * float(np.linalg.norm(theta)) + offset_bound(problem.loss))
    beta = problem.loss.curvature(domain, problem.radius(d))
    slope = beta * margin + 16 * K * (1.0 + domain.y_bound)
    return 2.02 * rows * UNIT_ROUNDOFF * (slope * domain.x_norm * stretch / clip + 16 * K)


# Computed sums of vectors of norm ≤ c over neighbouring tables differ by (sum_factor + SUM_SLACK)·c at most:
# each of the two is off by γ·N·c. The bound for many columns holds for few, too.
SUM_SLACK = 2.0 * _RECORDS * relative_error(additions_at_most(2**62))
