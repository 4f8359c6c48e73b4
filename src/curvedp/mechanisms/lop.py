"""Linear Objective Perturbation: LOP, LOP-Clip and approximate minima (AMP)  (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.qop import centered
from curvedp.mechanisms.solved import (
    LEAST_ETA,
    LEAST_SIGMA_TILDE,
    RareDraws,
    SolvedPlan,
    accuracy,
)
from curvedp.privacy import paper
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.lop import LOPParameters, calibrate_lop
from curvedp.problem import Problem
from curvedp.rows.base import Rows
from curvedp.solvers import Perturbation
from curvedp.solvers.accuracy import NoiseBounds
from curvedp.transcript import Law, LinearMinimum


@dataclass(frozen=True, eq=False)
class LOP:
    """θ_priv = argmin_C J(θ) + (Δ/2)‖θ−θ_c‖² + aᵀ(θ−θ_c), a ~ N(0, σ²I), released with output noise (P-8).

    Needs a gradient bound ζ: a loss with bounded gradients, or a bounded constraint.

    Parameters
    ----------
    accounting : {"auto", "directional", "paper"}, default="auto"
        "auto" and "directional" use (P-8); "paper" the constants of Kifer et al., for add_remove only.
    radius : float, default=1.0
        A public guess of ‖θ* − θ_c‖; it only steers the calibration.
    center : float or array, default=0.0
        θ_c, a number or an array of the shape of θ.
    eta : float, optional
        The least solver error that is accounted, by default 1e-6·radius; more where rounding needs it.
    exact : bool, default=False
        A study mode: no output noise, and a guarantee that says private=False.

    Examples
    --------
    >>> from curvedp import Budget, Problem
    >>> from curvedp.losses import Logistic
    >>> from curvedp.mechanisms import LOP
    >>> LOP().plan(Problem(Logistic()), 5, Budget(1.0, 1e-6)).guarantee.theorem
    '(P-8)'
    """

    accounting: Literal["auto", "directional", "paper"] = "auto"
    radius: float = 1.0
    center: FloatArray | float = 0.0
    eta: float | None = None
    exact: bool = False
    name = "lop"

    def plan(self, problem: Problem, d: int, budget: Budget) -> LOPPlan:
        """Calibrate (Δ, σ, σ̃) from public constants alone."""
        return self._plan(problem, d, budget, problem.gradient_bound(d), None)

    def _plan(self, problem: Problem, d: int, budget: Budget, zeta: float, clip: float | None) -> LOPPlan:
        if problem.loss.n_outputs != 1:
            # The determinant bounds of (P-8) are for Hessians of rank one.
            raise NotCovered(
                f"{self.name} covers losses with one output only: choose the mechanism qop or recentered"
            )
        if not math.isfinite(zeta):
            raise NotCovered(
                f"{self.name} needs bounded gradients and {problem.loss.name} loss has none on this "
                "constraint: choose the mechanism lop_clip or qop, or a bounded constraint"
            )
        center = centered(self.center, d, 1)
        eta = accuracy(self.radius, self.eta, self.exact)
        parameters = calibrate_lop(
            budget.epsilon,
            budget.delta,
            L=problem.smoothness(d, center),
            zeta=zeta,
            d=d,
            radius=self.radius,
            eta=eta,
            count=not (self.exact or problem.domain.neighbours.count_is_public),
            rare=0.0 if self.exact else RareDraws.of(budget, problem.domain.neighbours).delta,
            adjacency=problem.domain.adjacency,
            accounting=self.accounting,
        )
        return LOPPlan(
            problem,
            d,
            budget,
            center=center,
            least_eta=eta,
            ratio=0.0 if self.exact else parameters.sigma_tilde / eta,
            mu_count=parameters.mu_count,
            exact=self.exact,
            clip=clip,
            parameters=parameters,
            mechanism=self.name,
        )


@dataclass(frozen=True, eq=False)
class LOPClip(LOP):
    """LOP on the Huberised loss, whose gradients are those of ℓ clipped to norm `clip` (section 5).

    Parameters
    ----------
    accounting, radius, center, eta, exact
        As for `LOP`.
    clip : float, default=1.0
        ζ: no record's gradient is longer.
    """

    clip: float = 1.0
    name = "lop_clip"

    def plan(self, problem: Problem, d: int, budget: Budget) -> LOPPlan:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise InvalidInput(f"clip must be a positive number, got {self.clip!r}")
        bound = problem.gradient_bound(d)
        return self._plan(problem, d, budget, min(self.clip, bound), self.clip if self.clip < bound else None)


@dataclass(frozen=True, eq=False)
class AMP(LOP):
    """Approximate minima: LOP solved to ‖∇J_priv‖ ≤ tolerance·Δ·radius only; output noise pays for the slack.

    By strong convexity the slack moves θ by at most η = tolerance·radius: (P-8) composed with that Gaussian.

    Parameters
    ----------
    accounting, radius, center, exact
        As for `LOP`; `eta` follows from the tolerance.
    tolerance : float, default=1e-5
        η as a fraction of the radius.
    """

    tolerance: float = 1e-5
    name = "amp"

    def plan(self, problem: Problem, d: int, budget: Budget) -> LOPPlan:
        loose = replace(self, eta=None if self.exact else self.tolerance * self.radius)
        return loose._plan(problem, d, budget, problem.gradient_bound(d), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class LOPPlan(SolvedPlan):
    """The calibrated linear perturbation for one problem and dimension."""

    parameters: LOPParameters
    mechanism: str

    @cached_property
    def guarantee(self) -> Guarantee:
        p = self.parameters
        return self.promise(
            self.mechanism,
            p.accounting,
            p.theorem,
            p.profile,
            public.DELTA_CURVATURE(p.Delta),
            public.SIGMA(p.sigma),
            LEAST_SIGMA_TILDE(p.sigma_tilde),
            LEAST_ETA(p.eta),
            public.L(p.L),
            public.ZETA(p.zeta),
            *([public.MU_COUNT(p.mu_count)] if p.mu_count > 0 else []),
            private=not self.exact,
        )

    @cached_property
    def noise_bounds(self) -> NoiseBounds:
        p, size = self.parameters, self.center.size
        return NoiseBounds(p.Delta, 1.01 * size * p.Delta, p.sigma * self.rare.gaussian_norm(size))

    def perturbation(self, random: np.random.Generator) -> Perturbation:
        a = self.parameters.sigma * random.standard_normal(self.center.shape)
        return Perturbation(self.center, a, self.parameters.Delta * np.eye(self.center.size))

    def law(self, drawn: Perturbation, used: Perturbation, rows: Rows, eta: float) -> Law:
        p, (gradient, hessian) = self.parameters, self.derivatives(rows)
        share = self.problem.domain.neighbours.sum_factor * p.zeta / p.sigma
        return LinearMinimum(gradient, hessian, self.center, p.Delta, p.sigma, drawn.linear, eta, share)

    def pulls(self) -> list[float]:
        """G = (added curvature)/B brings the margin to 1; three times as much keeps slopes at their ends
        whatever the noise, twenty times as much those of records that hardly lie along it.
        """
        one = self.parameters.Delta / self.problem.domain.x_norm
        return [one, 3.0 * one, 20.0 * one]

    def utility_bound(self, rows: int) -> float | None:
        """(Theorem utility) in the form of LOP, for an exact solve of the loss itself."""
        if self.mechanism != "lop":
            return None
        p = self.parameters
        return paper.lop_utility_bound(paper.LOPNoise(p.sigma**2, p.Delta), d=self.d, norm2=1.0)
