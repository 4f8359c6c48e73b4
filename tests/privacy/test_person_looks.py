"""check, bounds, describe and quantiles of persons: a person counts once, however many rows (U-2)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.hostile import CONTAINERS, STRATEGY
from tests.privacy.replay import moved_by, refuted

from curvedp import Budget, Ledger
from curvedp.analyses.explore import describe, private_bounds, private_quantiles
from curvedp.analyses.explore.bounds import CountNoise, histogram, plan_bounds
from curvedp.analyses.explore.check import cells_of, check
from curvedp.analyses.explore.check import plan as plan_check
from curvedp.analyses.explore.describe import DescribePlan, GroupPlan
from curvedp.analyses.explore.quantiles import UNIT_OF_PERSONS, Levels, QuantilePlan, rank_errors
from curvedp.analyses.explore.tallies import (
    ColumnNames,
    NumberColumns,
    Ordered,
    TalliedTable,
    block_total,
    number_columns,
    tallied,
)
from curvedp.arrays import ROWS_AT_MOST
from curvedp.auditing import exam
from curvedp.auditing.cases import BUDGET, release_case
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.frames import PART_STEPS, Table
from curvedp.errors import CurvedpError, InvalidInput, NotCovered
from curvedp.numbers import exact
from curvedp.privacy.budget import Neighbours

HOSTILE = 4_000  # rows of one person
few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
Columns = dict[str, list[Any]]


def schema(adjacency: str = "replace", unit: str | None = "who", **options: Any) -> Schema:
    columns = [Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("c", ["no", "yes"])]
    return Schema(columns, "c", adjacency, unit=unit, **options)


def crowd(persons: int = 300, seed: int = 0) -> Columns:
    """Persons of 1 to 6 rows, those with many of them larger."""
    random = np.random.default_rng(seed)
    who = np.repeat(np.arange(persons), random.integers(1, 7, persons))
    rows = np.bincount(who)[who]
    a = np.clip(random.normal(0.2 * rows - 0.8, 0.2), -1, 1)
    return {
        "a": a.tolist(),
        "b": random.uniform(-1, 1, len(who)).tolist(),
        "c": np.where(random.random(len(who)) < rows / 8, "yes", "no").tolist(),
        "who": who.tolist(),
    }


def with_person(table: Columns, *rows: tuple[Any, ...], name: Any = "x") -> Columns:
    """The table and these rows (a, b, c) of one more person."""
    more = list(zip(*rows, strict=True)) if rows else [()] * 3
    return {key: [*table[key], *own] for key, own in zip(table, [*more, [name] * len(rows)], strict=True)}


def sides(adjacency: str, out: list[Any], into: list[Any], times: int = HOSTILE) -> tuple[Columns, Columns]:
    """Neighbours: a person whose rows are `into`, over and over, and none, or another person."""
    own = out * times if adjacency == "replace" else []
    return with_person(crowd(), *own, name="y"), with_person(crowd(), *(into * times))


def check_of(table: Any, adjacency: str) -> tuple[Any, Any]:
    return plan_check(schema(adjacency), BUDGET), cells_of(schema(adjacency), table)


def description_of(table: Any, adjacency: str) -> tuple[Any, Any]:
    source = tallied(table, schema(adjacency))
    return DescribePlan.calibrated(source.layout, BUDGET), source


def groups_of(table: Any, adjacency: str) -> tuple[Any, Any]:
    source = tallied(table, schema(adjacency), by=("c",), rows_up_to=5, quartiles=True)
    return GroupPlan.calibrated(source.layout, BUDGET), source


def bounds_of(table: Any, adjacency: str) -> tuple[Any, Any]:
    plan = plan_bounds(["a", "b"], Budget(1.0), neighbours=Neighbours(adjacency, "who"))
    return plan, number_columns(table, plan.layout)


def quantiles_of(table: Any, adjacency: str) -> tuple[Any, Any]:
    layout = ColumnNames(("a",), Neighbours(adjacency, "who"))
    levels = Levels.of((0.25, 0.5, 0.75), layout.neighbours)
    plan = QuantilePlan(layout, levels, tuple(np.linspace(-1, 1, 9)), Budget(1.0))
    return plan, number_columns(table, layout)


LOOKS = {
    "check": check_of,
    "describe": description_of,
    "groups": groups_of,
    "bounds": bounds_of,
    "quantiles": quantiles_of,
}
GAUSSIAN = ("check", "describe", "groups")
# A person at one end of everything, or with rows all over the place, and another.
EXTREMES = {
    "the same rows": ([(-1.0, 1.0, "no")], [(1.0, 1.0, "yes")]),
    "cells that cannot be read": ([("?", None, "maybe")], [(9.0, 9.0, "yes")]),
    "different rows": ([(-1.0, -1.0, "no"), (1.0, "x", "no")], [(1.0, 1.0, "yes"), (None, -1.0, "")]),
    "numbers of every scale": ([(1e-300, 1e150, "no")], [(-1e150, 5.0, "yes"), (3e9, -2e-9, "yes")]),
}


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("name", LOOKS)
def test_four_thousand_rows_of_a_person_move_no_answer_by_more_than_its_share(name, kind, adjacency):
    tables = sides(adjacency, *EXTREMES[kind], times=HOSTILE // len(EXTREMES[kind][1]))
    (plan, left), (_, right) = (LOOKS[name](table, adjacency) for table in tables)
    assert not refuted(plan, left, right, replays=4, transcripts=20)
    if name in GAUSSIAN:
        assert moved_by(plan, left, right, pytest.MonkeyPatch()).gaussian <= plan.split.profile.mu


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", LOOKS)
def test_rows_counted_for_persons_are_found(name, adjacency, monkeypatch):
    """The planted bug: every row counts 1."""
    monkeypatch.setattr(Table, "parts", property(lambda table: np.ones(len(table))))
    tables = sides(adjacency, *EXTREMES["the same rows"], times=40)
    (plan, left), (_, right) = (LOOKS[name](table, adjacency) for table in tables)
    assert refuted(plan, left, right, replays=4, transcripts=20)


def cap_forgotten(parts: np.ndarray, up_to: int) -> np.ndarray:
    return np.where(parts > 0, (PART_STEPS // up_to) / PART_STEPS, 0.0)


def once_in_every_group(layout: Any, block: np.ndarray, parts: np.ndarray) -> Any:
    """A person's parts in a group are taken for the whole of it."""
    level = np.nan_to_num(block[:, 2], nan=2.0)
    whole = np.array([parts[level == own].sum() for own in level])
    return block_total(layout, block, np.where(whole < 1, parts / np.maximum(whole, 1e-9), parts))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("bug", ["cap forgotten", "once in every group"])
def test_bugs_in_what_a_person_adds_to_groups_are_found(bug, adjacency, monkeypatch):
    rows = [(1.0, 1.0, level) for level in ("no", "yes", "maybe") for _ in range(8)]
    out = [(-1.0, -1.0, "no")] * 24
    persons = [crowd(0), crowd(0)]
    own = [out if adjacency == "replace" else [], rows]
    tables = [with_person(person, *rows) for person, rows in zip(persons, own, strict=True)]
    (plan, left), (_, right) = (groups_of(table, adjacency) for table in tables)
    assert not refuted(plan, left, right, replays=4, transcripts=20)
    if bug == "cap forgotten":
        monkeypatch.setattr("curvedp.analyses.explore.tallies.row_parts", cap_forgotten)
    else:
        monkeypatch.setattr("curvedp.analyses.explore.tallies.block_total", once_in_every_group)
    assert refuted(plan, left, right, replays=4, transcripts=20)


@dataclass(frozen=True, eq=False)
class HalfOfTheSpan(DescribePlan):
    """A planted bug: a person's averaged rows are taken to lie twice as near to each other as they may."""

    @property
    def grids(self):
        return {part: replace(grid, sigma=grid.sigma / 2) for part, grid in super().grids.items()}


def test_noise_for_half_a_person_is_found():
    tables = sides("replace", *EXTREMES["the same rows"])
    left, right = (tallied(table, schema()) for table in tables)
    assert refuted(HalfOfTheSpan.calibrated(left.layout, BUDGET), left, right, replays=4, transcripts=20)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "container", ["pandas object", "pandas Int64", "polars text", "arrow int", "mapping"]
)
@few
@given(data=st.data())
def test_no_hostile_person_moves_the_counts_by_more_than_was_planned(container, adjacency, data):
    kind, make = CONTAINERS[container]
    row = st.tuples(STRATEGY[kind], STRATEGY[kind])
    shared, own = data.draw(row), data.draw(st.lists(row, min_size=1, max_size=9))
    other = data.draw(st.lists(row, min_size=1, max_size=9)) if adjacency == "replace" else []
    at = Schema([Numeric("a", -1, 1), Categorical("b", ["0", "1"])], None, adjacency, unit="who")
    tables = []
    for person in (own, other):
        a, b = map(list, zip(shared, *person, strict=True))
        tables.append({"a": a, "b": b, "who": [0, *[7] * len(person)]})
    for build in (lambda t: (plan_check(at, BUDGET), cells_of(at, t)), lambda t: _described(t, at)):
        (plan, left), (_, right) = (build(_built(make, table)) for table in tables)
        assert moved_by(plan, left, right, pytest.MonkeyPatch()).gaussian <= plan.split.profile.mu


def _described(table: Any, at: Schema) -> tuple[Any, Any]:
    source = tallied(table, at)
    return DescribePlan.calibrated(source.layout, BUDGET), source


def _built(make: Any, table: Columns) -> Any:
    """The container of the hostile columns, with identifiers in a column of its own kind."""
    found = make({"a": table["a"], "b": table["b"]})
    if isinstance(found, dict):
        return {**found, "who": table["who"]}
    if isinstance(found, pd.DataFrame):
        return found.assign(who=table["who"])
    if hasattr(found, "append_column"):
        return found.append_column("who", [table["who"]])
    import polars as pl

    return found.with_columns(pl.Series("who", table["who"]))


# Sensitivities of ranks, by brute force: persons of two rows, each of which counts ½, one may be no number.


CELLS, CANDIDATES = (1.0, 2.0, 3.0, None), (0.5, 1.0, 2.0, 2.5, 3.0)
PEOPLE = list(itertools.combinations_with_replacement(CELLS, 2))


def utilities(persons: tuple[Any, ...], levels: tuple[float, ...], spans: bool) -> dict[Any, Fraction]:
    """N of every outcome, by the definition, in exact numbers."""
    values = [(x, Fraction(1, 2)) for person in persons for x in person if x is not None]
    n = sum((w for _, w in values), Fraction(0))

    def error(c: float, q: float) -> Fraction:
        below = sum((w for x, w in values if x < c), Fraction(0)) - exact(q) * n
        upto = exact(q) * n - sum((w for x, w in values if x <= c), Fraction(0))
        return max(below, Fraction(0)) - max(upto, Fraction(0))

    found = {}
    for outcome in itertools.combinations_with_replacement(CANDIDATES, len(levels)):
        r = [error(c, q) for c, q in zip(outcome, levels, strict=True)]
        found[outcome] = max(*r, 0, 0) - min(*r, 0, 0) if spans else sum(map(abs, r), Fraction(0))
    return found


THREE = pytest.param((0.25, 0.5, 0.75), marks=pytest.mark.full)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("levels", [(0.2, 0.6), (0.5,), THREE], ids=str)
def test_ranks_of_persons_move_by_the_stated_sensitivity_at_most(levels, adjacency):
    at = Levels.of(levels, Neighbours(adjacency, "who"))
    known = {
        key: utilities(key, levels, at.spans)
        for size in (1, 2, 3)
        for key in itertools.combinations_with_replacement(PEOPLE, size)
    }
    most = Fraction(0)
    for shared in itertools.chain([()], itertools.combinations_with_replacement(PEOPLE, 2)):
        ends = [known[tuple(sorted((*shared, p), key=PEOPLE.index))] for p in PEOPLE]
        ends += [] if adjacency == "replace" else [known.get(shared, dict.fromkeys(ends[0], Fraction(0)))]
        pairs = (
            itertools.combinations(ends, 2) if adjacency == "replace" else ((end, ends[-1]) for end in ends)
        )
        most = max(most, *(abs(one[o] - other[o]) for one, other in pairs for o in one))
    assert at.sensitivity * Fraction(2, 3) <= most <= at.sensitivity


def test_rank_errors_of_as_many_persons_as_there_can_be_are_exact():
    sums = np.array([0, ROWS_AT_MOST // 3, ROWS_AT_MOST], dtype=np.int64) * PART_STEPS
    ordered = Ordered(np.array([1.0, 2.0]), sums, PART_STEPS)
    for level in (1, 5_000, UNIT_OF_PERSONS - 1):
        below, upto, n = (int(ordered.before(2.0, "left")), int(ordered.before(2.0, "right")), ordered.total)
        high, low = UNIT_OF_PERSONS * below - level * n, level * n - UNIT_OF_PERSONS * upto
        wanted = max(high, 0) - max(low, 0)
        assert rank_errors(ordered, np.array([2.0]), level, UNIT_OF_PERSONS).tolist() == [wanted]
    assert UNIT_OF_PERSONS * PART_STEPS * ROWS_AT_MOST < 2**63


def test_a_level_finer_than_what_ranks_of_persons_hold_is_refused():
    assert Levels.of((0.00005,), Neighbours("replace")).millionths == (50,)
    with pytest.raises(InvalidInput, match=r"multiple of 0\.0001,"):
        Levels.of((0.00005,), Neighbours("replace", "who"))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_noise_of_counts_lies_on_the_grid_of_the_parts(adjacency):
    """A coarser grid would show the parts of a person in the last digits of a noisy count."""
    neighbours = Neighbours(adjacency, "who")
    noise = CountNoise.of(0.7, neighbours)
    assert Fraction(neighbours.moves * PART_STEPS, noise.scale) <= exact(0.7)
    counts = np.array([0.0, 1 / PART_STEPS, 12345 / PART_STEPS, 7.0])
    noisy = noise.added_to(counts, np.random.default_rng(0)) * PART_STEPS
    assert np.array_equal(noisy, np.round(noisy))
    _, columns = bounds_of(with_person(crowd(), *[(0.1 * k, 1.0, "no") for k in range(7)]), adjacency)
    for ordered in columns.ordered().values():
        counted = histogram(ordered)
        assert counted.sum() == 301 and np.array_equal(counted * PART_STEPS, np.round(counted * PART_STEPS))


# One row of each person: nothing differs.


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_persons_of_one_row_give_the_numbers_of_rows(adjacency):
    table = crowd(2_000)
    table["who"] = np.random.default_rng(0).permutation(len(table["a"])).tolist()
    persons, rows = schema(adjacency), schema(adjacency, unit=None)
    options: dict[str, Any] = {"epsilon": 1.0, "random_state": 3}
    looked = [check(at, table, **options) for at in (persons, rows)]
    assert looked[0].table() == looked[1].table() and looked[0].rows == looked[1].rows
    described = [describe(table, at, **options).table() for at in (persons, rows)]
    assert described[0] == described[1]
    for levels in ((0.3,), (0.1, 0.9), (0.25, 0.5, 0.75)):
        told = {"candidates": np.linspace(-1, 1, 41), "adjacency": adjacency, **options}
        chosen = [private_quantiles(table["a"], levels, unit=unit, **told) for unit in (table["who"], None)]
        assert chosen[0].value == chosen[1].value
    # The noise of counts has finer steps for persons; what it is added to is the same.
    plans = [
        plan_bounds(["a"], Budget(1.0), neighbours=Neighbours(adjacency, unit)) for unit in ("who", None)
    ]
    (one, other), candidates = (
        (number_columns(table, p.layout).ordered()["a"] for p in plans),
        np.arange(-1, 2.0),
    )
    assert np.array_equal(histogram(one), histogram(other))
    assert plans[0].parts == plans[1].parts and plans[0].seen == pytest.approx(plans[1].seen, rel=1e-3)
    laws = [p.levels.law(o, candidates, 1.0) for p, o in zip(plans, (one, other), strict=True)]
    assert laws[0].distance(laws[1], (0, 1)) == pytest.approx(0, abs=1e-9)


# What is counted


def averaged(table: Columns) -> pd.DataFrame:
    """By person: means of a, and of being a "yes"."""
    frame = pd.DataFrame({"who": table["who"], "a": table["a"], "yes": np.array(table["c"]) == "yes"})
    return frame.groupby("who").mean()


def test_means_and_shares_are_those_of_persons():
    table, at = crowd(), schema("add_remove")
    sums = tallied(table, at).sums()
    means = averaged(table)
    assert sums["sums"][0] / len(means) == pytest.approx(means["a"].mean(), abs=1e-4)  # parts are rounded
    assert sums["levels"][1] / len(means) == pytest.approx(means["yes"].mean(), abs=1e-4)
    assert abs(np.mean(table["a"]) - means["a"].mean()) > 0.05  # of rows they are others
    *counts, persons = cells_of(at, table).counts()
    assert persons == 300 and counts[-1] == sums["levels"][1]
    counted = number_columns(table, bounds_of(table, "replace")[0].layout)
    assert counted.rows == 300 and counted.ordered()["a"].total == 300 * PART_STEPS


def test_rows_of_nobody_count_nothing():
    table = crowd()
    more = with_person(table, *[(1.0, 1.0, "yes")] * 50, name=None)
    for name, at in itertools.product(LOOKS, ADJACENCIES):
        (plan, left), (_, right) = (LOOKS[name](t, at) for t in (table, more))
        assert moved_by(plan, left, right, pytest.MonkeyPatch()).gaussian == 0
    assert cells_of(schema(), more).rows == 300


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_intervals_hold_the_numbers_of_persons_as_often_as_they_say(adjacency, monkeypatch):
    """Persons with many rows differ from others: the numbers of rows are not held."""
    table, random, tries = crowd(1_500), np.random.default_rng(2), 200
    means, of_rows = averaged(table), float(np.mean(table["a"]))
    plan, source = description_of(table, adjacency)
    known = source.sums()
    monkeypatch.setattr(TalliedTable, "sums", lambda table: known)
    hits = np.zeros(3)
    for _ in range(tries):
        found = plan.release(source, random)
        mean, share = found.mean(0), found.share(found.levels[0], 1)
        hits += [
            mean.low <= means["a"].mean() <= mean.high,
            share.low <= means["yes"].mean() <= share.high,
            mean.low <= of_rows <= mean.high,
        ]
    assert hits[0] >= 180 and hits[1] >= 180  # 95 % of 200, less three standard deviations
    assert hits[2] < 20


def test_the_stated_shares_outside_of_bounds_are_those_of_persons(monkeypatch):
    table, random, hits = crowd(1_500), np.random.default_rng(0), 0
    plan, columns = bounds_of(table, "add_remove")
    ordered = columns.ordered()
    monkeypatch.setattr(NumberColumns, "ordered", lambda columns: ordered)
    for _ in range(8):
        for found in plan.release(columns, random):
            own = ordered[found.name]
            below = int(own.before(found.low, "left")) / own.total
            above = 1 - int(own.before(found.high, "right")) / own.total
            hits += (
                found.below.low <= below <= found.below.high and found.above.low <= above <= found.above.high
            )
    assert hits >= 12  # 95 % of 16, less three standard deviations


# One row of each person, chosen by a coin


def test_one_row_of_each_person_counts_where_that_is_asked():
    table, at = crowd(), schema("replace", rows_per_person="one")
    seen = []
    for _ in range(20):
        source = cells_of(at, table)
        counts = source.counts()
        assert counts[-1] == source.rows == 300
        assert np.array_equal(counts, np.round(counts)) and counts[-3:-1].sum() == 300
        assert np.array_equal(source.counts(), counts)  # the coins of one source do not change
        seen.append(counts[-2])
    assert len(set(seen)) > 5
    expected = 300 * averaged(table)["yes"].mean()
    assert np.mean(seen) == pytest.approx(expected, abs=4 * math.sqrt(75 / 20))
    assert describe(table, at, epsilon=1.0).count.value == 300
    found = private_bounds(table, ["a"], epsilon=5.0, unit="who", rows_per_person="one")
    assert found.columns[0].name == "a"
    plan = plan_bounds(["a"], Budget(5.0), neighbours=Neighbours("replace", "who"), rows_per_person="one")
    steps = np.diff(number_columns(table, plan.layout).ordered()["a"].sums)
    assert set(steps.tolist()) == {0, PART_STEPS} and steps.sum() == 300 * PART_STEPS
    with pytest.raises(InvalidInput, match="needs unit"):
        private_bounds(table, ["a"], epsilon=5.0, rows_per_person="one")


# Containers, ledgers, refusals


def containers(table: Columns, folder: Any) -> dict[str, Any]:
    frame = pd.DataFrame(table)
    frame.to_csv(folder / "t.csv", index=False)
    (folder / "parquet").mkdir()
    for part, start in enumerate(range(0, len(frame), 400)):
        frame[start : start + 400].to_parquet(folder / "parquet" / f"{part}.parquet", index=False)
    import dask.dataframe as dd
    import polars as pl
    import pyarrow as pa

    return {
        "pandas": frame,
        "text": frame.astype(str),
        "polars": pl.DataFrame(table),
        "arrow": pa.table(table),
        "CSV": folder / "t.csv",
        "Parquet": folder / "parquet",
        "Dask, one partition": dd.from_pandas(frame, npartitions=1),
    }


def test_every_container_has_the_same_persons(tmp_path):
    table, at = crowd(), schema("add_remove")
    options: dict[str, Any] = {"epsilon": 5.0, "random_state": 1}
    told = {"adjacency": "add_remove", "unit": "who", **options}
    wanted = (
        check(at, table, **options).table(),
        describe(table, at, **options).table(),
        private_bounds(table, ["a", "b"], **told).columns,
    )
    for name, container in containers(table, tmp_path).items():
        assert check(at, container, **options).table() == wanted[0], name
        assert describe(container, at, **options).table() == wanted[1], name
        assert private_bounds(container, ["a", "b"], **told).columns == wanted[2], name
    array = np.array([table["a"], table["b"], table["who"]], dtype=object).T
    assert private_bounds(array, ["a", "b"], **told).columns == wanted[2]


def test_one_ledger_of_persons_pays_for_all_and_for_nothing_of_rows(tmp_path):
    table, at, of_rows = crowd(), schema(), schema(unit=None)
    ledger = Ledger.create(tmp_path / "persons.db", epsilon=9.0, delta=1e-5, unit="who")
    check(at, table, epsilon=1.0, ledger=ledger)
    private_bounds(table, ["a"], epsilon=1.0, unit="who", ledger=ledger)
    describe(table, at, epsilon=1.0, ledger=ledger)
    whose = pd.Series(table["who"], name="who")
    private_quantiles(table["a"], (0.5,), [-1, 0, 1], epsilon=1.0, unit=whose, ledger=ledger)
    assert [charge.label.split()[0] for charge in ledger.history()] == [
        "check",
        "bounds",
        "describe",
        "quantiles",
    ]
    for refused in (
        lambda: check(of_rows, table, epsilon=1.0, ledger=ledger),
        lambda: private_bounds(table, ["a"], epsilon=1.0, ledger=ledger),
        lambda: describe(table, of_rows, epsilon=1.0, ledger=ledger),
        lambda: private_quantiles(table["a"], (0.5,), [-1, 0, 1], epsilon=1.0, ledger=ledger),
    ):
        with pytest.raises(CurvedpError, match="all rows of one 'who' together"):
            refused()
    assert ledger.state().charges == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"who": None}, "no column 'who'"),
        ({"who": np.arange(300) + 0.5}, "floating type"),
        ({"columns": ["who"]}, "says whose row it is"),
        ({"epsilon": 0.01}, "300 persons are too few"),
    ],
    ids=["missing", "floating", "bounded", "few"],
)
def test_what_is_wrong_is_refused_before_the_charge(change, words, tmp_path):
    ledger = Ledger.create(tmp_path / "persons.db", epsilon=9.0, delta=1e-5, unit="who")
    table = {name: cells[:300] for name, cells in crowd(300).items()} | {"who": list(range(300))}
    options = {"columns": ["a"], "epsilon": 1.0, "who": table["who"]} | change
    table["who"] = options["who"]
    if table["who"] is None:
        del table["who"]
    with pytest.raises(CurvedpError, match=words):
        private_bounds(table, options["columns"], epsilon=options["epsilon"], unit="who", ledger=ledger)
    assert ledger.state().charges == 0


def test_a_person_in_two_partitions_is_refused_or_counts_once():
    import dask.dataframe as dd

    frame = pd.DataFrame(crowd()).sample(frac=1.0, random_state=0)
    try:
        found = cells_of(schema(), dd.from_pandas(frame, npartitions=3, sort=False))
    except NotCovered:
        return
    assert found.rows == 300
    assert found.counts() == pytest.approx(cells_of(schema(), frame).counts(), abs=0.01)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "name",
    ["check of persons", "describe of persons", "describe by group of persons", "bounds of persons"],
)
def test_an_audit_of_persons_holds_and_comes_near(name, adjacency):
    found = exam(release_case(name, adjacency), replays=6, transcripts=200)
    assert found.verdict == "held" and 0.7 < found.total <= 1.01
    assert any("300 rows" in answer.pair for answer in found.answers)
