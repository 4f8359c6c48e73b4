"""Proximal Newton: optimality by independent means, few passes, hard starts, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from tests.repeated import Repeated
from tests.values import value_sum

from curvedp.data.rows import ArrayRows
from curvedp.data.rows.base import Layout
from curvedp.errors import InvalidInput, NotCertified
from curvedp.mechanisms.objective import QOP
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.constraints import Box, L2Ball, NonNegative, Reals, Simplex
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Multinomial, Poisson, Squared, SquaredHinge
from curvedp.problems.regularizers import L1, L2, ElasticNet, GroupL2, L2Norm, NoRegularizer
from curvedp.randomness import generator
from curvedp.solvers.glm import Objective, Perturbation, solve

ETA = 1e-6
DOMAIN = Domain(x_norm=1.0, y_bound=3.0)


class CountedRows(ArrayRows):
    """Rows that count how often they are read."""

    gradients = hessians = 0

    def gradient_sum(self, *arguments, **options):
        self.gradients += 1
        return super().gradient_sum(*arguments, **options)

    def hessian_sum(self, *arguments, **options):
        self.hessians += 1
        return super().hessian_sum(*arguments, **options)


def records(rng, n, d, loss, strength=3.0):
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1).max()
    s = strength * X @ rng.standard_normal(d)
    if loss.name == "multinomial":
        return X, rng.integers(0, loss.n_outputs, n).astype(float)
    if loss.name in ("logistic", "squared_hinge"):
        return X, np.sign(s + rng.logistic(size=n))
    if loss.name == "poisson":
        return X, np.minimum(rng.poisson(np.exp(np.clip(s, -2, 1))), 3).astype(float)
    return X, s + rng.standard_normal(n)


def objective(rng, loss, X, y, regularizer, constraint, clip=None, curvature=1.0, noise=1.0):
    d, K = X.shape[1], loss.n_outputs
    G = rng.standard_normal((3 * d * K, d * K))
    Q = curvature * G.T @ G / (3 * d * K)
    perturbation = Perturbation(np.zeros((d, K)), noise * rng.standard_normal((d, K)), Q)
    rows = CountedRows(X, y, DOMAIN, threads=1)
    return Objective(Problem(loss, regularizer, constraint, DOMAIN), rows, perturbation, clip)


def value(o, theta):
    """J_priv(θ), straight from its definition."""
    p = o.perturbation
    u = (theta - p.center).ravel()
    smooth = (
        value_sum(o.rows, o.problem.loss, theta, o.clip) + p.linear.ravel() @ u + 0.5 * u @ p.quadratic @ u
    )
    return smooth + o.problem.regularizer.value(theta)


CASES = {
    "logistic": (Logistic(), None),
    "huber": (Huber(0.2), None),
    "squared hinge": (SquaredHinge(), None),
    "poisson": (Poisson(max_margin=2.0), None),
    "multinomial": (Multinomial(3), None),
    "squared": (Squared(), None),
    "logistic, clipped": (Logistic(), 0.1),
    "squared, clipped": (Squared(), 0.2),
    "hinge, clipped": (SquaredHinge(), 0.1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [
        (L1(1.0), Box(0.5)),
        (ElasticNet(1.0, 0.5), NonNegative()),
        (NoRegularizer(), Reals()),
        (L2(0.5), L2Ball(0.7)),
        (GroupL2(1.0, ((0, 1), (2, 3))), Box(1.0)),
        (L2Norm(2.0), Simplex(1.0)),
    ],
    ids=["lasso in a box", "elastic net", "plain", "ball", "groups in a box", "norm on a simplex"],
)
def test_no_feasible_direction_descends(name, regularizer, constraint):
    """At the answer J rises along random feasible moves by at least what strong convexity demands."""
    loss, clip = CASES[name]
    rng = np.random.default_rng([4, *map(ord, name)])
    X, y = records(rng, 60, 5, loss)
    o = objective(rng, loss, X, y, regularizer, constraint, clip)
    solution = solve(o, ETA)
    assert solution.distance <= ETA
    least = np.linalg.eigvalsh(o.perturbation.quadratic)[0]
    at = value(o, solution.theta)
    for size in (1.0, 0.1, 1e-2):
        for _ in range(10):
            other = constraint.project(solution.theta + size * rng.standard_normal(solution.theta.shape))
            step = np.linalg.norm(other - solution.theta)
            # J(other) ≥ J(θ*) + (κ/2)‖other − θ*‖², and θ is within `distance` of θ*
            assert value(o, other) >= at + 0.5 * least * max(step - 2e-6, 0.0) ** 2 - 1e-10


def test_few_passes_over_the_data():
    rng = np.random.default_rng(5)
    X, y = records(rng, 3000, 20, Logistic(), strength=10.0)
    o = objective(rng, Logistic(), X, y, L1(1.0), Box(5.0), curvature=5.0, noise=10.0)
    solve(o, ETA)
    assert o.rows.hessians <= 6
    assert o.rows.gradients <= 20


@pytest.mark.parametrize("center", [0.0, 20.0])
@pytest.mark.parametrize(
    "loss", [Logistic(), Huber(1e-3), SquaredHinge(), Poisson(max_margin=8.0)], ids=lambda l: l.name
)
def test_far_starts_and_weak_curvature(loss, center):
    """Separable data, a far centre, almost no curvature: the Newton step overshoots again and again."""
    rng = np.random.default_rng(6)
    X, _ = records(rng, 200, 3, loss)
    y = np.sign(X[:, 0]) if loss.name in ("logistic", "squared_hinge") else np.round(X[:, 0])
    base = objective(rng, loss, X, y, NoRegularizer(), Reals(), curvature=1e-3, noise=1e-3)
    p = base.perturbation
    moved = Perturbation(np.full(p.center.shape, center), p.linear, p.quadratic)
    solution = solve(Objective(base.problem, base.rows, moved), ETA)
    assert solution.distance <= ETA


def test_squared_loss_agrees_through_moments_and_through_passes():
    """Clipping at a bound that is never reached changes the method and nothing else."""
    rng = np.random.default_rng(7)
    X, y = records(rng, 100, 6, Squared())
    moments = objective(rng, Squared(), X, y, L1(1.0), Box(1.0))
    passes = Objective(moments.problem, moments.rows, moments.perturbation, clip=1e6)
    one, two = solve(moments, ETA), solve(passes, ETA)
    assert np.linalg.norm(one.theta - two.theta) <= one.distance + two.distance
    assert one.distance <= 1e-8


def test_a_moved_center_is_the_center():
    rng = np.random.default_rng(8)
    X, y = records(rng, 80, 4, Squared())
    base = objective(rng, Squared(), X, y, NoRegularizer(), Reals())
    center = rng.standard_normal((4, 1))
    p = Perturbation(center, base.perturbation.linear, base.perturbation.quadratic)
    rows = base.rows
    solution = solve(Objective(base.problem, rows, p), ETA)
    moments = rows.moments()
    exact = np.linalg.solve(moments.xx + p.quadratic, moments.xy + p.quadratic @ center - p.linear)
    assert np.linalg.norm(solution.theta - exact) <= solution.distance + 1e-12


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda l: l.name)
def test_refusals(loss):
    rng = np.random.default_rng(9)
    X, y = records(rng, 50, 3, loss)
    o = objective(rng, loss, X, y, L1(1.0), Box(1.0))
    with pytest.raises(NotCertified, match=r"eta=1e-25"):
        solve(o, 1e-25)
    flat = Perturbation(o.perturbation.center, o.perturbation.linear, np.zeros((3, 3)))
    if loss.name == "logistic":
        with pytest.raises(NotCertified, match="cannot prove"):
            solve(Objective(o.problem, o.rows, flat), ETA)
    for eta in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="eta must be a positive number"):
            solve(o, eta)


def test_newton_steps_on_a_loss_with_kinks_in_its_slope_do_not_go_in_circles():
    """Full steps that halve the last residual came back, with gains and losses, to where they had been."""
    random = np.random.default_rng((2, 10, 0))
    random.choice(7)
    random.choice(4)
    r = random.integers(1, 12)
    x = random.standard_normal((r, 10))
    x *= random.random(x.shape) < 0.3
    lengths = np.maximum(np.linalg.norm(x, axis=1), 1e-300)[:, None]
    x = x / lengths * random.choice([1.0, 1.0, 0.5, 1e-3], (r, 1)) * (1 - 1e-15)
    y = random.choice([-1.0, 1.0, 0.0, 0.3], r)
    counts = np.floor(random.dirichlet(np.full(r, 0.3)) * 1e9)
    problem = Problem(Huber(0.3), ElasticNet(2.0), NonNegative(), Domain(adjacency="add_remove"))
    rows = Repeated(x, y, counts, Layout(problem.domain, 10), unsteady=0.0)
    drawn = QOP().plan(problem, 10, Budget(1.0, 1e-6)).perturbation(generator(2))
    assert solve(Objective(problem, rows, drawn), 1e-3).distance <= 1e-3
