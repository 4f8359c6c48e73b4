"""Does the code do what its theorems assume? Releases, replayed on neighbouring tables with equal answers."""

from curvedp.auditing.cases import audit, mechanism_case, model_case
from curvedp.auditing.everything import audit_everything
from curvedp.auditing.exam import exam
from curvedp.auditing.report import Answer, Audit, audit_page
from curvedp.auditing.totals import Case, Pair

__all__ = [
    "Answer",
    "Audit",
    "Case",
    "Pair",
    "audit",
    "audit_everything",
    "audit_page",
    "exam",
    "mechanism_case",
    "model_case",
]
