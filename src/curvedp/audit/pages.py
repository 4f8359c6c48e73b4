"""An audit for readers: one self-contained HTML page, or one figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from curvedp.audit.power import POWER
from curvedp.audit.report import Attack, AuditReport, Verdict
from curvedp.neighbours import Neighbours
from curvedp.outputs import write_file
from curvedp.pages import environment

COLOURS: dict[Verdict, str] = {"refuted": "#b3261e", "inconclusive": "#c77f00", "held": "#2c7a4b"}
_SHOWN = 12  # attacks per audit
_FAR = 3.0  # times the claim: bars end there


def audit_page(reports: Sequence[AuditReport]) -> str:
    """The HTML of one audit or of many."""
    page = environment().get_template("audit.html")
    verdicts = [r.verdict for r in reports]
    return page.render(
        reports=reports,
        counts={verdict: verdicts.count(verdict) for verdict in COLOURS},
        classes={"refuted": "bad", "held": "good", "inconclusive": "warn"},
        bar=_bar,
        shown=_SHOWN,
        words=lambda kind: Neighbours(kind).words,
    )


def audit_picture(reports: Sequence[AuditReport]) -> bytes:
    """Attacked against claimed ε, one bar per audit, as a PNG."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(8.0, 1.2 + 0.28 * len(reports)), layout="constrained")
    axes = figure.subplots()
    names = [f"{r.mechanism} {r.accounting} {r.loss} {r.adjacency} d={r.features}" for r in reports]
    shares = [min(r.share, _FAR) for r in reports]
    axes.barh(names, shares, color=[COLOURS[r.verdict] for r in reports])
    axes.axvline(1.0, color="#1c2330", linewidth=1.0)
    axes.axvline(POWER, color="#1c2330", linewidth=0.8, linestyle=":")
    axes.set_xlim(0.0, max(1.1, *shares))
    used = [verdict for verdict in COLOURS if any(r.verdict == verdict for r in reports)]
    axes.legend(
        [Patch(color=COLOURS[verdict]) for verdict in used],
        used,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        frameon=False,
    )
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
