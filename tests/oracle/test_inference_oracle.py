"""What inference makes of released numbers, against brute force, simulation and exact algebra."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from curvedp import randomness
from curvedp.data.rows import ArrayRows
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.postprocess import inference as released
from curvedp.postprocess.inference import (
    BEYOND,
    Tail,
    clipped_away,
    likely_index,
    noise_pattern,
    shrunk,
    weighed_bread,
)
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Squared


def symmetric(random, r, count):
    """Noise of scale 1: variance 1 on the diagonal, ½ off it."""
    raw = random.normal(size=(count, r, r))
    return (raw + raw.transpose(0, 2, 1)) / 2


# --- one Newton step ------------------------------------------------------------------------------


@cache
def step_of(seed: int):
    """A fit of bounded records and small residuals, and its table."""
    random = np.random.default_rng(5)
    X = np.column_stack([random.choice([-1.0, 1.0], (3000, 3)), np.ones(3000)])
    y = X @ np.array([0.2, -0.1, 0.3, 0.05]) + 0.2 * random.choice([-1.0, 1.0], 3000)
    problem = Problem(Squared(), domain=Domain(2.0, 1.0, "add_remove"))
    mechanism = Recentered(Rule(rounds=16, first_rounds=4), inference=True)
    plan = mechanism.plan(problem, 4, Budget(3.0, 1e-6))
    return plan.release(ArrayRows(X, y, problem.domain), randomness.generator(seed)).inference, X, y


def sure(R, **changes):
    """The releases with a curvature that is known and a clip that shortens nothing, but for the changes."""
    nothing = Tail(R.tail.edges, np.zeros_like(R.tail.counts), 1e-12)
    known = {"bread_scale": 1e-12, "tail": nothing, "beyond": np.zeros_like(R.beyond), **changes}
    return replace(R, **known)


def test_a_newton_step_with_the_exact_curvature_ends_at_the_minimiser_less_the_noise():
    """Squared loss, no clip: c − J⁻¹Ĝ − w* = −J⁻¹·noise, from any centre, however far."""
    found, X, y = step_of(1)
    R = found
    Z = X @ R.basis  # the records' coordinates: θ = basis·w
    J, best = Z.T @ Z, np.linalg.lstsq(Z, y, rcond=None)[0]
    for far in (0.0, 1.0, 100.0):
        centre = R.centre + far
        noise = R.noise * np.array([1.0, -2.0, 0.5, 3.0])
        gradient = Z.T @ (Z @ centre - y) + noise
        theta = sure(R, centre=centre, gradient=gradient, bread=J).theta[:, 0]
        expected = R.basis @ (best - np.linalg.solve(J, noise))
        np.testing.assert_allclose(theta, expected, rtol=1e-6, atol=1e-8 * (1.0 + far))


def test_what_an_error_of_the_curvature_adds_is_that_error_times_the_step():
    """w − w* = Ĵ⁻¹E(c − w*), E = Ĵ − J: to first order what `covariance` counts as Cov(Ev)."""
    found, X, y = step_of(1)
    R = found
    Z = X @ R.basis
    J, best = Z.T @ Z, np.linalg.lstsq(Z, y, rcond=None)[0]
    E = 0.1 * symmetric(np.random.default_rng(0), 4, 1)[0]
    centre = best + np.array([0.3, -0.2, 0.1, 0.4])
    theta = sure(R, centre=centre, gradient=J @ (centre - best), bread=J + E).theta[:, 0]
    expected = R.basis @ (best + np.linalg.solve(J + E, E @ (centre - best)))
    np.testing.assert_allclose(theta, expected, atol=1e-9)


def test_functionals_follow_from_the_releases():
    """aᵀθ̂, its noise and its standard error by the sandwich, all directions being resolved."""
    found, X, _ = step_of(1)
    R = found
    Z, a = X @ R.basis, np.array([[0.3, -1.0, 2.0, 0.5], [1.0, 0.0, 0.0, 0.0]])
    J = Z.T @ Z
    known = sure(R, bread=J, meat_scale=1e-12)
    assert known.resolved.all() and abs(R.inflation) < 1e-9  # a linear response
    stated = known.of(a)
    core = R.noise**2 * np.eye(4) + R.meat
    for row, estimate, noise, se in zip(a, stated.estimate, stated.noise, stated.se, strict=True):
        p = np.linalg.solve(J, R.basis.T @ row)
        np.testing.assert_allclose(estimate, row @ known.theta[:, 0])
        np.testing.assert_allclose(noise, R.noise * np.linalg.norm(p), rtol=1e-5)
        np.testing.assert_allclose(se, math.sqrt(p @ core @ p), rtol=1e-5)
    # Noise of the curvature joins both: Var(pᵀEv), v the step.
    noisy = sure(R, bread=J, bread_scale=0.05, look_scale=1e9)
    told, v = noisy.of(a), np.linalg.solve(J, R.gradient)
    for row, noise in zip(a, told.noise, strict=True):
        p = np.linalg.solve(J, R.basis.T @ row)
        more = quadratic_variance(0.05**2 * noise_pattern(np.eye(4)), p, v)
        np.testing.assert_allclose(noise**2, R.noise**2 * p @ p + more, rtol=1e-3)


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


def test_a_bread_trusts_whichever_look_is_precise():
    random = np.random.default_rng(5)
    truth = np.diag([0.9, 0.8, 0.5, 0.3]) + 0.05
    look, noise = np.array([0.9, 0.8, 0.5, 0.3]), symmetric(random, 4, 1)[0]
    np.testing.assert_allclose(
        weighed_bread(look, 1e-6 * noise_pattern(np.eye(4)), truth, 1e-9, 1.0)[0], truth, atol=1e-6
    )
    same, variance = weighed_bread(
        look, 1e-12 * noise_pattern(np.eye(4)), 0.7 * np.diag(look) + 0.05 * noise, 0.05, 0.8
    )
    np.testing.assert_allclose(same, np.diag(np.diag(same)), atol=0.05)
    assert variance.max() < 0.2 * 0.05**2


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
        unit = np.sqrt(np.outer(lifted, lifted))
        seen = U.T @ np.diag(true) @ U / unit
        size = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))
        J = rho * (seen + misfit * size * symmetric(random, r, 1)[0])
        second = J + own * symmetric(random, r, 1)[0]
        bread, variance = weighed_bread(
            raw / lifted, tau**2 * noise_pattern(np.eye(r)) / unit**2, second, own, 0.3
        )
        squares.append((bread - J) ** 2)
        stated.append(variance)
        alone.append((second - J) ** 2)
    ratio = np.mean(squares) / np.mean(stated)
    assert 0.8 < ratio < 1.25
    assert np.mean(squares) < np.mean(alone)  # two looks are better than one


def test_noise_makes_no_entry_of_a_bread_odd():
    """Of 231 entries one is 3 deviations away in nearly half of all fits; what is far away is still seen."""
    random, r, own = np.random.default_rng(9), 21, 0.3
    look, before = np.linspace(0.5, 1.0, 21), 1e-6 * noise_pattern(np.eye(21))
    odd = 0
    for noise in symmetric(random, r, 200):
        variance = weighed_bread(look, before, np.diag(look) + own * noise, own, 1.0)[1]
        odd += bool(np.max(variance) > 0.5 * own**2 * np.min(noise_pattern(np.eye(r))))
    assert odd <= 20
    far = np.diag(look)
    far[2, 3] = far[3, 2] = 2.0  # nine deviations
    assert weighed_bread(look, before, far, own, 1.0)[0][2, 3] > 1.8


def test_shrinking_helps_and_lets_go_of_what_is_far():
    random = np.random.default_rng(7)
    target = np.diag([1.0, 0.9, 0.8, 1.1, 1.0, 0.7])
    near = [shrunk(2.0 * target + 0.3 * noise, target, 0.3)[0] for noise in symmetric(random, 6, 200)]
    assert np.mean(np.square(np.array(near) - 2.0 * target)) < 0.35 * 0.3**2 * np.mean(
        noise_pattern(np.eye(6))
    )
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
        for alpha in (1.3, 2.0, 4.0, 7.0)
    ]
    assert np.all(np.diff(indices) > 0.2)
    assert indices[2] == pytest.approx(4.0, rel=0.1)
    ratios = []
    for seed in range(20):
        tail, lengths = pareto_tail(4.0, 5000, 10.0, seed)
        truth = np.sum(np.maximum(lengths - EDGES[1], 0.0))
        ratios.append(tail.posterior @ tail.excesses / truth)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(("outlying", "likely"), [(0.0, 0.0), (0.3, 0.0), (1.0, 0.0), (0.0, 2.5), (0.3, 2.5)])
def test_the_posterior_is_prior_times_likelihood(outlying, likely):
    """α on the public grid; cells of log-normal counts around those of e^−α, with noise and Poisson variance.

    A priori ln α is normal around ln 4, or what is likely, or nearer to ln 1.4 by the share of leverage that
    is unseen, which leaves the cells less uneven.
    """
    tail = replace(pareto_tail(2.0, 900, 15.0, seed=5)[0], outlying=outlying, likely=likely)
    start = max(j for j in range(13) if tail.counts[j + 1] >= 6.0 * tail.scale)
    seen = [mpmath.mpf(count) for count in tail.counts[start + 1 :]]
    grid = [mpmath.mpf(10) ** (mpmath.mpf(k) / 23) for k in range(24)]
    weights, typical = [], (1 - outlying) * mpmath.log(likely or 4) + outlying * mpmath.log(mpmath.mpf("1.4"))
    uneven, inside = mpmath.mpf(1 - outlying), []
    for alpha in grid:
        weight = mpmath.exp(-(((mpmath.log(alpha) - typical) / mpmath.mpf("0.4")) ** 2) / 2)
        fall = [mpmath.mpf(EDGES[j] / EDGES[start]) ** -alpha for j in range(start, 13)] + [mpmath.mpf(0)]
        shares = [upper - lower for upper, lower in pairwise(fall)]
        size = mpmath.fsum(q * c for q, c in zip(shares, seen, strict=True))
        size = max(size / mpmath.fsum(q * q for q in shares), 0)
        inside.append([])
        for q, count in zip(shares, seen, strict=True):

            def there(t, q=q, size=size):
                return size * q * mpmath.exp(uneven * t - uneven**2 / 2)

            def density(t, there=there, count=count):
                return mpmath.npdf(t) * mpmath.npdf(
                    count, there(t), mpmath.sqrt(tail.scale**2 + there(t) + 1)
                )

            likelihood = mpmath.quad(density, range(-8, 9))
            weight *= likelihood
            moment = mpmath.quad(lambda t, f=density, g=there: f(t) * g(t), range(-8, 9))
            inside[-1].append(float(moment / likelihood))
        weights.append(weight)
    expected = np.array([float(w / mpmath.fsum(weights)) for w in weights])
    np.testing.assert_allclose(tail.posterior, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(tail.index, np.array([float(a) for a in grid]) @ expected, rtol=1e-6)
    np.testing.assert_allclose(tail.expected[start], expected @ np.sum(inside, axis=1), rtol=1e-6)


def test_a_gap_in_the_tail_is_seen():
    """170 records at three times the clip and hardly any before: a power of e alone finds a tenth of them."""
    random, found, powers = np.random.default_rng(2), [], []
    counts = np.zeros(14)
    counts[[0, 1, 2, 5]] = 1e4, 30.0, 10.0, 170.0
    for _ in range(40):
        tail = Tail(EDGES, counts + 30.0 * random.normal(size=14), 30.0)
        found.append(tail.posterior @ tail.excesses)
        powers.append(replace(tail, outlying=1.0).excesses[16])  # α = 5, every cell as it says
    truth = 170.0 * (math.sqrt(EDGES[4] * EDGES[5]) - EDGES[1])
    assert 0.5 < np.median(found) / truth < 1.3
    assert np.median(powers) / truth < 0.2


def lumpy(random, scale=30.0):
    """300 records six to sixteen clips long, in three cells, and hardly any before: (tail, their excess)."""
    counts = np.zeros(14)
    counts[[0, 1]], counts[7:10] = (1e4, 60.0), 100.0
    excess = np.sum(counts[7:10] * (np.sqrt(EDGES[6:9] * EDGES[7:10]) - EDGES[1]))
    return Tail(EDGES, counts + scale * random.normal(size=14), scale, likely=4.0), excess


def test_a_lump_that_no_cell_shows_alone_is_seen():
    """Each of its cells is within four deviations of nothing; as a run they are not."""
    random, seen, typical, each = np.random.default_rng(4), [], [], []
    for _ in range(40):
        tail, truth = lumpy(random)
        assert tail.counts[7:10].max() < 6.5 * tail.scale
        seen.append(tail.posterior @ tail.excesses / truth)
        without = replace(tail, likely=0.0)
        typical.append(without.posterior @ without.excesses / truth)
        each.append(tail.counts[7:10].min() / tail.scale)
    assert np.mean(np.array(each) < 3.0) > 0.5
    assert 0.8 < np.median(seen) < 1.4 and np.quantile(seen, 0.1) > 0.6
    assert np.median(typical) < 0.5  # what a single power makes of it


def test_a_lump_is_doubted_and_moves_no_estimate():
    """Were it corrected, the noise of where it points would be multiplied by all that it may have."""
    R, tail = step_of(1)[0], lumpy(np.random.default_rng(4))[0]
    lengths = R.tail.edges[1] / EDGES[1]
    tail = replace(tail, edges=lengths * tail.edges)
    seen, typical = (replace(R, tail=replace(tail, likely=likely)) for likely in (4.0, 0.0))
    np.testing.assert_array_equal(seen.theta, typical.theta)
    wide, narrow = (each.of(np.eye(4)).se for each in (seen, typical))
    assert np.all(wide > 2.0 * narrow)
    planted = clipped_away(tail, BEYOND, R.beyond, R.beyond_scale, np.ones(4), np.ones(4), 0.0, NO_PERSONS)
    assert np.linalg.norm(planted[0]) > 2.0 * np.linalg.norm(seen._clipped[0])


def test_noise_alone_is_hardly_ever_taken_for_a_lump():
    """At most 91 runs of cells, each four deviations above what is expected once in 31,574 times."""
    random, lumps = np.random.default_rng(6), 0
    power = 120.0 * (EDGES / EDGES[0]) ** -4.0
    counts = np.concatenate([[1e4], power - np.append(power[1:], 0.0)])
    for _ in range(1000):
        tail = Tail(EDGES, counts + 30.0 * random.normal(size=14), 30.0, likely=4.0)
        lumps += bool(np.any(tail.excesses != replace(tail, likely=0.0).excesses))
    assert lumps <= 6  # 91/31574·1000 = 2.9 are expected at most


def test_tails_of_long_clips_are_likely_to_be_heavy():
    assert likely_index(0.0, 0.0) == likely_index(5.0, 0.0) == 4.0
    assert likely_index(20.0, 0.0) == pytest.approx(2.0) and likely_index(20.0, 1.0) == 4.0
    assert likely_index(20.0, 0.5) == pytest.approx(4.0 / 2.0**0.5)


def test_a_count_that_noise_hides_is_not_zero():
    """About as many records as two thirds of a deviation, as long as the tail says: c/(α − 1) beyond c."""
    tail = Tail(EDGES, np.append(1e4, np.zeros(13)), 20.0)
    grid = np.geomspace(1.0, 10.0, 24)
    np.testing.assert_allclose(tail.excesses[5:], 0.7 * 20.0 * EDGES[1] / (grid[5:] - 1.0), rtol=1e-12)
    factor = EDGES[1] * BEYOND / (1.0 - (1.0 + BEYOND) ** (1.0 - grid[5:]))
    np.testing.assert_allclose(tail.stretch(BEYOND)[5:], factor, rtol=1e-12)
    short = replace(tail, longest=EDGES[1])
    assert not short.excesses.any()  # no gradient is longer than the clip


# --- what the clip took away ------------------------------------------------------------------------

NO_PERSONS = np.zeros((4, 1))


def clipped_sums(alpha, count, random, pull, J):
    """(tail, beyond, D) of gradients with Pareto lengths from the clip on, whose directions lean one way."""
    lengths = random.uniform(size=count) ** (-1.0 / alpha)
    directions = random.normal(size=(count, len(pull))) * np.sqrt(J) + 0.7 * pull
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    counts = np.histogram(lengths, np.concatenate([[0.0], EDGES, [np.inf]]))[0].astype(float)
    c = EDGES[1]
    excess = np.maximum(lengths - c, 0.0)
    beyond = np.minimum(excess / (c * BEYOND), 1.0) @ directions
    return Tail(EDGES, counts, 1e-6), beyond, excess @ directions


def test_what_the_clip_took_away_is_found_where_noise_is_small():
    random = np.random.default_rng(3)
    J, pull = np.array([1.0, 0.8, 0.6, 1.2]), np.array([1.0, 0.0, 0.0, 0.0])
    tail, beyond, truth = clipped_sums(3.5, 20_000, random, pull, J)
    mean, covariance, moved = clipped_away(tail, BEYOND, beyond, 1e-3, J, pull, 0.0, NO_PERSONS)
    assert np.linalg.norm(mean - truth) < 0.15 * np.linalg.norm(truth)
    assert np.trace(covariance) < (0.1 * np.linalg.norm(truth)) ** 2
    assert np.trace(moved) <= np.trace(covariance)


def test_the_mean_of_what_the_clip_took_away_moves_as_it_says():
    """Over many draws of the noise of the directions alone."""
    random = np.random.default_rng(5)
    J, pull = np.array([1.0, 0.8, 0.6, 1.2]), np.array([1.0, 0.0, 0.0, 0.0])
    tail, beyond, _ = clipped_sums(3.5, 2000, random, pull, J)
    found = [
        clipped_away(tail, BEYOND, beyond + 60.0 * random.normal(size=4), 60.0, J, pull, 0.0, NO_PERSONS)
        for _ in range(300)
    ]
    scatter = np.trace(np.cov(np.array([mean for mean, _, _ in found]).T))
    assert 0.5 < scatter / np.mean([np.trace(moved) for _, _, moved in found]) < 2.0


@pytest.mark.parametrize("several", [0.0, 0.5, 1.0])
def test_the_posterior_of_what_the_clip_took_away_is_prior_times_likelihood(several):
    """A mixture of normals over α, τ₁ and τ₂, with dense matrices; what persons share is doubted."""
    random = np.random.default_rng(6)
    J, pull = np.array([1.0, 0.8, 0.6, 1.2]), np.array([1.0, 0.5, 0.0, 0.0])
    common = np.array([0, 0.6, 0.8, 0])
    tail, beyond, _ = clipped_sums(3.5, 2000, random, pull, J)
    tail = replace(tail, scale=40.0, outlying=0.4)
    b, scale = pull / np.linalg.norm(pull), 60.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    (a1, s1), (a2, s2) = (
        (1 - several) * np.array(row) + several * np.array(person)
        for row, person in (((-1.0, 0.9), (-2.6, 0.9)), ((-0.75, 0.6), (-2.5, 0.8)))
    )
    densities, means, covariances, shared = [], [], [], []
    for chance, E, factor in zip(tail.posterior, tail.excesses, tail.stretch(BEYOND), strict=True):
        noise2 = (factor * scale) ** 2
        told = E**2 / (E**2 + noise2)  # of a normal D along m with prior deviation E: its second moment
        second = (1 - told) * E**2 + (told * factor * (beyond @ common)) ** 2
        for x, v in zip(nodes, weights, strict=True):
            for z, w in zip(nodes, weights, strict=True):
                prior = (E * np.exp(a2 + s2 * x)) ** 2 / 4 * np.diag(J / J.mean())
                prior += (E * np.exp(a1 + s1 * z)) ** 2 * np.outer(b, b)
                seen = prior / factor**2 + scale**2 * np.eye(4)  # of what is released
                densities.append(chance * v * w * multivariate_normal(cov=seen).pdf(beyond))
                total = prior + noise2 * np.eye(4)
                means.append(prior @ np.linalg.solve(total, factor * beyond))
                covariances.append(prior - prior @ np.linalg.solve(total, prior))
                shared.append(second)
    share = np.array(densities) / np.sum(densities)
    mean = share @ np.array(means)
    covariance = np.tensordot(share, np.array(covariances), 1) + np.cov(
        np.array(means).T, aweights=share, ddof=0
    )
    covariance += several**2 * (share @ shared) * np.outer(common, common)
    found = clipped_away(tail, BEYOND, beyond, scale, J, pull, several, common[:, None])
    np.testing.assert_allclose(found[0], mean, rtol=1e-8)
    np.testing.assert_allclose(found[1], covariance, rtol=1e-8)


def test_what_noise_hides_of_the_clip_is_doubt_and_no_move():
    random = np.random.default_rng(4)
    J, pull = np.array([1.0, 0.8, 0.6, 1.2]), np.array([1.0, 0.0, 0.0, 0.0])
    tail, beyond, truth = clipped_sums(3.5, 2000, random, pull, J)
    for scale in (1e4, 1e6):
        noisy = beyond + scale * random.normal(size=4)
        mean, covariance, moved = clipped_away(tail, BEYOND, noisy, scale, J, pull, 0.0, NO_PERSONS)
        assert np.trace(moved) < 0.3 * np.trace(covariance)  # the mean hardly moves
        assert np.linalg.norm(mean) < 0.3 * np.sqrt(np.trace(covariance))
        assert covariance[0, 0] > 0.2 * truth[0] ** 2  # the prior covers what is there
        np.testing.assert_allclose(covariance, covariance.T)
        assert np.linalg.eigvalsh(covariance)[0] > 0


# --- other losses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Squared(), Huber(0.25), Logistic()], ids=lambda loss: loss.name)
def test_with_little_noise_the_estimate_is_the_minimiser(loss):
    """n = 40,000 at ε = 500: the fit without privacy within a tenth of a standard error, and the sandwich."""
    random = np.random.default_rng(8)
    n = 40_000
    X = np.column_stack([random.uniform(-1, 1, (n, 2)), np.ones(n)])
    eta = X @ np.array([0.5, -0.3, 0.1])
    if loss.name == "logistic":
        y = np.where(random.random(n) < 1 / (1 + np.exp(-3 * eta)), 1.0, -1.0)
    else:
        y = np.clip(eta + 0.2 * random.standard_t(4, n), -1, 1)
    problem = Problem(loss, domain=Domain(math.sqrt(3.0), 1.0, "add_remove"))
    plan = Recentered(inference=True).plan(problem, 3, Budget(500.0, 1e-6))
    found = plan.release(ArrayRows(X, y, problem.domain), randomness.generator(0)).inference.of(np.eye(3))
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
    assert np.abs(found.estimate - w).max() < 0.1 * se.min()
    np.testing.assert_allclose(found.se, se, rtol=0.05)
