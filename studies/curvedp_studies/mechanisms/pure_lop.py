"""Linear Objective Perturbation with pure ε-differential privacy: noise with an exponential tail."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import NotCertified, NotCovered
from curvedp.mechanisms.base import RELATIVE_ETA, Estimate, FitPlan
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee, Parameter
from curvedp.privacy.profiles import PureProfile
from curvedp.problems import Problem
from curvedp.solvers.glm import Objective, Perturbation, solve
from curvedp_studies.mechanisms import vocabulary

LENGTH = Parameter("scale", "Δ_a/ε'", "scale of the length of the linear noise a", is_noise=True)


@dataclass(frozen=True, eq=False)
class PureLOP:
    """ε-DP (δ = 0) in exact arithmetic: a of density ∝ exp(−ε'‖a‖/Δ_a), ε' = ε − log(1+L/Δ) − ε''.

    Δ_a = 2ζ (replace) or ζ (add_remove). The share ε'' pays for the solver's error: output noise of
    density ∝ exp(−ε''‖b‖/(2η)).

    For studies: a and b are doubles, and their sum with a solution that depends on the records lies on no
    public grid, so that bits of it can be impossible for a neighbour: the guarantee says `private=False`.
    """

    radius: float = 1.0
    output_share: float = 0.01
    name = "pure_lop"

    def plan(self, problem: Problem, d: int, budget: Budget) -> PureLOPPlan:
        """Split ε between the curvature Δ and the noise a; the δ of the budget is not used."""
        if problem.loss.n_outputs != 1:
            raise NotCovered("PureLOP covers losses with one output only; use Recentered for multinomial")
        zeta = problem.gradient_bound(d)
        if not math.isfinite(zeta):
            raise NotCovered("PureLOP needs bounded gradients; pass a bounded constraint such as Box(1.0)")
        if not all(1e-3 <= bound <= 1e3 for bound in (problem.domain.x_norm, problem.domain.y_bound)):
            raise NotCovered(
                "PureLOP solves to a fixed accuracy: pass a Domain with x_norm and y_bound from 1e-3 to 1e3"
            )
        sensitivity = problem.domain.neighbours.sum_factor * zeta
        L = problem.smoothness(d)
        spent = budget.epsilon * (1 - self.output_share)

        def excess_risk(log_share: float) -> float:
            """E‖a‖²/(2Δ) + (Δ/2)radius², E‖a‖² = d(d+1)(Δ_a/ε')²; share = log(1+L/Δ)/spent."""
            epsilon_a, Delta = _split(spent, math.exp(log_share), L)
            return d * (d + 1) * (sensitivity / epsilon_a) ** 2 / (2 * Delta) + Delta * self.radius**2 / 2

        best = optimize.minimize_scalar(
            excess_risk, bounds=(math.log(1e-4), math.log(0.99)), method="bounded"
        )
        epsilon_a, Delta = _split(spent, math.exp(best.x), L)
        return PureLOPPlan(
            problem,
            d,
            Budget(budget.epsilon),
            Delta=Delta,
            scale=sensitivity / epsilon_a,
            eta=RELATIVE_ETA * self.radius,
            epsilon_output=budget.epsilon * self.output_share,
        )


def _split(spent: float, share: float, L: float) -> tuple[float, float]:
    """(ε', Δ) with log(1+L/Δ) = share·spent, Δ rounded up."""
    Delta = L / math.expm1(share * spent) * (1 + 1e-12)
    return spent - math.log1p(L / Delta), Delta


@dataclass(frozen=True, eq=False)
class PureLOPPlan(FitPlan):
    """The pure-ε linear perturbation for one problem and dimension."""

    Delta: float
    scale: float
    eta: float
    epsilon_output: float

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "pure_lop",
            "pure",
            "Peers (pure-ε LOP)",
            PureProfile(self.budget.epsilon),
            vocabulary.DELTA_CURVATURE(self.Delta),
            LENGTH(self.scale),
            vocabulary.ETA(self.eta),
            private=False,
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        a = gamma_norm(random, self.d, self.scale)[:, None]
        perturbation = Perturbation(np.zeros((self.d, 1)), a, self.Delta * np.eye(self.d))
        solution = solve(Objective(self.problem, rows, perturbation), self.eta)
        if not solution.distance <= self.eta:
            raise NotCertified("the solver's certificate exceeds the accounted eta; nothing is released")
        b = gamma_norm(random, self.d, 2 * self.eta / self.epsilon_output)[:, None]
        return Estimate(self.problem.constraint.project(solution.theta + b))


def gamma_norm(random: np.random.Generator, d: int, scale: float) -> FloatArray:
    """A vector of density ∝ exp(−‖b‖/scale) in R^d: ‖b‖ ~ Gamma(d, scale), direction uniform."""
    direction = random.standard_normal(d)
    return np.asarray(random.gamma(d, scale) * direction / np.linalg.norm(direction))
