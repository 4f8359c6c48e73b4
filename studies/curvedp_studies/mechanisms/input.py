"""Input perturbation (local model): every record gets its own noise, then ridge regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows.base import Rows
from curvedp.errors import NotCovered
from curvedp.mechanisms.base import Estimate, FitPlan
from curvedp.mechanisms.statistics import gram_of
from curvedp.postprocess.noise import QuadraticModel, ReleasedMoments
from curvedp.privacy import guarantee as public
from curvedp.privacy.budget import Budget
from curvedp.privacy.curvature import Wishart
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile
from curvedp.problems import Problem


@dataclass(frozen=True)
class InputPerturbation:
    """Each z = (x, w·y), w = B/Y, becomes z + N(0, σ²I), σ = 2√2·B/μ: two records differ by at most 2√2·B.

    Private record by record, hence also when all noisy records are published; under replace, since their
    number shows. The noise covariance nσ²I is subtracted before the ridge regression.

    For studies: the noisy Gram matrix is drawn as a product of doubles, on no grid, and which doubles can
    come out depends on the records; nothing is proved of its bits, and the guarantee says `private=False`.
    """

    name = "input"

    def plan(self, problem: Problem, d: int, budget: Budget) -> InputPlan:
        """σ for this budget."""
        if not problem.loss.is_quadratic:
            raise NotCovered("input perturbation here covers the squared loss only; use Recentered")
        if not problem.domain.neighbours.count_is_public:
            raise NotCovered(
                "input perturbation shows the number of records: it is private under replace only"
            )
        if problem.domain.weighted:
            raise NotCovered("input perturbation has no weights: every record gets the same noise")
        profile = GaussianProfile(calibrate_mu(budget.epsilon, budget.delta))
        sigma = 2.0 * math.sqrt(2.0) * problem.domain.x_norm / profile.mu
        return InputPlan(problem, d, budget, sigma, profile)


@dataclass(frozen=True, eq=False)
class InputPlan(FitPlan):
    """The noise σ of every entry of every record."""

    sigma: float
    profile: GaussianProfile

    @cached_property
    def guarantee(self) -> Guarantee:
        return self.promise(
            "input",
            "gaussian",
            "Peers (input perturbation)",
            self.profile,
            public.SIGMA(self.sigma),
            public.MU(self.profile.mu),
            private=False,
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Estimate:
        n, d, domain = rows.count(), self.d, self.problem.domain
        w = domain.x_norm / domain.y_bound
        noisy = noisy_gram(gram_of(rows.moments(), w), n, self.sigma, random)
        centred = noisy - n * self.sigma**2 * np.eye(len(noisy))
        # Noise of the entries of ZᵀE + EᵀZ + EᵀE − nσ²I, at the size of the noisy records.
        spread = self.sigma * math.sqrt(float(np.trace(noisy)) / len(noisy) * 2.0)
        released = ReleasedMoments(
            centred[:d, :d], centred[:d, d : d + 1] / w, math.sqrt(2.0) * spread, spread / w
        )
        model = QuadraticModel(self.problem, released.curvature(released.ridge()))
        return Estimate(model.minimize(-released.xy, np.zeros((d, 1))))


def noisy_gram(gram: FloatArray, n: int, sigma: float, random: np.random.Generator) -> FloatArray:
    """(Z+σE)ᵀ(Z+σE), E of shape (n, p) with N(0, 1) entries: exactly in law, from the p×p matrix ZᵀZ alone.

    Z = UR with U orthonormal, r = min(n, p) columns, RᵀR = ZᵀZ. Then G = UᵀE has N(0, 1) entries, and what of
    E is orthogonal to U adds W' ~ Wishart(p, n−r), independent: (R+σG)ᵀ(R+σG) + σ²W'.
    """
    p = len(gram)
    r = min(n, p)
    values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
    R = np.sqrt(np.maximum(values[p - r :], 0.0))[:, None] * vectors[:, p - r :].T
    moved = R + sigma * random.standard_normal((r, p))
    if n - r >= p:
        W = Wishart(p, float(n - r)).sample(random)
    else:
        rest = random.standard_normal((n - r, p))
        W = rest.T @ rest
    return np.asarray(moved.T @ moved + sigma**2 * W)
