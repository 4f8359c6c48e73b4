"""`private_bounds`: how far do the numbers of a column reach? Lower and upper quantiles in one charge (Q-2).

For each column: a noisy histogram over signed powers of two finds the scales that are in use, the exponential
mechanism (Q-1) chooses the two quantiles among numbers of those scales, and noisy counts say how many values
lie outside of them.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from curvedp.analyses.explore.noisy import Estimate
from curvedp.analyses.explore.quantiles import UNIT, Levels
from curvedp.analyses.explore.tallies import ColumnNames, NumberColumns, Ordered, number_columns
from curvedp.arrays import LARGEST_ENTRY, FloatArray, TableLike
from curvedp.data import files
from curvedp.data.cells import Numerals
from curvedp.data.columns import Numeric
from curvedp.data.delimited import PLAIN, FileFormat
from curvedp.data.frames import PART_STEPS
from curvedp.data.source import RowsPerPerson
from curvedp.errors import InvalidInput
from curvedp.numbers import exact
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import pure_parts, pure_profile
from curvedp.randomness import LARGEST_SCALE, discrete_laplace
from curvedp.release.door import Account, execute
from curvedp.release.ledger.storage import Receipt
from curvedp.release.record import charged, keep
from curvedp.transcript import UNSTATED, Laplace, told

# The scale of a column: which signed powers of two its numbers lie between, by a noisy histogram.
#
# Scale 0 holds 0; scale i > 0 holds 2^{i−1075} ≤ x < 2^{i−1074}, scale −i the same with x negative: all
# doubles up to 1e150.

Scales = NDArray[np.int64]

_SMALLEST = -1074  # the exponent of the smallest double
LARGEST = math.frexp(LARGEST_ENTRY)[1] - _SMALLEST
COUNT = 2 * LARGEST + 1
NEAR = 2  # scales on either side of an occupied one that have candidates, too
MOST_STEPS, LEAST_STEPS = 2**13, 2**10  # candidates at an occupied scale, by how many there are
ROUND_STEPS = 2**8  # round numbers, which are repeated until they are as many
FEWER = 16  # times fewer at a scale near one
_GRID = 2**10  # steps of the noise for each record; for a person those of the parts (U-2)


@dataclass(frozen=True)
class CountNoise:
    """Discrete Laplace noise in steps of 1/grid, for counts that are multiples of it: ε-private, because a
    record is in one cell (Q-2), and a person adds 1 in all (U-2)."""

    scale: int
    epsilon: float = UNSTATED
    grid: int = _GRID

    @classmethod
    def of(cls, epsilon: float, neighbours: Neighbours) -> CountNoise:
        grid = _GRID if neighbours.unit is None else PART_STEPS
        scale = math.ceil(grid * neighbours.moves / exact(epsilon))
        if scale > LARGEST_SCALE:
            raise InvalidInput(f"epsilon is too small to count anything, {epsilon:g}: ask for more")
        return cls(scale, epsilon, grid)

    def added_to(self, counts: FloatArray, random: np.random.Generator) -> FloatArray:
        """The counts with noise, in records or persons."""
        noisy = np.asarray(counts + discrete_laplace(random, self.scale, len(counts)) / self.grid)
        law = Laplace(counts, self.scale / self.grid, self.epsilon, "counts", 1.0 / self.grid)
        return told(random, law, noisy)

    def quantile(self, chance: float) -> float:
        """The least t, to rounding, with P(noise ≥ t) ≤ chance, in records or persons."""
        return self.scale / self.grid * max(-math.log(chance) - math.log1p(math.exp(-1 / self.scale)), 0.0)


def histogram(ordered: Ordered) -> FloatArray:
    """How much the values at each scale count, from −LARGEST to LARGEST; exact."""
    values = ordered.values
    exponent = np.frexp(values)[1].astype(np.int64) - _SMALLEST
    scale = np.where(values == 0, 0, np.where(values < 0, -exponent, exponent))
    parts = np.diff(ordered.sums) / ordered.steps
    return np.bincount(scale + LARGEST, parts, minlength=COUNT).astype(np.float64)


def reached(occupied: Scales) -> FloatArray:
    """Numbers in equal steps through every occupied scale, and fewer at those near it, in order.

    A public function of the scales. Fewer, because numbers beyond all values are equally good lower (or
    upper) quantiles. Round numbers, the integers among them, come several times: columns hold them.
    """
    filled = occupied[occupied != 0]
    steps = max(MOST_STEPS >> max(len(filled) - 1, 0).bit_length(), LEAST_STEPS)
    reach = np.arange(-NEAR, NEAR + 1)
    near = np.setdiff1d(np.clip(np.add.outer(filled, reach), -LARGEST, LARGEST), np.append(occupied, 0))
    zero = np.zeros(int(np.any(occupied == 0)))
    fine = [_numbers(filled, steps), _numbers(near, steps // FEWER), zero]
    coarse = [_numbers(filled, ROUND_STEPS), _numbers(near, ROUND_STEPS // FEWER), zero]
    return np.sort(np.concatenate([*fine, *(coarse * (steps // ROUND_STEPS))]))


def _numbers(scales: Scales, steps: int) -> FloatArray:
    """`steps` equal steps through every scale but 0, both ends included."""
    with np.errstate(over="ignore", under="ignore"):
        sizes = np.ldexp(1 + np.arange(steps + 1) / steps, np.abs(scales)[:, None] + (_SMALLEST - 1))
    signed = np.clip(np.sign(scales)[:, None] * sizes, -LARGEST_ENTRY, LARGEST_ENTRY)
    return np.asarray(signed, dtype=np.float64).ravel()


LOWER, UPPER = 0.005, 0.995  # levels of the bounds
FAILURE = 0.001  # the chance that a scale without any value is taken for one in use, all columns together
CONFIDENCE = 0.95
SHARES = (8, 9, 3)  # of ε: scales, quantiles, counts
COLUMNS = Parameter("columns", "d", "columns that are bounded")
SCALES = Parameter("scales_epsilon", "ε₁", "ε of one column's histogram of scales", is_noise=True)
QUANTILES = Parameter("quantiles_epsilon", "ε₂", "ε of one column's two quantiles", is_noise=True)
COUNTS = Parameter("counts_epsilon", "ε₃", "ε of one column's counts outside", is_noise=True)
SEEN = Parameter("seen", "T", "noisy count from which a scale counts as in use, in records")


@dataclass(frozen=True)
class ColumnBounds:
    """The released bounds of one column, its private lower and upper quantile.

    `below` and `above`: which share of its numbers (or persons) is outside; both intervals hold in 95 of 100
    releases.
    """

    name: str
    low: float
    high: float
    below: Estimate
    above: Estimate

    def to_dict(self) -> dict[str, Any]:
        below, above = ({"share": e.value, "interval": [e.low, e.high]} for e in (self.below, self.above))
        return {"name": self.name, "bounds": [self.low, self.high], "below": below, "above": above}


@dataclass(frozen=True)
class BoundsPlan:
    """Quantiles of several columns for one (ε, δ), δ = 0 where it buys nothing."""

    persons: ClassVar[bool] = True
    layout: ColumnNames
    levels: Levels
    budget: Budget
    parts: tuple[float, ...]  # ε of the scales, the quantiles and the counts of one column

    @cached_property
    def scale_noise(self) -> CountNoise:
        return CountNoise.of(self.parts[0], self.layout.neighbours)

    @cached_property
    def count_noise(self) -> CountNoise:
        return CountNoise.of(self.parts[2], self.layout.neighbours)

    @property
    def seen(self) -> float:
        """T: a scale without any value has a noisy count ≥ T with probability ≤ FAILURE, all together."""
        return self.scale_noise.quantile(FAILURE / (COUNT * len(self.layout.names)))

    @property
    def uncertainty(self) -> float:
        """t: the three counts of a column are all within t of the truth in 95 of 100 releases."""
        return self.count_noise.quantile((1 - CONFIDENCE) / 6)

    @cached_property
    def guarantee(self) -> Guarantee:
        d, (one, two, three) = len(self.layout.names), self.parts
        parameters = Parameters(COLUMNS(d), SCALES(one), QUANTILES(two), COUNTS(three), SEEN(self.seen))
        named = "bounds", "pure" if self.budget.delta == 0 else "pld", "(Q-2)"
        profile = pure_profile(self.parts * d)
        return Guarantee(self.budget, self.layout.neighbours, *named, parameters, profile)

    def outlook(self, rows: int | None = None) -> str:
        """What can be seen, said before anything is released; refused where that is nothing."""
        them, whole, share = "values" if self.layout.neighbours.unit is None else "persons", "", ""
        if rows is not None:
            self.require(rows)
            whole, share = f" of {rows:,}", f" ({100 * self.uncertainty / rows:.2g} %)"
        return (
            f"A scale of numbers is seen where at least about {self.seen:,.0f} {them}{whole} have it. The "
            f"counts of {them} outside the bounds will be within {self.uncertainty:,.0f}{share} of the truth "
            f"in {CONFIDENCE:.0%} of releases. Chance that a bound lies far from every value: {FAILURE:.1%}."
        )

    def require(self, rows: int) -> None:
        """Refuse a public number of rows in which no scale can be seen."""
        if rows < self.seen:
            raise InvalidInput(
                f"{rows:,} {self.layout.neighbours.counted} are too few at this epsilon: a column's scale is "
                f"seen where about {self.seen:,.0f} of its values have it. Ask for more epsilon, or for "
                "fewer columns"
            )

    def accept(self, columns: NumberColumns) -> None:
        if self.layout.neighbours.count_is_public:
            self.require(columns.rows)

    def release(self, columns: NumberColumns, random: np.random.Generator) -> tuple[ColumnBounds | None, ...]:
        """The bounds of every column; None where the noise hides every scale of it."""
        ordered = columns.ordered()
        return tuple(self._column(name, ordered[name], random) for name in self.layout.names)

    def _column(self, name: str, ordered: Ordered, random: np.random.Generator) -> ColumnBounds | None:
        noisy = self.scale_noise.added_to(histogram(ordered), random)
        occupied = np.flatnonzero(noisy >= self.seen) - LARGEST
        if not occupied.size:
            return None
        candidates = reached(occupied)
        first, last = self.levels.law(ordered, candidates, self.parts[1]).draw(random)
        low, high = apart(float(candidates[first]), float(candidates[last]))
        ends = [0, int(ordered.before(low, "left")), int(ordered.before(high, "right")), ordered.total]
        found = self.count_noise.added_to(np.diff(ends) / ordered.steps, random)
        if found[1] <= self.uncertainty:  # nothing was seen between them after all
            return None
        return ColumnBounds(name, low, high, self._share(found, 0), self._share(found, 2))

    def _share(self, counts: FloatArray, cell: int) -> Estimate:
        """counts[cell]/Σ counts, and where it lies if every count is off by at most t."""
        t, ends = self.uncertainty, []
        for shift, unknown in ((0.0, 0.0), (-t, 0.0), (t, 1.0)):
            part = max(float(counts[cell]) + shift, 0.0)
            whole = part + float(np.maximum(np.delete(counts, cell) - shift, 0.0).sum())
            ends.append(part / whole if whole > 0 else unknown)
        value, low, high = ends
        return Estimate(value, low, high)


def plan_bounds(
    columns: Sequence[str],
    budget: Budget,
    *,
    lower: float = LOWER,
    upper: float = UPPER,
    neighbours: Neighbours | None = None,
    rows_per_person: RowsPerPerson = "all",
) -> BoundsPlan:
    """Everything about `private_bounds` that is fixed before the table is read."""
    layout = ColumnNames(tuple(columns), neighbours or Neighbours(), rows_per_person)
    levels = Levels.of((lower, upper), layout.neighbours)
    parts, cost = pure_parts(budget, SHARES, len(layout.names))
    if not all(part > 0 for part in parts):
        raise InvalidInput("epsilon is too small for this many columns: ask for more, or for fewer columns")
    plan = BoundsPlan(layout, levels, cost, parts)
    _ = plan.guarantee  # refused here, where it cannot be promised
    return plan


@dataclass(frozen=True)
class PrivateBounds:
    """Released bounds and what they cost.

    Parameters
    ----------
    columns : tuple of ColumnBounds
        The columns whose bounds were found.
    hidden : tuple of str
        The columns of which the noise hid every scale.
    lower, upper : float
        The asked levels.
    privacy, receipt : Guarantee, Receipt or None
        What the release promises, and where it was charged; None without a ledger.
    charge, day : str
        The label of the charge in the ledger, "" without a ledger; and its day (UTC), as 2024-12-31.
    """

    columns: tuple[ColumnBounds, ...]
    hidden: tuple[str, ...]
    lower: float
    upper: float
    privacy: Guarantee
    charge: str
    day: str = ""
    receipt: Receipt | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "guarantee": self.privacy.to_dict(),
            "levels": [self.lower, self.upper],
            "columns": [column.to_dict() for column in self.columns],
            "hidden": list(self.hidden),
            "source": self.source,
            "charge": self.charge,
            **charged(self.receipt),
        }

    @property
    def source(self) -> str:
        """Where these bounds come from, in the words that a schema keeps."""
        if not self.privacy.private:
            return files.SEEDED
        delta = f", δ = {self.privacy.delta:g}" if self.privacy.delta else ""
        together = len(self.columns) + len(self.hidden)
        cost = f"ε = {self.privacy.epsilon:g}{delta}" + (f" for {together} columns" if together > 1 else "")
        return files.bought(cost, self.day, self.charge)

    def numeric(self, name: str) -> Numeric:
        """A column of a schema with its released bounds and their source; refused where none were found."""
        for column in self.columns:
            if column.name == name:
                return Numeric(name, column.low, column.high, source=self.source)
        raise InvalidInput(f"no bounds of {name!r} were found: declare them from a codebook")


def private_bounds(
    table: TableLike,
    columns: Sequence[str],
    *,
    epsilon: float,
    delta: float = 0.0,
    lower: float = LOWER,
    upper: float = UPPER,
    adjacency: Adjacency = "replace",
    unit: str | None = None,
    rows_per_person: RowsPerPerson = "all",
    delimiter: str | None = None,
    file: FileFormat = PLAIN,
    missing_codes: Mapping[str, Sequence[float]] | None = None,
    ledger: Account | None = None,
    random_state: int | None = None,
) -> PrivateBounds:
    """Lower and upper quantiles of columns, for people without a codebook: one private release.

    No range has to be declared: any double up to 1e150 is found. With probability 0.999 every bound is within
    a factor of 8 of a value of its column, or of 0 by less than 1.

    Parameters
    ----------
    table : data frame, mapping {column: cells}, array, Dask collection, or path of a CSV or Parquet file
        The sensitive records. A cell that is no number is left out of its column. An array has `columns`, all
        of them in this order.
    columns : sequence of str
        Whose bounds are wanted. They share ε.
    epsilon, delta : float
        The cost. δ > 0 helps from about ten columns on; where it does not, it is not charged.
    lower, upper : float, default=0.005 and 0.995
        The levels of the quantiles.
    adjacency : {"replace", "add_remove"}, default="replace"
        Which tables are neighbours.
    unit, rows_per_person : str, optional
        The column that says whose row it is, an array has it last: a person is protected then and counts
        once, with "all" rows, in equal parts, or "one" that a fresh coin chooses. Quantiles and shares are
        those of persons (U-2).
    file : FileFormat, optional
        How a CSV file is written: encoding, delimiter, decimal sign.
    missing_codes : mapping, optional
        Numbers that say that there is none, by column: {"income": [-9, 999]}.
    ledger, delimiter, random_state : optional
        As in `curvedp.describe`.

    Returns
    -------
    bounds : PrivateBounds
        The bounds, with the shares of values outside and intervals for them.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp.analyses.explore import private_bounds
    >>> wage = np.random.default_rng(0).lognormal(10, 0.6, 50_000)
    >>> found = private_bounds({"wage": wage}, ["wage"], epsilon=0.5, random_state=1)
    >>> wages = found.columns[0]
    >>> 1_000 < wages.low < 8_000 and 80_000 < wages.high < 200_000
    True
    >>> bool(wages.below.low <= np.mean(wage < wages.low) <= wages.below.high)
    True
    """
    levels: dict[str, Any] = {"lower": lower, "upper": upper, "rows_per_person": rows_per_person}
    plan = plan_bounds(columns, Budget(epsilon, delta), neighbours=Neighbours(adjacency, unit), **levels)
    codes = {
        name: Numerals(file.decimal, missing_codes=tuple(map(float, numbers)))
        for name, numbers in (missing_codes or {}).items()
    }
    read = number_columns(table, plan.layout, delimiter=delimiter, file=file, numerals=codes)
    return release_bounds(plan, read, ledger=ledger, random_state=random_state)


def release_bounds(
    plan: BoundsPlan, read: NumberColumns, *, ledger: Account | None = None, random_state: int | None = None
) -> PrivateBounds:
    """A planned release; its charge has a label of its own, by which a schema can name it."""
    label, day = f"bounds {secrets.token_hex(4)}", datetime.now(UTC).date().isoformat()
    released = execute(plan, read, ledger=ledger, label=label, random_state=random_state)
    seen = tuple(found for found in released.value if found is not None)
    hidden = tuple(name for name in plan.layout.names if name not in {found.name for found in seen})
    lower, upper = (level / UNIT for level in plan.levels.millionths)
    charge = label if ledger is not None else ""
    bounds = PrivateBounds(seen, hidden, lower, upper, released.privacy, charge, day, released.receipt)
    keep(ledger, released.receipt, bounds.to_dict)
    return bounds


def apart(low: float, high: float) -> tuple[float, float]:
    """low < high: where both quantiles are one number, half of it (or ½) to either side."""
    if low < high:
        return low, high
    reach = max(abs(low), 1.0) / 2
    return max(low - reach, -LARGEST_ENTRY), min(low + reach, LARGEST_ENTRY)
