"""Privacy budgets that cannot be overspent: `Ledger`, and what it shows of itself."""

from curvedp.ledger.file import Ledger
from curvedp.ledger.filters import Amount, Chargeable
from curvedp.ledger.statements import LedgerState, Subtotal, Verified
from curvedp.ledger.storage import Charge
from curvedp.receipt import Receipt

__all__ = ["Amount", "Charge", "Chargeable", "Ledger", "LedgerState", "Receipt", "Subtotal", "Verified"]
