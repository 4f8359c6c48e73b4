"""What certificates ask of regularizers and sets: faces along which ∂r moves slowly, drift off a set."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvedp.problems.constraints import Affine, Box, ConstrainCoordinates, L1Ball, L2Ball, Reals, Simplex
from curvedp.problems.regularizers import (
    L1,
    ElasticNet,
    GroupL2,
    L2Norm,
    NoRegularizer,
    Nuclear,
    OnCoordinates,
)

D, K = 5, 2
SEEDS = st.integers(0, 2**32 - 1)
ALL = np.ones((D, K), dtype=bool)
ROWS = np.random.default_rng(3).standard_normal((2, D * K))
SETS = {
    "ball": L2Ball(1.3),
    "l1 ball": L1Ball(0.7),
    "simplex": Simplex(1.1),
    "affine": Affine(ROWS, np.array([0.3, -0.2])),
    "some rows": ConstrainCoordinates(L2Ball(0.4), (0, 2)),
}


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([1e-12, 1e-6, 1e-3]))
@pytest.mark.parametrize(
    "regularizer",
    [
        NoRegularizer(),
        L1(0.7),
        ElasticNet(0.7, 0.4),
        L2Norm(1.5),
        GroupL2(0.8, ((0, 1), (3, 4))),
        Nuclear(1.0),
        OnCoordinates(L2Norm(1.0), (1, 2)),
    ],
    ids=repr,
)
def test_subgradients_move_slowly_along_a_face(regularizer, seed, size):
    """For p ∈ ∂r(θ) and e on the free entries, ∂r(θ + e) has an element within stiffness·‖e‖ of p."""
    rng = np.random.default_rng(seed)
    theta = regularizer.prox(rng.standard_normal((D, K)), 0.8)
    face = regularizer.face(theta)
    e = np.where(face.free, rng.standard_normal((D, K)), 0.0)
    e *= size * min(1.0, face.reach) / max(np.linalg.norm(e), 1e-300)
    p = regularizer.smallest_subgradient(theta, rng.standard_normal((D, K)))
    nearest = regularizer.smallest_subgradient(theta + e, -p)
    assert np.linalg.norm(nearest - p) <= face.stiffness * np.linalg.norm(e) + 1e-13


def exact_distance(name, theta):
    """Distance from θ to its multiple on the boundary, or to the affine set, in 50 digits."""
    with mpmath.workdps(50):
        entries = [mpmath.mpf(float(v)) for v in theta.ravel()]
        norm = mpmath.sqrt(sum(v**2 for v in entries))
        if name == "ball":
            return abs(norm - mpmath.mpf(1.3))
        if name == "l1 ball":
            return abs(mpmath.mpf(0.7) / sum(abs(v) for v in entries) - 1) * norm
        if name == "simplex":
            return abs(mpmath.mpf(1.1) / sum(entries) - 1) * norm
        if name == "some rows":
            return abs(
                mpmath.sqrt(sum(mpmath.mpf(float(v)) ** 2 for v in theta[[0, 2]].ravel())) - mpmath.mpf(0.4)
            )
        A = mpmath.matrix(SETS["affine"]._rows.tolist())
        off = A * (mpmath.matrix(entries) - mpmath.matrix(SETS["affine"]._point.tolist()))
        solution = A.T * mpmath.lu_solve(A * A.T, off)
        return mpmath.norm(solution)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
@pytest.mark.parametrize("name", SETS)
def test_drift_bounds_the_distance_to_the_face_and_is_rounding_sized(name, seed):
    rng = np.random.default_rng(seed)
    theta = SETS[name].project(5.0 * rng.standard_normal((D, K)))
    drift = SETS[name].drift(theta, ALL)
    assert exact_distance(name, theta) <= drift <= 1e-14 * (1 + np.linalg.norm(theta))


def test_drift_inside_a_set_is_zero():
    inside = np.full((D, K), 0.01)
    for constraint in (L2Ball(1.0), L1Ball(1.0), Box(1.0), Reals()):
        assert constraint.drift(inside, ALL) == 0.0
    assert Box(0.001).drift(inside, ALL) == np.inf
    assert Simplex(1.0).drift(-inside, ALL) == np.inf


def test_drift_respects_what_may_not_move():
    theta = SETS["ball"].project(np.ones((D, K)))
    fixed = ALL.copy()
    fixed[0, 0] = False
    assert SETS["ball"].drift(theta, fixed) == np.inf
    on_plane = SETS["affine"].project(np.ones((D, K)))
    few = np.zeros((D, K), dtype=bool)
    few[0, 0] = True
    assert SETS["affine"].drift(on_plane, few) == np.inf
    few[:3] = True
    assert SETS["affine"].drift(on_plane, ALL) <= SETS["affine"].drift(on_plane, few) < 1e-13


def test_drift_of_a_nuclear_norm_is_rounding_sized_and_covers_what_was_dropped():
    rng = np.random.default_rng(4)
    low_rank = np.outer(rng.standard_normal(D), rng.standard_normal(K))
    assert 0.0 < Nuclear(1.0).drift(low_rank) <= 1e-13
    assert NoRegularizer().drift(low_rank) == L1(1.0).drift(low_rank) == 0.0
