"""Auditors that others wrote, run on canary scores of ours: they do not refute what is sound, and find a bug.

jax-privacy's `CanaryScoreAuditor` (the extra `audit`). A canary is a record that a table has or has not; its
score is the log-likelihood ratio of everything released.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from curvedp.audit.accounted import accounted
from curvedp.audit.fits import backend
from curvedp.audit.pairs import worst_pairs
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.losses import Squared
from curvedp.mechanisms import QOP, Recentered
from curvedp.mechanisms.base import make_plan
from curvedp.problem import Problem

pytestmark = pytest.mark.full

PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))
BUDGET = Budget(1.0, 1e-2)


def proved(plan, pair, canaries: int) -> float:
    """The lower bound of ε at δ that the other auditor finds, at 99 %, with so many canaries of each kind."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        from jax_privacy import auditing
    except ImportError:
        pytest.fail("jax-privacy is not installed: pip install -e '.[audit]'")
    source = accounted(plan, pair, backend("cpu"))
    out, into = (source.draw(side, canaries, 11 + side).ratio for side in (0, 1))
    found = [
        auditing.CanaryScoreAuditor(*scores).epsilon_clopper_pearson(
            significance=0.005, delta=plan.guarantee.delta, threshold_strategy=auditing.Split(seed=0)
        )
        for scores in ((into, out), (-out, -into))
    ]
    return float(np.max(found))


def test_the_default_mechanism_and_a_bug_in_it():
    plan = make_plan(Recentered(), PROBLEM, 2, BUDGET)
    bug = replace(plan, shifts=replace(plan.shifts, later=3.0 * plan.shifts.later))  # a third of its noise
    pair = strongest(plan)
    assert 0.3 < proved(plan, pair, 20_000) <= plan.guarantee.epsilon < proved(bug, pair, 20_000)


def test_objective_perturbation_and_a_bug_in_it():
    plan = make_plan(QOP(), PROBLEM, 2, BUDGET)
    p = plan.parameters
    bug = replace(plan, parameters=replace(p, sigma2=p.sigma2 / 4, sigma0=p.sigma0 / 4))
    pair = strongest(plan)
    assert 0.3 < proved(plan, pair, 50_000) <= plan.guarantee.epsilon < proved(bug, pair, 50_000)


def strongest(plan):
    """The pair whose likelihood ratio varies most under D'."""
    pairs = worst_pairs(PROBLEM, 2, plan.pulls())
    spread = [np.std(accounted(plan, p, backend("cpu")).draw(1, 300, 1).ratio) for p in pairs]
    return pairs[int(np.argmax(spread))]
