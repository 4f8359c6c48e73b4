"""Does the code do what its theorems assume? Releases, replayed on neighbouring tables with equal answers."""

from curvedp.auditing.cases import audit, audit_everything, mechanism_case, model_case
from curvedp.auditing.exam import Answer, Audit, audit_page, exam
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
