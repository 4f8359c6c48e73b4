"""Looks on pages and in terminals, made of released and public numbers only."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from curvedp.charts import power
from curvedp.ledger import LedgerState
from curvedp.looks.check import TableCheck
from curvedp.looks.description import Correlations, Description, LevelSummary, NumericSummary
from curvedp.looks.noisy import NOT_RESOLVED
from curvedp.pages import rendered

READING = (
    "± holds 95 times of 100 and is the privacy noise alone. Means, deviations and quartiles leave out "
    "missing numbers; numbers outside of the declared bounds count as the nearer bound."
)
WIDTH, PLOT = 280.0, 102.0  # of a histogram
_PAIRS = 10  # correlations shown
_LEVELS = 12  # levels shown of one column


def check_page(found: TableCheck, record: str) -> str:
    """A check: every share as a bar with the interval of its noise; `record` says what one row is."""
    return rendered("check.html", c=found, g=found.privacy, record=record, document=found.to_dict())


def describe_page(description: Description, title: str, ledger: LedgerState | None = None) -> str:
    """A description: small multiples of the columns, a heat map of correlations, every number."""
    return rendered(
        "describe.html",
        d=description,
        g=description.privacy,
        title=title,
        places=_places,
        bound=lambda value: power(value, 6) if abs(value) < 1e9 else Markup(f"{value:.3g}"),
        remarks=remarks(description)[1:],
        ledger=ledger,
        document=description.to_dict(),
    )


def describe_table(description: Description) -> str:
    """The numbers as one table, for notebooks."""
    return rendered("describe_table.html", d=description, g=description.privacy)


def _places(column: NumericSummary) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Where a value lies from left to right, and a count from top to bottom, in a histogram."""
    first, last = column.histogram[0].low, column.histogram[-1].high
    top = 1.08 * max(max(bar.count.value for bar in column.histogram), 1.0)
    return (
        lambda value: WIDTH * (value - first) / (last - first),
        lambda count: PLOT * (1.0 - min(count / top, 1.0)),
    )


@dataclass(frozen=True)
class Listing:
    """A titled table; the columns named in `right` are set flush right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str]


def listings(description: Description) -> list[Listing]:
    """Numeric columns, levels, the strongest correlations."""
    found = []
    if description.numeric:
        headings = (
            "column",
            "missing, %",
            "mean",
            "std. deviation",
            "lower quartile",
            "median",
            "upper quartile",
        )
        rows = [
            (
                column.name,
                column.missing.words(0.01),
                *(column.statistics[name].words() for name in list(column.statistics)[1:]),
            )
            for column in description.numeric
        ]
        found.append(Listing("Numbers", headings, rows, headings[1:]))
    if description.categorical:
        shares = [row for column in description.categorical for row in _shares(column)]
        found.append(Listing("Levels", ("column", "level", "share, %"), shares, ("share, %",)))
    if any(found.resolved for _, _, found in description.correlations.pairs):
        found.append(_strongest(description.correlations))
    return found


def remarks(description: Description) -> list[str]:
    """How to read the tables, and what the noise left open."""
    lines = [READING, *(f"{c.name} counts {c.unit}." for c in description.numeric if c.unit)]
    if any(not found.resolved for column in description for found in column.statistics.values()):
        lines.append(
            "Not resolved: the noise leaves open more than half of what was possible, or whether "
            "a deviation is 0 at all. A few records far out would change it, and noise hides a few records: "
            "closer bounds or a larger ε resolve it; quartiles need less of both."
        )
    pairs = description.correlations.pairs
    if pairs and not any(found.resolved for _, _, found in pairs):
        lines.append(f"None of {len(pairs)} correlations is resolved.")
    return lines


def _shares(column: LevelSummary) -> list[tuple[str, str, str]]:
    """All levels, or the largest shares where there are many; the column is named once."""
    levels = list(column.shares.items())
    more = len(levels) - _LEVELS
    if more > 1:
        levels = sorted(levels, key=lambda item: -item[1].value)[:_LEVELS]
    rows = [(level, share.words(0.01)) for level, share in levels]
    rows += [(f"({more} more levels)", "")] if more > 1 else []
    rows.append(("(missing or other)", column.missing.words(0.01)))
    return [(column.name if i == 0 else "", *row) for i, row in enumerate(rows)]


def _strongest(correlations: Correlations) -> Listing:
    pairs = [pair for pair in correlations.pairs if pair[2].resolved]
    unresolved = len(correlations.pairs) - len(pairs)
    title = "Correlations" if len(pairs) <= _PAIRS else f"The strongest of {len(pairs)} correlations"
    title += f" ({unresolved} of {len(correlations.pairs)} {NOT_RESOLVED})" if unresolved else ""
    rows = [(a, b, found.words()) for a, b, found in pairs[:_PAIRS]]
    return Listing(title, ("column", "with", "correlation"), rows, ("correlation",))


def summary_line(description: Description) -> str:
    """How many records, under which promise."""
    promise = description.privacy
    return (
        f"{description.count.words()} records, released under (ε, δ) = ({promise.epsilon:g}, "
        f"{promise.delta:g}), {promise.adjacency}: {promise.mechanism}, {promise.theorem}."
    )


def as_text(description: Description, width: int = 120) -> str:
    """All of it as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(Text(summary_line(description)))
    for listing in listings(description):
        table = Table(title=Text(listing.title), title_justify="left")
        for heading in listing.headings:
            table.add_column(Text(heading), justify="right" if heading in listing.right else "left")
        for row in listing.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for line in remarks(description):
        console.print(Text(line))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue().rstrip("\n")
