"""The graph of Dask collections, cut into partitions: what one of them alone needs runs within its task.

`handed_over` is the one way to the engine. It takes only tasks that hand back a `Failure` instead of raising:
a worker writes the text of an exception, with whatever cell it quotes, into its log, and sends it to the
client together with its arguments and its traceback.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import uuid
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from graphlib import TopologicalSorter
from operator import itemgetter
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar

import cloudpickle
import dask
import narwhals as nw
import numpy as np
from dask.base import get_scheduler
from dask.core import flatten, get_dependencies, istask
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import DataNode, GraphNode, List, Task, TaskRef
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from curvedp.data.frames import NOBODY, Identifiers, Table, as_column, cut
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
    """A value that travels as bytes and is unpacked by the task that needs it: a worker that cannot, for want
    of a module, then says so. Left to the engine, it would be lost."""

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


class Failure(Exception):
    """Why a partition gave nothing, in words that hold no value. A task hands it back; it is raised within
    one that was handed an earlier failure, and does not leave it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@never_raises
def first_failure(results: Iterable[Any]) -> Failure | None:
    return next((result for result in results if isinstance(result, Failure)), None)


def without_raising(work: Callable[[], Any], label: str, inputs: Sequence[Any]) -> Any:
    """work(), or the failure of this or of an earlier attempt."""
    if (earlier := first_failure(inputs)) is not None:
        return earlier
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except Failure as failure:
        return failure.with_traceback(None)
    except CurvedpError as error:  # our own words: a column and a rule, never a value
        return Failure(f"{label}: {error}")
    except Exception as error:
        if type(error).__name__ == "Reschedule":  # a shuffle lost a worker: the engine begins it again
            raise
        return Failure(
            f"{label} cannot be read ({type(error).__name__}): check that its source is complete and that "
            "every worker can reach it"
        )


@never_raises
def _attempt(packed: Packed, label: str, source: Any, inputs: Sequence[Any]) -> Any:
    """What a packed function makes of a partition, read or kept, or a failure."""

    def work() -> Any:
        return packed.unpack()(source.unpack()(inputs) if isinstance(source, Packed) else source)

    return without_raising(work, label, [source, *inputs])


def handed_over(name: str, graph: Graph, keys: Iterable[Key]) -> list[Delayed]:
    """The tasks of these keys as the engine takes them; a graph with a task that may raise is a bug."""
    for node in graph.values():
        if _runs(node) and not _of_the_engine(node) and getattr(node, "func", None) not in _NEVER_RAISE:
            raise AssertionError("a task of this graph may raise, and a worker would log what it says")
    layers = HighLevelGraph({name: graph}, {name: set()})
    return [Delayed(key, layers, layer=name) for key in keys]


def tasks(
    graph: Graph, parts: Sequence[Part], work: Callable[[Any], Any], kind: str = "partition"
) -> tuple[str, Graph, list[Key]]:
    """(name, graph, keys): one task per partition; the work is one node that all of them need."""
    name = f"curvedp-{uuid.uuid4().hex}"  # two clients of one cluster must never share a key
    whole = {**graph, name: DataNode(name, Packed(work))}
    keys = [(name, 0, i) for i in range(len(parts))]
    for i, (key, (source, inputs)) in enumerate(zip(keys, parts, strict=True), start=1):
        whole[key] = Task(key, _attempt, TaskRef(name), f"{kind} {i} of {len(keys)}", source, inputs)
    return name, whole, keys


def over_parts(graph: Graph, parts: Sequence[Part], work: Callable[[Any], Result]) -> list[Result]:
    """work(partition) of every partition, where the engine runs, in order."""
    results = list(dask.compute(*handed_over(*tasks(graph, parts, work))))
    if (failure := first_failure(results)) is not None:
        raise DataError(failure.reason)
    return results


def partitions(*collections: Any) -> tuple[Graph, list[Part]]:
    """(what several partitions need, the partitions: each a packed function with one output of each
    collection, and references to its inputs)."""
    # Not optimized by Dask, which would fuse what they have in common into each, and read it again.
    graph = {key: node for each in collections for key, node in each.__dask_graph__().items()}
    outputs = list(zip(*(flatten(collection.__dask_keys__()) for collection in collections), strict=True))
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
            node = rest[key] = graph[key]
            pending |= needs[key]
            if _runs(node) and not _of_the_engine(node):  # its worker must not see it fail
                packed, refs = _packed({key: node}, (key,), needs[key])
                label = "what several partitions need"
                rest[key] = Task(key, _attempt, Packed(itemgetter(0)), label, packed, refs)
    return rest, parts


def _packed(nodes: Graph, outputs: tuple[Key, ...], inputs: set[Key]) -> Part:
    ordered = sorted(inputs, key=str)
    return Packed(partial(_run, nodes, outputs, ordered)), List(*map(TaskRef, ordered))


def _run(nodes: Graph, outputs: tuple[Key, ...], keys: list[Key], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The results under `outputs` of tasks that run together within one; the engine hands in what is under
    `keys`: what other tasks need too, or data that is there already."""
    given = {key: DataNode(key, value) for key, value in zip(keys, inputs, strict=True)}
    return tuple(dask.get({**given, **nodes}, list(outputs)))


def _runs(node: Any) -> bool:
    return isinstance(node, Task) if isinstance(node, GraphNode) else istask(node)


def _of_the_engine(node: Any) -> bool:
    """Tasks of `distributed` itself, such as those of its shuffle, which speak with their worker."""
    parts = (type(node), node.func) if isinstance(node, Task) else ()
    return any((getattr(part, "__module__", None) or "").startswith("distributed.") for part in parts)


def _needs(graph: Graph, key: Key) -> set[Key]:
    if isinstance(node := graph[key], TaskRef):  # a future
        return set()
    return set(node.dependencies) if isinstance(node, GraphNode) else get_dependencies(graph, key)


def _owners(needs: dict[Key, set[Key]], outputs: Sequence[tuple[Key, ...]]) -> dict[Key, int | None]:
    """The partition that alone needs each key of a graph, directly or not; None where several do."""
    owners: dict[Key, int | None] = {}

    def need(keys: Iterable[Key], owner: int | None) -> None:
        for key in keys:
            owners[key] = owner if owners.setdefault(key, owner) == owner else None

    for i, wanted in enumerate(outputs):
        need(wanted, i)
    for key in reversed([*TopologicalSorter(needs).static_order()]):  # before what it needs
        if key in owners and key in needs:
            need(needs[key], owners[key])
    return {key: owner for key, owner in owners.items() if key in needs}


def open_client() -> Any:
    """The open client of a cluster; None where Dask computes in this process or in others of this machine."""
    get = get_scheduler(cls=Delayed)
    return get.__self__ if isinstance(get, MethodType) else None


# Partitions of whole persons: every row goes where a hash of its person's name says, and persons meet there.
#
# What moves is bytes, a piece of a table for each pair of partitions: the engine logs what it cannot handle,
# and sees no cell. On a cluster its own shuffle moves them, over the disks of the workers. Elsewhere they are
# written once into a folder that goes with the graph, and every pass reads them there.

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio (Knuth, The Art, 6.4)


class Folder:
    """A folder of this machine that is removed together with what refers to it."""

    def __init__(self) -> None:
        home = dask.config.get("temporary_directory", None)
        self.path = Path(tempfile.mkdtemp(prefix="curvedp-", dir=home))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def whole_persons(
    graph: Graph, parts: Sequence[Part], column: Callable[[Table], Any], heads: Sequence[Table]
) -> tuple[Graph, list[Part]]:
    """As many partitions, each with all rows of its persons in the order of the table; nobody's are left out.
    column(chunk) says whose row each row is; `heads` are chunks of no rows, by which it may be refused."""
    for head in heads:
        Identifiers().codes(column(head))
    count, empty = len(parts), heads[0]
    if count < 2:
        return graph, list(parts)
    name = f"curvedp-{uuid.uuid4().hex}"
    keys = [(name, i) for i in range(count)]
    moved = open_client() is not None
    dealt: Graph = {} if moved else {name: DataNode(name, Folder())}
    for i, (key, (packed, inputs)) in enumerate(zip(keys, parts, strict=True)):
        deal = Packed(partial(_deal, packed, column, count))
        to, task = (count, _sent) if moved else (TaskRef(name), _written)
        dealt[key] = Task(key, task, f"partition {i + 1} of {count}", deal, i, to, inputs)
    if moved:  # rows k of the frames are brought together in partition k
        import dask.dataframe as dd

        frame = dd.from_graph({}, _pieces_frame([], 0), (None,) * (count + 1), keys, "curvedp")
        frame = frame.set_index("place", divisions=tuple(range(count + 1)), shuffle_method="p2p")
        shuffled, moves = partitions(frame.optimize(fuse=True))
        found = [(Packed(partial(_received, empty, packed)), inputs) for packed, inputs in moves]
        return {**graph, **dealt, **shuffled}, found
    barrier = (name, "all")
    dealt[barrier] = Task(barrier, first_failure, List(*map(TaskRef, keys)))
    inputs = List(TaskRef(name), TaskRef(barrier))
    return {**graph, **dealt}, [(Packed(partial(_read_back, empty, k, count)), inputs) for k in range(count)]


def _pieces_frame(pieces: Sequence[bytes], origin: int) -> Any:
    import pandas as pd

    places = np.array([k for k, piece in enumerate(pieces) if piece], dtype=np.int64)
    held = np.empty(len(places), dtype=object)
    held[:] = [pieces[k] for k in places]
    return pd.DataFrame({"place": places, "origin": np.full(len(places), origin), "piece": held})


@never_raises
def _sent(label: str, deal: Packed, origin: int, count: int, inputs: Sequence[Any]) -> Any:
    """A frame of the pieces of one partition; of its failure, which goes to everybody."""
    found = without_raising(lambda: deal.unpack()(inputs), label, inputs)
    return _pieces_frame([pickle.dumps(found)] * count if isinstance(found, Failure) else found, origin)


def _received(empty: Table, packed: Packed, inputs: Sequence[Any]) -> list[Table]:
    (frame,) = packed.unpack()(inputs)
    return _met(empty, frame.sort_values("origin")["piece"])


@never_raises
def _written(label: str, deal: Packed, origin: int, folder: Folder, inputs: Sequence[Any]) -> Failure | None:
    """The pieces of one partition in a file, behind the places where each of them begins and ends."""
    file = folder.path / str(origin)

    def write() -> None:
        pieces = deal.unpack()(inputs)
        ends = np.cumsum([8 * (len(pieces) + 1), *map(len, pieces)], dtype=np.int64)
        with open(file.with_suffix(".new"), "wb") as new:
            new.write(ends.tobytes())
            new.writelines(pieces)
        os.replace(new.name, file)

    return None if file.exists() else without_raising(write, label, inputs)  # type: ignore[no-any-return]


def _read_back(empty: Table, place: int, count: int, inputs: Sequence[Any]) -> list[Table]:
    pieces = []
    for origin in range(count):
        with open(inputs[0].path / str(origin), "rb") as file:
            file.seek(8 * place)
            start, end = np.frombuffer(file.read(16), np.int64)
            file.seek(start)
            pieces.append(file.read(end - start))
    return _met(empty, filter(None, pieces))


def _met(empty: Table, pieces: Iterable[bytes]) -> list[Table]:
    """The rows of some pieces in their order: one table where types agree."""
    tables = []
    for piece in pieces:
        if isinstance(found := pickle.loads(piece), Failure):
            raise found
        tables += found
    return _joined(tables) or [empty]


def _deal(packed: Packed, column: Callable[[Table], Any], count: int, inputs: Sequence[Any]) -> list[bytes]:
    """The rows of a partition in `count` pieces, each a list of tables; b"" of none."""
    pieces: list[list[Table]] = [[] for _ in range(count)]
    for chunk in _joined([chunk.mapped(_plain) for chunk in packed.unpack()(inputs)]):
        places = _places(column(chunk), count)
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], np.arange(count + 1))
        for own, start, end in zip(pieces, cuts, cuts[1:], strict=False):
            if start < end:
                own.append(chunk.mapped(partial(cut, rows=order[start:end])))
    return [pickle.dumps(own, pickle.HIGHEST_PROTOCOL) if own else b"" for own in pieces]


def _places(column: Any, count: int) -> NDArray[np.int64]:
    """Where the person of every row goes; −1: nobody's. A whole number goes by its value, and so its text."""
    column = as_column(column)
    if isinstance(column, nw.Series) and column.dtype.is_integer() and not column.is_null().any():
        column = column.to_numpy()
    if type(column) is np.ndarray and column.dtype.kind in "iu":
        numbers, codes = column.astype(np.uint64), np.arange(len(column))
    else:
        known = Identifiers()
        codes = known.codes(column)
        numbers = np.array([*map(_number, known.names), 0], dtype=np.uint64)
    places = (numbers * _GOLDEN >> np.uint64(32)) % np.uint64(count)
    return np.where(codes == NOBODY, -1, places.astype(np.int64)[codes])


def _number(name: str) -> int:
    try:
        return int(name) % 2**64
    except ValueError:
        return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _plain(column: Any) -> Any:
    """A column as the array that it is read as, where it is one: arrays are cut and joined fast."""
    if getattr(column, "ndim", 1) == 1:
        column = as_column(column)
    if isinstance(column, nw.Series):
        pandas = column.implementation.is_pandas() and isinstance(column.to_native().dtype, np.dtype)
        if pandas or (column.implementation.is_pyarrow() and column.dtype.is_float()):
            return column.to_numpy()
    return column


def _joined(tables: list[Table]) -> list[Table]:
    """The rows of several tables in one, if their columns have the same types; else the tables."""
    types = [[(type(c), *_types(c)) for c in _columns(table)] for table in tables]
    if len(tables) < 2 or any(own != types[0] for own in types):
        return tables
    columns = iter([_concatenated(several) for several in zip(*map(_columns, tables), strict=True)])
    return [tables[0].mapped(lambda column: next(columns))]


def _columns(table: Table) -> list[Any]:
    """In the order of `Table.mapped`."""
    matrix = [] if table.matrix is None else [table.matrix]
    return [*table.columns.values(), *matrix, *table.beside.values()]


def _types(column: Any) -> list[str]:
    native = column.to_native() if isinstance(column, nw.Series) else column
    return [str(getattr(native, name)) for name in ("dtype", "dtypes", "type") if hasattr(native, name)]


def _concatenated(columns: Sequence[Any]) -> Any:
    if issparse(first := columns[0]):
        return vstack(columns, format="csr")
    if isinstance(first, np.ndarray):
        return (np.ma if isinstance(first, np.ma.MaskedArray) else np).concatenate(columns)
    if isinstance(first, nw.Series):
        return nw.concat([column.alias("c").to_frame() for column in columns])["c"]
    return nw.concat([nw.from_native(column) for column in columns]).to_native()
