"""`solve`: quadratic losses through their second moments, every other loss by proximal Newton with a frozen
Hessian and gradient-only passes.

A step minimises the quadratic model (∇f(θ), H) plus r over C; H is a Hessian of f at an earlier point, mended
by the gradients seen since then, and renewed when the residual shrinks slowly. A step with a new Hessian
that does not halve the smallest residual so far is shortened until the derivative along it is no longer
positive: F is convex, so that point gains at least half of what the best one on the segment would. Every step
thus halves the smallest residual, which it can do a few dozen times only, or makes a definite share of the
possible descent, whatever the data, and no objective value is ever compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.errors import InvalidInput
from curvedp.solvers.certificate import (
    Element,
    exact_gradient,
    norm_bound,
    sharp_curvature,
)
from curvedp.solvers.quadratic import Quadratic, certified, quadratic, solve_moments
from curvedp.solvers.solution import Objective, Solution
from curvedp.solvers.terms import Terms, terms_of, within

_SLOW = 0.25  # a step that leaves more of the residual than this asks for a new Hessian
_ENOUGH = 0.5  # a full step that leaves at most this needs no line search
_INEXACT = 1e-3  # share of the residual that the minimiser of a model may leave
_PART = 0.2  # of η, for the residual; what remains is for rounding
_SHORTEST = 2.0**-40  # below this only rounding is left to gain
_STEPS = 10_000  # far more than any table was seen to need


@dataclass(frozen=True, eq=False)
class _Point:
    """θ, the gradient of all that is smooth (the quadratic part of r included) and the element it gives."""

    theta: FloatArray
    gradient: FloatArray
    element: Element
    rounding: float  # of the gradient of the perturbation
    residual: float


@dataclass(frozen=True, eq=False)
class _Smooth:
    """f(θ) = Σ ℓ(θ; z_i) + perturbation, beside the r and C that go with it."""

    objective: Objective
    perturbation: Quadratic
    terms: Terms

    @property
    def shape(self) -> tuple[int, ...]:
        return self.objective.perturbation.center.shape

    @cached_property
    def curvature(self) -> float:
        """κ_s: the perturbation's, plus that of r; the loss is convex."""
        own = sharp_curvature(self.perturbation.H) - self.perturbation.H_error
        return own + float(self.terms.l2.min()) * (1.0 - 4.0 * UNIT_ROUNDOFF)

    @cached_property
    def lipschitz(self) -> float:
        """nL + ‖Q‖ + max l2 ≥ the Lipschitz constant of ∇f on C."""
        rows = self.objective.rows
        own = norm_bound(self.perturbation.H.ravel()) + float(self.terms.l2.max())
        return (rows.count() * self.objective.problem.smoothness(rows.d) + own) * (1.0 + 8.0 * UNIT_ROUNDOFF)

    def hessian(self, theta: FloatArray) -> FloatArray:
        """A (generalised) Hessian of f at θ."""
        loss, clip = self.objective.problem.loss, self.objective.clip
        data = self.objective.rows.hessian_sum(loss, theta.reshape(self.shape), clip)
        return 0.5 * (data + data.T) + self.perturbation.H

    def at(self, theta: FloatArray) -> _Point:
        """One gradient pass."""
        loss, clip = self.objective.problem.loss, self.objective.clip
        data = self.objective.rows.gradient_sum(loss, theta.reshape(self.shape), clip).ravel()
        q = self.perturbation
        hi, lo, rounding = exact_gradient(q.H, q.g, q.center, self.terms.l2, theta, np.zeros_like(theta))
        rounding += q.H_error * norm_bound(theta - q.center)
        rounding += 2.0 * UNIT_ROUNDOFF * (norm_bound(data) + norm_bound(hi))
        element = self.terms.smallest_element(theta, data + hi, lo)
        lipschitz = self.lipschitz if element.drift > 0.0 else 0.0
        return _Point(theta, data + hi, element, rounding, element.residual(lipschitz, self.curvature))

    def distance(self, point: _Point) -> float:
        """The certified distance of the point to the optimum; one pass, for the rounding of the gradient."""
        loss = self.objective.problem.loss
        error = point.rounding + self.objective.rows.gradient_error(loss, point.theta.reshape(self.shape))
        lipschitz = self.lipschitz if point.element.drift > 0.0 else 0.0
        return point.element.distance(error, lipschitz, self.curvature)

    def model_minimum(self, H: FloatArray, point: _Point) -> FloatArray:
        """argmin of the model (∇f, H) at the point, plus r, over C; up to a share of the point's residual."""
        linear = point.gradient - self.terms.l2 * point.theta
        enough = within(self.terms, H, linear, point.theta, _INEXACT * point.residual, self.curvature)
        return self.terms.minimize(H, linear, point.theta, point.theta, enough)

    def shortened(self, start: _Point, step: FloatArray, full: _Point) -> _Point | None:
        """The first of start + step, start + step/2, … at which F does not increase along the step."""
        t, point = 1.0, full
        while not self.terms.slope(point.theta, point.gradient, step) <= 0.0:
            t /= 2.0
            if t < _SHORTEST:
                return None
            point = self.at(self.terms.project(start.theta + t * step))
        return point


def solve(objective: Objective, eta: float) -> Solution:
    """argmin of the objective with a proved distance of at most η; NotCertified when there is no proof."""
    if not (np.isfinite(eta) and eta > 0):
        raise InvalidInput(f"eta must be a positive number, the distance to be proved; got {eta!r}")
    if objective.problem.loss.is_quadratic and objective.clip is None:
        return solve_moments(objective.problem, objective.rows.moments(), objective.perturbation, eta)
    return solve_glm(objective, eta)


def solve_glm(objective: Objective, eta: float) -> Solution:
    """argmin of the objective, proved to within η; else NotCertified."""
    p, problem = objective.perturbation, objective.problem
    q = quadratic(p.quadratic, p.linear, p.center)
    f = _Smooth(objective, q, terms_of(problem.regularizer, problem.constraint, p.center.shape))
    point = f.at(f.terms.project(q.center))
    H: FloatArray | None = None
    fresh, best = False, point.residual
    for _ in range(_STEPS if f.curvature > 0.0 else 0):
        if point.residual <= _PART * eta * f.curvature:
            break  # if rounding takes more than the rest of η, no further step helps
        if H is None:
            H, fresh = f.hessian(point.theta), True
        trial = f.at(f.model_minimum(H, point))
        share = trial.residual / point.residual
        if not trial.residual <= _ENOUGH * best:
            if not fresh:
                H = None
                continue
            shorter = f.shortened(point, trial.theta - point.theta, trial)
            if shorter is None:
                break
            trial = shorter
        change = trial.gradient - point.gradient - f.terms.l2 * (trial.theta - point.theta)
        H = _secant(H, trial.theta - point.theta, change)
        if not share <= _SLOW:
            H = None
        point, fresh, best = trial, False, min(best, trial.residual)
    return certified(point.theta.reshape(p.center.shape), f.distance(point), eta)


def _secant(H: FloatArray, step: FloatArray, change: FloatArray) -> FloatArray:
    """The matrix next to H (BFGS) that maps the step to the change of the gradient along it."""
    image = H @ step
    model, actual = float(step @ image), float(step @ change)
    if not (model > 0.0 and actual > 0.0):
        return H
    return np.asarray(H - np.outer(image, image) / model + np.outer(change, change) / actual)
