"""Processes that share the work of a study and end silently on Ctrl-C: what they had not finished is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children

_SIGNALS = {signal.SIGINT}


@contextmanager
def worker_pool(workers: int, begin: Callable[[], object] | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that call `begin` first. An exception in the block ends them at once."""
    before = set(active_children())
    pool = ProcessPoolExecutor(workers, initializer=_begin_worker, initargs=(begin,))
    try:
        yield pool
    except BaseException:
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C waits until the block is over, in which a pool gets its work: new workers would show a traceback
    before they know what to do with it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def _begin_worker(begin: Callable[[], object] | None) -> None:
    for name in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # not those of the command it is forked from
        signal.signal(name, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if begin is not None:
        begin()
