"""What double precision can certify, from public numbers alone: a bound that holds for every table.

A certificate is D = (‖s‖ + rounding)/κ (section 7). Everything in it but ‖s‖ is bounded here by the number of
rows, the public bounds of a record, and bounds of the noise that was drawn; a solver brings ‖s‖ below that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.errors import NotCovered
from curvedp.losses import Huber, Logistic, Loss, Multinomial, OneVsRest, Squared, SquaredHinge, Weighted
from curvedp.problem import Problem
from curvedp.rows.base import Layout
from curvedp.rows.rounding import gradient_error_bound, moments_error_bound
from curvedp.solvers.certificate import Element, proves_curvature
from curvedp.solvers.solution import Perturbation
from curvedp.solvers.terms import Coupled, Terms, terms_of

_DRIFT = 64.0  # (size + 32) roundings of θ each: how far it is from the face that a certificate takes it for
_WIDE = 0.05  # of the bound of ‖θ‖


@dataclass(frozen=True)
class NoiseBounds:
    """curvature·I ≼ Q, tr Q ≤ trace and ‖a‖ ≤ linear, of a perturbation that was drawn."""

    curvature: float
    trace: float
    linear: float

    def hold(self, p: Perturbation) -> bool:
        """Whether they are true of p; no record is asked."""
        small = float(np.linalg.norm(p.linear)) <= self.linear and float(np.trace(p.quadratic)) <= self.trace
        return bool(small and proves_curvature(p.quadratic, 0.999 * self.curvature))


@dataclass(frozen=True, eq=False)
class Certifiable:
    """An objective without its records: what can be proved of any minimiser of it."""

    problem: Problem
    center: FloatArray  # θ_c, shape (d, K)
    noise: NoiseBounds
    eta: float  # the least distance that is asked for
    clipped: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.terms, Coupled) and self.terms.couples_r and self.terms.couples_C:
            raise NotCovered(
                "no accuracy can be promised for every table when the regularizer and the constraint both "
                "couple coordinates; pass a Box or no constraint, an L1 or L2 regularizer, or choose the "
                "mechanism recentered"
            )

    @property
    def d(self) -> int:
        return len(self.center)

    @cached_property
    def terms(self) -> Terms:
        return terms_of(self.problem.regularizer, self.problem.constraint, (self.d, self.center.shape[1]))

    def reach(self, rows: float) -> float:
        """R ≥ ‖θ_priv‖ for so many rows.

        With θ_1 the point of C next to θ_c and u = θ_priv − θ_1, optimality and convexity of r give
        κ‖u‖² ≤ −Σ⟨∇ℓ(θ_priv), u⟩ + (‖a‖ + tr Q·‖θ_1 − θ_c‖)‖u‖ + r(θ_1), and the sum has two bounds.
        """
        radius = self.problem.radius(self.d)
        if math.isfinite(radius):
            return radius
        noise, domain, loss = self.noise, self.problem.domain, self.problem.loss
        start = self.problem.constraint.project(self.center)
        norm, away = float(np.linalg.norm(start)), float(np.linalg.norm(start - self.center))
        slope, rest = noise.linear + noise.trace * away, self.problem.regularizer.value(start)
        gain = rows * _largest_gain(loss, domain.x_norm * norm, domain.y_bound)
        steepness = rows * loss.center_bound(domain, norm)  # ⟨∇ℓ(θ) − ∇ℓ(θ_1), u⟩ ≥ 0
        return norm + min(
            _root(noise.curvature, slope, rest + gain), _root(noise.curvature, slope + steepness, rest)
        )

    def distance(self, rows: float, magnitude: float) -> float:
        """D for every table of so many records of this magnitude; infinite where nothing can be proved.

        At any ‖θ‖ ≤ 1.1 R + η, that is, at every θ within η or 2 D of θ_priv as long as D ≤ 0.05 R.
        """
        noise, loss, size = self.noise, self.problem.loss, self.center.size
        at_center = float(np.linalg.norm(self.center))
        reach = self.reach(rows)
        norm = max(1.1 * reach + self.eta, at_center)
        ridge = float(self.terms.l2.max())
        stiff = rows * self.problem.smoothness(self.d, self.center) + noise.trace + ridge
        # Sizes of the terms that cancel in s: the data's, the perturbation's, those of r.
        sizes = rows * loss.gradient_bound(self.problem.domain, norm) + noise.linear
        sizes += stiff * (norm + at_center) + self.terms.subgradient_bound
        error = self.data_error(rows, magnitude, norm) + self._roundings * UNIT_ROUNDOFF * sizes
        margin = 8.0 * (size + 4) * UNIT_ROUNDOFF * size * stiff  # of a proof of curvature
        curvature = (0.99 if margin < 1e-3 * noise.curvature else 0.45) * noise.curvature - margin
        if self._through_moments:
            curvature -= self._moments_error(rows, magnitude)
        drift = spread = 0.0
        if isinstance(self.terms, Coupled):  # a certificate may have to take two subgradients at two points
            drift = _DRIFT * (size + 32) * UNIT_ROUNDOFF * norm
            spread = 2.0 * self.terms.subgradient_bound
        distance = Element(np.zeros(0), error, drift, spread).distance(0.0, stiff, curvature)
        inside = math.isfinite(self.problem.radius(self.d)) or distance <= _WIDE * reach
        return distance if inside else math.inf

    def data_error(self, rows: float, magnitude: float, norm: float) -> float:
        """Of the computed Σ∇ℓ(θ; z_i) at any ‖θ‖ ≤ norm; bounds for ROWS_AT_MOST rows are linear in them."""
        if self._through_moments:
            outside = float(np.linalg.norm(self.center))
            return self._moments_error(rows, magnitude) * (norm + 2.0 * outside + 2.0)
        layout = Layout.of(self.problem, self.d)
        return gradient_error_bound(layout, self.problem.loss, norm, magnitude) * rows / ROWS_AT_MOST

    @property
    def _through_moments(self) -> bool:
        return self.problem.loss.is_quadratic and not self.clipped

    @property
    def _roundings(self) -> float:
        """What a certificate counts of its own rounding, and a solver may leave of s, in units u·sizes."""
        size = self.center.size
        return 8.0 * (size + 32) if isinstance(self.terms, Coupled) else 16.0 * math.sqrt(size)

    def _moments_error(self, rows: float, magnitude: float) -> float:
        return moments_error_bound(Layout.of(self.problem, self.d), magnitude) * rows / ROWS_AT_MOST


def _root(curvature: float, slope: float, gain: float) -> float:
    """The largest x with κx² ≤ slope·x + gain, rounded up."""
    return (slope + math.sqrt(slope * slope + 4.0 * curvature * gain)) / (2.0 * curvature) * (1 + 1e-12)


def _largest_gain(loss: Loss, reach: float, y_bound: float) -> float:
    """sup −⟨φ'(s), s − s_1⟩ over all s, |s_1| ≤ reach and all targets; infinite where no formula is known.

    By convexity at most sup φ(s_1) − inf φ: these losses are ≥ 0, and largest at the ends of s_1 and y.
    """
    match loss:
        case Squared():  # (s − y)(s − s_1) ≥ −(y − s_1)²/4
            return (reach + y_bound) ** 2 / 4.0 * (1 + 1e-12)
        case Weighted():  # a fraction of it
            return _largest_gain(loss.inner, reach, y_bound)
        case Multinomial():
            return math.log(loss.n_classes) + math.sqrt(2.0) * reach
        case OneVsRest():
            return loss.n_classes * _largest_gain(loss.base, reach, y_bound)
        case Huber():
            ends = np.array([y_bound, -y_bound])
        case Logistic() | SquaredHinge():
            ends = np.array([1.0, -1.0])
        case _:
            return math.inf
    values = [loss.value(np.full((2, 1), s), ends) for s in (reach, -reach)]
    return float(np.max(values)) * (1 + 1e-12)
