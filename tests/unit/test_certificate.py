"""Certificates: proofs of curvature, smallest elements, and distances that are never too small."""

from __future__ import annotations

from fractions import Fraction

import mpmath
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
from curvedp.solvers.glm import quadratic
from curvedp.solvers.terms import (
    Element,
    Separable,
    exact_gradient,
    proves_curvature,
    quick_curvature,
    sharp_curvature,
    terms_of,
)

D, K = 6, 2
ROWS = np.random.default_rng(5).standard_normal((2, D * K))
REGULARIZERS = {
    "none": NoRegularizer(),
    "l1": L1(1.0),
    "l2": L2(2.0),
    "elastic net": ElasticNet(1.0, 0.3),
    "norm": L2Norm(2.0),
    "groups": GroupL2(1.0, ((0, 1), (2, 3, 4))),
    "nuclear": Nuclear(1.0),
    "on some": OnCoordinates(L1(1.0), (0, 1, 2)),
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


def spectrum(rng, size, cond, top=10.0):
    """A symmetric matrix with eigenvalues spread evenly in the logarithm between top/cond and top."""
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    H = (basis * np.geomspace(top / cond, top, size)) @ basis.T
    return 0.5 * (H + H.T)


def planted(rng, regularizer, constraint, H):
    """(θ*, g) such that θ* minimises ½θᵀHθ + gᵀθ + r over C: −g = Hθ* + p + n with p ∈ ∂r(θ*), n ∈ N_C(θ*).

    Membership of p and n is checked through prox and projection, which the certificate does not use.
    """
    theta = constraint.project(regularizer.prox(rng.standard_normal((D, K)), 0.7))
    p = regularizer.smallest_subgradient(theta, 2.0 * rng.standard_normal((D, K)))
    v = 3.0 * rng.standard_normal((D, K))
    n = constraint.normal_residual(theta, v) - v
    assert np.linalg.norm(regularizer.prox(theta + 0.1 * p, 0.1) - theta) < 1e-12
    assert np.linalg.norm(constraint.project(theta + 0.1 * n) - theta) < 1e-12
    return theta, -(H @ theta.ravel() + p.ravel() + n.ravel())


def test_curvature_is_never_overstated():
    rng = np.random.default_rng(0)
    for cond in (1e1, 1e6, 1e12, 1e15):
        for size in (1, 2, 5):
            H = spectrum(rng, size, cond)
            with mpmath.workdps(60):
                least = min(mpmath.eigsy(mpmath.matrix(H.tolist()), eigvals_only=True))
                for share in (1 - 1e-14, 1, 1 + 1e-15, 1 + 1e-12, 1 + 1e-3, 2):
                    c = float(least * share)
                    if proves_curvature(H, c):
                        assert c <= least
                assert quick_curvature(H) <= least
                assert sharp_curvature(H) <= least


def test_curvature_is_found_where_double_precision_allows():
    rng = np.random.default_rng(1)
    for cond in (1e0, 1e3, 1e9, 1e12):
        H = spectrum(rng, 30, cond)
        assert sharp_curvature(H) >= 0.49 * 10.0 / cond
        assert quick_curvature(H) >= 10.0 / cond / 100
    assert sharp_curvature(np.zeros((3, 3))) == 0.0
    assert quick_curvature(-np.eye(3)) == 0.0
    assert sharp_curvature(np.full((2, 2), np.nan)) == 0.0
    assert not proves_curvature(np.diag([1.0, np.inf]), 0.5)


def test_gradient_is_exact_to_one_rounding():
    rng = np.random.default_rng(2)
    size = 7
    H = spectrum(rng, size, 1e12, top=1e6)
    center, theta, l2 = rng.standard_normal(size), rng.standard_normal(size), rng.random(size)
    tail = 2.0**-54 * theta * rng.uniform(-1, 1, size)
    g = -(H @ (theta - center) + l2 * theta)  # massive cancellation
    hi, lo, error = exact_gradient(H, g, center, l2, theta, tail)
    truth = [
        sum(
            Fraction(H[i, j]) * (Fraction(theta[j]) + Fraction(tail[j]) - Fraction(center[j]))
            for j in range(size)
        )
        + Fraction(g[i])
        + Fraction(l2[i]) * (Fraction(theta[i]) + Fraction(tail[i]))
        for i in range(size)
    ]
    misses = [float(Fraction(hi[i]) + Fraction(lo[i]) - truth[i]) for i in range(size)]
    assert np.linalg.norm(misses) <= error
    assert error <= 1e-19  # the plain product errs by about 1e-10 here


def test_smallest_element_at_every_kink_and_bound():
    """Against one-sided difference quotients of the function of one coordinate."""
    h = 2.0**-20
    cases = []
    for l1 in (0.0, 1.0):
        for low, high in ((-2.0, 2.0), (0.0, 2.0), (-2.0, 0.0), (0.0, 0.0), (-np.inf, np.inf), (1.0, 1.0)):
            for theta in (-2.0, -1.0, 0.0, 1.0, 2.0):
                if low <= theta <= high:
                    cases += [(l1, low, high, theta, v) for v in (-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 1.5)]
    for l1, low, high, theta, v in cases:

        def value(t, l1=l1, low=low, high=high, v=v):
            return v * t + l1 * abs(t) if low <= t <= high else np.inf

        right = (value(theta + h) - value(theta)) / h
        left = (value(theta) - value(theta - h)) / h if theta - h >= low else -np.inf
        expected = right if right < 0 else left if left > 0 else 0.0
        terms = Separable(*(np.array([part]) for part in (l1, 0.0, low, high)))
        element = terms.smallest_element(np.array([theta]), np.array([v]), np.zeros(1))
        assert element.s[0] == expected, (l1, low, high, theta, v)


def test_distance_of_an_element_solves_its_inequality():
    s = np.array([3.0, 4.0])
    assert Element(s).distance(1.0, 7.0, 2.0) == pytest.approx(3.0)
    assert Element(s, error=2.0, drift=0.5).distance(1.0, 4.0, 2.0) == pytest.approx(0.5 + 10.0 / 2.0)
    root = Element(s, drift=1e-3, spread=8.0).distance(0.0, 100.0, 2.0) - 1e-3
    assert 2.0 * root**2 - (5.0 + 0.1) * root == pytest.approx(8.0 * 1e-3)
    assert Element(s).distance(0.0, 0.0, 0.0) == np.inf


@pytest.mark.parametrize(("r", "C"), PAIRS)
def test_certified_distance_is_never_too_small(r, C):
    """At points at every distance from a planted optimum, from far to within rounding."""
    rng = np.random.default_rng([1, *map(ord, r + C)])
    regularizer, constraint = REGULARIZERS[r], CONSTRAINTS[C]
    terms = terms_of(regularizer, constraint, (D, K))
    for cond in (1e0, 1e4):
        H = spectrum(rng, D * K, cond)
        theta, g = planted(rng, regularizer, constraint, H)
        f = quadratic(H, g, np.zeros((D, K)))
        for size in (1.0, 1e-3, 1e-6, 1e-10, 1e-15, 0.0):
            nearby = theta + size * rng.standard_normal((D, K)) * (rng.random((D, K)) < 0.5)
            nearby = constraint.project(nearby).ravel()
            _, distance = f.certify(terms, nearby, np.zeros(D * K), 1e-6)
            slack = 1e-14 * np.linalg.norm(g) * cond / 10.0  # what rounding moved the planted optimum by
            assert np.linalg.norm(nearby - theta.ravel()) <= distance + slack


@pytest.mark.parametrize(("r", "C"), PAIRS)
def test_certificate_is_small_at_the_optimum(r, C):
    rng = np.random.default_rng([2, *map(ord, r + C)])
    regularizer, constraint = REGULARIZERS[r], CONSTRAINTS[C]
    terms = terms_of(regularizer, constraint, (D, K))
    H = spectrum(rng, D * K, 100.0)
    theta, g = planted(rng, regularizer, constraint, H)
    f = quadratic(H, g, np.zeros((D, K)))
    element, distance = f.certify(terms, theta.ravel(), np.zeros(D * K), 1e-6)
    assert np.linalg.norm(element.s) <= 1e-12
    assert (
        distance <= 1e-6
    )  # the nuclear norm on a bounded set is the least sharp; the others are below 1e-10
    if r != "nuclear" or C == "reals":
        assert distance <= 1e-10
