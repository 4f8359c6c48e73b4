"""What runs inside one partition of a Dask collection. Nothing here raises, and no row is handed back.

A task reads, maps, clips and sums the records of its partition where they are. Whatever goes wrong comes back
as a `Failure`, one line without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.rows.blocked import BlockRows, Load, Loaded, MetricRows, Reduction, contribution
from curvedp.rows.chunked import ChunkedRows
from curvedp.rows.passes import Result, ordered_map
from curvedp.rows.sums import Total, tree_sum
from curvedp.schema.frames import Table
from curvedp.schema.graphs import Failure, Packed, never_raises, without_raising

View = tuple[FloatArray, float | None]  # metric and bound of `in_metric`


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """What is asked of every partition: public, and the same for all of them."""

    domain: Domain
    columns: ColumnMap | None
    n_features: int
    n_targets: int
    read: Callable[[Table], tuple[Any, Any]]
    work: Callable[[BlockRows], Any]
    views: tuple[View, ...] = ()


def _rows(job: Job, chunks: Iterable[Table]) -> BlockRows:
    return ChunkedRows(
        lambda: map(job.read, chunks),
        job.domain,
        job.columns,
        n_features=job.n_features,
        n_targets=job.n_targets,
        threads=1,
    )


class KeptRows(BlockRows):
    """Blocks of records, mapped and clipped once and held in memory between passes."""

    def __init__(self, like: BlockRows, blocks: Sequence[Loaded], numbers: int, threads: int | None) -> None:
        super().__init__(like.layout, like.magnitude, threads)
        self._blocks = blocks
        self.numbers = numbers  # of a record that are held here and nowhere else

    @property
    def blocks(self) -> Sequence[Loaded]:
        return self._blocks

    def count(self) -> int:
        return sum(len(y) for _, y in self._blocks)

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(_same, pair) for pair in self._blocks)

    def __sizeof__(self) -> int:
        """What an engine that moves or spills data must reckon with."""
        return 8 * self.count() * self.numbers


def keep(rows: BlockRows) -> KeptRows:
    """The records of `rows`; a view shares the rows themselves."""
    numbers = 2 + rows.layout.n_targets + (0 if isinstance(rows, MetricRows) else rows.d)
    return KeptRows(rows, [*over(rows, _loaded)], numbers, rows.threads)


@never_raises
def gather(threads: int, parts: Sequence[KeptRows | Failure]) -> KeptRows | Failure:
    """What a worker keeps of several partitions as one, in order, for its threads; nothing is copied."""
    for part in parts:
        if isinstance(part, Failure):
            return part
    kept = [part for part in parts if isinstance(part, KeptRows)]
    return KeptRows(kept[0], [pair for part in kept for pair in part.blocks], kept[0].numbers, threads)


def over(rows: BlockRows, work: Callable[[Load], Result]) -> Iterable[Result]:
    """`work` on every block, in order: in this thread where the engine runs partitions side by side."""
    loads = rows.loads(keep=False)
    return map(work, loads) if rows.threads == 1 else ordered_map(work, loads, rows.threads)


def _loaded(load: Load) -> Loaded:
    return load()


def _same(pair: Loaded) -> Loaded:
    return pair


def kept_bytes(n: int, d: int, n_targets: int) -> int:
    """Memory of n kept records: the mapped row, its norm, its factor and its targets."""
    return 8 * n * (d + 2 + n_targets)


def add_up(reduction: Reduction, rows: BlockRows) -> Total | None:
    """Σ reduction(block, y) over one partition, or over all that one worker keeps."""
    return tree_sum(over(rows, partial(contribution, reduction)))


@never_raises
def attempt(packed: Packed, label: str, source: Packed | KeptRows | Failure, inputs: Sequence[Any]) -> Any:
    """job.work on the rows of one partition, or the failure of this or of an earlier attempt."""
    if isinstance(source, Failure):
        return source

    def work() -> Any:
        job: Job = packed.unpack()
        rows = _rows(job, source.unpack()(inputs)) if isinstance(source, Packed) else source
        for metric, bound in job.views:
            rows = rows.in_metric(metric, bound)
        return job.work(rows)

    return without_raising(work, label, inputs)


@never_raises
def join(totals: Sequence[Total | Failure | None]) -> Total | Failure | None:
    """Σ totals in their order; the first failure if there is one; None of partitions without records."""
    for total in totals:
        if isinstance(total, Failure):
            return total
    return tree_sum(total for total in totals if isinstance(total, Total))
