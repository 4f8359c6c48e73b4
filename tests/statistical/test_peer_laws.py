"""Exact laws: the truncated posterior of the exponential mechanism, the Gram matrix of noisy records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from curvedp.data.rows import ArrayRows
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared
from curvedp_studies.mechanisms.exponential import Exponential, gaussian_in_ball
from curvedp_studies.mechanisms.input import noisy_gram


@pytest.mark.parametrize(
    ("precision", "linear"),
    [(0.0, 0.0), (0.0, 3.0), (40.0, 10.0), (5.0, 50.0), (1e-3, -0.5), (300.0, -900.0)],
)
def test_one_dimensional_draws_follow_the_truncated_density(precision, linear):
    """Kolmogorov–Smirnov against the density ∝ exp(−½pθ² + bθ) on [−r, r], by quadrature; p-value > 1e-7."""
    radius, random = 1.3, np.random.default_rng(0)
    draws = [
        gaussian_in_ball(np.array([[precision]]), np.array([linear]), radius, random)[0] for _ in range(4000)
    ]
    grid = np.linspace(-radius, radius, 20001)
    log_density = -0.5 * precision * grid**2 + linear * grid
    density = np.exp(log_density - log_density.max())
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0.0)
    result = stats.kstest(draws, lambda x: np.interp(x, grid, cdf / cdf[-1]))
    assert result.pvalue > 1e-7


def test_in_a_ball_of_many_dimensions_the_radius_is_right():
    """P = 0 is the uniform law: ‖θ‖^d/r^d uniform on [0, 1]; a strong pull ends near the sphere."""
    random = np.random.default_rng(1)
    d, radius = 8, 2.0
    draws = np.stack([gaussian_in_ball(np.zeros((d, d)), np.zeros(d), radius, random) for _ in range(2000)])
    assert stats.kstest((np.linalg.norm(draws, axis=1) / radius) ** d, "uniform").pvalue > 1e-7
    pull = np.zeros(d)
    pull[0] = 500.0
    draws = np.stack([gaussian_in_ball(np.eye(d), pull, radius, random) for _ in range(300)])
    assert np.all(np.linalg.norm(draws, axis=1) <= radius)
    assert draws[:, 0].min() > 0.97 * radius


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_exponential_mechanism_keeps_its_promise_in_one_dimension(adjacency):
    """max over θ of |log p_D(θ)/p_D'(θ)| ≤ ε for adversarial neighbours, densities by quadrature."""
    epsilon, radius, B, Y = 0.7, 1.5, 1.2, 0.9
    problem = Problem(Squared(), domain=Domain(B, Y, adjacency))
    plan = Exponential(radius=radius).plan(problem, 1, Budget(epsilon))
    grid = np.linspace(-radius, radius, 4001)
    random = np.random.default_rng(2)

    def log_density(x, y):
        cost = plan.t * 0.5 * np.sum((np.outer(grid, x) - y) ** 2, axis=1)
        return -cost - math.log(integrate.trapezoid(np.exp(-cost), grid))

    worst = 0.0
    for _ in range(200):
        x, y = B * random.choice([-1, 1], 5), Y * random.choice([-1, 1], 5)
        x2, y2 = (x[:-1], y[:-1]) if adjacency == "add_remove" else (x * 1.0, y * 1.0)
        if adjacency == "replace":
            x2[0], y2[0] = -x[0], y[0]
        worst = max(worst, np.abs(log_density(x, y) - log_density(x2, y2)).max())
    assert worst <= epsilon * (1 + 1e-6)
    assert worst > 0.3 * epsilon


def test_the_release_is_a_posterior_sample():
    random = np.random.default_rng(3)
    X = random.uniform(-1, 1, (500, 2))
    y = np.clip(X @ [0.5, -0.3] + 0.1 * random.normal(size=500), -1, 1)
    problem = Problem(Squared(), domain=Domain(math.sqrt(2), 1.0, "add_remove"))
    plan = Exponential(radius=1.0).plan(problem, 2, Budget(2.0))
    rows = ArrayRows(X, y, problem.domain)
    draws = np.stack([plan.release(rows, random).theta[:, 0] for _ in range(3000)])
    mean, covariance = np.linalg.solve(X.T @ X, X.T @ y), np.linalg.inv(plan.t * X.T @ X)
    inside = random.multivariate_normal(mean, covariance, 200_000)
    inside = inside[np.linalg.norm(inside, axis=1) <= 1.0]
    np.testing.assert_allclose(
        draws.mean(axis=0), inside.mean(axis=0), atol=5 * draws.std() / math.sqrt(3000)
    )
    np.testing.assert_allclose(np.cov(draws.T), np.cov(inside.T), rtol=0.15, atol=0.15 * inside.var())


@pytest.mark.parametrize("n", [2, 5, 60])
def test_gram_matrices_of_noisy_records(n):
    """Means and variances of (Z+σE)ᵀ(Z+σE), drawn from ZᵀZ alone and drawn record by record."""
    random = np.random.default_rng(4)
    Z, sigma, repeats = random.normal(size=(n, 3)), 0.7, 6000
    short = np.stack([noisy_gram(Z.T @ Z, n, sigma, random) for _ in range(repeats)])
    noisy = Z + sigma * random.normal(size=(repeats, n, 3))
    long = noisy.transpose(0, 2, 1) @ noisy
    error = long.std(axis=0) * math.sqrt(2 / repeats)
    assert np.all(np.abs(short.mean(axis=0) - long.mean(axis=0)) < 5 * error)
    np.testing.assert_allclose(short.std(axis=0), long.std(axis=0), rtol=0.12)
    for power in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(
            np.quantile(np.linalg.eigvalsh(short)[:, -1], power),
            np.quantile(np.linalg.eigvalsh(long)[:, -1], power),
            rtol=0.06,
        )
