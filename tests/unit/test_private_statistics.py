"""Private second moments: noise levels, fits for free, errors that the noise really makes."""

from __future__ import annotations

import math
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest

from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows
from curvedp.data.rows.base import Layout
from curvedp.errors import BudgetExceeded, InvalidInput, NotCovered
from curvedp.mechanisms.base import Grid
from curvedp.mechanisms.statistics import GramPlan, Statistics, gram_of
from curvedp.postprocess.noise import ReleasedMoments
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problems import Problem
from curvedp.problems.constraints import Box, Reals
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Squared
from curvedp.problems.regularizers import L1, L2, ElasticNet
from curvedp.release import catalogue
from curvedp.release.fit import PrivateStatistics
from curvedp_studies.accounting import statistics_profile
from curvedp_studies.mechanisms.wishart import WishartPlan, WishartStatistics

COLUMNS = ColumnMap.from_bounds(-np.ones(3), np.ones(3))
DOMAIN = Domain(x_norm=COLUMNS.norm_bound, y_bound=1.0, adjacency="add_remove")
BUDGET = Budget(1.0, 1e-6)


def table(n, seed=0, targets=1):
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 3))
    theta = random.normal(size=(4, targets)) * 0.3
    Y = np.clip(COLUMNS.apply(X) @ theta + 0.1 * random.normal(size=(n, targets)), -1, 1)
    return X, Y if targets > 1 else Y[:, 0]


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_noise_levels_are_the_accounted_ones(noise, adjacency):
    """Recomputed from the sensitivities of (S-1) and (S-2), not through the code that calibrated."""
    B, Y, epsilon, delta = 2.0, 0.5, 0.7, 1e-6
    problem = Problem(Squared(), domain=Domain(B, Y, adjacency))
    mechanism = Statistics() if noise == "gaussian" else WishartStatistics()
    plan = mechanism.plan(problem, 4, Budget(epsilon, delta))
    if noise == "gaussian":
        s = B / Y
        squared = B**4 + (s * B * Y) ** 2 if adjacency == "add_remove" else 2 * B**4 * 1.5**2
        mu = math.sqrt(squared) / plan.xx_grid.sigma
        assert plan.xy_grid.sigma == pytest.approx(plan.xx_grid.sigma / s, rel=1e-12)
        assert hockey_stick(epsilon, mu) <= delta
        assert hockey_stick(epsilon, mu * 1.01) > delta  # rounding is part of the sensitivity
    else:
        sensitivity = B * Y if adjacency == "add_remove" else 2 * B * Y
        profile = statistics_profile(
            L=B**2,
            d=4,
            m=plan.m,
            sigma2=plan.sigma2,
            mu=sensitivity / plan.xy_grid.sigma,
            adjacency=adjacency,
        )
        assert profile.delta_at(epsilon) <= delta < 1.05 * profile.delta_at(epsilon) + 1e-9
    assert plan.guarantee.delta_at(epsilon) <= delta


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_gram_noise_has_the_stated_law(noise):
    random = np.random.default_rng(0)
    if noise == "gaussian":
        grid = Grid.of(3.0, 1.0, 9)
        add, scale = grid.add_symmetric, grid.sigma
    else:
        profile = statistics_profile(L=1.0, d=3, m=100.0, sigma2=0.2)
        plan = WishartPlan(Problem(Squared()), 3, BUDGET, 0.2, 100.0, Grid.of(1.0, 1.0, 3), profile)
        add, scale = plan.noisy, plan.xx_scale
    exact = np.diag([5.0, 1.0, 2.0])
    draws = np.stack([add(exact, random) for _ in range(4000)]) - exact
    assert np.all(draws == draws.transpose(0, 2, 1))
    assert np.abs(draws.mean(axis=0)).max() < 5 * scale / math.sqrt(4000)
    deviations = draws.std(axis=0) / scale
    np.testing.assert_allclose(np.diag(deviations), 1.0, atol=0.06)
    np.testing.assert_allclose(deviations[~np.eye(3, dtype=bool)], math.sqrt(0.5), atol=0.05)


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_every_fit_is_free_and_exact(noise):
    """Ridge, lasso, elastic net and a box, for every target, against a conic solver."""
    X, Y = table(3000, targets=2)
    budget = Budget(2.0, 1e-6)
    if noise == "gaussian":
        released = PrivateStatistics.release(
            X, Y, budget=budget, domain=DOMAIN, columns=COLUMNS, random_state=1
        )
    else:
        plan = WishartStatistics().plan(Problem(Squared(), domain=DOMAIN), 4, budget)
        rows = ArrayRows(X, Y[:, 0], DOMAIN, COLUMNS)
        released = plan.release_moments(rows, np.random.default_rng(1))
    assert released.targets == (2 if noise == "gaussian" else 1) and released.d == 4
    for target in range(released.targets):
        ridge = released.ridge(target)
        H, v = released.curvature(ridge), released.xy[:, target]
        assert np.linalg.eigvalsh(H)[0] >= ridge * (1 - 1e-9)
        for regularizer, constraint in [
            (L2(30.0), Reals()),
            (L1(60.0), Reals()),
            (ElasticNet(50.0, 0.5), Box(0.2)),
        ]:
            theta = released.solve(regularizer, constraint, target=target)
            x = cp.Variable(4)
            l1, l2 = regularizer.separable(4)
            terms = cp.sum(cp.multiply(l1.ravel(), cp.abs(x))) + 0.5 * cp.sum(
                cp.multiply(l2.ravel(), cp.square(x))
            )
            inside = [] if isinstance(constraint, Reals) else [cp.abs(x) <= 0.2]
            cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, cp.psd_wrap(H)) - v @ x + terms), inside).solve(
                solver="CLARABEL"
            )
            np.testing.assert_allclose(theta, x.value, atol=1e-5)
    path = released.path([(L1(w), Reals()) for w in (1e5, 200.0, 0.0)])
    assert not path[0].any() and np.count_nonzero(path[2]) == 4
    np.testing.assert_allclose(path[2], released.solve(), atol=1e-8)


def test_with_little_noise_the_answers_are_those_of_least_squares():
    X, y = table(5000)
    released = PrivateStatistics.release(
        X, y, budget=Budget(1e5, 0.1), domain=DOMAIN, columns=COLUMNS, random_state=1
    )
    Z = COLUMNS.apply(X)
    exact, rss, *_ = np.linalg.lstsq(Z, y, rcond=None)
    theta = released.solve()
    np.testing.assert_allclose(theta, exact, atol=1e-3)
    assert released.count == pytest.approx(5000, rel=1e-3)
    variance = float(rss[0]) / (5000 - 4)
    assert released.residual_variance(theta) == pytest.approx(variance, rel=0.02)
    classical = np.sqrt(variance * np.diag(np.linalg.inv(Z.T @ Z)))
    np.testing.assert_allclose(released.standard_errors(theta), classical, rtol=0.03)


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_the_stated_covariance_is_that_of_the_noise(noise):
    X, y = table(20000)
    if noise == "gaussian":
        release = GramPlan.calibrated(Layout(DOMAIN, 4), BUDGET).release
    else:
        release = WishartStatistics().plan(Problem(Squared(), domain=DOMAIN), 4, BUDGET).release_moments
    rows = ArrayRows(X, y, DOMAIN, COLUMNS)
    random = np.random.default_rng(0)
    found, stated = [], []
    for _ in range(400):
        released = release(rows, random)
        ridge = released.ridge()
        theta = released.solve(ridge=ridge)
        found.append(theta)
        stated.append(np.diag(released.noise_covariance(theta, ridge)))
    np.testing.assert_allclose(np.var(found, axis=0), np.mean(stated, axis=0), rtol=0.3)


def test_a_hopeless_signal_is_answered_by_nearly_nothing():
    """No signal in xy: mostly the estimated risk prefers a huge ridge, and the rest costs less than noise."""
    random = np.random.default_rng(0)
    costs = []
    for _ in range(200):
        noise = 50.0 * random.normal(size=(6, 1))
        raw = 50.0 * random.normal(size=(6, 6))
        moments = ReleasedMoments(100.0 * np.eye(6) + (raw + raw.T) / 2, noise, 50.0, 50.0)
        theta = moments.solve()
        costs.append(float(0.5 * 100.0 * theta @ theta))  # excess over θ = 0 when the true xy is 0
    unshrunk = 0.5 * 100.0 * 6 * (50.0 / 100.0) ** 2
    assert np.mean(costs) < 0.35 * unshrunk
    assert np.median(costs) < 0.1 * unshrunk


def test_release_charges_first_and_marks_seeded_runs():
    X, y = table(50)

    class Account:
        charged: ClassVar = []

        def charge(self, guarantee, label=""):
            self.charged.append((guarantee, label))
            if len(self.charged) > 1:
                raise BudgetExceeded("no budget")

    released = PrivateStatistics.release(
        X, y, budget=Budget(1.0, 1e-6), columns=COLUMNS, random_state=3, ledger=Account()
    )
    assert Account.charged == [(released.privacy, "PrivateStatistics")]
    assert not released.privacy.private
    assert released.privacy.adjacency == "replace" and released.count == 50.0
    with pytest.raises(BudgetExceeded, match="no budget"):
        PrivateStatistics.release(X, y, budget=Budget(1.0, 1e-6), columns=COLUMNS, ledger=Account())


def test_wrong_requests_say_what_to_pass():
    X, y = table(50)
    for mechanism in (Statistics(), WishartStatistics()):
        with pytest.raises(NotCovered, match="squared"):
            mechanism.plan(Problem(Logistic()), 3, BUDGET)
    with pytest.raises(InvalidInput, match="no noise"):
        catalogue.mechanism("statistics", noise="wishart")
    with pytest.raises(TypeError, match="noise"):
        PrivateStatistics.release(X, y, budget=BUDGET, noise="wishart")
    with pytest.raises(InvalidInput, match="weight"):
        PrivateStatistics.release(X, y, budget=Budget(1.0, 1e-6), weight=0.0)
    released = PrivateStatistics.release(
        X, y, budget=Budget(1.0, 1e-6), domain=Domain(adjacency="add_remove"), random_state=0
    )
    theta = released.solve()
    with pytest.raises(InvalidInput, match="target"):
        released.solve(target=1)
    with pytest.raises(InvalidInput, match="intercept"):
        released.residual_variance(theta)
    with pytest.raises(InvalidInput, match="ridge"):
        released.solve(ridge=-1.0)
    with pytest.raises(InvalidInput, match="PrivateStatistics"):
        ReleasedMoments(np.eye(2), np.ones((2, 1)), 1.0, 1.0).residual_sum(np.zeros(2))


def test_gram_of_moments_is_that_of_the_stacked_records():
    X, Y = table(200, targets=2)
    moments = ArrayRows(X, Y, DOMAIN, COLUMNS).moments()
    Z = np.column_stack([COLUMNS.apply(X), 0.7 * Y])
    np.testing.assert_allclose(gram_of(moments, 0.7), Z.T @ Z, rtol=1e-11, atol=1e-10)
    replaced, added = (
        GramPlan.calibrated(Layout(Domain(2.0, adjacency=adjacency), 2), BUDGET).grid.sigma
        for adjacency in ("replace", "add_remove")
    )
    assert replaced == pytest.approx(math.sqrt(2) * added, rel=1e-3)  # but for rounding
