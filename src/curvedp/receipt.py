"""`Receipt`: what a ledger gives for a charge, and what a release keeps of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Receipt:
    """Where in which ledger a release was charged.

    Attributes
    ----------
    ledger : str
        The id of the ledger: the beginning of the hash of its first record, the budget.
    charge : int
        The number of the charge, counted from 1.
    head : str
        The hash of the whole history up to and with this charge. `curvedp ledger verify LEDGER HEAD` shows
        later that nothing up to here was rewritten.
    time : str
        When it was charged (UTC).
    by, purpose : str
        Who charged and why, as the operator said; "" where nothing was said.
    """

    ledger: str
    charge: int
    head: str
    time: str
    by: str = ""
    purpose: str = ""
