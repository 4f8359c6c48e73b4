"""The reductions of `Rows` as sums over blocks. Subclasses say how blocks come about and where they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap, clip_factors
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Loss, target_columns
from curvedp.rows import reductions
from curvedp.rows.base import Layout, Moments
from curvedp.rows.blocks import Block, triangle_of
from curvedp.rows.passes import ordered_map
from curvedp.rows.rounding import DENSE_ROWS_AT_MOST, gradient_error, moments_error
from curvedp.rows.sums import Parts, Total, tree_sum, zeros

Loaded = tuple[Block, FloatArray]
Load = Callable[[], Loaded]
Reduction = Callable[[Block, FloatArray], Parts]
# A metric A, its triangle, and ‖A x_i‖ of every record, block by block: eight bytes a record.
Lengths = tuple[FloatArray, FloatArray, dict[int, FloatArray]]


def rows_per_block(d: int) -> int:
    """About 4 MB of float64, between 1024 and 4096 rows: large enough for BLAS, small enough for caches."""
    return min(DENSE_ROWS_AT_MOST, max(1024, 2**19 // max(d, 1)))


def bound_of(domain: Domain, columns: ColumnMap | None) -> float:
    """B: every record has ‖x‖ ≤ B."""
    return domain.x_norm if columns is None else min(domain.x_norm, columns.x_norm)


class SummedRows(ABC):
    """Rows whose reductions add up, in a fixed order, what each block contributes."""

    persons = False  # whether sums and counts are over persons, each bounded as one

    def __init__(self, layout: Layout, magnitude: float) -> None:
        if layout.domain.unit is not None and not self.persons:
            raise InvalidInput("these rows say not whose they are: pass the column that does, as unit")
        self.layout = layout
        self.magnitude = magnitude
        self._moments: Moments | None = None

    @property
    def d(self) -> int:
        return self.layout.d

    @abstractmethod
    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        """Σ reduction(block, y) over all blocks; None when there is none.

        `keep` says that more passes will follow, so that prepared blocks are worth their memory.
        """

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def in_metric(self, metric: FloatArray, bound: float | None = None) -> SummedRows: ...

    def moments(self) -> Moments:
        """One pass, the first time that they are asked for."""
        if self._moments is None:
            d, T = self.d, self.layout.n_targets - int(self.layout.domain.weighted)
            total = self._sum(reductions.moments, [(d, d), (d, T), (T, T), ()], keep=False)
            xx, xy, yy, mass = total.parts
            error = moments_error(float(mass), float(np.trace(yy)), total.additions)
            self._moments = Moments(xx, xy, yy, error)
        return self._moments

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        return self._sum(reductions.gradient, [theta.shape], loss=loss, theta=theta, clip=clip).parts[0]

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        if clip is not None:
            _check_one_output(loss)
        return self._sum(reductions.hessian, [(theta.size,) * 2], loss=loss, theta=theta, clip=clip).parts[0]

    def curvature_sum(
        self, loss: Loss, theta: FloatArray, bound: float, clip: float | None = None
    ) -> FloatArray:
        self._check(loss, theta, bound)
        self._check(loss, theta, clip)
        _check_one_output(loss)
        shapes = [(self.d,) * 2]
        total = self._sum(reductions.curvature, shapes, loss=loss, theta=theta, bound=bound, clip=clip)
        return total.parts[0]

    def score_sum(self, loss: Loss, theta: FloatArray, clip: float) -> FloatArray:
        self._check(loss, theta, clip)
        _check_one_output(loss)
        return self._sum(reductions.scores, [(self.d,) * 2], loss=loss, theta=theta, clip=clip).parts[0]

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        self._check(loss, theta, None)
        edges = increasing(edges)
        shape = (len(edges) + 1,)
        return self._sum(reductions.histogram, [shape], loss=loss, theta=theta, edges=edges).parts[0]

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        edges = increasing(edges)
        return self._sum(reductions.norm_histogram, [(len(edges) + 1,)], edges=edges).parts[0]

    def vector_sum(self, of: reductions.VectorOf, size: int, clip: float) -> FloatArray:
        return self._sum(reductions.vectors, [(size,)], of=of, clip=clip).parts[0]

    def column_cells(self, columns: Sequence[int]) -> FloatArray:
        shape = (len(columns), reductions.CELLS)
        return self._sum(reductions.column_cells, [shape], columns=tuple(columns), d=self.d).parts[0]

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        self._check(loss, theta, clip)
        return float(self._sum(reductions.value, [()], loss=loss, theta=theta, clip=clip).parts[0])

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        self._check(loss, theta, None)
        total = self._sum(reductions.error_masses, [(3,)], loss=loss, theta=theta)
        m, m2, m_slope = map(float, total.parts[0])
        norm = float(np.linalg.norm(theta))
        return gradient_error(self.layout, loss, norm, (m, m2, m_slope), total.additions)

    def _sum(
        self,
        reduction: Callable[..., Parts],
        shapes: Sequence[tuple[int, ...]],
        *,
        keep: bool = True,
        **public: object,
    ) -> Total:
        """Σ over blocks of a reduction with its public arguments, whose parts have these shapes."""
        total = self.total(partial(reduction, domain=self.layout.domain, **public), keep)
        return zeros(*shapes) if total is None else total

    def _check(self, loss: Loss, theta: FloatArray, clip: float | None) -> None:
        if theta.shape != (self.d, loss.n_outputs):
            raise InvalidInput(f"theta must have shape {(self.d, loss.n_outputs)}, got {theta.shape}")
        if self.layout.n_targets != target_columns(loss):
            raise InvalidInput(
                f"this loss reads {target_columns(loss)} column(s) of the target: pass y with as many"
            )
        if clip is not None and not clip > 0:
            raise InvalidInput(f"clip must be a positive number or None, got {clip!r}")


class BlockRows(SummedRows):
    """Rows whose blocks this process can make."""

    def __init__(self, layout: Layout, magnitude: float, threads: int | None) -> None:
        super().__init__(layout, magnitude)
        self.threads = threads
        self._lengths: Lengths | None = None

    @abstractmethod
    def loads(self, keep: bool) -> Iterable[Load]:
        """One callable per block, in order: block and targets (n, T)."""

    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        return tree_sum(ordered_map(partial(contribution, reduction), self.loads(keep), self.threads))

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> MetricRows:
        """The lengths of the last metric are kept, for a view with another bound."""
        check_metric(metric, bound, self.d)
        if self._lengths is None or not np.array_equal(self._lengths[0], metric):
            self._lengths = np.array(metric, dtype=np.float64), triangle_of(metric), {}
        return MetricRows(self, *self._lengths[1:], bound)


def contribution(reduction: Reduction, load: Load) -> Total:
    """What one block adds to a sum."""
    block, y = load()
    return Total(reduction(block, y), block.additions)


class MetricRows(BlockRows):
    """The records of `rows`, their lengths measured as ‖A x‖: that is what clips and histograms see.

    Gradient sums and Gram matrices stay in the coordinates of `rows`. With `bound`, every record is shortened
    to ‖A x‖ ≤ bound; a weighted one to √v‖A x‖ ≤ bound.
    """

    def __init__(
        self, rows: BlockRows, triangle: FloatArray, norms: dict[int, FloatArray], bound: float | None
    ) -> None:
        super().__init__(rows.layout, rows.magnitude, rows.threads)
        self._rows, self._triangle, self._bound = rows, triangle, bound
        self._norms = norms  # measured once, and shared by views with other bounds

    def count(self) -> int:
        return self._rows.count()

    def loads(self, keep: bool) -> Iterable[Load]:
        for index, load in enumerate(self._rows.loads(keep)):
            yield partial(self._load, index, load)

    def _load(self, index: int, load: Load) -> Loaded:
        block, y = load()
        norms, factors = self._norms.get(index), None
        if norms is None:
            norms = self._norms[index] = block.lengths(self._triangle)
        if self._bound is not None:
            norms, factors = self._shortened(norms, y, self._bound)
        return block.rescaled(factors, norms), y

    def _shortened(
        self, norms: FloatArray, y: FloatArray, bound: float
    ) -> tuple[FloatArray, FloatArray | None]:
        """Lengths and factors of records with ‖x‖ ≤ bound, or √v‖x‖ ≤ bound where they have weights."""
        if not self.layout.domain.weighted:
            return clip_factors(norms, bound, 0)
        _, factors = clip_factors(np.sqrt(reductions.weights_of(y)) * norms, bound, 8)
        return (norms if factors is None else factors * norms), factors


def check_metric(metric: FloatArray, bound: float | None, d: int) -> None:
    """Refuse what is no metric on R^d, or no bound of a length."""
    if metric.ndim != 2 or metric.shape[1] != d:
        raise InvalidInput(f"metric must be a matrix with {d} columns, got shape {metric.shape}")
    if bound is not None and not bound > 0:
        raise InvalidInput(f"bound must be a positive number or None, got {bound!r}")


def _check_one_output(loss: Loss) -> None:
    if loss.n_outputs > 1:
        raise InvalidInput("this sum exists for losses with one output only")


def increasing(edges: FloatArray) -> FloatArray:
    edges = np.asarray(edges, dtype=np.float64)
    if edges.ndim != 1 or not np.all(np.diff(edges) > 0):
        raise InvalidInput("edges must be an increasing list of numbers")
    return edges
