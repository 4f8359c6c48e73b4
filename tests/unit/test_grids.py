"""Every noisy number that leaves is on a public grid, and no grid point says more than the theorem counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

from curvedp.data.rows import ArrayRows
from curvedp.data.rows.base import SUM_SLACK
from curvedp.errors import CalibrationFailed
from curvedp.mechanisms import base as noise_module
from curvedp.mechanisms.base import (
    FEWEST_STEPS,
    GaussianNoise,
    Grid,
    excess,
    gaussian_profile,
    gradient_scale,
    make_plan,
)
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Squared
from curvedp.randomness import LARGEST_SCALE, grid_step
from curvedp.release import catalogue
from curvedp_studies.mechanisms import functional, wishart

BUDGET = Budget(1.0, 1e-6)
CONTINUOUS = ("standard_normal", "normal", "laplace", "gamma", "standard_gamma", "chisquare", "exponential")

# What a mechanism draws besides exact noise on grids. A new one has to say.
NOTHING = {"recentered", "statistics", "gradient", "output", "adassp", "functional", "dp_sgd"}
NEVER_RELEASED = {"qop", "lop", "lop_clip", "amp"}  # W and a; what leaves is the solution on a grid plus b
ROUNDED = {"wishart"}  # W, which leaves as S = XᵀX + σ²W on a grid


class Watched(np.random.Generator):
    """A generator that remembers which continuous laws it was asked for."""

    def __init__(self, seed):
        super().__init__(ChaCha(seed=seed, rounds=20))
        self.seen = set()


def _watch(name):
    def draw(self, *args, **kwargs):
        self.seen.add(name)
        return getattr(np.random.Generator, name)(self, *args, **kwargs)

    return draw


for law in CONTINUOUS:
    setattr(Watched, law, _watch(law))


@pytest.fixture
def released(monkeypatch):
    """(value, step) of everything that noise was added to, as it left."""
    seen = []

    def spy(owner, name, step_of):
        plain = getattr(owner, name)

        def call(*args):
            value = plain(*args)
            seen.append((np.array(value), step_of(args)))
            return value

        monkeypatch.setattr(owner, name, call)

    spy(Grid, "add", lambda args: args[0].step)
    spy(Grid, "add_symmetric", lambda args: args[0].step)
    spy(wishart, "round_to_grid", lambda args: args[1])
    spy(functional.FunctionalPlan, "coefficients", lambda args: args[0].step)
    return seen


def on_grid(value, step):
    return (
        math.frexp(step)[0] == 0.5
        and np.all(np.isfinite(value))
        and np.all(np.rint(value / step) * step == value)
    )


def table(n=300, d=3):
    random = np.random.default_rng(0)
    X = random.uniform(-0.5, 0.5, (n, d))
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def planned(name):
    quadratic = ("statistics", "wishart", "adassp", "functional", "exponential", "input")
    loss = Squared() if name in quadratic else Logistic()
    adjacency = "replace" if name == "input" else "add_remove"
    problem = Problem(loss, domain=Domain(adjacency=adjacency))
    return problem, make_plan(catalogue.mechanism(name), problem, 3, BUDGET)


def test_every_mechanism_is_sorted():
    studied = {name for name, entry in catalogue.MECHANISMS.items() if entry.role == "study"}
    groups = [NOTHING, NEVER_RELEASED, ROUNDED, studied]
    assert sorted(name for group in groups for name in group) == sorted(catalogue.MECHANISMS)


@pytest.mark.parametrize("name", sorted(catalogue.MECHANISMS))
def test_what_leaves_a_mechanism_is_on_a_public_grid(name, released):
    problem, plan = planned(name)
    if catalogue.MECHANISMS[name].role == "study":
        assert not plan.guarantee.private
        return
    assert plan.guarantee.private
    X, y = table()
    random = Watched(1)
    estimate = plan.release(ArrayRows(X, y, problem.domain), random)
    assert released and all(on_grid(value, step) for value, step in released)
    if name in NOTHING:
        assert not random.seen
    if name in NEVER_RELEASED or name == "output":  # the answer, at the stated noise
        numbers = plan.guarantee.parameters
        step = grid_step(float(numbers["sigma" if name == "output" else "sigma_tilde"]))
        assert on_grid(estimate.theta, step)


def test_a_number_off_the_grid_is_seen(released, monkeypatch):
    """A planted fault: noise that is added without a grid."""
    monkeypatch.setattr(
        noise_module.randomness, "discrete_gaussian", lambda random, steps, size: np.full(size, steps / 3)
    )
    problem, plan = planned("gradient")
    X, y = table()
    plan.release(ArrayRows(X, y, problem.domain), Watched(1))
    assert not all(on_grid(value, step) for value, step in released)


@pytest.mark.parametrize("dim", [1, 14, 10_000, 10**6])
@pytest.mark.parametrize("mu", [3e-11, 1e-6, 0.01, 0.5, 40.0])
@pytest.mark.parametrize("sensitivity", [1e-90, 0.3, 1e30])
def test_a_grid_holds_its_shift_and_its_steps(sensitivity, mu, dim):
    if 2.0**8 * math.sqrt(dim) > mu * LARGEST_SCALE:
        with pytest.raises(CalibrationFailed, match="raise epsilon"):
            excess([dim], [mu])
        return
    grid = Grid.of(sensitivity, mu, dim)
    steps = grid.sigma / grid.step
    assert FEWEST_STEPS * math.sqrt(2.0) <= steps <= LARGEST_SCALE
    assert (sensitivity + math.sqrt(dim) * grid.step) / grid.sigma <= mu
    if mu > 1e-6 * math.sqrt(dim):
        assert grid.sigma <= sensitivity / mu * (1 + 2.0**-15)
    assert excess([dim], [mu]) < 1e-16 * dim


def test_a_grid_times_a_factor_is_no_coarser_than_it_should_be():
    grid = Grid.of(1.0, 0.1, 5)
    for factor in (0.3, 1.0, 7.0, 1e-9):
        scaled = grid.scaled(factor)
        assert scaled.sigma == grid.sigma * factor
        assert scaled.step <= grid.step * factor < 2 * scaled.step


def gap(noise, d, random):
    """Computed and rounded sums of neighbours, as the release sees them, in units of its deviation."""
    vectors = random.normal(size=(40, d))
    vectors *= 1.7 / np.linalg.norm(vectors, axis=1)[:, None]
    other = vectors.copy()
    other[0] = -vectors[0] if noise.neighbours.count_is_public else 0.0
    return vectors, other


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_neighbouring_sums_move_by_at_most_mu(adjacency, monkeypatch):
    """Noise is switched off, the deviations it would have are kept: the shift is what was asked for."""
    scales = []

    def silent(random, steps, size):
        scales.append(steps)
        return np.zeros(size)

    monkeypatch.setattr(noise_module.randomness, "discrete_gaussian", silent)
    noise, random = GaussianNoise(np.random.default_rng(0), Neighbours(adjacency)), np.random.default_rng(1)
    for mu in (0.03, 0.7):
        vectors, other = gap(noise, 6, random)
        step = Grid.of((noise.neighbours.sum_factor + SUM_SLACK) * 1.7, mu, 6).step
        sums = [noise.gradient(v.sum(axis=0), 1.7, mu) for v in (vectors, other)]
        shift = np.linalg.norm(sums[0] - sums[1]) / (scales[-1] * step)
        assert 0.99 * mu < shift <= mu
        step = Grid.of((noise.neighbours.gram_factor + SUM_SLACK) * 1.7**2, mu, 36).step
        grams = [noise.gram(v.T @ v, 1.7, mu) for v in (vectors, other)]
        diagonal, off = scales[-1] * step, scales[-2] * step
        assert diagonal == pytest.approx(math.sqrt(2.0) * off, rel=1e-9)
        assert np.linalg.norm(grams[0] - grams[1]) / diagonal <= mu
        moved = np.array([1.0, 0.0]), np.array([0.0, 1.0]) if adjacency == "replace" else np.zeros(2)
        step = Grid.of(noise.neighbours.histogram_factor, mu, 2).step
        counts = [noise.counts(c, mu) for c in moved]
        shift = np.linalg.norm(counts[0] - counts[1]) / (scales[-1] * step)
        assert 0.999 * mu < shift <= mu


def test_noise_has_the_stated_deviations():
    noise = GaussianNoise(np.random.default_rng(0), Neighbours("add_remove"))
    draws = np.stack([noise.gram(np.eye(3), 2.0, 0.5) for _ in range(4000)]) - np.eye(3)
    scale = 4.0 * (1 + SUM_SLACK) / 0.5
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    np.testing.assert_allclose(draws[:, range(3), range(3)].std(axis=0), scale, rtol=0.05)
    np.testing.assert_allclose(draws[:, 0, 1:].std(axis=0), scale / math.sqrt(2), rtol=0.05)
    assert abs(np.corrcoef(draws[:, 0, 1], draws[:, 0, 2])[0, 1]) < 0.06
    totals = np.stack([noise.gradient(np.ones(2), 3.0, 0.1) for _ in range(4000)]) - 1.0
    assert stats.kstest(totals.ravel() / gradient_scale(3.0, 0.1, noise.neighbours), "norm").pvalue > 1e-5
    wide = np.stack([noise.gradient(np.ones(2), 3.0, 0.1, slack=1.0) for _ in range(2000)])
    assert wide.std() == pytest.approx(60.0, rel=0.06)


def test_a_private_count_is_at_least_its_noise_and_a_public_one_exact():
    X, y = table(3)
    for adjacency, least in (("replace", 3.0), ("add_remove", 10.0)):
        rows = ArrayRows(X, y, Domain(adjacency=adjacency))
        noise = GaussianNoise(np.random.default_rng(0), Neighbours(adjacency))
        counts = {noise.count(rows, 0.1) for _ in range(50)}
        assert min(counts) == least
        assert (len(counts) == 1) == (adjacency == "replace")


def test_discreteness_is_paid_out_of_delta():
    profile = gaussian_profile(Budget(0.5, 1e-9), [1, 100, 10_000], [0.1, 0.3, 0.6])
    assert 0 < profile.excess < 1e-14
    assert hockey_stick(0.5, profile.mu) + profile.excess <= 1e-9 < hockey_stick(0.5, 1.0001 * profile.mu)
    assert profile.excess >= excess([1, 100, 10_000], [profile.mu * math.sqrt(s) for s in (0.1, 0.3, 0.6)])
    with pytest.raises(CalibrationFailed, match="delta"):
        gaussian_profile(Budget(0.5, 1e-16), [10**6], [1.0])
    assert excess([3, 5], [0.2, 0.0]) == excess([3], [0.2])
