"""A description of two neighbouring tables: its sums move by μ at most, and nothing else tells them apart."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.hostile import CONTAINERS
from tests.privacy.replay import moved_by, refuted
from tests.privacy.test_neighbouring_tables import neighbours, observe

from curvedp import Budget
from curvedp.analyses.explore import describe
from curvedp.analyses.explore.describe import DescribePlan, GroupPlan, queries
from curvedp.analyses.explore.tallies import TableLayout, TalliedTable, tallied
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.frames import Table
from curvedp.data.source import Source
from curvedp.privacy.budget import Neighbours

BUDGET = Budget(1.0, 1e-6)
few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def schema_for(adjacency: str) -> Schema:
    columns = [Numeric("a", -1, 1), Categorical("b", ["0", "1", "yes"]), Numeric("y", -0.5, 1.25)]
    return Schema(columns, "y", adjacency)


@pytest.mark.parametrize("by", [None, ["b"]], ids=["all", "by group"])
@pytest.mark.parametrize("container", CONTAINERS)
@few
@given(data=st.data())
def test_neighbours_give_the_same_errors_warnings_logs_and_attributes(container, by, data):
    kind, make = CONTAINERS[container]
    adjacency = data.draw(st.sampled_from(ADJACENCIES))
    schema = schema_for(adjacency)
    asked = {"epsilon": 1e4, "delta": 0.5, "random_state": 0, "by": by}
    left, right = (
        observe(lambda c=columns: describe(make(c), schema, **asked))
        for columns in neighbours(data, kind, adjacency)
    )
    assert left == right
    assert not left.warned and not left.logged


@pytest.mark.parametrize("by", [None, ("b",)], ids=["all", "by group"])
@few
@given(data=st.data())
def test_what_one_record_moves_is_at_most_mu(by, data):
    """Replayed with the same released values, hostile cells included."""
    adjacency = data.draw(st.sampled_from(ADJACENCIES))
    schema, asked = schema_for(adjacency), {"by": by, "quartiles": by is not None}
    left, right = (tallied(columns, schema, **asked) for columns in neighbours(data, "object", adjacency))
    plan = (DescribePlan if by is None else GroupPlan).calibrated(left.layout, BUDGET)
    with pytest.MonkeyPatch.context() as patch:
        moved = moved_by(plan, left, right, patch)
    assert moved.gaussian <= plan.split.profile.mu


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_sensitivities_are_those_of_the_worst_records(adjacency, d):
    """All records of corners, middles and missing numbers, their sums formed here by hand."""
    columns = [*(Numeric(f"x{j}", -1, 1) for j in range(d)), Categorical("c", ["u", "v"])]
    layout = TableLayout(tuple(columns), Neighbours(adjacency))
    found = queries(layout)
    values = (-1.0, 0.0, 1.0, None)

    def contribution(record):
        *numbers, level = record
        x = np.array([0.0 if v is None else v for v in numbers])
        there = np.array([v is not None for v in numbers], dtype=float)
        nodes = []
        for v in numbers:  # four widths, each value in its own cell of each: −1, 0 and 1 are far apart
            cells = np.zeros((4, 3))
            if v is not None:
                cells[:, int(v) + 1] = 1.0
            nodes += [*cells.ravel(), 2.0 * (v is None)]
        return {
            "levels": np.eye(3)[level],
            "nodes": np.array(nodes),
            "sums": x,
            "squares": there * (x * x - 0.5),
            "pairs": np.array([x[j] * x[k] for j, k in itertools.combinations(range(d), 2)]),
        }

    records = [contribution(record) for record in itertools.product(*[values] * d, range(3))]
    for part, query in found.items():
        rows = np.array([record[part] for record in records])
        if adjacency == "add_remove":
            worst = np.linalg.norm(rows, axis=1).max()
        else:
            worst = np.linalg.norm(rows[:, None] - rows[None, :], axis=2).max()
        assert worst <= query.sensitivity
        tight = not (part == "pairs" and adjacency == "replace" and d == 3)  # √8, bounded by 3
        slack = 0.001 * (d + 1)
        assert not tight or query.sensitivity <= worst + slack, part
    assert math.isclose(sum(query.price for query in found.values()), 1.0 if d > 1 else 0.75)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_code_forms_those_sums(adjacency):
    """One record: what `sums` gives for it, against the definition."""
    layout = TableLayout((Numeric("a", 0, 2), Numeric("b", 0, 1), Categorical("c", ["u", "v"])), Neighbours())
    chunk = Table({"a": [1.5], "b": [None], "c": ["v"]})
    table = TalliedTable(layout, Source([chunk], lambda: [chunk]))
    sums = table.sums()
    assert sums["sums"].tolist() == [0.5, 0.0]
    assert sums["squares"].tolist() == [-0.25, 0.0]
    assert sums["pairs"].tolist() == [0.0]
    assert sums["levels"].tolist() == [0.0, 1.0, 0.0]
    assert sums["nodes"].sum() == 4 + 2 and (sums["nodes"] ** 2).sum() == 4 + 4
    assert set(sums) == {*queries(layout), "cells"}


def test_bounds_that_doubles_hardly_tell_apart_do_not_stretch_a_record():
    """Their middle is one of them: the map alone would send the other to 2."""
    schema = Schema([Numeric("a", 1e16, 1e16 + 2)])
    sums = tallied({"a": [1e16, 1e16 + 2]}, schema).sums()
    assert sums["squares"][0] <= 2.0 - 0.5 * 2 and abs(sums["sums"][0]) <= 2.0


LOUD = Budget(1.0, 0.1)  # a large δ: the events that decide are common, few releases show them


@dataclass(frozen=True, eq=False)
class Counted(TalliedTable):
    """Tallied once, for speed."""

    known: dict[str, np.ndarray] | None = None

    def sums(self) -> dict[str, np.ndarray]:
        assert self.known is not None
        return self.known


def worst_pair(adjacency: str) -> tuple[Counted, Counted]:
    """A record that sits in a corner of everything, removed, or replaced by the opposite corner."""
    columns = [Categorical(f"c{i}", ["u", "v"]) for i in range(6)] + [Numeric("x", -1, 1)]
    schema = Schema(columns, None, adjacency)
    common = {column.name: ["u"] for column in columns} | {"x": [0.0]}
    first = {column.name: "u" for column in columns} | {"x": -1.0}
    second = {column.name: "v" for column in columns} | {"x": 1.0}

    def counted(*records):
        table = tallied({k: [*v, *(r[k] for r in records)] for k, v in common.items()}, schema)
        return Counted(table.layout, table.source, known=table.sums())

    return (counted(first), counted(second)) if adjacency == "replace" else (counted(), counted(second))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_plan_holds_on_its_worst_pair(adjacency):
    left, right = worst_pair(adjacency)
    assert not refuted(DescribePlan.calibrated(left.layout, LOUD), left, right)


class OneCell(DescribePlan):
    """Noise of the levels as if a record were in one cell of one column."""

    @property
    def grids(self):
        sound = super().grids
        columns = len(self.layout.categorical)
        return {**sound, "levels": replace(sound["levels"], sigma=sound["levels"].sigma / math.sqrt(columns))}


class EveryPartAlone(DescribePlan):
    """Every part at the whole of μ: shares forgotten."""

    @property
    def grids(self):
        shift, mu = self.split.shift, self.split.profile.mu
        return {p: replace(g, sigma=g.sigma * shift(p) / mu) for p, g in super().grids.items()}


@pytest.mark.parametrize("bug", [OneCell, EveryPartAlone])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_planted_bugs_are_refuted(bug, adjacency):
    left, right = worst_pair(adjacency)
    assert refuted(bug.calibrated(left.layout, LOUD), left, right)
