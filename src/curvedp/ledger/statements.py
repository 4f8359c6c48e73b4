"""What a ledger shows of itself: its state at one instant, and what charges of one kind cost together."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.amounts import round_up
from curvedp.ledger.filters import FilterName, Tally
from curvedp.ledger.storage import Charge
from curvedp.neighbours import Adjacency


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
        The hash of the whole history. A copy kept elsewhere shows later whether the history was rewritten.
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
