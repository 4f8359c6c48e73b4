"""The inference plan on neighbours with the same released values: no release moves beyond its μ_j."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.replay import moved_by

from curvedp import Budget, Domain
from curvedp.columns import ColumnMap
from curvedp.losses import Huber, Logistic, Squared
from curvedp.mechanisms import inference
from curvedp.mechanisms.inference import RecenteredInference
from curvedp.mechanisms.rule import Rule
from curvedp.problem import Problem
from curvedp.rows import DenseRows, make_rows, reductions

RULE = Rule(rounds=4, first_rounds=2)
BLOCKS = ((1, 2, 3),)
COLUMNS = ColumnMap.from_bounds([-1, 0, 0, 0], [1, 1, 1, 1], intercept=1.0, one_hot=BLOCKS)
BUDGET = Budget(1.0, 1e-6)
LOSSES = [Squared(), Huber(0.3), Logistic()]
few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
cells = st.sampled_from([0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e153, -1.7e308, 5e-324]) | st.floats(
    -3, 3
)


def plan_for(loss, adjacency, columns=COLUMNS, blocks=BLOCKS, rule=RULE):
    domain = Domain(x_norm=columns.x_norm, y_bound=1.0, adjacency=adjacency)
    return RecenteredInference(blocks, rule).plan(Problem(loss, domain=domain), columns.d, BUDGET)


def planned(plan):
    """μ_j of every release, in order, of a plan that makes a pilot and has one pace."""
    s, k, pace = plan.walk.shifts, plan.looks, plan.walk.rule.pace(math.inf)
    count = [] if plan.problem.domain.neighbours.count_is_public else [s.count]
    rounds = [s.first_round(pace)] * pace.first, [s.later_round(pace)] * pace.later
    walk = [s.spread, s.scale, *rounds[0], s.clip, *rounds[1]]
    first = [s.extent, s.pilot, s.lengths, s.curvature, k.second]
    return [*count, *first, *walk, k.bread, k.step, k.tail, k.meat, k.final]


def replayed(plan, left, right, seed=0):
    patch = pytest.MonkeyPatch()
    try:
        return moved_by(plan, left, right, patch, seed)
    finally:
        patch.undo()


def rows_of(plan, table, columns=COLUMNS):
    X = np.array(table, dtype=float).reshape(-1, columns.n_inputs + 1)
    return make_rows(X[:, :-1], X[:, -1], plan.problem.domain, columns)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@few
@given(data=st.data())
def test_one_hostile_record_moves_no_release_beyond_its_share(loss, adjacency, data):
    plan = plan_for(loss, adjacency)
    record = st.tuples(*[cells] * 5)
    rows = data.draw(st.lists(record, min_size=1, max_size=25))
    other = [*rows, data.draw(record)] if adjacency == "add_remove" else [data.draw(record), *rows[1:]]
    moved = replayed(plan, rows_of(plan, rows), rows_of(plan, other), data.draw(st.integers(0, 99)))
    each = planned(plan)
    assert len(moved.shifts) == len(each)
    assert all(shift <= mu * (1 + 1e-9) for shift, mu in zip(moved.shifts, each, strict=True))
    assert moved.gaussian <= plan.walk.mu * (1 + 1e-9)
    assert moved.curvature <= 1 + 1e-9
    assert moved.rank <= plan.problem.domain.neighbours.moves


def corners(n=60, seed=3):
    """A table of ordinary records."""
    random = np.random.default_rng(seed)
    level = np.eye(3)[random.integers(0, 3, n)]
    return np.column_stack([random.uniform(-1, 1, n), level, random.uniform(-1, 1, n)])


LONG = [1.0, 0, 0, 1.0, 1.0]  # a long record with a large residual


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_some_record_comes_close_to_every_share(adjacency):
    """Every bound is attained, so that the test above could have failed. The bread sees small residuals."""
    plan = plan_for(Squared(), adjacency)
    table, share = corners(), np.zeros(len(planned(plan)))
    records = [[1.0, 0, 0, 1.0, t] for t in (1.0, *np.linspace(-0.3, 0.3, 7))]
    records += [[x, *level, 1.0] for x in (-1.0, 1.0) for level in np.eye(3).tolist()]  # at all angles
    for seed in range(4):
        for record in records:
            other = [*LONG[:4], -1.0 if record[-1] == 1.0 else 1.0]
            left = [*table] if adjacency == "add_remove" else [*table, other]
            both = rows_of(plan, left), rows_of(plan, [*table, record])
            for pair in (both, both[::-1]):  # the first of them is released from, and decides the metric
                moved = replayed(plan, *pair, seed)
                share = np.maximum(share, np.array(moved.shifts) / planned(plan))
    assert share.max() <= 1 + 1e-9
    bread = len(share) - 5
    # Replaced records are all in one cell of the first histogram: level and intercept make them equally long.
    level = [0] if adjacency == "replace" else []
    assert np.delete(share, [bread, *level]).min() > 0.8 and np.median(share) > 0.99
    assert share[bread] > 0.55


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_fewer_rounds_move_as_much_together(adjacency):
    """Three rounds where κ ≥ 0, four else: each may be moved further, all together by no more."""
    quick = replace(RULE, plenty=0.0, quick_rounds=3, quick_first_rounds=1)
    slow, plan = (plan_for(Squared(), adjacency, rule=rule) for rule in (RULE, quick))
    left, right = ([*corners(), [*LONG[:4], y]] for y in (1.0, -1.0))
    left = left[:-1] if adjacency == "add_remove" else left
    moved = replayed(plan, rows_of(plan, left), rows_of(plan, right))
    assert len(moved.shifts) == len(planned(plan)) == len(planned(slow)) - 1
    assert all(shift <= mu * (1 + 1e-9) for shift, mu in zip(moved.shifts, planned(plan), strict=True))
    totals = [math.fsum(mu**2 for mu in planned(p)) for p in (slow, plan)]
    np.testing.assert_allclose(*totals, rtol=1e-12)
    assert plan.walk.shifts == slow.walk.shifts and totals[1] <= plan.walk.mu**2


def leaking_curvature(block, y, *, domain, loss, theta, bound, clip):
    return (block.gram(np.full(len(y), 4.0) * np.minimum(1.0, bound / np.square(block.norms))),)


def test_a_planted_leak_is_seen(monkeypatch):
    """A bread whose records add four times what they may."""
    plan = plan_for(Squared(), "add_remove")
    table = corners()
    left, right = (rows_of(plan, t) for t in (table, [*table, LONG]))
    at = -5  # bread, step, tail, meat, final
    sound = replayed(plan, left, right).shifts[at]
    assert sound <= plan.looks.bread
    monkeypatch.setattr(reductions, "curvature", leaking_curvature)
    leaking = replayed(plan, left, right).shifts[at]
    assert leaking > 2 * plan.looks.bread


def test_contrasts_that_are_not_orthonormal_would_be_seen(monkeypatch):
    """The same contrast twice makes a record longer than its bound: the curvature moves by more than one."""
    plan = plan_for(Squared(), "add_remove", blocks=())
    twice = np.sqrt(2.0) * plan.N
    monkeypatch.setattr(inference, "contrasts", lambda d, blocks: twice)
    planted = plan_for(Squared(), "add_remove", blocks=())
    table = [[0.1, 1.0, 0, 0, 0.2]] * 5
    moved = [replayed(p, rows_of(p, table), rows_of(p, [*table, LONG])) for p in (plan, planted)]
    each = planned(plan)
    assert moved[0].shifts[2] <= each[2] < moved[1].shifts[2] / 1.5  # the pilot


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
    for name in ("estimate", "se", "noise", "df", "bias", "worst", "resolved"):
        np.testing.assert_array_equal(getattr(stated[0], name), getattr(stated[1], name))
    left, right = left.inference.releases, right.inference.releases
    assert (left.count, left.kappa, left.noise, left.edge) == (
        right.count,
        right.kappa,
        right.noise,
        right.edge,
    )


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_rounding_is_a_small_part_of_every_sensitivity(adjacency):
    """The slack that hides rounding errors is counted, also for what no contrast sees, and costs little."""
    plan = plan_for(Squared(), adjacency)
    table = corners(5000)
    seen: list[float] = []
    patch = pytest.MonkeyPatch()
    for name in ("gradient", "gram"):
        before = getattr(inference.GaussianNoise, name)

        def spy(noise, total, size, mu, slack, name, before=before):
            seen.append(slack)
            return before(noise, total, size, mu, slack, name)

        patch.setattr(inference.GaussianNoise, name, spy)
    try:
        plan.release(rows_of(plan, table), np.random.default_rng(0))
    finally:
        patch.undo()
    assert len(seen) == 5 + RULE.rounds + 2  # five Gram matrices, the rounds, step and final gradient
    assert min(seen) > 0 and max(seen) < 1e-4


def test_what_no_contrast_sees_is_part_of_the_slack():
    """A record without a level has a part outside of all contrasts, which clips do not see."""
    with_blocks, without = (plan_for(Squared(), "replace", blocks=blocks).walk for blocks in (BLOCKS, ()))
    assert with_blocks.d == without.d - 1
    plan = plan_for(Squared(), "replace")
    rows = DenseRows(np.eye(5), np.zeros(5), plan.problem.domain)
    noise = inference.GaussianNoise(np.random.default_rng(0), plan.problem.domain.neighbours)
    geometry = inference.Geometry(1e-3 * np.eye(4), 1e6 * np.eye(4), 4.0)
    clip, theta = inference.Clip(1e-6, 1.0), np.zeros((4, 1))
    slacks = [
        inference.Rounds(replace(plan.walk, columns=seen), rows, noise, geometry, 1e6, 4.0, 1.0).slack(
            theta, clip
        )
        for seen in (None, 5)
    ]
    assert slacks[1] > slacks[0] * 1.5  # ζ‖A‖/c = 1.9e3 terms beside ‖A‖‖A⁻¹‖ = 1
    assert geometry.gram_slack(1e6, 5, 1e6) > 1.5 * geometry.gram_slack(1e6, 5)
