"""The reductions of `Rows` as sums over blocks, of records in memory and in chunks."""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from threadpoolctl import ThreadpoolController

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.data.mapping import ColumnMap, clip_factors
from curvedp.data.rows import reductions
from curvedp.data.rows.base import (
    DENSE_ROWS_AT_MOST,
    SUM_SLACK,
    Layout,
    Moments,
    Parts,
    Rows,
    Total,
    gradient_error,
    moments_error,
    tree_sum,
    zeros,
)
from curvedp.data.rows.blocks import (
    SPARSE_ROWS_AT_MOST,
    Block,
    make_block,
    stays_sparse,
    triangle_of,
)
from curvedp.data.rows.inputs import as_csr, as_features, as_targets
from curvedp.errors import DataError, InvalidInput, shielded
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss
from curvedp.problems.losses.several import clipped_targets, offset_bound, target_columns

# One pass over blocks: Python threads over blocks, BLAS at one thread in each, results in order.


Item = TypeVar("Item")
Result = TypeVar("Result")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> Any:
    """A context in which BLAS runs at one thread: parallelism is over blocks."""
    return _blas().limit(limits=1)


def available_threads() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """function(item) for every item, in order, at most two results per thread in memory at a time."""
    threads = available_threads() if threads is None else threads
    items = iter(items)
    first = list(islice(items, 2))
    with one_blas_thread():
        if threads == 1 or len(first) < 2:
            for item in first:
                yield function(item)
            for item in items:
                yield function(item)
            return
        with ThreadPoolExecutor(threads) as pool:
            pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in first)
            for item in items:
                if len(pending) >= 2 * threads:
                    yield pending.popleft().result()
                pending.append(pool.submit(function, item))
            while pending:
                yield pending.popleft().result()


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


# How much better some θ fit than a reference, record by record: clipped sums, and what rounding adds.


def improvement_sum(
    rows: Rows,
    loss: Loss,
    reference: FloatArray,
    thetas: Sequence[FloatArray],
    scales: FloatArray,
    clip: float,
) -> FloatArray:
    """Σ_i clip_c(v_i), v_ij = (φ(θ_refᵀx_i; y_i) − φ(θ_jᵀx_i; y_i))/scale_j, Euclidean clip per record."""
    of = partial(_improvements, loss=loss, stacked=np.hstack([reference, *thetas]), scales=np.asarray(scales))
    return rows.vector_sum(of, len(thetas), clip)


def _improvements(
    block: Block, y: FloatArray, domain: Domain, *, loss: Loss, stacked: FloatArray, scales: FloatArray
) -> FloatArray:
    targets, margins = clipped_targets(loss, y, domain), block.margins(stacked)
    parts = np.split(margins, len(scales) + 1, axis=1)
    values = np.stack([loss.value(part, targets) for part in parts], axis=1)
    return np.asarray((values[:, :1] - values[:, 1:]) / scales)


def improvement_slack(
    domain: Domain,
    loss: Loss,
    thetas: Sequence[FloatArray],
    scales: FloatArray,
    clip: float,
    *,
    rows: float = 1.002 * ROWS_AT_MOST,
) -> float:
    """What rounding adds to the difference of two such sums over neighbours, in units of the clip.

    A product of arrays may round a record's margin by where the record stands: |δs| ≤ (d+16)·2⁻⁵³·B‖θ‖. A
    value φ ≤ φ(0) + S·B‖θ‖ then errs by S|δs| + 16K·2⁻⁵³(1 + φ), S ≥ ‖φ'‖.
    """
    d, K = thetas[0].shape
    reach = max(float(np.linalg.norm(theta)) for theta in thetas) + offset_bound(loss) / domain.x_norm
    slope = loss.gradient_bound(domain, reach) / domain.x_norm
    at_zero = 1.0 + domain.y_bound**2 + math.log(K + 1.0) * K
    value = slope * (d + 16) * domain.x_norm * reach + 16.0 * K * (at_zero + slope * domain.x_norm * reach)
    spread = math.sqrt(float(np.sum(1.0 / np.asarray(scales) ** 2)))
    return float(SUM_SLACK + 2.02 * rows * UNIT_ROUNDOFF * (2.0 * value * spread / clip + 16.0))


# Rows of arrays, memory maps and sparse matrices: mapped and clipped block by block.


# Mapped copies of at most this many bytes are kept between passes.
KEEP_BYTES = 2**30
# Fewer stored numbers than this are read faster by one thread than several can be started.
FEW_ENTRIES = 2**20


class ArrayRows(BlockRows):
    """Rows that can be sliced: blocks are made on demand, and kept between passes where that is worth it.

    An array in float64 and C order is never copied as a whole; a memory map is read again on every pass. In a
    sparse matrix, read in CSR order, an absent entry is the number 0; centring and the intercept stay
    implicit, and nothing is densified unless rounding forbids otherwise.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        rows = as_csr(X) if issparse(X) else as_features(X)
        n, p = rows.shape
        if columns is not None and p != columns.n_inputs:
            raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
        self._bound = bound_of(domain, columns)
        step = rows_per_block(p)
        if not issparse(rows):
            views = columns is None and rows.dtype == np.float64 and rows.flags.c_contiguous
            self._may_keep = not isinstance(X, np.memmap) and bool(views or 8 * rows.size <= KEEP_BYTES)
        else:
            self._may_keep = stays_sparse(p, columns, self._bound)
            if self._may_keep:  # a block adds d² numbers to a Gram matrix: many columns want longer blocks
                step = min(SPARSE_ROWS_AT_MOST, max(4096, 8 * p))
        self._X, self._y, self._columns = rows, as_targets(y, n), columns
        layout = Layout(domain, p if columns is None else columns.d, self._y.shape[1])
        few = threads is None and rows.size < FEW_ENTRIES
        super().__init__(layout, self._bound, 1 if few else threads)
        self._slices = [slice(start, start + step) for start in range(0, n, step)]
        self._kept: list[Loaded | None] = [None] * len(self._slices)

    def count(self) -> int:
        return int(self._X.shape[0])

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(self._load, index, keep and self._may_keep) for index in range(len(self._slices)))

    def _load(self, index: int, keep: bool) -> Loaded:
        loaded = self._kept[index]
        if loaded is None:
            rows = self._slices[index]
            loaded = make_block(self._X[rows], self._y[rows], self._columns, self._bound)
            if keep:
                self._kept[index] = loaded
        return loaded


# Rows that come in chunks, pass after pass: memory maps, files, cursors. Memory is constant in n.


Chunk = tuple[Any, ArrayLike]
Chunks = Callable[[], Iterable[Chunk]]


class ChunkedRows(BlockRows):
    """Rows of `chunks()`, called once per pass: an iterable of (X, y), each X an array or a sparse matrix.

    Every pass must see the same rows. Without `columns`, pass `n_features` or let the first chunk tell.
    """

    def __init__(
        self,
        chunks: Chunks,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        n_features: int | None = None,
        n_targets: int = 1,
        threads: int | None = None,
    ) -> None:
        self._chunks = chunks
        if columns is not None:
            n_features = columns.n_inputs
        elif n_features is None:
            n_features = next((X.shape[1] for X, _ in self._pass()), None)
            if n_features is None:
                raise InvalidInput("there is no chunk to tell the number of columns: pass n_features")
        bound = bound_of(domain, columns)
        layout = Layout(domain, n_features if columns is None else columns.d, n_targets)
        super().__init__(layout, bound, threads)
        self._n_features = n_features
        self._columns = columns
        self._bound = bound

    def _pass(self) -> Iterator[tuple[Any, Any]]:
        """(X, y) of every chunk; whatever the source raises is replaced, since its text may hold values."""
        source = shielded(lambda: iter(self._chunks()), _failed)
        while (chunk := shielded(lambda: _next(source), _failed)) is not None:
            yield chunk

    def count(self) -> int:
        return sum(X.shape[0] for X, _ in self._pass())

    def loads(self, keep: bool) -> Iterable[Load]:
        step = rows_per_block(self.d)
        for X, y in self._pass():
            if X.shape[1] != self._n_features or y.shape[1] != self.layout.n_targets:
                raise DataError(
                    f"every chunk must have {self._n_features} columns and {self.layout.n_targets} target(s)"
                )
            for start in range(0, X.shape[0], step):
                yield partial(self._load, X[start : start + step], y[start : start + step])

    def _load(self, X: Any, y: Any) -> Loaded:
        return make_block(X, y, self._columns, self._bound)


def _next(source: Iterator[Chunk]) -> tuple[Any, Any] | None:
    """The next chunk, checked; None at the end."""
    chunk = next(source, None)
    if chunk is None:
        return None
    X, y = chunk
    features = as_csr(X) if issparse(X) else as_features(X)
    return features, as_targets(y, features.shape[0])


def _failed(kind: str) -> str:
    return f"the source of chunks failed ({kind}); it must yield pairs (X, y) of arrays"
