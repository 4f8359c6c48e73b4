"""Private quantiles beside OpenDP's, at δ = 0 and equal ε, among the same candidates.

    python -m curvedp_studies.quantiles --data DIR --out docs/quantiles.md

Both levels of a column, 0.5 % and 99.5 %, are released together. Ours chooses them in one draw; OpenDP
releases one quantile at a time, so that each gets half of ε. The rank error of a release is the larger one of
its two bounds: how many records lie between its rank and the asked one, 0 where that rank falls on the bound.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curvedp.analyses.explore.bounds import plan_bounds
from curvedp.analyses.explore.quantiles import Levels
from curvedp.analyses.explore.tallies import Ordered, number_columns
from curvedp.arrays import FloatArray
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.randomness import generator
from curvedp.release.outputs import write_file

LEVELS = (0.005, 0.995)
CANDIDATES = 1000
SEEDS = 200
COLUMNS = (
    ("adult", "age"),
    ("adult", "fnlwgt"),
    ("adult", "hours"),
    ("credit_default", "LIMIT_BAL"),
    ("california", "median_income"),
    ("california", "population"),
    ("diamonds", "carat"),
    ("metro_traffic", "temp"),
    ("wine", "fixed_acidity"),
    ("fertility", "age"),
)

Draw = Callable[[], tuple[float, float] | None]


@dataclass(frozen=True)
class Row:
    """Median rank errors, in records, of one column under one ε and adjacency; None: not measured."""

    table: str
    column: str
    n: int
    epsilon: float
    adjacency: Adjacency
    ours: float
    opendp: float | None
    without_candidates: float

    @property
    def wins(self) -> bool | None:
        return None if self.opendp is None else self.ours <= self.opendp


def rank_error(ordered: FloatArray, pair: tuple[float, float] | None) -> float:
    """The larger rank error of two bounds; all records where none was found."""
    if pair is None:
        return float(len(ordered))
    errors = []
    for bound, level in zip(pair, LEVELS, strict=True):
        rank = level * len(ordered)
        below, upto = (np.searchsorted(ordered, bound, side=side) for side in ("left", "right"))
        errors.append(max(below - rank, rank - upto, 0.0))
    return float(max(errors))


def ours(ordered: FloatArray, candidates: FloatArray, epsilon: float, adjacency: Adjacency) -> Draw:
    """(Q-1) with all of ε."""
    levels, random = Levels.of(LEVELS, Neighbours(adjacency)), generator(0)
    law = levels.law(Ordered.of(ordered), candidates, epsilon)

    def draw() -> tuple[float, float]:
        low, high = law.draw(random)
        return float(candidates[low]), float(candidates[high])

    return draw


def bounds(ordered: FloatArray, epsilon: float, adjacency: Adjacency) -> Draw:
    """(Q-2): no candidates, and ε pays for the scales and for the counts, too."""
    plan, random = plan_bounds(["x"], Budget(epsilon), neighbours=Neighbours(adjacency)), generator(0)
    columns = number_columns({"x": ordered}, plan.layout)

    def draw() -> tuple[float, float] | None:
        (found,) = plan.release(columns, random)
        return None if found is None else (found.low, found.high)

    return draw


def opendp(ordered: FloatArray, candidates: FloatArray, epsilon: float, adjacency: Adjacency) -> Draw:
    """Two of OpenDP's quantiles with the least noise that its own map certifies for ε/2."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    known = adjacency == "replace"  # where n is public OpenDP has a smaller sensitivity
    atoms = dp.atom_domain(T=float, nan=False)
    domain = dp.vector_domain(atoms, size=len(ordered)) if known else dp.vector_domain(atoms)
    distance = 2 if known else 1

    def measurement(level: float, scale: float) -> Any:
        return (domain, dp.symmetric_distance()) >> dp.m.then_private_quantile(
            dp.max_divergence(), candidates=candidates.tolist(), alpha=level, scale=scale
        )

    made = [
        measurement(
            level, dp.binary_search_param(partial(measurement, level), d_in=distance, d_out=epsilon / 2)
        )
        for level in LEVELS
    ]
    values = ordered.tolist()

    def draw() -> tuple[float, float]:
        low, high = (quantile(values) for quantile in made)
        return float(low), float(high)

    return draw


def has_opendp() -> bool:
    try:
        import opendp.prelude  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def compare(
    values: FloatArray,
    limits: tuple[float, float],
    *,
    name: tuple[str, str],
    epsilon: float,
    adjacency: Adjacency,
    seeds: int = SEEDS,
) -> Row:
    """One row of the table; OpenDP's part where it is installed."""
    ordered, candidates = np.sort(values), np.linspace(*limits, CANDIDATES)

    def median(draw: Draw, repeats: int = seeds) -> float:
        return float(np.median([rank_error(ordered, draw()) for _ in range(repeats)]))

    return Row(
        table=name[0],
        column=name[1],
        n=len(ordered),
        epsilon=epsilon,
        adjacency=adjacency,
        ours=median(ours(ordered, candidates, epsilon, adjacency)),
        opendp=median(opendp(ordered, candidates, epsilon, adjacency)) if has_opendp() else None,
        without_candidates=median(bounds(ordered, epsilon, adjacency), max(seeds // 4, 1)),
    )


def column_of(folder: Path, table: str, column: str) -> tuple[FloatArray, tuple[float, float]]:
    """A numeric column of NAME.npz and its stated bounds in NAME.json."""
    meta = json.loads((folder / f"{table}.json").read_text())
    position = meta["feature_names"].index(column)
    with np.load(folder / f"{table}.npz", allow_pickle=False) as arrays:
        values = arrays["Xnum"][:, position].astype(np.float64)
    low, high = meta["bounds"][position]
    return values, (float(low), float(high))


def document(rows: Sequence[Row], seeds: int) -> str:
    """The page: one table for each ε and adjacency."""
    lines = [
        "# Quantiles beside OpenDP",
        "",
        "Lower and upper quantiles (0.5 % and 99.5 %) of ten columns of public tables, δ = 0. Both methods",
        f"choose among the same {CANDIDATES:,} candidates, equally spaced between stated bounds, at equal ε",
        f"for the two levels together. Median rank error, in records, of {seeds} releases: the larger one of",
        "the two bounds. OpenDP: its private quantile with the least noise that it certifies, ε/2 for each",
        "level; under `replace` it is told n. Without candidates, `curvedp bounds`",
        f"(median of {max(seeds // 4, 1)}): it also finds the scale and counts what lies outside, for which",
        "OpenDP has no counterpart. Made by `python -m curvedp_studies.quantiles --data DIR --out PAGE`.",
    ]
    for epsilon, adjacency in dict.fromkeys((row.epsilon, row.adjacency) for row in rows):
        part = [row for row in rows if (row.epsilon, row.adjacency) == (epsilon, adjacency)]
        wins = sum(bool(row.wins) for row in part)
        lines += [
            "",
            f"## ε = {epsilon:g}, {adjacency}",
            "",
            f"Smaller or equal on {wins} of {len(part)}.",
            "",
            "| table | column | n | curvedp | OpenDP | curvedp without candidates |",
            "|---|---|---:|---:|---:|---:|",
            *(
                f"| {r.table} | {r.column} | {r.n:,} | {r.ours:.1f} | "
                f"{'not installed' if r.opendp is None else f'{r.opendp:.1f}'} | {r.without_candidates:.1f} |"
                for r in part
            ),
        ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Private quantiles beside OpenDP's.")
    parser.add_argument("--data", type=Path, required=True, help="a folder of NAME.npz with NAME.json")
    parser.add_argument("--out", type=Path, required=True, help="the page to write")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    rows = [
        compare(
            *column_of(options.data, *name),
            name=name,
            epsilon=epsilon,
            adjacency=adjacency,
            seeds=options.seeds,
        )
        for adjacency in ("add_remove", "replace")
        for epsilon in options.epsilon
        for name in COLUMNS
    ]
    write_file(options.out, document(rows, options.seeds))


if __name__ == "__main__":
    main()
