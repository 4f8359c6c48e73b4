"""What a ledger shows of itself: its state at one instant, and what charges of one kind cost together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from curvedp.amounts import round_up
from curvedp.ledger.filters import FilterName, Tally
from curvedp.ledger.storage import Charge, Link, Origin
from curvedp.neighbours import Adjacency
from curvedp.receipt import Receipt


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
        The charge whose head was asked for; charge 0 is the new ledger. None where none was.
    inherited : int
        How many charges an earlier version wrote, in a format that said neither by whom nor why.
    inherited_head : str
        The hash of these, at which the earlier format ended; "" where there are none.
    """

    ledger: str
    charges: int
    head: str
    found: Receipt | None = None
    inherited: int = 0
    inherited_head: str = ""

    @property
    def after(self) -> int | None:
        """How many charges came after the one that was asked for."""
        return None if self.found is None else self.charges - self.found.charge


def surveyed(origin: Origin, links: Iterable[Link], asked: str | None) -> tuple[Verified, Tally]:
    """What a chain amounts to, and the exact sums of its charges; `asked` may be one of its heads."""
    found = Receipt(origin.ledger, 0, origin.digest, origin.created) if asked == origin.digest else None
    tally, head, inherited, inherited_head = Tally(), origin.digest, 0, ""
    for number, link in enumerate(links, 1):
        charge, head = link.charge, link.digest
        tally = tally.plus(charge.epsilon, charge.delta, charge.rho)
        if charge.by is None:
            inherited, inherited_head = number, head
        if head == asked:
            found = Receipt(origin.ledger, number, head, charge.time, charge.by or "", charge.purpose or "")
    return Verified(origin.ledger, tally.charges, head, found, inherited, inherited_head), tally


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
