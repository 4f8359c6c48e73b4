"""`Ledger`: a privacy budget in one file, charged before anything is computed, never overspent.

A charge is durable before `charge` returns: a crash, a `kill -9` or a power loss can lose budget, never
privacy. Any number of threads and processes may charge one file at once; beside it lies `FILE-lock`, which
they hold in turn (`lock`). Every charge carries a hash of itself, of the exact totals and of the charge
before (`storage`). What is verified when:

- every call: the budget, the last charge with the totals, and that no charge is missing after it;
- opening: the newest 1,000 charges as well;
- `history`, `subtotals`: every charge;
- `verify`: every charge, the totals added up anew, every page of the file.

So damage that could give budget back is noticed before the next charge, at a cost that does not grow with the
history. The file does not protect against an owner who copies or rewrites it.
"""

from __future__ import annotations

import math
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import get_args

from curvedp.errors import InvalidInput, LedgerRefused, LedgerUnreadable, StoppedAfterCharge
from curvedp.ledger import migrate, storage
from curvedp.ledger.filters import FILTERS, Amount, Chargeable, FilterName, require_same
from curvedp.ledger.lock import held
from curvedp.ledger.statements import LedgerState, Subtotal, subtotals
from curvedp.ledger.storage import BudgetTerms, Charge, Damaged
from curvedp.neighbours import Adjacency, Neighbours

BUSY_SECONDS = 300.0  # how long to wait for others
LABEL_LENGTH = 200


class Ledger:
    """The privacy budget kept in a file.

    It holds the path alone, so copies, pickles and forks share the file.

    Parameters
    ----------
    path : str or path-like
        A file that `Ledger.create` made. One of curvedp 0.1 is rewritten in the present format, with all
        that was spent.

    Attributes
    ----------
    path : pathlib.Path
        The file.

    See Also
    --------
    curvedp.execute : Charges a ledger, then releases.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from curvedp import Budget, Ledger, Problem, private_fit
    >>> from curvedp.losses import Squared
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5)
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 2))
    >>> fit = private_fit(Problem(Squared()), X, X[:, 0], budget=Budget(1.0, 1e-6), ledger=ledger)
    >>> ledger.remaining()
    Amount(epsilon=2.0, delta=9e-06, rho=None)
    >>> [(charge.mechanism, charge.epsilon) for charge in ledger.history()]
    [('recentered', 1.0)]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self._transaction() as connection:
            storage.recent(connection)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = "replace",
        unit: str | None = None,
        filter: FilterName = "basic",
    ) -> Ledger:
        """Make a new ledger; an existing file is never overwritten.

        Parameters
        ----------
        path : str or path-like
            Where; a local disk, since locks on network disks may not work.
        epsilon, delta : float
            The total that all releases together may cost.
        adjacency : {"replace", "add_remove"}, default="replace"
            Between which tables; charges for others are refused.
        unit : str, optional
            The column that says whose row it is, where all rows of one person count together.
        filter : {"basic", "zcdp"}, default="basic"
            How charges add up. "basic": Σε and Σδ. "zcdp": Σρ, which goes further but only accepts
            mechanisms that are Gaussian throughout; the default fit (recentered) is not.

        Returns
        -------
        ledger : Ledger
            With nothing spent.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).state().remaining_epsilon
        3.0
        """
        target = Path(path)
        total = _amounts(epsilon, delta)
        if epsilon <= 0:
            raise InvalidInput("a budget needs epsilon > 0")
        if adjacency not in get_args(Adjacency):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {adjacency!r}')
        if unit is not None and not _is_one_line(unit):
            raise InvalidInput(f"unit must be one printable line of at most {LABEL_LENGTH} characters")
        if filter not in FILTERS:
            raise InvalidInput(f'filter must be "basic" or "zcdp", got {filter!r}')
        FILTERS[filter](*total)
        terms = BudgetTerms(*total, Neighbours(adjacency, unit), filter)
        try:
            _write_new(Path(os.path.realpath(target)), terms)
        except FileExistsError:
            raise LedgerRefused(
                f"{_shown(target)} exists already and a budget is never overwritten: open it, or choose "
                "another name"
            ) from None
        except OSError as error:
            raise LedgerUnreadable(
                f"cannot create {_shown(target)} ({error.strerror or 'it stayed locked'}): choose a folder "
                "that exists and can be written"
            ) from None
        except sqlite3.Error as error:
            raise LedgerUnreadable(
                f"cannot create {_shown(target)} ({error}): choose a disk with room"
            ) from None
        return cls(target)

    def charge(self, guarantee: Chargeable, label: str = "") -> None:
        """Take the cost of a release from the budget, durably, or raise and take nothing.

        `curvedp.execute` and all fits call this before they touch the rows.

        Parameters
        ----------
        guarantee : Guarantee
            What the release will promise.
        label : str, default=""
            What it is for: one printable line of at most 200 characters.

        Raises
        ------
        BudgetExceeded
            It does not fit in what remains.
        LedgerRefused
            It is not private, or holds between other tables than the budget.
        LedgerUnreadable
            The file is missing, locked or damaged.
        StoppedAfterCharge
            Ctrl-C came when the charge was being written: count it as spent.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Budget, Ledger, Problem
        >>> from curvedp.losses import Squared
        >>> from curvedp.mechanisms import Recentered
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=1.0, delta=1e-5)
        >>> plan = Recentered().plan(Problem(Squared()), 2, Budget(0.7, 1e-6))
        >>> ledger.charge(plan.guarantee, label="first look")
        >>> ledger.charge(plan.guarantee)
        Traceback (most recent call last):
        curvedp.errors.BudgetExceeded: the release costs (epsilon, delta) = (0.7, 1e-06) and (0.3, 9e-06) \
remains: ask for less, or stop here. Nothing was computed
        """
        if not guarantee.private:
            raise LedgerRefused(
                "a seeded or study run is not private, never charged: leave random_state or the ledger out"
            )
        epsilon, delta = _amounts(guarantee.epsilon, guarantee.delta)
        rho = guarantee.zcdp_rho
        if rho is not None and not (math.isfinite(rho) and rho >= 0):
            raise InvalidInput(f"zcdp_rho must be a finite number ≥ 0, got {rho!r}")
        if not _is_one_line(label):
            raise InvalidInput(f"label must be one printable line of at most {LABEL_LENGTH} characters")
        charge = Charge(
            time=storage.now(),
            mechanism=guarantee.mechanism,
            theorem=guarantee.theorem,
            epsilon=epsilon,
            delta=delta,
            rho=None if rho is None else float(rho),
            label=label,
        )
        granted = False
        try:
            with self._transaction(write=True) as connection:
                terms, last = storage.read_terms(connection), storage.position(connection)
                require_same(terms.neighbours, guarantee.neighbours)
                terms.filter.require_room(last.tally, guarantee)
                granted = True
                storage.append(connection, last, charge)
        except KeyboardInterrupt:
            if not granted:
                raise
            raise StoppedAfterCharge(
                f"stopped while ε = {epsilon:g}, δ = {delta:g} were charged, which may be spent: look at the "
                "ledger"
            ) from None

    def state(self) -> LedgerState:
        """Read the total, what is spent and what remains, at one instant.

        Returns
        -------
        state : LedgerState
            What all charges cost together, searches and bags of fits included; `subtotals` has the parts.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> state = Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).state()
        >>> state.charges, state.spent_epsilon, state.remaining_epsilon
        (0, 0.0, 3.0)
        """
        with self._transaction() as connection:
            terms, last = storage.read_terms(connection), storage.position(connection)
        spent, remaining = terms.filter.spent(last.tally), terms.filter.remaining(last.tally)
        return LedgerState(
            epsilon=terms.epsilon,
            delta=terms.delta,
            adjacency=terms.neighbours.adjacency,
            filter=terms.filter_name,
            spent_epsilon=spent.epsilon,
            spent_delta=spent.delta,
            remaining_epsilon=remaining.epsilon,
            remaining_delta=remaining.delta,
            charges=last.tally.charges,
            spent_rho=spent.rho,
            remaining_rho=remaining.rho,
            unit=terms.neighbours.unit,
            digest=last.digest,
        )

    def spent(self) -> Amount:
        """Add up what the charges so far cost.

        Returns
        -------
        amount : Amount
            `epsilon`, `delta`, and `rho` under the zcdp filter; rounded up.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).spent()
        Amount(epsilon=0.0, delta=0.0, rho=None)
        """
        state = self.state()
        return Amount(state.spent_epsilon, state.spent_delta, state.spent_rho)

    def remaining(self) -> Amount:
        """Say what is left. Under the basic filter a release that costs exactly this much is accepted.

        Returns
        -------
        amount : Amount
            `epsilon`, `delta`, and `rho` under the zcdp filter; rounded down.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).remaining()
        Amount(epsilon=3.0, delta=1e-05, rho=None)
        """
        state = self.state()
        return Amount(state.remaining_epsilon, state.remaining_delta, state.remaining_rho)

    def history(self) -> list[Charge]:
        """List every charge in order, after verifying them all.

        Returns
        -------
        charges : list of Charge
            Time (UTC), mechanism, theorem, cost and label.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).history()
        []
        """
        with self._transaction() as connection:
            return storage.everything(connection)

    def subtotals(self) -> list[Subtotal]:
        """Add up the charges that share a label and a mechanism: what a search or a bag of fits cost in all.

        Returns
        -------
        subtotals : list of Subtotal
            In the order of their first charge.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).subtotals()
        []
        """
        return subtotals(self.history())

    def verify(self) -> None:
        """Verify the whole file, in time that grows with the history; LedgerUnreadable where it is damaged.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5).verify()
        """
        with self._transaction() as connection:
            storage.add_up_again(connection, storage.everything(connection))

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction by the file's only holder, on disk when this returns; failures in plain words."""
        shown, real = _shown(self.path), Path(os.path.realpath(self.path))
        try:
            if not real.is_file():
                raise LedgerUnreadable(f"there is no ledger at {shown}: create one, or check the path")
            with held(str(real), BUSY_SECONDS):
                _check_file(real, shown)
                with storage.connect(real, BUSY_SECONDS) as connection:
                    _check_format(connection, shown)
                    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                    yield connection
                    connection.execute("COMMIT")
        except (sqlite3.Error, OSError, UnicodeDecodeError, Damaged) as error:
            raise LedgerUnreadable(_in_plain_words(error, shown)) from None


def _write_new(path: Path, terms: BudgetTerms) -> None:
    with held(str(path), BUSY_SECONDS):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        try:
            with storage.connect(path, BUSY_SECONDS) as connection:
                storage.create(connection, terms)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _check_file(path: Path, shown: str) -> None:
    """What can be told without opening the file."""
    found = path.stat()
    if found.st_size == 0:
        raise LedgerUnreadable(
            f"{shown} is empty: if its creation was interrupted, remove it and create it again"
        )
    if found.st_nlink > 1:  # SQLite's journal and our lock go by the name
        raise LedgerUnreadable(
            f"{shown} has {found.st_nlink} hard links, under whose names it could be spent at once: keep one "
            "name, use symbolic links for others"
        )


def _check_format(connection: sqlite3.Connection, shown: str) -> None:
    version = migrate.format_of(connection)
    if version is None:
        raise LedgerUnreadable(f"{shown} is a database but not a ledger: check the path")
    if version > storage.FORMAT:
        raise LedgerUnreadable(
            f"{shown} has format {version} and this curvedp reads up to {storage.FORMAT}: upgrade curvedp"
        )
    if version < 1:
        raise Damaged
    if version == 1:
        migrate.from_format_1(connection)


def _amounts(epsilon: float, delta: float) -> tuple[float, float]:
    """Both as floats, once they are what a cost can be."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidInput(f"{name} must be a number, got {type(value).__name__}")
    if not 0 <= delta < 1:
        raise InvalidInput("delta must lie in [0, 1); 1e-6 is a common choice")
    if not 0 <= epsilon <= sys.float_info.max:  # 10**400 is no float
        raise InvalidInput("epsilon must be a finite number ≥ 0")
    return float(epsilon), float(delta)


def _is_one_line(text: str) -> bool:
    return isinstance(text, str) and len(text) <= LABEL_LENGTH and text.isprintable()


def _shown(path: Path) -> str:
    return str(path) if str(path).isprintable() else ascii(str(path))


def _in_plain_words(error: Exception, shown: str) -> str:
    if isinstance(error, TimeoutError) or "locked" in str(error):
        return f"{shown} stayed locked for {BUSY_SECONDS:.0f} s: try again when others are done"
    # SQLITE_ERROR is a table that lacks something; sqlite3 fails to decode messages about damaged names
    sound = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR
    if sound or isinstance(error, OSError):
        reason = getattr(error, "strerror", None) or str(error)
        return f"cannot use {shown} ({reason}): the file and its folder must be readable and writable"
    return (
        f"{shown} is damaged or not a ledger: check the path, or restore a backup and count every release "
        "made since as spent"
    )
