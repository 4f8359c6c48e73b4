"""Privacy budgets that cannot be overspent: `Ledger`, and what it shows of itself."""

from curvedp.ledger.file import Ledger
from curvedp.ledger.filters import Amount, Chargeable
from curvedp.ledger.statements import LedgerState, Subtotal
from curvedp.ledger.storage import Charge

__all__ = ["Amount", "Charge", "Chargeable", "Ledger", "LedgerState", "Subtotal"]
