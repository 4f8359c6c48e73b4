"""What every command that charges does: it opens the ledger, says what a signal cost, loses no release."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvedp.cli.console import TRACEBACK, ReaderGone, in_words
from curvedp.errors import CurvedpError, InvalidInput, StoppedAfterCharge

if TYPE_CHECKING:
    from curvedp.ledger import Ledger, LedgerState
    from curvedp.privacy.guarantee import Guarantee


@contextmanager
def opened(path: Path | None, by: str, purpose: str) -> Iterator[Ledger | None]:
    """The ledger to charge, if there is one. Whenever Ctrl-C comes, what it says is what the file says."""
    if path is None:
        if by or purpose:
            raise InvalidInput(
                "--by and --purpose are kept by a ledger: pass --ledger, too, or leave them out"
            )
        yield None
        return
    from curvedp.ledger import Ledger

    book = Ledger(path, by=by, purpose=purpose)
    before = book.state()
    try:
        yield book
    except StoppedAfterCharge:
        raise
    except KeyboardInterrupt:
        charged = _charged_since(book, before)
        if not charged:
            raise
        raise StoppedAfterCharge(f"stopped; {charged}") from None


def _charged_since(book: Ledger, before: LedgerState) -> str:
    """What was charged to the ledger meanwhile, in words; "" if nothing was."""
    try:
        charges = book.history()[before.charges :]
    except (CurvedpError, KeyboardInterrupt):  # a second Ctrl-C must not be answered by a guess
        return f"{book.path} was not read once more: curvedp ledger show says what was charged"
    if not charges:
        return ""
    return spent(sum(charge.epsilon for charge in charges), sum(charge.delta for charge in charges))


def spent(epsilon: float, delta: float) -> str:
    return f"ε = {epsilon:g}, δ = {delta:g} were charged before and are spent"


def made_whole(model: Any, fit: Callable[[], object]) -> bool:
    """Fit the model; False where Ctrl-C came when its release was made already, and is not to be lost."""
    try:
        fit()
    except KeyboardInterrupt:
        if not hasattr(model, "privacy_"):
            raise
        return False
    return True


@dataclass
class Paid:
    """A release that was paid for, and where it is; "" until it is written or printed."""

    where: str = ""

    def kept(self, path: Path) -> None:
        """It is on disk now."""
        self.where = f"what was released is in {path}"


@contextmanager
def after_the_charge(book: Ledger | None, promise: Guarantee, release: Callable[[], str]) -> Iterator[Paid]:
    """Once the budget is spent nothing is lost: what goes wrong says so, and where `release()` is kept."""
    charged = "the release was made before" if book is None else spent(promise.epsilon, promise.delta)
    paid = Paid()
    try:
        yield paid
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the second is how rich ends when nobody reads
        raise ReaderGone(
            f"nobody reads stdout any more; {charged}; {paid.where or _rescued(release)}"
        ) from None
    except KeyboardInterrupt:
        raise StoppedAfterCharge(f"stopped; {charged}; {paid.where or _rescued(release)}") from None
    except Exception as problem:
        if os.environ.get(TRACEBACK) == "1" and not isinstance(problem, CurvedpError | OSError):
            raise
        raise InvalidInput(f"{in_words(problem)}; {charged}; {paid.where or _rescued(release)}") from None


def _rescued(release: Callable[[], str]) -> str:
    """Where a release is that could not be written where it was asked for."""
    from curvedp.outputs import rescue

    try:
        text = release()
    except Exception:
        return "what was released could not be kept"
    try:
        return f"what was released is kept in {rescue(text)}"
    except CurvedpError:
        sys.stdout.write(text)
        return "what was released was printed"


def require_outlet(quiet: bool, option: str, *outlets: object) -> None:
    """Refuse, before anything is charged, a release that nobody would see; `option` names a file for it."""
    if quiet and not any(outlets):
        raise InvalidInput(
            "--quiet prints nothing and no file is asked for, so that what is paid for would be lost: pass "
            f"{option} or --json, or leave --quiet out"
        )
