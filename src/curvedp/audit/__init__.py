"""Does the code do what its theorems assume? Releases, replayed on neighbouring tables with equal answers."""

from curvedp.audit.cases import audit, audit_model, mechanism_case, model_case
from curvedp.audit.everything import audit_everything
from curvedp.audit.exam import exam
from curvedp.audit.report import Answer, Audit, audit_page, exit_code
from curvedp.audit.totals import Case, Pair

__all__ = [
    "Answer",
    "Audit",
    "Case",
    "Pair",
    "audit",
    "audit_everything",
    "audit_model",
    "audit_page",
    "exam",
    "exit_code",
    "mechanism_case",
    "model_case",
]
