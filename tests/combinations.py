"""What goes with what: persons, weights, and everything else that a user may ask for.

One line for each mechanism, analysis and engine: whether it goes with a unit (U-1), with weights (W-1). What
is refused is refused before anything is charged; both together are refused where one of them is.
docs/combinations.md shows this table, and unit/test_combinations.py tries every line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from curvedp.release.catalogue import MECHANISMS

Feature = Literal["unit", "weights"]

BOUNDS_ROWS = "its proof bounds what one row adds, not what a person does"
NOISE_PER_RECORD = "every record gets the same noise, whatever it weighs"


YES = "yes"


def refused(reason: str) -> str:
    return f"refused: {reason}"


@dataclass(frozen=True)
class Combination:
    """One line of the table."""

    kind: Literal["mechanism", "analysis", "engine"]
    name: str
    unit: str = YES
    weights: str = YES

    def allows(self, features: frozenset[Feature]) -> bool:
        """Whether it goes with all of these at once."""
        return all(getattr(self, feature).startswith(YES) for feature in features)


_WEIGHTS = {"input": refused(NOISE_PER_RECORD)}
_UNWEIGHTED = f"{YES}: every row counts alike"
_OF_PERSONS = f"{YES}: every person counts once"
_PERSONS = {"recentered": YES, "gradient": YES, "statistics": _OF_PERSONS, "wishart": _OF_PERSONS}

ANALYSES = (
    Combination("analysis", "inference", unit=f"{YES}: errors are cluster-robust, by person"),
    Combination("analysis", "refit and path"),
    Combination("analysis", "search"),
    Combination("analysis", "scores", _OF_PERSONS, _UNWEIGHTED),
    Combination("analysis", "check", _OF_PERSONS, _UNWEIGHTED),
    Combination("analysis", "describe", _OF_PERSONS, _UNWEIGHTED),
    Combination("analysis", "tables by group", f"{_OF_PERSONS}, and rows beside them", _UNWEIGHTED),
    Combination("analysis", "bounds", _OF_PERSONS, _UNWEIGHTED),
    Combination("analysis", "PrivateStatistics", _OF_PERSONS, refused("it counts every record alike")),
)
ENGINES = (
    Combination("engine", "array, data frame, sparse matrix or CSV file"),
    Combination("engine", "memory map", unit=f"{YES}: sorted once into a file without a name"),
    Combination("engine", "Dask on one machine", unit=f"{YES}: persons meet in a temporary folder"),
    Combination("engine", "Dask on a cluster", unit=f"{YES}: persons meet by the cluster's own shuffle"),
    Combination("engine", "Parquet files by --engine dask", unit=f"{YES}: as Dask does"),
)


def combinations() -> Iterator[Combination]:
    for name in MECHANISMS:
        unit = _PERSONS.get(name, refused(BOUNDS_ROWS))
        yield Combination("mechanism", name, unit, _WEIGHTS.get(name, YES))
    yield from ANALYSES
    yield from ENGINES


def markdown() -> str:
    """The table as docs/combinations.md shows it."""
    lines = ["| | | with `unit` | with `weight` |", "|---|---|---|---|"]
    lines += [f"| {row.kind} | {row.name} | {row.unit} | {row.weights} |" for row in combinations()]
    return "\n".join(lines) + "\n"
