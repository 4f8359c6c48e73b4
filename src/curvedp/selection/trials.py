"""Candidates of any kind: a random number of private trials, the best of which leaves (T-1).

A trial draws a candidate at random, fits it, and scores it by one Gaussian release on the same rows. How many
trials there were, and what the others gave, never leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.losses import Loss, spread_targets
from curvedp.mechanisms.base import Estimate, Mechanism, make_plan
from curvedp.mechanisms.noise import GaussianNoise, excess
from curvedp.plans import Plan, room_of
from curvedp.privacy.composition import TRIALS_AT_MOST, PoissonSelection, trials, with_gaussian, worst
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameters, Symbol
from curvedp.privacy.search import largest, log_excess
from curvedp.problem import Problem
from curvedp.progress import heard
from curvedp.rows.base import Layout, Rows
from curvedp.rows.blocked import SummedRows
from curvedp.rows.compared import improvement_slack, improvement_sum
from curvedp.selection.refits import MU_SCORES, Choice, require_blocks

SHARE = 0.10  # of the shift's square that a trial allows: its score
MEAN = Symbol("mean_trials", "m", "mean of the Poisson number of trials")
TRIAL_EPSILON = Symbol("trial_epsilon", "ε_Q", "ε of the fit in one trial")


@dataclass(frozen=True, eq=False)
class TrialsPlan:
    """The best of Poisson(mean) trials of random candidates; θ = 0, projected onto C, where there is none."""

    plans: tuple[Plan[Rows, Estimate], ...]
    problem: Problem  # its loss scores, its constraint makes the public answer
    d: int
    budget: Budget
    mean: float
    mu_scores: float
    trial_epsilon: float

    @property
    def layout(self) -> Layout:
        return Layout.of(self.problem, self.d)

    @property
    def room(self) -> float:
        return room_of(self.plans)

    @cached_property
    def profile(self) -> PoissonSelection:
        extra, beyond = excess([1], [self.mu_scores]), self.budget.epsilon - self.trial_epsilon
        curves = [with_gaussian(plan.guarantee.profile, self.mu_scores, extra, beyond) for plan in self.plans]
        return PoissonSelection(worst(curves), self.mean, self.budget.epsilon)

    @cached_property
    def guarantee(self) -> Guarantee:
        parts = [plan.guarantee for plan in self.plans]
        return Guarantee(
            budget=self.budget,
            neighbours=self.problem.domain.neighbours,
            mechanism=f"search over {len(parts)}: {', '.join(dict.fromkeys(g.mechanism for g in parts))}",
            accounting="selection",
            theorem=f"(T-1) with {', '.join(dict.fromkeys(g.theorem for g in parts))}",
            parameters=Parameters(
                MEAN(self.mean), TRIAL_EPSILON(self.trial_epsilon), MU_SCORES(self.mu_scores)
            ),
            profile=self.profile,
            private=all(g.private for g in parts),
        )

    def accept(self, rows: Rows) -> None:
        for plan in self.plans:
            plan.accept(rows)
        require_blocks(rows)

    def release(self, rows: Rows, random: np.random.Generator) -> Choice:
        with heard(None):  # who counts rounds counts trials
            return self._best(rows, random)

    def _best(self, rows: Rows, random: np.random.Generator) -> Choice:
        best, highest = self.public_answer, -math.inf
        for _ in range(trials(random, self.mean)):
            index = int(random.integers(len(self.plans)))
            estimate = self.plans[index].release(rows, random)
            score = self._score(rows, estimate, random)
            if score > highest:  # trials are alike in law: the first of equal scores is a random one of them
                best, highest = Choice(index, estimate), score
        return best

    @property
    def public_answer(self) -> Choice:
        """θ = 0, projected onto C."""
        zero = np.zeros((self.d, self.problem.loss.n_outputs))
        return Choice(None, Estimate(self.problem.constraint.project(zero)))

    def _score(self, rows: Rows, estimate: Estimate, random: np.random.Generator) -> float:
        """Σ clip_c(φ(0) − φ(θ)) with noise, c the largest φ(0): a sum of numbers in [−c, c]."""
        assert isinstance(rows, SummedRows)
        loss, domain = self.problem.loss, self.problem.domain
        theta, clip, one = estimate.theta, largest_at_zero(self.problem), np.ones(1)
        slack = improvement_slack(domain, loss, [theta], one, clip)
        total = improvement_sum(rows, loss, np.zeros_like(theta), [theta], one, clip)
        noise = GaussianNoise(random, domain.neighbours)
        return float(noise.gradient(total, clip, self.mu_scores, slack, "score")[0])


def largest_at_zero(problem: Problem) -> float:
    """max_y φ(0; y)."""
    loss: Loss = problem.loss
    targets = spread_targets(loss, problem.domain)
    return float(np.max(loss.value(np.zeros((len(targets), loss.n_outputs)), targets)))


def plan_trials(
    mechanisms: Sequence[Mechanism], problems: Sequence[Problem], d: int, budget: Budget, mean: float
) -> TrialsPlan:
    """The plan whose trials have the largest ε that (T-1) allows."""
    if not 0 < mean <= TRIALS_AT_MOST:
        raise InvalidInput(
            f"the mean number of trials must be a positive number up to {TRIALS_AT_MOST}, got {mean!r}: more "
            "would leave each of them nothing of the budget"
        )
    if not budget.delta > 0:
        raise InvalidInput("a search with trials needs delta > 0")
    if len({problem.domain for problem in problems}) > 1:
        raise InvalidInput("candidates must read the same rows: leave what maps columns out of the grid")
    delta = budget.delta / (2.0 * max(mean, 1.0))

    def at(epsilon: float, several: int) -> TrialsPlan:
        part = Budget(epsilon, delta)
        plans = tuple(
            make_plan(mechanism, problem, d, part)
            for mechanism, problem in zip(mechanisms[:several], problems[:several], strict=True)
        )
        mu_scores = calibrate_mu(epsilon, delta) * math.sqrt(SHARE)
        return TrialsPlan(plans, problems[0], d, budget, mean, mu_scores, epsilon)

    epsilon = largest(
        lambda epsilon: log_excess(at(epsilon, 1).profile, budget.epsilon, budget.delta),
        budget.epsilon / (100.0 * (1.0 + mean)),
        budget.epsilon,
        start=budget.epsilon / (2.0 + 0.1 * mean),
        what="noise of a search",
    )
    made = at(epsilon, len(problems))
    while log_excess(made.profile, budget.epsilon, budget.delta) > 0:  # another candidate costs more
        epsilon *= 0.97
        made = at(epsilon, len(problems))
    return made
