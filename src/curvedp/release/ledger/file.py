"""`Ledger`: a privacy budget in one file, charged before anything is computed, never overspent.

A charge is durable before `charge` returns: a crash, a `kill -9` or a power loss can lose budget, never
privacy. Any number of threads and processes may charge one file at once; beside it lies `FILE-lock`, which
they hold in turn (`lock`). Every charge carries a hash of itself, of the exact totals and of the charge
entry before (`storage`). After a release the hash of what was released is kept beside its charge. What is
verified when:

- every call: the budget, the last entry with the totals, and that none is missing after it;
- opening: the newest 1,000 entries as well;
- `history`, `subtotals`, `on_record`: every entry;
- `verify`: every entry, the totals added up anew, every page of the file.

So damage that could give budget back is noticed before the next charge, at a cost that does not grow with the
history. The file alone does not protect against an owner who copies or rewrites it; against a head that was
written down elsewhere `verify` notices every rewriting of what came before it.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from curvedp.errors import InvalidInput, LedgerDamaged, LedgerRefused, LedgerUnreadable, StoppedAfterCharge
from curvedp.privacy.budget import Adjacency, Neighbours
from curvedp.release.ledger import filters, storage
from curvedp.release.ledger.filters import FILTERS, Amount, FilterName, Tally, require_amounts
from curvedp.release.ledger.opening import shown, transaction, write_new
from curvedp.release.ledger.storage import Charge, Fingerprint, Kept, LedgerState, OnRecord, Receipt

if TYPE_CHECKING:
    from curvedp.privacy.guarantee import Guarantee

LABEL_LENGTH = 200


class Ledger:
    """The privacy budget kept in a file.

    It holds the path, so copies, pickles and forks share the file.

    Parameters
    ----------
    path : str or path-like
        A file that `Ledger.create` made.
    by, purpose : str, default=""
        Who charges through this object and why, one printable line of at most 200 characters each. Every
        charge keeps both; they are hashed with it.

    See Also
    --------
    curvedp.execute : Charges a ledger, then releases.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from curvedp import Budget, Ledger, Problem, private_fit
    >>> from curvedp.problems.losses import Squared
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5)
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 2))
    >>> fit = private_fit(Problem(Squared()), X, X[:, 0], budget=Budget(1.0, 1e-6), ledger=ledger)
    >>> ledger.remaining().epsilon > 2.7
    True
    >>> [(charge.mechanism, charge.epsilon) for charge in ledger.history()]
    [('recentered', 1.0)]
    """

    def __init__(self, path: str | os.PathLike[str], by: str = "", purpose: str = "") -> None:
        for name, text in (("by", by), ("purpose", purpose)):
            _require_one_line(name, text)
        self.path, self.by, self.purpose = _path_of(path), by, purpose
        with transaction(self.path) as connection:
            storage.position(connection, newest=1000)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = "replace",
        unit: str | None = None,
        filter: FilterName = "gaussian",
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
            The column that says whose row it is, where all rows of one person count together: it then pays
            for every release with that unit, and for no other.
        filter : {"gaussian", "basic"}, default="gaussian"
            How charges add up. "gaussian": squares, Σμ², so that (3, 1e-5) pays for nine fits at (1, 1e-6);
            releases that are not Gaussian are charged by a Gaussian curve above their own. "basic": Σε and
            Σδ, for rules that ask for it, and where most releases are purely ε-private.

        Returns
        -------
        ledger : Ledger
            With nothing spent.
        """
        target = _path_of(path)
        total = require_amounts(epsilon, delta)
        if epsilon <= 0:
            raise InvalidInput("a budget needs epsilon > 0")
        if unit is not None:
            _require_one_line("unit", unit)
        if filter not in FILTERS:
            raise InvalidInput(f'filter must be "gaussian" or "basic", got {filter!r}')
        budget = storage.Position(filters.Filter(filter, *total), Neighbours(adjacency, unit))
        try:
            write_new(Path(os.path.realpath(target)), budget)
        except FileExistsError:
            raise LedgerRefused(
                f"{shown(target)} exists already and a budget is never overwritten: open it, or choose "
                "another name"
            ) from None
        except OSError as error:
            raise LedgerUnreadable(
                f"cannot create {shown(target)} ({error.strerror or 'it stayed locked'}): choose a folder "
                "that exists and can be written"
            ) from None
        except sqlite3.Error as error:
            raise LedgerUnreadable(
                f"cannot create {shown(target)} ({error}): choose a disk with room"
            ) from None
        return cls(target)

    def charge(self, guarantee: Guarantee, label: str = "") -> Receipt:
        """Take the cost of a release from the budget, durably, or raise and take nothing.

        `curvedp.execute` and all fits call this before they touch the rows.

        Parameters
        ----------
        guarantee : Guarantee
            What the release will promise.
        label : str, default=""
            What it is for: one printable line of at most 200 characters.

        Returns
        -------
        receipt : Receipt
            Where in the ledger the charge stands, and the head of the history with it.

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
        >>> from curvedp.problems.losses import Squared
        >>> from curvedp.mechanisms import Recentered
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=1.0, delta=1e-5)
        >>> plan = Recentered().plan(Problem(Squared()), 2, Budget(0.9, 1e-6))
        >>> ledger.charge(plan.guarantee, label="first look").charge
        1
        >>> ledger.charge(plan.guarantee)  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        curvedp.errors.BudgetExceeded: the release at (ε, δ) = (0.9, 1e-06) does not fit in what is left
        """
        if not guarantee.private:
            raise LedgerRefused(
                "a seeded or study run is not private, never charged: leave `random_state` or the ledger out"
            )
        epsilon, delta = require_amounts(guarantee.epsilon, guarantee.delta)
        _require_one_line("label", label)
        with transaction(self.path) as connection:
            rule = storage.start(connection).filter
        if rule.name == "gaussian":
            for cost in guarantee.costs:  # they may take a while: not under the lock
                filters.require_cost(cost)
        granted = False
        try:
            with transaction(self.path, write=True) as connection:
                last = storage.position(connection)
                filters.require_same(last.neighbours, guarantee.neighbours)
                cost = last.filter.grant(last.tally, guarantee)
                charge = Charge(
                    time=storage.now(),
                    mechanism=guarantee.mechanism,
                    theorem=guarantee.theorem,
                    epsilon=epsilon,
                    delta=delta,
                    mu=cost.mu,
                    charged_epsilon=cost.epsilon,
                    charged_delta=cost.delta,
                    label=label,
                    by=self.by,
                    purpose=self.purpose,
                    nonce=storage.nonce(),
                )
                granted = True
                end = storage.append(connection, last, charge)
        except KeyboardInterrupt:
            if not granted:
                raise
            raise StoppedAfterCharge(
                f"stopped while ε = {epsilon:g}, δ = {delta:g} were charged, which may be spent: look at the "
                "ledger"
            ) from None
        return Receipt(end.ledger, end.tally.charges, end.digest, charge.time, self.by, self.purpose)

    def keep(self, receipt: Receipt, released: Fingerprint, *, page: bool = False) -> None:
        """Keep the hash of the document, or of the page, that a charge released: durably, and once.

        Fits, searches and looks call this when their release is made; `curvedp verify` compares with it.
        """
        kind: Literal["document", "page"] = "page" if page else "document"
        kept = Kept(receipt.charge, kind, released.sha256, dict(released.fields))
        with transaction(self.path, write=True) as connection:
            last = storage.position(connection)
            if last.ledger != receipt.ledger or not 1 <= receipt.charge <= last.tally.charges:
                raise LedgerRefused("this ledger did not give that receipt: pass the one that did")
            known = "SELECT 1 FROM entries WHERE charge = ? AND kind = ?"
            if connection.execute(known, (kept.charge, kept.kind)).fetchone() is not None:
                raise LedgerRefused(f"what charge {kept.charge} released is on record and stays: charge anew")
            storage.append(connection, last, kept)

    def on_record(self, charge: int) -> OnRecord | None:
        """Find a charge by its number, and what is kept of its release, after verifying the whole history."""
        charged: tuple[Receipt, Charge] | None = None
        kept: dict[str, Kept] = {}
        with transaction(self.path) as connection:
            for entry, _, receipt in storage.walk(connection):
                if isinstance(entry, Kept) and entry.charge == charge:
                    kept[entry.kind] = entry
                elif isinstance(entry, Charge) and receipt.charge == charge:
                    charged = receipt, entry
        return charged and OnRecord(*charged, kept.get("document"), kept.get("page"))

    def state(self) -> LedgerState:
        """Read the total, what is spent and what remains, at one instant."""
        last = self._now()
        rule, tally = last.filter, last.tally
        spent, remaining = rule.spent(tally), rule.remaining(tally)
        return LedgerState(
            epsilon=rule.epsilon,
            delta=rule.delta,
            adjacency=last.neighbours.adjacency,
            filter=rule.name,
            spent_epsilon=spent.epsilon,
            spent_delta=spent.delta,
            remaining_epsilon=remaining.epsilon,
            remaining_delta=remaining.delta,
            charges=tally.charges,
            spent=tally.cost,
            left=storage.left_in_words(rule, tally),
            unit=last.neighbours.unit,
            digest=last.digest,
            ledger=last.ledger,
        )

    def spent(self) -> Amount:
        """(ε, δ) that the charges so far cost, as of one release with their sums; rounded up."""
        last = self._now()
        return last.filter.spent(last.tally)

    def remaining(self) -> Amount:
        """(ε, δ) of one more release that is granted, Gaussian under the Gaussian filter; rounded down."""
        last = self._now()
        return last.filter.remaining(last.tally)

    def how_many(self, epsilon: float, delta: float) -> int:
        """How many more releases at (ε, δ) fit; purely ε-private ones where δ is 0."""
        asked = require_amounts(epsilon, delta)
        if asked[0] <= 0:
            raise InvalidInput("ask for an epsilon > 0")
        last = self._now()
        return last.filter.how_many(last.tally, *asked)

    def refuse_beyond(self, epsilon: float, delta: float) -> None:
        """Refuse at once, before it is planned, what no Gaussian or purely private release could get."""
        last = self._now()
        last.filter.refuse_beyond(last.tally, *require_amounts(epsilon, delta))

    def history(self) -> list[Charge]:
        """List every charge in order, after verifying them all."""
        with transaction(self.path) as connection:
            return [entry for entry, *_ in storage.walk(connection) if isinstance(entry, Charge)]

    def subtotals(self) -> list[storage.Subtotal]:
        """Sums of the charges that share a label and a mechanism: what a search or a bag of fits cost."""
        return storage.subtotals(self.history())

    def verify(self, head: str | None = None) -> storage.Verified:
        """Verify the whole file: every charge, the sums added up anew, every page.

        Without `head` this notices damage, and edits by whoever does not know how the hashes are made. With
        a head that was written down elsewhere (`LedgerState.digest`, `Receipt.head`, a report) it notices
        every edit, deletion and change of order up to that moment, however well the hashes were made anew.

        Parameters
        ----------
        head : str, optional
            The head at some earlier moment.

        Returns
        -------
        verified : Verified
            How many charges there are, the present head, and at which charge `head` was the head.

        Raises
        ------
        LedgerDamaged
            The file is damaged, or its history never had this head: it was rewritten, or is another ledger's.

        Examples
        --------
        >>> import tempfile
        >>> from curvedp import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5)
        >>> written_down = ledger.state().digest
        >>> ledger.verify(written_down).after
        0
        """
        asked = head.strip().lower() if isinstance(head, str) else head
        if asked is not None and not (isinstance(asked, str) and storage.HEAD.fullmatch(asked)):
            raise InvalidInput(
                "a head has 64 hexadecimal digits: copy all of them, as `curvedp ledger show` prints them"
            )
        with transaction(self.path) as connection:
            new, tally = storage.start(connection), Tally()
            last = new.digest
            found = Receipt(new.ledger, 0, last, new.created) if asked == last else None
            for entry, last, receipt in storage.walk(connection):
                tally = tally.plus(entry.cost) if isinstance(entry, Charge) else tally
                found = receipt if last == asked else found
            pages = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            if storage.position(connection).tally != tally or pages != ["ok"]:
                raise storage.Damaged
        if asked is not None and found is None:
            raise LedgerDamaged(
                f"{shown(self.path)} never had the head {asked}: its history was rewritten, the file was "
                "replaced, or the head is another ledger's. Trust none of it: count every release as spent"
            )
        return storage.Verified(new.ledger, tally.charges, last, found)

    def _now(self) -> storage.Position:
        with transaction(self.path) as connection:
            return storage.position(connection)

    def __repr__(self) -> str:
        said = "".join(f", {name}={text!r}" for name in ("by", "purpose") if (text := getattr(self, name)))
        return f"Ledger({str(self.path)!r}{said})"


def _path_of(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(
            f"a ledger is named by the path of its file, and ledger=None is none; got {path!r}"
        )
    return Path(path)


def _require_one_line(name: str, text: str) -> None:
    if not (isinstance(text, str) and len(text) <= LABEL_LENGTH and text.isprintable()):
        raise InvalidInput(f"{name} must be one printable line of at most {LABEL_LENGTH} characters")
