"""The compiled quadratic solver: planted optima, hostile problems, paths, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from tests.quadratics import solve_quadratic

from curvedp.errors import NotCertified
from curvedp.problems.constraints import Box, NonNegative, Reals
from curvedp.problems.regularizers import L1, L2, ElasticNet, NoRegularizer
from curvedp.solvers.glm import solve_path

ETA = 1e-6


def spectrum(rng, size, cond, top=10.0):
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    H = (basis * np.geomspace(top / cond, top, size)) @ basis.T
    return 0.5 * (H + H.T)


def planted(rng, H, center, omega, kappa, ties=False):
    """(θ*, g): an optimum with coordinates free, at the kink and at both bounds; ties have multiplier 0."""
    size = len(H)
    theta = np.clip(np.round(rng.standard_normal(size), 3), -kappa, kappa)
    if omega > 0:
        theta[rng.random(size) < 0.4] = 0.0
    s = np.where(theta == 0, omega * rng.uniform(-1, 1, size), omega * np.sign(theta))
    if ties:
        s = np.where(theta == 0, omega * rng.choice([-1.0, 1.0], size), s)
    push = 0.0 if ties else rng.exponential(size=size)
    s = s + np.where(np.abs(theta) == kappa, np.sign(theta) * push, 0.0)
    return theta, -(H @ (theta - center.ravel())) - s


@pytest.mark.parametrize("d", [1, 2, 7, 40])
@pytest.mark.parametrize("cond", [1e0, 1e3, 1e6, 1e9])
def test_planted_optima(d, cond):
    rng = np.random.default_rng([d, int(np.log10(cond))])
    eta = ETA * max(1.0, cond / 2.5e8)  # beyond, rounding alone takes what ETA allows
    for omega in (0.0, 1e-3, 1.0):
        for kappa in (0.5, np.inf):
            for ties in (False, True):
                for moved in (False, True):
                    H = spectrum(rng, d, cond)
                    center = np.round(rng.standard_normal((d, 1)), 2) * moved
                    theta, g = planted(rng, H, center, omega, kappa, ties)
                    solution = solve_quadratic(H, g, center, L1(omega), Box(kappa), eta)
                    # g is rounded, so the true optimum is this far from the planted one at most
                    slack = (
                        4e-16 * (np.linalg.norm(np.abs(H) @ np.abs(theta)) + np.linalg.norm(g)) * cond / 10
                    )
                    miss = np.linalg.norm(solution.theta.ravel() - theta)
                    assert miss <= solution.distance + slack
                    assert solution.distance <= (1e-12 * cond if cond <= 1e3 else eta)
                    assert np.all(np.abs(solution.theta) <= kappa)


def test_kinks_and_bounds_are_met_to_the_last_bit():
    rng = np.random.default_rng(0)
    H = spectrum(rng, 30, 1e4)
    center = np.zeros((30, 1))
    theta, g = planted(rng, H, center, 1.0, 0.5)
    found = solve_quadratic(H, g, center, L1(1.0), Box(0.5), ETA).theta.ravel()
    assert np.array_equal(found == 0, theta == 0)
    assert np.array_equal(np.abs(found) == 0.5, np.abs(theta) == 0.5)


def test_a_box_of_one_point():
    H, g = spectrum(np.random.default_rng(0), 4, 10.0), np.ones(4)
    zero = solve_quadratic(H, g, np.ones((4, 1)), L1(1.0), Box(0.0), ETA)
    assert np.array_equal(zero.theta, np.zeros((4, 1)))
    assert zero.distance <= 1e-12
    ones = solve_quadratic(H, g, np.zeros((4, 1)), L1(1.0), Box(low=1.0, high=1.0), ETA)
    assert np.array_equal(ones.theta, np.ones((4, 1)))


def test_no_terms_is_a_linear_system():
    rng = np.random.default_rng(3)
    H, g, center = spectrum(rng, 12, 1e3), rng.standard_normal(12), rng.standard_normal((6, 2))
    solution = solve_quadratic(H, g, center, NoRegularizer(), Reals(), ETA)
    assert solution.theta.shape == (6, 2)
    assert np.allclose(solution.theta.ravel(), center.ravel() - np.linalg.solve(H, g), rtol=0, atol=1e-11)


def test_quadratic_part_of_the_regularizer_is_about_zero_not_about_the_center():
    rng = np.random.default_rng(4)
    H, g, center = spectrum(rng, 5, 10.0), rng.standard_normal(5), rng.standard_normal((5, 1))
    solution = solve_quadratic(H, g, center, L2(3.0), Reals(), ETA)
    exact = np.linalg.solve(H + 3.0 * np.eye(5), H @ center.ravel() - g)
    assert np.allclose(solution.theta.ravel(), exact, rtol=0, atol=1e-12)


def test_ridge_alone_can_carry_the_proof():
    """H is singular; the quadratic part of r makes the problem strongly convex."""
    H = np.ones((3, 3))
    solution = solve_quadratic(
        H, np.array([1.0, 2.0, 3.0]), np.zeros((3, 1)), ElasticNet(1.0, 0.5), Reals(), ETA
    )
    assert solution.distance <= 1e-12


def test_an_asymmetric_matrix_means_its_symmetric_part():
    rng = np.random.default_rng(5)
    H = spectrum(rng, 6, 10.0)
    skew = rng.standard_normal((6, 6))
    g, center = rng.standard_normal(6), np.zeros((6, 1))
    plain = solve_quadratic(H, g, center, L1(0.1), NonNegative(), ETA)
    skewed = solve_quadratic(H + (skew - skew.T), g, center, L1(0.1), NonNegative(), ETA)
    assert np.linalg.norm(plain.theta - skewed.theta) <= plain.distance + skewed.distance


def test_path_agrees_with_single_solves():
    rng = np.random.default_rng(6)
    H, center = spectrum(rng, 25, 1e4), np.zeros((25, 1))
    g = rng.standard_normal(25)
    pairs = [(L1(w), Box(k)) for w in (1.0, 0.3, 0.1, 0.0) for k in (0.1, 1.0, np.inf)]
    path = solve_path(H, g, center, pairs, ETA)
    for (regularizer, constraint), on_path in zip(pairs, path, strict=True):
        alone = solve_quadratic(H, g, center, regularizer, constraint, ETA)
        assert np.linalg.norm(alone.theta - on_path.theta) <= alone.distance + on_path.distance


def test_an_inexact_quadratic_costs_distance():
    """The bound covers every quadratic within the error, so the optimum of a disturbed one is inside."""
    rng = np.random.default_rng(7)
    H, g, center = spectrum(rng, 8, 10.0), rng.standard_normal(8), rng.standard_normal((8, 1))
    for _ in range(20):
        noise = rng.standard_normal((8, 8))
        noise = 1e-8 * (noise + noise.T) / np.linalg.norm(noise + noise.T, 2)
        shift = rng.standard_normal(8)
        shift *= 1e-8 / np.linalg.norm(shift)
        given = solve_quadratic(H, g, center, L1(0.1), Box(1.0), ETA, H_error=1e-8, g_error=1e-8)
        truth = solve_quadratic(H + noise, g + shift, center, L1(0.1), Box(1.0), ETA)
        assert np.linalg.norm(given.theta - truth.theta) <= given.distance + truth.distance
        assert given.distance >= 1e-8


@pytest.mark.parametrize(
    "H",
    [np.zeros((2, 2)), np.ones((2, 2)), np.diag([1.0, -1.0]), np.full((2, 2), np.nan), np.diag([1.0, 1e-17])],
    ids=["zero", "singular", "indefinite", "nan", "below rounding"],
)
def test_what_cannot_be_proved_is_refused(H):
    with pytest.raises(NotCertified, match="cannot prove"):
        solve_quadratic(H, np.array([0.5, 0.7]), np.zeros((2, 1)), L1(0.1), Box(1.0), ETA)


def test_a_refusal_says_nothing_of_the_problem():
    messages = set()
    for scale in (1.0, 2.0):
        with pytest.raises(NotCertified) as refusal:
            solve_quadratic(
                scale * np.ones((2, 2)), scale * np.ones(2), np.zeros((2, 1)), L1(1.0), Reals(), ETA
            )
        messages.add(str(refusal.value))
    assert len(messages) == 1
