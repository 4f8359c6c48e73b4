"""Objective perturbation: QOP, a random curvature (P-1); LOP, LOP-Clip, AMP, a random slope (P-8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import LEAST_ETA, LEAST_SIGMA_TILDE, RareDraws, SolvedPlan, accuracy
from curvedp.privacy import guarantee as public
from curvedp.privacy import paper
from curvedp.privacy.budget import Budget
from curvedp.privacy.calibrate import QOPParameters, calibrate_qop
from curvedp.privacy.ensembles import Wishart, log_gammainc_inverse
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.linear import LOPParameters, calibrate_lop
from curvedp.problems import Problem
from curvedp.problems.losses.margin import Loss
from curvedp.randomness import grid_step, round_to_grid
from curvedp.solvers.glm import NoiseBounds, Perturbation
from curvedp.transcript import CurvedMinimum, Law, LinearMinimum, Normal, told


@dataclass(frozen=True, eq=False)
class QOP:
    """θ_priv = argmin_C J(θ) + aᵀ(θ−θ_c) + (σ²/2)(θ−θ_c)ᵀW(θ−θ_c), released with output noise (P-1).

    Parameters
    ----------
    accounting : {"auto", "directional", "spectral", "paper"}, default="auto"
        Which theorem calibrates: "auto" takes the sharpest that covers the loss; "paper" is for ε < 1.
    radius : float, default=1.0
        A public guess of ‖θ* − θ_c‖; it only steers the calibration.
    center : float or array, default=0.0
        θ_c, a number or an array of the shape of θ.
    m : float, optional
        Degrees of freedom of the Wishart matrix W; chosen by default.
    eta : float, optional
        The least solver error that is accounted, by default 1e-6·radius; more where rounding needs it.
    exact : bool, default=False
        The paper's study mode: no output noise, and a guarantee that says private=False.

    Examples
    --------
    >>> from curvedp import Budget, Domain, Problem
    >>> from curvedp.problems.losses import Logistic
    >>> from curvedp.mechanisms import QOP
    >>> QOP(m=40).plan(Problem(Logistic()), 5, Budget(1.0, 1e-6)).guarantee.theorem
    '(P-7j)'
    """

    accounting: Literal["auto", "directional", "spectral", "paper"] = "auto"
    radius: float = 1.0
    center: FloatArray | float = 0.0
    m: float | None = None
    eta: float | None = None
    exact: bool = False
    name = "qop"

    def plan(self, problem: Problem, d: int, budget: Budget) -> QOPPlan:
        """Calibrate (σ0, σ², m, σ̃) from public constants alone."""
        K = problem.loss.n_outputs
        center = centered(self.center, d, K)
        eta = accuracy(self.radius, self.eta, self.exact)
        parameters = calibrate_qop(
            budget.epsilon,
            budget.delta,
            L=problem.smoothness(d, center),
            d=d * K,
            center_sensitivity=problem.center_sensitivity(center),
            radius=self.radius,
            rank=problem.loss.rank,
            classes=K,
            eta=eta,
            count=not (self.exact or problem.domain.neighbours.count_is_public),
            rare=0.0 if self.exact else RareDraws.of(budget, problem.domain.neighbours).delta,
            adjacency=problem.domain.adjacency,
            accounting=self.accounting,
            m=self.m,
        )
        return QOPPlan(
            problem,
            d,
            budget,
            center=center,
            least_eta=eta,
            ratio=0.0 if self.exact else parameters.sigma_tilde / eta,
            mu_count=parameters.mu_count,
            exact=self.exact,
            parameters=parameters,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class QOPPlan(SolvedPlan):
    """The calibrated mechanism for one problem and dimension."""

    parameters: QOPParameters

    @cached_property
    def guarantee(self) -> Guarantee:
        p = self.parameters
        return self.promise(
            "qop",
            p.accounting,
            p.theorem,
            p.profile,
            public.M(p.m),
            public.SIGMA2(p.sigma2),
            public.SIGMA0(p.sigma0),
            LEAST_SIGMA_TILDE(p.sigma_tilde),
            LEAST_ETA(p.eta),
            public.L(p.L),
            public.CENTER_SENSITIVITY(p.center_sensitivity),
            *([public.MU_COUNT(p.mu_count)] if p.mu_count > 0 else []),
            private=not self.exact,
        )

    @cached_property
    def noise_bounds(self) -> NoiseBounds:
        p, size = self.parameters, self.center.size
        law = Wishart(size, p.m)
        # a is rounded to a grid, which lengthens it by less than 1 %.
        return NoiseBounds(
            curvature=p.sigma2 * smallest_eigenvalue(law, self.rare.log_each),
            trace=p.sigma2 * self.rare.chi_square(size * p.m),
            linear=1.01 * p.sigma0 * self.rare.gaussian_norm(size),
        )

    def perturbation(self, random: np.random.Generator) -> Perturbation:
        """W by Bartlett, a Gaussian."""
        p = self.parameters
        W = Wishart(self.center.size, p.m).sample(random)
        return Perturbation(self.center, p.sigma0 * random.standard_normal(self.center.shape), p.sigma2 * W)

    def on_grid(self, drawn: Perturbation, rows: Rows, random: np.random.Generator) -> Perturbation:
        """Y = Σ∇ℓ(θ_c; z) + a, which the proof gives away, is put on its public grid."""
        sigma0 = self.parameters.sigma0
        if sigma0 == 0:
            return drawn
        at_center, step = center_gradient(self.problem.loss, rows, self.center), grid_step(sigma0)
        share = self.parameters.center_sensitivity / sigma0
        law = Normal(at_center, sigma0, False, share, "gradient at the centre", step)
        noisy = told(random, law, round_to_grid(at_center + drawn.linear, step))
        return Perturbation(self.center, noisy - at_center, drawn.quadratic)

    def law(self, drawn: Perturbation, used: Perturbation, rows: Rows, eta: float) -> Law:
        p, (gradient, hessian) = self.parameters, self.derivatives(rows)
        noisy, draws = gradient(self.center) + used.linear, (drawn.linear, drawn.quadratic)
        return CurvedMinimum(
            gradient, hessian, self.center, noisy, p.sigma2, p.m, *draws, eta, p.L / p.sigma2
        )

    def grid_error(self, rows: float, magnitude: float) -> float:
        """Of the computed Σ∇ℓ(θ_c; z): Y is on its grid but for that."""
        if self.parameters.sigma0 == 0:
            return 0.0
        norm = float(np.linalg.norm(self.center))
        size = rows * self.problem.loss.center_bound(self.problem.domain, norm)
        return self.certifiable.data_error(rows, magnitude, norm) + 4.0 * (self.d + 2) * UNIT_ROUNDOFF * size

    def pulls(self) -> list[float]:
        """With noise σ²W and σ0 a record moves log‖θ‖ by Δ_c/G + g/m against a variance of (σ0/G)² + 2/m:
        G = gσ0²/(2Δ_c) is best for Gaussian tails, the upper tail wants 1.7 times that.
        G ≫ σ0√m shows W alone; G = (added curvature)/B brings the margin to 1.
        """
        p = self.parameters
        alone = p.sigma2 * p.m / self.problem.domain.x_norm
        if p.sigma0 == 0 or p.center_sensitivity == 0:
            return [alone]
        best = 1.7 * p.L * p.sigma0**2 / (2 * p.center_sensitivity * p.sigma2)
        return [best, 10 * p.sigma0 * math.sqrt(p.m), alone]

    def utility_bound(self, rows: int) -> float | None:
        """(Theorem utility), the solver's gap being at most (nL + σ²·tr E[W])η²/2."""
        p, size = self.parameters, self.center.size
        eta, sigma_tilde = 0.0, 0.0
        if not self.exact:
            output = self.output(rows, self.problem.domain.x_norm)
            eta, sigma_tilde = output.eta, output.sigma_tilde
        return paper.utility_bound(
            sigma0=p.sigma0,
            sigma2=p.sigma2,
            sigma_tilde=sigma_tilde,
            L=p.L,
            d=size,
            m=p.m,
            n=rows,
            tau=(rows * p.L + p.sigma2 * p.m * size) * eta**2 / 2,
            distance2=1.0,
            G=0.0,
        )


def smallest_eigenvalue(law: Wishart, log_probability: float) -> float:
    """t > 0 with P(λ_min(W) < t) ≤ e^log_probability: the tail bounds of Lemma W, inverted."""
    t = 2.0 * log_gammainc_inverse(law.p, log_probability - law.log_D - math.lgamma(law.p))
    if float(law.m).is_integer():
        t = max(t, max(math.sqrt(law.m) - math.sqrt(law.d) - math.sqrt(-2.0 * log_probability), 0.0) ** 2)
    return 0.999 * t


def center_gradient(loss: Loss, rows: Rows, center: FloatArray) -> FloatArray:
    """Σ∇ℓ(θ_c; z_i); of a quadratic loss from the second moments, which its solver asks for anyway."""
    if not loss.is_quadratic:
        return rows.gradient_sum(loss, center)
    moments = rows.moments()
    return np.asarray(moments.xx @ center - moments.xy)


def centered(center: FloatArray | float, d: int, K: int) -> FloatArray:
    """θ_c as an array of shape (d, K)."""
    value = np.asarray(center, dtype=np.float64)
    if value.ndim == 1 and K == 1:
        value = value[:, None]
    if value.ndim and value.shape != (d, K):
        raise InvalidInput(f"center must be a scalar or of shape ({d}, {K}), got shape {value.shape}")
    if not np.all(np.isfinite(value)):
        raise InvalidInput("center must be finite")
    return np.ascontiguousarray(np.broadcast_to(value, (d, K)))


# Linear Objective Perturbation: LOP, LOP-Clip and approximate minima (AMP)  (P-8).


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
    >>> from curvedp.problems.losses import Logistic
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
