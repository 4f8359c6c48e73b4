"""Outputs of a plan on the two datasets of a pair: one release at a time, or in batches.

The slow way calls `Plan.release` and so audits the code that is shipped. The fast way draws from the same law
with the batched solver (the tests hold the two together) and makes millions of fits cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from curvedp import randomness
from curvedp.audit.densities import Density, LinearNoise, RandomCurvature
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records
from curvedp.domain import FloatArray
from curvedp.losses import Logistic, Squared
from curvedp.mechanisms.base import Plan
from curvedp.mechanisms.lop import LOPPlan
from curvedp.mechanisms.qop import QOPPlan
from curvedp.problem import Problem
from curvedp.solvers.batched import Backend, Bins, Fits, LogisticFits, Penalty, Perturbations, QuadraticFits

Counts = NDArray[np.int64]


class Sampler(Protocol):
    """Outputs for D (side 0) and D' (side 1) of one pair."""

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        """n outputs, flattened, shape (n, size)."""
        ...

    def project(self, side: int, direction: FloatArray, bins: Bins, n: int, seed: int) -> Counts:
        """Counts of direction·output over n outputs that are never stored."""
        ...


@dataclass(frozen=True, eq=False)
class Releases:
    """Outputs by Plan.release, one at a time."""

    plan: Plan
    pair: Pair

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        rows: Records = (self.pair.left, self.pair.right)[side]
        generator = randomness.generator(seed)
        return np.array([self.plan.release(rows, generator).theta.ravel() for _ in range(n)])

    def project(self, side: int, direction: FloatArray, bins: Bins, n: int, seed: int) -> Counts:
        cells = bins.index(self.sample(side, n, seed) @ direction)
        return np.bincount(cells, minlength=bins.count)


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
        noise = self.output_noise * float(np.linalg.norm(direction))
        return self.engine.histogram(self.fits[side], direction, bins, n, seed, noise)


@dataclass(frozen=True, eq=False)
class FastLaw:
    """The noise of a plan whose fits the batched solver knows."""

    problem: Problem
    center: FloatArray
    noise: Perturbations
    output_noise: float


@singledispatch
def fast_law(plan: object) -> FastLaw | None:
    """The law of a plan's fits; None for plans that only `release` knows."""
    return None


@fast_law.register
def _(plan: QOPPlan) -> FastLaw | None:
    p = plan.parameters
    return FastLaw(plan.problem, plan.center.ravel(), Perturbations(p.sigma2, p.m, p.sigma0), p.sigma_tilde)


@fast_law.register
def _(plan: LOPPlan) -> FastLaw | None:
    p = plan.parameters
    noise = Perturbations(sigma0=p.sigma, ridge=p.Delta)
    return FastLaw(plan.problem, plan.center.ravel(), noise, p.sigma_tilde) if plan.clip is None else None


def sampler(plan: Plan, pair: Pair, engine: Backend) -> Sampler:
    """The fastest way to outputs of this plan on this pair."""
    law = fast_law(plan)
    if law is None:
        return Releases(plan, pair)
    left, right = (_fits(law, records) for records in (pair.left, pair.right))
    if left is None or right is None:
        return Releases(plan, pair)
    return Batches((left, right), law.output_noise, engine)


def density(plan: Plan) -> Density | None:
    """The exact density of θ_priv where it is known: smooth, unconstrained, one margin, d ≤ 2 for QOP."""
    law = fast_law(plan)
    if law is None or law.problem.loss.n_outputs != 1:
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
    ridge, penalty = terms
    noise = replace(law.noise, ridge=law.noise.ridge + ridge)
    match law.problem.loss:
        case Squared():
            moments = records.moments()
            linear = moments.xy[:, 0] - moments.xx @ law.center
            return QuadraticFits(moments.xx, linear, noise, penalty, law.center)
        case Logistic():
            return LogisticFits(records.x, records.y, noise, records.counts, penalty, law.center)
        case _:
            return None
