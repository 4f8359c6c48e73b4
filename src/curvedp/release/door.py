"""`execute`, the one door: the only code that charges, draws a generator and lets a plan touch rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from curvedp.errors import InvalidInput, StoppedAfterCharge, shielded
from curvedp.plans import Plan, Source, require_room, room_of
from curvedp.privacy.guarantee import Guarantee
from curvedp.randomness import generator
from curvedp.release.ledger.file import Ledger
from curvedp.release.ledger.storage import Receipt

S = TypeVar("S", bound=Source)
T = TypeVar("T")
_UNEXPECTED = (
    "the computation stopped on an unexpected {}; nothing was released and the charge stands. Check that the "
    "data can be read to the end"
)


class Account(Protocol):
    """Where a release is charged; `curvedp.Ledger` is one."""

    def charge(self, guarantee: Guarantee, label: str = "") -> Receipt | None:
        """Take the cost, durably, and say where it is written; or raise and take nothing."""
        ...


Payer = Account | str | os.PathLike[str] | None  # an account, or the path of a ledger; None: nobody pays


def account(ledger: Payer) -> Account | None:
    """What is charged: an account as it is, a path as the ledger that lies there."""
    return Ledger(ledger) if isinstance(ledger, str | os.PathLike) else ledger


@dataclass(frozen=True, eq=False)
class Released(Generic[T]):
    """A private value, what its release promises (`private=False` with a seed), where it was charged."""

    value: T
    privacy: Guarantee
    receipt: Receipt | None = None


def execute(
    plan: Plan[S, T],
    rows: S,
    *,
    ledger: Account | None = None,
    label: str = "",
    random_state: int | None = None,
) -> Released[T]:
    """Check, charge, release: every private computation of the library goes through here.

    Parameters
    ----------
    plan : Plan
        A calibrated computation. Everything that could refuse it did so when it was made.
    rows : Rows
        The records, in the domain that the plan was made for.
    ledger : Ledger, optional
        Charged durably before anything is computed from the rows; whatever it raises stops here.
    label : str, default=""
        What the ledger's history calls this release.
    random_state : int, optional
        A seed, for research only: the release then says `private=False`, and a ledger refuses it.

    Returns
    -------
    released : Released
        The value, its guarantee and the ledger's receipt.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import Budget, Problem
    >>> from curvedp.data.rows import make_rows
    >>> from curvedp.mechanisms import Recentered
    >>> from curvedp.problems.losses import Squared
    >>> from curvedp.release.door import execute
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (2000, 2))
    >>> problem = Problem(Squared())
    >>> plan = Recentered().plan(problem, 2, Budget(1.0, 1e-6))
    >>> released = execute(plan, make_rows(X, X[:, 0], problem.domain))
    >>> released.value.theta.shape, released.privacy.epsilon
    ((2, 1), 1.0)
    """
    if ledger is not None and not hasattr(ledger, "charge"):
        raise InvalidInput(f"ledger must be a Ledger such as Ledger(path), or None; got {ledger!r}")
    if rows.layout != plan.layout:
        raise InvalidInput(
            f"the plan is for {plan.layout} and these rows are {rows.layout}: make both with one domain"
        )
    if not getattr(plan, "persons", False):
        plan.guarantee.neighbours.refuse_units(plan.guarantee.mechanism)
    plan.accept(rows)
    require_room(room_of([plan]))
    random = generator(random_state)
    guarantee = plan.guarantee if random_state is None else plan.guarantee.without_privacy()
    receipt = None if ledger is None else ledger.charge(guarantee, label)
    try:
        value = shielded(lambda: plan.release(rows, random), _UNEXPECTED.format)
    except KeyboardInterrupt:
        spent = f"; ε = {guarantee.epsilon:g}, δ = {guarantee.delta:g} were charged before and are spent"
        raise StoppedAfterCharge("stopped" + (spent if ledger else "")) from None
    return Released(value, guarantee, receipt)
