"""The one exception tree of the library.

CurvedpError
├── InvalidInput (ValueError)      a public argument is wrong; the message says what to pass
│   └── NotCovered                 no theorem of the library covers the request
├── CalibrationFailed              no noise level within reach meets the asked (ε, δ)
├── NotCertified                   the solver could not prove its answer: nothing is released
├── DataError (ValueError)         private rows cannot be read; names a column and a rule, never a value
├── BudgetError
│   ├── BudgetExceeded             the charge does not fit in what remains: nothing was computed
│   ├── LedgerUnreadable           the file is missing, locked, damaged or of a newer format
│   └── LedgerRefused              wrong adjacency, or a seeded (not private) run
└── ModelFileError (ValueError)    a model document that cannot be trusted or understood
"""


class CurvedpError(Exception):
    """Base of every error that curvedp raises on purpose."""


class InvalidInput(CurvedpError, ValueError):
    """A public argument is wrong; the message says what to pass instead."""


class NotCovered(InvalidInput):
    """No theorem of the library covers the request; the message names one that does."""


class CalibrationFailed(CurvedpError):
    """No noise level within reach meets the asked (ε, δ)."""


class NotCertified(CurvedpError):
    """The certified distance to the optimum exceeds the accounted η: nothing is released."""


class DataError(CurvedpError, ValueError):
    """Private rows cannot be read. Names the column and the rule, never a value."""


class BudgetError(CurvedpError):
    """Base of what a ledger refuses."""


class BudgetExceeded(BudgetError):
    """The charge does not fit in the remaining budget; nothing was computed."""


class LedgerUnreadable(BudgetError):
    """The ledger file is missing, locked, damaged or of a newer format."""


class LedgerRefused(BudgetError):
    """The ledger is sound but does not accept this charge (adjacency, seeded run)."""


class ModelFileError(CurvedpError, ValueError):
    """A model document that cannot be trusted or understood."""
