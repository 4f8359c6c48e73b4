"""The experiment of the paper's section "Numerical Comparison": data, problem, constants, perturbations.

    min over ‖θ‖_∞ ≤ κ of Σ_i ½(x_iᵀθ − y_i)² + ω‖θ‖₁,   x ∈ [−ξ, ξ]^d, |y| ≤ 1, ξ = 5, ω = 1, θ_c = 0.

Risks are MEANS, (1/n) Σ_i ½(x_iᵀθ − y_i)², though the objective is a sum: so are those of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Moments
from curvedp.privacy.curvature import Wishart
from curvedp.problems import Problem
from curvedp.problems.constraints import Box
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared
from curvedp.problems.regularizers import L1
from curvedp.randomness import generator
from curvedp.solvers.glm import Perturbation
from curvedp_studies import paper
from curvedp_studies.resume import seed_of

XI, OMEGA = 5.0, 1.0


@dataclass(frozen=True)
class Configuration:
    """One panel of the paper's Figure 2."""

    n: int
    d: int
    epsilon: float
    delta: float

    @property
    def domain(self) -> Domain:
        """‖x‖ ≤ ξ√d, |y| ≤ 1: what the paper declares."""
        return Domain(x_norm=XI * math.sqrt(self.d), y_bound=1.0)

    def problem(self, kappa: float) -> Problem:
        return Problem(Squared(), L1(OMEGA), Box(kappa), self.domain)

    @property
    def center(self) -> FloatArray:
        """θ_c = 0."""
        return np.zeros((self.d, 1))

    @property
    def L(self) -> float:
        """L = dξ²."""
        return self.problem(math.inf).smoothness(self.d)

    @property
    def center_sensitivity(self) -> float:
        """Δ_c = 2ξ√d."""
        return self.problem(math.inf).center_sensitivity(self.center)

    def zeta(self, kappa: float) -> float:
        """The paper's gradient bound, (diam(C)ξ√d + 1)ξ√d with diam(C) = 2κ√d."""
        problem = self.problem(kappa)
        return problem.loss.gradient_bound(self.domain, 2 * problem.radius(self.d))

    def __str__(self) -> str:
        return f"n = {self.n:,}, d = {self.d}, ε = {self.epsilon:g}, δ = {self.delta:g}"


CONFIGURATIONS = (
    Configuration(300, 70, 0.5, 0.01),
    Configuration(300, 70, 0.01, 1e-5),
    Configuration(400, 100, 0.5, 0.01),
    Configuration(400, 100, 0.01, 1e-5),
)


# The paper rescales its Gaussian samples "to lie within [−ξ, ξ]^d" and does not say how.
READINGS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "norm": lambda X: X * (XI / np.linalg.norm(X, axis=1, keepdims=True)),
    "maximum": lambda X: X * (XI / np.abs(X).max()),
    "columns": lambda X: X * (XI / np.abs(X).max(axis=0)),
    "clip": lambda X: np.clip(X, -XI, XI),
}
READING_WORDS = {
    "norm": "every sample scaled to ‖x‖₂ = ξ",
    "maximum": "all samples scaled by one number, max |x_ij| = ξ",
    "columns": "every column scaled to max_i |x_ij| = ξ",
    "clip": "every entry clipped to [−ξ, ξ]",
}


@lru_cache(maxsize=4)
def records(n: int, d: int, reading: str) -> tuple[FloatArray, FloatArray]:
    """(X, y): x_i ~ N(0, I) rescaled, y_i = clip(x_iᵀθ_* + c_i, [−1, 1]), θ_* ~ N(0, I), c_i ~ N(0, 1).

    One θ_* for each d; the Gaussian samples of a smaller n are the first of a larger one.
    """
    source = generator(seed_of("records", d))
    theta = source.standard_normal(d)
    draws = source.standard_normal((n, d + 1))
    X = np.ascontiguousarray(READINGS[reading](draws[:, :d]))
    return X, np.clip(X @ theta + draws[:, d], -1.0, 1.0)


def risk(X: FloatArray, y: FloatArray, theta: FloatArray) -> float:
    """(1/n) Σ_i ½(x_iᵀθ − y_i)²."""
    return 0.5 * float(np.mean((X @ theta.ravel() - y) ** 2))


def risk_from(moments: Moments, n: int, theta: FloatArray) -> float:
    """The same from second moments."""
    u = theta.ravel()
    return 0.5 * float(u @ moments.xx @ u - 2 * moments.xy.ravel() @ u + moments.yy[0, 0]) / n


@dataclass(frozen=True, eq=False)
class Perturbed:
    """One draw: the perturbation, λ_max of its quadratic part, and the clip of the gradients, if any."""

    perturbation: Perturbation
    largest: float
    clip: float | None = None


def linear_noise(
    c: Configuration, sigma: float, Delta: float, source: np.random.Generator, clip: float | None = None
) -> Perturbed:
    """a ~ N(0, σ²I) and (Δ/2)‖θ‖²."""
    a = sigma * source.standard_normal((c.d, 1))
    return Perturbed(Perturbation(c.center, a, Delta * np.eye(c.d)), Delta, clip)


def quadratic_noise(
    c: Configuration, sigma0: float, sigma2: float, m: float, source: np.random.Generator
) -> Perturbed:
    """a ~ N(0, σ0²I) and (σ²/2)θᵀWθ, W ~ Wishart(d, m)."""
    Q = sigma2 * Wishart(c.d, m).sample(source)
    a = sigma0 * source.standard_normal((c.d, 1))
    return Perturbed(Perturbation(c.center, a, Q), float(np.linalg.eigvalsh(Q)[-1]))


@dataclass(frozen=True)
class PaperLOP:
    """LOP, and LOP-Clip where `clip` is finite, with the paper's constants for the bound min(clip, ζ(κ))."""

    name: str
    clip: float = math.inf

    def draw(self, c: Configuration, kappa: float, source: np.random.Generator) -> Perturbed:
        zeta = c.zeta(kappa)
        found = paper.lop_parameters(c.epsilon, c.delta, L=c.L, zeta=min(self.clip, zeta))
        clip = self.clip if self.clip < zeta else None
        return linear_noise(c, math.sqrt(found.sigma2), found.Delta, source, clip)


@dataclass(frozen=True)
class PaperQOP:
    """QOP with (ε/2, ε/2, 0), (δ/3, δ/3, 0, δ/3), m = 2d."""

    name: str = "QOP"

    def curvature(self, c: Configuration, kappa: float) -> float:
        """E[Q] = σ²m·I, whatever κ is."""
        found = experiment_parameters(c)
        return found.sigma2 * found.m

    def draw(self, c: Configuration, kappa: float, source: np.random.Generator) -> Perturbed:
        found = experiment_parameters(c)
        return quadratic_noise(c, found.sigma0, found.sigma2, found.m, source)


@lru_cache
def experiment_parameters(c: Configuration) -> paper.PaperParameters:
    """The paper's split for a configuration."""
    return paper.experiment_parameters(
        c.epsilon, c.delta, L=c.L, d=c.d, rho=1, center_sensitivity=c.center_sensitivity
    )


MECHANISMS = (PaperLOP("LOP"), PaperLOP("LOP-Clip-1e4", 1e4), PaperLOP("LOP-Clip-1e5", 1e5), PaperQOP())
