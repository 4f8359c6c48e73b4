"""Pairs that couple coordinates: planted optima for each, and the accelerated iteration on its own."""

from __future__ import annotations

import numpy as np
import pytest
from tests.quadratics import solve_quadratic

from curvedp.problems.constraints import (
    Affine,
    Box,
    ConstrainCoordinates,
    L1Ball,
    L2Ball,
    NonNegative,
    Reals,
    Simplex,
)
from curvedp.problems.regularizers import (
    L1,
    ElasticNet,
    GroupL2,
    L2Norm,
    NoRegularizer,
    Nuclear,
    OnCoordinates,
)
from curvedp.solvers.terms import fixed_point

ETA = 1e-6
D, K = 6, 2
ROWS = np.random.default_rng(5).standard_normal((2, D * K))
REGULARIZERS = {
    "none": NoRegularizer(),
    "l1": L1(1.0),
    "elastic net": ElasticNet(1.0, 0.3),
    "norm": L2Norm(2.0),
    "groups": GroupL2(1.0, ((0, 1), (2, 3, 4))),
    "nuclear": Nuclear(1.0),
    "on some": OnCoordinates(L2Norm(1.0), (0, 1, 2)),
}
CONSTRAINTS = {
    "reals": Reals(),
    "box": Box(0.5),
    "orthant": NonNegative(),
    "ball": L2Ball(1.0),
    "l1 ball": L1Ball(1.5),
    "simplex": Simplex(1.0),
    "affine": Affine(ROWS, np.array([0.3, -0.2])),
    "some rows in a ball": ConstrainCoordinates(L2Ball(0.5), (0, 1, 2)),
}
PAIRS = [(r, C) for r in REGULARIZERS for C in CONSTRAINTS]


@pytest.mark.parametrize(("r", "C"), PAIRS)
def test_planted_optimum_of_every_pair(r, C):
    rng = np.random.default_rng([3, *map(ord, r + C)])
    regularizer, constraint = REGULARIZERS[r], CONSTRAINTS[C]
    # the proof for the nuclear norm on a bounded set loses half the digits of rounding
    conds = (1.0, 1e2) if r == "nuclear" and C != "reals" else (1.0, 1e2, 1e5)
    for cond in conds:
        basis, _ = np.linalg.qr(rng.standard_normal((D * K, D * K)))
        H = (basis * np.geomspace(10.0 / cond, 10.0, D * K)) @ basis.T
        H = 0.5 * (H + H.T)
        theta = constraint.project(regularizer.prox(rng.standard_normal((D, K)), 0.7))
        p = regularizer.smallest_subgradient(theta, 2.0 * rng.standard_normal((D, K)))
        v = 3.0 * rng.standard_normal((D, K))
        n = constraint.normal_residual(theta, v) - v
        g = -(H @ theta.ravel() + p.ravel() + n.ravel())
        solution = solve_quadratic(H, g, np.zeros((D, K)), regularizer, constraint, ETA)
        slack = 1e-14 * np.linalg.norm(g) * cond / 10.0
        assert np.linalg.norm(solution.theta - theta) <= solution.distance + slack
        assert np.linalg.norm(constraint.project(solution.theta) - solution.theta) <= 1e-14


def test_center_moves_the_quadratic_only():
    rng = np.random.default_rng(8)
    H = np.diag(rng.uniform(1, 5, D * K))
    g, center = rng.standard_normal(D * K), rng.standard_normal((D, K))
    groups, ball = GroupL2(0.5, ((0, 1), (2, 3))), L2Ball(0.8)
    moved = solve_quadratic(H, g, center, groups, ball, ETA)
    plain = solve_quadratic(H, g - H @ center.ravel(), np.zeros((D, K)), groups, ball, ETA)
    assert np.linalg.norm(moved.theta - plain.theta) <= moved.distance + plain.distance + 1e-14


def test_warm_start_changes_nothing_but_the_work():
    rng = np.random.default_rng(9)
    H, g = np.diag(rng.uniform(1, 5, D * K)), rng.standard_normal(D * K)
    arguments = (H, g, np.zeros((D, K)), L1(0.1), L1Ball(0.5), ETA)
    cold = solve_quadratic(*arguments)
    warm = solve_quadratic(*arguments, warm=rng.standard_normal((D, K)))
    assert np.linalg.norm(cold.theta - warm.theta) <= cold.distance + warm.distance


def test_accelerated_iteration_finds_the_fixed_point_of_a_slow_map():
    """T(w) = w − A(w − w*)/2, eigenvalues of A from 1e-6 to 1: plain iteration would take 1e7 steps."""
    rng = np.random.default_rng(10)
    basis, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    A = (basis * np.geomspace(1e-6, 1.0, 12)) @ basis.T
    target = rng.standard_normal(12)
    steps = 0

    def step(w):
        nonlocal steps
        steps += 1
        return w - 0.5 * A @ (w - target)

    w, done = fixed_point(step, np.zeros(12), lambda w: np.linalg.norm(w - target) < 1e-6, 1, 5000)
    assert done
    assert np.linalg.norm(w - target) < 1e-6
    assert steps < 500


def test_accelerated_iteration_survives_a_map_with_corners():
    """Reflections in two polyhedra: piecewise linear, and extrapolation misleads at every corner."""
    rng = np.random.default_rng(11)
    A = rng.standard_normal((3, 6))
    b = A @ np.abs(rng.standard_normal(6))
    pseudo = np.linalg.pinv(A)

    def affine(w):
        return w - pseudo @ (A @ w - b)

    def step(w):
        x = np.maximum(w, 0.0)
        return w + affine(2 * x - w) - x

    def inside(w):
        x = np.maximum(w, 0.0)
        return np.linalg.norm(A @ x - b) < 1e-10

    w, done = fixed_point(step, 10 * rng.standard_normal(6), inside, 1, 20_000)
    assert done
    assert inside(w)
