"""One record with a hostile weight, offset or count moves no release by more than was planned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.replay import moved_by

from curvedp import Budget, Domain, PrivateRidge, Problem
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.data.mapping import Coding
from curvedp.data.rows import base, make_rows
from curvedp.mechanisms import Recentered, Statistics, make_plan
from curvedp.mechanisms.rule import Rule
from curvedp.problems.losses import Logistic, Loss, Offset, Poisson, Squared, SquaredSeveral, Weighted
from curvedp.problems.losses.several import target_columns
from curvedp_studies.mechanisms.baselines import NoisyGradient
from curvedp_studies.mechanisms.wishart import WishartStatistics

QUICK = Rule(rounds=6, first_rounds=2, least_kappa=0.0, most_hidden=1e9, sure=1e9)
BUDGET = Budget(1.0, 1e-6)
few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
numbers = st.floats(-2, 2)
hostile = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 1e308, -1e308, 0.0, 1.0, 5e-324]) | numbers

WEIGHTED: dict[str, tuple[object, Loss]] = {
    "recentered squared": (Recentered(QUICK, Coding((0.0, 0.0), (), 1)), Weighted(Squared())),
    "recentered logistic": (Recentered(QUICK), Weighted(Logistic())),
    "recentered counts": (Recentered(QUICK), Weighted(Offset(Poisson(max_margin=0.0), 0.8))),
    "inference": (Recentered(QUICK, Coding((0.0, 0.0), (), 1), inference=True), Weighted(Squared())),
    "gradient": (NoisyGradient(rounds=5), Weighted(Logistic())),
    "statistics": (Statistics(), Weighted(Squared())),
    "wishart": (WishartStatistics(), Weighted(Squared())),
    "several targets": (Recentered(QUICK, Coding((0.0, 0.0), (), 1)), SquaredSeveral(2)),
    "offset": (Recentered(QUICK), Offset(Poisson(max_margin=0.0), 0.8)),
}


def planned(plan):
    """The shift of all Gaussian releases."""
    return plan.guarantee.profile.mu


def rows_of(table, d, domain):
    cells = np.array(table, dtype=np.float64)
    return make_rows(cells[:, :d], cells[:, d:], domain)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", WEIGHTED)
@few
@given(data=st.data())
def test_one_hostile_record_moves_no_release_by_more_than_was_planned(name, adjacency, data):
    mechanism, loss = WEIGHTED[name]
    d, T = 2, target_columns(loss)
    domain = Domain(1.0, 2.0, adjacency, weighted=isinstance(loss, Weighted))
    plan = make_plan(mechanism, Problem(loss, domain=domain), d, BUDGET)
    record = st.tuples(*[numbers] * d, *[hostile] * T)
    rows = data.draw(st.lists(record, min_size=1, max_size=30))
    other = [*rows, data.draw(record)] if adjacency == "add_remove" else [data.draw(record), *rows[1:]]
    patch = pytest.MonkeyPatch()
    try:
        left, right = (rows_of(table, d, domain) for table in (rows, other))
        moved = moved_by(plan, left, right, patch, seed=data.draw(st.integers(0, 99)))
    finally:
        patch.undo()
    if name != "wishart":
        assert moved.gaussian <= planned(plan) * (1 + 1e-9)
    assert moved.curvature <= 1 + 1e-9
    assert moved.rank <= domain.neighbours.moves


def heavy(monkeypatch, domain):
    """How far a record whose weight is 50 times the declared maximum moves the releases."""
    plan = make_plan(Recentered(QUICK), Problem(Weighted(Squared()), domain=domain), 2, BUDGET)
    rows = [(0.3, 0.1, 0.2, 0.5)] * 20
    left, right = rows_of(rows, 2, domain), rows_of([*rows, (0.6, 0.6, 1.0, 50.0)], 2, domain)
    return plan, moved_by(plan, left, right, monkeypatch)


def test_weights_that_are_not_clipped_are_seen_by_the_replay(monkeypatch):
    domain = Domain(1.0, 1.0, "add_remove", weighted=True)
    plan, moved = heavy(monkeypatch, domain)
    assert moved.gaussian <= plan.mu and moved.curvature <= 1
    monkeypatch.setattr(base, "weights_of", lambda y: np.nan_to_num(y[:, -1]))
    _, leaking = heavy(monkeypatch, domain)
    assert leaking.gaussian > 2 * plan.mu  # the first look at XᵀX


def test_a_weight_that_multiplies_after_the_clip_is_seen_by_the_replay(monkeypatch):
    domain = Domain(1.0, 1.0, "add_remove", weighted=True)
    plan, honest = heavy(monkeypatch, domain)
    clipped = base.gradient

    def gradient(block, y, at, clip):
        """The weight, as it is, on gradients that were clipped without it."""
        plain = np.column_stack([y[:, :-1], np.ones(len(y))])
        raw = clipped(block, plain, at, clip)
        heaviest = float(np.max(y[:, -1], initial=1.0))
        return (raw[0] * heaviest,)

    monkeypatch.setattr(base, "gradient", gradient)
    _, leaking = heavy(monkeypatch, domain)
    assert honest.gaussian <= plan.mu < leaking.gaussian


WEIGHTS = [np.nan, np.inf, -1.0, 1e308, "0.5", "secret-diagnosis", None, b"\xff", 1 + 2j, 10**400]


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_no_weight_is_heard_of(weight, recwarn, caplog):
    """Whatever a weight holds, the fit ends like any other, and nothing says what it was."""
    X, y = np.linspace(-1, 1, 40).reshape(20, 2), np.linspace(-1, 1, 20)
    cells = [1.0] * 19 + [weight]
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), weight_max=2.0).fit(X, y, cells)
    counts = PrivatePoissonRegressor(
        bounds=(-1, 1), target_bounds=(0, 5), weight_max=2.0, exposure_bounds=(1, 2)
    ).fit(X, y, cells, exposure=cells)
    assert np.all(np.isfinite(model.coef_)) and np.all(np.isfinite(counts.coef_))
    assert not recwarn.list and not caplog.records
    assert "secret" not in repr(vars(model)) + repr(vars(counts))
