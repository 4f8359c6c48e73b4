"""`Rows`: the only door to private records, and what one block of them contributes to each sum.

Mechanisms and solvers never see an array of records. They ask a `Rows` for one of the reductions
below; clipping, centring and the intercept column have been applied before any of them.
θ always has shape (d, K). Dense, sparse, chunked and Dask rows differ in how they add up blocks.
A record whose target is no number is the zero record: it counts, and adds nothing to any sum over x.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.data.mapping import inside, norms
from curvedp.data.rows import blocks
from curvedp.data.rows.blocks import Block
from curvedp.errors import InvalidInput
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss, Squared
from curvedp.problems.losses.several import clipped_targets, offset_bound, target_columns


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of clipped records, of weighted ones of √v·(x, y) (W-1), and their rounding error."""

    xx: FloatArray  # Σ x xᵀ, shape (d, d)
    xy: FloatArray  # Σ x yᵀ, shape (d, T), T = number of targets (1 unless y has columns)
    yy: FloatArray  # Σ y yᵀ, shape (T, T)
    error: float  # |computed xx·θ − exact xx·θ| ≤ error·‖θ‖ (spectral norm), same bound for xy with ‖·‖ = 1


@dataclass(frozen=True)
class Layout:
    """What is public about rows: domain, d model columns, T of the target, the last a weight if weighted."""

    domain: Domain
    d: int
    n_targets: int = 1

    @classmethod
    def of(cls, problem: Problem, d: int) -> Layout:
        """Of the rows that a problem with d model columns is fitted to."""
        return cls(problem.domain, d, target_columns(problem.loss))


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


def tree_sum(terms: Iterable[Total]) -> Total | None:
    """Σ terms along a balanced binary tree over their order, one sum per level in memory; None of none."""
    levels: list[tuple[int, Total]] = []
    for total in terms:
        height = 0
        while levels and levels[-1][0] == height:
            total = levels.pop()[1] + total
            height += 1
        levels.append((height, total))
    sums = [total for _, total in reversed(levels)]
    return reduce(lambda later, earlier: earlier + later, sums) if sums else None


# What rounding adds to a sum over records: after the sum was computed, and before, for any table.
#
# Both come from the same formulas. The first takes the sums of magnitudes of the records that were there, the
# second the largest that `ROWS_AT_MOST` records can have: so the second is public, and never the smaller one.

DENSE_ROWS_AT_MOST = 4096  # in one block
RECORDS = 1.002 * ROWS_AT_MOST  # sums of magnitudes are rounded; those of sparse rows are 1.0004·B at most


def rows_per_block(d: int) -> int:
    """About 4 MB of float64, between 1024 and 4096 rows: large enough for BLAS, small enough for caches."""
    return min(DENSE_ROWS_AT_MOST, max(1024, 2**19 // max(d, 1)))


def relative_error(additions: int) -> float:
    """γ = (additions + 16)·2⁻⁵³: relative error of a sum, the products and factors of its terms included."""
    return 1.01 * (additions + 16) * UNIT_ROUNDOFF


def moments_error(mass: float, target_mass: float, additions: int) -> float:
    """γ·max(Σm², sqrt(Σm²·Σ‖y‖²)): of Σxxᵀ and of Σxyᵀ, in the Frobenius norm."""
    return relative_error(additions) * max(mass, math.sqrt(mass) * math.sqrt(target_mass))


def gradient_error(layout: Layout, loss: Loss, norm: float, masses: Sequence[float], additions: int) -> float:
    """Σ_i m_i(β·δs_i + evaluation error of φ'_i) + γ Σ_i m_i‖φ'_i‖, with |δs_i| ≤ (d+16)·2⁻⁵³·(m_i‖θ‖ + |o|).

    `masses` are (Σm, Σm², Σm‖φ'‖), `norm` is ‖θ‖, |o| bounds the offsets.
    """
    m, m2, m_slope = masses
    reach = m2 * norm + m * offset_bound(loss)
    margin = loss.curvature(layout.domain, norm) * (layout.d + 16) * reach
    evaluation = 16 * loss.n_outputs * ((1.0 + layout.domain.y_bound) * m + m_slope)
    return 1.01 * (UNIT_ROUNDOFF * (margin + evaluation) + relative_error(additions) * m_slope)


def additions_at_most(d: int) -> int:
    """Additions behind a term of any sum over records of d columns."""
    return blocks.chain(DENSE_ROWS_AT_MOST, d) + LEVELS_AT_MOST


def moments_error_bound(layout: Layout, magnitude: float) -> float:
    """γ·N·max(M², M·Y·√T), N = `ROWS_AT_MOST`, bounds `Moments.error` of any such table whose m_i ≤ M."""
    targets = layout.n_targets * layout.domain.y_bound**2
    return moments_error(RECORDS * magnitude**2, RECORDS * targets, additions_at_most(layout.d))


def gradient_error_bound(layout: Layout, loss: Loss, theta_norm: float, magnitude: float) -> float:
    """Bounds `gradient_error` of any such table, ‖θ‖ ≤ theta_norm: masses N·M, N·M² and N·M·S, S ≥ ‖φ'‖."""
    slope = loss.gradient_bound(layout.domain, theta_norm) / layout.domain.x_norm
    # Slopes are taken at rounded margins.
    beside = (layout.d + 16) * UNIT_ROUNDOFF * (magnitude * theta_norm + offset_bound(loss))
    slope += loss.curvature(layout.domain, theta_norm) * beside
    masses = (RECORDS * magnitude, RECORDS * magnitude**2, 1.001 * RECORDS * magnitude * slope)
    return gradient_error(layout, loss, theta_norm, masses, additions_at_most(layout.d))


def slope_slack(
    problem: Problem, d: int, theta: FloatArray, clip: float, *, rows: float = RECORDS, stretch: float = 1.0
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
SUM_SLACK = 2.0 * RECORDS * relative_error(additions_at_most(2**62))


# What one block of records contributes to each reduction: pure, picklable functions, whose formulas stand in
# the methods of `Rows`.
#
# A block comes with its targets y of shape (n, T); every function clips them into the domain first. In a
# weighted domain the last of them is a weight v, and the record of every quadratic sum is √v·(x, y) (W-1).

CELLS = 16  # of the histogram of a column
VectorOf = Callable[[Block, FloatArray, Domain], FloatArray]
WEIGHT_STEPS = 2.0**16  # weights in a histogram are rounded up to multiples of its inverse


class At(NamedTuple):
    """A loss at θ, shape (d, K), of records of a domain."""

    domain: Domain
    loss: Loss
    theta: FloatArray

    def targets(self, y: FloatArray) -> FloatArray:
        return clipped_targets(self.loss, y, self.domain)

    def slopes(self, block: Block, y: FloatArray, steady: bool = False) -> FloatArray:
        """φ'_i, shape (n, K)."""
        margins = self.steady_margins(block) if steady else block.margins(self.theta)
        return self.loss.gradient(margins, self.targets(y))

    def steady_margins(self, block: Block) -> FloatArray:
        """θᵀx, one output at a time: what follows for a record must not depend on where the record stands."""
        return np.hstack([block.margins(column[:, None]) for column in self.theta.T])


def moments(block: Block, y: FloatArray, domain: Domain, parts: FloatArray | None = None) -> Parts:
    """(Σ x xᵀ, Σ x yᵀ, Σ y yᵀ, Σ m²), m magnitudes; a record counts as much as it weighs, times its part."""
    targets = Squared().clip_target(y[:, : y.shape[1] - domain.weighted], domain)
    if (v := masses(y, domain, parts)) is not None:
        roots = np.sqrt(v)
        block, targets = block.rescaled(roots, roots * block.norms), roots[:, None] * targets
    mass = np.asarray(np.sum(np.square(block.magnitudes)))
    return block.gram(), block.combine(targets), blocks.combination(targets, targets), mass


def gradient(block: Block, y: FloatArray, at: At, clip: float | None) -> Parts:
    slopes = at.slopes(block, y)
    if clip is not None:
        slopes = blocks.shortened(slopes, block.norms, inside(clip, at.theta.size))
    return (block.combine(slopes),)


def hessian(block: Block, y: FloatArray, at: At, clip: float | None) -> Parts:
    s, targets = block.margins(at.theta), at.targets(y)
    second = at.loss.hessian(s, targets)
    if clip is not None:
        unclipped = norms(at.loss.gradient(s, targets)) * block.norms < clip
        second = second * unclipped[:, None, None]
    return (products(block.gram, second),)


def products(gram: Callable[[FloatArray], FloatArray], weights: FloatArray) -> FloatArray:
    """Σ_i x_i x_iᵀ ⊗ W_i, shape (dK, dK), of symmetric weights (n, K, K), by gram(w) = Σ_i w_i x_i x_iᵀ."""
    K = weights.shape[1]
    parts = {(k, l): gram(np.ascontiguousarray(weights[:, k, l])) for k in range(K) for l in range(k + 1)}
    d = len(parts[0, 0])
    rows = [[parts[max(k, l), min(k, l)] for l in range(K)] for k in range(K)]
    return np.array(rows).transpose(2, 0, 3, 1).reshape(d * K, d * K)


def curvature(block: Block, y: FloatArray, at: At, bound: float, clip: float | None) -> Parts:
    s, targets = at.steady_margins(block), at.targets(y)
    second, most = at.loss.hessian(s, targets), np.ones(len(y))
    if clip is not None:
        most = np.clip(2.0 - block.norms * norms(at.loss.gradient(s, targets)) / clip, 0.0, 1.0)
    sizes = matrix_norms(second) * np.square(block.norms)
    most = np.minimum(most, at_most(inside(bound, at.theta.size), sizes))
    return (products(block.gram, second * most[:, None, None]),)


def scores(block: Block, y: FloatArray, at: At, clip: float) -> Parts:
    slopes = blocks.shortened(at.slopes(block, y, steady=True), block.norms, inside(clip, at.theta.size))
    return (products(block.gram, slopes[:, :, None] * slopes[:, None, :]),)


def matrix_norms(second: FloatArray) -> FloatArray:
    """‖φ''_i‖, Frobenius, of matrices of shape (n, K, K)."""
    return norms(np.ascontiguousarray(second).reshape(len(second), -1))


def histogram(block: Block, y: FloatArray, at: At, edges: FloatArray) -> Parts:
    return (cell_masses(block.norms * norms(at.slopes(block, y, steady=True)), edges),)


def norm_histogram(block: Block, y: FloatArray, domain: Domain, edges: FloatArray) -> Parts:
    v = masses(y, domain)
    return (cell_masses(block.norms if v is None else np.sqrt(v) * block.norms, edges, v),)


def cell_masses(lengths: FloatArray, edges: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """How many lengths, or weights of them, lie in each cell; cell j holds edges[j−1] < length ≤ edges[j].
    Weights are rounded up to a grid, so that sums of them are exact and depend on no order."""
    cells = np.searchsorted(edges, lengths, side="left")
    rounded = None if weights is None else np.ceil(weights * WEIGHT_STEPS) / WEIGHT_STEPS
    return np.bincount(cells, rounded, minlength=len(edges) + 1).astype(np.float64)


def vectors(block: Block, y: FloatArray, domain: Domain, of: VectorOf, clip: float) -> Parts:
    """Σ_i clip_c(v_i) of the vectors v = of(block, y, domain), shape (n, m)."""
    return (shortened_sum(of(block, y, domain), clip),)


def shortened_sum(v: FloatArray, clip: float) -> FloatArray:
    """Σ clip_c(v_i), Euclidean, each component added up in pairs; a vector that overflowed adds nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms, safe = np.linalg.norm(v, axis=1), inside(clip, v.shape[1] + 1)
    if (lost := ~np.isfinite(norms)).any():
        v, norms = np.where(lost[:, None], 0.0, v), np.where(lost, 0.0, norms)
    factors = np.divide(safe, norms, out=np.ones_like(norms), where=norms > safe)
    return np.asarray(np.ascontiguousarray((v * factors[:, None]).T).sum(axis=1))  # along memory: in pairs


def column_cells(
    block: Block, y: FloatArray, domain: Domain, chosen: FloatArray, parts: FloatArray | None = None
) -> Parts:
    """A record counts as much as it weighs, times its part; `chosen` has a unit vector for each column."""
    X, several = block.margins(chosen), chosen.shape[1]
    cells = np.clip(np.floor((X + 1.0) * (CELLS / 2.0)), 0, CELLS - 1).astype(np.intp)
    v = masses(y, domain, parts)
    if v is not None:  # rounded down: the parts of a person never add up to more than 1
        v = np.repeat(np.floor(v * WEIGHT_STEPS) / WEIGHT_STEPS, several)
    counts = np.bincount((cells + CELLS * np.arange(several)).ravel(), v, minlength=CELLS * several)
    return (counts.astype(np.float64).reshape(several, CELLS),)


def masses(y: FloatArray, domain: Domain, parts: FloatArray | None = None) -> FloatArray | None:
    """What each record weighs, times its part; None where all count 1."""
    if not domain.weighted:
        return parts
    return weights_of(y) if parts is None else parts * weights_of(y)


def error_masses(block: Block, y: FloatArray, at: At) -> Parts:
    """(Σ m, Σ m², Σ m‖φ'‖): what the rounding error of a gradient sum is proportional to."""
    m = block.magnitudes
    return (np.array([m.sum(), m @ m, m @ norms(at.slopes(block, y))]),)


def weights_of(y: FloatArray) -> FloatArray:
    """The last column of a weighted target, within [0, 1]; a record without a weight has none."""
    return np.clip(np.where(np.isnan(y[:, -1]), 0.0, y[:, -1]), 0.0, 1.0)


def at_most(bound: float, sizes: FloatArray) -> FloatArray:
    """bound/sizes, infinite where a size is 0 or too small for a number."""
    with np.errstate(over="ignore"):
        return np.divide(bound, sizes, out=np.full_like(sizes, np.inf), where=sizes > 0)


Reduction = Callable[[Block, FloatArray], Parts]


class Rows(ABC):
    """Reductions over clipped records z_i = (x_i, y_i), i ≤ n: in a fixed order, what each block contributes.

    `layout` has the domain that every record was clipped into; `magnitude` is B ≥ ‖x‖ of every record, what
    rounding errors of sums are proportional to. Both are public. With `persons` blocks are of whole persons:
    sums and counts are over persons, each shortened, clipped and counted as one (U-1), and only sums that
    bound a person are there.
    """

    bound: float | None = None  # the length to which a view shortens, see `in_metric`

    def __init__(self, layout: Layout, magnitude: float, persons: bool = False) -> None:
        if layout.domain.unit is not None and not persons:
            raise InvalidInput("these rows say not whose they are: pass the column that does, as unit")
        if layout.domain.unit is None and persons:
            raise InvalidInput("rows of persons need a domain with a unit: Domain(unit=...)")
        self.layout = layout
        self.magnitude = magnitude
        self.persons = persons
        self._moments: Moments | None = None

    @property
    def d(self) -> int:
        """Number of model columns, intercept included. Public."""
        return self.layout.d

    @abstractmethod
    def count(self) -> int:
        """n. Public under `replace`; private under add_remove: then it may only be used with noise."""

    @abstractmethod
    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        """Σ reduction(block, y) over all blocks, None of none; `keep`: more passes follow, keep what pays."""

    @abstractmethod
    def in_metric(self, metric: FloatArray, bound: float | None = None) -> Rows:
        """The same records with lengths ‖A x‖ in every clip and histogram, A = metric; sums stay as they are.

        With `bound`, every record is shortened to ‖A x‖ ≤ bound; a weighted one to √v‖A x‖ ≤ bound.
        """

    def moments(self) -> Moments:
        """Σ x xᵀ, Σ x yᵀ, Σ y yᵀ, weighted in a weighted domain; targets within ±y_bound.

        One pass, the first time that they are asked for. Of persons nothing is certified; of k rows each
        counts 1/k (U-2) or, where they are shortened, as it is, and nothing of the targets is there.
        """
        if self._moments is None:
            domain, d = self.layout.domain, self.d
            T = self.layout.n_targets - int(domain.weighted)
            total = self._sum("moments", (d, d), (d, T), (T, T), (), keep=self.persons, domain=domain)
            xx, xy, yy, mass = total.parts
            error = moments_error(float(mass), float(np.trace(yy)), total.additions)
            self._moments = Moments(xx, xy, yy, error)
        return self._moments

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        """Σ_i clip_c(x_i φ'(θᵀx_i; y_i)ᵀ), shape (d, K); Frobenius clip per record; None: no clip."""
        if clip is None or self.bound is not None:
            self._refuse_persons("a gradient")
        return self._sum("gradient", theta.shape, at=self._at(loss, theta, clip), clip=clip).parts[0]

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        """Σ_i φ''(θᵀx_i; y_i) ⊗ x_i x_iᵀ, shape (dK, dK), θ flattened in C order (row j, class k → j·K + k).

        With `clip` (K = 1 only): the Hessian of the Huberised loss, zero where |φ'|·‖x‖ ≥ clip.
        """
        self._refuse_persons("a Hessian")
        at = self._at(loss, theta, clip)
        if clip is not None and loss.n_outputs > 1:
            raise InvalidInput("this sum exists for losses with one output only")
        return self._sum("hessian", (theta.size,) * 2, at=at, clip=clip).parts[0]

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        """Σ_i min(u_i, bound/(‖φ''_i‖‖x_i‖²)) φ''_i ⊗ x_i x_iᵀ: no record adds more than `bound`.

        With `clip`, u_i falls from 1 to 0 while the gradient's length rises from clip to twice that: a record
        that is clipped does not move when θ does. Without it u_i = 1. Shape and order of `hessian_sum`.
        """
        at = self._at(loss, theta, bound, clip)
        return self._sum("curvature", (theta.size,) * 2, at=at, bound=bound, clip=clip).parts[0]

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        """Σ_i g_i g_iᵀ of the clipped gradients g_i = clip_c(x_i φ'_iᵀ); shape and order of `hessian_sum`."""
        return self._sum("scores", (theta.size,) * 2, at=self._at(loss, theta, clip), clip=clip).parts[0]

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        """Counts of per-record gradient norms in the len(edges)+1 cells cut by increasing `edges`."""
        at, edges = self._at(loss, theta), increasing(edges)
        return self._sum("histogram", (len(edges) + 1,), at=at, edges=edges).parts[0]

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        """Counts of lengths ‖x_i‖ in the len(edges)+1 cells cut by `edges`; if weighted, Σv by √v‖x‖."""
        edges = increasing(edges)
        shape, domain = (len(edges) + 1,), self.layout.domain
        return self._sum("norm_histogram", shape, domain=domain, edges=edges).parts[0]

    def vector_sum(self, of: VectorOf, size: int, clip: float) -> FloatArray:
        """Σ_i clip_c(v_i), shape (size,), of a vector of every record; of a person's rows it is their sum."""
        return self._sum("vectors", (size,), domain=self.layout.domain, of=of, clip=clip).parts[0]

    def column_cells(self, columns: Sequence[int]) -> FloatArray:
        """Counts of the entries of some columns in 16 equal cells of [−1, 1], shape (columns, 16). A record
        counts as much as it weighs; a person once, spread evenly over the cells of its rows."""
        shape, chosen = (len(columns), CELLS), np.eye(self.d)[:, list(columns)]
        return self._sum("column_cells", shape, domain=self.layout.domain, chosen=chosen).parts[0]

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        """Bound on the rounding error (Euclidean) of `gradient_sum` at θ, clipped or not."""
        self._refuse_persons("the rounding error of a gradient")
        total = self._sum("error_masses", (3,), at=self._at(loss, theta))
        norm, masses = float(np.linalg.norm(theta)), total.parts[0].tolist()
        return gradient_error(self.layout, loss, norm, masses, total.additions)

    def _sum(self, name: str, *shapes: tuple[int, ...], keep: bool = True, **public: Any) -> Total:
        """Σ over blocks, of rows or persons, of the reduction of that name; 0 of these shapes without one."""
        module = import_module("curvedp.data.rows." + ("persons" if self.persons else "base"))
        total = self.total(partial(getattr(module, name), **public), keep)
        return Total(tuple(np.zeros(shape) for shape in shapes), 0) if total is None else total

    def _refuse_persons(self, what: str) -> None:
        if self.persons:
            raise InvalidInput(f"{what} of a person has no bound here: only clipped sums are over persons")

    def _at(self, loss: Loss, theta: FloatArray, *clips: float | None) -> At:
        """The loss at θ, if it is one of these rows, and clips if they are positive."""
        if theta.shape != (self.d, loss.n_outputs):
            raise InvalidInput(f"theta must have shape {(self.d, loss.n_outputs)}, got {theta.shape}")
        if self.layout.n_targets != target_columns(loss):
            raise InvalidInput(
                f"this loss reads {target_columns(loss)} column(s) of the target: pass y with as many"
            )
        for clip in clips:
            if clip is not None and not clip > 0:
                raise InvalidInput(f"clip must be a positive number or None, got {clip!r}")
        return At(self.layout.domain, loss, theta)


def increasing(edges: FloatArray) -> FloatArray:
    edges = np.asarray(edges, dtype=np.float64)
    if edges.ndim != 1 or not np.all(np.diff(edges) > 0):
        raise InvalidInput("edges must be an increasing list of numbers")
    return edges
