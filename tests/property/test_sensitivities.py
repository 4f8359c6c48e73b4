"""What one record can change, brute force: adjacent tables at random, against the accounted bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from curvedp.data.rows import ArrayRows
from curvedp.mechanisms.base import gradient_scale
from curvedp.mechanisms.statistics import gaussian_sensitivity, gram_sensitivity
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Multinomial, Squared, SquaredHinge
from curvedp.solvers.glm import Objective, Perturbation, solve
from curvedp_studies.mechanisms.baselines import OutputPerturbation
from curvedp_studies.mechanisms.functional import Functional

B, Y, D, N = 1.7, 0.8, 3, 12


def corner(random):
    """A record at the edge of the domain: ‖x‖ = B, |y| = Y; half of them along a diagonal, largest in l1."""
    x = random.normal(size=D) if random.random() < 0.5 else random.choice([-1.0, 1.0], D)
    return B * x / np.linalg.norm(x), Y * random.choice([-1.0, 1.0])


def adjacent(random, adjacency):
    """(X, y), (X', y'): one record more, or one replaced (often by its opposite)."""
    X = random.normal(size=(N, D))
    y = random.uniform(-2, 2, N)
    x_new, y_new = corner(random)
    if adjacency == "add_remove":
        return (X, y), (np.vstack([X, x_new]), np.append(y, y_new))
    X[0], y[0] = corner(random)
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = (
        (x_new, y_new) if random.random() < 0.3 else (-X[0], y[0]) if random.random() < 0.5 else (X[0], -y[0])
    )
    return (X, y), (X2, y2)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_second_moments(adjacency):
    """(XᵀX, s·Xᵀy) and the Gram matrix of z move by at most what (S-2) says, and nearly that much."""
    random = np.random.default_rng(0)
    domain = Domain(B, Y, adjacency)
    for s in (0.3, B / Y, 5.0):
        joint, gram = 0.0, 0.0
        w = s
        for _ in range(1000):
            pair = [ArrayRows(*table, domain).moments() for table in adjacent(random, adjacency)]
            xx, xy, yy = (getattr(pair[0], part) - getattr(pair[1], part) for part in ("xx", "xy", "yy"))
            joint = max(joint, math.sqrt(np.sum(xx**2) + s**2 * np.sum(xy**2)))
            z = np.sum(xx**2) + 2 * w**2 * np.sum(xy**2) + w**4 * np.sum(yy**2)
            gram = max(gram, math.sqrt(z))
        bound = gaussian_sensitivity(B, Y, s, domain.neighbours)
        assert joint <= bound * (1 + 1e-9)
        assert joint >= 0.75 * bound
        z_norm = math.sqrt(B**2 + (w * Y) ** 2)
        assert gram <= gram_sensitivity(z_norm, domain.neighbours) * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize(
    "loss", [Squared(), Logistic(), Huber(0.3), SquaredHinge(), Multinomial(3)], ids=lambda loss: loss.name
)
def test_clipped_gradients_in_a_metric(loss, adjacency):
    """‖A(G(D) − G(D'))‖ ≤ c or 2c, histograms move by 1 or √2, shortened Gram matrices by B̃² or √2·B̃²."""
    random = np.random.default_rng(1)
    domain = Domain(B, Y, adjacency)
    clip, bound = 0.6, 0.9
    worst = 0.0
    for _ in range(300):
        A = random.normal(size=(D, D))
        theta = 3 * random.normal(size=(D, loss.n_outputs))
        views = [ArrayRows(*table, domain).in_metric(A) for table in adjacent(random, adjacency)]
        gradients = [A @ view.gradient_sum(loss, theta, clip) for view in views]
        worst = max(worst, float(np.linalg.norm(gradients[0] - gradients[1])))
        edges = np.array([0.1, 0.4, 1.0, 3.0])
        for counts in (
            [view.norm_histogram(edges) for view in views],
            [view.gradient_norm_histogram(loss, theta, edges) for view in views],
        ):
            assert np.linalg.norm(counts[0] - counts[1]) <= domain.neighbours.histogram_factor + 1e-12
        short = [ArrayRows(*table, domain).in_metric(A, bound) for table in adjacent(random, adjacency)]
        grams = [A @ view.moments().xx @ A.T for view in short]
        assert np.linalg.norm(grams[0] - grams[1]) <= gram_sensitivity(bound, domain.neighbours) * (1 + 1e-9)
    sensitivity = gradient_scale(clip, 1.0, domain.neighbours)
    assert worst <= sensitivity * (1 + 1e-9)
    assert worst >= 0.95 * clip


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_coefficients_of_the_functional_mechanism(adjacency):
    random = np.random.default_rng(2)
    domain = Domain(B, Y, adjacency)
    plan = Functional().plan(Problem(Squared(), domain=domain), D, Budget(1.0))
    worst = 0.0
    for _ in range(2000):
        pair = [ArrayRows(*table, domain).moments() for table in adjacent(random, adjacency)]
        xx, xy = pair[0].xx - pair[1].xx, pair[0].xy - pair[1].xy
        upper = np.abs(np.triu(xx, 1)).sum() + 0.5 * np.abs(np.diag(xx)).sum()
        worst = max(worst, float(upper + np.abs(xy).sum()))
    assert worst <= plan.scale * (1 + 1e-9)  # ε = 1: the scale is the sensitivity
    assert worst >= 0.4 * plan.scale


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_regularised_minimisers(adjacency):
    """‖θ(D) − θ(D')‖ ≤ ζ/Λ or 2ζ/Λ: what output perturbation hides."""
    random = np.random.default_rng(3)
    domain = Domain(B, 1.0, adjacency)
    problem = Problem(Logistic(), domain=domain)
    plan = OutputPerturbation(weight=0.8).plan(problem, D, Budget(1.0, 1e-6))
    allowed = domain.neighbours.sum_factor * plan.zeta / plan.Lambda
    assert plan.base_sigma * plan.profile.mu >= allowed
    zero = np.zeros((D, 1))
    worst = 0.0
    for _ in range(60):
        thetas = []
        for X, y in adjacent(random, adjacency):
            objective = Objective(
                problem, ArrayRows(X, np.sign(y), domain), Perturbation(zero, zero, plan.Lambda * np.eye(D))
            )
            thetas.append(solve(objective, 1e-7).theta)
        worst = max(worst, float(np.linalg.norm(thetas[0] - thetas[1])))
    assert worst <= allowed
    assert worst >= 0.05 * allowed
