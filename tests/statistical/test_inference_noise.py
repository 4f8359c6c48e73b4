"""Many fits: the stated noise is the noise, the stated intervals cover, and planted bugs show."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from curvedp import randomness
from curvedp.data.mapping import Coding
from curvedp.data.rows import ArrayRows
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared


def plan_for(d, epsilon, adjacency, rounds):
    problem = Problem(Squared(), domain=Domain(math.sqrt(d), 1.0, adjacency))
    rule = Rule(rounds=rounds, first_rounds=rounds // 4)
    coding = Coding((0.0,) * d, (), d - 1)
    return Recentered(rule, coding, inference=True).plan(problem, d, Budget(epsilon, 1e-6))


# --- the noise of a fixed table -------------------------------------------------------------------

REFITS = 120


@cache
def refits(adjacency):
    """(errors, stated noise) of refits of one table. All gradients are of one length: a clip spares them.

    Signs in the columns, signs as residuals; the exact minimiser is that of least squares.
    """
    random = np.random.default_rng(0)
    X = np.column_stack([random.choice([-1.0, 1.0], (4000, 3)), np.ones(4000)])
    y = X @ np.array([-0.2, -0.07, 0.07, 0.2]) + 0.2 * random.choice([-1.0, 1.0], 4000)
    plan = plan_for(4, 3.0, adjacency, rounds=16)
    rows, best = ArrayRows(X, y, plan.problem.domain), np.linalg.lstsq(X, y, rcond=None)[0]
    stated = [
        plan.release(rows, randomness.generator(seed)).inference.of(np.eye(4)) for seed in range(REFITS)
    ]
    assert np.mean([f.resolved for f in stated]) > 0.98
    return np.array([f.estimate - best for f in stated]), np.array([f.noise for f in stated])


def pooled_is_one(errors, noise):
    """Whether the root mean square of the z-scores is 1, up to a fifth."""
    return 0.8 <= math.sqrt(np.mean((errors / noise) ** 2)) <= 1.25


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_errors_of_refits_are_as_large_as_the_stated_noise(adjacency):
    errors, noise = refits(adjacency)
    assert pooled_is_one(errors, noise)
    for j in range(4):  # and every coefficient alone
        assert pooled_is_one(errors[:, j], noise[:, j])
    assert np.abs(errors.mean(axis=0) / noise.mean(axis=0)).max() < 4.0 / math.sqrt(REFITS)  # no bias


def test_half_of_the_stated_noise_is_refuted():
    errors, noise = refits("add_remove")
    assert not pooled_is_one(errors, noise / 2.0)
    assert not pooled_is_one(errors, noise * 1.5)


# --- coverage -------------------------------------------------------------------------------------


def gaussian_table(n, d, random):
    """A sample of a population: d normal columns and a constant, normal errors."""
    X = np.column_stack([np.clip(random.standard_normal((n, d)) / 4.0, -1, 1), np.ones(n)])
    theta = np.append(np.linspace(-0.3, 0.3, d), 0.05)
    return X, np.clip(X @ theta + 0.15 * random.standard_normal(n), -1, 1), theta


def covered(d, n, epsilon, adjacency, runs, rounds):
    """Which of the intervals hold the population's coefficients; as stated, and with bugs planted."""
    plan = plan_for(d + 1, epsilon, adjacency, rounds)
    sound, planted, refused = [], [], []
    for seed in range(runs):
        X, y, theta = gaussian_table(n, d, np.random.default_rng(seed))
        rows = ArrayRows(X, y, plan.problem.domain)
        found = plan.release(rows, randomness.generator(seed)).inference
        stated = found.of(np.eye(d + 1))
        far = np.abs(stated.estimate - theta)
        quiet = {"noise": found.noise / 2.0, "beyond_scale": found.beyond_scale / 10.0}
        halved = replace(found, meat=0.25 * found.meat, **quiet).of(np.eye(d + 1))
        sound.append(np.where(stated.resolved, far <= stated.half_width(0.95), np.nan))
        planted.append(np.where(stated.resolved, far <= 1.96 * halved.se, np.nan))
        refused.append(~stated.resolved)
    return np.array(sound), np.array(planted), float(np.mean(refused))


def inside(hits, low, high):
    """Whether the mean coverage is in [low, high], two standard deviations of independent runs allowed."""
    mean, runs = float(np.nanmean(hits)), len(hits)
    slack = [2.0 * math.sqrt(p * (1 - p) / (2.0 * runs)) for p in (low, high)]  # two independent ones a run
    return low - slack[0] <= mean <= high + slack[1]


def test_intervals_cover_and_a_planted_bug_does_not():
    """The bug: half of every deviation, and a clip that is thought to be known."""
    sound, planted, refused = covered(d=3, n=3000, epsilon=1.0, adjacency="add_remove", runs=150, rounds=32)
    assert inside(sound, 0.93, 0.985)
    assert refused <= 0.1
    assert not inside(planted, 0.93, 0.985)


@pytest.mark.full
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_cell_of_the_study_covers(adjacency, epsilon):
    """gaussian, d = 10, n = 5000, 400 runs with the default rounds: every coefficient, not the mean alone."""
    sound, planted, refused = covered(10, 5000, epsilon, adjacency, runs=400, rounds=Rule().rounds)
    assert inside(sound, 0.93, 0.985)
    assert np.nanmean(sound, axis=0).min() >= 0.9
    assert refused <= 0.1
    assert np.nanmean(planted) < np.nanmean(sound) - 0.02
