"""Attacks on all that the accounting of the inference plan sees, by its likelihood ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from tests.privacy.replay import log_ratio

from curvedp import Budget, Domain
from curvedp.audit.gaussian_releases import attack
from curvedp.losses import Squared
from curvedp.mechanisms import inference
from curvedp.mechanisms.inference import InferencePlan, RecenteredInference
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.rows import DenseRows
from curvedp.rows.base import Layout, Rows

BUDGET = Budget(1.0, 0.1)  # a large δ: the events that decide are common, few releases show them
RULE = Rule(rounds=2, first_rounds=1)


@cache
def plan_for(adjacency: str) -> InferencePlan:
    problem = Problem(Squared(), domain=Domain(2.0**0.5, 1.0, adjacency))
    return RecenteredInference(rule=RULE).plan(problem, 2, BUDGET)


def pair(adjacency: str) -> tuple[Rows, Rows]:
    """Few records, and one whose gradient is clipped wherever the walk may stand: it moves every sum most."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.uniform(-0.3, 0.3, 12), np.full(12, 0.2)])
    y, domain = random.uniform(-0.2, 0.2, 12), plan_for(adjacency).problem.domain

    def plus(angle: float) -> Rows:
        x = domain.x_norm * np.array([math.cos(angle), math.sin(angle)])
        return DenseRows(np.vstack([X, x]), np.append(y, 1.0), domain)

    if adjacency == "replace":  # between opposite, which matrices do not see, and orthogonal
        return plus(0.0), plus(2.0 * math.pi / 3.0)
    return DenseRows(X, y, domain), plus(math.pi / 4.0)


@dataclass(frozen=True, eq=False)
class Accounted:
    """The transcript of a plan, shown as its log-likelihood ratio between two tables."""

    plan: InferencePlan
    tables: tuple[Rows, Rows]

    @property
    def guarantee(self) -> Guarantee:
        return self.plan.guarantee

    @property
    def layout(self) -> Layout:
        return self.plan.layout

    def accept(self, rows: Rows) -> None: ...

    def release(self, rows: Rows, random: np.random.Generator) -> float:
        """log p(·|first table) − log p(·|second table) of what a release from `rows` shows."""
        first, second = self.tables
        other, sign = (second, 1.0) if rows is first else (first, -1.0)
        ratio = log_ratio(self.plan, rows, other, pytest.MonkeyPatch(), random, self.plan.walk.parameters.m)
        return float(np.clip(sign * ratio, -50.0, 50.0))


def proved(plan: InferencePlan, adjacency: str, fits: int) -> float:
    tables = pair(adjacency)
    return attack(Accounted(plan, tables), *tables, float, fits=fits, seed=2)


def uncounted_final(plan: InferencePlan, times: float) -> InferencePlan:
    """The last gradient has a shift of so many μ, which Σ μ_j² does not know."""
    return replace(plan, looks=replace(plan.looks, final=times * plan.walk.parameters.mu))


def small_second(plan: InferencePlan, times: float, patch: pytest.MonkeyPatch) -> InferencePlan:
    """The second curvature has noise for a fraction 1/times of what a record may add."""
    plan = replace(plan, looks=replace(plan.looks, bread=plan.looks.bread * (1 - 1e-6)))  # told apart
    gram = inference.GaussianNoise.gram

    def smaller(noise, total, x_norm, mu, *slack):
        return gram(noise, total, x_norm * (times**-0.5 if mu == plan.looks.second else 1.0), mu, *slack)

    patch.setattr(inference.GaussianNoise, "gram", smaller)
    return plan


def test_planted_bugs_are_refuted_and_the_sound_plan_is_not(monkeypatch):
    plan = plan_for("add_remove")
    assert proved(plan, "add_remove", 600) <= BUDGET.epsilon
    planted = uncounted_final(plan, 4.0)
    assert planted.guarantee.epsilon == BUDGET.epsilon
    assert proved(planted, "add_remove", 600) > BUDGET.epsilon
    assert proved(small_second(plan, 25.0, monkeypatch), "add_remove", 600) > BUDGET.epsilon


@pytest.mark.full
@pytest.mark.parametrize(("adjacency", "at_least"), [("add_remove", 0.4), ("replace", 0.0)])
def test_the_best_attack_stays_below_and_comes_close(adjacency, at_least):
    """Under `replace` no pair is extreme for all sums at once: this one shows about half of μ²."""
    assert at_least <= proved(plan_for(adjacency), adjacency, 20_000) <= BUDGET.epsilon


@pytest.mark.full
def test_smaller_bugs_are_refuted_by_more_fits(monkeypatch):
    plan = plan_for("add_remove")
    assert proved(uncounted_final(plan, 1.5), "add_remove", 10_000) > BUDGET.epsilon
    assert proved(small_second(plan, 6.0, monkeypatch), "add_remove", 10_000) > BUDGET.epsilon
