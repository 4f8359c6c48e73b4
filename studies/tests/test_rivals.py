"""Rebuilt rivals: calibrated as their papers say, right when noise is small, refusing the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from curvedp.data.rows import ArrayRows
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import make_plan
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import calibrate_mu, epsilon_of, hockey_stick
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Squared
from curvedp.randomness import generator
from curvedp.release.door import execute
from curvedp_studies.rivals.ihm import IterativeHessianMixing, covariance_root, sketch_epsilon, sketch_gamma
from curvedp_studies.rivals.newton import BETA, DoubleNoiseNewton, direction_sensitivity

HUGE = Budget(2000.0, 1e-6)


def problem(loss, x_norm=2.0, adjacency="add_remove"):
    return Problem(loss, domain=Domain(x_norm=x_norm, y_bound=1.0, adjacency=adjacency))


def records(n=4000, d=3, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, d))
    return X, X @ np.array([0.5, -0.3, 0.1])


def test_divergence_of_two_sketches_is_the_integral():
    """One row, one column: variances 1 and 1 − 1/γ; by quadrature, the larger of both directions."""
    gamma, order, delta = 5.0, 2.5, 1e-6
    small = math.sqrt(1 - 1 / gamma)

    def divergence(first, second):
        def integrand(x):
            exponent = order * norm.logpdf(x, scale=first) + (1 - order) * norm.logpdf(x, scale=second)
            return math.exp(exponent)

        return math.log(quad(integrand, -20, 20)[0]) / (order - 1)

    closed = (order * math.log1p(-1 / gamma) - math.log1p(-order / gamma)) / (2 * (order - 1))
    assert closed == pytest.approx(max(divergence(1.0, small), divergence(small, 1.0)), rel=1e-6)
    conversion = math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    found = sketch_epsilon(gamma, delta, 7, 3)
    assert found <= 3 * 7 * closed + conversion  # the best order is at most this one
    orders = 1 + np.exp(np.linspace(-6, math.log(gamma - 1) - 1e-4, 20_000))
    brute = 21 * (orders * math.log1p(-1 / gamma) - np.log1p(-orders / gamma)) / (2 * (orders - 1))
    brute += np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    assert found == pytest.approx(brute.min(), rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_the_sketches_spend_half_and_no_less(epsilon):
    delta, k = 1e-6, 100
    gamma = sketch_gamma(epsilon, delta, k, 3)

    def spent(g):
        return sketch_epsilon(g, delta, k, 3) + epsilon_of(delta, math.sqrt(k) / g)

    assert spent(gamma) <= epsilon < spent(gamma * 0.999)


def test_hessian_mixing_has_the_accounted_noise():
    """σ: a quarter of δ and half of ε for three gradients; λ̃ stays below λ_min and varies as stated."""
    budget = Budget(1.0, 1e-6)
    plan = IterativeHessianMixing().plan(problem(Squared()), 3, budget)
    assert hockey_stick(0.5, math.sqrt(3) / plan.sigma) <= budget.delta / 4
    assert math.sqrt(3) / plan.sigma == pytest.approx(calibrate_mu(0.5, 2.5e-7))
    assert plan.k == max(18, int(6 * math.log(12 / 1e-7)))
    random = generator(1)
    ridges = np.array([plan.ridge(1e6, random) for _ in range(3)])
    assert np.all(ridges == 0.0)  # a table that is strong in every direction needs no noise
    assert plan.ridge(0.0, random) == plan.gamma  # one that is empty needs all of it
    # P(λ̃ > λ_min) ≤ δ/4, the event that the accounting pays for
    assert norm.sf(plan.tau) <= budget.delta / 4
    middle = plan.gamma / math.sqrt(plan.k) * plan.tau + 0.4 * plan.gamma
    spread = np.array([plan.ridge(middle, random) for _ in range(4000)])
    assert spread.std() == pytest.approx(plan.gamma / math.sqrt(plan.k), rel=0.05)
    assert spread.mean() == pytest.approx(0.6 * plan.gamma, rel=0.01)
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(covariance_root(A) @ covariance_root(A).T, A)


def test_noise_of_a_gradient_reaches_theta_at_its_scale():
    """An empty table: every round solves a sketch of γI (at B = 2, Y = 1) against pure noise."""
    plan = IterativeHessianMixing(rounds=1).plan(problem(Squared()), 2, Budget(1.0, 1e-6))
    rows = ArrayRows(np.zeros((5, 2)), np.zeros(5), plan.problem.domain, threads=1)
    thetas = np.array([plan.release(rows, generator(s)).theta[:, 0] for s in range(600)])
    p = plan.k - 2 - 1  # E (W⁻¹)² of a Wishart over k degrees: k²/((k−d)(k−d−1)(k−d−3))·(k−1) for d = 2
    second_moment = plan.k**2 * (plan.k - 1) / ((p + 1) * p * (p - 2))
    expected = plan.sigma / plan.gamma * math.sqrt(second_moment) / 2.0
    assert np.sqrt(np.mean(thetas**2)) == pytest.approx(expected, rel=0.1)


def test_hessian_mixing_approaches_least_squares():
    X, y = records()
    p = problem(Squared())
    rows = ArrayRows(X, y, p.domain, threads=1)
    theta = execute(make_plan(IterativeHessianMixing(), p, 3, HUGE), rows, random_state=1).value.theta
    np.testing.assert_allclose(theta[:, 0], [0.5, -0.3, 0.1], atol=0.01)
    strict = execute(
        make_plan(IterativeHessianMixing(), p, 3, Budget(0.05, 1e-6)), rows, random_state=1
    ).value.theta
    assert np.linalg.norm(strict[:, 0] - [0.5, -0.3, 0.1]) > 0.05


def test_the_direction_moves_by_no_more_than_its_sensitivity():
    """Random and adversarial H, x: the bound holds, and H = 0 with x along g reaches it."""
    random = np.random.default_rng(3)
    for _ in range(300):
        d, ridge = random.integers(1, 5), random.uniform(1.0, 20.0)
        root = random.normal(size=(d, d)) * random.uniform(0, 5)
        H, x, g = root @ root.T, random.normal(size=d), random.normal(size=d)
        x *= random.uniform(0, 1) / np.linalg.norm(x)
        other = H + BETA * np.outer(x, x)
        gap = np.linalg.solve(H + ridge * np.eye(d), g) - np.linalg.solve(other + ridge * np.eye(d), g)
        assert np.linalg.norm(gap) <= direction_sensitivity(g, ridge) * (1 + 1e-12)
    g = np.array([3.0, 4.0])
    gap = np.linalg.solve(2.0 * np.eye(2), g) - np.linalg.solve(
        2.0 * np.eye(2) + BETA * np.outer(g, g) / 25, g
    )
    assert np.linalg.norm(gap) == pytest.approx(direction_sensitivity(g, 2.0))


def test_newton_spends_the_whole_shift():
    budget = Budget(1.0, 1e-6)
    plan = DoubleNoiseNewton().plan(problem(Logistic()), 3, budget)
    total = plan.rounds * (plan.mu_gradient**2 + plan.mu_trace**2 + plan.mu_direction**2)
    mu = calibrate_mu(1.0, 1e-6)
    assert total <= mu**2 and math.sqrt(total) == pytest.approx(mu)
    assert plan.guarantee.profile.delta_at(1.0) <= 1e-6
    assert plan.ridge(-5.0) == 1.0
    assert plan.ridge(8.0) == pytest.approx((0.5 * 8.0 / (plan.mu_direction**2 / 2)) ** (1 / 3))


def test_noise_of_a_newton_step_has_its_scale():
    """An empty table, one round: θ = −(g/Λ + N)/B with g pure noise; both parts are known."""
    plan = DoubleNoiseNewton(rounds=1).plan(problem(Logistic()), 40, Budget(1.0, 1e-6))
    rows = ArrayRows(np.zeros((5, 40)), np.ones(5), plan.problem.domain, threads=1)
    thetas = np.concatenate([plan.release(rows, generator(s)).theta[:, 0] for s in range(400)])
    random = np.random.default_rng(0)
    trace = BETA / plan.mu_trace * random.standard_normal(200_000)
    ridge = np.array([plan.ridge(t) for t in trace])
    g2 = 1 / plan.mu_gradient**2
    second = 40 * g2 * (BETA / (ridge**2 + BETA * ridge) / plan.mu_direction) ** 2
    expected = math.sqrt(np.mean(g2 / ridge**2 + second)) / 2.0
    assert np.sqrt(np.mean(thetas**2)) == pytest.approx(expected, rel=0.1)


def test_newton_approaches_logistic_regression():
    """So much budget that only the ridge Λ = 1 is left, which fades over fifteen Newton steps."""
    X, margin = records(n=400, seed=5)
    y = np.where(np.random.default_rng(1).random(len(X)) < 1 / (1 + np.exp(-6 * margin)), 1.0, -1.0)
    p = problem(Logistic())
    rows = ArrayRows(X, y, p.domain, threads=1)
    plan = make_plan(DoubleNoiseNewton(), p, 3, Budget(1e6, 1e-6))
    theta = execute(plan, rows, random_state=1).value.theta[:, 0]
    plain = LogisticRegression(C=1e6, fit_intercept=False).fit(X, y).coef_[0]
    np.testing.assert_allclose(theta, plain, atol=0.05)


@pytest.mark.parametrize(
    ("mechanism", "loss", "adjacency", "words"),
    [
        (IterativeHessianMixing(), Logistic(), "add_remove", "squared loss only"),
        (IterativeHessianMixing(), Squared(), "replace", "add_remove"),
        (DoubleNoiseNewton(), Squared(), "add_remove", "logistic"),
        (DoubleNoiseNewton(), Logistic(), "replace", "add_remove"),
    ],
)
def test_rivals_refuse_what_their_papers_do_not_cover(mechanism, loss, adjacency, words):
    with pytest.raises(NotCovered, match=words):
        make_plan(mechanism, problem(loss, adjacency=adjacency), 3, Budget(1.0, 1e-6))
