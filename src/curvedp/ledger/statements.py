"""What a ledger shows of itself: its state at one instant, and what charges of one kind cost together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from curvedp.amounts import round_up
from curvedp.errors import InvalidInput
from curvedp.ledger.filters import FilterName, Tally
from curvedp.ledger.storage import Charge, Kept, Link, Origin
from curvedp.neighbours import Adjacency
from curvedp.receipt import Receipt

HEAD_LENGTH = 64  # digits


@dataclass(frozen=True)
class LedgerState:
    """A ledger at one instant. What is spent is rounded up, what remains is rounded down.

    Attributes
    ----------
    epsilon, delta : float
        The total.
    adjacency : {"replace", "add_remove"}
        Between which tables all charges hold.
    filter : {"basic", "zcdp"}
        How charges add up.
    spent_epsilon, spent_delta, spent_rho : float
        What all charges cost together; `spent_rho` is None under the basic filter.
    remaining_epsilon, remaining_delta, remaining_rho : float
        What is left.
    charges : int
        How many there were.
    unit : str or None
        The column that says whose row it is; None: every row is a unit of its own.
    digest : str
        The head: the hash of the whole history. Written down elsewhere, it shows later whether the history up
        to here was rewritten (`Ledger.verify`).
    ledger : str
        The id of the ledger.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    filter: FilterName
    spent_epsilon: float
    spent_delta: float
    remaining_epsilon: float
    remaining_delta: float
    charges: int
    spent_rho: float | None = None
    remaining_rho: float | None = None
    unit: str | None = None
    digest: str = ""
    ledger: str = ""


@dataclass(frozen=True)
class Verified:
    """What a whole, sound history amounts to.

    Attributes
    ----------
    ledger : str
        The id of the ledger.
    charges : int
        How many there are.
    head : str
        The hash of all of them.
    found : Receipt or None
        The newest charge of the history whose head was asked for; charge 0 is the new ledger. None where
        none was.
    """

    ledger: str
    charges: int
    head: str
    found: Receipt | None = None

    @property
    def after(self) -> int | None:
        """How many charges came after the one that was asked for."""
        return None if self.found is None else self.charges - self.found.charge


@dataclass(frozen=True)
class OnRecord:
    """A charge, and what is kept of the release that it paid for.

    Attributes
    ----------
    receipt : Receipt
        What was given for the charge.
    charge : Charge
        What was charged.
    document, page : Kept or None
        The hashes of what was released; None where nothing is on record.
    """

    receipt: Receipt
    charge: Charge
    document: Kept | None = None
    page: Kept | None = None


def surveyed(origin: Origin, links: Iterable[Link], asked: str | None) -> tuple[Verified, Tally]:
    """What a chain amounts to, and the exact sums of its charges; `asked` may be one of its heads."""
    newest = Receipt(origin.ledger, 0, origin.digest, origin.created)
    found = newest if asked == origin.digest else None
    tally, head = Tally(), origin.digest
    for link in links:
        entry, head = link.entry, link.digest
        if isinstance(entry, Charge):
            tally = tally.plus(entry.epsilon, entry.delta, entry.rho)
            newest = _receipt(origin, link, entry)
        if head == asked:
            found = newest
    return Verified(origin.ledger, tally.charges, head, found), tally


def on_record(origin: Origin, links: Iterable[Link], number: int) -> OnRecord | None:
    """What a chain says of one charge; None where it has no such charge."""
    found: OnRecord | None = None
    for link in links:
        entry = link.entry
        if isinstance(entry, Charge):
            if link.charges == number:
                found = OnRecord(_receipt(origin, link, entry), entry)
        elif found is not None and entry.charge == number:
            kept = {"document": found.document, "page": found.page, entry.kind: entry}
            found = OnRecord(found.receipt, found.charge, **kept)
    return found


def _receipt(origin: Origin, link: Link, charge: Charge) -> Receipt:
    return Receipt(origin.ledger, link.charges, link.digest, charge.time, charge.by, charge.purpose)


def one_head(text: str) -> str:
    """A head as it was written down: hexadecimal digits, in either case."""
    head = text.strip().lower() if isinstance(text, str) else ""
    if len(head) != HEAD_LENGTH or not set(head) <= set("0123456789abcdef"):
        raise InvalidInput(
            f"a head has {HEAD_LENGTH} hexadecimal digits: copy all of them, as `curvedp ledger show` prints "
            "them"
        )
    return head


@dataclass(frozen=True)
class Subtotal:
    """What the charges with one label and one mechanism cost together.

    Attributes
    ----------
    label, mechanism : str
        What they have in common.
    charges : int
        How many there were.
    epsilon, delta : float
        Their sums, rounded up.
    rho : float or None
        The sum of their ρ; None where one of them has none.
    """

    label: str
    mechanism: str
    charges: int
    epsilon: float
    delta: float
    rho: float | None


def subtotals(charges: list[Charge]) -> list[Subtotal]:
    """The sums of the charges that share a label and a mechanism."""
    groups: dict[tuple[str, str], list[Charge]] = {}
    for charge in charges:
        groups.setdefault((charge.label, charge.mechanism), []).append(charge)
    return [_subtotal(*key, group) for key, group in groups.items()]


def _subtotal(label: str, mechanism: str, group: list[Charge]) -> Subtotal:
    tally = Tally()
    for charge in group:
        tally = tally.plus(charge.epsilon, charge.delta, charge.rho)
    rho = None if any(charge.rho is None for charge in group) else round_up(tally.rho)
    return Subtotal(label, mechanism, len(group), round_up(tally.epsilon), round_up(tally.delta), rho)
