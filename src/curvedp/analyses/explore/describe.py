"""`describe`: what the columns of a table hold, as one charged release (D-1)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray, TableLike
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.ledger import Ledger
from curvedp.looks.description import Description, NoisySums
from curvedp.looks.histograms import WIDTHS, tree
from curvedp.looks.noisy import GaussianPlan, Part, Split, Z
from curvedp.looks.tallies import TableLayout, TalliedTable, Tally, tallied
from curvedp.mechanisms.noise import Grid
from curvedp.privacy.parameters import Parameter, Symbol
from curvedp.record import keep
from curvedp.release import execute
from curvedp.rows.rounding import SUM_SLACK
from curvedp.schema import Schema


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
    """Noise for the counts and moments of a table (D-1)."""

    layout: TableLayout
    mechanism = "describe"
    theorem = "(D-1)"

    @classmethod
    def calibrated(cls, layout: TableLayout, budget: Budget) -> DescribePlan:
        if not budget.delta > 0:
            raise InvalidInput("a description adds Gaussian noise, which needs delta > 0: pass `delta=1e-6`")
        return cls(layout, budget, Split.of(queries(layout), budget))

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """The noise of each part."""
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
                f"{self.fewest_rows:,} rows, and this one has fewer: raise epsilon, or declare fewer columns"
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
    columns that the schema declares are described, a target like the others.

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
    >>> from curvedp.looks import describe
    >>> from curvedp.schema import Categorical, Numeric, Schema
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
    found = Description.of(released.value, released.privacy, declared.record, released.receipt)
    keep(account, released.receipt, found.to_dict)
    return found
