"""Rows in the partitions of Dask arrays and data frames: every reduction is a tree of tasks.

One task per partition sums its records where they are; only the sums travel, along a tree of fixed shape and
order, so that no result depends on which worker did what, and a task that runs again gives the same sums.
The noise is drawn by the mechanism, in the calling process: the engine knows nothing of it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import get_scheduler
from dask.core import get_dependencies, istask
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef

from curvedp.domain import ColumnMap, Domain, FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.rows.blocked import Reduction, SummedRows, check_metric
from curvedp.rows.blocks import Block
from curvedp.rows.dense import KEEP_BYTES
from curvedp.rows.partitions import Failure, Job, KeptRows, Partition, View, add_up, attempt, join, kept_bytes
from curvedp.rows.passes import one_blas_thread
from curvedp.rows.sums import Parts, Total
from curvedp.tables import read_table

Key = Any
Graph = dict[Key, Any]

FAN_IN = 8
KEEP_SHARE = 0.5  # of a cluster's memory, for mapped records between passes


class DaskRows(SummedRows):
    """Rows of a Dask array or data frame X, and of y in the same partitions; their lengths may be unknown.

    Nothing is computed until a reduction is asked for. Reductions run where Dask would run them: on threads
    of this process, or on the cluster of an open `distributed.Client`. Between the passes of an iterative
    mechanism the mapped records are kept if they fit (1 GiB here, half of a cluster's memory); if they do
    not, every pass reads the source again.
    """

    def __init__(self, X: Any, y: Any, domain: Domain, columns: ColumnMap | None = None) -> None:
        X = features(X)
        y = targets(y, X)
        p = int(X.shape[1])
        if columns is not None and p != columns.n_inputs:
            raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
        n_targets = 1 if y.ndim == 1 else int(y.shape[1])
        super().__init__(domain, columns, p if columns is None else columns.d, n_targets)
        self._count = None if math.isnan(X.shape[0]) else int(X.shape[0])
        self._job = Job(domain, columns, p, n_targets, views=(), work=KeptRows)
        self._source = _partitions(X, y)
        self._may_keep = True
        self._kept: Stage | None = None

    def count(self) -> int:
        if self._count is None:
            total = self.total(_records, keep=False)
            self._count = 0 if total is None else int(total.parts[0])
        return self._count

    def in_metric(self, metric: FloatArray, bound: float | None = None) -> DaskRows:
        return _DaskView(self, metric, bound)

    def total(self, reduction: Reduction, keep: bool) -> Total | None:
        work = partial(add_up, reduction)
        result = self._stage(keep).sum(work, self._job)
        if isinstance(result, Failure) and self._forget():
            result = self._stage(keep=False).sum(work, self._job)
        if isinstance(result, Failure):
            raise DataError(f"{result.reason}. Nothing was released")
        return result

    def _stage(self, keep: bool) -> Stage:
        """Where a pass starts: at the kept records, made first if more passes will follow and they fit."""
        if self._kept is None and keep and self._fits():
            self._kept = self._source.kept(self._job)
        return self._kept or self._source

    def _fits(self) -> bool:
        room = room_for_rows() if self._may_keep else 0.0
        return room > 0 and kept_bytes(self.count(), self.d, self.n_targets) <= room

    def _forget(self) -> bool:
        """Read the source on every pass from now on; False if that was so before."""
        kept, self._kept, self._may_keep = self._kept, None, False
        return kept is not None


class _DaskView(DaskRows):
    """`rows.in_metric(metric, bound)`: the lengths are computed in the partitions."""

    def __init__(self, rows: DaskRows, metric: FloatArray, bound: float | None) -> None:
        check_metric(metric, bound, rows.d)
        SummedRows.__init__(self, rows.domain, rows.columns, rows.d, rows.n_targets)
        self._rows = rows
        self._job = rows._job
        self._view: View = (np.ascontiguousarray(metric, dtype=np.float64), bound)
        self._kept = None

    def count(self) -> int:
        return self._rows.count()

    def _stage(self, keep: bool) -> Stage:
        if self._kept is None:
            stage = self._rows._stage(keep)
            seen = replace(stage, views=(*stage.views, self._view))
            if not (keep and self._fits()):
                return seen
            self._kept = seen.kept(self._job)
        return self._kept

    def _fits(self) -> bool:
        return self._rows._fits()

    def _forget(self) -> bool:
        self._kept = None
        return self._rows._forget()


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """Where a pass starts: a graph, the source of each partition in it, and views still to be taken of it."""

    graph: Graph
    sources: Sequence[tuple[Any, List]]  # a Partition or the key of kept rows, with its inputs
    views: tuple[View, ...] = ()

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
                return _delayed(name, graph, keys)[0].compute()  # type: ignore[no-any-return]
        except Exception as error:  # from the engine, or from a task that several partitions need
            return _engine_failure(error)

    def kept(self, job: Job) -> Stage:
        """The same partitions, mapped and persisted where the engine keeps its results."""
        name, graph, keys = self._tasks(replace(job, views=self.views, work=KeptRows))
        try:
            with one_blas_thread():
                persisted = dask.persist(*_delayed(name, graph, keys))
        except Exception as error:
            failure = _engine_failure(error)
            return Stage({}, [(failure, List()) for _ in keys])
        merged: Graph = {}
        for part in persisted:
            merged.update(part.__dask_graph__())
        return Stage(merged, [(TaskRef(key), List()) for key in keys])

    def _tasks(self, job: Job) -> tuple[str, Graph, list[Key]]:
        """(name, graph, keys): one task per partition; the job is one node that all of them need."""
        name = f"curvedp-{uuid.uuid4().hex}"  # two clients of one cluster must never share a key
        graph = {**self.graph, name: DataNode(name, job)}
        keys = [(name, 0, i) for i in range(len(self.sources))]
        for i, (key, (source, inputs)) in enumerate(zip(keys, self.sources, strict=True), start=1):
            label = f"partition {i} of {len(keys)}"
            graph[key] = Task(key, attempt, TaskRef(name), label, source, inputs)
        return name, graph, keys


def _delayed(name: str, graph: Graph, keys: Iterable[Key]) -> list[Delayed]:
    layers = HighLevelGraph({name: graph}, {name: set()})
    return [Delayed(key, layers, layer=name) for key in keys]


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
    client = getattr(get, "__self__", None)
    if client is None:  # processes would hand the records back to this one
        return 0.0
    limits = [worker["memory_limit"] for worker in client.scheduler_info()["workers"].values()]
    return KEEP_SHARE * sum(limit or KEEP_BYTES for limit in limits)


def features(X: Any) -> da.Array:
    """X as a Dask array of numbers, one block of columns; a data frame is read cell by cell, as in memory."""
    if not isinstance(X, da.Array):
        names = frame_names(X)
        read_table(X._meta)  # refuses what is known to be text, by its name
        X = X.map_partitions(_cells, names, meta=np.empty((0, len(names))))
    if X.ndim != 2 or math.isnan(X.shape[1]):
        raise DataError("X must be a table: two dimensions, one row per record, a known number of columns")
    if X.dtype.kind not in "fiub":
        raise DataError("X must hold numbers; read tables of other kinds through a schema")
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def frame_names(X: Any) -> tuple[str, ...]:
    """The column names of a Dask data frame; none of an array."""
    if isinstance(X, da.Array):
        return ()
    from dask.dataframe import DataFrame

    if not isinstance(X, DataFrame):
        raise InvalidInput("X must be a Dask array or a Dask data frame")
    return tuple(map(str, X.columns))


def _cells(frame: Any, names: tuple[str, ...]) -> FloatArray:
    """The numbers of one partition, whose columns must be those of the whole."""
    table = read_table(frame)
    missing = next((name for name in names if name not in table.names), None)
    if missing is not None:
        raise DataError(f"there is no column {missing!r}, which the data frame declares")
    if table.names != names:
        raise DataError("its columns are not those of the data frame, in their order")
    return table.values


def column(y: Any) -> da.Array:
    """One column, whatever its cells hold, as a Dask array of one dimension."""
    y = _array(y)
    if y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    if y.ndim != 1:
        raise InvalidInput("y must be one column: a Dask array of one dimension, or a series")
    return y


def targets(y: Any, X: da.Array) -> da.Array:
    """y as a Dask array of numbers in the partitions of X."""
    if not dask.is_dask_collection(y):
        y = np.asarray(y)
        if math.isnan(X.shape[0]):
            raise InvalidInput("the partitions of X have unknown lengths: pass y as a Dask collection, too")
        _same_length(y, X)
        y = da.from_array(y, chunks=(X.chunks[0], *y.shape[1:]))
    y = _array(y)
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError("y must hold numbers: real targets, ±1, or class indices")
    if y.ndim == 2 and y.numblocks[1] > 1:
        y = y.rechunk({1: -1})
    if not any(map(math.isnan, (*X.chunks[0], *y.chunks[0]))) and y.chunks[0] != X.chunks[0]:
        _same_length(y, X)
        y = y.rechunk({0: X.chunks[0]})
    if y.numblocks[0] != X.numblocks[0]:
        raise InvalidInput(
            f"X has {X.numblocks[0]} partitions and y {y.numblocks[0]}, of unknown lengths: "
            "take both from one table"
        )
    return y


def _array(y: Any) -> da.Array:
    if isinstance(y, da.Array):
        return y
    from dask.dataframe import DataFrame, Series

    if not isinstance(y, DataFrame | Series):
        raise InvalidInput("y must be a Dask array, series or data frame")
    return y.map_partitions(np.asarray, meta=np.asarray(y._meta))


def _same_length(y: Any, X: da.Array) -> None:
    if y.ndim == 0 or y.shape[0] != X.shape[0]:
        raise DataError("y must have one entry (or one row of targets) per row of X")


def _partitions(X: da.Array, y: da.Array) -> Stage:
    """The partitions of X and y: what one of them alone needs runs in its task, the rest stays outside."""
    graph = _graph(X, y)
    outputs = list(zip(_flat(X.__dask_keys__()), _flat(y.__dask_keys__()), strict=True))
    needs = {key: _needs(graph, key) for key in graph}
    own: list[Graph] = [{} for _ in outputs]
    for key, owner in _owners(needs, outputs).items():
        if owner is not None and _is_computed(graph[key]):
            own[owner][key] = graph[key]
    sources, pending = [], set()
    for pair, nodes in zip(outputs, own, strict=True):
        inputs = set(pair).union(*(needs[key] for key in nodes)) - nodes.keys()
        ordered = sorted(inputs, key=str)
        sources.append((Partition(nodes, pair, tuple(ordered)), List(*map(TaskRef, ordered))))
        pending |= inputs
    rest: Graph = {}
    while pending:
        key = pending.pop()
        if key in graph and key not in rest:
            rest[key] = graph[key]
            pending |= needs[key]
    return Stage(rest, sources)


def _graph(X: da.Array, y: da.Array) -> Graph:
    """The optimized graph of both, with the data that a cluster holds for them already."""
    graph: Graph = {}
    for plain, optimized in zip((X, y), dask.optimize(X, y), strict=True):
        held = {key: node for key, node in plain.__dask_graph__().items() if isinstance(node, TaskRef)}
        graph |= {**held, **optimized.__dask_graph__()}
    return graph


def _needs(graph: Graph, key: Key) -> set[Key]:
    node = graph[key]
    if isinstance(node, TaskRef):  # a future
        return set()
    return set(node.dependencies) if isinstance(node, GraphNode) else get_dependencies(graph, key)


def _is_computed(node: Any) -> bool:
    """Whether a node says how something is made; if not, it is data."""
    return isinstance(node, Task | Alias) or istask(node)


def _owners(needs: dict[Key, set[Key]], outputs: Sequence[tuple[Key, Key]]) -> dict[Key, int | None]:
    """The partition that alone needs each key, directly or not; None where several do."""
    owners: dict[Key, int | None] = {}
    for i, pair in enumerate(outputs):
        pending = [*pair]
        while pending:
            key = pending.pop()
            if key in needs and key not in owners:
                owners[key] = i
                pending.extend(needs[key])
            elif owners.get(key, i) != i:
                _share(key, needs, owners)
    return owners


def _share(key: Key, needs: dict[Key, set[Key]], owners: dict[Key, int | None]) -> None:
    """The key and everything it needs belong to no single partition."""
    pending = [key]
    while pending:
        key = pending.pop()
        if owners.get(key) is not None:
            owners[key] = None
            pending.extend(needs[key])


def _flat(keys: Any) -> Iterator[Key]:
    if isinstance(keys, list):
        for key in keys:
            yield from _flat(key)
    else:
        yield keys
