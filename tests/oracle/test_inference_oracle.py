"""What inference makes of released numbers, against brute force, simulation and exact algebra."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from curvedp import randomness
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.losses import Huber, Logistic, Squared
from curvedp.mechanisms.inference import RecenteredInference
from curvedp.mechanisms.rule import Rule
from curvedp.problem import Problem
from curvedp.released import inference as released
from curvedp.released.bread import Bread, Look, eigenvalues_above, noise_pattern, shrunk
from curvedp.released.inference import Inference
from curvedp.released.tails import Tail
from curvedp.rows import DenseRows


def symmetric(random, r, count):
    """Noise of scale 1: variance 1 on the diagonal, ½ off it."""
    raw = random.normal(size=(count, r, r))
    return (raw + raw.transpose(0, 2, 1)) / 2


# --- one Newton step ------------------------------------------------------------------------------


@cache
def step_of(seed: int):
    """A fit of bounded records and small residuals, its table, and the last release's noise."""
    random = np.random.default_rng(5)
    X = np.column_stack([random.choice([-1.0, 1.0], (3000, 3)), np.ones(3000)])
    y = X @ np.array([0.2, -0.1, 0.3, 0.05]) + 0.2 * random.choice([-1.0, 1.0], 3000)
    problem = Problem(Squared(), domain=Domain(2.0, 1.0, "add_remove"))
    plan = RecenteredInference(rule=Rule(rounds=16, first_rounds=4)).plan(problem, 4, Budget(3.0, 1e-6))
    found = plan.release(DenseRows(X, y, problem.domain), randomness.generator(seed)).inference
    return found, X, y


def test_a_newton_step_with_the_exact_curvature_ends_at_the_minimiser_less_the_noise():
    """Squared loss, no clip: w₁ − J⁻¹Ĝ − w* = −J⁻¹·noise, from any centre, however far."""
    found, X, y = step_of(1)
    R = found.releases
    Z = X @ R.basis  # the records' coordinates w: θ = NAᵀw
    J, best = Z.T @ Z, np.linalg.lstsq(Z, y, rcond=None)[0]
    for far in (0.0, 1.0, 100.0):
        centre = R.centre + far
        noise = R.noise * np.array([1.0, -2.0, 0.5, 3.0])
        gradient = Z.T @ (Z @ centre - y) + noise
        lifted = Bread(J, np.zeros_like(J))
        moved = Inference(replace(R, centre=centre, gradient=gradient, bread=lifted)).w
        np.testing.assert_allclose(moved - best, -np.linalg.solve(J, noise), rtol=1e-6, atol=1e-9 * far)


def test_what_an_error_of_the_curvature_adds_is_that_error_times_the_step():
    """w − w* = Ĵ⁻¹(E(w₁−w*) − noise), E = Ĵ − J: to first order what `covariance` counts as Cov(Ev)."""
    found, X, y = step_of(1)
    R = found.releases
    Z = X @ R.basis
    J, best = Z.T @ Z, np.linalg.lstsq(Z, y, rcond=None)[0]
    E = 0.1 * symmetric(np.random.default_rng(0), 4, 1)[0]
    centre = best + np.array([0.3, -0.2, 0.1, 0.4])
    gradient = J @ (centre - best)
    moved = Inference(replace(R, centre=centre, gradient=gradient, bread=Bread(J + E, E * 0))).w
    np.testing.assert_allclose(moved - best, np.linalg.solve(J + E, E @ (centre - best)), atol=1e-10)


def test_theta_and_functionals_follow_from_the_releases():
    found, *_ = step_of(1)
    R = found.releases
    a = np.array([[0.3, -1.0, 2.0, 0.5], [1.0, 0.0, 0.0, 0.0]])
    J = eigenvalues_above(R.bread.J, 0.02)
    v = np.linalg.solve(J, R.gradient)
    w = (R.centre - v) / (1.0 + R.inflation)
    assert abs(R.inflation) < 1e-9  # a linear response
    np.testing.assert_allclose(found.theta[:, 0], R.basis @ w)
    stated = found.of(a)
    for row, estimate, noise, bias in zip(a, stated.estimate, stated.noise, stated.bias, strict=True):
        p = np.linalg.solve(J, R.basis.T @ row)
        np.testing.assert_allclose(estimate, row @ R.basis @ w)
        np.testing.assert_allclose(noise**2, R.noise**2 * p @ p + quadratic_variance(R.bread.variance, p, v))
        at = int(np.flatnonzero(stated.estimate == estimate)[0])
        excess = R.tail.excess(4)[R.edge]
        np.testing.assert_allclose(bias * stated.se[at], excess * np.linalg.norm(p))


def quadratic_variance(variance, p, q):
    """Var(pᵀEq) entry by entry: E_ij is in pᵀEq twice, as p_i q_j and as p_j q_i."""
    total = 0.0
    for i in range(len(p)):
        total += variance[i, i] * (p[i] * q[i]) ** 2
        for j in range(i):
            total += variance[i, j] * (p[i] * q[j] + p[j] * q[i]) ** 2
    return total


def test_variances_of_bilinear_forms():
    random = np.random.default_rng(3)
    variance = random.uniform(0.1, 2.0, (5, 5))
    variance = (variance + variance.T) / 2
    p, q = random.normal(size=(2, 7, 5))
    expected = [quadratic_variance(variance, a, b) for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(released._bilinear(p, q, variance), expected)


# --- bread ----------------------------------------------------------------------------------------


def test_a_look_has_the_noise_that_it_says():
    """U(G)Uᵀ/√(lifted lifted) of noise τ·Sym, over many draws."""
    random = np.random.default_rng(4)
    lifted, scale = np.array([1.0, 4.0, 25.0]), 0.7
    look = Look(np.array([0.5, 4.0, 24.0]), lifted, scale)
    draws = scale * symmetric(random, 3, 20_000) / np.sqrt(np.outer(lifted, lifted))
    np.testing.assert_allclose(draws.var(axis=0), look.variance, rtol=0.06)
    np.testing.assert_array_equal(look.diagonal, look.raw / lifted)
    # ½τ√(2r) = 0.857: the first direction does not stand out.
    np.testing.assert_array_equal(look.stands_out, [False, True, True])


def test_a_direction_is_resolved_where_the_curvature_stands_out():
    """Ĵ by 4 deviations and 0.3·β, or by half of both where the first look stands out of its noise, too."""
    look = Look(np.array([9.0, 9.0, 9.0, 0.1, 0.1, 0.1]), np.full(6, 10.0), 1.0)  # ½τ√(2r) = 1.73
    np.testing.assert_array_equal(look.stands_out, [True] * 3 + [False] * 3)
    diagonal, deviation = [0.2, 0.2, 0.1, 0.5, 0.5, 0.2], [0.09, 0.11, 0.01, 0.12, 0.13, 0.01]
    bread = Bread(np.diag(diagonal), np.diag(np.square(deviation)))
    np.testing.assert_array_equal(bread.resolved(look, 1.0), [True, False, False, True, False, False])
    np.testing.assert_array_equal(bread.resolved(look, 0.5), [True, False, True, True, False, True])


def test_a_bread_trusts_whichever_look_is_precise():
    random = np.random.default_rng(5)
    truth = np.diag([0.9, 0.8, 0.5, 0.3]) + 0.05
    raw, lifted = np.array([900.0, 80.0, 5.0, 3.0]), np.array([1000.0, 100.0, 10.0, 10.0])
    look, noise = Look(raw, lifted, 1e-6), symmetric(random, 4, 1)[0]
    np.testing.assert_allclose(Bread.weighed(look, truth, 1e-9).J, truth, atol=1e-6)
    same = Bread.weighed(look, 0.7 * np.diag(look.diagonal) + 0.05 * noise, 0.05)
    np.testing.assert_allclose(same.J, np.diag(np.diag(same.J)), atol=0.05)
    assert same.variance.max() < 0.2 * 0.05**2


@pytest.mark.parametrize("misfit", [0.0, 0.3])
def test_the_errors_of_a_bread_are_as_large_as_it_says(misfit):
    """J = ρ(curvature + ω√(d_i d_j)·Sym): empirical against stated mean square errors, both looks noisy."""
    random = np.random.default_rng(6)
    r, tau, own, rho = 8, 12.0, 0.06, 0.25
    true = np.linspace(60.0, 400.0, r)
    squares, stated, alone = [], [], []
    for _ in range(300):
        raw, U = np.linalg.eigh(np.diag(true) + tau * symmetric(random, r, 1)[0])
        lifted = np.maximum(raw, 0.0) + 10.0
        seen = U.T @ np.diag(true) @ U / np.sqrt(np.outer(lifted, lifted))
        size = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))
        J = rho * (seen + misfit * size * symmetric(random, r, 1)[0])
        second = J + own * symmetric(random, r, 1)[0]
        bread = Bread.weighed(Look(raw, lifted, tau), second, own)
        squares.append((bread.J - J) ** 2)
        stated.append(bread.variance)
        alone.append((second - J) ** 2)
    ratio = np.mean(squares) / np.mean(stated)
    assert 0.8 < ratio < 1.25
    assert np.mean(squares) < np.mean(alone)  # two looks are better than one


def test_shrinking_helps_and_lets_go_of_what_is_far():
    random = np.random.default_rng(7)
    target = np.diag([1.0, 0.9, 0.8, 1.1, 1.0, 0.7])
    near = [shrunk(2.0 * target + 0.3 * noise, target, 0.3)[0] for noise in symmetric(random, 6, 200)]
    assert np.mean(np.square(np.array(near) - 2.0 * target)) < 0.35 * 0.3**2 * np.mean(noise_pattern(6))
    far = 2.0 * target + 30.0 * symmetric(random, 6, 1)[0]
    kept, scale = shrunk(far, target, 0.3)
    np.testing.assert_allclose(kept, far, atol=0.2)
    np.testing.assert_allclose(scale, 0.3, rtol=0.01)
    # at least the noise of the fitted ρ is left
    assert shrunk(2.0 * target, target, 0.3)[1] == pytest.approx(0.3 / math.sqrt(6))


# --- tails ----------------------------------------------------------------------------------------


EDGES = np.sqrt(2.0) ** np.arange(-1.0, 12.0)


def pareto_tail(alpha, count, scale, seed=0):
    """Lengths with P(> t) = t^−α from 1 on, counted in the cells; and the lengths themselves."""
    random = np.random.default_rng(seed)
    lengths = random.uniform(size=count) ** (-1.0 / alpha)
    counts = np.histogram(lengths, np.concatenate([[0.0], EDGES, [np.inf]]))[0].astype(float)
    return Tail(EDGES, counts + scale * random.normal(size=len(counts)), scale), lengths


def test_without_noise_the_counts_beyond_are_the_counts():
    """Up to the last cell that holds a record they are summed, from there on least squares fit one cell."""
    tail, lengths = pareto_tail(2.5, 20_000, 1e-9)
    np.testing.assert_allclose(tail.expected, [np.sum(lengths > edge) for edge in EDGES], rtol=0.02, atol=2.0)


def test_noise_in_far_cells_is_no_tail():
    """Sums of noise over twelve empty cells reach 60; the tail that is believed stays near the true one."""
    found = [pareto_tail(6.0, 1500, 17.0, seed) for seed in range(40)]
    far = np.array([tail.expected[4] for tail, _ in found])
    truth = np.mean([np.sum(lengths > EDGES[4]) for _, lengths in found])
    assert abs(np.mean(far) - truth) < 17.0 and far.max() < 60.0
    planted = np.array([np.maximum(tail.counts[5:].sum(), 0.0) for tail, _ in found])  # plain sums
    assert planted.max() > 80.0


def test_the_index_follows_the_tail_and_the_excess_is_that_of_the_lengths():
    """Heavier tails have smaller indices; at the prior's own index Σ(|g| − e)⁺ is that of the lengths."""
    indices = [
        np.mean([pareto_tail(alpha, 5000, 10.0, seed)[0].index for seed in range(20)])
        for alpha in (1.3, 2.0, 3.5, 7.0)
    ]
    assert np.all(np.diff(indices) > 0.2)
    assert indices[2] == pytest.approx(3.5, rel=0.1)
    ratios = []
    for seed in range(20):
        tail, lengths = pareto_tail(3.5, 5000, 10.0, seed)
        truth = [np.sum(np.maximum(lengths - edge, 0.0)) for edge in EDGES[1:4]]
        ratios.append(tail.excess(9, spread=False)[1:4] / truth)
    np.testing.assert_allclose(np.mean(ratios, axis=0), 1.0, atol=0.15)


def test_the_posterior_is_prior_times_likelihood():
    """α on the public grid, log-normal prior around 3.5; Gaussian cells with noise and Poisson variance."""
    tail, _ = pareto_tail(2.0, 900, 15.0, seed=5)
    start = max(j for j in range(13) if tail.counts[j + 1] >= 6.0 * tail.scale)
    seen = [mpmath.mpf(count) for count in tail.counts[start + 1 :]]
    grid = [mpmath.mpf(10) ** (mpmath.mpf(k) / 23) for k in range(24)]
    weights = []
    for alpha in grid:
        logs = -((mpmath.log(alpha / mpmath.mpf(3.5)) / mpmath.mpf(0.3)) ** 2) / 2
        fall = [mpmath.mpf(EDGES[j] / EDGES[start]) ** -alpha for j in range(start, 13)] + [mpmath.mpf(0)]
        shares = [upper - lower for upper, lower in pairwise(fall)]
        size = mpmath.fsum(q * c for q, c in zip(shares, seen, strict=True))
        size = max(size / mpmath.fsum(q * q for q in shares), 0)
        for q, count in zip(shares, seen, strict=True):
            logs -= (count - size * q) ** 2 / (2 * (tail.scale**2 + size * q + 1))
        weights.append(mpmath.exp(logs))
    expected = mpmath.fsum(a * w for a, w in zip(grid, weights, strict=True)) / mpmath.fsum(weights)
    np.testing.assert_allclose(tail.index, float(expected), rtol=1e-9)


def light_tail():
    """Lengths of one size: nothing beyond the third edge."""
    return Tail(EDGES, np.array([0.0, 5000.0, 200.0, *[0.0] * 11]), 2.0)


def test_directions_of_light_tails_are_spread_and_the_clip_balances():
    """r^−½ of the excess where α ≥ 3.5, all of it where α ≤ 1.5: the share falls with α."""
    tail = light_tail()
    spread, worst = tail.excess(16), tail.excess(16, spread=False)
    assert np.all(spread >= worst / 4.0 * (1 - 1e-12)) and np.all(spread <= worst)
    heavy, _ = pareto_tail(1.2, 3000, 3.0)
    share, heavier = spread[1] / worst[1], heavy.excess(16)[1] / heavy.excess(16, spread=False)[1]
    assert share < 0.35 < heavier
    cost = [(EDGES[j] * 50.0) ** 2 + 3.0 * spread[j] ** 2 for j in range(len(EDGES))]
    assert tail.clip(16, 50.0) == int(np.argmin(cost))
    assert tail.clip(16, 5000.0) <= tail.clip(16, 50.0) <= tail.clip(16, 0.5)  # more noise, smaller clip


def test_a_count_that_noise_hides_is_not_zero():
    tail = Tail(EDGES, np.append(1e4, np.zeros(13)), 20.0)
    assert (tail.excess(4) >= 0.2 * 20.0 * EDGES / 2.0 * (1 - 1e-12)).all()


# --- other losses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Huber(0.25), Logistic()], ids=lambda loss: loss.name)
def test_with_little_noise_the_estimate_is_the_minimiser(loss):
    """n = 40,000 at ε = 60: the fit without privacy within half a standard error, and its standard errors."""
    random = np.random.default_rng(8)
    n = 40_000
    X = np.column_stack([random.uniform(-1, 1, (n, 2)), np.ones(n)])
    eta = X @ np.array([0.5, -0.3, 0.1])
    if loss.name == "logistic":
        y = np.where(random.random(n) < 1 / (1 + np.exp(-3 * eta)), 1.0, -1.0)
    else:
        y = np.clip(eta + 0.2 * random.standard_t(4, n), -1, 1)
    problem = Problem(loss, domain=Domain(math.sqrt(3.0), 1.0, "add_remove"))
    plan = RecenteredInference(rule=Rule(rounds=32, first_rounds=8)).plan(problem, 3, Budget(60.0, 1e-6))
    found = plan.release(DenseRows(X, y, problem.domain), randomness.generator(0)).inference.of(np.eye(3))
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    for _ in range(60):
        s = (X @ w)[:, None]
        J = (X * loss.hessian(s, y)[:, 0, 0][:, None]).T @ X
        w = w - np.linalg.solve(J, X.T @ loss.gradient(s, y)[:, 0])
    s = (X @ w)[:, None]
    g = X * loss.gradient(s, y)
    sandwich = np.linalg.solve(J, np.linalg.solve(J, g.T @ g).T)
    se = np.sqrt(np.diag(sandwich))
    assert found.resolved.all()
    assert np.abs(found.estimate - w).max() < 0.5 * se.min()
    np.testing.assert_allclose(found.se, se, rtol=0.25)
