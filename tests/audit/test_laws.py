"""The laws that answers state: densities, distances and residuals against scipy, enumeration and draws."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy import stats

from curvedp import Budget, Domain, Problem, randomness
from curvedp.analyses.explore.quantiles import SpanLaw, SumLaw
from curvedp.auditing.pairs import record_pairs
from curvedp.auditing.totals import replay
from curvedp.mechanisms import QOP, make_plan
from curvedp.mechanisms.base import Grid
from curvedp.privacy.curvature import Wishart
from curvedp.problems.losses import Huber, Logistic, Squared
from curvedp.transcript import Laplace, Listener, Normal, expected_det, told
from curvedp_studies.mechanisms.lop import LOP, LOPClip
from curvedp_studies.mechanisms.wishart import NoisyCurvature


def test_normal_and_laplace_are_those_of_scipy():
    random = np.random.default_rng(0)
    q, other, value = random.normal(size=(3, 4))
    left, right = Normal(q, 1.7), Normal(other, 1.7)
    ratio = stats.norm.logpdf(value, q, 1.7).sum() - stats.norm.logpdf(value, other, 1.7).sum()
    assert left.log_density(value) - right.log_density(value) == pytest.approx(ratio)
    assert left.distance(right, value) == pytest.approx(np.linalg.norm(q - other) / 1.7)
    left, right = Laplace(q, 1.7), Laplace(other, 1.7)
    ratio = stats.laplace.logpdf(value, q, 1.7).sum() - stats.laplace.logpdf(value, other, 1.7).sum()
    assert left.log_density(value) - right.log_density(value) == pytest.approx(ratio)
    assert abs(ratio) <= left.distance(right, value) == pytest.approx(np.abs(q - other).sum() / 1.7)
    z = Laplace(q[:1], 1.7).residuals(stats.laplace.rvs(q[0], 1.7, 2000, random_state=1))
    assert stats.kstest(z, "norm").pvalue > 1e-3
    far = Laplace(np.zeros(2), 1.0).residuals(np.array([800.0, -800.0]))
    assert np.isfinite(far).all() and far[0] == -far[1] > 39  # where probabilities underflow


@pytest.mark.parametrize("d", [1, 3])
def test_a_noisy_curvature_is_a_moved_wishart(d):
    random, m, sigma2 = np.random.default_rng(0), 9.5, 0.7
    A, B = random.normal(size=(2, 5, d))
    left, right = NoisyCurvature(A.T @ A, sigma2, m), NoisyCurvature(B.T @ B, sigma2, m)
    value = left.query + sigma2 * (Wishart(d, m).sample(random) - m * np.eye(d))
    expected = [stats.wishart.logpdf(law.wishart(value), m, np.eye(d)) for law in (left, right)]
    assert left.log_density(value) - right.log_density(value) == pytest.approx(expected[0] - expected[1])
    z = np.concatenate(
        [left.residuals(left.query + sigma2 * (W - m * np.eye(d))) for W in Wishart(d, m).sample(random, 800)]
    )
    assert z.size == 800 * d * (d + 1) / 2 and stats.kstest(z, "norm").pvalue > 1e-3


def test_symmetric_noise_has_independent_unit_residuals():
    random = Listener(randomness.generator(0))
    grid, value = Grid.of(1.0, 0.3, 9), np.diag([1.0, 2.0, 3.0])
    for _ in range(500):
        grid.add_symmetric(value, random)
    z = np.array([law.residuals(answer) for law, answer in random.answers])
    assert z.shape == (500, 6) and np.abs(np.cov(z.T) - np.eye(6)).max() < 0.3
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    assert random.answers[0][0].share == 0.3 and random.answers[0][0].step == grid.step


def in_order(law):
    return [c for c in product(*(range(len(e)) for e in law.errors)) if all(a <= b for a, b in pairwise(c))]


@pytest.mark.parametrize(("levels", "spans"), [(1, False), (2, False), (3, False), (2, True)])
def test_exponential_laws_by_enumeration(levels, spans):
    random = np.random.default_rng(levels)
    rate = Fraction(3, 7)

    def law():
        errors = np.sort(random.integers(-6, 7, (levels, 9)), axis=1)
        return (SpanLaw if spans else SumLaw)(tuple(errors), rate)

    left, right = law(), law()
    for one in (left, right):
        assert sum(math.exp(one.log_density(c)) for c in in_order(one)) == pytest.approx(1.0)
    worst = max(abs(left.log_density(c) - right.log_density(c)) for c in in_order(left))
    assert left.distance(right, in_order(left)[0]) == pytest.approx(worst)


def test_an_expected_determinant_is_the_mean_of_many():
    random, m = np.random.default_rng(0), 8.0
    A = random.normal(size=(3, 3))
    M = A + A.T
    dets = np.linalg.det(M + 0.4 * Wishart(3, m).sample(random, 200_000))
    assert expected_det(M, 0.4, m) == pytest.approx(dets.mean(), abs=5 * dets.std() / math.sqrt(len(dets)))
    assert expected_det(np.zeros((0, 0)), 0.4, m) == 1.0


MINIMA = {
    "qop d=1": (QOP(m=12.0), Logistic(), 1),
    "qop d=2": (QOP(m=12.0), Logistic(), 2),
    "qop d=3, squared": (QOP(m=12.0), Squared(), 3),
    "lop": (LOP(), Logistic(), 2),
    "lop huber": (LOP(), Huber(0.5), 2),
    "lop_clip": (LOPClip(clip=0.25), Squared(), 2),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in ("qop d=1", "lop", "lop huber") else [])
        for name in MINIMA
    ],
)
def test_the_stated_law_of_a_minimiser_is_a_density(name):
    """E[p'/p] = 1 over what the shipped code draws: both densities, and the draws, are right together."""
    mechanism, loss, d = MINIMA[name]
    problem = Problem(loss, domain=Domain(adjacency="add_remove"))
    plan = make_plan(mechanism, problem, d, Budget(1.0, 1e-3))
    pair = next(p for p in record_pairs(problem, d, 0.4, [3.0]) if "against, a gradient of 3" in p.name)
    random = randomness.generator(1)
    runs = [replay(plan.release, pair.right, pair.left, random) for _ in range(300)]
    assert not any(run.differs for run in runs)
    ratios = np.exp([-run.log_ratio for run in runs])
    assert ratios.std() > 0.1  # the pair tells something
    assert ratios.mean() == pytest.approx(1.0, abs=4.5 * ratios.std() / math.sqrt(len(ratios)))
    assert all(law.misses(value) < 3 for run in runs for law, value in run.answers if hasattr(law, "misses"))


def test_who_does_not_listen_is_not_told_and_a_private_run_cannot_be_heard():
    law = Normal(np.zeros(1), 1.0)
    assert told(np.random.default_rng(0), law, 3.0) == 3.0
    listener = Listener(np.random.default_rng(0), [(law, 4.0)])
    assert told(listener, law, 3.0) == 4.0 and listener.answers == [(law, 4.0)]
    assert not isinstance(randomness.generator(), Listener)
