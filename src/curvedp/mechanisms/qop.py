"""Quadratic Objective Perturbation (P-1): random curvature in the place of a gradient bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from curvedp.domain import FloatArray
from curvedp.ensembles import Wishart
from curvedp.errors import InvalidInput
from curvedp.losses import Loss
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.output_noise import RELATIVE_ETA, OutputNoise
from curvedp.privacy.calibrate import QOPParameters, calibrate_qop
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.randomness import grid_step, round_to_grid
from curvedp.rows.base import Rows
from curvedp.solvers import Objective, Perturbation

Accounting = Literal["auto", "paper", "spectral", "directional"]


@dataclass(frozen=True, eq=False)
class QOP:
    """θ_priv = argmin_C J(θ) + aᵀ(θ−θ_c) + (σ²/2)(θ−θ_c)ᵀW(θ−θ_c), released with output noise (P-1).

    `radius` is a public guess of ‖θ* − θ_c‖; it only steers the calibration. `center` is θ_c (a scalar
    0 or an array of the shape of θ), `m` fixes the Wishart's degrees of freedom, `eta` the solver error
    that is accounted (default 1e-6·radius). `exact=True` is the paper's τ = 0 study mode: no output
    noise, and a guarantee that says private=False, because floating point voids it.
    """

    epsilon: float
    delta: float
    accounting: Accounting = "auto"
    radius: float = 1.0
    center: FloatArray | float = 0.0
    m: float | None = None
    eta: float | None = None
    exact: bool = False

    def plan(self, problem: Problem, d: int) -> QOPPlan:
        """Calibrate (σ0, σ², m, σ̃) from public constants alone."""
        K = problem.loss.n_outputs
        center = centered(self.center, d, K)
        eta = 0.0 if self.exact else (RELATIVE_ETA * self.radius if self.eta is None else self.eta)
        parameters = calibrate_qop(
            self.epsilon,
            self.delta,
            L=problem.smoothness(d, center),
            d=d * K,
            center_sensitivity=problem.center_sensitivity(center),
            radius=self.radius,
            rank=problem.loss.rank,
            classes=K,
            eta=eta,
            adjacency=problem.domain.adjacency,
            accounting=self.accounting,
            m=self.m,
        )
        return QOPPlan(problem, d, center, parameters, self.exact)


@dataclass(frozen=True, eq=False)
class QOPPlan:
    """The calibrated mechanism for one problem and dimension."""

    problem: Problem
    d: int
    center: FloatArray = field(repr=False)
    parameters: QOPParameters
    exact: bool = False

    @cached_property
    def guarantee(self) -> Guarantee:
        p = self.parameters
        public: dict[str, Any] = {
            "m": p.m,
            "sigma2": p.sigma2,
            "sigma0": p.sigma0,
            "sigma_tilde": p.sigma_tilde,
            "eta": p.eta,
            "L": p.L,
            "center_sensitivity": p.center_sensitivity,
        }
        return Guarantee(
            epsilon=p.epsilon,
            delta=p.delta,
            adjacency=self.problem.domain.adjacency,
            mechanism="qop",
            accounting=p.accounting,
            theorem=p.theorem,
            parameters=public,
            profile=p.profile,
            private=not self.exact,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        perturbation = self.draw(rows, generator)
        noise = OutputNoise(self.parameters.eta, self.parameters.sigma_tilde)
        theta = noise.release(Objective(self.problem, rows, perturbation), generator)
        return Release(theta, self.guarantee)

    def draw(self, rows: Rows, generator: np.random.Generator) -> Perturbation:
        """W by Bartlett, a Gaussian; Y = Σ∇ℓ(θ_c; z) + a, which the proof releases, is put on its grid."""
        p = self.parameters
        W = Wishart(self.center.size, p.m).sample(generator)
        a = p.sigma0 * generator.standard_normal(self.center.shape)
        if p.sigma0 > 0:
            at_center = center_gradient(self.problem.loss, rows, self.center)
            a = round_to_grid(at_center + a, grid_step(p.sigma0)) - at_center
        return Perturbation(self.center, a, p.sigma2 * W)


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
