"""The reductions of `Rows` as sums over blocks. Subclasses say how blocks come about and where they are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvedp.domain import UNIT_ROUNDOFF, ColumnMap, Domain, FloatArray, clip_factors
from curvedp.errors import DataError, InvalidInput
from curvedp.losses import Loss
from curvedp.rows import reductions
from curvedp.rows.base import Moments
from curvedp.rows.blocks import Block, MeasuredBlock, metric_norms, triangle_of
from curvedp.rows.passes import ordered_map
from curvedp.rows.sums import Parts, Total, tree_sum, zeros

Loaded = tuple[Block, FloatArray]
Load = Callable[[], Loaded]
Reduction = Callable[[Block, FloatArray], Parts]

# Fewer stored numbers than this are read faster by one thread than several can be started.
FEW_ENTRIES = 2**20


def rows_per_block(d: int) -> int:
    """About 4 MB of float64, between 1024 and 4096 rows: large enough for BLAS, small enough for caches."""
    return min(4096, max(1024, 2**19 // max(d, 1)))


class SummedRows(ABC):
    """Rows whose reductions add up, in a fixed order, what each block contributes."""

    def __init__(self, domain: Domain, columns: ColumnMap | None, d: int, n_targets: int) -> None:
        self.domain = domain
        self.columns = columns
        self.d = d
        self.n_targets = n_targets
        self._moments: Moments | None = None

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
            d, T = self.d, self.n_targets
            total = self._sum(reductions.moments, [(d, d), (d, T), (T, T), ()], keep=False)
            xx, xy, yy, mass = total.parts
            size = max(float(mass), math.sqrt(float(mass) * float(np.trace(yy))))
            self._moments = Moments(xx, xy, yy, error=_summation_error(total) * size)
        return self._moments

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        return self._sum(reductions.gradient, [theta.shape], loss=loss, theta=theta, clip=clip).parts[0]

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        if clip is not None and loss.n_outputs > 1:
            raise InvalidInput("a clipped Hessian exists for losses with one output only; pass clip=None")
        return self._sum(reductions.hessian, [(theta.size,) * 2], loss=loss, theta=theta, clip=clip).parts[0]

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        self._check(loss, theta, None)
        edges = _increasing(edges)
        shape = (len(edges) + 1,)
        return self._sum(reductions.histogram, [shape], loss=loss, theta=theta, edges=edges).parts[0]

    def norm_histogram(self, edges: FloatArray) -> FloatArray:
        edges = _increasing(edges)
        return self._sum(reductions.norm_histogram, [(len(edges) + 1,)], edges=edges).parts[0]

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        self._check(loss, theta, clip)
        return float(self._sum(reductions.value, [()], loss=loss, theta=theta, clip=clip).parts[0])

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        """Σ_i m_i(β·δs_i + evaluation error of φ'_i) + γ Σ_i m_i‖φ'_i‖, with |δs_i| ≤ (d+16)·2⁻⁵³·m_i‖θ‖."""
        self._check(loss, theta, None)
        total = self._sum(reductions.error_masses, [(3,)], loss=loss, theta=theta)
        m, m2, m_slope = total.parts[0]
        norm = float(np.linalg.norm(theta))
        margin = loss.curvature(self.domain, norm) * (self.d + 16) * m2 * norm
        evaluation = 16 * loss.n_outputs * ((1.0 + self.domain.y_bound) * m + m_slope)
        return 1.01 * float(UNIT_ROUNDOFF * (margin + evaluation) + _summation_error(total) * m_slope)

    def _sum(
        self,
        reduction: Callable[..., Parts],
        shapes: Sequence[tuple[int, ...]],
        *,
        keep: bool = True,
        **public: object,
    ) -> Total:
        """Σ over blocks of a reduction with its public arguments, whose parts have these shapes."""
        total = self.total(partial(reduction, domain=self.domain, **public), keep)
        return zeros(*shapes) if total is None else total

    def _check(self, loss: Loss, theta: FloatArray, clip: float | None) -> None:
        if theta.shape != (self.d, loss.n_outputs):
            raise InvalidInput(f"theta must have shape {(self.d, loss.n_outputs)}, got {theta.shape}")
        if self.n_targets != 1:
            raise InvalidInput("a loss needs one target: pass y with one column")
        if clip is not None and not clip > 0:
            raise InvalidInput(f"clip must be a positive number or None, got {clip!r}")


def _summation_error(total: Total) -> float:
    """γ = (additions + 16)·2⁻⁵³: relative error of a sum, the products and factors of its terms included."""
    return 1.01 * (total.additions + 16) * UNIT_ROUNDOFF


class BlockRows(SummedRows):
    """Rows whose blocks this process can make."""

    def __init__(
        self,
        domain: Domain,
        columns: ColumnMap | None,
        d: int,
        n_targets: int,
        block_rows: int,
        threads: int | None,
    ) -> None:
        super().__init__(domain, columns, d, n_targets)
        self.block_rows = block_rows
        self.threads = threads
        self._lengths: Lengths | None = None

    @property
    def bound(self) -> float:
        """B: every record has ‖x‖ ≤ B."""
        return self.domain.x_norm if self.columns is None else min(self.domain.x_norm, self.columns.x_norm)

    @abstractmethod
    def loads(self, keep: bool) -> Iterable[Load]:
        """One callable per block of at most `block_rows` records, in order: block and targets (n, T)."""

    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        return tree_sum(ordered_map(partial(contribution, reduction), self.loads(keep), self.threads))

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> MetricRows:
        """The lengths of the last metric are kept, for a view with another bound."""
        check_metric(metric, bound, self.d)
        if self._lengths is None or not np.array_equal(self._lengths.metric, metric):
            self._lengths = Lengths(np.array(metric, dtype=np.float64))
        return MetricRows(self, self._lengths, bound)


def contribution(reduction: Reduction, load: Load) -> Total:
    """What one block adds to a sum. Inside it, a record meets at most one addition per row."""
    block, y = load()
    return Total(reduction(block, y), len(y))


class Lengths:
    """‖A x_i‖ of every record, block by block, measured once: eight bytes a record."""

    def __init__(self, metric: FloatArray) -> None:
        self.metric = metric
        self._triangle = triangle_of(metric)
        self._norms: dict[int, FloatArray] = {}

    def of(self, index: int, block: Block) -> FloatArray:
        norms = self._norms.get(index)
        if norms is None:
            norms = self._norms[index] = metric_norms(block, self._triangle)
        return norms


class MetricRows(BlockRows):
    """The records of `rows`, their lengths measured as ‖A x‖: that is what clips and histograms see.

    Gradient sums and Gram matrices stay in the coordinates of `rows`. With `bound`, every record is shortened
    to ‖A x‖ ≤ bound.
    """

    def __init__(self, rows: BlockRows, lengths: Lengths, bound: float | None) -> None:
        super().__init__(rows.domain, rows.columns, rows.d, rows.n_targets, rows.block_rows, rows.threads)
        self._rows = rows
        self._measured = lengths
        self._metric_bound = bound

    def count(self) -> int:
        return self._rows.count()

    def loads(self, keep: bool) -> Iterable[Load]:
        for index, load in enumerate(self._rows.loads(keep)):
            yield partial(self._load, index, load)

    def _load(self, index: int, load: Load) -> Loaded:
        block, y = load()
        norms = self._measured.of(index, block)
        if self._metric_bound is None:
            return MeasuredBlock(block, norms, None), y
        return MeasuredBlock(block, *clip_factors(norms, self._metric_bound, 0)), y


class StoredRows(BlockRows):
    """Rows that can be sliced: blocks are made on demand, and kept between passes when `may_keep`."""

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None,
        make_block: Callable[[Any, ColumnMap | None, float], Block],
        block_rows: int,
        may_keep: bool,
        threads: int | None,
    ) -> None:
        n, p = X.shape
        if columns is not None and p != columns.n_inputs:
            raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
        if threads is None and X.size < FEW_ENTRIES:
            threads = 1
        self._X = X
        self._y = np.asarray(as_targets(y, n), dtype=np.float64)
        d = p if columns is None else columns.d
        super().__init__(domain, columns, d, self._y.shape[1], block_rows, threads)
        self._make_block = make_block
        self._may_keep = may_keep
        self._slices = [slice(start, start + block_rows) for start in range(0, n, block_rows)]
        self._kept: list[Block | None] = [None] * len(self._slices)

    def count(self) -> int:
        return int(self._X.shape[0])

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(self._load, index, keep and self._may_keep) for index in range(len(self._slices)))

    def _load(self, index: int, keep: bool) -> Loaded:
        rows = self._slices[index]
        block = self._kept[index]
        if block is None:
            block = self._make_block(self._X[rows], self.columns, self.bound)
            if keep:
                self._kept[index] = block
        return block, self._y[rows]


def check_metric(metric: FloatArray, bound: float | None, d: int) -> None:
    """Refuse what is no metric on R^d, or no bound of a length."""
    if metric.ndim != 2 or metric.shape[1] != d:
        raise InvalidInput(f"metric must be a matrix with {d} columns, got shape {metric.shape}")
    if bound is not None and not bound > 0:
        raise InvalidInput(f"bound must be a positive number or None, got {bound!r}")


def _increasing(edges: FloatArray) -> FloatArray:
    edges = np.asarray(edges, dtype=np.float64)
    if edges.ndim != 1 or not np.all(np.diff(edges) > 0):
        raise InvalidInput("edges must be an increasing list of numbers")
    return edges


def as_features(X: ArrayLike) -> NDArray[np.generic]:
    """X as a two-dimensional array of real numbers, not copied."""
    array = np.asanyarray(X)
    if array.ndim != 2:
        raise DataError("X must be a table: two dimensions, one row per record")
    if array.dtype.kind not in "fiub":
        raise DataError("X must hold numbers; read tables of other kinds through a schema")
    return array


def as_targets(y: ArrayLike, n: int) -> NDArray[np.generic]:
    """y as an (n, T) array of real numbers, not copied."""
    array = np.asanyarray(y)
    if array.dtype.kind not in "fiub":
        raise DataError("y must hold numbers: real targets, ±1, or class indices")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n:
        raise DataError("y must have one entry (or one row of targets) per row of X")
    return array
