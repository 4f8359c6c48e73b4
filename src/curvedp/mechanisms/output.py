"""Output perturbation: solve a strongly convex problem, add Gaussian noise to the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.output_noise import RELATIVE_ETA, OutputNoise
from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.randomness import STEPS_PER_SIGMA
from curvedp.rows.base import Rows
from curvedp.solvers import Objective, Perturbation


@dataclass(frozen=True)
class OutputPerturbation:
    """argmin_C J(θ) + (Λ/2)‖θ‖² plus N(0, ((Δ_θ + 2η)/μ)²I), Δ_θ = ζ/Λ (add_remove) or 2ζ/Λ (replace).

    Needs a gradient bound ζ: a loss with bounded gradients, or a bounded constraint. `weight` is Λ, by
    default the one at which the noise is a quarter as long as `radius`, a public guess of ‖θ*‖ (a larger Λ
    shrinks more, a smaller one drowns the answer).
    """

    epsilon: float
    delta: float
    weight: float | None = None
    radius: float = 1.0

    def plan(self, problem: Problem, d: int) -> OutputPlan:
        zeta = problem.gradient_bound(d)
        if not math.isfinite(zeta):
            raise NotCovered(
                f"output perturbation needs bounded gradients and {problem.loss.name} loss has none on this "
                "constraint; pass a bounded constraint such as L2Ball(1.0), or use Recentered or QOP"
            )
        for name, value in (("radius", self.radius), ("weight", self.weight)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(f"{name} must be a positive number, got {value!r}")
        size = d * problem.loss.n_outputs
        # The discreteness of the noise is paid out of δ before μ is chosen; it grows with μ.
        largest = calibrate_mu(self.epsilon, self.delta)
        excess = discrete_gaussian_excess(largest, d=size, steps_per_sigma=STEPS_PER_SIGMA)
        mu = calibrate_mu(self.epsilon, self.delta - excess)
        records = 2.0 if problem.domain.adjacency == "replace" else 1.0
        Lambda = self.weight
        if Lambda is None:
            Lambda = 4.0 * records * zeta * math.sqrt(size) / (mu * self.radius)
        eta = RELATIVE_ETA * max(records * zeta / Lambda, self.radius)
        sigma = (records * zeta / Lambda + 2.0 * eta) / mu * (1 + 1e-12)
        profile = GaussianProfile(mu, excess)
        return OutputPlan(problem, d, self.epsilon, self.delta, Lambda, zeta, eta, sigma, profile)


@dataclass(frozen=True, eq=False)
class OutputPlan:
    """Λ, ζ, the accounted solver error η and the output noise σ."""

    problem: Problem
    d: int
    epsilon: float
    delta: float
    Lambda: float
    zeta: float
    eta: float
    sigma: float
    profile: GaussianProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        public: dict[str, Any] = {
            "Lambda": self.Lambda,
            "zeta": self.zeta,
            "eta": self.eta,
            "sigma": self.sigma,
            "mu": self.profile.mu,
            "zcdp_rho": self.profile.zcdp_rho,
        }
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.problem.domain.adjacency,
            mechanism="output",
            accounting="gaussian",
            theorem="Peers (output perturbation)",
            parameters=public,
            profile=self.profile,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        zero = np.zeros((self.d, self.problem.loss.n_outputs))
        ridge = Perturbation(zero, zero, self.Lambda * np.eye(zero.size))
        noise = OutputNoise(self.eta, self.sigma)
        theta = noise.release(Objective(self.problem, rows, ridge), generator)
        return Release(theta, self.guarantee)
