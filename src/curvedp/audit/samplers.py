"""Outputs of a plan on the two datasets of a pair: one release at a time, or in batches.

The slow way calls `Plan.release` and so audits the code that is shipped. The fast way draws from the same law
with the batched solver (the tests hold the two together) and makes millions of fits cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from curvedp import randomness
from curvedp.audit.densities import Density, LinearNoise, RandomCurvature
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records
from curvedp.domain import FloatArray
from curvedp.errors import NotCertified
from curvedp.losses import Huber, Logistic, Squared, SquaredHinge
from curvedp.mechanisms.base import Plan
from curvedp.mechanisms.gradient import DPSGDPlan
from curvedp.mechanisms.lop import LOPPlan
from curvedp.mechanisms.qop import QOPPlan
from curvedp.mechanisms.statistics import StatisticsPlan, WishartGram
from curvedp.problem import Problem
from curvedp.rows.base import Rows
from curvedp.solvers.batched import Backend, Bins, Fits, MarginFits, Penalty, Perturbations, QuadraticFits

Counts = NDArray[np.int64]


class Sampler(Protocol):
    """Outputs for D (side 0) and D' (side 1) of one pair."""

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        """n outputs, flattened, shape (n, size)."""
        ...


@dataclass(frozen=True, eq=False)
class Releases:
    """Outputs by Plan.release, one at a time. A refusal is an output too: it is NaN in every entry."""

    plan: Plan
    rows: tuple[Rows, Rows]

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        generator = randomness.generator(seed)
        outputs = [self._release(self.rows[side], generator) for _ in range(n)]
        size = max(len(theta) for theta in outputs)
        return np.array([theta if len(theta) == size else np.full(size, np.nan) for theta in outputs])

    def _release(self, rows: Rows, generator: np.random.Generator) -> FloatArray:
        try:
            return self.plan.release(rows, generator).theta.ravel()
        except NotCertified:
            return np.full(1, np.nan)


@dataclass(frozen=True, eq=False)
class ReleasedMoments:
    """What a release of XᵀX and Xᵀy shows of the directions V of a pair, VᵀV = I, rather than one θ of it.

    Gaussian noise: VᵀXᵀXV and VᵀXᵀy, noisy. Wishart noise: (VᵀS⁻¹V)⁻¹, through which alone the likelihood
    ratio of S depends on the records, and VᵀXᵀy, noisy.
    """

    plan: StatisticsPlan
    pair: Pair
    engine: Backend

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        moments = (self.pair.left, self.pair.right)[side].moments()
        V = np.linalg.qr(self.pair.directions.T)[0]
        q = V.shape[1]
        generator = randomness.generator(seed)
        xy = (moments.xy[:, 0] @ V) + self.plan.xy_scale * generator.standard_normal((n, q))
        match self.plan.gram:
            case WishartGram(sigma2=sigma2, m=m):
                # One seed gives every direction the same draws of W.
                solved = [QuadraticFits(moments.xx, v, Perturbations(sigma2, m)) for v in V.T]
                inverse = np.stack([self.engine.sample(f, n, seed) @ V for f in solved], axis=2)
                xx = np.linalg.inv(inverse)
            case gram:
                raw = generator.standard_normal((n, q, q))
                xx = V.T @ moments.xx @ V + gram.entry_scale * (raw + raw.transpose(0, 2, 1)) / 2
        upper = np.triu_indices(q)
        return np.column_stack([xx[:, upper[0], upper[1]], xy])


@dataclass(frozen=True, eq=False)
class Batches:
    """Outputs by the batched solver, with the output noise that the plan adds."""

    fits: tuple[Fits, Fits]
    output_noise: float
    engine: Backend

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        theta = self.engine.sample(self.fits[side], n, seed)
        if self.output_noise > 0:
            theta += self.output_noise * randomness.generator(seed + 1).standard_normal(theta.shape)
        return theta

    def project(self, side: int, direction: FloatArray, bins: Bins, n: int, seed: int) -> Counts:
        """Counts of direction·θ over n fits that are never stored."""
        noise = self.output_noise * float(np.linalg.norm(direction))
        return self.engine.histogram(self.fits[side], direction, bins, n, seed, noise)


@dataclass(frozen=True, eq=False)
class FastLaw:
    """The noise of a plan whose fits the batched solver knows."""

    problem: Problem
    center: FloatArray
    noise: Perturbations
    output_noise: float
    clip: float | None = None


def fast_law(plan: Plan) -> FastLaw | None:
    """The law of a plan's fits; None for plans that only `release` knows, subclasses included."""
    if type(plan) is QOPPlan:
        q = plan.parameters
        noise = Perturbations(q.sigma2, q.m, q.sigma0)
        return FastLaw(plan.problem, plan.center.ravel(), noise, q.sigma_tilde)
    if type(plan) is LOPPlan:
        p = plan.parameters
        noise = Perturbations(sigma0=p.sigma, ridge=p.Delta)
        return FastLaw(plan.problem, plan.center.ravel(), noise, p.sigma_tilde, plan.clip)
    return None


def sampler(plan: Plan, pair: Pair, engine: Backend) -> Sampler:
    """The fastest way to outputs of this plan on this pair."""
    if type(plan) is StatisticsPlan:
        return ReleasedMoments(plan, pair, engine)
    if isinstance(plan, DPSGDPlan):  # samples records, so it needs them one by one
        left, right = (records.expanded(plan.problem.domain) for records in (pair.left, pair.right))
        return Releases(plan, (left, right))
    law = fast_law(plan)
    fits = [None if law is None else _fits(law, records) for records in (pair.left, pair.right)]
    if law is None or fits[0] is None or fits[1] is None:
        return Releases(plan, (pair.left, pair.right))
    return Batches((fits[0], fits[1]), law.output_noise, engine)


def density(plan: Plan) -> Density | None:
    """The exact density of θ_priv where it is known: smooth, unconstrained, one margin, d ≤ 2 for QOP."""
    law = fast_law(plan)
    if law is None or law.clip is not None or law.problem.loss.n_outputs != 1:
        return None
    if _penalty(law.problem, len(law.center)) != (0.0, Penalty()):
        return None
    noise = law.noise
    if noise.sigma2 == 0:
        return LinearNoise(noise.ridge, noise.sigma0, law.center)
    if len(law.center) > 2 or noise.sigma0 == 0 or noise.m < 2:
        return None
    return RandomCurvature(noise.sigma2, noise.m, noise.sigma0, law.center, nodes=48)


def _penalty(problem: Problem, d: int) -> tuple[float, Penalty] | None:
    """(ridge, l1 and box) of the problem; None when it has other terms, or coordinates of different kinds."""
    weights, interval = problem.regularizer.separable(d), problem.constraint.interval(d)
    if weights is None or interval is None:
        return None
    values = [np.unique(part) for part in (*weights, *interval)]
    if any(len(v) != 1 for v in values):
        return None
    l1, l2, low, high = (float(v[0]) for v in values)
    return l2, Penalty(l1, low, high)


def _fits(law: FastLaw, records: Records) -> Fits | None:
    terms = _penalty(law.problem, records.d)
    if terms is None or (terms[0] > 0 and law.center.any()):  # an L2 term pulls to 0, the perturbation to θ_c
        return None
    if law.clip is not None and not law.problem.loss.is_quadratic:
        return None
    ridge, penalty = terms
    noise = replace(law.noise, ridge=law.noise.ridge + ridge)
    n = len(records.y)
    slopes: tuple[FloatArray, FloatArray] | None
    match law.problem.loss:
        case Squared() if law.clip is not None:
            steepest = law.clip / np.maximum(np.sqrt(np.square(records.x).sum(1)), 1e-300)
            slopes = -steepest, steepest
        case Squared():
            moments = records.moments()
            linear = moments.xy[:, 0] - moments.xx @ law.center
            return QuadraticFits(moments.xx, linear, noise, penalty, law.center)
        case Logistic():
            slopes = None
        case Huber(width):
            slopes = np.full(n, -width), np.full(n, width)
        case SquaredHinge():
            slopes = np.where(records.y > 0, -np.inf, 0.0), np.where(records.y > 0, 0.0, np.inf)
        case _:
            return None
    return MarginFits(records.x, records.y, noise, records.counts, penalty, law.center, slopes)
