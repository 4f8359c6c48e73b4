"""Rows in the partitions of Dask arrays and data frames: every reduction is a tree of tasks.

One task per partition reads and sums its records where they are. Between the passes of an iterative mechanism
workers keep the mapped records, and one task per worker goes over all that it keeps. Only sums travel, along
a tree of fixed order: a task that runs again gives the same sums. Which worker keeps which partition decides
their last bits at most, and the bounds on rounding errors hold for every order.
The noise is drawn by the mechanism, in the calling process: the engine knows nothing of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from operator import call, methodcaller
from typing import Any

import dask
import numpy as np
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.system import CPU_COUNT
from dask.task_spec import List, Task, TaskRef

from curvedp.arrays import FloatArray
from curvedp.data import graphs
from curvedp.data.frames import Table
from curvedp.data.graphs import Failure, Graph, Key, Part, never_raises
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import blocked
from curvedp.data.rows.base import FAN_IN, Layout, Parts, Reduction, Rows, Total, tree_sum
from curvedp.data.rows.blocked import KEEP_BYTES, BlockRows, Load, Loaded, Read, ordered_map
from curvedp.data.rows.blocks import as_records
from curvedp.data.rows.persons import PersonBlock
from curvedp.data.source import RowsPerPerson, Source, joined, read_persons, unit_in
from curvedp.errors import DataError
from curvedp.problems.domain import Domain

# Where Dask runs, and which worker keeps which partitions.


def shares_of_workers(kept: Stage) -> list[tuple[list[int], int]]:
    """(the partitions that a worker keeps, by their numbers in order; how many threads it has) of every
    worker, in the order of their first partitions; none where one is lost."""
    client, keys = graphs.open_client(), [source.key for source, _ in kept.sources]
    if client is None:  # tasks that Dask runs side by side in this process
        alone = get_scheduler(cls=Delayed) is dask.get
        threads = 1 if alone else int(dask.config.get("num_workers", None) or CPU_COUNT)
        return [(cut.tolist(), 1) for cut in np.array_split(range(len(keys)), min(threads, len(keys)))]
    from distributed import wait

    futures = [kept.graph[key] for key in keys]
    wait(futures)
    held, threads_of = client.who_has(futures), client.nthreads()
    shares: dict[str, tuple[list[int], int]] = {}
    for i, key in enumerate(keys):
        if (at := next((worker for worker in held.get(key, ()) if worker in threads_of), None)) is None:
            return []
        shares.setdefault(at, ([], threads_of[at]))[0].append(i)
    return [*shares.values()]


# What runs inside one partition of a Dask collection. No row is handed back, and nothing here raises: what
# goes wrong comes back as a `Failure`, one line without a value.

View = tuple[FloatArray, float | None]  # metric and bound of `in_metric`
Length = Callable[[], int] | None  # the number of rows, where the table tells it


def read_partition(
    chunks: Iterable[Table], *, layout: Layout, columns: ColumnMap | None, read: Read
) -> BlockRows:
    """The rows of the chunks of a partition, each of which becomes (X, y) by `read`."""
    if (domain := layout.domain).unit is None:
        sizes = {"n_features": layout.d, "n_targets": layout.n_targets}
        return blocked.ChunkedRows(lambda: map(read, chunks), domain, columns, **sizes, threads=1)
    records, codes = read_persons(Source((), lambda: chunks), read, domain.unit)  # of whole persons
    X, y = map(joined, zip(*records, strict=True))
    return blocked.ArrayRows(X, y, domain, columns, threads=1, codes=codes)


class KeptRows(BlockRows):
    """Blocks of records or whole persons, mapped and clipped once and held in memory between passes."""

    def __init__(self, like: BlockRows, blocks: Sequence[Loaded], numbers: int, threads: int | None) -> None:
        super().__init__(like.layout, like.magnitude, threads, like.persons)
        self.blocks = blocks
        self.numbers = numbers  # of a record that are held here and nowhere else

    def count(self) -> int:
        return int(sum(_units(*pair)[0] for pair in self.blocks))

    def loads(self, keep: bool) -> Iterable[Load]:
        return (partial(tuple, pair) for pair in self.blocks)

    def __sizeof__(self) -> int:
        """What an engine that moves or spills data must reckon with."""
        return 8 * sum(len(y) for _, y in self.blocks) * self.numbers


def keep(rows: BlockRows) -> KeptRows:
    """The records of `rows`; a view shares the rows themselves."""
    numbers = 2 + rows.layout.n_targets + (0 if isinstance(rows, blocked.MetricRows) else rows.d)
    return KeptRows(rows, [*ordered_map(call, rows.loads(keep=False), rows.threads)], numbers, rows.threads)


@never_raises
def gather(threads: int, parts: Sequence[Any]) -> KeptRows | Failure:
    """What a worker keeps of several partitions as one, in order, for its threads; nothing is copied."""
    return graphs.first_failure(parts) or KeptRows(
        parts[0], [pair for part in parts for pair in part.blocks], parts[0].numbers, threads
    )


@never_raises
def join(totals: Sequence[Total | Failure | None]) -> Total | Failure | None:
    """Σ totals in their order; the first failure if there is one; None of partitions without records."""
    return graphs.first_failure(totals) or tree_sum(total for total in totals if isinstance(total, Total))


KEEP_SHARE = 0.5  # of a cluster's memory, for mapped records between passes


class DaskRows(Rows):
    """Records in the partitions of a Dask table, or a view of such rows.

    Nothing is computed until a sum is asked for. Sums run where Dask would run them: on threads of this
    process, or on the cluster of an open `distributed.Client`. Between the passes of an iterative mechanism
    the mapped records are kept if they fit (1 GiB here, half of a cluster's memory); if they do not, every
    pass reads the source again.
    """

    def __init__(
        self, layout: Layout, magnitude: float, origin: Stage | DaskRows, *views: View, length: Length = None
    ) -> None:
        super().__init__(layout, magnitude, layout.domain.unit is not None)
        self._origin, self._views = origin, views
        self._length = length
        self._may_keep = True
        self._kept: Stage | None = None

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> DaskRows:
        """The lengths are computed in the partitions, once where records are kept."""
        blocked.check_metric(metric, bound, self.d)
        view = (np.ascontiguousarray(metric, dtype=np.float64), bound)
        rows = DaskRows(self.layout, self.magnitude, self, view)
        rows.bound = bound
        return rows

    def count(self) -> int:
        """n; a pass of its own where the collection does not know it. Persons are kept, and counted there."""
        return self._origin.count() if isinstance(self._origin, DaskRows) else self._counted

    @cached_property
    def _counted(self) -> int:
        if self._length is not None and not self.persons:
            return self._length()
        total = self.total(_units, keep=self.persons)
        return 0 if total is None else int(total.parts[0])

    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        """Σ reduction(block, y) over all partitions; read again from the source if kept records were lost."""
        result = self.stage(keep).sum(reduction)
        if isinstance(result, Failure) and self._forget():
            result = self.stage(keep=False).sum(reduction)
        if isinstance(result, Failure):
            raise DataError(f"{result.reason}. Nothing was released; the charge stands")
        return result

    def stage(self, keep: bool) -> Stage:
        """The start of a pass; with `keep`, which says that more will follow, at kept records if they fit."""
        if self._kept is not None:
            return self._kept
        if isinstance(stage := self._origin, DaskRows):
            stage = stage.stage(keep)
            stage = replace(stage, views=(*stage.views, *self._views))
        if keep and self._fits():
            self._kept = stage = stage.kept()
        return stage

    def _fits(self) -> bool:
        """Whether the mapped records may be kept: each with its norm, its factor and its targets."""
        if isinstance(self._origin, DaskRows):
            return self._origin._fits()
        room = room_for_rows() if self._may_keep else 0.0
        if room > 0:
            with suppress(DataError):  # of a table that cannot be counted; the pass says why
                length = self.count() if self._length is None else self._length()
                return 8 * length * (self.d + 2 + self.layout.n_targets) <= room
        return False

    def _forget(self) -> bool:
        """Read the source on every pass from now on; False if that was so before."""
        kept, self._kept, self._may_keep = self._kept, None, False
        return self._origin._forget() if isinstance(self._origin, DaskRows) else kept is not None


def lazy_rows(
    found: Source, read: Read, domain: Domain, columns: ColumnMap | None, rows_per_person: RowsPerPerson
) -> Rows:
    """The rows of a Dask table; in a domain with a unit those of persons, who meet in partitions first."""
    X, y = [as_records(*read(head), columns) for head in found.heads][-1]  # refuses by declared types
    layout = Layout(domain, X.shape[1] if columns is None else columns.d, y.shape[1])
    unit, parts, length = domain.unit, found.partitions, found.count
    assert parts is not None
    if unit is not None:
        length = cache(found.rows)  # a pass where no file declares it
        if rows_per_person == "one":
            parts = found.of_persons(unit, "one").partitions
        else:
            parts = graphs.whole_persons(*parts, partial(unit_in, unit=unit), found.heads)
        assert parts is not None
    opened = partial(read_partition, layout=layout, columns=columns, read=read)
    return DaskRows(layout, blocked.bound_of(domain, columns), Stage(opened, *parts), length=length)


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """Where a pass starts: a graph, the source of each partition in it, and views still to be taken of it."""

    opened: Callable[[Any], BlockRows]  # the rows of the chunks of a partition
    graph: Graph
    sources: Sequence[Part]
    views: tuple[View, ...] = ()
    gathered: bool = False  # a source is all that one worker keeps

    def sum(self, reduction: Reduction) -> Total | Failure | None:
        """The sum over all partitions, along a tree in their order."""
        name, graph, keys = self._tasks(methodcaller("total", reduction, keep=False))
        level = 0
        while len(keys) > 1:
            level += 1
            groups = [keys[i : i + FAN_IN] for i in range(0, len(keys), FAN_IN)]
            keys = [(name, level, i) for i in range(len(groups))]
            for key, group in zip(keys, groups, strict=True):
                graph[key] = Task(key, join, List(*map(TaskRef, group)))
        try:
            with blocked.blas().limit(limits=1):
                return graphs.handed_over(name, graph, keys)[0].compute()  # type: ignore[no-any-return]
        except Exception as error:  # from the engine, or from a task that several partitions need
            return _engine_failure(error)

    def kept(self) -> Stage:
        """The same records, mapped and persisted where the engine keeps its results: one source for each
        worker, or for each partition where the engine has lost some already."""
        try:
            with blocked.blas().limit(limits=1):
                kept = self._persisted(*self._tasks(keep))
                shares = [] if self.gathered else shares_of_workers(kept)
                if not shares:
                    return kept
                name = f"curvedp-{uuid.uuid4().hex}"
                graph, keys = dict(kept.graph), [(name, i) for i in range(len(shares))]
                for key, (partitions, threads) in zip(keys, shares, strict=True):
                    graph[key] = Task(key, gather, threads, List(*(kept.sources[i][0] for i in partitions)))
                return replace(self._persisted(name, graph, keys), gathered=True)
        except Exception as error:
            return replace(self, graph={}, sources=[(_engine_failure(error), List()) for _ in self.sources])

    def _tasks(self, work: Callable[[BlockRows], Any]) -> tuple[str, Graph, list[Key]]:
        """One task per source, which does its work on the rows there: of its chunks, or what is kept."""
        opened, views = self.opened, self.views

        def asked(part: Any) -> Any:
            rows = part if isinstance(part, BlockRows) else opened(part)
            for metric, bound in views:
                rows = rows.in_metric(metric, bound)
            return work(rows)

        return graphs.tasks(self.graph, self.sources, asked, "share" if self.gathered else "partition")

    def _persisted(self, name: str, graph: Graph, keys: Sequence[Key]) -> Stage:
        """At the results of these tasks, held by the engine."""
        parts = dask.persist(*graphs.handed_over(name, graph, keys))
        merged = {key: node for part in parts for key, node in part.__dask_graph__().items()}
        return replace(self, graph=merged, sources=[(TaskRef(key), List()) for key in keys], views=())


def _engine_failure(error: Exception) -> Failure:
    """One line for an error of the engine; its own text may hold values."""
    if (kind := type(error).__name__) == "KilledWorker":
        return Failure(
            "workers died again and again on one partition: give them more memory, or pass smaller ones"
        )
    return Failure(
        f"the engine could not finish a pass ({kind}): check that the source can be read to its end and that "
        "the cluster is up"
    )


def _units(block: Any, y: FloatArray) -> Parts:
    """The number of records, or of persons."""
    return (np.asarray(float(block.size if isinstance(block, PersonBlock) else len(y))),)


def room_for_rows() -> float:
    """Bytes of mapped records that may be kept where the engine keeps its results; 0: nowhere."""
    if get_scheduler(cls=Delayed) in (dask.threaded.get, dask.get):
        return float(KEEP_BYTES)
    if (client := graphs.open_client()) is None:  # processes would hand the records back to this one
        return 0.0
    workers = client.scheduler_info()["workers"].values()
    return KEEP_SHARE * sum(worker["memory_limit"] or KEEP_BYTES for worker in workers)
