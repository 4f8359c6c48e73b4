"""Outputs of a plan on the two datasets of a pair: one release at a time, or in batches.

The slow way calls `Plan.release` and so audits the code that is shipped; it is there for every plan. The fast
way draws from the same law with many fits at once (the tests hold the two together) and makes millions of
fits cheap. A plan has a fast way when its class is registered here; a subclass that changes anything has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, singledispatch
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.densities import Density, LinearNoise, RandomCurvature
from curvedp.audit.fits import Backend, Bins, Fits, MarginFits, Penalty, Perturbations, QuadraticFits
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records
from curvedp.errors import InvalidInput, NotCertified
from curvedp.losses import Huber, Logistic, Squared, SquaredHinge
from curvedp.mechanisms.lop import LOPPlan
from curvedp.mechanisms.peers.dpsgd import DPSGDPlan
from curvedp.mechanisms.qop import QOPPlan
from curvedp.mechanisms.solved import SolvedPlan
from curvedp.mechanisms.statistics import StatisticsPlan, WishartGram
from curvedp.plans import Plan
from curvedp.problem import Problem
from curvedp.rows.base import Layout, Rows

Counts = NDArray[np.int64]


class Sampler(Protocol):
    """Outputs for D (side 0) and D' (side 1) of one pair."""

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        """n outputs, flattened, shape (n, size)."""
        ...


@dataclass(frozen=True, eq=False)
class Releases:
    """Outputs by Plan.release, one at a time. A refusal is an output too: it is NaN in every entry."""

    plan: Plan[Any, Any]
    rows: tuple[Rows, Rows]

    def sample(self, side: int, n: int, seed: int) -> FloatArray:
        generator = randomness.generator(seed)
        outputs = [self._release(self.rows[side], generator) for _ in range(n)]
        size = max(len(theta) for theta in outputs)
        return np.array([theta if len(theta) == size else np.full(size, np.nan) for theta in outputs])

    def _release(self, rows: Rows, generator: np.random.Generator) -> FloatArray:
        try:
            return flat(self.plan.release(rows, generator))
        except NotCertified:
            return np.full(1, np.nan)


def flat(released: Any) -> FloatArray:
    """Every number of a released value in one row: arrays, numbers, and dataclasses or collections of such.

    What is none of these, a text or a layout, says what is public about a value; it holds no number.
    """
    if is_dataclass(released):
        released = [getattr(released, field.name) for field in fields(released)]
    if isinstance(released, Mapping):
        released = list(released.values())
    if isinstance(released, (list, tuple)):
        return np.concatenate([np.zeros(0), *(flat(part) for part in released)])
    numbers = np.asarray(released)
    return np.ravel(numbers).astype(np.float64) if numbers.dtype.kind in "biuf" else np.zeros(0)


@dataclass(frozen=True, eq=False)
class ShownMoments:
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
    """Outputs by many fits at once, with the output noise that the plan adds."""

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
    """The noise of a plan whose fits can be made many at once."""

    problem: Problem
    center: FloatArray
    noise: Perturbations
    output_noise: Callable[[Records], float]
    clip: float | None = None


@singledispatch
def fast_law(plan: Plan[Any, Any]) -> FastLaw | None:
    """The law of the fits of a registered plan; None for plans that only `release` knows."""
    return None


@fast_law.register
def _(plan: QOPPlan) -> FastLaw:
    q = plan.parameters
    noise = Perturbations(q.sigma2, q.m, q.sigma0)
    return FastLaw(plan.problem, plan.center.ravel(), noise, partial(_output_noise, plan))


@fast_law.register
def _(plan: LOPPlan) -> FastLaw:
    p = plan.parameters
    noise = Perturbations(sigma0=p.sigma, ridge=p.Delta)
    return FastLaw(plan.problem, plan.center.ravel(), noise, partial(_output_noise, plan), plan.clip)


def _output_noise(plan: SolvedPlan, records: Records) -> float:
    """σ̃ for these records; where the plan counts them with noise, the count is taken as it is."""
    return 0.0 if plan.exact else plan.output(max(records.count(), 1), records.magnitude).sigma_tilde


@singledispatch
def fast_sampler(plan: Plan[Any, Any], pair: Pair, engine: Backend) -> Sampler | None:
    """Outputs in batches; None where the law of the fits, or the problem, is not one that batches know."""
    law = known(fast_law, plan)
    fits = [None if law is None else _fits(law, records) for records in (pair.left, pair.right)]
    if law is None or fits[0] is None or fits[1] is None:
        return None
    return Batches((fits[0], fits[1]), max(map(law.output_noise, (pair.left, pair.right))), engine)


@fast_sampler.register
def _(plan: StatisticsPlan, pair: Pair, engine: Backend) -> Sampler:
    return ShownMoments(plan, pair, engine)


@singledispatch
def rows_for(plan: Plan[Any, Any], records: Records) -> Rows:
    """The records in the form that the plan can read."""
    return records


@rows_for.register
def _(plan: DPSGDPlan, records: Records) -> Rows:
    return records.expanded()  # it samples records, so it needs them one by one


def pulls(plan: Plan[Any, Any]) -> list[float]:
    """Sizes of the shared gradient: the plan's own (`FitPlan.pulls`), or one that shows most mechanisms."""
    own: Callable[[], list[float]] | None = getattr(plan, "pulls", None)
    return [30.0 * layout_of(plan).domain.x_norm] if own is None else own()


def layout_of(plan: Plan[Any, Any]) -> Layout:
    """The layout of a plan for `Rows`: only those are attacked on records (x, y)."""
    if not isinstance(plan.layout, Layout):
        raise InvalidInput("pass a plan that releases from rows (x, y)")
    return plan.layout


def known(registry: Any, plan: Plan[Any, Any], *arguments: Any) -> Any:
    """What the registry says of the plan; None when its class changes one that is registered.

    A fast way that ignored an overridden method would audit code that is not shipped.
    """
    kind = next(c for c in type(plan).__mro__ if c in registry.registry)
    if kind is not object and _changed(type(plan), kind):
        return None
    return registry(plan, *arguments)


def _changed(cls: type, kind: type) -> bool:
    """Whether a class from `cls` up to its ancestor `kind` defines anything of its own."""
    below = cls.__mro__[: cls.__mro__.index(kind)]
    return any(not name.startswith(("__", "_abc_")) for c in below for name in vars(c))


def sampler(plan: Plan[Any, Any], pair: Pair, engine: Backend) -> Sampler:
    """The fastest way to outputs of this plan on this pair."""
    fast: Sampler | None = known(fast_sampler, plan, pair, engine)
    if fast is not None:
        return fast
    return Releases(plan, (rows_for(plan, pair.left), rows_for(plan, pair.right)))


def density(plan: Plan[Any, Any]) -> Density | None:
    """The exact density of θ_priv where it is known: smooth, unconstrained, one margin, d ≤ 2 for QOP."""
    law: FastLaw | None = known(fast_law, plan)
    if law is None or law.problem.loss.n_outputs != 1:
        return None
    if not unpenalized(law.problem, len(law.center)):
        return None
    noise = law.noise
    if noise.sigma2 == 0:
        return LinearNoise(noise.ridge, noise.sigma0, law.center, law.clip)
    if len(law.center) > 2 or noise.sigma0 == 0 or noise.m < 2:
        return None
    return RandomCurvature(noise.sigma2, noise.m, noise.sigma0, law.center, nodes=48)


def unpenalized(problem: Problem, d: int) -> bool:
    """Whether the problem is its loss alone."""
    return _penalty(problem, d) == (0.0, Penalty())


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
