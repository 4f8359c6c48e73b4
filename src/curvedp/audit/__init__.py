"""Attacks on every guarantee of the library: worst-case pairs, optimal scores, honest confidence bounds."""

from curvedp.audit.pages import write_html, write_png
from curvedp.audit.report import Attack, AuditReport
from curvedp.audit.runner import audit, audit_plan

__all__ = ["Attack", "AuditReport", "audit", "audit_plan", "write_html", "write_png"]
