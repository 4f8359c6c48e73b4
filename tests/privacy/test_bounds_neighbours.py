"""Bounds of neighbouring tables: a record moves one cell of each histogram, and no attack beats the claim."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.hostile import CONTAINERS, STRATEGY, Odd
from tests.privacy.replay import refuted
from tests.privacy.test_neighbouring_tables import named

from curvedp import Budget, Ledger
from curvedp.analyses.explore import bounds
from curvedp.analyses.explore.bounds import CountNoise, plan_bounds, private_bounds
from curvedp.analyses.explore.quantiles import Levels, QuantilePlan
from curvedp.analyses.explore.tallies import ColumnNames, number_columns
from curvedp.errors import CurvedpError, DataError, InvalidInput
from curvedp.numbers import exact
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import pure_mu

FRAMES = [name for name in CONTAINERS if name.startswith(("pandas", "polars", "arrow", "mapping"))]
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def source(cells, adjacency="replace"):
    return number_columns({"x": cells}, ColumnNames(("x",), Neighbours(adjacency)))


@pytest.mark.parametrize("container", FRAMES)
@few
@given(data=st.data())
def test_one_record_moves_each_histogram_by_its_number_of_moves(container, data):
    kind, build = CONTAINERS[container]
    cells = data.draw(st.lists(STRATEGY[kind], min_size=3, max_size=8))
    other = data.draw(STRATEGY[kind])
    tables = [cells, [*cells[:-1], other], cells[:-1]]
    layout = ColumnNames(("a",), Neighbours())
    assert named(build({"a": cells}))
    counts, outside = [], []
    for table in tables:
        found = number_columns(build({"a": table}), layout).ordered()["a"]
        ordered = found.values
        assert np.isfinite(ordered).all() and np.all(np.diff(ordered) >= 0) and len(ordered) <= len(table)
        counts.append(bounds.histogram(found))
        assert counts[-1].sum() == len(ordered) and len(counts[-1]) == bounds.COUNT
        outside.append(np.array([np.sum(ordered < 0.1), np.sum(ordered >= 0.1)]))
    for cells_of in (counts, outside):
        assert np.abs(cells_of[0] - cells_of[1]).sum() <= Neighbours("replace").moves
        assert np.abs(cells_of[0] - cells_of[2]).sum() <= Neighbours("add_remove").moves


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_parts_of_a_plan_stay_within_its_budget(adjacency):
    plan = plan_bounds(["a", "b", "c"], Budget(0.7), neighbours=Neighbours(adjacency))
    assert 3 * sum(map(exact, plan.parts)) <= exact(0.7)
    assert plan.guarantee.delta == 0 and plan.guarantee.epsilon == 0.7
    moves = plan.layout.neighbours.moves
    for noise, epsilon in ((plan.scale_noise, plan.parts[0]), (plan.count_noise, plan.parts[2])):
        assert Fraction(moves * 1024, noise.scale) <= exact(epsilon)  # exactly, not to rounding


def test_nothing_of_a_hostile_table_leaves_by_the_side(tmp_path):
    table = {"x": [Odd()] * 5 + ["secret-diagnosis", 10**400, None] * 10}
    found = private_bounds(table, ["x"], epsilon=50.0, adjacency="add_remove")
    assert "secret" not in repr(found) and "token" not in repr(found)
    with pytest.raises(DataError, match="no column 'y'") as caught:
        private_bounds(table, ["y"], epsilon=1.0)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": []}, "at least one column"),
        ({"columns": ["x", "x"]}, "named twice"),
        ({"columns": ["z"]}, "no column 'z'"),
        ({"columns": ["day"]}, "dates"),
        ({"lower": 0.9, "upper": 0.1}, "lower one first"),
        ({"lower": 0.0}, "strictly between 0 and 1"),
        ({"lower": 1e-8}, "multiple of"),
        ({"epsilon": 0.001}, "rows are too few at this epsilon"),
        ({"epsilon": 1e-300}, "too small"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"table": np.zeros((900, 2))}, "expecting 1 features"),
        ({"random_state": 1}, "never charged"),
        ({"adjacency": "add_remove"}, "counts replace neighbours"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_can_be_refused_is_refused_before_the_charge(change, words, tmp_path):
    ledger = Ledger.create(tmp_path / "b.db", epsilon=9.0, delta=0.0)
    days = np.array(["2020-01-01"] * 300, dtype="datetime64[D]")
    options = {"table": {"x": np.arange(300.0), "day": days}, "columns": ["x"], "epsilon": 1.0} | change
    with pytest.raises(CurvedpError, match=words):
        private_bounds(options.pop("table"), options.pop("columns"), ledger=ledger, **options)
    assert ledger.state().charges == 0


# The audit: outcomes of two neighbours, counted. Planted bugs are caught, the sound plans are not.


ELSEWHERE = np.linspace(2.25, 2.95, 50).tolist()  # candidates that make 2 a rare outcome
PAIRS = {  # candidate 2 comes nearer to the median by one record (or half of one), the others go away from it
    "add_remove": ([3.0], [3.0, 1.0], [2.0, *np.linspace(4, 5, 50)]),
    "replace": ([1.0, 2.2, 3.0, 3.0], [1.0, 2.2, 3.0, 1.0], [2.0, *ELSEWHERE]),
}


@dataclass(frozen=True)
class ThirdOfTheSensitivity(QuantilePlan):
    """A planted bug: the utility is taken to move by a third of what it does."""

    def release(self, columns, random):
        candidates = np.array(self.candidates)
        law = self.levels.law(columns.ordered()["x"], candidates, 3 * self.budget.epsilon)
        return tuple(float(candidates[i]) for i in law.draw(random))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_replays_of_quantiles_find_the_planted_bug_and_nothing_else(adjacency):
    table, other, candidates = PAIRS[adjacency]
    layout = ColumnNames(("x",), Neighbours(adjacency))
    parts = layout, Levels.of((0.5,), layout.neighbours), tuple(sorted(candidates)), Budget(1.0)
    sides = source(table, adjacency), source(other, adjacency)
    assert not refuted(QuantilePlan(*parts), *sides)
    assert refuted(ThirdOfTheSensitivity(*parts), *sides)


@dataclass(frozen=True)
class QuietScales(bounds.BoundsPlan):
    """A planted bug: the histogram of scales has a tenth of its noise."""

    @property
    def scale_noise(self):
        return CountNoise.of(10 * self.parts[0], self.layout.neighbours)

    @property
    def seen(self):
        return 300.0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_replays_of_bounds_find_the_planted_bug_and_nothing_else(adjacency):
    plan = plan_bounds(["x"], Budget(1.0), neighbours=Neighbours(adjacency))

    def sides(count):
        less = [*[1.0] * (count - 1), *([None] if adjacency == "replace" else [])]
        return source([1.0] * count, adjacency), source(less, adjacency)

    seen_half_of_the_time = math.ceil(plan.seen)
    assert not refuted(plan, *sides(seen_half_of_the_time))
    bug = QuietScales(plan.layout, plan.levels, plan.budget, plan.parts)
    assert refuted(bug, *sides(301))


def test_the_charge_is_what_the_guarantee_says_and_a_ledger_adds_up_its_squares(tmp_path):
    table = {"x": np.random.default_rng(0).normal(50, 10, 5_000)}
    basic = Ledger.create(tmp_path / "basic.db", epsilon=1.0, delta=0.0)
    found = private_bounds(table, ["x"], epsilon=0.5, ledger=basic)
    assert basic.state().spent_epsilon == 0.5 and basic.state().spent_delta == 0
    assert found.charge == basic.history()[0].label and found.charge in found.source
    squares = Ledger.create(tmp_path / "squares.db", epsilon=3.0, delta=1e-6)
    private_bounds(table, ["x"], epsilon=0.5, ledger=squares)
    parts = plan_bounds(["x"], Budget(0.5)).parts
    assert squares.state().spent.mu ** 2 == pytest.approx(sum(pure_mu(p) ** 2 for p in parts))


def test_a_positive_delta_is_charged_only_where_it_buys_something():
    few = plan_bounds(["a"], Budget(1.0, 1e-6))
    assert few.guarantee.delta == 0
    many = plan_bounds([f"x{i}" for i in range(30)], Budget(1.0, 1e-6))
    assert many.guarantee.delta == 1e-6 and sum(many.parts) > 1.3 / 30
    assert many.guarantee.delta_at(1.0) <= 1e-6
    with pytest.raises(InvalidInput, match="does not prove"):
        _ = replace(many, budget=Budget(1.0, 1e-9)).guarantee
