"""What runs inside one partition of a Dask collection. Nothing here raises, and no row is handed back.

A task reads, maps, clips and sums the records of its partition where they are. Whatever goes wrong comes back
as a `Failure`, one line without a value: an exception would be logged by the worker and sent to the client
together with its arguments and its traceback.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import dask
import numpy as np
from dask.task_spec import DataNode

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import CurvedpError, DataError
from curvedp.rows.blocked import BlockRows, Load, Loaded, MetricRows, Reduction, contribution
from curvedp.rows.chunked import ChunkedRows
from curvedp.rows.passes import Result, ordered_map
from curvedp.rows.sums import Total, tree_sum

View = tuple[FloatArray, float | None]  # metric and bound of `in_metric`


class Stream(ABC):
    """The features of one partition, read a batch at a time; every reading gives the same."""

    @abstractmethod
    def batches(self) -> Iterator[FloatArray]: ...


def materialize(stream: Stream) -> FloatArray:
    """All batches of a partition as one array, for whoever wants it in memory. A fit does not."""
    return np.concatenate([*stream.batches()])


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """What is asked of every partition: public, and the same for all of them."""

    domain: Domain
    columns: ColumnMap | None
    n_features: int
    n_targets: int
    views: tuple[View, ...]
    work: Callable[[BlockRows], Any]


class Packed:
    """A value that travels as bytes and is unpacked by the task that needs it.

    A worker that cannot unpack it, for want of a module, then says so. Left to the engine, it would be lost.
    """

    def __init__(self, value: Any) -> None:
        self._state: tuple[Any, bytes | None] = (value, None)

    def unpack(self) -> Any:
        value, content = self._state  # read at once: another thread may unpack it, too
        if content is not None:
            value = cloudpickle.loads(content)
            self._state = (value, None)
        return value

    def __getstate__(self) -> bytes:
        value, content = self._state
        return cloudpickle.dumps(value) if content is None else content

    def __setstate__(self, content: bytes) -> None:
        self._state = (None, content)


@dataclass(frozen=True, eq=False, repr=False)
class Failure:
    """Why a partition gave nothing, in words that hold no value."""

    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class Subgraph:
    """Tasks that run together within one: `outputs` are the keys of their results.

    `inputs` are keys that other tasks need too, or data that is there already: the engine hands them in.
    """

    graph: Mapping[Any, Any]
    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]

    def compute(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        given = {key: DataNode(key, value) for key, value in zip(self.inputs, inputs, strict=True)}
        return tuple(dask.get({**given, **self.graph}, list(self.outputs)))


def _rows(job: Job, X: Any, y: Any) -> BlockRows:
    return ChunkedRows(
        partial(_chunks, X, y),
        job.domain,
        job.columns,
        n_features=job.n_features,
        n_targets=job.n_targets,
        threads=1,
    )


def _chunks(X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(X, Stream):
        yield X, y
        return
    start = 0
    for batch in X.batches():
        yield batch, y[start : start + len(batch)]
        start += len(batch)
    if start != len(y):
        raise DataError("y must have one entry (or one row of targets) per row of X")


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


def attempt(packed: Packed, label: str, source: Packed | KeptRows | Failure, inputs: Sequence[Any]) -> Any:
    """job.work on the rows of one partition, or the failure of this or of an earlier attempt."""
    if isinstance(source, Failure):
        return source

    def work() -> Any:
        job: Job = packed.unpack()
        rows = _rows(job, *source.unpack().compute(inputs)) if isinstance(source, Packed) else source
        for metric, bound in job.views:
            rows = rows.in_metric(metric, bound)
        return job.work(rows)

    return _without_raising(work, label, inputs)


def attempt_call(label: str, packed: Packed, inputs: Sequence[Any]) -> Any:
    """What a packed function makes of its inputs, or a failure."""
    return _without_raising(lambda: packed.unpack()(inputs), label, inputs)


def on_partition(work: Callable[[Any], Result], source: Packed, inputs: Sequence[Any]) -> Result:
    """work(partition) of a packed subgraph; its first output is the stream of the partition if it has one."""
    _, partition = source.unpack().compute(inputs)
    return work(partition)


def attempt_shared(packed: Packed, inputs: Sequence[Any]) -> Any:
    """The one result of a packed subgraph that several partitions need, or a failure."""
    return _without_raising(
        lambda: packed.unpack().compute(inputs)[0], "what several partitions need", inputs
    )


def _without_raising(work: Callable[[], Any], label: str, inputs: Sequence[Any]) -> Any:
    for value in inputs:
        if isinstance(value, Failure):
            return value
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except CurvedpError as error:  # our own words: a column and a rule, never a value
        return Failure(f"{label}: {error}")
    except Exception as error:
        return Failure(
            f"{label} cannot be read ({type(error).__name__}): check that its source is complete and that "
            "every worker can reach it"
        )


def join(totals: Sequence[Total | Failure | None]) -> Total | Failure | None:
    """Σ totals in their order; the first failure if there is one; None of partitions without records."""
    for total in totals:
        if isinstance(total, Failure):
            return total
    return tree_sum(total for total in totals if isinstance(total, Total))
