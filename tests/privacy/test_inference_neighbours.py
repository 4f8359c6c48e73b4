"""A fit with intervals on neighbours with the same released values: no release moves beyond its μ_j."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.replay import moved_by

from curvedp import Budget, Domain
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import base, make_rows
from curvedp.data.rows.base import SUM_SLACK
from curvedp.mechanisms.base import GaussianNoise
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems import Problem
from curvedp.problems.losses import Huber, Logistic, Multinomial, Offset, Poisson, Quantile, Squared
from curvedp.problems.losses.several import target_columns

RULE = Rule(rounds=4, first_rounds=2, least_kappa=0.0, most_hidden=1e9, sure=1e9)  # nothing is spared
BLOCKS = ((1, 2, 3),)
COLUMNS = ColumnMap.from_bounds([-1, 0, 0, 0], [1, 1, 1, 1], intercept=1.0, one_hot=BLOCKS)
BUDGET = Budget(1.0, 1e-6)
AMPLE = Budget(50.0, 1e-6)  # S has little noise, so that a record can be as long as the bread lets it
LOSSES = [
    *(Squared(), Huber(0.3), Logistic(), Multinomial(3), Poisson(0.0), Offset(Poisson(0.0), 0.7)),
    Quantile(0.3, quantile=0.8),
]
few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
cells = st.sampled_from([0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e153, -1.7e308, 5e-324]) | st.floats(
    -3, 3
)


def plan_for(loss, adjacency, rule=RULE, budget=BUDGET):
    domain = Domain(x_norm=COLUMNS.x_norm, y_bound=1.0, adjacency=adjacency)
    mechanism = Recentered(rule, COLUMNS.coding, inference=True)
    return mechanism.plan(Problem(loss, domain=domain), COLUMNS.d, budget)


LOOKS = ("columns", "extent", "pilot", "lengths", "curvature", "constant", "spread", "scale")
ENDING = ("bread", "tail", "meat", "beyond", "evidence")


def asked(plan):
    """The names of all releases, in order."""
    pace = plan.rule.pace(math.inf)
    count = () if plan.problem.domain.neighbours.count_is_public else ("count",)
    centre = ("centre",) if plan.problem.loss.is_quadratic else ()
    late = plan.problem.loss.name == "quantile"  # it looks at residuals once it is near
    rounds = (*["round"] * pace.first_rounds, *["scale"] * late, "clip", *["round"] * pace.later)
    return (*count, *(LOOKS[:-1] if late else LOOKS), *centre, *rounds, *ENDING)


def within_shares(plan, moved):
    """Whether every release is paid for, moves by no more than that, and all together cost what they may."""
    paid = sum(Fraction(share) ** 2 for share in moved.shares) <= Fraction(plan.mu) ** 2
    return paid and all(
        shift <= mu * (1 + 1e-9) for shift, mu in zip(moved.shifts, moved.shares, strict=True)
    )


def replayed(plan, left, right, seed=0):
    patch = pytest.MonkeyPatch()
    try:
        return moved_by(plan, left, right, patch, seed)
    finally:
        patch.undo()


def rows_of(plan, table, columns=COLUMNS):
    X = np.array(table, dtype=float).reshape(-1, columns.n_inputs + 1)
    y = X[:, -1] if target_columns(plan.problem.loss) == 1 else X[:, [-1, 0]]  # an offset
    return make_rows(X[:, :-1], y, plan.problem.domain, columns)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@few
@given(data=st.data())
def test_one_hostile_record_moves_no_release_beyond_its_share(loss, adjacency, data):
    plan = plan_for(loss, adjacency)
    record = st.tuples(*[cells] * 5)
    rows = data.draw(st.lists(record, min_size=1, max_size=25))
    other = [*rows, data.draw(record)] if adjacency == "add_remove" else [data.draw(record), *rows[1:]]
    moved = replayed(plan, rows_of(plan, rows), rows_of(plan, other), data.draw(st.integers(0, 99)))
    unseen = tuple(name for name in asked(plan) if name not in ENDING[:4])  # the mean of few counts
    sure = tuple(name for name in asked(plan) if name != "evidence")  # of a class, by its released share
    assert moved.names in (asked(plan), {"poisson": unseen, "logistic": sure}.get(loss.name))
    assert within_shares(plan, moved) and moved.gaussian <= plan.mu * (1 + 1e-9)


def corners(n=60, seed=3, size=1.0):
    """A table of ordinary records, whose number is at most `size`."""
    random = np.random.default_rng(seed)
    level = np.eye(3)[random.integers(0, 3, n)]
    return np.column_stack([size * random.uniform(-1, 1, n), level, random.uniform(-1, 1, n)])


LONG = [1.0, 0, 0, 1.0, 1.0]  # a long record with a large residual


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_some_record_comes_close_to_every_share(adjacency):
    """Every bound is attained, so that the test above could have failed. The bread sees small residuals."""
    plan = plan_for(Squared(), adjacency, budget=AMPLE)
    share = np.zeros(len(asked(plan)))
    records = [[1.0, 0, 0, 1.0, t] for t in (1.0, *np.linspace(-0.3, 0.3, 7))]
    records += [[x, *level, 1.0] for x in (-1.0, 0.0, 1.0) for level in np.eye(3).tolist()]  # at all angles
    for table in (corners(), corners(size=0.1)):
        for seed, record in product(range(1), records):
            other = [*LONG[:4], -1.0 if record[-1] == 1.0 else 1.0]
            left = [*table] if adjacency == "add_remove" else [*table, other]
            both = rows_of(plan, left), rows_of(plan, [*table, record])
            for pair in (both, both[::-1]):  # the first of them is released from, and decides the metric
                moved = replayed(plan, *pair, seed)
                share = np.maximum(share, np.array(moved.shifts) / moved.shares)
    assert share.max() <= 1 + 1e-9
    # Replaced records are in one cell of the first histogram of lengths: level and intercept make them
    # equally long; and one part of the evidence is never negative.
    least = {"bread": 0.65, "evidence": 0.5, "extent": 0.0 if adjacency == "replace" else 0.8}
    low = {name: one for name, one in zip(asked(plan), share, strict=True) if one < least.get(name, 0.8)}
    assert not low and np.median(share) > 0.99


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_fewer_rounds_move_as_much_together(adjacency):
    """Three rounds where κ ≥ 0, four else: each may be moved further, all together by no more."""
    quick = replace(RULE, plenty=0.0, quick_rounds=3, quick_first_rounds=1)
    slow, plan = (plan_for(Squared(), adjacency, rule=rule) for rule in (RULE, quick))
    left, right = ([*corners(), [*LONG[:4], y]] for y in (1.0, -1.0))
    left = left[:-1] if adjacency == "add_remove" else left
    moved = replayed(plan, rows_of(plan, left), rows_of(plan, right))
    more = replayed(slow, rows_of(plan, left), rows_of(plan, right))
    assert moved.names == asked(plan) and len(more.names) == len(moved.names) + 1
    assert within_shares(plan, moved) and within_shares(slow, more)
    totals = [math.fsum(mu**2 for mu in one.shares) for one in (moved, more)]
    np.testing.assert_allclose(*totals, rtol=1e-12)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_what_is_not_looked_at_goes_to_the_rounds(adjacency):
    """Sixty records: neither columns nor the curvature of the loss could be seen, by the default rule."""
    plan = plan_for(Squared(), adjacency, rule=Rule(rounds=4, first_rounds=2))
    left, right = ([*corners(), [*LONG[:4], y]] for y in (1.0, -1.0))
    left = left[:-1] if adjacency == "add_remove" else left
    moved = replayed(plan, rows_of(plan, left), rows_of(plan, right))
    assert moved.names == tuple(name for name in asked(plan) if name not in ("columns", *ENDING[:4]))
    assert within_shares(plan, moved)
    total = math.fsum(mu**2 for mu in moved.shares)
    np.testing.assert_allclose(total, plan.mu**2, rtol=1e-9)  # nothing is left over


def leaking_curvature(block, y, at, bound, clip):
    second = np.full(len(y), 4.0) * np.minimum(1.0, bound / np.square(block.norms))
    outputs = at.loss.n_outputs
    return (np.kron(block.gram(second), np.eye(outputs)[0] * np.eye(outputs)),)


@pytest.mark.parametrize("loss", [Squared(), Multinomial(3), Poisson(0.0)], ids=lambda loss: loss.name)
def test_a_planted_leak_is_seen(loss, monkeypatch):
    """A bread whose records add four times what they may."""
    plan = plan_for(loss, "add_remove", budget=AMPLE)
    table = corners(size=0.1)
    left, right = (rows_of(plan, t) for t in (table, [*table, LONG]))
    at = -5  # bread, tail, meat, beyond, evidence
    sound = replayed(plan, left, right).shifts[at]
    assert sound <= plan.shifts.bread
    monkeypatch.setattr(base, "curvature", leaking_curvature)
    leaking = replayed(plan, left, right).shifts[at]
    assert leaking > 2 * plan.shifts.bread


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_ramp_that_is_too_steep_is_seen(adjacency, monkeypatch):
    """Directions beyond the clip in units of half of the ramp are twice as long as one."""
    plan, table = plan_for(Squared(), adjacency), corners()
    left = table if adjacency == "add_remove" else [*table, [*LONG[:4], -1.0]]
    both = rows_of(plan, left), rows_of(plan, [*table, LONG])
    assert 0.9 * plan.shifts.beyond < replayed(plan, *both).shifts[-2] <= plan.shifts.beyond * (1 + 1e-9)
    gradient = GaussianNoise.gradient

    def steep(noise, total, size, mu, slack=SUM_SLACK, name=""):
        return gradient(noise, total * (2.0 if name == "beyond" else 1.0), size, mu, slack, name)

    monkeypatch.setattr(GaussianNoise, "gradient", steep)
    assert replayed(plan, *both).shifts[-2] > 1.5 * plan.shifts.beyond


def test_the_releases_depend_on_the_table_through_the_noisy_sums_alone(monkeypatch):
    """Two unlike tables, the same released values: the estimate and all that is stated are the same bits."""
    plan = plan_for(Huber(0.3), "replace")
    table = corners(200)
    other = np.random.default_rng(9).permutation(table, axis=0) * 0.5
    found = []
    release = type(plan).release
    monkeypatch.setattr(
        type(plan), "release", lambda self, rows, random: found.append(release(self, rows, random))
    )
    replayed(plan, rows_of(plan, table), rows_of(plan, other))
    left, right = found
    np.testing.assert_array_equal(left.theta, right.theta)
    stated = [estimate.inference.of(np.eye(5)) for estimate in found]
    for name in ("estimate", "se", "noise", "df", "resolved"):
        np.testing.assert_array_equal(getattr(stated[0], name), getattr(stated[1], name))
    left, right = left.inference, right.inference
    assert (left.count, left.kappa, left.noise) == (right.count, right.kappa, right.noise)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_rounding_is_a_small_part_of_every_sensitivity(adjacency):
    """The slack that hides rounding errors is counted, and costs little."""
    plan = plan_for(Squared(), adjacency)
    table = corners(5000)
    seen: list[float] = []
    patch = pytest.MonkeyPatch()
    for name in ("gradient", "gram"):
        before = getattr(GaussianNoise, name)

        def spy(noise, total, size, mu, slack=SUM_SLACK, name="", before=before):
            seen.append(slack)
            return before(noise, total, size, mu, slack, name)

        patch.setattr(GaussianNoise, name, spy)
    try:
        plan.release(rows_of(plan, table), np.random.default_rng(0))
    finally:
        patch.undo()
    assert len(seen) == 4 + RULE.rounds + 4  # Gram matrices, rounds, what lies beyond, constants, evidence
    assert min(seen) > 0 and max(seen) < 1e-3
