"""Quadratic objective perturbation, by a random curvature (P-1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import LEAST_ETA, LEAST_SIGMA_TILDE, RareDraws, SolvedPlan, accuracy
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.calibrate import QOPParameters, calibrate_qop
from curvedp.privacy.curvature import Wishart, log_gammainc_inverse
from curvedp.privacy.guarantee import Guarantee
from curvedp.problems import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.solvers.glm import NoiseBounds, Perturbation
from curvedp.transcript import CurvedMinimum, Law, Normal, told


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
        curvature = public.M(p.m), public.SIGMA2(p.sigma2), public.SIGMA0(p.sigma0)
        answer = LEAST_SIGMA_TILDE(p.sigma_tilde), LEAST_ETA(p.eta)
        bounds = public.L(p.L), public.CENTER_SENSITIVITY(p.center_sensitivity)
        count = [public.MU_COUNT(p.mu_count)] if p.mu_count > 0 else []
        named, stated = ("qop", p.accounting, p.theorem), (*curvature, *answer, *bounds, *count)
        return self.promise(*named, p.profile, *stated, private=not self.exact)

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
        sigma0, loss = self.parameters.sigma0, self.problem.loss
        if sigma0 == 0:
            return drawn
        if loss.is_quadratic:  # from the second moments, which its solver asks for anyway
            moments = rows.moments()
            at_center = np.asarray(moments.xx @ self.center - moments.xy)
        else:
            at_center = rows.gradient_sum(loss, self.center)
        step = grid_step(sigma0)
        share = self.parameters.center_sensitivity / sigma0
        law = Normal(at_center, sigma0, False, share, "gradient at the centre", step)
        noisy = told(random, law, round_to_grid(at_center + drawn.linear, step))
        return Perturbation(self.center, noisy - at_center, drawn.quadratic)

    def law(self, drawn: Perturbation, used: Perturbation, rows: Rows, eta: float) -> Law:
        p, (gradient, hessian) = self.parameters, self.derivatives(rows)
        noisy, law = gradient(self.center) + used.linear, (p.sigma2, p.m, drawn.linear, drawn.quadratic)
        return CurvedMinimum(gradient, hessian, self.center, noisy, *law, eta, p.L / p.sigma2)

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


def smallest_eigenvalue(law: Wishart, log_probability: float) -> float:
    """t > 0 with P(λ_min(W) < t) ≤ e^log_probability: the tail bounds of Lemma W, inverted."""
    t = 2.0 * log_gammainc_inverse(law.p, log_probability - law.log_D - math.lgamma(law.p))
    if float(law.m).is_integer():
        t = max(t, max(math.sqrt(law.m) - math.sqrt(law.d) - math.sqrt(-2.0 * log_probability), 0.0) ** 2)
    return 0.999 * t


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
