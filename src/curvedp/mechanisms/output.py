"""Output perturbation: solve a strongly convex problem, add Gaussian noise to the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.budget import Budget
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.solved import LEAST_ETA, RELATIVE_ETA, RareDraws, SolvedPlan
from curvedp.privacy import parameters as public
from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile, count_shift, rare_cap
from curvedp.problem import Problem
from curvedp.randomness import STEPS_PER_SIGMA
from curvedp.solvers import Perturbation
from curvedp.solvers.accuracy import NoiseBounds


@dataclass(frozen=True)
class OutputPerturbation:
    """argmin_C J(θ) + (Λ/2)‖θ‖² plus N(0, ((Δ_θ + 2η)/μ)²I), Δ_θ = ζ/Λ (add_remove) or 2ζ/Λ (replace).

    Needs a gradient bound ζ: a loss with bounded gradients, or a bounded constraint.

    Parameters
    ----------
    weight : float, optional
        Λ, by default the one at which the noise is a quarter as long as `radius` (a larger Λ shrinks more, a
        smaller one drowns the answer).
    radius : float, default=1.0
        A public guess of ‖θ*‖.

    Examples
    --------
    >>> from curvedp import Budget, Problem
    >>> from curvedp.losses import Logistic
    >>> from curvedp.mechanisms import OutputPerturbation
    >>> OutputPerturbation().plan(Problem(Logistic()), 5, Budget(1.0, 1e-6)).guarantee.mechanism
    'output'
    """

    weight: float | None = None
    radius: float = 1.0
    name = "output"

    def plan(self, problem: Problem, d: int, budget: Budget) -> OutputPlan:
        """Calibrate (Λ, σ) from public constants alone."""
        zeta = problem.gradient_bound(d)
        if not math.isfinite(zeta):
            raise NotCovered(
                f"output perturbation needs bounded gradients and {problem.loss.name} loss has none on this "
                "constraint: choose the mechanism recentered or qop, or a bounded constraint"
            )
        for name, value in (("radius", self.radius), ("weight", self.weight)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(f"{name} must be a positive number, got {value!r}")
        center = np.zeros((d, problem.loss.n_outputs))
        neighbours = problem.domain.neighbours
        # The discreteness of the noise is paid out of δ before μ is chosen; it grows with μ.
        largest = calibrate_mu(budget.epsilon, budget.delta)
        excess = discrete_gaussian_excess(largest, d=center.size, steps_per_sigma=STEPS_PER_SIGMA)
        mu_count, cap = 0.0, math.inf
        if not neighbours.count_is_public:
            rare = RareDraws.of(budget, neighbours).delta
            mu_count, excess = count_shift(budget.epsilon, budget.delta), excess + rare
            cap = rare_cap(budget.epsilon, rare)
        mu = calibrate_mu(budget.epsilon, budget.delta - excess)
        mu_output = math.sqrt((mu - mu_count) * (mu + mu_count)) * (1 - 1e-14)
        Lambda = self.weight
        if Lambda is None:
            Lambda = 4.0 * neighbours.sum_factor * zeta * math.sqrt(center.size) / (mu_output * self.radius)
        sensitivity = neighbours.sum_factor * zeta / Lambda
        return OutputPlan(
            problem,
            d,
            budget,
            center=center,
            least_eta=RELATIVE_ETA * max(sensitivity, self.radius),
            ratio=2.0 / mu_output * (1 + 1e-12),
            base_sigma=sensitivity / mu_output * (1 + 1e-12),
            mu_count=mu_count,
            Lambda=Lambda,
            zeta=zeta,
            profile=GaussianProfile(mu, excess, cap),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputPlan(SolvedPlan):
    """The ridge Λ and the gradient bound ζ: one record moves the exact minimiser by at most σ_0·μ."""

    Lambda: float
    zeta: float
    profile: GaussianProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "output",
            "gaussian",
            "Peers (output perturbation)",
            self.profile,
            public.LAMBDA(self.Lambda),
            public.ZETA(self.zeta),
            LEAST_ETA(self.least_eta),
            public.SIGMA(self.base_sigma + self.ratio * self.least_eta),
            public.MU(self.profile.mu),
            *([public.MU_COUNT(self.mu_count)] if self.mu_count > 0 else []),
        )

    @property
    def noise_bounds(self) -> NoiseBounds:
        return NoiseBounds(self.Lambda, 1.01 * self.center.size * self.Lambda, 0.0)

    def perturbation(self, random: np.random.Generator) -> Perturbation:
        return Perturbation(self.center, self.center, self.Lambda * np.eye(self.center.size))
