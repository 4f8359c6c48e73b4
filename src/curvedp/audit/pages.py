"""An audit for readers: one self-contained HTML page, or one figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from curvedp.audit.report import Attack, AuditReport
from curvedp.neighbours import Neighbours
from curvedp.outputs import write_file
from curvedp.pages import environment

_SHOWN = 12  # attacks per audit


def audit_page(reports: Sequence[AuditReport]) -> str:
    """The HTML of one audit or of many."""
    page = environment().get_template("audit.html")
    beaten = sum(r.beaten for r in reports)
    return page.render(
        reports=reports, beaten=beaten, bar=_bar, shown=_SHOWN, words=lambda kind: Neighbours(kind).words
    )


def audit_picture(reports: Sequence[AuditReport]) -> bytes:
    """Attacked against claimed ε, one bar per audit, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 0.8 + 0.28 * len(reports)), layout="constrained")
    axes = figure.subplots()
    names = [f"{r.mechanism} {r.accounting} {r.loss} {r.adjacency} d={r.features}" for r in reports]
    shares = [r.epsilon_lower / r.epsilon for r in reports]
    axes.barh(names, shares, color=["#b3261e" if r.beaten else "#1f6f78" for r in reports])
    axes.axvline(1.0, color="#1c2330", linewidth=1.0)
    axes.set_xlim(0.0, max(1.1, *shares))
    axes.set_xlabel("ε proved by attack / ε claimed")
    axes.invert_yaxis()
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format="png")
    return content.getvalue()


def write_html(report: AuditReport | Sequence[AuditReport], path: Path | str) -> None:
    """One page for one audit or for many."""
    write_file(path, audit_page(_several(report)))


def write_png(report: AuditReport | Sequence[AuditReport], path: Path | str) -> None:
    """One picture for one audit or for many."""
    write_file(path, audit_picture(_several(report)))


def _several(report: AuditReport | Sequence[AuditReport]) -> list[AuditReport]:
    return [report] if isinstance(report, AuditReport) else list(report)


def _bar(attack: Attack, report: AuditReport) -> Markup:
    """Attacked ε as a bar; the line is the claim, at two thirds of the width."""
    share = min(max(attack.epsilon / report.epsilon, 0.0), 1.5) / 1.5
    return Markup(
        f'<svg aria-hidden="true"><rect x="0" y="3" width="{100 * share:.2f}%" height="10" rx="2"/>'
        '<line class="zero" x1="66.67%" x2="66.67%" y1="0" y2="16"/></svg>'
    )
