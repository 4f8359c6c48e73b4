"""Quadratic objectives: min over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = θ − center, solved and certified."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray
from curvedp.constraints import Constraint
from curvedp.errors import NotCertified
from curvedp.problem import Problem
from curvedp.regularizers import Regularizer
from curvedp.rows.base import Moments
from curvedp.solvers.certificate import (
    Element,
    exact_gradient,
    is_symmetric,
    norm_bound,
    quick_curvature,
    sharp_curvature,
    two_sum,
)
from curvedp.solvers.solution import Perturbation, Solution
from curvedp.solvers.terms import Terms, terms_of

_REFINEMENTS = 4  # each gains the digits that the factorisation has right


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(θ) = ½uᵀ(H + tail)u + gᵀu, u = θ − center, flattened in C order.

    H is symmetric and within `H_error` of the exact one (‖·‖₂), g within `g_error`; `tail`, if any, is what
    H lost when it was rounded to double precision.
    """

    H: FloatArray
    g: FloatArray
    center: FloatArray
    H_error: float = 0.0
    g_error: float = 0.0
    tail: FloatArray | None = None

    @cached_property
    def _off(self) -> float:
        """‖exact matrix − H‖ is at most this."""
        return self.H_error + (0.0 if self.tail is None else norm_bound(self.tail.ravel()))

    @cached_property
    def quick_curvature(self) -> float:
        return max(0.0, quick_curvature(self.H) - self._off)

    @cached_property
    def sharp_curvature(self) -> float:
        return max(0.0, sharp_curvature(self.H) - self._off)

    @cached_property
    def lipschitz(self) -> float:
        return norm_bound(self.H.ravel()) + self._off

    def certify(self, terms: Terms, theta: FloatArray, tail: FloatArray, eta: float) -> tuple[Element, float]:
        """(element at the point θ + tail, proved bound of ‖θ − argmin‖)."""
        hi, lo, rounding = exact_gradient(self.H, self.g, self.center, terms.l2, theta, tail)
        if self.tail is not None:
            u = theta - self.center
            lo = lo + self.tail @ u
            rounding += (u.size + 4) * UNIT_ROUNDOFF * self._off * norm_bound(u)
        element = terms.smallest_element(theta, hi, lo)
        moved = norm_bound(tail)
        error = rounding + self.H_error * (norm_bound(theta - self.center) + moved) + self.g_error
        ridge = float(terms.l2.min()) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        lipschitz = self.lipschitz + float(terms.l2.max()) if element.drift > 0.0 else 0.0
        distance = element.distance(error, lipschitz, self.quick_curvature + ridge) + moved
        if not distance <= eta:
            distance = element.distance(error, lipschitz, self.sharp_curvature + ridge) + moved
        return element, distance


def quadratic(
    H: FloatArray, g: FloatArray, center: FloatArray, H_error: float = 0.0, g_error: float = 0.0
) -> Quadratic:
    """The form ½uᵀHu + gᵀu with H made symmetric (the form does not change; the rounding is counted)."""
    H = np.ascontiguousarray(H, dtype=np.float64)
    if not is_symmetric(H):
        H_error += 2.0 * UNIT_ROUNDOFF * norm_bound(H.ravel())
        H = 0.5 * (H + H.T)
    return Quadratic(H, _flat(g), _flat(center), H_error, g_error)


def _flat(part: FloatArray) -> FloatArray:
    """A writable copy in C order: the one layout that the kernels are compiled for."""
    return np.array(part, dtype=np.float64, order="C").ravel()


def solve_quadratic(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    regularizer: Regularizer,
    constraint: Constraint,
    eta: float,
    *,
    H_error: float = 0.0,
    g_error: float = 0.0,
    warm: FloatArray | None = None,
) -> Solution:
    """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = vec(θ − center), proved to within η; else NotCertified.

    θ and `center` have shape (d, K), H (dK, dK) in C order; `warm` is a first guess of θ.
    """
    f = quadratic(H, g, center, H_error, g_error)
    return _solve_form(f, center.shape, regularizer, constraint, eta, warm)


def solve_path(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    terms: Iterable[tuple[Regularizer, Constraint]],
    eta: float,
) -> list[Solution]:
    """One quadratic under a sequence of (r, C), a path in ω or in κ, each solve started at the last one."""
    f = quadratic(H, g, center)
    path: list[Solution] = []
    for regularizer, constraint in terms:
        warm = path[-1].theta if path else None
        path.append(_solve_form(f, center.shape, regularizer, constraint, eta, warm))
    return path


def solve_moments(problem: Problem, moments: Moments, perturbation: Perturbation, eta: float) -> Solution:
    """Squared loss: the Hessian is XᵀX + Q, and the gradient at θ_c is g = XᵀXθ_c − Xᵀy + a."""
    p = perturbation
    data = quadratic(moments.xx, -moments.xy, np.zeros_like(p.center))
    own = quadratic(p.quadratic, p.linear, p.center)
    none = np.zeros_like(own.center)
    at_center, low, rounding = exact_gradient(data.H, data.g, none, none, own.center, none)
    H, tail = two_sum(data.H, own.H)
    g, g_tail = two_sum(at_center, own.g)
    g = g + (g_tail + low)
    data_error = moments.error + data.H_error
    g_error = data_error * (1.0 + norm_bound(own.center)) + rounding + 2.0 * UNIT_ROUNDOFF * norm_bound(g)
    f = Quadratic(H, g, own.center, data_error + own.H_error, g_error, tail)
    return _solve_form(f, p.center.shape, problem.regularizer, problem.constraint, eta)


def _solve_form(
    f: Quadratic,
    shape: tuple[int, ...],
    regularizer: Regularizer,
    constraint: Constraint,
    eta: float,
    warm: FloatArray | None = None,
) -> Solution:
    """argmin over θ ∈ C of f + r, θ of the given shape (d, K)."""
    terms = terms_of(regularizer, constraint, (shape[0], shape[1]))
    start = f.center if warm is None else _flat(warm)
    if not f.quick_curvature + float(terms.l2.min()) > 0.0:
        return certified(start.reshape(shape), np.inf, eta)
    none = np.zeros(f.g.size)
    theta = terms.minimize(
        f.H, f.g, f.center, start, lambda theta: f.certify(terms, theta, none, eta)[1] <= eta
    )
    element, distance = f.certify(terms, theta, none, eta)
    if not distance <= eta:
        theta, distance = _refine(f, terms, theta, element, distance, eta)
    return certified(theta.reshape(shape), distance, eta)


def certified(theta: FloatArray, distance: float, eta: float) -> Solution:
    """The solution, or NotCertified when its distance exceeds η."""
    if not distance <= eta:
        raise NotCertified(
            f"double precision cannot prove that the optimum is within eta={eta:g}; nothing is released. A "
            "plan asks for what can be proved of every table: if it came from one, please report this"
        )
    return Solution(theta, distance)


def _refine(
    f: Quadratic, terms: Terms, theta: FloatArray, element: Element, distance: float, eta: float
) -> tuple[FloatArray, float]:
    """Newton steps on the movable coordinates, in twice the working precision: (θ, certified distance).

    The proof is about the point θ + tail, |tail| below the last bit of θ, so that the rounding of θ costs its
    own size and not its size times the conditioning.
    """
    free = terms.movable(theta)
    try:
        factor = cho_factor((f.H + np.diag(terms.l2))[np.ix_(free, free)])
    except LinAlgError:
        return theta, distance
    best, tail = (theta, distance), np.zeros_like(theta)
    for _ in range(_REFINEMENTS if free.any() else 0):
        tail[free] -= cho_solve(factor, element.s[free])
        moved = theta + tail
        if not terms.movable(moved)[free].all():
            break
        tail -= moved - theta
        theta = moved
        element, distance = f.certify(terms, theta, tail, eta)
        best = min(best, (theta, distance), key=lambda pair: pair[1])
        if distance <= eta:
            break
    return best
