"""What a ledger shows of itself: its state at one instant, and what charges of one kind cost together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from curvedp.errors import InvalidInput
from curvedp.ledger.filters import Filter, FilterName, Tally, floor
from curvedp.ledger.storage import BudgetTerms, Charge, Kept, Link
from curvedp.neighbours import Adjacency
from curvedp.privacy.costs import Cost, together
from curvedp.receipt import Receipt

HEAD_LENGTH = 64  # digits
USUAL, USUAL_DELTA = (1.0, 0.25), 1e-6  # the releases by which people measure what is left


@dataclass(frozen=True)
class LedgerState:
    """A ledger at one instant. What is spent is rounded up, what remains is rounded down.

    Attributes
    ----------
    epsilon, delta : float
        The total.
    adjacency : {"replace", "add_remove"}
        Between which tables all charges hold.
    filter : {"gaussian", "basic"}
        How charges add up: squares of μ, or ε and δ.
    spent_epsilon, spent_delta : float
        What all charges cost together, stated as one release.
    remaining_epsilon, remaining_delta : float
        One more release that would be granted.
    charges : int
        How many there were.
    spent : Cost
        The sums (√Σμ², Σe, Σd) of what was charged: their δ(ε) is `spent.delta_at`.
    left : str
        What is left, in words.
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
    spent: Cost = field(default_factory=Cost)
    left: str = ""
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


def surveyed(terms: BudgetTerms, links: Iterable[Link], asked: str | None) -> tuple[Verified, Tally]:
    """What a chain amounts to, and the exact sums of its charges; `asked` may be one of its heads."""
    newest = Receipt(terms.ledger, 0, terms.digest, terms.created)
    found = newest if asked == terms.digest else None
    tally, head = Tally(), terms.digest
    for link in links:
        entry, head = link.entry, link.digest
        if isinstance(entry, Charge):
            tally = tally.plus(entry.cost)
            newest = _receipt(terms, link, entry)
        if head == asked:
            found = newest
    return Verified(terms.ledger, tally.charges, head, found), tally


def on_record(terms: BudgetTerms, links: Iterable[Link], number: int) -> OnRecord | None:
    """What a chain says of one charge; None where it has no such charge."""
    found: OnRecord | None = None
    for link in links:
        entry = link.entry
        if isinstance(entry, Charge):
            if link.charges == number:
                found = OnRecord(_receipt(terms, link, entry), entry)
        elif found is not None and entry.charge == number:
            kept = {"document": found.document, "page": found.page, entry.kind: entry}
            found = OnRecord(found.receipt, found.charge, **kept)
    return found


def _receipt(terms: BudgetTerms, link: Link, charge: Charge) -> Receipt:
    return Receipt(terms.ledger, link.charges, link.digest, charge.time, charge.by, charge.purpose)


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
        The sums of what they state, rounded up.
    mu : float
        √Σμ² of what they were charged, rounded up; 0 under the basic filter.
    """

    label: str
    mechanism: str
    charges: int
    epsilon: float
    delta: float
    mu: float


def subtotals(charges: list[Charge]) -> list[Subtotal]:
    """The sums of the charges that share a label and a mechanism."""
    groups: dict[tuple[str, str], list[Charge]] = {}
    for charge in charges:
        groups.setdefault((charge.label, charge.mechanism), []).append(charge)
    return [_subtotal(*key, group) for key, group in groups.items()]


def _subtotal(label: str, mechanism: str, group: list[Charge]) -> Subtotal:
    stated = together(Cost(0.0, charge.epsilon, charge.delta) for charge in group)
    mu = together(charge.cost for charge in group).mu
    return Subtotal(label, mechanism, len(group), stated.epsilon, stated.delta, mu)


@lru_cache(maxsize=64)
def left_in_words(rule: Filter, tally: Tally) -> str:
    """How many more releases fit, of the kinds that people ask for."""
    asked = min(USUAL_DELTA, rule.delta)
    counts = [(rule.how_many(tally, epsilon, asked), epsilon) for epsilon in USUAL if epsilon <= rule.epsilon]
    if not counts:
        counts = [(rule.how_many(tally, rule.epsilon, asked), rule.epsilon)]
    if counts[-1][0] == 0:
        largest = floor(rule.largest_epsilon(tally, asked))
        return f"no more than one release at ε = {largest:g}, δ = {asked:g}" if largest > 0 else "nothing"
    (first, epsilon), *others = [(count, epsilon) for count, epsilon in counts if count > 0]
    also = "".join(f", or {count:,} at ε = {smaller:g}" for count, smaller in others)
    return f"about {first:,} more release{'s' * (first > 1)} at ε = {epsilon:g}{also}, δ = {asked:g}"
