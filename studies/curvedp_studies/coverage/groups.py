"""Do the intervals of tables by group cover? Samples of known tables, groups of about 50 to 5,000 records.

A sample is drawn with replacement: records, or persons with all their rows. The truth is the mean or the
share in that group of the table it is drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from curvedp.analyses.explore.describe import GroupPlan
from curvedp.analyses.explore.description import GroupedDescription
from curvedp.analyses.explore.tallies import ALL, OTHER, tallied
from curvedp.arrays import FloatArray
from curvedp.data.columns import Categorical, Numeric
from curvedp.data.schema import Schema
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.randomness import generator
from curvedp.release.door import Released
from curvedp_studies.coverage.cells import ADJACENCIES
from curvedp_studies.coverage.library import chunks
from curvedp_studies.resume import Progress, complete_in_parts, seed_of

EPSILONS = (1.0, 3.0)
SIZES = (50, 200, 1000, 5000)
MOST_ROWS = 5  # of a person, in the table of persons; the cap of what counts rows
BAND = (0.93, 0.99)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A table to draw `n` records or persons from, and how it is declared."""

    table: dict[str, FloatArray]
    columns: tuple[Numeric | Categorical, ...]
    by: tuple[str, ...]
    n: int

    @property
    def persons(self) -> bool:
        return "who" in self.table

    def schema(self, adjacency: Adjacency) -> Schema:
        return Schema(self.columns, adjacency=adjacency, unit="who" if self.persons else None)

    def sample(self, random: np.random.Generator) -> dict[str, FloatArray]:
        if not self.persons:
            rows = random.integers(0, len(self.table[self.by[0]]), self.n)
            return {name: cells[rows] for name, cells in self.table.items()}
        who = self.table["who"]
        first, count = np.unique(who, return_index=True, return_counts=True)[1:]
        chosen = random.integers(0, len(first), self.n)
        rows = np.concatenate([np.arange(first[i], first[i] + count[i]) for i in chosen])
        found = {name: cells[rows] for name, cells in self.table.items()}
        return {**found, "who": np.repeat(np.arange(self.n), count[chosen])}

    def truths(self, counted: str) -> dict[tuple[tuple[str, ...], str, str], tuple[float, float]]:
        """(value, expected size of the group) by group, column and statistic, as `counted`."""
        size = len(self.table[self.by[0]])
        each, scale = np.ones(size), self.n / size
        if self.persons:
            _, code, rows = np.unique(self.table["who"], return_inverse=True, return_counts=True)
            each, scale = 1.0 / rows[code], self.n / len(rows)
            each = each if counted == "persons" else np.minimum(MOST_ROWS * each, 1.0)
        found = {}
        labels = [self.table[name] for name in self.by]
        for key in {*zip(*(label.tolist() for label in labels), strict=True)}:
            inside = np.all([own == level for own, level in zip(labels, key, strict=True)], axis=0)
            w = each[inside]
            for column in self.columns:
                cells = self.table[column.name][inside]
                if isinstance(column, Numeric):
                    x = np.clip(cells, column.low, column.high)
                    found[key, column.name, "mean"] = (float(x @ w / w.sum()), float(scale * w.sum()))
                elif column.name not in self.by:
                    for level in column.levels:
                        share = float((cells == level) @ w / w.sum())
                        found[key, column.name, f"share of {level}"] = (share, float(scale * w.sum()))
        return found


def generated(rows: int = 125_000) -> Drawn:
    """Four sizes of groups, whose means and shares differ; a skewed number, a rare level."""
    random = np.random.default_rng(11)
    p = np.array(SIZES) / sum(SIZES)
    size = random.choice(len(SIZES), rows, p=p)
    table = {
        "size": np.array([f"about {k}" for k in SIZES])[size],
        "wage": random.gamma(2.0, 8.0 + 3.0 * size),
        "age": np.clip(random.normal(38 + 4 * size, 12), 16, 90),
        "union": np.where(random.random(rows) < 0.1 + 0.15 * size, "yes", "no"),
        "job": random.choice(["clerk", "farm", "other"], rows, p=[0.6, 0.04, 0.36]),
    }
    columns = (
        Categorical("size", tuple(f"about {k}" for k in SIZES)),
        Numeric("wage", 0, 100),
        Numeric("age", 16, 90),
        Categorical("union", ("no", "yes")),
        Categorical("job", ("clerk", "farm", "other")),
    )
    return Drawn(table, columns, ("size",), sum(SIZES))


def generated_persons(persons: int = 40_000) -> Drawn:
    """Persons of 1 to 5 visits in places of several sizes; some visit two; the ill come more often."""
    random = np.random.default_rng(12)
    rows = 1 + random.binomial(MOST_ROWS - 1, random.beta(1, 2, persons))
    who = np.repeat(np.arange(persons), rows)
    place = random.choice(len(SIZES), persons, p=np.array(SIZES) / sum(SIZES))[who]
    place = np.where(random.random(len(who)) < 0.1, random.choice(len(SIZES), len(who)), place)
    own = random.normal(0, 8, persons)[who]
    table = {
        "place": np.array(["A", "B", "C", "D"])[place],
        "cost": np.clip(25 + 4 * rows[who] + 3 * place + own + random.normal(0, 5, len(who)), 0, 100),
        "ill": np.where(random.random(len(who)) < 0.1 * rows[who], "yes", "no"),
        "who": who,
    }
    columns = (
        Categorical("place", tuple("ABCD")),
        Numeric("cost", 0, 100),
        Categorical("ill", ("no", "yes")),
    )
    return Drawn(table, columns, ("place",), sum(SIZES))


def health() -> Drawn:
    """The RAND health insurance experiment as statsmodels ships it: visits by health and kind of plan."""
    from statsmodels.datasets import randhie  # type: ignore[import-untyped]

    data = randhie.load_pandas().data
    bad = np.select([data["hlthp"] == 1, data["hlthf"] == 1, data["hlthg"] == 1], [3, 2, 1], 0)
    table = {
        "health": np.array(["excellent", "good", "fair", "poor"])[bad],
        "plan": np.where(data["idp"].to_numpy() > 0, "deductible", "none"),
        "visits": data["mdvis"].to_numpy(dtype=float),
        "diseases": data["disea"].to_numpy(dtype=float),
        "limited": np.where(data["physlm"].to_numpy() > 0.5, "yes", "no"),
    }
    columns = (
        Categorical("health", ("excellent", "good", "fair", "poor")),
        Categorical("plan", ("none", "deductible")),
        Numeric("visits", 0, 30),
        Numeric("diseases", 0, 60),
        Categorical("limited", ("no", "yes")),
    )
    return Drawn(table, columns, ("health", "plan"), 12_000)


TABLES = {"generated": generated, "health (statsmodels)": health, "persons": generated_persons}


@lru_cache(maxsize=3)
def drawn_from(name: str) -> Drawn:
    return TABLES[name]()


@lru_cache(maxsize=4)
def truths(name: str, counted: str) -> dict[tuple[tuple[str, ...], str, str], tuple[float, float]]:
    return drawn_from(name).truths(counted)


@dataclass(frozen=True)
class Cell:
    population: str
    epsilon: float
    adjacency: Adjacency

    @property
    def points(self) -> list[tuple[str, float, str, str, str]]:
        """Of its rows."""
        ways = ("persons", "rows") if self.population == "persons" else ("records",)
        own = self.population, self.epsilon, self.adjacency
        return [(*own, counted, statistic) for counted in ways for statistic in ("mean", "share")]


@dataclass(frozen=True)
class GroupScore:
    """Of the means, or of the shares, of all groups of 50 to 5,000; `low` and `high` are of one group."""

    population: str
    epsilon: float
    adjacency: str
    counted: str
    statistic: str
    runs: int
    coverage: float  # of what is told, over groups, columns and runs
    low: float  # of a group
    high: float
    told: float  # share that is neither suppressed nor left open

    @property
    def point(self) -> tuple[str, float, str, str, str]:
        return self.population, self.epsilon, self.adjacency, self.counted, self.statistic


@dataclass(frozen=True)
class Chunk:
    cell: Cell
    runs: range


Hits = dict[tuple[str, str, tuple[str, ...]], tuple[int, int, int]]


def counted_hits(chunk: Chunk) -> Hits:
    """(told, held, all) by what is counted, "mean" or "share" and group."""
    cell, drawn = chunk.cell, drawn_from(chunk.cell.population)
    schema, found = drawn.schema(cell.adjacency), Hits()
    rows_up_to = MOST_ROWS if drawn.persons else None
    for run in chunk.runs:
        random = np.random.default_rng(seed_of(cell, run))
        source = tallied(drawn.sample(random), schema, by=drawn.by, rows_up_to=rows_up_to)
        plan = GroupPlan.calibrated(source.layout, Budget(cell.epsilon, 1e-6))
        sums = plan.release(source, generator(seed_of(cell, run, "noise")))
        told = GroupedDescription.of(Released(sums, plan.guarantee))
        for counted, groups in told.tables.items():
            for (key, column, name), (truth, size) in truths(cell.population, counted).items():
                if not SIZES[0] * 0.9 <= size <= SIZES[-1] * 1.1 or {ALL, OTHER} & {*key}:
                    continue
                number = groups[key][column][name]
                at = (counted, name.split()[0], key)
                before = found.get(at, (0, 0, 0))
                held = number.resolved and number.low <= truth <= number.high
                found[at] = (before[0] + number.resolved, before[1] + held, before[2] + 1)
    return found


def scored(cell: Cell, runs: int, parts: Sequence[Hits]) -> list[GroupScore]:
    """A row for what is counted and each statistic."""
    keys = sorted({key for part in parts for key in part})
    totals = {key: np.sum([part.get(key, (0, 0, 0)) for part in parts], axis=0) for key in keys}
    rows = []
    for counted, statistic in dict.fromkeys(key[:2] for key in keys):
        own = np.array([totals[key] for key in keys if key[:2] == (counted, statistic)])
        often = own[own[:, 0] >= 0.25 * own[:, 2]]
        each = often[:, 1] / often[:, 0]
        told, held, all_of = own.sum(axis=0)
        found = map(float, (held / told, each.min(), each.max(), told / all_of))
        at = cell.population, cell.epsilon, cell.adjacency, counted, statistic
        rows.append(GroupScore(*at, runs, *found))
    return rows


def study(
    table: Path, populations: str | None, runs: int, progress: Progress | None, workers: int | None
) -> list[Path]:
    """One row for each population, ε, adjacency, way to count and statistic."""
    names = populations.split(",") if populations else list(TABLES)
    cells = [Cell(name, epsilon, way) for name in names for epsilon in EPSILONS for way in ADJACENCIES]
    complete_in_parts(
        table,
        GroupScore,
        cells,
        lambda cell: cell.points,
        lambda cell: [Chunk(cell, part) for part in chunks(runs)],
        counted_hits,
        lambda cell, parts: scored(cell, runs, parts),
        progress=progress,
        workers=workers,
    )
    return [table]


def group_table(scores: Sequence[GroupScore]) -> list[str]:
    """Coverage (least and largest of a group) · told, means and shares side by side."""
    heads = [f"{way}, ε = {epsilon:g}" for way in ADJACENCIES for epsilon in EPSILONS]
    lines = ["| population | numbers | " + " | ".join(heads) + " |", "|---|---|" + "---|" * len(heads)]
    by_point = {score.point: score for score in scores}
    for name, counted, statistic in dict.fromkeys((s.population, s.counted, s.statistic) for s in scores):
        own = [
            by_point.get((name, epsilon, way, counted, statistic))
            for way in ADJACENCIES
            for epsilon in EPSILONS
        ]
        shown = [
            "" if s is None else f"{s.coverage:.3f} ({s.low:.2f} … {s.high:.2f}) · {100 * s.told:.0f} %"
            for s in own
        ]
        lines.append(f"| {name} | {statistic}s of {counted} | " + " | ".join(shown) + " |")
    inside = np.mean([BAND[0] <= score.coverage <= BAND[1] for score in scores])
    runs = " or ".join(str(number) for number in sorted({score.runs for score in scores}))
    return [
        *lines,
        "",
        f"{runs} samples a cell; {100 * inside:.0f} % of cells lie in [{BAND[0]}, {BAND[1]}].",
    ]
