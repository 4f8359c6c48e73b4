"""A description in words and tables, for terminals."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from curvedp.looks.description import Correlations, Description, LevelSummary
from curvedp.looks.estimates import Estimate

NOT_RESOLVED = "not resolved"
READING = (
    "± holds 95 times of 100 and is the privacy noise alone. Means, deviations and quartiles leave out "
    "missing numbers; numbers outside of the declared bounds count as the nearer bound."
)
_PAIRS = 10  # correlations shown
_LEVELS = 12  # levels shown of one column


@dataclass(frozen=True)
class Listing:
    """A titled table; the columns named in `right` are set flush right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str]


def with_noise(found: Estimate, unit: float = 1.0, sign: str = "") -> str:
    """value ± noise, both to two digits of the noise; `unit` 0.01 with the sign % for shares."""
    if not found.resolved:
        return NOT_RESOLVED
    value, noise = found.value / unit, found.noise / unit
    if not noise > 0:
        return f"{value:,.6g}{sign}"
    decimals = 1 - math.floor(math.log10(noise))
    if decimals > 8 or abs(value) >= 1e12:
        return f"{value:.4g} ±{noise:.2g}{sign}"
    return f"{number(value, decimals)} ±{number(noise, decimals)}{sign}"


def interval(found: Estimate, unit: float = 1.0) -> str:
    """low to high, to the digits of `with_noise`."""
    low, high, noise = found.low / unit, found.high / unit, found.noise / unit
    decimals = 1 - math.floor(math.log10(noise)) if noise > 0 else 6
    if decimals > 8 or max(abs(low), abs(high)) >= 1e12:
        return f"{low:.4g} to {high:.4g}"
    return f"{number(low, decimals)} to {number(high, decimals)}"


def number(value: float, decimals: int) -> str:
    """`value` rounded to so many decimals, none of them shown where they are negative; no −0."""
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"


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
                with_noise(column.missing, 0.01),
                *(with_noise(column.statistics[name]) for name in list(column.statistics)[1:]),
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
    rows = [(level, with_noise(share, 0.01)) for level, share in levels]
    rows += [(f"({more} more levels)", "")] if more > 1 else []
    rows.append(("(missing or other)", with_noise(column.missing, 0.01)))
    return [(column.name if i == 0 else "", *row) for i, row in enumerate(rows)]


def _strongest(correlations: Correlations) -> Listing:
    pairs = [pair for pair in correlations.pairs if pair[2].resolved]
    unresolved = len(correlations.pairs) - len(pairs)
    title = "Correlations" if len(pairs) <= _PAIRS else f"The strongest of {len(pairs)} correlations"
    title += f" ({unresolved} of {len(correlations.pairs)} {NOT_RESOLVED})" if unresolved else ""
    rows = [(a, b, with_noise(found)) for a, b, found in pairs[:_PAIRS]]
    return Listing(title, ("column", "with", "correlation"), rows, ("correlation",))


def summary_line(description: Description) -> str:
    """How many records, under which promise."""
    promise = description.privacy
    return (
        f"{with_noise(description.count)} records, released under (ε, δ) = ({promise.epsilon:g}, "
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
