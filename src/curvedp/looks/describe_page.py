"""The page of a description: small multiples of the columns, a heat map of correlations, every number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

from curvedp.charts import power
from curvedp.ledger import LedgerState
from curvedp.looks.describe_text import NOT_RESOLVED, interval, remarks, with_noise
from curvedp.looks.description import Correlations, Description, LevelSummary, NumericSummary
from curvedp.looks.estimates import Estimate
from curvedp.pages import environment

WIDTH, HEIGHT, FOOT = 280.0, 120.0, 18.0
SHOWN_LEVELS = 8
_CELL = "background: color-mix(in srgb, var(--c{colour}) {strength:.0f}%, transparent)"


def describe_page(description: Description, title: str, ledger: LedgerState | None = None) -> str:
    """One self-contained HTML page of released and public numbers."""
    g = description.privacy
    page = environment().get_template("describe.html")
    return page.render(
        d=description,
        g=g,
        title=title,
        count=with_noise(description.count),
        cards=[(column, _card(column)) for column in description.columns],
        heat=_heat(description.correlations) if len(description.numeric) > 1 else [],
        unresolved=sum(not pair[2].resolved for pair in description.correlations.pairs),
        statistics=_statistics(description),
        shown=_shown,
        remarks=remarks(description)[1:],
        ledger=ledger,
        document=description.to_dict(),
    )


def fragment(description: Description) -> str:
    """The numbers as one table, for notebooks."""
    page = environment().get_template("describe_table.html")
    return page.render(
        d=description,
        g=description.privacy,
        count=with_noise(description.count),
        statistics=_statistics(description),
    )


def _statistics(description: Description) -> list[tuple[str, str, str, str, Estimate]]:
    """(column, statistic, value, interval, estimate) of every column; shares in per cent."""
    found = []
    for column in description.columns:
        for name, estimate in column.statistics.items():
            unit = 0.01 if name == "missing" or name.startswith("share of ") else 1.0
            words = name.replace("_", " ") if isinstance(column, NumericSummary) else name
            words += ", %" if unit < 1 else ""
            texts = (_minus(with_noise(estimate, unit)), _minus(interval(estimate, unit)))
            found.append((column.name, words, *texts, estimate))
    return found


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _shown(found: Estimate, unit: float = 1.0, sign: str = "") -> str:
    return _minus(with_noise(found, unit, sign))


def _card(column: NumericSummary | LevelSummary) -> Markup:
    return histogram(column) if isinstance(column, NumericSummary) else level_bars(column)


def histogram(column: NumericSummary) -> Markup:
    """The bars between the declared bounds with their noise, the quartiles and the median above them."""
    first, last = column.histogram[0].low, column.histogram[-1].high
    top = max(max(bar.count.value for bar in column.histogram), 1.0)
    plot = HEIGHT - FOOT

    def x(value: float) -> float:
        return WIDTH * (value - first) / (last - first)

    def y(count: float) -> float:
        return plot * (1.0 - min(count / (1.08 * top), 1.0))

    parts = [
        f'<svg class="multiple" role="img" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'aria-label="Histogram of {escape(column.name)}"><title>Histogram of {escape(column.name)}</title>'
    ]
    low, high = column.lower_quartile, column.upper_quartile
    if low.resolved and high.resolved:
        parts.append(
            f'<rect class="middle" x="{x(low.value):.1f}" y="0" '
            f'width="{max(x(high.value) - x(low.value), 1.0):.1f}" height="{plot:g}"/>'
        )
    for bar in column.histogram:
        left, right = x(bar.low), x(bar.high)
        middle = 0.5 * (left + right)
        parts.append(
            f'<rect class="count" x="{left + 0.4:.2f}" y="{y(bar.count.value):.2f}" '
            f'width="{max(right - left - 0.8, 0.4):.2f}" height="{plot - y(bar.count.value):.2f}">'
            f"<title>{_plain(bar.low)} to {_plain(bar.high)}: {escape(with_noise(bar.count))}</title></rect>"
            f'<line class="noise" x1="{middle:.2f}" x2="{middle:.2f}" y1="{y(bar.count.high):.2f}" '
            f'y2="{y(bar.count.low):.2f}"/>'
        )
    if column.median.resolved:
        at = x(column.median.value)
        parts.append(f'<line class="median" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{plot:g}"/>')
    parts.append(
        f'<line class="axis" x1="0" x2="{WIDTH:g}" y1="{plot:g}" y2="{plot:g}"/>'
        f'<text x="{x(column.low):.1f}" y="{HEIGHT - 4:g}">{_plain(column.low)}</text>'
        f'<text class="end" x="{x(column.high):.1f}" y="{HEIGHT - 4:g}">{_plain(column.high)}</text></svg>'
    )
    return Markup("".join(parts))


def level_bars(column: LevelSummary) -> Markup:
    """The largest shares as bars with their noise, and what is missing."""
    largest = sorted(column.shares.items(), key=lambda item: -item[1].value)
    rows = [_level_row(level, share, "") for level, share in largest[:SHOWN_LEVELS]]
    if len(largest) > SHOWN_LEVELS:
        rows.append(f'<p class="soft small">and {len(largest) - SHOWN_LEVELS} more levels, below</p>')
    rows.append(_level_row("missing or other", column.missing, " soft"))
    return Markup(f'<div class="levels">{"".join(rows)}</div>')


def _level_row(level: str, share: Estimate, style: str) -> str:
    text = with_noise(share, 0.01, " %")
    ends = f'x1="{100 * share.low:.2f}%" x2="{100 * share.high:.2f}%" y1="5" y2="5"'
    return (
        f'<div class="level{style}"><span class="name">{escape(level)}</span>'
        f'<span class="share">{text}</span>'
        f'<svg aria-hidden="true"><rect class="count" y="1" height="8" width="{100 * share.value:.2f}%"/>'
        f'<line class="noise" {ends}/></svg></div>'
    )


def _heat(correlations: Correlations) -> Sequence[tuple[str, list[tuple[str, str, str]]]]:
    """(column, [(text, title, style)]) for each row of the matrix."""
    rows = []
    for j, name in enumerate(correlations.names):
        cells = []
        for k, other in enumerate(correlations.names):
            value, low, high = (
                float(m[j, k]) for m in (correlations.values, correlations.low, correlations.high)
            )
            if j == k:
                cells.append(("1", name, "color: var(--soft)"))
            elif np.isnan(value):
                cells.append(("·", f"{name} and {other}: {NOT_RESOLVED}", "color: var(--soft)"))
            else:
                style = _CELL.format(colour=0 if value > 0 else 1, strength=70 * math.sqrt(abs(value)))
                text = f"{value:z.2f}".replace("-", "−")
                cells.append((text, f"{name} and {other}: {low:z.2f} to {high:z.2f}", style))
        rows.append((name, cells))
    return rows


def _plain(value: float) -> Markup:
    return power(value, 6) if abs(value) < 1e9 else Markup(f"{value:.3g}")
