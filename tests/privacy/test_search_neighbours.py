"""A search on two neighbouring tables: no release moves further than was planned, nothing else leaves."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.hostile import CONTAINERS
from tests.privacy.replay import Moved, moved_by
from tests.privacy.test_neighbouring_tables import QUICK, TOKEN, cells, column, few, neighbours, observe, take

from curvedp import Budget, Domain, PrivateHuberRegressor, PrivateRidge, Problem
from curvedp.analyses import search
from curvedp.analyses.search import PrivateSearch, RefitsPlan, TrialsPlan, plan_refits, plan_trials
from curvedp.data.rows import Rows, blocked, make_rows
from curvedp.mechanisms.recentered import RecenteredPlan
from curvedp.problems.losses import Logistic, Squared
from curvedp.problems.regularizers import L2

ADJACENCIES = ("replace", "add_remove")
BUDGET = Budget(1.0, 1e-6)


@cache
def searched(adjacency: str, loss: Any = None) -> RefitsPlan:
    domain = Domain(1.0, 1.0, adjacency)
    problems = [Problem(loss or Squared(), L2(alpha), domain=domain) for alpha in (0.1, 3.0, 50.0)]
    return plan_refits(QUICK, problems, 1, 2, BUDGET)


@cache
def tried(adjacency: str) -> TrialsPlan:
    domain = Domain(1.0, 1.0, adjacency)
    problems = [Problem(Squared(), L2(alpha), domain=domain) for alpha in (0.1, 3.0)]
    return plan_trials([QUICK, QUICK], problems, 2, BUDGET, 2.0)


def shift_of_a_trial(plan: TrialsPlan) -> float:
    inner = plan.plans[0]
    assert isinstance(inner, RecenteredPlan)
    return math.hypot(inner.mu, plan.mu_scores)


def replayed(plan: RefitsPlan | TrialsPlan, left: Rows, right: Rows, seed: int = 0) -> Moved:
    patch = pytest.MonkeyPatch()
    try:
        return moved_by(plan, left, right, patch, seed=seed)
    finally:
        patch.undo()


def two_tables(data: st.DataObject, domain: Domain) -> list[Rows]:
    record = st.tuples(cells, cells, cells)
    rows = data.draw(st.lists(record, min_size=1, max_size=30))
    other = [*rows, data.draw(record)] if domain.adjacency == "add_remove" else [data.draw(record), *rows[1:]]
    return [make_rows(np.array(t)[:, :2], np.array(t)[:, 2], domain) for t in (rows, other)]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
@few
@given(data=st.data())
def test_one_hostile_record_moves_a_search_by_no_more_than_was_planned(adjacency, loss, data):
    plan = searched(adjacency, loss)
    left, right = two_tables(data, plan.layout.domain)
    moved = replayed(plan, left, right, data.draw(st.integers(0, 99)))
    assert moved.gaussian <= plan.profile.mu * (1 + 1e-9)
    assert moved.curvature <= 1 + 1e-9
    assert moved.rank <= plan.layout.domain.neighbours.moves


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@few
@given(data=st.data())
def test_one_hostile_record_moves_a_trial_by_no_more_than_was_planned(adjacency, data):
    plan = tried(adjacency)
    left, right = two_tables(data, plan.layout.domain)
    patch = pytest.MonkeyPatch()
    patch.setattr(search.profiles, "trials", lambda random, mean: 1)
    try:
        moved = replayed(plan, left, right, data.draw(st.integers(0, 99)))
    finally:
        patch.undo()
    assert moved.gaussian <= shift_of_a_trial(plan) * (1 + 1e-9)


@pytest.mark.parametrize("by", ["refits", "trials"])
def test_a_planted_comparison_without_its_clip_is_seen(by, monkeypatch):
    """Unclipped, one record moves the comparison by far more than its share."""
    sums = blocked.improvement_sum
    monkeypatch.setattr(search, "improvement_sum", lambda *asked: sums(*asked[:-1], 1e9))
    monkeypatch.setattr(search.profiles, "trials", lambda random, mean: 1)
    plan = searched("add_remove") if by == "refits" else tried("add_remove")
    random = np.random.default_rng(0)
    X = random.uniform(-0.7, 0.7, (2000, 2))
    left = make_rows(X, 0.7 * X[:, 0], plan.layout.domain)
    right = make_rows(np.r_[X, [[0.99, 0.1]]], np.r_[0.7 * X[:, 0], -1.0], plan.layout.domain)
    planned = plan.profile.mu if isinstance(plan, RefitsPlan) else shift_of_a_trial(plan)
    assert replayed(plan, left, right).gaussian > planned


def refit_search(table: Any, adjacency: str) -> Any:
    model = PrivateRidge(bounds=[(-1, 1)] * 2, target_bounds=(-1, 1), adjacency=adjacency, mechanism=QUICK)
    search = PrivateSearch(model, {"alpha": [0.5, 5.0]}, random_state=0)
    return search.fit(take(table, ["a", "b"]), column(table))


def trial_search(table: Any, adjacency: str) -> Any:
    model = PrivateHuberRegressor(
        bounds=[(-1, 1)] * 2, target_bounds=(-1, 1), adjacency=adjacency, mechanism=QUICK
    )
    search = PrivateSearch(model, {"width": [0.1, 0.5]}, random_state=0)
    return search.fit(take(table, ["a", "b"]), column(table))


@pytest.mark.parametrize(
    "container", ["lists", "pandas object", "polars text", "sparse matrix", "dask array"]
)
@pytest.mark.parametrize("entrance", [refit_search, trial_search], ids=lambda entrance: entrance.__name__)
@few
@given(data=st.data())
def test_neighbours_give_the_same_errors_warnings_logs_and_attributes(entrance, container, data):
    kind, make = CONTAINERS[container]
    left, right = (
        observe(lambda columns=columns: entrance(make(columns), "add_remove"))
        for columns in neighbours(data, kind, "add_remove")
    )
    assert left == right
    assert not left.warned and not left.logged


@pytest.mark.parametrize("entrance", [refit_search, trial_search], ids=lambda entrance: entrance.__name__)
def test_a_planted_token_appears_nowhere(entrance):
    columns = {name: [0.25] * 20 for name in "aby"}
    columns["a"][7] = "secret-diagnosis"
    _, make = CONTAINERS["pandas object"]
    seen = observe(lambda: entrance(make(columns), "add_remove"))
    assert not TOKEN.search(seen.error + " ".join(seen.warned) + " ".join(seen.logged))
    assert "secret" not in repr(vars(seen.result.best_estimator_))
