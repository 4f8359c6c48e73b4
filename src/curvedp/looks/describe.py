"""`describe`: what the columns of a table hold, as one charged release (D-1)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray, TableLike
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.ledger import Ledger
from curvedp.looks.description import Description
from curvedp.looks.estimates import Z
from curvedp.looks.histograms import WIDTHS, tree
from curvedp.looks.noisy_sums import PARTS, NoisySums, Part
from curvedp.looks.tallies import LazyTable, TableLayout, TalliedTable, Tally, tallied
from curvedp.mechanisms.noise import Grid, gaussian_profile
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameters, Symbol
from curvedp.privacy.profiles import GaussianProfile
from curvedp.record import keep
from curvedp.release import execute
from curvedp.rows.rounding import SUM_SLACK
from curvedp.schema import Schema

# Of μ²; a part that the table does not have leaves its share to the others.
COUNTS, SUMS, SQUARES, PAIRS = 0.4, 0.25, 0.1, 0.25

_MEANINGS: Mapping[Part, str] = {
    "levels": "each count of a level",
    "nodes": "each count of numbers in a range",
    "sums": "each sum of a numeric column on [−1, 1]",
    "squares": "each sum of its squares",
    "pairs": "each sum of products of two of them",
}


@dataclass(frozen=True)
class Query:
    """Sums released together: their number, their l2-sensitivity, their share of μ²."""

    dim: int
    sensitivity: float
    share: float


def queries(layout: TableLayout) -> dict[Part, Query]:
    """What is released from a table of this layout, with the sensitivities of (D-1)."""
    neighbours = layout.neighbours
    d, c = len(layout.numeric), len(layout.categorical)
    slack = SUM_SLACK * (d + 1)  # ‖(x, 1)‖² ≤ d + 1
    shares: dict[Part, float] = {
        "levels": COUNTS * c / (c + d),
        "nodes": COUNTS * d / (c + d),
        "sums": SUMS * (d > 0),
        "squares": SQUARES * (d > 0),
        "pairs": PAIRS * (d > 1),
    }
    sensitivities: dict[Part, float] = {
        "levels": neighbours.histogram_factor * math.sqrt(c),
        "nodes": neighbours.histogram_factor * math.sqrt(WIDTHS * d),
        "sums": neighbours.sum_factor * math.sqrt(d) + slack,
        "squares": neighbours.sum_factor * math.sqrt(d) / 2.0 + slack,
        "pairs": (math.sqrt(d * (d - 1) / 2.0) if neighbours.moves == 1 else d) + slack,
    }
    dims: dict[Part, int] = {
        "levels": sum(len(column.levels) + 1 for column in layout.categorical),
        "nodes": sum(len(tree(bins.size)) for bins in layout.bins),
        "sums": d,
        "squares": d,
        "pairs": d * (d - 1) // 2,
    }
    whole = math.fsum(shares.values())
    return {
        part: Query(dims[part], sensitivities[part], shares[part] / whole) for part in PARTS if shares[part]
    }


@dataclass(frozen=True, eq=False)
class DescribePlan:
    """Noise for the counts and moments of a table: Gaussian parts with fixed shares of μ² (D-1)."""

    layout: TableLayout
    budget: Budget
    profile: GaussianProfile

    @classmethod
    def calibrated(cls, layout: TableLayout, budget: Budget) -> DescribePlan:
        if not budget.delta > 0:
            raise InvalidInput("a description adds Gaussian noise, which needs delta > 0: pass delta=1e-6")
        asked = queries(layout).values()
        profile = gaussian_profile(budget, [q.dim for q in asked], [q.share for q in asked])
        return cls(layout, budget, profile)

    @cached_property
    def grids(self) -> dict[Part, Grid]:
        """The noise of each part."""
        mu = self.profile.mu
        return {
            part: Grid.of(query.sensitivity, mu * math.sqrt(query.share), query.dim)
            for part, query in queries(self.layout).items()
        }

    @cached_property
    def guarantee(self) -> Guarantee:
        scales = [
            Symbol(f"sigma_{part}", "σ", f"standard deviation of the noise on {_MEANINGS[part]}", True)(
                grid.sigma
            )
            for part, grid in self.grids.items()
        ]
        return Guarantee(
            budget=self.budget,
            neighbours=self.layout.neighbours,
            mechanism="describe",
            accounting="gaussian",
            theorem="(D-1)",
            parameters=Parameters(public.MU(self.profile.mu), *scales),
            profile=self.profile,
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

    def accept(self, table: TalliedTable | LazyTable) -> None:
        """Refuse a public number of rows about which nothing could be said."""
        if not self.layout.neighbours.count_is_public or table.count is None:
            return
        if table.count() < self.fewest_rows:
            raise InvalidInput(
                f"at epsilon = {self.budget.epsilon:g} noise hides everything about a table of fewer than "
                f"{self.fewest_rows:,} rows, and this one has fewer: raise epsilon, or declare fewer columns"
            )

    def release(self, table: TalliedTable | LazyTable, random: np.random.Generator) -> NoisySums:
        tally = table.tally()
        exact = exact_sums(tally)
        noisy = {part: grid.add(exact[part], random, part) for part, grid in self.grids.items()}
        return NoisySums(
            self.layout,
            noisy,
            {part: grid.sigma for part, grid in self.grids.items()},
            float((*tally.leaves, *tally.levels)[0].sum())
            if self.layout.neighbours.count_is_public
            else None,
        )


def exact_sums(tally: Tally) -> dict[Part, FloatArray]:
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
