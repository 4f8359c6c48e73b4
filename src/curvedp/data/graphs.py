"""The graph of Dask collections, cut into partitions: what one of them alone needs runs within its task.

`handed_over` is the one way to the engine. It takes only tasks that hand back a `Failure` instead of raising:
a worker writes the text of an exception, with whatever cell it quotes, into its log, and sends it to the
client together with its arguments and its traceback.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import cloudpickle
import dask
import numpy as np
from dask.core import get_dependencies, istask
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import DataNode, GraphNode, List, Task, TaskRef

from curvedp.errors import CurvedpError, DataError

Key = Any
Graph = dict[Key, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

_NEVER_RAISE: set[Callable[..., Any]] = set()


def never_raises(function: Function) -> Function:
    """Vouches for a function that the engine may run: if anything goes wrong, it hands back a `Failure`."""
    _NEVER_RAISE.add(function)
    return function


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


Part = tuple[Any, List]  # a packed function of inputs, or a reference to kept rows; references to the inputs


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

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        given = {key: DataNode(key, value) for key, value in zip(self.inputs, inputs, strict=True)}
        return tuple(dask.get({**given, **self.graph}, list(self.outputs)))


def without_raising(work: Callable[[], Any], label: str, inputs: Sequence[Any]) -> Any:
    """work(), or the failure of this or of an earlier attempt."""
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


@never_raises
def _attempt(label: str, packed: Packed, inputs: Sequence[Any]) -> Any:
    """What a packed function makes of its inputs, or a failure."""
    return without_raising(lambda: packed.unpack()(inputs), label, inputs)


def handed_over(name: str, graph: Graph, keys: Iterable[Key]) -> list[Delayed]:
    """The tasks of these keys as the engine takes them; a graph with a task that may raise is a bug."""
    for node in graph.values():
        if _runs(node) and not _of_the_engine(node) and getattr(node, "func", None) not in _NEVER_RAISE:
            raise AssertionError("a task of this graph may raise, and a worker would log what it says")
    layers = HighLevelGraph({name: graph}, {name: set()})
    return [Delayed(key, layers, layer=name) for key in keys]


def over_parts(graph: Graph, parts: Sequence[Part], work: Callable[[Any], Result]) -> list[Result]:
    """work(partition) of every partition, where the engine runs, in order."""
    name = f"curvedp-{uuid.uuid4().hex}"
    keys = [(name, i) for i in range(len(parts))]
    tasks = {}
    for i, (key, (source, inputs)) in enumerate(zip(keys, parts, strict=True), start=1):
        packed = Packed(partial(_worked, work, source))
        tasks[key] = Task(key, _attempt, f"partition {i} of {len(parts)}", packed, inputs)
    found = list(dask.compute(*handed_over(name, {**graph, **tasks}, keys)))
    failure = next((result for result in found if isinstance(result, Failure)), None)
    if failure is not None:
        raise DataError(failure.reason)
    return found


def _worked(work: Callable[[Any], Result], source: Packed, inputs: Sequence[Any]) -> Result:
    return work(source.unpack()(inputs))


def partitions(*collections: Any) -> tuple[Graph, list[Part]]:
    """(what several partitions need, the partitions: each a packed `Subgraph` with one output of each
    collection, and references to its inputs)."""
    # Not optimized by Dask, which would fuse what they have in common into each, and read it again.
    graph: Graph = {}
    for collection in collections:
        graph |= collection.__dask_graph__()
    keys = (list(_flat(collection.__dask_keys__())) for collection in collections)
    outputs = list(zip(*keys, strict=True))
    needs = {key: _needs(graph, key) for key in graph}
    own: list[Graph] = [{} for _ in outputs]
    for key, owner in _owners(needs, outputs).items():
        node = graph[key]
        works = needs[key] or istask(node) or isinstance(node, Task)
        if owner is not None and works and not _of_the_engine(node):
            own[owner][key] = node
    parts, pending = [], set()
    for wanted, nodes in zip(outputs, own, strict=True):
        inputs = set(wanted).union(*(needs[key] for key in nodes)) - nodes.keys()
        parts.append(_packed(nodes, wanted, inputs))
        pending |= inputs
    rest: Graph = {}
    while pending:
        key = pending.pop()
        if key in graph and key not in rest:
            rest[key] = _guarded(graph[key], key, needs[key])
            pending |= needs[key]
    return rest, parts


def _packed(nodes: Graph, outputs: tuple[Key, ...], inputs: set[Key]) -> Part:
    ordered = sorted(inputs, key=str)
    return Packed(Subgraph(nodes, outputs, tuple(ordered))), List(*map(TaskRef, ordered))


def _guarded(node: Any, key: Key, needs: set[Key]) -> Any:
    """A task that several partitions need, such that its worker does not see it fail; data as they are."""
    if not _runs(node) or _of_the_engine(node):
        return node
    packed, inputs = _packed({key: node}, (key,), needs)
    only = Packed(partial(_first, packed))
    return Task(key, _attempt, "what several partitions need", only, inputs)


def _first(packed: Packed, inputs: Sequence[Any]) -> Any:
    return packed.unpack()(inputs)[0]


def _runs(node: Any) -> bool:
    return isinstance(node, Task) if isinstance(node, GraphNode) else istask(node)


def _of_the_engine(node: Any) -> bool:
    """Tasks of `distributed` itself, such as those of its shuffle, which speak with their worker."""
    parts = (type(node), node.func) if isinstance(node, Task) else ()
    return any((getattr(part, "__module__", None) or "").startswith("distributed.") for part in parts)


def _needs(graph: Graph, key: Key) -> set[Key]:
    node = graph[key]
    if isinstance(node, TaskRef):  # a future
        return set()
    return set(node.dependencies) if isinstance(node, GraphNode) else get_dependencies(graph, key)


def _owners(needs: dict[Key, set[Key]], outputs: Sequence[tuple[Key, ...]]) -> dict[Key, int | None]:
    """The partition that alone needs each key, directly or not; None where several do."""
    owners: dict[Key, int | None] = {}
    for i, wanted in enumerate(outputs):
        pending = [*wanted]
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
