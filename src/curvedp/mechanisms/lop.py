"""Linear Objective Perturbation: LOP, LOP-Clip, approximate minima (AMP) and the pure-ε form (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import optimize

from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput, NotCertified, NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.output_noise import RELATIVE_ETA, OutputNoise
from curvedp.mechanisms.qop import centered
from curvedp.privacy.calibrate_linear import LOPParameters, calibrate_lop
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import PureProfile
from curvedp.problem import Problem
from curvedp.rows.base import Rows
from curvedp.solvers import Objective, Perturbation, solve


@dataclass(frozen=True, eq=False)
class LOP:
    """θ_priv = argmin_C J(θ) + (Δ/2)‖θ−θ_c‖² + aᵀ(θ−θ_c), a ~ N(0, σ²I), released with output noise (P-8).

    Needs a gradient bound ζ: a loss with bounded gradients, or a bounded constraint. `accounting`
    "auto" and "directional" use (P-8); "paper" the constants of Kifer et al., for add_remove only.
    """

    epsilon: float
    delta: float
    accounting: Literal["auto", "paper", "directional"] = "auto"
    radius: float = 1.0
    center: FloatArray | float = 0.0
    eta: float | None = None
    exact: bool = False

    def plan(self, problem: Problem, d: int) -> LOPPlan:
        return self._plan(problem, d, problem.gradient_bound(d), None)

    def _plan(self, problem: Problem, d: int, zeta: float, clip: float | None) -> LOPPlan:
        require_glm(problem, "LOP")
        if not math.isfinite(zeta):
            raise NotCovered(
                f"LOP needs bounded gradients and {problem.loss.name} loss has none on this constraint; "
                "pass a bounded constraint such as Box(1.0), or use LOPClip or QOP"
            )
        center = centered(self.center, d, 1)
        eta = 0.0 if self.exact else (RELATIVE_ETA * self.radius if self.eta is None else self.eta)
        parameters = calibrate_lop(
            self.epsilon,
            self.delta,
            L=problem.smoothness(d, center),
            zeta=zeta,
            d=d,
            radius=self.radius,
            eta=eta,
            adjacency=problem.domain.adjacency,
            accounting=self.accounting,
        )
        return LOPPlan(problem, center, parameters, clip, self.exact)


@dataclass(frozen=True, eq=False)
class LOPClip(LOP):
    """LOP on the Huberised loss, whose gradients are those of ℓ clipped to norm `clip` (section 5)."""

    clip: float = 1.0

    def plan(self, problem: Problem, d: int) -> LOPPlan:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidInput(f"clip must be a positive number, got {self.clip!r}")
        bound = problem.gradient_bound(d)
        plan = self._plan(problem, d, min(self.clip, bound), self.clip if self.clip < bound else None)
        return replace(plan, mechanism="lop_clip")


@dataclass(frozen=True, eq=False)
class AMP(LOP):
    """Approximate minima: LOP solved to ‖∇J_priv‖ ≤ tolerance·Δ·radius only; output noise pays for the slack.

    By strong convexity the slack moves θ by at most η = tolerance·radius: (P-8) composed with that Gaussian.
    """

    tolerance: float = 1e-5

    def plan(self, problem: Problem, d: int) -> LOPPlan:
        loose = replace(self, eta=self.tolerance * self.radius)
        return replace(loose._plan(problem, d, problem.gradient_bound(d), None), mechanism="amp")


@dataclass(frozen=True, eq=False)
class LOPPlan:
    """The calibrated linear perturbation for one problem and dimension."""

    problem: Problem
    center: FloatArray = field(repr=False)
    parameters: LOPParameters
    clip: float | None = None
    exact: bool = False
    mechanism: str = "lop"

    @cached_property
    def guarantee(self) -> Guarantee:
        p = self.parameters
        public: dict[str, Any] = {
            "Delta": p.Delta,
            "sigma": p.sigma,
            "sigma_tilde": p.sigma_tilde,
            "eta": p.eta,
            "L": p.L,
            "zeta": p.zeta,
        }
        return Guarantee(
            epsilon=p.epsilon,
            delta=p.delta,
            adjacency=self.problem.domain.adjacency,
            mechanism=self.mechanism,
            accounting=p.accounting,
            theorem=p.theorem,
            parameters=public,
            profile=p.profile,
            private=not self.exact,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        p = self.parameters
        a = p.sigma * generator.standard_normal(self.center.shape)
        perturbation = Perturbation(self.center, a, p.Delta * np.eye(self.center.size))
        objective = Objective(self.problem, rows, perturbation, self.clip)
        theta = OutputNoise(p.eta, p.sigma_tilde).release(objective, generator)
        return Release(theta, self.guarantee)


@dataclass(frozen=True, eq=False)
class PureLOP:
    """ε-DP (δ = 0): a of density ∝ exp(−ε'‖a‖/Δ_a), ε' = ε − log(1+L/Δ) − ε''.

    Δ_a = 2ζ (replace) or ζ (add_remove). The share ε'' pays for the solver's error: output noise of
    density ∝ exp(−ε''‖b‖/(2η)).
    """

    epsilon: float
    radius: float = 1.0
    center: FloatArray | float = 0.0
    output_share: float = 0.01

    @property
    def delta(self) -> float:
        return 0.0

    def plan(self, problem: Problem, d: int) -> PureLOPPlan:
        require_glm(problem, "PureLOP")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InvalidInput(f"epsilon must be a positive number, got {self.epsilon!r}")
        zeta = problem.gradient_bound(d)
        if not math.isfinite(zeta):
            raise NotCovered("PureLOP needs bounded gradients; pass a bounded constraint such as Box(1.0)")
        sensitivity = 2 * zeta if problem.domain.adjacency == "replace" else zeta
        L = problem.smoothness(d)
        spent = self.epsilon * (1 - self.output_share)

        def excess_risk(log_share: float) -> float:
            """E‖a‖²/(2Δ) + (Δ/2)radius², E‖a‖² = d(d+1)(Δ_a/ε')²; share = log(1+L/Δ)/spent."""
            epsilon_a, Delta = _pure_split(spent, math.exp(log_share), L)
            return d * (d + 1) * (sensitivity / epsilon_a) ** 2 / (2 * Delta) + Delta * self.radius**2 / 2

        best = optimize.minimize_scalar(
            excess_risk, bounds=(math.log(1e-4), math.log(0.99)), method="bounded"
        )
        epsilon_a, Delta = _pure_split(spent, math.exp(best.x), L)
        return PureLOPPlan(
            problem=problem,
            center=centered(self.center, d, 1),
            epsilon=self.epsilon,
            Delta=Delta,
            scale=sensitivity / epsilon_a,
            eta=RELATIVE_ETA * self.radius,
            epsilon_output=self.epsilon * self.output_share,
        )


def _pure_split(spent: float, share: float, L: float) -> tuple[float, float]:
    """(ε', Δ) with log(1+L/Δ) = share·spent, Δ rounded up."""
    Delta = L / math.expm1(share * spent) * (1 + 1e-12)
    return spent - math.log1p(L / Delta), Delta


@dataclass(frozen=True, eq=False)
class PureLOPPlan:
    """The pure-ε linear perturbation for one problem and dimension."""

    problem: Problem
    center: FloatArray = field(repr=False)
    epsilon: float
    Delta: float
    scale: float
    eta: float
    epsilon_output: float

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            epsilon=self.epsilon,
            delta=0.0,
            adjacency=self.problem.domain.adjacency,
            mechanism="pure_lop",
            accounting="pure",
            theorem="Peers (pure-ε LOP)",
            parameters={"Delta": self.Delta, "scale": self.scale, "eta": self.eta},
            profile=PureProfile(self.epsilon),
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        d = self.center.size
        a = gamma_norm(generator, d, self.scale).reshape(self.center.shape)
        perturbation = Perturbation(self.center, a, self.Delta * np.eye(d))
        solution = solve(Objective(self.problem, rows, perturbation), self.eta)
        if not solution.distance <= self.eta:
            raise NotCertified("the solver's certificate exceeds the accounted eta; nothing is released")
        b = gamma_norm(generator, d, 2 * self.eta / self.epsilon_output).reshape(self.center.shape)
        return Release(self.problem.constraint.project(solution.theta + b), self.guarantee)


def gamma_norm(generator: np.random.Generator, d: int, scale: float) -> FloatArray:
    """A vector of density ∝ exp(−‖b‖/scale) in R^d: ‖b‖ ~ Gamma(d, scale), direction uniform."""
    direction = generator.standard_normal(d)
    return np.asarray(generator.gamma(d, scale) * direction / np.linalg.norm(direction))


def require_glm(problem: Problem, name: str) -> None:
    """Refuse losses whose Hessian has rank above one: the determinant bounds of (P-8) are for rank one."""
    if problem.loss.n_outputs != 1:
        raise NotCovered(f"{name} covers losses with one output only; use QOP or Recentered for multinomial")
