"""Input perturbation (local model): every record gets its own noise, then ridge regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from curvedp.domain import FloatArray
from curvedp.ensembles import Wishart
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.moments import ReleasedMoments
from curvedp.mechanisms.proximal import QuadraticModel
from curvedp.mechanisms.statistics import gram_of
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problem import Problem
from curvedp.rows.base import Rows


@dataclass(frozen=True)
class InputPerturbation:
    """Each z = (x, w·y), w = B/Y, becomes z + N(0, σ²I), σ = 2√2·B/μ: two records differ by at most 2√2·B.

    Private record by record, hence also when all noisy records are published; under replace, since their
    number shows. The noise covariance nσ²I is subtracted before the ridge regression.
    """

    epsilon: float
    delta: float

    def plan(self, problem: Problem, d: int) -> InputPlan:
        if not problem.loss.is_quadratic:
            raise NotCovered("input perturbation here covers the squared loss only; use Recentered")
        if problem.domain.adjacency != "replace":
            raise NotCovered(
                "input perturbation shows the number of records: it is private under replace only"
            )
        mu = calibrate_mu(self.epsilon, self.delta)
        sigma = 2.0 * math.sqrt(2.0) * problem.domain.x_norm / mu
        return InputPlan(problem, d, self.epsilon, self.delta, sigma, GaussianProfile(mu))


@dataclass(frozen=True, eq=False)
class InputPlan:
    """The noise σ of every entry of every record."""

    problem: Problem
    d: int
    epsilon: float
    delta: float
    sigma: float
    profile: GaussianProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        public: dict[str, Any] = {"sigma": self.sigma, "mu": self.profile.mu}
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency="replace",
            mechanism="input",
            accounting="gaussian",
            theorem="Peers (input perturbation)",
            parameters=public,
            profile=self.profile,
        )

    def release(self, rows: Rows, generator: np.random.Generator) -> Release:
        n = rows.count()
        domain = self.problem.domain
        w = domain.x_norm / domain.y_bound
        noisy = noisy_gram(gram_of(rows.moments(), w), n, self.sigma, generator)
        centred = noisy - n * self.sigma**2 * np.eye(len(noisy))
        # Noise of the entries of ZᵀE + EᵀZ + EᵀE − nσ²I, at the size of the noisy records.
        spread = self.sigma * math.sqrt(float(np.trace(noisy)) / len(noisy) * 2.0)
        d = self.d
        released = ReleasedMoments(
            centred[:d, :d], centred[:d, d : d + 1] / w, math.sqrt(2.0) * spread, spread / w
        )
        model = QuadraticModel(self.problem, released.curvature(released.ridge()))
        return Release(model.minimize(-released.xy, np.zeros((d, 1))), self.guarantee)


def noisy_gram(gram: FloatArray, n: int, sigma: float, generator: np.random.Generator) -> FloatArray:
    """(Z+σE)ᵀ(Z+σE), E of shape (n, p) with N(0, 1) entries: exactly in law, from the p×p matrix ZᵀZ alone.

    Z = UR with U orthonormal, r = min(n, p) columns, RᵀR = ZᵀZ. Then G = UᵀE has N(0, 1) entries, and what of
    E is orthogonal to U adds W' ~ Wishart(p, n−r), independent: (R+σG)ᵀ(R+σG) + σ²W'.
    """
    p = len(gram)
    r = min(n, p)
    values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
    R = np.sqrt(np.maximum(values[p - r :], 0.0))[:, None] * vectors[:, p - r :].T
    moved = R + sigma * generator.standard_normal((r, p))
    if n - r >= p:
        W = Wishart(p, float(n - r)).sample(generator)
    else:
        rest = generator.standard_normal((n - r, p))
        W = rest.T @ rest
    return np.asarray(moved.T @ moved + sigma**2 * W)
