"""Every set: the projection is the nearest point, normals are normal, the radius is attained."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from curvedp.errors import InvalidInput
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

D, K = 5, 2
RANDOM = np.random.default_rng(0)
LOW, HIGH = (-1.0, 0.0, 2.0, -3.0, 0.5), (1.0, 0.0, 3.0, -2.0, 9.0)
A, B = RANDOM.normal(size=(3, D * K)), RANDOM.normal(size=3)


def interval_support(low, high):
    """Σ max(low·q, high·q), where 0·∞ = 0."""

    def support(q):
        ends = np.where(q > 0, np.reshape(high, (-1, 1)), np.reshape(low, (-1, 1)))
        return float(np.sum(np.where(q == 0, 0.0, q * np.where(q == 0, 0.0, ends))))

    return support


def on_rows(rows, support):
    def restricted(q):
        free = np.delete(q, rows, axis=0)
        return math.inf if np.any(free) else support(q[rows])

    return restricted


# Each set beside its support function σ_C(q) = sup_{θ ∈ C} ⟨q, θ⟩, written down independently.
SUPPORTS = [
    (Reals(), lambda q: math.inf if np.any(q) else 0.0),
    (Box(1.5), lambda q: 1.5 * np.abs(q).sum()),
    (Box(low=LOW, high=HIGH), interval_support(LOW, HIGH)),
    (Box(low=-1.0), interval_support(-1.0, math.inf)),
    (Box(high=(0.0, 1.0, 2.0, 3.0, 4.0)), interval_support(-math.inf, (0.0, 1.0, 2.0, 3.0, 4.0))),
    (NonNegative(), lambda q: 0.0 if np.all(q <= 0) else math.inf),
    (L2Ball(2.0), lambda q: 2.0 * np.linalg.norm(q)),
    (L2Ball(0.0), lambda q: 0.0),
    (L1Ball(2.0), lambda q: 2.0 * np.abs(q).max()),
    (L1Ball(0.0), lambda q: 0.0),
    (Simplex(1.5), lambda q: 1.5 * q.max()),
    (Affine(A, B), lambda q: float(B @ np.linalg.lstsq(A.T, q.ravel(), rcond=None)[0])),
    (ConstrainCoordinates(L1Ball(1.0), (0, 2, 3)), on_rows([0, 2, 3], lambda q: np.abs(q).max())),
    (ConstrainCoordinates(Box(0.5), (1, 4)), on_rows([1, 4], lambda q: 0.5 * np.abs(q).sum())),
]
SETS = [C for C, _ in SUPPORTS]
every_set = pytest.mark.parametrize("C", SETS, ids=lambda C: type(C).__name__)
BOUNDED = [C for C in SETS if math.isfinite(C.radius(D, K))]

few = settings(max_examples=15, deadline=None)
entries = st.floats(-10, 10, width=32).map(lambda x: x if abs(x) > 1e-3 else 0.0)
matrices = arrays(np.float64, (D, K), elements=entries)


def inside(C, theta, tolerance=1e-9):
    return np.allclose(C.project(theta), theta, atol=tolerance)


@every_set
@few
@given(v=matrices, other=matrices)
def test_the_projection_is_the_nearest_point(C, v, other):
    p, q = C.project(v), C.project(other)
    assert p.shape == v.shape
    assert inside(C, p, 1e-12)
    assert np.sum((v - p) * (q - p)) <= 1e-9  # obtuse angle with every point of C


@every_set
@few
@given(v=matrices, w=matrices)
def test_projections_are_firmly_nonexpansive(C, v, w):
    p, q = C.project(v), C.project(w)
    assert np.sum((p - q) ** 2) <= np.sum((p - q) * (v - w)) + 1e-9


@pytest.mark.parametrize(("C", "support"), SUPPORTS, ids=[type(C).__name__ for C in SETS])
@few
@given(v=matrices)
def test_moreau_identity(C, support, v):
    """v = P_C(v) + prox_{σ_C}(v): q = v − p is that prox iff p ∈ C and σ_C(q) = ⟨q, p⟩."""
    p = C.project(v)
    q = np.where(np.abs(v - p) < 1e-12, 0.0, v - p)
    assert support(q) == pytest.approx(np.sum(q * p), abs=1e-8)


@every_set
@few
@given(v=matrices, g=matrices, other=matrices)
def test_the_normal_residual_is_minus_the_steepest_feasible_direction(C, v, g, other):
    theta = C.project(v)
    residual = C.normal_residual(theta, g)
    normal = residual - g
    assert np.sum(normal * (C.project(other) - theta)) <= 1e-8  # normal ∈ N_C(θ)
    # Smallest: C can be followed along −residual, and the absorbed normal is orthogonal to it.
    assert abs(np.sum(normal * residual)) <= 1e-8
    h = 1e-6
    moved = C.project(theta - h * residual)
    assert np.linalg.norm(moved - (theta - h * residual)) <= 1e-3 * h * (1 + np.linalg.norm(residual)) ** 2


@every_set
@few
@given(v=matrices, g=matrices)
def test_the_normal_residual_is_the_projection_on_the_tangent_cone(C, v, g):
    """−residual = lim (P_C(θ − h g) − θ)/h."""
    theta = C.project(v)
    h = 1e-6
    follow = (C.project(theta - h * g) - theta) / h
    assert np.allclose(-C.normal_residual(theta, g), follow, atol=1e-3 * (1 + np.abs(g).max() ** 2))


@pytest.mark.parametrize("C", BOUNDED, ids=lambda C: type(C).__name__)
@few
@given(v=matrices)
def test_no_point_exceeds_the_radius(C, v):
    assert np.linalg.norm(C.project(100 * v)) <= C.radius(D, K) * (1 + 1e-12)


def test_radii():
    assert Box(2.0).radius(9) == pytest.approx(6.0)
    assert Box(2.0).radius(9, 4) == pytest.approx(12.0)
    assert Box(2.0).radius() == math.inf and Box(0.0).radius() == 0.0
    assert Box(low=(-3.0, 0.0), high=(1.0, 4.0)).radius() == pytest.approx(5.0)
    assert Box(low=(-3.0, 0.0), high=(1.0, 4.0)).radius(2, 4) == pytest.approx(10.0)
    assert NonNegative().radius(3) == math.inf == Reals().radius(3) == Box(low=0.0).radius(3)
    assert L2Ball(3.0).radius() == 3.0 == L1Ball(3.0).radius() == Simplex(3.0).radius()
    assert Affine(np.eye(2), np.array([3.0, 4.0])).radius() == pytest.approx(5.0)
    assert Affine(np.array([[1.0, 1.0]]), np.array([1.0])).radius() == math.inf
    assert ConstrainCoordinates(Box(1.0), (0, 1)).radius(2) == pytest.approx(math.sqrt(2))
    assert ConstrainCoordinates(Box(1.0), (0, 1)).radius(3) == math.inf


@pytest.mark.parametrize(
    "C", [C for C in SETS if C.interval(D, K) is not None], ids=lambda C: type(C).__name__
)
@few
@given(v=matrices)
def test_intervals_say_the_same_as_the_projection(C, v):
    low, high = C.interval(D, K)
    assert low.shape == high.shape == (D, K)
    assert np.array_equal(C.project(v), np.clip(v, low, high))


@every_set
@few
@given(v=matrices)
def test_drift_covers_the_rounding_of_a_projection(C, v):
    """Some exact point of C, with the normals of θ, lies within drift(θ): here along θ itself, or A⁺."""
    theta = C.project(v)
    drift = C.drift(theta, np.ones(theta.shape, dtype=bool))
    assert drift <= 1e-13 * (1 + np.linalg.norm(theta))
    with mpmath.workdps(50):
        exact = [mpmath.mpf(float(x)) for x in theta.ravel()]
        if isinstance(C, L2Ball):
            size, wanted, length = mpmath.norm(exact), C.r, mpmath.norm(exact)
        elif isinstance(C, (L1Ball, Simplex)):
            size, wanted, length = mpmath.fsum(exact, absolute=True), C.radius(), mpmath.norm(exact)
        elif isinstance(C, Affine):
            rows = mpmath.matrix(C.A.tolist())
            gap = rows * mpmath.matrix(exact) - mpmath.matrix(C.b.tolist())
            away = rows.T * mpmath.lu_solve(rows * rows.T, gap)
            assert mpmath.norm(away) <= drift
            return
        else:
            return
        inside = size < wanted * (1 - mpmath.mpf(10) ** -12)
        assert inside or size == 0 or length * abs(wanted / size - 1) <= drift


@few
@given(v=arrays(np.float64, 4, elements=st.floats(-1e18, 1e18)))
def test_the_simplex_survives_large_entries(v):
    p = Simplex(1.0).project(v)
    assert p.min() >= 0 and p.sum() == pytest.approx(1.0)


def test_redundant_equations_are_one():
    C = Affine(np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([1.0, 2.0]))
    p = C.project(np.array([[3.0], [5.0]]))
    assert (C.A @ p).ravel() == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Box(),
        lambda: Box(1.0, low=0.0),
        lambda: Box(-1.0),
        lambda: Box(math.nan),
        lambda: Box(low=1.0, high=0.0),
        lambda: Box(low=(0.0, 0.0), high=(1.0, 1.0, 1.0)),
        lambda: Box(low=math.inf),
        lambda: Box(low=(0.0, 0.0)).project(np.zeros((3, 1))),
        lambda: Box(low=(0.0, 0.0), high=1.0).radius(3),
        lambda: L2Ball(-1.0),
        lambda: L1Ball(math.inf),
        lambda: Simplex(0.0),
        lambda: Affine(np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([0.0, 1.0])),
        lambda: Affine(np.ones((1, 2)), np.ones(2)),
        lambda: Affine(np.ones((1, 2)), np.ones(1)).project(np.zeros((3, 1))),
        lambda: ConstrainCoordinates(Box(1.0), (0, 0)),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(InvalidInput):
        make()
