"""How far a long computation is, for whoever listens; nobody does unless asked to.

What is told is a function of public and of released numbers: that one more round is done, of at most so many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def advance(most: int) -> None:
    """One more round is done, of at most `most`."""
    listener = _listener.get()
    if listener is not None:
        listener(most)


@contextmanager
def heard(by: Listener | None) -> Iterator[None]:
    """Within, every `advance(most)` calls `by(most)`; None: nobody hears of it."""
    token = _listener.set(by)
    try:
        yield
    finally:
        _listener.reset(token)
