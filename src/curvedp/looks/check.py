"""`check`: are the cells of a table what was declared? Noisy counts of what they are, in one charge (C-1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from curvedp.arrays import ROWS_AT_MOST, ColumnLike, TableLike
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.looks.cells import CellLayout, CheckedCells, cells_of
from curvedp.looks.checked import (
    CHANCE,
    NoisyCounts,
    TableCheck,
    interpret,
    percent,
    plain,
    width_of_intervals,
)
from curvedp.mechanisms.noise import Grid, gaussian_profile
from curvedp.privacy.gaussian import epsilon_of
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import MU, SIGMA, Parameters, Symbol
from curvedp.privacy.profiles import GaussianProfile
from curvedp.record import keep
from curvedp.release import Account, execute
from curvedp.schema import Schema

DELTA = 1e-6
LABEL = "check"
COLUMNS = Symbol("columns", "d", "columns whose cells are counted")
USEFUL = 0.1  # the share that the ε of a refusal would show


@dataclass(frozen=True, eq=False)
class CheckPlan:
    """Gaussian counts of the kinds of cells, all columns at once (C-1)."""

    layout: CellLayout
    budget: Budget
    profile: GaussianProfile

    @property
    def size(self) -> int:
        """Released numbers: the counts, and n where it is not public."""
        return self.layout.size + (not self.layout.neighbours.count_is_public)

    @property
    def sensitivity(self) -> float:
        """√(d+1) under `add_remove`, where n is counted, too; √(2d) under `replace`  (C-1)."""
        return _sensitivity(self.layout)

    @cached_property
    def grid(self) -> Grid:
        return Grid.of(self.sensitivity, self.profile.mu, self.size)

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            budget=self.budget,
            neighbours=self.layout.neighbours,
            mechanism="check",
            accounting="gaussian",
            theorem="(C-1)",
            parameters=Parameters(
                MU(self.profile.mu), SIGMA(self.grid.sigma), COLUMNS(len(self.layout.columns))
            ),
            profile=self.profile,
        )

    @property
    def visible_rows(self) -> float:
        """So many cells of one kind are named with a chance of 95 %."""
        return _visible(self.layout) * self.grid.sigma

    def outlook(self, rows: int) -> str:
        """What can be seen in a table of so many rows; refused where that is nothing."""
        self._require_sight(rows)
        return (
            f"In {rows:,} rows, shares of {percent(self.visible_rows / rows)} and more can be seen: "
            f"the noise on every count has a standard deviation of {plain(self.grid.sigma)} rows."
        )

    @property
    def unknown(self) -> str:
        """The same where nobody declared a number of rows, and none is public."""
        return (
            f"Cells of one kind can be seen from about {plain(self.visible_rows)} on: "
            f"the noise on every count has a standard deviation of {plain(self.grid.sigma)} rows."
        )

    def accept(self, rows: CheckedCells) -> None:
        if self.layout.neighbours.count_is_public:
            self._require_sight(rows.rows)

    def release(self, rows: CheckedCells, random: np.random.Generator) -> NoisyCounts:
        counts = rows.counts()
        if self.layout.neighbours.count_is_public:
            return NoisyCounts(self.grid.add(counts[:-1], random, "kinds of cells"), float(counts[-1]))
        noisy = self.grid.add(counts, random, "kinds of cells")
        return NoisyCounts(noisy[:-1], float(noisy[-1]))

    def _require_sight(self, rows: int) -> None:
        if self.visible_rows <= rows:
            return
        if rows == 0:
            raise InvalidInput("the table has no rows: there is nothing to check")
        mu = _sensitivity(self.layout) * _visible(self.layout) / (USEFUL * rows)
        enough = epsilon_of(self.budget.delta, mu)
        digits = 1 - math.floor(math.log10(enough))
        enough = math.ceil(enough * 10**digits) / 10**digits
        raise InvalidInput(
            f"in {rows:,} rows this check could not see even a column without one readable cell: the noise "
            f"on every count has a standard deviation of {plain(self.grid.sigma)} rows. "
            f"Pass epsilon={enough:g} to see shares of {100 * USEFUL:g} %, or declare fewer columns"
        )


def plan(schema: Schema, budget: Budget, *, rows: int | None = None) -> CheckPlan:
    """Calibrate a check of the declared columns; refused where `rows` are too few to see anything.

    Parameters
    ----------
    schema : Schema
        The columns; those that are ignored are not looked at.
    budget : Budget
        The (ε, δ) to spend on all columns together.
    rows : int, optional
        The number of rows that you expect: a number you declare, never counted.

    Returns
    -------
    plan : CheckPlan
        `outlook(rows)` says which share can be seen; `curvedp.execute` runs it.

    Examples
    --------
    >>> from curvedp import Budget, Schema
    >>> from curvedp.looks.check import plan
    >>> from curvedp.schema import Numeric
    >>> schema = Schema([Numeric(f"x{i}", 0, 1) for i in range(80)], adjacency="add_remove")
    >>> plan(schema, Budget(0.05, 1e-6)).outlook(50_000)
    'In 50,000 rows, shares of 6.9 % and more can be seen: the noise on every count has a standard deviation \
of 623 rows.'
    """
    layout = CellLayout.of(schema)
    size = layout.size + (not layout.neighbours.count_is_public)
    made = CheckPlan(layout, budget, gaussian_profile(budget, [size], [1.0]))
    if rows is not None:
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or not 0 < rows <= ROWS_AT_MOST:
            raise InvalidInput("rows must be the whole number of rows that you expect, at least 1")
        made.outlook(int(rows))
    return made


def look(
    made: CheckPlan, cells: CheckedCells, *, ledger: Account | None = None, random_state: int | None = None
) -> TableCheck:
    """The verdicts of a planned check."""
    released = execute(made, cells, ledger=ledger, label=LABEL, random_state=random_state)
    found = interpret(made.layout, released.value, made.grid.sigma, made.visible_rows, released.privacy)
    found = replace(found, receipt=released.receipt)
    keep(ledger, released.receipt, found.to_dict)
    return found


def check(
    schema: Schema,
    table: TableLike,
    y: ColumnLike = None,
    *,
    epsilon: float,
    delta: float = DELTA,
    rows: int | None = None,
    ledger: Account | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> TableCheck:
    """Count privately, in one charge, how many cells of each column are not what the schema declares.

    Parameters
    ----------
    schema : Schema
        The declared columns, and the adjacency.
    table : data frame, mapping, array, list of rows, Dask data frame, or path of a CSV or Parquet file
        The sensitive table. An array holds the features in their declared order.
    y : column, optional
        The target, where the table does not hold it.
    epsilon, delta : float
        What all columns together may cost.
    rows : int, optional
        The number of rows that you declare: a check that could see nothing in so many is refused.
    ledger : Ledger, optional
        Charged before any cell is read.
    delimiter : str, optional
        What separates the cells of a CSV file; what the schema says if it is left out.
    random_state : int, optional
        A seed, for research: the check is then not private.

    Returns
    -------
    found : TableCheck
        `verdicts` in words, `table()` with every share and the interval of its noise.

    Examples
    --------
    >>> from curvedp import Schema
    >>> from curvedp.looks.check import check
    >>> from curvedp.schema import Categorical, Numeric
    >>> schema = Schema([Numeric("age", 0, 120), Categorical("sector", ["private", "public"])])
    >>> table = {"age": [37, 52] * 4000, "sector": ["Public", "private"] * 4000}
    >>> check(schema, table, epsilon=1.0, random_state=0).verdicts["sector"]
    "about 50.0 % of 'sector' name a level that is not declared: compare the spelling with the codebook"
    """
    made = plan(schema, Budget(epsilon, delta), rows=rows)
    cells = cells_of(schema, table, y, delimiter=delimiter)
    return look(made, cells, ledger=ledger, random_state=random_state)


def _sensitivity(layout: CellLayout) -> float:
    counted = len(layout.columns) + (not layout.neighbours.count_is_public)
    return layout.neighbours.histogram_factor * math.sqrt(counted)


def _visible(layout: CellLayout) -> float:
    """In standard deviations: the reach of an interval, and what a count may fall short by."""
    return width_of_intervals(layout) + float(ndtri(CHANCE))
