"""Where Dask runs, and which worker keeps which partitions."""

from __future__ import annotations

from collections.abc import Sequence
from types import MethodType
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.system import CPU_COUNT

from curvedp.schema.graphs import Graph, Key


class Share(NamedTuple):
    """The partitions that one worker keeps, by their numbers in order, and how many threads it has."""

    partitions: list[int]
    threads: int


def shares_of_workers(keys: Sequence[Key], kept: Graph) -> list[Share]:
    """Who keeps which of the `keys`, in the order of their first partitions; none where one is lost."""
    client = open_client()
    if client is None:
        cuts = np.array_split(np.arange(len(keys)), min(local_threads(), len(keys)))
        return [Share([int(i) for i in part], 1) for part in cuts]
    from distributed import wait

    futures = [kept[key] for key in keys]
    wait(futures)
    held, threads = client.who_has(futures), client.nthreads()
    shares: dict[str, Share] = {}
    for i, key in enumerate(keys):
        at = next((worker for worker in held.get(key, ()) if worker in threads), None)
        if at is None:
            return []
        shares.setdefault(at, Share([], threads[at])).partitions.append(i)
    return [*shares.values()]


def local_threads() -> int:
    """Tasks that Dask runs side by side in this process."""
    if get_scheduler(cls=Delayed) is dask.get:
        return 1
    return int(dask.config.get("num_workers", None) or CPU_COUNT)


def open_client() -> Any:
    """The open client of a cluster; None where Dask computes in this process or in others of this machine."""
    get = get_scheduler(cls=Delayed)
    return get.__self__ if isinstance(get, MethodType) else None
