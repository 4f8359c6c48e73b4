"""The graph of a Dask table, cut into its partitions: what one of them alone needs runs within its task.

`handed_over` is the one way to the engine. It takes only tasks that hand back a `Failure` instead of raising:
a worker writes the text of an exception, with whatever cell it quotes, into its log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import dask
from dask.core import get_dependencies, istask
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import GraphNode, List, Task, TaskRef

from curvedp.errors import DataError
from curvedp.rows.partitions import (
    Failure,
    Packed,
    Subgraph,
    attempt,
    attempt_call,
    attempt_shared,
    gather,
    join,
    materialize,
    on_partition,
)
from curvedp.rows.passes import Result

Key = Any
Graph = dict[Key, Any]

_NEVER_RAISE = (attempt, attempt_call, attempt_shared, gather, join)


def handed_over(name: str, graph: Graph, keys: Iterable[Key]) -> list[Delayed]:
    """The tasks of these keys as the engine takes them; a graph with a task that may raise is a bug."""
    for node in graph.values():
        runs = isinstance(node, Task) if isinstance(node, GraphNode) else istask(node)
        if runs and not _of_the_engine(node) and getattr(node, "func", None) not in _NEVER_RAISE:
            raise AssertionError("a task of this graph may raise, and a worker would log what it says")
    layers = HighLevelGraph({name: graph}, {name: set()})
    return [Delayed(key, layers, layer=name) for key in keys]


def attempted(calls: Sequence[tuple[str, Packed, List]], graph: Graph) -> list[Any]:
    """function(inputs) or a `Failure`, where the engine runs, of each (label, packed function, inputs)."""
    name = f"curvedp-{uuid.uuid4().hex}"
    keys = [(name, i) for i in range(len(calls))]
    tasks = {key: Task(key, attempt_call, *call) for key, call in zip(keys, calls, strict=True)}
    return list(dask.compute(*handed_over(name, {**graph, **tasks}, keys)))


def over_partitions(table: Any, work: Callable[[Any], Result]) -> list[Result]:
    """work(partition) of every partition of a Dask array or data frame, in order; no row is handed back."""
    graph, sources = partitions(table, table)
    calls = [
        (f"partition {i} of {len(sources)}", Packed(partial(on_partition, work, source)), inputs)
        for i, (source, inputs) in enumerate(sources, start=1)
    ]
    found = attempted(calls, graph)
    failure = next((part for part in found if isinstance(part, Failure)), None)
    if failure is not None:
        raise DataError(f"{failure.reason}. Nothing was released; the charge stands")
    return found


def partitions(X: Any, y: Any) -> tuple[Graph, list[tuple[Packed, List]]]:
    """(what several partitions need, the partitions of X and y with references to their inputs)."""
    # Not optimized by Dask, which would fuse what X and y have in common into both, and read it twice.
    graph: Graph = {**X.__dask_graph__(), **y.__dask_graph__()}
    features = (_streamed(graph, key) for key in _flat(X.__dask_keys__()))
    outputs = list(zip(features, _flat(y.__dask_keys__()), strict=True))
    needs = {key: _needs(graph, key) for key in graph}
    own: list[Graph] = [{} for _ in outputs]
    for key, owner in _owners(needs, outputs).items():
        node = graph[key]
        works = needs[key] or istask(node) or isinstance(node, Task)
        if owner is not None and works and not _of_the_engine(node):
            own[owner][key] = node
    sources, pending = [], set()
    for pair, nodes in zip(outputs, own, strict=True):
        inputs = set(pair).union(*(needs[key] for key in nodes)) - nodes.keys()
        sources.append(_packed(nodes, pair, inputs))
        pending |= inputs
    rest: Graph = {}
    while pending:
        key = pending.pop()
        if key in graph and key not in rest:
            rest[key] = _guarded(graph[key], key, needs[key])
            pending |= needs[key]
    return rest, sources


def _packed(nodes: Graph, outputs: tuple[Key, ...], inputs: set[Key]) -> tuple[Packed, List]:
    """Tasks as one value that travels as bytes, and references to what they need of others."""
    ordered = sorted(inputs, key=str)
    return Packed(Subgraph(nodes, outputs, tuple(ordered))), List(*map(TaskRef, ordered))


def _guarded(node: Any, key: Key, needs: set[Key]) -> Any:
    """A task that several partitions need, such that its worker does not see it fail; data as they are."""
    runs = isinstance(node, Task) if isinstance(node, GraphNode) else istask(node)
    if not runs or _of_the_engine(node):
        return node
    return Task(key, attempt_shared, *_packed({key: node}, (key,), needs))


def _of_the_engine(node: Any) -> bool:
    """Tasks of `distributed` itself, such as those of its shuffle, which speak with their worker."""
    parts = (type(node), node.func) if isinstance(node, Task) else ()
    return any((getattr(part, "__module__", None) or "").startswith("distributed.") for part in parts)


def _streamed(graph: Graph, key: Key) -> Key:
    """The stream that a task does nothing but materialize: its records are summed as they come, instead."""
    node = graph[key]
    if isinstance(node, Task) and node.func is materialize:
        (key,) = node.dependencies
    return key


def _needs(graph: Graph, key: Key) -> set[Key]:
    node = graph[key]
    if isinstance(node, TaskRef):  # a future
        return set()
    return set(node.dependencies) if isinstance(node, GraphNode) else get_dependencies(graph, key)


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
