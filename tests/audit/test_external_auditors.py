"""An auditor that others wrote, on sampled outcomes: it does not refute what is sound, and finds a bug.

jax-privacy's `CanaryScoreAuditor` (the extra `audit`). A canary is a record that a table has or has not. Its
score is the log-likelihood ratio of everything answered, or what leaves alone.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from curvedp import Budget, Domain, Problem, randomness
from curvedp.auditing import Case, mechanism_case
from curvedp.auditing.totals import replay
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems.losses import Squared
from curvedp_studies.mechanisms.baselines import NoisyGradient

pytestmark = pytest.mark.full

PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))
BUDGET = Budget(1.0, 1e-2)


def proved(case: Case, scores: list[np.ndarray]) -> float:
    """The lower bound of ε at δ that the other auditor finds, at 99 %, from scores of both tables."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        from jax_privacy import auditing
    except ImportError:
        pytest.fail("jax-privacy is not installed: pip install -e '.[audit]'")
    out, into = scores
    found = [
        auditing.CanaryScoreAuditor(*both).epsilon_clopper_pearson(
            significance=0.005, delta=case.plan.guarantee.delta, threshold_strategy=auditing.Split(seed=0)
        )
        for both in ((into, out), (-out, -into))
    ]
    return float(np.max(found))


def ratios(case: Case, n: int) -> list[np.ndarray]:
    """log p₁ − log p₀ of everything that n releases of each table answered."""
    pair, random = case.pairs[0], randomness.generator(1)
    sides = (pair.left, pair.right, -1.0), (pair.right, pair.left, 1.0)
    return [
        np.array([sign * replay(case.release, own, other, random).log_ratio for _ in range(n)])
        for own, other, sign in sides
    ]


def slopes(case: Case, n: int) -> list[np.ndarray]:
    """The first coefficient that n releases of each table give away: what leaves, and nothing else."""
    pair, random = case.pairs[0], randomness.generator(2)
    return [
        np.array([case.plan.release(rows, random).theta[0, 0] for _ in range(n)])
        for rows in (pair.left, pair.right)
    ]


def test_the_default_mechanism_and_a_bug_in_it():
    rule = Rule(rounds=4, first_rounds=2, quick_rounds=4, quick_first_rounds=2)
    case = mechanism_case(Recentered(rule), PROBLEM, 2, BUDGET)
    plan = case.plan
    bug = replace(plan, shifts=replace(plan.shifts, rest=3.0 * plan.shifts.rest))  # a third of its noise
    sound, broken = (ratios(replace(case, plan=one), 1500) for one in (plan, bug))
    assert 0.1 < proved(case, sound) <= BUDGET.epsilon < proved(case, broken)


def test_what_leaves_alone():
    case = mechanism_case(NoisyGradient(rounds=2, average=0.0), PROBLEM, 1, BUDGET)
    bug = replace(case.plan, mu_round=4.0 * case.plan.mu_round)
    sound, broken = (slopes(replace(case, plan=one), 6000) for one in (case.plan, bug))
    assert proved(case, sound) <= BUDGET.epsilon < proved(case, broken)
