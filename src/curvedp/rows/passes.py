"""One pass over blocks: Python threads over blocks, BLAS at one thread in each, results in order."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> Any:
    """A context in which BLAS runs at one thread: parallelism is over blocks."""
    return _blas().limit(limits=1)


def available_threads() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """function(item) for every item, in order, at most two results per thread in memory at a time."""
    threads = available_threads() if threads is None else threads
    items = iter(items)
    first = list(islice(items, 2))
    with one_blas_thread():
        if threads == 1 or len(first) < 2:
            for item in first:
                yield function(item)
            for item in items:
                yield function(item)
            return
        with ThreadPoolExecutor(threads) as pool:
            pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in first)
            for item in items:
                if len(pending) >= 2 * threads:
                    yield pending.popleft().result()
                pending.append(pool.submit(function, item))
            while pending:
                yield pending.popleft().result()
