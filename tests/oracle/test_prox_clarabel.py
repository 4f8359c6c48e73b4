"""Every prox and projection against an interior-point solver on random inputs."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

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
    L2,
    ElasticNet,
    GroupL2,
    L2Norm,
    NoRegularizer,
    Nuclear,
    OnCoordinates,
)

D, K = 4, 3
ACCURACY = 5e-5  # an interior point with a gap of 1e-9 is within sqrt(2e-9) of the solution
RANDOM = np.random.default_rng(11)
A, B = RANDOM.normal(size=(3, D * K)), RANDOM.normal(size=3)

REGULARIZERS = [
    (NoRegularizer(), lambda x: cp.Constant(0.0)),
    (L1(0.7), lambda x: 0.7 * cp.sum(cp.abs(x))),
    (L2(0.7), lambda x: 0.35 * cp.sum_squares(x)),
    (ElasticNet(0.7, 0.25), lambda x: 0.7 * (0.25 * cp.sum(cp.abs(x)) + 0.375 * cp.sum_squares(x))),
    (L2Norm(0.7), lambda x: 0.7 * cp.norm(x, "fro")),
    (
        GroupL2(0.7, ((0, 2), (3,))),
        lambda x: 0.7 * (cp.norm(x[[0, 2], :], "fro") + cp.norm(x[[3], :], "fro")),
    ),
    (Nuclear(0.7), lambda x: 0.7 * cp.normNuc(x)),
    (Nuclear(0.7, shape=(2, 6)), lambda x: 0.7 * cp.normNuc(cp.reshape(x, (2, 6), order="C"))),
    (OnCoordinates(L2Norm(0.7), (1, 2)), lambda x: 0.7 * cp.norm(x[[1, 2], :], "fro")),
]

SETS = [
    (Reals(), lambda x: []),
    (Box(0.8), lambda x: [cp.abs(x) <= 0.8]),
    (
        Box(low=(0.0, -1.0, 0.5, -2.0), high=(1.0, 0.0, 0.5, 2.0)),
        lambda x: [
            x >= np.array([0.0, -1.0, 0.5, -2.0])[:, None] * np.ones((1, K)),
            x <= np.array([1.0, 0.0, 0.5, 2.0])[:, None] * np.ones((1, K)),
        ],
    ),
    (NonNegative(), lambda x: [x >= 0]),
    (L2Ball(1.1), lambda x: [cp.norm(x, "fro") <= 1.1]),
    (L1Ball(1.1), lambda x: [cp.sum(cp.abs(x)) <= 1.1]),
    (Simplex(1.1), lambda x: [x >= 0, cp.sum(x) == 1.1]),
    (Affine(A, B), lambda x: [A @ cp.reshape(x, (D * K,), order="C") == B]),
    (ConstrainCoordinates(L2Ball(0.6), (0, 3)), lambda x: [cp.norm(x[[0, 3], :], "fro") <= 0.6]),
]


def minimum(objective, constraints):
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == "optimal"


@pytest.mark.parametrize(("r", "expression"), REGULARIZERS, ids=[repr(r) for r, _ in REGULARIZERS])
@pytest.mark.parametrize("step", [0.2, 3.0])
def test_prox(r, expression, step):
    random = np.random.default_rng(1)
    for _ in range(3):
        v = random.normal(size=(D, K))
        x = cp.Variable((D, K))
        minimum(expression(x) + cp.sum_squares(x - v) / (2 * step), [])
        np.testing.assert_allclose(r.prox(v, step), x.value, atol=ACCURACY)
        value = expression(cp.Constant(v))
        assert r.value(v) == pytest.approx(float(value.value), abs=1e-9)


@pytest.mark.parametrize(("C", "constraints"), SETS, ids=[type(C).__name__ for C, _ in SETS])
def test_projection(C, constraints):
    random = np.random.default_rng(2)
    for scale in (0.1, 1.0, 10.0):
        v = random.normal(size=(D, K)) * scale
        x = cp.Variable((D, K))
        minimum(cp.sum_squares(x - v), constraints(x))
        np.testing.assert_allclose(C.project(v), x.value, atol=ACCURACY * max(1.0, scale))
