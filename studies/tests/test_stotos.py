"""StoTOS against a transcription of the paper's listing, and against certified solves."""

from __future__ import annotations

import numpy as np
import pytest

from curvedp.data.rows import ArrayRows
from curvedp.problems import Problem
from curvedp.problems.constraints import Box
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared
from curvedp.problems.regularizers import L1
from curvedp.solvers.glm import Objective, Perturbation, solve
from curvedp_studies.stotos import stotos


def lasso(seed, n=60, d=8):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    y = np.clip(X @ rng.standard_normal(d) * 3 + 0.1 * rng.standard_normal(n), -1, 1)
    G = rng.standard_normal((2 * d, d))
    perturbation = Perturbation(rng.standard_normal((d, 1)) * 0.1, rng.standard_normal((d, 1)), G.T @ G / d)
    return X, y, perturbation


def listing(X, y, p, omega, kappa, draws, clip=np.inf):
    """Algorithm StoTOS, line by line."""
    n, _ = X.shape
    center, a = p.center[:, 0], p.linear[:, 0]
    gamma = 1 / (n * max(x @ x for x in X) + np.linalg.norm(p.quadratic, 2))
    x = center.copy()
    for k, i in enumerate(draws):
        theta = np.clip(x, -kappa, kappa)
        gradient = X[i] * (X[i] @ theta - y[i])
        gradient = gradient * min(1.0, clip / np.linalg.norm(gradient))
        full = n * (gradient + a / n + p.quadratic @ (theta - center) / n)
        v = 2 * theta - x - gamma * full
        z = np.sign(v) * np.maximum(np.abs(v) - gamma * omega, 0)
        x = x - (k + 1) ** -0.5 * theta + (k + 1) ** -0.5 * z
    return np.clip(x, -kappa, kappa)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_stotos_is_the_listing(clip):
    X, y, p = lasso(0)
    found = stotos(X, y, p, 0.3, 0.4, 500, np.random.default_rng(1), clip=clip)
    draws = np.random.default_rng(1).integers(len(X), size=500)
    expected = listing(X, y, p, 0.3, 0.4, draws, np.inf if clip is None else clip)
    assert np.allclose(found[:, 0], expected, rtol=0, atol=1e-12)
    assert found.shape == (8, 1)


def test_stotos_stays_in_the_box():
    X, y, p = lasso(2)
    for kappa in (0.0, 1e-3, 0.1):
        theta = stotos(X, y, p, 0.01, kappa, 50, np.random.default_rng(3))
        assert np.abs(theta).max() <= kappa


def test_stotos_with_a_given_lipschitz_constant():
    X, y, p = lasso(4)
    free = stotos(X, y, p, 0.3, 1.0, 200, np.random.default_rng(5))
    lipschitz = len(X) * np.max(np.sum(X**2, axis=1)) + np.linalg.norm(p.quadratic, 2)
    given = stotos(X, y, p, 0.3, 1.0, 200, np.random.default_rng(5), lipschitz=lipschitz)
    slower = stotos(X, y, p, 0.3, 1.0, 200, np.random.default_rng(5), lipschitz=100 * lipschitz)
    assert np.allclose(free, given, rtol=0, atol=1e-12)
    assert np.linalg.norm(slower - p.center) < np.linalg.norm(given - p.center)


def test_stochastic_error_shrinks_towards_the_certified_optimum():
    X, y, p = lasso(7)
    domain = Domain(x_norm=1.0, y_bound=1.0)
    problem = Problem(Squared(), L1(0.3), Box(0.5), domain)
    exact = solve(Objective(problem, ArrayRows(X, y, domain, threads=1), p), 1e-8).theta
    errors = [
        np.mean(
            [np.linalg.norm(stotos(X, y, p, 0.3, 0.5, k, np.random.default_rng(s)) - exact) for s in range(5)]
        )
        for k in (100, 10_000)
    ]
    assert errors[1] < 0.3 * errors[0]
