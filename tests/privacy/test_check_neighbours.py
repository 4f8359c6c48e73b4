"""A check of two neighbouring tables: only its noisy counts may tell them apart, and those by μ at most."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.hostile import CONTAINERS, STRATEGY, Odd
from tests.privacy.replay import moved_by
from tests.privacy.test_neighbouring_tables import column, named, neighbours, observe, take

from curvedp import Budget
from curvedp.analyses.explore.check import (
    CellLayout,
    CheckedCells,
    cells_of,
    check,
    plan,
)
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.frames import Table
from curvedp.data.source import Source

BUDGET = Budget(1.0, 1e-6)
few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def schema_for(adjacency: str, classes: bool = True) -> Schema:
    target = Categorical("y", ["0", "1", "yes"]) if classes else Numeric("y", -1, 1)
    return Schema([Numeric("a", -1, 1), Categorical("b", ["0", "1", "yes"]), target], "y", adjacency)


def looked(table: Any, adjacency: str, classes: bool) -> Any:
    """A check at an ε so large that not even one row is too few."""
    schema, options = schema_for(adjacency, classes), {"epsilon": 1e4, "delta": 0.5, "random_state": 0}
    if named(table):
        return check(schema, table, **options)
    return check(schema, take(table, ["a", "b"]), column(table), **options)


@pytest.mark.parametrize("classes", [True, False], ids=["classes", "numbers"])
@pytest.mark.parametrize("container", CONTAINERS)
@few
@given(data=st.data())
def test_neighbours_give_the_same_errors_warnings_logs_and_attributes(container, classes, data):
    kind, make = CONTAINERS[container]
    adjacency = data.draw(st.sampled_from(ADJACENCIES))
    left, right = (
        observe(lambda columns=columns: looked(make(columns), adjacency, classes))
        for columns in neighbours(data, kind, adjacency)
    )
    assert left == right
    assert not left.warned and not left.logged


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("container", ["lists", "object array", "pandas object", "polars text", "mapping"])
@few
@given(data=st.data())
def test_one_hostile_record_moves_the_counts_by_the_planned_shift_at_most(container, adjacency, data):
    kind, make = CONTAINERS[container]
    schema = schema_for(adjacency)
    made = plan(schema, BUDGET)
    tables = [make(columns) for columns in neighbours(data, kind, adjacency)]
    left, right = (
        cells_of(schema, t) if named(t) else cells_of(schema, take(t, ["a", "b"]), column(t)) for t in tables
    )
    moved = moved_by(made, left, right, pytest.MonkeyPatch())
    assert moved.gaussian <= made.split.profile.mu


# One cell of every kind that a column knows, and one that is as it should be.
NUMBERS = [0.5, -7, 7, None, "0,5", "x"]
LEVELS = ["yes", "0", None, "X"]
RECORDS = [dict(zip("aby", cells, strict=True)) for cells in itertools.product(NUMBERS, LEVELS, LEVELS)]


def counts_of(schema: Schema, records: list[dict[str, Any]]) -> np.ndarray:
    columns = {name: [record[name] for record in records] for name in "aby"}
    counts = cells_of(schema, columns).counts()
    return counts[:-1] if schema.adjacency == "replace" else counts  # n is public there


def longest(schema: Schema) -> float:
    """sup ‖c(D) − c(D')‖ over tables that share two records and differ in one."""
    shared = [RECORDS[0], RECORDS[-1]]
    base = counts_of(schema, shared)
    moved = np.array([counts_of(schema, [*shared, record]) - base for record in RECORDS])
    if schema.adjacency == "add_remove":
        return float(np.linalg.norm(moved, axis=1).max())
    return float(np.linalg.norm(moved[:, None] - moved[None], axis=2).max())


@pytest.mark.parametrize("classes", [True, False], ids=["classes", "numbers"])
@pytest.mark.parametrize(("adjacency", "d"), [("add_remove", 3), ("replace", 3)])
def test_the_sensitivity_is_what_brute_force_finds(adjacency, d, classes):
    schema = schema_for(adjacency, classes)
    expected = math.sqrt(d + 1) if adjacency == "add_remove" else math.sqrt(2 * d)
    assert longest(schema) == pytest.approx(expected, rel=1e-15)
    assert CellLayout.of(schema).asked.sensitivity == pytest.approx(expected, rel=1e-15)


def test_the_number_of_rows_costs_one_more_count():
    """Without n̂ a record moves √d."""
    schema = schema_for("add_remove")
    counts = np.array([counts_of(schema, [record])[:-1] for record in RECORDS])
    assert np.linalg.norm(counts, axis=1).max() == pytest.approx(math.sqrt(3))


class TwoKinds(CellLayout):
    """A planted bug: a number above its bounds counts as unreadable, too."""

    def counts(self, table):
        found, at = super().counts(table), 0
        for own, kinds in zip(self.columns, self.kinds, strict=True):
            if isinstance(own, Numeric):
                found[at + 4] += found[at + 1]
            at += len(kinds)
        return found


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_kinds_that_overlap_are_seen_by_the_replay_and_by_brute_force(adjacency, monkeypatch):
    schema = schema_for(adjacency)
    layout = CellLayout.of(schema)
    planted = TwoKinds(layout.columns, layout.neighbours, layout.classes)
    made = plan(schema, BUDGET)
    bad, good = {"a": [7.0], "b": ["X"], "y": ["X"]}, {"a": [None], "b": [None], "y": [None]}
    start = Table({name: [] for name in "aby"}) if adjacency == "add_remove" else Table(good)

    def source(table: Table) -> CheckedCells:
        return CheckedCells(planted, Source([table], lambda: [table]))

    moved = moved_by(made, source(start), source(Table(bad)), pytest.MonkeyPatch())
    assert moved.gaussian > 1.05 * made.split.profile.mu
    monkeypatch.setattr(CellLayout, "of", classmethod(lambda cls, schema: planted))
    assert longest(schema) > 1.05 * made.layout.asked.sensitivity


def test_declared_rows_do_not_look_at_the_table():
    """A private number of rows: whether a check is made depends on what was declared alone."""
    schema = schema_for("add_remove")
    for n in (0, 1, 40):
        table = {name: ["0"] * n for name in "aby"}
        seen = observe(lambda table=table: check(schema, table, epsilon=1.0, random_state=0))
        assert not seen.error and not seen.warned
        seen = observe(lambda table=table: check(schema, table, epsilon=1.0, rows=9, random_state=0))
        assert "in 9 rows this check could not see" in seen.error


TOKEN = re.compile("secret-diagnosis|token-of-odd")


@pytest.mark.parametrize("where", ["a", "b", "y"])
@pytest.mark.parametrize("container", ["lists", "object array", "pandas object", "mapping", "polars text"])
def test_a_planted_token_appears_nowhere(where, container):
    kind, make = CONTAINERS[container]
    assert kind in STRATEGY
    for token in ("secret-diagnosis", *([Odd()] if kind == "object" else [])):
        filler = "0.25" if kind == "text" else 0.25
        columns = {name: [filler] * 20 for name in "aby"}
        columns[where][7] = token
        seen = observe(lambda columns=columns: looked(make(columns), "replace", True))
        assert not seen.error
        told = f"{seen.result} {seen.result.table()} {seen.result._repr_html_()}"
        assert not TOKEN.search(told + " ".join(seen.warned) + " ".join(seen.logged))
        assert b"secret-diagnosis" not in pickle.dumps(seen.result)
