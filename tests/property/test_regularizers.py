"""Every prox: optimality, Moreau's identity, nonexpansiveness; subgradients and their smallest elements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from curvedp.errors import InvalidInput
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

D, K = 6, 2
NORMS = [
    L1(0.7),
    L2Norm(0.7),
    GroupL2(0.7, ((0, 2), (1, 3, 4))),
    Nuclear(0.7),
    Nuclear(0.7, shape=(3, 4)),
    OnCoordinates(L1(0.7), (0, 1, 4)),
    OnCoordinates(GroupL2(0.7, ((0, 1), (2,))), (5, 0, 2)),
]
REGULARIZERS = [NoRegularizer(), L2(1.3), ElasticNet(0.9, 0.3), OnCoordinates(L2(2.0), (1, 2)), *NORMS]
every_one = pytest.mark.parametrize("r", REGULARIZERS, ids=repr)
every_norm = pytest.mark.parametrize("r", NORMS, ids=repr)

few = settings(max_examples=15, deadline=None)
entries = st.floats(-10, 10, width=32).map(lambda x: x if abs(x) > 1e-3 else 0.0)
matrices = arrays(np.float64, (D, K), elements=entries)
steps = st.floats(0.01, 10.0)


@every_one
@few
@given(v=matrices, step=steps, other=matrices)
def test_the_prox_is_the_argmin(r, v, step, other):
    """(v − p)/step ∈ ∂r(p), stated as the subgradient inequality towards any other point."""
    p = r.prox(v, step)
    s = (v - p) / step
    assert r.value(other) >= r.value(p) + np.sum(s * (other - p)) - 1e-9 * (1 + np.abs(s).max() * 100)


@every_one
@few
@given(v=matrices, step=steps)
def test_moreau_identity(r, v, step):
    """v = prox_{t r}(v) + t·prox_{r*/t}(v/t), the second by the conjugate's own definition.

    q = (v − p)/t is the prox of r*/t iff r(p) + r*(q) = ⟨p, q⟩; r*(q) = sup_x ⟨q, x⟩ − r(x) is attained at p,
    so for every multiple x = c·p the supremum is not exceeded.
    """
    p = r.prox(v, step)
    q = (v - p) / step
    attained = np.sum(q * p) - r.value(p)
    tolerance = 1e-9 * (1 + np.sum(np.abs(q * p)) + r.value(p))
    for c in (0.0, 0.5, 0.99, 1.01, 2.0, -1.0):
        assert np.sum(q * p) * c - r.value(c * p) <= attained + tolerance


@every_one
@few
@given(v=matrices, w=matrices, step=steps)
def test_the_prox_is_firmly_nonexpansive(r, v, w, step):
    p, q = r.prox(v, step), r.prox(w, step)
    assert np.sum((p - q) ** 2) <= np.sum((p - q) * (v - w)) + 1e-9


@every_one
@few
@given(start=matrices, step=steps, v=matrices, other=matrices)
def test_the_smallest_subgradient_is_a_subgradient_and_the_smallest(r, start, step, v, other):
    theta = r.prox(start, step)  # lands on kinks
    s = r.smallest_subgradient(theta, v)
    tolerance = 1e-9 * (1 + np.abs(s).sum() * 20)
    assert r.value(other) >= r.value(theta) + np.sum(s * (other - theta)) - tolerance
    # ‖v + s‖ is the norm of the smallest element of v + ∂r(θ) iff ⟨v + s, t − s⟩ ≥ 0 for t ∈ ∂r(θ), that is
    # iff r'(θ; −(v + s)) = −⟨s, v + s⟩: the directional derivative, approached from above.
    w = v + s
    h = 1e-7
    slope = (r.value(theta - h * w) - r.value(theta)) / h
    assert slope == pytest.approx(-np.sum(s * w), abs=2e-5 * (1 + np.sum(w * w)))


@pytest.mark.parametrize("r", [r for r in REGULARIZERS if r.separable(D, K) is not None], ids=repr)
@few
@given(theta=matrices)
def test_separable_weights_say_the_same_as_the_value(r, theta):
    l1, l2 = r.separable(D, K)
    assert l1.shape == l2.shape == (D, K)
    assert r.value(theta) == pytest.approx(np.sum(l1 * np.abs(theta) + l2 * theta**2 / 2))


@every_norm
@few
@given(theta=matrices, v=matrices)
def test_no_subgradient_exceeds_the_bound(r, theta, v):
    s = r.smallest_subgradient(theta, 100 * v)
    assert np.linalg.norm(s) <= r.subgradient_bound(D, K) * (1 + 1e-9)


@every_one
@few
@given(start=matrices, step=steps, v=matrices, move=matrices, share=st.floats(1e-9, 0.9))
def test_faces_say_how_subgradients_move(r, start, step, v, move, share):
    """Every p ∈ ∂r(θ) is within stiffness·‖e‖ of ∂r(θ + e), e on the free entries, ‖e‖ < reach."""
    theta = r.prox(start, step)
    face = r.face(theta)
    assert face.free.shape == theta.shape
    e = np.where(face.free, move, 0.0)
    length = np.linalg.norm(e)
    if length == 0.0:
        return
    e *= share * min(face.reach, 1.0) / length
    p = r.smallest_subgradient(theta, v)
    nearest = r.smallest_subgradient(theta + e, -p)
    assert np.linalg.norm(nearest - p) <= face.stiffness * np.linalg.norm(e) + 1e-12


@every_one
@few
@given(start=matrices, step=steps)
def test_drift_is_rounding(r, start, step):
    """How far θ is from the point whose subgradients are taken: zero, or rounding."""
    theta = r.prox(start, step)
    assert 0.0 <= r.drift(theta) <= 1e-13 * (1 + np.linalg.norm(theta))


def test_subgradient_bounds_are_the_ones_of_the_utility_theorem():
    assert L1(0.5).subgradient_bound(9) == pytest.approx(1.5)
    assert L1(0.5).subgradient_bound(9, 4) == pytest.approx(3.0)
    assert L2Norm(0.5).subgradient_bound(9) == 0.5
    assert Nuclear(0.5).subgradient_bound(9, 4) == pytest.approx(1.0)
    assert GroupL2(0.5, ((0,), (1,), (2,), (3,))).subgradient_bound(9) == pytest.approx(1.0)
    assert OnCoordinates(L1(0.5), (0, 1, 2, 3)).subgradient_bound(9) == pytest.approx(1.0)
    assert L2(1.0).subgradient_bound(3) == math.inf == ElasticNet(1.0, 0.5).subgradient_bound(3)
    assert NoRegularizer().subgradient_bound(3) == 0.0 == L2(0.0).subgradient_bound(3)


def test_a_nuclear_norm_of_a_column_is_its_length():
    v = np.random.default_rng(0).normal(size=(D, 1))
    assert Nuclear(0.7).value(v) == pytest.approx(L2Norm(0.7).value(v))
    np.testing.assert_allclose(Nuclear(0.7).prox(v, 0.5), L2Norm(0.7).prox(v, 0.5), atol=1e-14)


@pytest.mark.parametrize(
    "make",
    [
        lambda: L1(-1.0),
        lambda: L2(math.nan),
        lambda: L2Norm(math.inf),
        lambda: ElasticNet(1.0, 1.5),
        lambda: GroupL2(1.0, ((0, 1), (1, 2))),
        lambda: GroupL2(1.0, ((0, 0),)),
        lambda: OnCoordinates(L1(1.0), (0, -1)),
        lambda: Nuclear(1.0, shape=(2, 2)).value(np.zeros((3, 1))),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(InvalidInput):
        make()
