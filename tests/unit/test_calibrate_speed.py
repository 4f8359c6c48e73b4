"""How often a calibration evaluates δ: the full bound once or twice, and never again for the same promise."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from curvedp.mechanisms.objective import QOP
from curvedp.privacy import curvature as directional
from curvedp.privacy import profiles
from curvedp.privacy.budget import Budget
from curvedp.privacy.calibrate import calibrate_qop
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.quadrature import LossLaw, angle_bound
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared
from curvedp.release.fit import private_fit
from curvedp_studies.mechanisms import wishart
from curvedp_studies.mechanisms.wishart import (
    MomentAccounting,
    MomentDraft,
    WishartStatistics,
    calibrate_statistics,
)


@pytest.fixture
def evaluations(monkeypatch) -> Counter[str]:
    """Calls that compute something; what was computed before is forgotten."""
    counted: Counter[str] = Counter()
    curve = profiles.CurvatureProfile.deltas

    def bound(loss, epsilon, mu):
        counted["bound"] += 1
        return angle_bound(loss, epsilon, mu)

    def deltas(self, epsilon):
        counted["curve"] += 1
        return curve(self, epsilon)

    monkeypatch.setattr(directional.quadrature, "angle_bound", bound)
    monkeypatch.setattr(wishart, "angle_bound", bound)
    monkeypatch.setattr(profiles.CurvatureProfile, "deltas", deltas)
    for cached in (
        profiles._delta_at,
        profiles._divergence,
        calibrate_statistics,
        calibrate_qop,
    ):
        cached.cache_clear()
    return counted


LAW = MomentAccounting(20, 1000.0, "replace")


def asked(epsilon, delta):
    """Beside a shift that takes nine tenths of the budget."""
    return calibrate_statistics(epsilon, delta, LAW, L=1.0, mu=math.sqrt(0.9) * calibrate_mu(epsilon, delta))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-10), (8.0, 1e-5)])
def test_the_full_bound_is_evaluated_twice_at_most_and_the_answer_is_sharp(evaluations, epsilon, delta):
    sigma2, profile = asked(epsilon, delta)
    assert evaluations["bound"] <= 2
    assert type(profile.accounting) is MomentAccounting  # not its draft
    assert math.exp(-2e-3) * delta <= profile.delta_at(epsilon) <= delta
    assert profile.g == 1.0 / sigma2 * (1 + 1e-15)  # what was evaluated is what is released


def test_a_guarantee_evaluates_nothing_that_its_calibration_has_evaluated(evaluations):
    problem = Problem(Squared(), domain=Domain(1.0, 1.0, "replace"))
    plan = WishartStatistics().plan(problem, 6, Budget(1.0, 1e-6))
    before = evaluations["bound"]
    assert plan.guarantee.delta_at(1.0) <= 1e-6
    assert evaluations["bound"] == before <= 3


@pytest.mark.parametrize("loss", [0.0, 5.0])
def test_a_draft_that_lies_costs_time_and_no_promise(monkeypatch, evaluations, loss):
    """Far too optimistic or pessimistic: the search goes on with the bound itself."""
    honest, _ = asked(1.0, 1e-6)
    calibrate_statistics.cache_clear()

    def lying(self, g, epsilon, mu):
        return LossLaw(np.array([loss * g]), np.array([1.0]), 0.0).divergence(epsilon, mu)

    monkeypatch.setattr(MomentDraft, "divergence", lying)
    sigma2, profile = asked(1.0, 1e-6)
    assert profile.delta_at(1.0) <= 1e-6
    assert sigma2 == pytest.approx(honest, rel=2e-3)


def test_a_second_fit_evaluates_no_curve(evaluations):
    random = np.random.default_rng(0)
    X = random.uniform(-0.3, 0.3, (400, 3))
    problem = Problem(Squared(), domain=Domain(1.0, 1.0, "replace"))

    def fit() -> object:
        return private_fit(problem, X, X[:, 0], budget=Budget(1.0, 1e-6), mechanism=QOP())

    fit()
    before = evaluations.copy()
    fit()
    assert evaluations == before
