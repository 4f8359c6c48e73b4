"""Attacks by the likelihood ratio on noisy sums: a sound plan holds, planted bugs are refuted."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from curvedp import Budget
from curvedp.audit.gaussian_releases import attack, towards
from curvedp.errors import InvalidInput
from curvedp.looks.cells import CellLayout, CheckedCells, cells_of
from curvedp.looks.check import CheckPlan, plan
from curvedp.mechanisms.noise import Grid
from curvedp.schema import Categorical, Numeric, Schema

BUDGET = Budget(1.0, 0.1)  # a large δ: the events that decide are common, few releases show them
NAMES = [f"x{i}" for i in range(7)]


def schema_for(adjacency: str, names: list[str] = NAMES) -> Schema:
    """Numeric columns and a class target; without columns one number alone."""
    if not names:
        return Schema([Numeric("x", 0, 1)], None, adjacency)
    return Schema([*(Numeric(n, 0, 1) for n in names), Categorical("y", ["no", "yes"])], "y", adjacency)


def pair(schema: Schema):
    """The worst neighbours: every cell of one record is of another kind, or there is one more such record."""
    names = [column.name for column in schema.columns]
    shared = {name: [0.5, 2.0] for name in names} | {"y": ["no", "yes"]}
    bad = dict.fromkeys(names, 7.0) | {"y": "maybe"}
    other = dict.fromkeys(names, "x") | {"y": "no"}

    def counted(*records):
        table = {name: [*shared[name], *(record[name] for record in records)] for name in names}
        counts = cells_of(schema, table).counts()
        return CheckedCells(CellLayout.of(schema), lambda work: counts)  # counted once, for speed

    return (counted(bad), counted(other)) if schema.adjacency == "replace" else (counted(), counted(bad))


def proved(made: CheckPlan, source, neighbour, fits: int = 20_000) -> float:
    direction = neighbour.counts() - source.counts()
    return attack(made, source, neighbour, towards(direction), fits=fits, seed=1)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_a_check_holds_against_its_best_attack_which_comes_close(adjacency):
    schema = schema_for(adjacency)
    epsilon = proved(plan(schema, BUDGET), *pair(schema))
    assert 0.5 < epsilon <= BUDGET.epsilon


class OneColumn(CheckPlan):
    """Noise calibrated as if there were one column."""

    @property
    def grid(self):
        return Grid.of(self.layout.neighbours.histogram_factor, self.profile.mu, self.size)


class RowsForFree(CheckPlan):
    """The number of rows released on top, √d in the place of √(d+1)."""

    @property
    def grid(self):
        return Grid.of(math.sqrt(len(self.layout.columns)), self.profile.mu, self.size)


class ExactRows(CheckPlan):
    """The number of rows released as it is."""

    def release(self, rows, random):
        return replace(super().release(rows, random), rows=float(rows.counts()[-1]))


@pytest.mark.parametrize(
    ("bug", "adjacency", "columns"),
    [(OneColumn, "replace", 7), (OneColumn, "add_remove", 7), (RowsForFree, "add_remove", 0)],
)
def test_noise_for_too_few_counts_is_refuted(bug, adjacency, columns):
    schema = schema_for(adjacency, NAMES[:columns])
    sound = plan(schema, BUDGET)
    planted = bug(sound.layout, sound.budget, sound.profile)
    assert planted.guarantee.epsilon == BUDGET.epsilon
    assert proved(planted, *pair(schema)) > BUDGET.epsilon >= proved(sound, *pair(schema))


def test_a_number_of_rows_without_noise_is_refuted():
    schema = schema_for("add_remove")
    sound = plan(schema, BUDGET)
    planted = ExactRows(sound.layout, sound.budget, sound.profile)
    by_rows = partial(attack, statistic=lambda value: value.rows, fits=2_000)
    source, neighbour = pair(schema)
    assert by_rows(planted, source, neighbour) > 3 * BUDGET.epsilon
    assert by_rows(sound, source, neighbour) < 0.6  # the rows alone carry a shift of μ/√(d+1)


def test_too_few_releases_are_refused():
    schema = schema_for("add_remove")
    with pytest.raises(InvalidInput, match="fits"):
        attack(plan(schema, BUDGET), *pair(schema), lambda value: value.rows, fits=10)


def test_a_direction_weighs_every_number_of_the_value():
    assert towards([[1.0, 2.0], [0.0, 3.0]])((np.array([3.0, 4.0]), [5.0, 6.0])) == 29.0
