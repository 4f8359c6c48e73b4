"""Privacy budgets that cannot be overspent: `Ledger`, and what it shows of itself."""

from curvedp.ledger.file import Ledger
from curvedp.ledger.filters import Amount
from curvedp.ledger.statements import LedgerState, OnRecord, Subtotal, Verified
from curvedp.ledger.storage import Charge, Kept
from curvedp.receipt import Receipt

__all__ = [
    "Amount",
    "Charge",
    "Kept",
    "Ledger",
    "LedgerState",
    "OnRecord",
    "Receipt",
    "Subtotal",
    "Verified",
]
