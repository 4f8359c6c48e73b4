"""`check`: are the cells of a table what was declared? Noisy counts of what they are, in one charge (C-1).

All intervals hold together with probability CONFIDENCE over the noise: c ± zσ for every count, and for the
number of rows, or persons, where it is released, by the union bound. A share is named where its lower end is
above 0. So a table without a fault is blamed for any at all with probability at most (1 − CONFIDENCE)/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.special import ndtri

from curvedp.analyses.explore.noisy import ONCE, GaussianPlan, Looked, Part, Split
from curvedp.arrays import ROWS_AT_MOST, ColumnLike, FloatArray, TableLike
from curvedp.data.cells import Cells
from curvedp.data.columns import Categorical, Numeric, shown
from curvedp.data.dates import Boolean, Date, Feature
from curvedp.data.frames import Table, as_cells
from curvedp.data.schema import Schema
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Grid
from curvedp.numbers import percent, plain, rounded_up
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import epsilon_of
from curvedp.privacy.guarantee import SIGMA, Guarantee, Parameter
from curvedp.release.door import Account, Released, execute
from curvedp.release.ledger.storage import Receipt
from curvedp.release.record import charged, keep

# The cells of a table as a source of counts: how many are of each kind, in each declared column.
#
# A record adds 1 to at most one kind of each column, a row of a person its part (U-2). Only counts are kept.


@dataclass(frozen=True)
class CellLayout:
    """The public side of a check: its columns, the target last, and between which tables it is private; of a
    class target, its classes."""

    columns: tuple[Feature, ...]
    neighbours: Neighbours
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> CellLayout:
        schema = schema.without_formula()
        targets = (schema.target_column,) if schema.has_target else ()
        classes = [level for c in targets if isinstance(c, Categorical | Boolean) for level in c.levels]
        return cls((*schema.features, *targets), schema.neighbours, tuple(classes))

    @property
    def kinds(self) -> list[tuple[str, ...]]:
        """What is counted of each column, in order; the classes come last. Every cell is of one at most."""
        *own, last = (column.cell_kinds for column in self.columns)
        return [*own, (*last, *self.classes)]

    @property
    def asked(self) -> Part:
        """The counts, and n where it is not public. Their sensitivity: √(d+1) under `add_remove`, where n is
        counted, too; √(2d) under `replace`  (C-1)."""
        rows = not self.neighbours.count_is_public
        sensitivity = self.neighbours.histogram_factor * math.sqrt(len(self.columns) + rows)
        return Part(sum(map(len, self.kinds)) + rows, price=1.0, sensitivity=sensitivity)

    @property
    def reach(self) -> float:
        """z: that many σ to either side cover all counts at once."""
        return -float(ndtri((1 - CONFIDENCE) / (2 * self.asked.dim)))

    def counts(self, table: Table) -> FloatArray:
        """The counts of all columns, one after another, and the number of rows, or of persons."""
        found = []
        for column, counted in zip(self.columns, self.kinds, strict=True):
            kinds = column.kinds_of(self.cells(table, column.name))
            known = (kinds >= 0) & (kinds < len(counted))
            found.append(np.bincount(kinds[known], table.parts[known], minlength=len(counted)))
        return np.concatenate([*found, [table.parts.sum()]]).astype(np.float64)

    def cells(self, table: Table, name: str) -> Cells:
        """The cells of a declared column; those of a target that was passed beside the table."""
        passed = name == self.columns[-1].name and "y" in table.beside
        return as_cells(table.beside["y"]) if passed else table.cells(name)


class CheckedCells(Looked):
    """A table that is only counted."""

    def counts(self) -> FloatArray:
        """Cells by column and kind, then rows, or persons."""
        return np.asarray(np.sum(self.source.over(self.layout.counts), axis=0), dtype=np.float64)


def cells_of(
    schema: Schema, table: TableLike, y: ColumnLike = None, *, delimiter: str | None = None
) -> CheckedCells:
    """The cells of a table, refused where a declared column is not there or can never hold what is declared.

    No cell is read here, but for the header of a file.
    """
    schema = schema.without_formula()
    layout, beside = CellLayout.of(schema), {"y": y if schema.has_target else None}
    found = schema.source(table, beside=beside, delimiter=delimiter)
    found = found.of_persons(schema.unit, schema.rows_per_person)
    for head in found.heads:
        for column in layout.columns:
            kind = layout.cells(head, column.name).kind
            (schema.declared_target if column.name == schema.target else column).check_kind(kind)
    return CheckedCells(layout, found)


COUNTED = "kinds of cells"  # the one part of the plan
COLUMNS = Parameter("columns", "d", "columns whose cells are counted")
USEFUL = 0.1  # the share that the ε of a refusal would show
CONFIDENCE = 0.95
HIDDEN = 0.5  # a column of which so many cells may be bad is not called fine
CHANCE = 0.95  # with which a share that "can be seen" is named

_WORDS = {
    "below": "lie below {low}, the lower bound",
    "above": "lie above {high}, the upper bound",
    "missing": "are missing",
    "decimal comma": "could not be read: is the decimal sign a comma?",
    "unreadable": "could not be read as numbers: are there words, units or other signs in them?",
    "unreadable date": "could not be read as dates: are they written in the declared format?",
    "undeclared": "name a level that is not declared: compare the spelling and the encoding",
}


@dataclass(frozen=True)
class Share:
    """The share of one kind of cells in one column, of persons where a unit is declared.

    `kind` says what is wrong with the cells; of a class of the target, which is nothing wrong, it is the
    class. `low` and `high` are the interval of its noise, `estimate` the noisy share, brought into [0, 1].
    """

    kind: str
    is_class: bool
    low: float
    high: float
    estimate: float

    @property
    def seen(self) -> bool:
        """Whether it stands out of its noise."""
        return self.low > 0

    @property
    def label(self) -> str:
        """What the cells are."""
        bounds = " the bounds" if self.kind in ("below", "above") else ""
        return f"class {self.kind}" if self.is_class else f"{self.kind}{bounds}"

    @property
    def interval(self) -> str:
        """[low, high] as percentages, rounded outwards."""
        digits, low, high = self._outwards
        return f"{low:.{digits}f} to {high:.{digits}f} %"

    @property
    def _outwards(self) -> tuple[int, float, float]:
        digits = min(max(math.ceil(-math.log10(max(50 * (self.high - self.low), 1e-9))), 0), 3)
        unit = 10.0**digits
        return digits, math.floor(100 * self.low * unit) / unit, math.ceil(100 * self.high * unit) / unit

    @property
    def words(self) -> str:
        """As a percentage, with no more digits than the noise leaves; "below 2 %" where it is not seen."""
        digits, _, high = self._outwards
        return f"{100 * self.estimate:.{digits}f} %" if self.seen else f"below {min(high, 100):.{digits}f} %"


@dataclass(frozen=True)
class ColumnCheck:
    """One column of a check: every kind of cells that was counted, and what stands out of the noise, in
    words."""

    name: str
    shares: tuple[Share, ...]
    verdict: str

    @property
    def unusual(self) -> bool:
        """Whether anything was seen that should not be there."""
        return any(share.seen for share in self.shares if not share.is_class)


@dataclass(frozen=True)
class TableCheck:
    """The private check of a table.

    Parameters
    ----------
    columns : tuple of ColumnCheck
        In the order of the schema, the target last.
    rows : float
        The number of rows, or of persons where a unit is declared: exact where it is public, else noisy.
    sigma : float
        The standard deviation of the noise on every count, in rows or persons.
    visible : float
        The share that would be named with a chance of 95 %; smaller ones may go unnoticed.
    privacy, receipt : Guarantee, Receipt or None
        What the release promises, and where it was charged; None without a ledger.
    """

    columns: tuple[ColumnCheck, ...]
    rows: float
    sigma: float
    visible: float
    privacy: Guarantee
    receipt: Receipt | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "guarantee": self.privacy.to_dict(),
            "counted": self.privacy.neighbours.counted,
            "rows": self.rows,
            "rows_are_noisy": not self.privacy.neighbours.count_is_public,
            "sigma": self.sigma,
            "visible_share": self.visible,
            "verdicts": self.verdicts,
            "unusual": [column.name for column in self.columns if column.unusual],
            "shares": self.table(),
            **charged(self.receipt),
        }

    @property
    def verdicts(self) -> dict[str, str]:
        """What was seen, by column."""
        return {column.name: column.verdict for column in self.columns}

    @property
    def summary(self) -> str:
        """What the noise allowed to see."""
        known, them = self.privacy.neighbours.count_is_public, self.privacy.neighbours.counted
        count = f"{self.rows:,.0f} {them}" if known else f"about {self.rows:,.0f} {them} (noisy)"
        once = "" if them == "rows" else f" {ONCE}"
        sight = "even a whole column may go unnoticed, so spend more on a check, or nothing"
        if self.visible < 1:
            named = f"named with a chance of {100 * CHANCE:.0f} %, smaller ones may go unnoticed"
            sight = f"shares of {percent(self.visible)} and more are {named}"
        return (
            f"{count}, noise of {plain(self.sigma, 3)} {them} on every count: {sight}. A table without a "
            f"fault is blamed for one with a chance of {50 * (1 - CONFIDENCE):.1f} % at most.{once}"
        )

    def table(self) -> dict[str, list[Any]]:
        """Every share by columns, ready for a data frame: pandas.DataFrame(found.table()).

        `share` is None where it cannot be told from noise; `low` and `high` hold for all shares together.
        """
        lines = [(column.name, share) for column in self.columns for share in column.shares]
        return {
            "column": [name for name, _ in lines],
            "kind": ["class" if share.is_class else share.kind for _, share in lines],
            "class": [share.kind if share.is_class else None for _, share in lines],
            "share": [share.estimate if share.seen else None for _, share in lines],
            "low": [share.low for _, share in lines],
            "high": [share.high for _, share in lines],
        }

    def __str__(self) -> str:
        width = max(map(len, self.verdicts))
        lines = [f"{name:<{width}}  {said}" for name, said in self.verdicts.items()]
        return "\n".join([*lines, self.summary])

    def _repr_html_(self) -> str:
        """A small table, every value escaped."""
        left = "style='text-align:left'"
        lines = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(said)}</td></tr>"
            for name, said in self.verdicts.items()
        )
        return f"<table><tbody>{lines}</tbody></table><p>{escape(self.summary)}</p>"


@dataclass(frozen=True, eq=False)
class CheckPlan(GaussianPlan):
    """Gaussian counts of the kinds of cells, all columns at once (C-1), of rows or of persons (U-2)."""

    layout: CellLayout
    mechanism = "check"
    theorem = "(C-1)"

    @property
    def grid(self) -> Grid:
        return self.grids[COUNTED]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return SIGMA(self.grid.sigma), COLUMNS(len(self.layout.columns))

    @property
    def visible_rows(self) -> float:
        """So many cells of one kind are named with a chance of 95 %: the reach of an interval, and what a
        count may fall short by."""
        return (self.layout.reach + float(ndtri(CHANCE))) * self.grid.sigma

    def outlook(self, rows: int | None = None) -> str:
        """What can be seen in a table of so many rows, or persons; refused where that is nothing."""
        if rows is None:
            return f"Cells of one kind can be seen from about {plain(self.visible_rows, 3)} on{self._noise}."
        self.require(rows)
        seen, them = percent(self.visible_rows / rows), self.layout.neighbours.counted
        return f"In {rows:,} {them}, shares of {seen} and more can be seen{self._noise}."

    @property
    def _noise(self) -> str:
        sigma, them = plain(self.grid.sigma, 3), self.layout.neighbours.counted
        return f": the noise on every count has a standard deviation of {sigma} {them}"

    def release(self, rows: CheckedCells, random: np.random.Generator) -> FloatArray:
        """The counts of all columns, one after another, and the number of rows, exact where it is public."""
        counts = rows.counts()
        if not self.layout.neighbours.count_is_public:
            return self.grid.add(counts, random, COUNTED)
        return np.append(self.grid.add(counts[:-1], random, COUNTED), counts[-1])

    def require(self, rows: int) -> None:
        them = self.layout.neighbours.counted
        if self.visible_rows <= rows:
            return
        if rows == 0:
            raise InvalidInput(f"the table has no {them}: there is nothing to check")
        mu = self.layout.asked.sensitivity * self.visible_rows / self.grid.sigma / (USEFUL * rows)
        enough = rounded_up(epsilon_of(self.budget.delta, mu), 2)
        raise InvalidInput(
            f"in {rows:,} {them} this check could not see even a column without one readable cell"
            f"{self._noise}. Pass `epsilon={enough:g}` to see shares of {100 * USEFUL:g} %, or declare fewer "
            "columns"
        )


def plan(schema: Schema, budget: Budget, *, rows: int | None = None) -> CheckPlan:
    """Calibrate a check of the declared columns; refused where `rows` are too few to see anything.

    Parameters
    ----------
    schema, budget : Schema, Budget
        The columns, but for those that are ignored, and the (ε, δ) to spend on all of them together.
    rows : int, optional
        The number of rows (of persons, with a `unit`) that you expect: declared, never counted.

    Returns
    -------
    plan : CheckPlan
        `outlook(rows)` says which share can be seen; `curvedp.execute` runs it.

    Examples
    --------
    >>> from curvedp import Budget, Numeric, Schema
    >>> from curvedp.analyses.explore.check import plan
    >>> schema = Schema([Numeric(f"x{i}", 0, 1) for i in range(80)], adjacency="add_remove")
    >>> plan(schema, Budget(0.05, 1e-6)).outlook(50_000)
    'In 50,000 rows, shares of 6.9 % and more can be seen: the noise on every count has a standard deviation \
of 623 rows.'
    """
    layout = CellLayout.of(schema)
    made = CheckPlan(layout, budget, Split.of({COUNTED: layout.asked}, budget))
    if rows is not None:
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or not 0 < rows <= ROWS_AT_MOST:
            them = layout.neighbours.counted
            raise InvalidInput(f"rows must be the whole number of {them} that you expect, at least 1")
        made.outlook(int(rows))
    return made


def look(
    made: CheckPlan, cells: CheckedCells, *, ledger: Account | None = None, random_state: int | None = None
) -> TableCheck:
    """The verdicts of a planned check."""
    released = execute(made, cells, ledger=ledger, label="check", random_state=random_state)
    found = interpret(made.layout, released, made.grid.sigma, made.visible_rows)
    keep(ledger, released.receipt, found.to_dict)
    return found


def check(
    schema: Schema,
    table: TableLike,
    y: ColumnLike = None,
    *,
    epsilon: float,
    delta: float = 1e-6,
    rows: int | None = None,
    ledger: Account | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> TableCheck:
    """Count privately, in one charge, how many cells of each column are not what the schema declares.

    Parameters
    ----------
    schema : Schema
        The declared columns, and who is protected. With a `unit` every person counts once, in equal parts
        over all rows of that person, and shares are those of persons (U-2).
    table : data frame, mapping, array, list of rows, Dask data frame, or path of a CSV or Parquet file
        The sensitive table. An array holds the features in their declared order.
    y : column, optional
        The target, where the table does not hold it.
    epsilon, delta : float
        What all columns together may cost.
    rows : int, optional
        Rows, or persons, that you declare: a check that could see nothing in so many is refused.
    ledger, delimiter, random_state : optional
        As in `curvedp.describe`.

    Returns
    -------
    found : TableCheck
        `verdicts` in words, `table()` with every share and the interval of its noise.

    Examples
    --------
    >>> from curvedp import Categorical, Numeric, Schema, check
    >>> schema = Schema([Numeric("age", 0, 120), Categorical("sector", ["private", "public"])])
    >>> table = {"age": [37, 52] * 4000, "sector": ["Public", "private"] * 4000}
    >>> check(schema, table, epsilon=1.0, random_state=0).verdicts["sector"]
    "about 50.0 % of 'sector' name a level that is not declared: compare the spelling and the encoding"
    """
    made = plan(schema, Budget(epsilon, delta), rows=rows)
    cells = cells_of(schema, table, y, delimiter=delimiter)
    return look(made, cells, ledger=ledger, random_state=random_state)


def interpret(
    layout: CellLayout, released: Released[FloatArray], sigma: float, visible_rows: float
) -> TableCheck:
    """The check that released numbers, that of the rows last, amount to; no record is touched."""
    noisy, reach = released.value, layout.reach * sigma
    spread = 0.0 if layout.neighbours.count_is_public else reach
    rows = max(float(noisy[-1]), 1.0)
    counts, columns = iter(noisy[:-1].tolist()), []
    for column, kinds in zip(layout.columns, layout.kinds, strict=True):
        shares = []
        for k, kind in enumerate(kinds):  # (c ± zσ)/(n ± zσ), the worst of it on either side
            count = next(counts)
            high = min(max(count + reach, 0.0) / (rows - spread), 1.0) if rows > spread else 1.0
            low = min(max(count - reach, 0.0) / (rows + spread), high)
            is_class = k >= len(column.cell_kinds)
            shares.append(Share(kind, is_class, low, high, min(max(count / rows, low), high)))
        columns.append(ColumnCheck(column.name, tuple(shares), _verdict(column, shares)))
    told = max(float(noisy[-1]), 0.0), sigma, min(visible_rows / rows, 1.0)
    return TableCheck(tuple(columns), *told, released.privacy, released.receipt)


def _verdict(column: Feature, shares: list[Share]) -> str:
    """What stands out of the noise, in words."""
    wrong = [share for share in shares if share.seen and not share.is_class]
    wrong.sort(key=lambda share: -share.estimate)
    named = [
        f"about {share.words}{' of ' + shown(column.name) if i == 0 else ''} " + _words(column, share.kind)
        for i, share in enumerate(wrong)
    ]
    said, most = "; ".join(named).replace("?; ", "? Also "), max(s.high for s in shares if not s.is_class)
    if not said:
        said = f"nothing unusual: bad cells of every kind are below {percent(most)}"
        if most >= HIDDEN:
            said = f"nothing can be said: even {percent(most)} of bad cells would be hidden by the noise"
    classes = ", ".join(f"{shown(share.kind)} {share.words}" for share in shares if share.is_class)
    return f"{said}. Classes: {classes}" if classes else said


def _words(column: Feature, kind: str) -> str:
    """What is wrong with such cells of this column."""
    if isinstance(column, Date):
        return _WORDS.get(f"{kind} date", _WORDS[kind]).format(low=column.low, high=column.high)
    if isinstance(column, Numeric):
        return _WORDS[kind].format(low=f"{column.low:g}", high=f"{column.high:g}")
    return _WORDS[kind]
