"""Rows as blocks of records: in memory, in chunks, and those of a table of any container."""

from __future__ import annotations

import math
import os
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice, starmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from threadpoolctl import ThreadpoolController

from curvedp.arrays import UNIT_ROUNDOFF, ColumnLike, FloatArray
from curvedp.data.cells import Cells, check_numbers
from curvedp.data.frames import Table, as_cells, declared, is_table, table_of
from curvedp.data.mapping import ColumnMap, clip_factors
from curvedp.data.roles import ClassWeight, KnownMargin, Weight
from curvedp.data.rows import base, blocks, persons
from curvedp.data.rows.base import SUM_SLACK, Layout, Reduction, Rows, Total, rows_per_block, tree_sum
from curvedp.data.rows.blocks import Block, as_records, make_block
from curvedp.data.schema import Schema
from curvedp.data.source import RowsPerPerson, Source, guarded, joined, read_persons, source
from curvedp.data.targets import Coded, Target
from curvedp.errors import DataError, InvalidInput, shielded
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss
from curvedp.problems.losses.several import Offset, Weighted, clipped_targets, offset_bound

# One pass over blocks: Python threads over blocks, BLAS at one thread in each, results in order.

Item = TypeVar("Item")
Result = TypeVar("Result")


@cache
def blas() -> ThreadpoolController:
    """In the context `blas().limit(limits=1)` it runs at one thread: parallelism is over blocks."""
    return ThreadpoolController().select(user_api="blas")


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
    with blas().limit(limits=1):
        if threads == 1 or len(first) < 2:
            yield from map(function, chain(first, items))
            return
        with ThreadPoolExecutor(threads) as pool:
            pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in first)
            for item in items:
                if len(pending) >= 2 * threads:
                    yield pending.popleft().result()
                pending.append(pool.submit(function, item))
            while pending:
                yield pending.popleft().result()


Loaded = tuple[Any, FloatArray]  # a `Block` or, of whole persons, a `PersonBlock`; targets (n, T)
Load = Callable[[], Loaded]
Read = Callable[[Table], tuple[Any, Any]]  # the records (X, y) of a chunk
# A metric A, its triangle, and ‖A x_i‖ of every record, block by block: eight bytes a record.
Lengths = tuple[FloatArray, FloatArray, dict[int, FloatArray]]


def bound_of(domain: Domain, columns: ColumnMap | None) -> float:
    """B: every record has ‖x‖ ≤ B."""
    return domain.x_norm if columns is None else min(domain.x_norm, columns.norm_bound)


class BlockRows(Rows):
    """Rows whose blocks this process can make."""

    def __init__(self, layout: Layout, magnitude: float, threads: int | None, persons: bool = False) -> None:
        super().__init__(layout, magnitude, persons)
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
            self._lengths = np.array(metric, dtype=np.float64), blocks.triangle_of(metric), {}
        return MetricRows(self, self._lengths, bound)


def contribution(reduction: Reduction, load: Load) -> Total:
    """What one block adds to a sum."""
    block, y = load()
    return Total(reduction(block, y), block.additions)


class MetricRows(BlockRows):
    """The records of `rows` in a metric, as `Rows.in_metric` says."""

    def __init__(self, rows: BlockRows, lengths: Lengths, bound: float | None) -> None:
        super().__init__(rows.layout, rows.magnitude, rows.threads, rows.persons)
        self._rows, self.bound = rows, bound
        _, self._triangle, self._norms = lengths  # measured once, and shared by views with other bounds

    def count(self) -> int:
        return self._rows.count()

    def loads(self, keep: bool) -> Iterable[Load]:
        for index, load in enumerate(self._rows.loads(keep)):
            yield partial(self._load, index, load)

    def _load(self, index: int, load: Load) -> Loaded:
        block, y = load()
        if self.persons:  # lengths are of persons, and of weights: reductions measure them
            return replace(block, triangle=self._triangle, bound=self.bound), y
        norms, factors = self._norms.get(index), None
        if norms is None:
            norms = self._norms[index] = block.lengths(self._triangle)
        weights = base.masses(y, self.layout.domain)
        if self.bound is not None and weights is None:
            norms, factors = clip_factors(norms, self.bound, 0)
        elif self.bound is not None and weights is not None:
            _, factors = clip_factors(np.sqrt(weights) * norms, self.bound, 8)
            norms = norms if factors is None else factors * norms
        return block.rescaled(factors, norms), y


def check_metric(metric: FloatArray, bound: float | None, d: int) -> None:
    """Refuse what is no metric on R^d, or no bound of a length."""
    if metric.ndim != 2 or metric.shape[1] != d:
        raise InvalidInput(f"metric must be a matrix with {d} columns, got shape {metric.shape}")
    if bound is not None and not bound > 0:
        raise InvalidInput(f"bound must be a positive number or None, got {bound!r}")


# How much better some θ fit than a reference, record by record: clipped sums, and what rounding adds.


def improvement_sum(
    rows: Rows, loss: Loss, first: FloatArray, thetas: Sequence[FloatArray], scales: FloatArray, clip: float
) -> FloatArray:
    """Σ_i clip_c(v_i), v_ij = (φ(θ_firstᵀx_i; y_i) − φ(θ_jᵀx_i; y_i))/scale_j, Euclidean clip per record."""
    stacked = np.hstack([first, *thetas])

    def improvements(block: Block, y: FloatArray, domain: Domain) -> FloatArray:
        targets = clipped_targets(loss, y, domain)
        parts = np.split(block.margins(stacked), len(thetas) + 1, axis=1)
        values = np.stack([loss.value(part, targets) for part in parts], axis=1)
        return np.asarray((values[:, :1] - values[:, 1:]) / np.asarray(scales))

    return rows.vector_sum(improvements, len(thetas), clip)


def improvement_slack(
    domain: Domain,
    loss: Loss,
    thetas: Sequence[FloatArray],
    scales: FloatArray,
    clip: float,
    *,
    rows: float = base.RECORDS,
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
    With `codes` row r belongs to the person codes[r], to nobody where that is negative: then it is left out.
    Rows are put in the order of their persons, and blocks hold whole ones.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        domain: Domain,
        columns: ColumnMap | None = None,
        *,
        threads: int | None = None,
        codes: NDArray[np.int64] | None = None,
    ) -> None:
        rows, self._y = as_records(X, y, columns)
        n, p = rows.shape
        bound, step = bound_of(domain, columns), rows_per_block(p)
        self._starts: NDArray[np.int64] | None = None  # the first row of each person, and the number of rows
        if codes is not None:
            if len(codes) != n:
                raise DataError("unit must have one entry per row of X")
            order, self._starts = persons.by_person(codes)
            rows, self._y = persons.gathered(rows, order), persons.gathered(self._y, order)
            self._may_keep = 8 * len(order) * p <= KEEP_BYTES
        elif not issparse(rows):
            views = columns is None and rows.dtype == np.float64 and rows.flags.c_contiguous
            self._may_keep = not isinstance(X, np.memmap) and bool(views or 8 * rows.size <= KEEP_BYTES)
        else:
            self._may_keep = blocks.stays_sparse(p, columns, bound)
            if self._may_keep:  # a block adds d² numbers to a Gram matrix: many columns want longer blocks
                step = min(blocks.SPARSE_ROWS_AT_MOST, max(4096, 8 * p))
        self._X, self._columns = rows, columns
        layout = Layout(domain, p if columns is None else columns.d, self._y.shape[1])
        few = threads is None and rows.size < FEW_ENTRIES
        super().__init__(layout, bound, 1 if few else threads, codes is not None)
        if self._starts is None:
            self._slices = [slice(start, start + step) for start in range(0, n, step)]
        else:
            self._slices = persons.cut(self._starts, step)
        self._kept: list[Loaded | None] = [None] * len(self._slices)

    def count(self) -> int:
        return int(self._X.shape[0]) if self._starts is None else len(self._starts) - 1

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(self._load, index, keep and self._may_keep) for index in range(len(self._slices)))

    def _load(self, index: int, keep: bool) -> Loaded:
        loaded, units, columns = self._kept[index], self._slices[index], self._columns
        if loaded is not None:
            return loaded
        if self._starts is None:
            loaded = make_block(self._X[units], self._y[units], columns, self.magnitude)
        else:
            starts = self._starts[units.start : units.stop + 1]
            rows = slice(int(starts[0]), int(starts[-1]))
            X = self._X[rows].toarray() if issparse(self._X) else np.asarray(self._X[rows])
            y, domain = np.asarray(self._y[rows], dtype=np.float64), self.layout.domain
            loaded = persons.person_block(X, y, starts - starts[0], columns, self.magnitude, domain)
        if keep:
            self._kept[index] = loaded
        return loaded


class ChunkedRows(BlockRows):
    """Rows of `chunks()`, called once per pass: an iterable of (X, y), each X an array or a sparse matrix.

    Every pass must see the same rows. Without `columns`, pass `n_features` or let the first chunk tell.
    Memory is constant in the number of chunks: they may come from memory maps, files, cursors.
    """

    def __init__(
        self,
        chunks: Callable[[], Iterable[tuple[Any, ArrayLike]]],
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
        layout = Layout(domain, n_features if columns is None else columns.d, n_targets)
        super().__init__(layout, bound_of(domain, columns), threads)
        self._n_features, self._columns = n_features, columns

    def _pass(self) -> Iterator[tuple[Any, Any]]:
        """(X, y) of every chunk; whatever the source raises is replaced, since its text may hold values."""
        failed = "the source of chunks failed ({}); it must yield pairs (X, y) of arrays".format
        return guarded(lambda: starmap(as_records, self._chunks()), failed)

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
                rows = slice(start, start + step)
                yield partial(make_block, X[rows], y[rows], self._columns, self.magnitude)


# The rows of a table of any container.


def make_rows(X: Any, y: Any, domain: Domain, columns: ColumnMap | None = None, unit: Any = None) -> Rows:
    """The `Rows` for an array, a memory map, a sparse matrix or a Dask collection X.

    Records are mapped by `columns` and clipped into `domain`. Nothing is said of a value that cannot be read.
    In a domain with a unit, `unit` has an identifier for every row: sums are over persons (U-1).
    """
    if (unit is None) != (domain.unit is None):
        raise InvalidInput(
            "pass unit, an identifier for every row, where the domain declares one, and only there"
        )
    if columns is not None and columns.absorbed != domain.absorbed:
        raise InvalidInput("effects are absorbed by columns and domain alike: pass Domain(absorbed=...)")
    table = shielded(lambda: np.array(X, dtype=object), _unreadable) if isinstance(X, list | tuple) else X
    names, width = shielded(lambda: declared(table), _unreadable)
    named = names or tuple(f"x{j}" for j in range(width or 0))
    found = source(table, named, beside={"y": y, "unit": unit})
    if found.partitions is not None:
        require_numbers(found.heads[0])
    return rows_of(found, partial(plain_records, names=named), domain, columns)


def rows_of(
    found: Source,
    read: Read,
    domain: Domain,
    columns: ColumnMap | None = None,
    rows_per_person: RowsPerPerson = "all",
) -> Rows:
    """The `Rows` of a table, each chunk of which becomes records (X, y) by `read`; Dask keeps its own."""
    if found.partitions is None:
        parts, codes = read_persons(found, read, domain.unit, rows_per_person)
        X, y = map(joined, zip(*parts, strict=True))
        return shielded(lambda: ArrayRows(X, y, domain, columns, codes=codes), _unreadable)
    from curvedp.data.rows.dask import lazy_rows

    return shielded(lambda: lazy_rows(found, read, domain, columns, rows_per_person), _unreadable)


def _unreadable(kind: str) -> str:
    return f"X and y cannot be read ({kind}): pass an array, a sparse matrix or a Dask collection of numbers"


# Chunks of a table as records (X, y), and what is read beside: weights, and what of a margin is known.

CodedColumn = tuple[str, Coded, str | None]  # its role beside a table, its coding, its name within one
Passed = Mapping[str, ColumnLike]  # columns beside the table, by "weight" and "offset"; else the schema's


@dataclass(frozen=True)
class Beside:
    """How weights and the known part of the margin are coded; None where there are none. Public."""

    weight: Weight | ClassWeight | None = None
    offset: KnownMargin | None = None

    @classmethod
    def declared(cls, schema: Schema, passed: Passed, weight_max: float | None) -> Beside:
        """Of the schema's columns, or of those that are passed; what is undeclared is refused."""
        if (weight := schema.declared_weight) is not None and weight_max is not None:
            raise InvalidInput(
                f"the bounds of {schema.weight!r} declare the largest weight: leave weight_max out"
            )
        if passed.get("weight") is not None:
            if weight is not None:
                raise InvalidInput(
                    f"the schema declares the weight {schema.weight!r}: leave sample_weight out"
                )
            if weight_max is None:
                raise InvalidInput(
                    "pass weight_max=, the largest weight, a public constant: nobody could say otherwise how "
                    "much one record may count"
                )
            weight = Weight(weight_max)
        return cls(weight, schema.declared_offset)

    def loss(self, inner: Loss) -> Loss:
        """The loss of records with this weight and this offset."""
        shifted = inner if self.offset is None else Offset(inner, self.offset.bound)
        return shifted if self.weight is None else Weighted(shifted)

    def coded(self, schema: Schema, target: Target) -> list[CodedColumn]:
        """What a fit reads beside the features: the target, the offset, the weight."""
        coded: list[CodedColumn] = [("y", target, None)]
        if self.offset is not None:
            coded.append(("offset", self.offset, schema.offset_column))
        if isinstance(self.weight, ClassWeight):
            coded.append(("y", self.weight, None))
        elif self.weight is not None:
            coded.append(("weight", self.weight, schema.weight))
        return coded


def read_records(chunk: Table, *, schema: Schema, coded: Sequence[CodedColumn]) -> tuple[Any, Any]:
    """The records of a chunk: features as the schema encodes them, and coded columns side by side. A column
    is what was passed beside the table in its role, else the table's own; the target has no name."""
    columns = []
    for role, coding, name in coded:
        if (own := chunk.beside.get(role)) is None:
            own = schema.target_in(chunk) if name is None else chunk.cells(name)
        columns.append(coding.encode(own))
    return schema.matrix(chunk), columns[0] if len(columns) == 1 else np.column_stack(columns)


def plain_records(chunk: Table, *, names: tuple[str, ...]) -> tuple[Any, Any]:
    """The same of a table without a schema, whose columns these are: every cell is a number, NaN where it is
    none. Numbers in an array are passed on."""
    X, y = chunk.matrix, chunk.beside.get("y")
    if X is None and tuple(chunk.columns) != names:
        for position, name in enumerate(names, start=1):  # a name may be a cell of a file without header
            if name not in chunk:
                raise DataError(f"column {position} of those that the data frame declares is not there")
        raise DataError("its columns are not those of the data frame, in their order")
    if y is None:
        raise InvalidInput("pass y, a target for each row of X")
    if X is None:
        X = _side_by_side([chunk.cells(name) for name in names])
    if not isinstance(y, np.ndarray):
        y = _side_by_side(_targets(y))
    return as_records(X, y)


def _targets(y: Any) -> list[Cells]:
    """Of an array of two dimensions or a data frame; anything else is one column, whatever its cells are."""
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return [*map(as_cells, y.T)]
    return [*map(as_cells, table_of(y).columns.values())] if is_table(y) else [as_cells(y)]


def _side_by_side(columns: Sequence[Cells]) -> FloatArray:
    for position, own in enumerate(columns, start=1):
        check_numbers(own.kind, f"column {position}")
    return np.column_stack([own.numbers() for own in columns])


def require_numbers(head: Table) -> None:
    """Refuse, by declared types, a table that does not hold numbers."""
    for position, name in enumerate(head.columns, start=1):
        dtype = str(getattr(head.columns[name].to_native(), "dtype", None))
        if head.cells(name).kind != "numbers" and dtype != "object":
            raise DataError(
                f"column {position} of X does not hold numbers by its type: read it through a schema, or "
                "leave it out"
            )
    if head.matrix is not None and head.matrix.dtype.kind not in "fiub":
        raise DataError(blocks.NOT_NUMBERS)
    if any(own.kind != "numbers" for own in _targets(head.beside.get("y", np.empty(0)))):
        raise DataError(blocks.NO_NUMBERS)
