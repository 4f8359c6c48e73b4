"""The graph of a Dask table, cut into its partitions: what one of them alone needs runs within its task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dask
import dask.array as da
from dask.core import get_dependencies, istask
from dask.task_spec import Alias, GraphNode, List, Task, TaskRef

from curvedp.rows.partitions import Partition

Key = Any
Graph = dict[Key, Any]


def partitions(X: da.Array, y: da.Array) -> tuple[Graph, list[tuple[Partition, List]]]:
    """(what several partitions need, the partitions of X and y with references to their inputs)."""
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
    return rest, sources


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
