"""The one exception tree of the library, and the shield behind which records are touched.

A message writes the parameters that it speaks of in backquotes, as `x_norm` or `alpha=0`: so an error knows
them, and the command line prints its own spelling of them.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")
PARAMETER = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")  # name, and value if any, as messages write them


class CurvedpError(Exception):
    """Base of every error that curvedp raises on purpose."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that the message speaks of."""
        return tuple(found.group(1) for found in PARAMETER.finditer(str(self)))


class InvalidInput(CurvedpError, ValueError):
    """A public argument is wrong; the message says what to pass instead."""


class NotCovered(InvalidInput):
    """No theorem of the library covers the request; the message names one that does."""


class CalibrationFailed(CurvedpError):
    """No noise level within reach meets the asked (ε, δ)."""


class NotCertified(CurvedpError):
    """A solve missed the accuracy that was planned from public bounds: a bug, please report it."""


class DataError(CurvedpError, ValueError):
    """Private rows cannot be read. Names the column and the rule, never a value."""


class BudgetError(CurvedpError):
    """Base of what a ledger refuses."""


class BudgetExceeded(BudgetError):
    """The charge does not fit in the remaining budget; nothing was computed."""


class LedgerUnreadable(BudgetError):
    """The ledger file is missing, locked, damaged or of a newer format."""


class LedgerDamaged(LedgerUnreadable):
    """The file is not what a ledger wrote, or its history is not the one whose head was written down."""


class LedgerRefused(BudgetError):
    """The ledger is sound but does not accept this charge (adjacency, seeded run)."""


class ModelFileError(CurvedpError, ValueError):
    """A model document that cannot be trusted or understood."""


class StoppedAfterCharge(KeyboardInterrupt):
    """Ctrl-C once the budget was charged: what was charged is spent."""


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe, a socket or a device: it cannot be read twice, or has no end. What is absent passes."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidInput(f"{path} is no plain file but a pipe or a device: save its content as a file")


class PrivacyWarning(UserWarning):
    """What no promise covers: an exact number of these rows, or all rows of a person where no unit is named.

    The message says what to use.
    """


_LIBRARIES = ("curvedp.", "sklearn.", "joblib.")
_SCORED = (
    "this score is an exact number of these rows: no noise, no charge, covered by no promise. On private "
    "rows use curvedp.score(model, X, y, epsilon=..., delta=..., ledger=...), or in the tools of "
    "scikit-learn scoring=curvedp.analyses.scores.private_scorer(...); on public rows, filter "
    "curvedp.errors.PrivacyWarning out"
)
_warned: set[tuple[str, int]] = set()  # lines that were told: a search scores hundreds of times in one


def warn_of_exact_scores() -> None:
    """Called by every prediction: a PrivacyWarning where it is made for `model.score` or for a scorer of
    scikit-learn. It is given once, at the line of the caller who is neither of the two libraries."""
    frame: FrameType | None = sys._getframe(1)
    level, scored = 2, False
    while frame is not None and _module(frame).startswith(_LIBRARIES):
        scored |= _module(frame) == "sklearn.metrics._scorer" or frame.f_code.co_name == "score"
        frame, level = frame.f_back, level + 1
    line = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    if scored and line not in _warned:
        warnings.warn(_SCORED, PrivacyWarning, stacklevel=level)
        _warned.add(line)  # not where a filter made it an error: that is raised every time


_BUDGET = {"epsilon", "delta", "ledger"}
_EVERY_FOLD = (
    "Every fold of every candidate is a fit of its own, and a charge: give the estimator an `epsilon` of "
    "which that many fit (Ledger.how_many says how many do, inspect(search) how many there are), or a ledger "
    "with more left, or search within one charge by PrivateSearch"
)
_begun: Callable[[], object] = lambda: None  # noqa: E731 - the run of joblib whose first fit had room


def refuse_search(require: Callable[[], None]) -> None:
    """Called where scikit-learn copies an estimator: require() before the first fit of a search or of folds.

    An error of a fit is caught there, and called a misconfiguration; one of a copy is not. Left alone are
    later fits, since a refusal would throw away what earlier ones paid for, and searches over the budget.
    """
    global _begun
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _module(frame) == "sklearn.base":
        frame = frame.f_back
    if frame is None or not _module(frame).startswith("sklearn.model_selection"):
        return
    found, tasks = frame.f_locals, frame.f_code.co_name == "<genexpr>"
    changed = [*(found.get("parameters") or ()), str(found.get("param_name"))]
    if not tasks or _BUDGET & {name.split("__")[-1] for name in changed}:
        return
    while frame is not None and not _module(frame).startswith("joblib."):
        frame = frame.f_back
    run = None if frame is None else frame.f_locals.get("self")
    if run is None or run is _begun():
        return
    try:
        require()
    except BudgetExceeded as error:
        raise BudgetExceeded(f"{error}. {_EVERY_FOLD}") from None
    _begun = weakref.ref(run)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def shielded(work: Callable[[], Result], message: Callable[[str], str]) -> Result:
    """work(), such that nothing of the records it touches leaves by the side.

    Warnings are silent. An error that is not ours, whose text, cause or traceback may hold values, becomes a
    DataError with `message(kind)`; ours goes on without whatever it was raised from.
    """
    import numpy as np  # not above: `curvedp --help` needs no numerical library

    failure: CurvedpError
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except CurvedpError as error:
        failure = error
    except Exception as error:
        failure = DataError(message(type(error).__name__))
    failure.__cause__ = failure.__context__ = None
    raise failure.with_traceback(None)  # outside of the handler: no context is attached


# How far a long computation is, for whoever listens: a function of public and of released numbers.

Listener = Callable[[int], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def advance(most: int) -> None:
    """One more round is done, of at most `most`."""
    if (listener := _listener.get()) is not None:
        listener(most)


@contextmanager
def heard(by: Listener | None) -> Iterator[None]:
    """Within, every `advance(most)` calls `by(most)`; None: nobody hears of it."""
    token = _listener.set(by)
    try:
        yield
    finally:
        _listener.reset(token)
