"""Privacy budgets that cannot be overspent: `Ledger`, and what it shows of itself."""

from curvedp.release.ledger.file import Ledger
from curvedp.release.ledger.filters import Amount
from curvedp.release.ledger.storage import Charge, Kept, LedgerState, OnRecord, Receipt, Subtotal, Verified

__all__ = ["Amount", "Charge", "Kept", "Ledger", "LedgerState", "OnRecord", "Receipt", "Subtotal", "Verified"]
