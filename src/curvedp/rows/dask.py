"""Rows in the partitions of Dask arrays and data frames: every reduction is a tree of tasks.

One task per partition reads and sums its records where they are. Between the passes of an iterative mechanism
workers keep the mapped records, and one task per worker goes over all that it keeps. Only sums travel, along
a tree of fixed order: a task that runs again gives the same sums. Which worker keeps which partition decides
their last bits at most, and the bounds on rounding errors hold for every order.
The noise is drawn by the mechanism, in the calling process: the engine knows nothing of it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import dask
import numpy as np
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.task_spec import DataNode, List, Task, TaskRef

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import DataError
from curvedp.rows.aligned import aligned, declared
from curvedp.rows.base import Layout
from curvedp.rows.blocked import Reduction, SummedRows, bound_of, check_metric
from curvedp.rows.blocks import Block
from curvedp.rows.dense import KEEP_BYTES
from curvedp.rows.graphs import Graph, Key, handed_over, partitions
from curvedp.rows.partitions import (
    Failure,
    Job,
    Packed,
    View,
    add_up,
    attempt,
    gather,
    join,
    keep,
    kept_bytes,
)
from curvedp.rows.passes import one_blas_thread
from curvedp.rows.sums import FAN_IN, Parts, Total
from curvedp.rows.workers import open_client, shares_of_workers

KEEP_SHARE = 0.5  # of a cluster's memory, for mapped records between passes


class Passes(Protocol):
    """Where the passes over some records start."""

    @property
    def job(self) -> Job: ...

    def stage(self, keep: bool) -> Stage:
        """The start of a pass; with `keep`, which says that more will follow, at kept records if they fit."""
        ...

    def count(self) -> int:
        """n; a pass of its own where the collection does not know it."""
        ...

    def fits(self) -> bool:
        """Whether the mapped records may be kept."""
        ...

    def forget(self) -> bool:
        """Read the source on every pass from now on; False if that was so before."""
        ...


class PassedRows(SummedRows):
    """Rows whose reductions are passes of the engine."""

    def __init__(self, layout: Layout, magnitude: float, passes: Passes) -> None:
        super().__init__(layout, magnitude)
        self.passes = passes

    def count(self) -> int:
        return self.passes.count()

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> PassedRows:
        """The lengths are computed in the partitions."""
        check_metric(metric, bound, self.d)
        view = (np.ascontiguousarray(metric, dtype=np.float64), bound)
        return PassedRows(self.layout, self.magnitude, ViewPasses(self.passes, view))

    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        return total_of(self.passes, reduction, keep)


class DaskRows(PassedRows):
    """Rows of a Dask array or data frame X, and of y in the same partitions; their lengths may be unknown.

    Nothing is computed until a reduction is asked for. Reductions run where Dask would run them: on threads
    of this process, or on the cluster of an open `distributed.Client`. Between the passes of an iterative
    mechanism the mapped records are kept if they fit (1 GiB here, half of a cluster's memory); if they do
    not, every pass reads the source again.
    """

    def __init__(self, X: Any, y: Any, domain: Domain, columns: ColumnMap | None = None) -> None:
        _, p = declared(X)
        if columns is not None and p != columns.n_inputs:
            raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
        X, y = aligned(X, y)
        layout = Layout(domain, p if columns is None else columns.d, 1 if y.ndim == 1 else int(y.shape[1]))
        job = Job(domain, columns, p, layout.n_targets, views=(), work=keep)
        count = None if math.isnan(X.shape[0]) else int(X.shape[0])
        passes = SourcePasses(job, Stage(*partitions(X, y)), layout, count)
        super().__init__(layout, bound_of(domain, columns), passes)


def total_of(passes: Passes, reduction: Reduction, keep: bool) -> Total | None:
    """Σ reduction(block, y) over all partitions; read again from the source if kept records were lost."""
    work = partial(add_up, reduction)
    result = passes.stage(keep).sum(work, passes.job)
    if isinstance(result, Failure) and passes.forget():
        result = passes.stage(keep=False).sum(work, passes.job)
    if isinstance(result, Failure):
        raise DataError(f"{result.reason}. Nothing was released; the charge stands")
    return result


class SourcePasses:
    """Passes that start at the source, or at its mapped records where they are kept."""

    def __init__(self, job: Job, source: Stage, layout: Layout, count: int | None) -> None:
        self.job = job
        self._source = source
        self._layout = layout
        self._count = count
        self._may_keep = True
        self._kept: Stage | None = None

    def count(self) -> int:
        if self._count is None:
            total = total_of(self, _records, keep=False)
            self._count = 0 if total is None else int(total.parts[0])
        return self._count

    def stage(self, keep: bool) -> Stage:
        if self._kept is None and keep and self.fits():
            self._kept = self._source.kept(self.job)
        return self._kept or self._source

    def fits(self) -> bool:
        room = room_for_rows() if self._may_keep else 0.0
        return room > 0 and kept_bytes(self.count(), self._layout.d, self._layout.n_targets) <= room

    def forget(self) -> bool:
        kept, self._kept, self._may_keep = self._kept, None, False
        return kept is not None


class ViewPasses:
    """Passes over other passes' records, seen in a metric: measured once where they are kept."""

    def __init__(self, passes: Passes, view: View) -> None:
        self._passes = passes
        self._view = view
        self._kept: Stage | None = None

    @property
    def job(self) -> Job:
        return self._passes.job

    def count(self) -> int:
        return self._passes.count()

    def stage(self, keep: bool) -> Stage:
        if self._kept is not None:
            return self._kept
        stage = self._passes.stage(keep)
        seen = replace(stage, views=(*stage.views, self._view))
        if keep and self.fits():
            self._kept = seen = seen.kept(self.job)
        return seen

    def fits(self) -> bool:
        return self._passes.fits()

    def forget(self) -> bool:
        self._kept = None
        return self._passes.forget()


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """Where a pass starts: a graph, the source of each partition in it, and views still to be taken of it."""

    graph: Graph
    sources: Sequence[tuple[Any, List]]  # a packed Subgraph or a reference to kept rows, with its inputs
    views: tuple[View, ...] = ()
    gathered: bool = False  # a source is all that one worker keeps

    def sum(self, work: Any, job: Job) -> Total | Failure | None:
        """The sum over all partitions, along a tree in their order."""
        name, graph, keys = self._tasks(replace(job, views=self.views, work=work))
        level = 0
        while len(keys) > 1:
            level += 1
            groups = [keys[i : i + FAN_IN] for i in range(0, len(keys), FAN_IN)]
            keys = [(name, level, i) for i in range(len(groups))]
            for key, group in zip(keys, groups, strict=True):
                graph[key] = Task(key, join, List(*map(TaskRef, group)))
        try:
            with one_blas_thread():
                return handed_over(name, graph, keys)[0].compute()  # type: ignore[no-any-return]
        except Exception as error:  # from the engine, or from a task that several partitions need
            return _engine_failure(error)

    def kept(self, job: Job) -> Stage:
        """The same records, mapped and persisted where the engine keeps its results."""
        name, graph, keys = self._tasks(replace(job, views=self.views, work=keep))
        try:
            with one_blas_thread():
                kept = _persisted(name, graph, keys)
                return replace(kept, gathered=True) if self.gathered else kept.by_worker()
        except Exception as error:
            failure = _engine_failure(error)
            return Stage({}, [(failure, List()) for _ in keys])

    def by_worker(self) -> Stage:
        """Kept records, one source for each worker; as they are where the engine has lost some already."""
        shares = shares_of_workers([source.key for source, _ in self.sources], self.graph)
        if not shares:
            return self
        name = f"curvedp-{uuid.uuid4().hex}"
        graph, keys = dict(self.graph), [(name, i) for i in range(len(shares))]
        for key, share in zip(keys, shares, strict=True):
            parts = List(*(self.sources[i][0] for i in share.partitions))
            graph[key] = Task(key, gather, share.threads, parts)
        return replace(_persisted(name, graph, keys), gathered=True)

    def _tasks(self, job: Job) -> tuple[str, Graph, list[Key]]:
        """(name, graph, keys): one task per partition; the job is one node that all of them need."""
        name = f"curvedp-{uuid.uuid4().hex}"  # two clients of one cluster must never share a key
        graph = {**self.graph, name: DataNode(name, Packed(job))}
        keys = [(name, 0, i) for i in range(len(self.sources))]
        for i, (key, (source, inputs)) in enumerate(zip(keys, self.sources, strict=True), start=1):
            label = f"{'share' if self.gathered else 'partition'} {i} of {len(keys)}"
            graph[key] = Task(key, attempt, TaskRef(name), label, source, inputs)
        return name, graph, keys


def _persisted(name: str, graph: Graph, keys: Sequence[Key]) -> Stage:
    """The results of these tasks, held by the engine."""
    merged: Graph = {}
    for part in dask.persist(*handed_over(name, graph, keys)):
        merged.update(part.__dask_graph__())
    return Stage(merged, [(TaskRef(key), List()) for key in keys])


def _engine_failure(error: Exception) -> Failure:
    """One line for an error of the engine; its own text may hold values."""
    kind = type(error).__name__
    if kind == "KilledWorker":
        return Failure(
            "workers died again and again on one partition: give them more memory, or pass smaller ones"
        )
    return Failure(
        f"the engine could not finish a pass ({kind}): check that the source can be read to its end and that "
        "the cluster is up"
    )


def _records(block: Block, y: FloatArray) -> Parts:
    return (np.asarray(float(len(y))),)


def room_for_rows() -> float:
    """Bytes of mapped records that may be kept where the engine keeps its results; 0: nowhere."""
    get = get_scheduler(cls=Delayed)
    if get in (dask.threaded.get, dask.get):
        return float(KEEP_BYTES)
    client = open_client()
    if client is None:  # processes would hand the records back to this one
        return 0.0
    workers = client.scheduler_info()["workers"].values()
    limits = [worker["memory_limit"] for worker in workers]
    return KEEP_SHARE * sum(limit or KEEP_BYTES for limit in limits)
