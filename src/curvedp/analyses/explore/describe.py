"""`describe`: what the columns of a table hold, as one charged release (D-1); its text and page."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from curvedp.analyses.explore.check import TableCheck
from curvedp.analyses.explore.description import Description, GroupedDescription, NoisySums, NumericSummary
from curvedp.analyses.explore.noisy import NOT_RESOLVED, ONCE, WIDTHS, GaussianPlan, Part, Split, Z
from curvedp.analyses.explore.tallies import OTHER, TableLayout, TalliedTable, tallied
from curvedp.arrays import TableLike
from curvedp.data.rows.base import SUM_SLACK
from curvedp.data.schema import Schema
from curvedp.errors import InvalidInput
from curvedp.pages import power, rendered
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Parameter
from curvedp.release.door import Payer, account, execute
from curvedp.release.ledger.storage import LedgerState
from curvedp.release.record import keep

Described = Description | GroupedDescription


def queries(layout: TableLayout) -> dict[str, Part]:
    """What is released from a table of this layout, with the sensitivities of (D-1), or of (D-2)."""
    neighbours = layout.neighbours
    d, c = len(layout.numeric), len(layout.categorical)
    levels = sum(len(column.levels) + 1 for column in layout.categorical)
    nodes = sum(bins.nodes for bins in layout.bins)
    one, several = neighbours.sum_factor * math.sqrt(d), neighbours.histogram_factor
    products = math.sqrt(d * (d - 1) / 2.0) if neighbours.moves == 1 else float(d)
    in_range, slack = "count of numbers in a range", SUM_SLACK * (d + 1)  # ‖(x, 1)‖² ≤ d + 1
    found = {
        "levels": Part(levels, 0.4 * c / max(c + d, 1), several * math.sqrt(c), "count of a level"),
        "nodes": Part(nodes, 0.4 * d / max(c + d, 1), several * math.sqrt(WIDTHS * d), in_range),
        "sums": Part(d, 0.25, one + slack, "sum of a numeric column on [−1, 1]"),
        "squares": Part(d, 0.1, one / 2.0 + slack, "sum of its squares"),
        "pairs": Part(d * (d - 1) // 2, 0.25, products + slack, "sum of products of two of them"),
    }
    if layout.by is not None:
        sizes, both = layout.cell_sizes, len(layout.ways)
        K, root = both * math.prod(map(len, layout.group_levels)), math.sqrt(both)
        tall, wide, of_nodes = math.sqrt(len(sizes)), 0.5 * math.sqrt(d), found["nodes"].sensitivity
        found = {
            "cells": Part(K * sum(sizes), 0.5 * tall, root * several * tall, "count of a cell of a group"),
            "sums": Part(K * d, wide, root * (one + slack), "sum of a number on [−1, 1] in a group"),
            "squares": Part(K * d, 0.2 * wide, root * (one / 2.0 + slack), "sum of its squares"),
            "nodes": Part(K * nodes, wide, root * of_nodes, in_range),
        }
    return {name: query for name, query in found.items() if query.dim}


@dataclass(frozen=True, eq=False)
class DescribePlan(GaussianPlan):
    """Noise for the counts and moments of a table (D-1), of rows or of persons (U-2)."""

    layout: TableLayout
    mechanism = "describe"
    theorem = "(D-1)"

    @classmethod
    def calibrated(cls, layout: TableLayout, budget: Budget) -> Self:
        if not budget.delta > 0:
            raise InvalidInput("a description adds Gaussian noise, which needs delta > 0: pass `delta=1e-6`")
        return cls(layout, budget, Split.of(queries(layout), budget))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        words = "standard deviation of the noise on each"
        asked = [(name, f"{words} {part.meaning}") for name, part in self.split.parts.items()]
        sigma = {name: grid.sigma for name, grid in self.grids.items()}
        return tuple(Parameter(f"sigma_{n}", "σ", told, sigma[n], is_noise=True) for n, told in asked)

    @property
    def room(self) -> float:
        """Bytes of what is made of the sums. Measured: 95,000 doubles for the histogram of a numeric column,
        20 matrices of d × d for correlations, 1 kB for a level, or for a number of a group."""
        d, numbers = len(self.layout.numeric), sum(part.dim for part in self.split.parts.values())
        return 8.0 * (120_000.0 * d + 30.0 * d**2) + 2000.0 * numbers

    @property
    def fewest_rows(self) -> int:
        """With fewer, the noise would leave open every share and every mean."""
        reach = {"levels": 4.0 * Z, "nodes": 4.0 * Z, "cells": 4.0 * Z, "sums": 2.0 * Z}
        return math.ceil(min(reach[part] * grid.sigma for part, grid in self.grids.items() if part in reach))

    def accept(self, table: TalliedTable) -> None:
        if table.source.count is not None:  # else it takes a pass over the rows to know it
            super().accept(table)

    def require(self, rows: int) -> None:
        if rows < self.fewest_rows:
            raise InvalidInput(
                f"at epsilon = {self.budget.epsilon:g} noise hides everything about a table of fewer than "
                f"{self.fewest_rows:,} {self.layout.neighbours.counted}, and this one has fewer: raise "
                "epsilon, or declare fewer columns"
            )

    def release(self, table: TalliedTable, random: np.random.Generator) -> NoisySums:
        exact = table.sums()
        noisy = {part: grid.add(exact[part], random, part) for part, grid in self.grids.items()}
        scales = {part: grid.sigma for part, grid in self.grids.items()}
        everyone = np.split(exact["cells"][:, 0], len(self.layout.ways))[0]
        count = float(everyone.sum()) if self.layout.neighbours.count_is_public else None
        return NoisySums(self.layout, noisy, scales, count)


class GroupPlan(DescribePlan):
    """The same of every group, of rows beside persons where these are asked for (D-2)."""

    theorem = "(D-2)"


def describe(
    table: TableLike,
    schema: Schema | str | os.PathLike[str],
    *,
    epsilon: float,
    delta: float = 1e-6,
    by: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    rows_up_to: int | None = None,
    quartiles: bool = False,
    ledger: Payer = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> Described:
    """What the columns of a private table hold: one charge for everything.

    The number of records, the frequencies of levels, means, standard deviations, medians, quartiles and a
    histogram of every numeric column, and their correlations, each with the interval of its noise. All
    columns that the schema declares are described, a target like the others. With a `unit` every person
    counts once, in equal parts over all rows of that person: counts, shares, means and quartiles are those of
    persons (U-2).

    With `by`, a table of every group instead: counts, shares and means, with intervals for the population
    that hold noise and sampling together.

    Parameters
    ----------
    table : data frame, mapping, path of a CSV or Parquet file, array or Dask data frame
        The records. A file, or a folder of Parquet files, is read chunk by chunk.
    schema : Schema or path
        The declared columns. Numbers outside of their bounds are clipped to them.
    epsilon, delta : float
        What the description may cost.
    by : sequence of str, optional
        Categories and truth values whose declared levels, crossed, are the groups. A person whose rows lie
        in several of them counts in parts, 1 in all.
    columns : sequence of str, optional
        Only these are described: the fewer, the less noise. All declared ones if left out.
    rows_up_to : int, optional
        Tell means and shares of rows beside those of persons, with `by` or without: each row of a person
        with up to so many counts fully, and one with more counts as so many in all. None: persons alone.
    quartiles : bool, default=False
        With `by`: quartiles of every group, too, for a part of the budget.
    ledger : Ledger, path or Account, optional
        Charged before anything is computed from the table.
    delimiter : str, optional
        What separates the cells of a CSV file; what the schema says if it is left out.
    random_state : int, optional
        A seed, for research: the description is then not private.

    Returns
    -------
    description : Description or, with `by` or `rows_up_to`, GroupedDescription
        The released numbers and their guarantee. It shows itself as a table in notebooks and terminals.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp.analyses.explore import describe
    >>> from curvedp import Categorical, Numeric, Schema
    >>> random = np.random.default_rng(0)
    >>> table = {"age": random.normal(40, 10, 20_000), "union": random.choice(["no", "yes"], 20_000)}
    >>> schema = Schema([Numeric("age", 0, 120), Categorical("union", ["no", "yes"])])
    >>> description = describe(table, schema, epsilon=0.5)
    >>> description.privacy.epsilon, description.count.value
    (0.5, 20000.0)
    >>> age = description["age"]
    >>> abs(age.mean.value - 40) < 3, age.median.low <= age.median.value <= age.median.high
    (True, True)
    """
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    book, budget = account(ledger), Budget(epsilon, delta)
    asked = {"columns": columns, "by": by, "rows_up_to": rows_up_to, "quartiles": quartiles}
    source = tallied(table, declared, delimiter=delimiter, **asked)
    grouped = source.layout.by is not None
    kind, told = (GroupPlan, GroupedDescription) if grouped else (DescribePlan, Description)
    plan = kind.calibrated(source.layout, budget)
    released = execute(plan, source, ledger=book, label="describe", random_state=random_state)
    found = told.of(released, declared.protects)
    keep(book, released.receipt, found.to_dict)
    return found


# Looks on pages and in terminals, made of released and public numbers only.

READING = (
    "± holds 95 times of 100 and is the privacy noise alone. Means, deviations and quartiles leave out "
    "missing numbers; numbers outside of the declared bounds count as the nearer bound."
)
OF_GROUPS = (
    "± holds 95 times of 100: of counts the privacy noise alone, of shares, means and quartiles noise and "
    "chance of the sample together. Counts of groups add up to those of their margins."
)
WIDTH, PLOT = 280.0, 102.0  # of a histogram
_PAIRS, _LEVELS = 10, 12  # correlations shown, and levels of one column


def check_page(found: TableCheck, record: str) -> str:
    """A check: every share as a bar with the interval of its noise; `record` says who is protected."""
    return rendered("check.html", c=found, g=found.privacy, record=record, document=found.to_dict())


def describe_page(description: Described, title: str, ledger: LedgerState | None = None) -> str:
    """Small multiples of the columns and a heat map of correlations, or charts by group; every number."""
    grouped = isinstance(description, GroupedDescription)
    return rendered(
        "groups.html" if grouped else "describe.html",
        shown=_shown(description) if isinstance(description, GroupedDescription) else (),
        listings=listings(description),
        d=description,
        g=description.privacy,
        title=title,
        places=_places,
        bound=lambda value: power(value, 6) if abs(value) < 1e9 else Markup(f"{value:.3g}"),
        remarks=remarks(description)[0 if grouped else 1 :],
        ledger=ledger,
        document=description.to_dict(),
    )


def describe_table(description: Described) -> str:
    """The numbers as one table, or several, for notebooks."""
    if isinstance(description, GroupedDescription):
        return rendered("_listings.html", listings=listings(description), remarks=remarks(description))
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


def listings(description: Described) -> list[Listing]:
    """Numeric columns, levels, the strongest correlations; by group, counts and then column after column."""
    if isinstance(description, GroupedDescription):
        own = [_by_group(description, name, name) for name in description.everyone.columns]
        return [_by_group(description, "Groups", ""), *own]
    found = []
    if description.numeric:
        quartiles = ("lower quartile", "median", "upper quartile")
        headings = ("column", "missing, %", "mean", "std. deviation", *quartiles)
        rows = [
            (c.name, c.missing.words(0.01), *(c.statistics[name].words() for name in list(c.statistics)[1:]))
            for c in description.numeric
        ]
        found.append(Listing("Numbers", headings, rows, headings[1:]))
    if description.categorical:
        shares: list[tuple[str, str, str]] = []
        for column in description.categorical:
            levels, more = list(column.shares.items()), len(column.shares) - _LEVELS
            if more > 1:  # the largest shares; the column is named once
                levels = sorted(levels, key=lambda item: -item[1].value)[:_LEVELS]
            told = [(level, share.words(0.01)) for level, share in levels]
            told += [(f"({more} more levels)", "")] if more > 1 else []
            told.append((OTHER, column.missing.words(0.01)))
            shares += [(column.name if i == 0 else "", *row) for i, row in enumerate(told)]
        found.append(Listing("Levels", ("column", "level", "share, %"), shares, ("share, %",)))
    of = description.correlations.pairs
    if pairs := [pair for pair in of if pair[2].resolved]:
        title = "Correlations" if len(pairs) <= _PAIRS else f"The strongest of {len(pairs)} correlations"
        title += f" ({len(of) - len(pairs)} of {len(of)} {NOT_RESOLVED})" if len(of) > len(pairs) else ""
        rows = [(a, b, number.words()) for a, b, number in pairs[:_PAIRS]]
        found.append(Listing(title, ("column", "with", "correlation"), rows, ("correlation",)))
    return found


def _shown(found: GroupedDescription) -> list[tuple[str, ...]]:
    """Margins and groups, without those of no declared level that the noise hides."""
    of = list(found.tables.values())
    return [key for key in of[0] if OTHER not in key or not all(table[key].suppressed for table in of)]


def _by_group(found: GroupedDescription, title: str, column: str) -> Listing:
    """The numbers of a column, a row for each group and a column for each statistic and way to count."""
    rows, headings = [], dict.fromkeys(found.by)
    for key in _shown(found):
        cells = []
        for counted, table in found.tables.items():
            for _, name, number in [one for one in table[key].statistics if one[0] == column]:
                unit = 0.01 if name == "missing" or name.startswith("share") else 1.0
                headings[f"{counted}: {name.replace('_', ' ')}{', %' if unit < 1 else ''}"] = None
                hidden = f"at most {number.high:,.0f}" if name == "count" else "suppressed"
                cells.append(hidden if table[key].suppressed else number.words(unit))
        rows.append((*key, *cells))
    return Listing(title, tuple(headings), rows, tuple(headings)[len(found.by) :])


def remarks(description: Described) -> list[str]:
    """How to read the tables, and what the noise left open."""
    once = [ONCE] * (description.privacy.neighbours.unit is not None)
    if isinstance(description, GroupedDescription):
        lines, up_to, tables = [OF_GROUPS, *once], description.rows_up_to, list(description.tables.values())
        if up_to is not None:
            lines.append(
                f"Of rows: every row counts alike, but those of a person with more than {up_to} count as "
                f"{up_to} in all. Their intervals allow for persons whose rows say the same."
            )
        hidden = len(tables[0]) - len(_shown(description))
        if any(group.suppressed for table in tables for group in table.values()):
            lines.append("Suppressed: too few for the noise, a count below three deviations of its own.")
        return lines + [f"Suppressed and not shown: {hidden} groups of no declared level."] * (hidden > 0)
    lines = [READING, *once]
    lines += [f"{c.name} counts {c.unit}." for c in description.numeric if c.unit]
    if any(not found.resolved for column in description for found in column.statistics.values()):
        who = f"{description.privacy.neighbours.who}s"
        lines.append(
            "Not resolved: the noise leaves open more than half of what was possible, or whether "
            f"a deviation is 0 at all. A few {who} far out would change it, and noise hides a few {who}: "
            "closer bounds or a larger ε resolve it; quartiles need less of both."
        )
    pairs = description.correlations.pairs
    if pairs and not any(found.resolved for _, _, found in pairs):
        lines.append(f"None of {len(pairs)} correlations is resolved.")
    return lines


def summary_line(description: Described) -> str:
    """How many records, or persons, under which promise."""
    promise = description.privacy
    return (
        f"{description.count.words()} {promise.neighbours.who}s, released under (ε, δ) = ({promise.epsilon:g}"
        f", {promise.delta:g}), {promise.adjacency}: {promise.mechanism}, {promise.theorem}."
    )


def as_text(description: Described) -> str:
    text = io.StringIO()
    console = Console(file=text, width=120, color_system=None, highlight=False)
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
    return text.getvalue().rstrip("\n")
