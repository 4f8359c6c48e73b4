"""`describe`: what the columns of a table hold, as one charged release (D-1); its text and page."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from curvedp.analyses.explore.check import TableCheck
from curvedp.analyses.explore.description import (
    Correlations,
    Description,
    LevelSummary,
    NoisySums,
    NumericSummary,
)
from curvedp.analyses.explore.noisy import NOT_RESOLVED, ONCE, WIDTHS, GaussianPlan, Part, Split, Z, tree
from curvedp.analyses.explore.tallies import TableLayout, TalliedTable, Tally, tallied
from curvedp.arrays import FloatArray, TableLike
from curvedp.data.rows.base import SUM_SLACK
from curvedp.data.schema import Schema
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Grid
from curvedp.pages import power, rendered
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Parameter, Symbol
from curvedp.release.door import execute
from curvedp.release.ledger.file import Ledger
from curvedp.release.ledger.storage import LedgerState
from curvedp.release.record import keep


@dataclass(frozen=True)
class Query(Part):
    """A part, its l2-sensitivity, and what its noise is on."""

    sensitivity: float
    meaning: str


def queries(layout: TableLayout) -> dict[str, Query]:
    """What is released from a table of this layout, with the sensitivities of (D-1)."""
    neighbours = layout.neighbours
    d, c = len(layout.numeric), len(layout.categorical)
    levels = sum(len(column.levels) + 1 for column in layout.categorical)
    nodes = sum(len(tree(bins.size)) for bins in layout.bins)
    one, several = neighbours.sum_factor * math.sqrt(d), neighbours.histogram_factor
    products = math.sqrt(d * (d - 1) / 2.0) if neighbours.moves == 1 else float(d)
    slack = SUM_SLACK * (d + 1)  # ‖(x, 1)‖² ≤ d + 1
    asked = {
        "levels": Query(levels, 0.4 * c / (c + d), several * math.sqrt(c), "count of a level"),
        "nodes": Query(
            nodes, 0.4 * d / (c + d), several * math.sqrt(WIDTHS * d), "count of numbers in a range"
        ),
        "sums": Query(d, 0.25, one + slack, "sum of a numeric column on [−1, 1]"),
        "squares": Query(d, 0.1, one / 2.0 + slack, "sum of its squares"),
        "pairs": Query(d * (d - 1) // 2, 0.25, products + slack, "sum of products of two of them"),
    }
    return {name: query for name, query in asked.items() if query.dim}


@dataclass(frozen=True, eq=False)
class DescribePlan(GaussianPlan):
    """Noise for the counts and moments of a table (D-1), of rows or of persons (U-2)."""

    layout: TableLayout
    persons: ClassVar[bool] = True
    mechanism = "describe"
    theorem = "(D-1)"

    @classmethod
    def calibrated(cls, layout: TableLayout, budget: Budget) -> DescribePlan:
        if not budget.delta > 0:
            raise InvalidInput("a description adds Gaussian noise, which needs delta > 0: pass `delta=1e-6`")
        return cls(layout, budget, Split.of(queries(layout), budget))

    @cached_property
    def grids(self) -> dict[str, Grid]:
        asked = queries(self.layout).items()
        return {name: self.split.grid(name, query.sensitivity) for name, query in asked}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(
            Symbol(f"sigma_{name}", "σ", f"standard deviation of the noise on each {query.meaning}", True)(
                self.grids[name].sigma
            )
            for name, query in queries(self.layout).items()
        )

    @property
    def room(self) -> float:
        """Bytes of what is made of the sums. Measured: 95,000 doubles for the histogram of a numeric column,
        20 matrices of d × d for correlations, 1 kB for a level."""
        d, levels = len(self.layout.numeric), sum(len(column.levels) for column in self.layout.categorical)
        return 8.0 * (120_000.0 * d + 30.0 * d**2) + 2000.0 * levels

    @property
    def fewest_rows(self) -> int:
        """With fewer, the noise would leave open every share and every mean."""
        sigma = {part: grid.sigma for part, grid in self.grids.items()}
        counts = [4.0 * Z * sigma[part] for part in ("levels", "nodes") if part in sigma]
        means = [2.0 * Z * sigma["sums"]] if "sums" in sigma else []
        return math.ceil(min(counts + means))

    def accept(self, table: TalliedTable) -> None:
        if self.layout.neighbours.count_is_public and table.count is not None:
            self.require(table.count())

    def require(self, rows: int) -> None:
        if rows < self.fewest_rows:
            raise InvalidInput(
                f"at epsilon = {self.budget.epsilon:g} noise hides everything about a table of fewer than "
                f"{self.fewest_rows:,} {self.layout.neighbours.counted}, and this one has fewer: raise "
                "epsilon, or declare fewer columns"
            )

    def release(self, table: TalliedTable, random: np.random.Generator) -> NoisySums:
        tally = table.tally()
        exact = exact_sums(tally)
        noisy = {part: grid.add(exact[part], random, part) for part, grid in self.grids.items()}
        scales = {part: grid.sigma for part, grid in self.grids.items()}
        count = float((*tally.leaves, *tally.levels)[0].sum())
        return NoisySums(
            self.layout, noisy, scales, count if self.layout.neighbours.count_is_public else None
        )


def exact_sums(tally: Tally) -> dict[str, FloatArray]:
    """The queries of (D-1): counts; Σx, Σ(x² − ½) over what is present, Σ x_j x_k for j < k."""
    gram, d = tally.gram, len(tally.gram) - 1
    present = np.array([leaves[:-1].sum() for leaves in tally.leaves])
    return {
        "levels": np.concatenate([*tally.levels, np.empty(0)]),
        "nodes": np.concatenate([*(tree(len(n) - 1) @ n for n in tally.leaves), np.empty(0)]),
        "sums": gram[:d, d],
        "squares": np.diag(gram)[:d] - 0.5 * present,
        "pairs": gram[np.triu_indices(d, 1)],
    }


def describe(
    table: TableLike,
    schema: Schema | str | os.PathLike[str],
    *,
    epsilon: float,
    delta: float = 1e-6,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> Description:
    """What the columns of a private table hold: one charge for everything.

    The number of records, the frequencies of levels, means, standard deviations, medians, quartiles and a
    histogram of every numeric column, and their correlations, each with the interval of its noise. All
    columns that the schema declares are described, a target like the others. With a `unit` every person
    counts once, in equal parts over all rows of that person: counts, shares, means and quartiles are those of
    persons (U-2).

    Parameters
    ----------
    table : data frame, mapping, path of a CSV or Parquet file, array, Dask data frame or EncodedTable
        The records. A file, or a folder of Parquet files, is read chunk by chunk.
    schema : Schema or path
        The declared columns. Numbers outside of their bounds are clipped to them.
    epsilon, delta : float
        What the description may cost.
    ledger : Ledger or path, optional
        Charged before anything is computed from the table.
    delimiter : str, optional
        What separates the cells of a CSV file; what the schema says if it is left out.
    random_state : int, optional
        A seed, for research: the description is then not private.

    Returns
    -------
    description : Description
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
    account = ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)
    budget = Budget(epsilon, delta)
    source = tallied(table, declared, delimiter=delimiter)
    plan = DescribePlan.calibrated(source.layout, budget)
    released = execute(plan, source, ledger=account, label="describe", random_state=random_state)
    found = Description.of(released.value, released.privacy, declared.protects, released.receipt)
    keep(account, released.receipt, found.to_dict)
    return found


# Looks on pages and in terminals, made of released and public numbers only.


READING = (
    "± holds 95 times of 100 and is the privacy noise alone. Means, deviations and quartiles leave out "
    "missing numbers; numbers outside of the declared bounds count as the nearer bound."
)
WIDTH, PLOT = 280.0, 102.0  # of a histogram
_PAIRS = 10  # correlations shown
_LEVELS = 12  # levels shown of one column


def check_page(found: TableCheck, record: str) -> str:
    """A check: every share as a bar with the interval of its noise; `record` says who is protected."""
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
    lines = [READING] + [ONCE] * (description.privacy.neighbours.unit is not None)
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
    """How many records, or persons, under which promise."""
    promise = description.privacy
    return (
        f"{description.count.words()} {promise.neighbours.who}s, released under (ε, δ) = ({promise.epsilon:g}"
        f", {promise.delta:g}), {promise.adjacency}: {promise.mechanism}, {promise.theorem}."
    )


def as_text(description: Description, width: int = 120) -> str:
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
