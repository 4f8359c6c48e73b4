"""Quadratic objectives: min over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = θ − center, solved and certified."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from curvedp.constraints import Constraint
from curvedp.domain import UNIT_ROUNDOFF, FloatArray
from curvedp.errors import NotCertified
from curvedp.regularizers import Regularizer
from curvedp.solvers import exact
from curvedp.solvers.certificate import Element, norm_bound, strong_convexity
from curvedp.solvers.solution import EXACT, Error, Solution
from curvedp.solvers.terms import Separable, Terms, separable

_REFINEMENTS = 4


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(θ) = ½uᵀHu + gᵀu, u = θ − center, flattened in C order; H symmetric, known up to `error`."""

    H: FloatArray
    g: FloatArray
    center: FloatArray
    error: Error

    def certify(self, terms: Terms, theta: FloatArray, tail: FloatArray, eta: float) -> tuple[Element, float]:
        """(element at the point θ + tail, proved bound of ‖θ − argmin‖)."""
        hi, lo, rounding = exact.gradient(self.H, self.g, self.center, terms.l2, theta, tail)
        element = terms.smallest_element(theta, hi, lo)
        moved = norm_bound(tail)
        error = rounding + self.error.matrix * (norm_bound(theta - self.center) + moved) + self.error.vector
        ridge = float(terms.l2.min()) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        need = (norm_bound(element.s) + error) / max(eta - moved, UNIT_ROUNDOFF * eta)
        curvature = strong_convexity(self.H, need + self.error.matrix) - self.error.matrix + ridge
        lipschitz = norm_bound(self.H.ravel()) + self.error.matrix + float(terms.l2.max())
        return element, element.distance(error, lipschitz, curvature) + moved


def quadratic(H: FloatArray, g: FloatArray, center: FloatArray, error: Error = EXACT) -> Quadratic:
    """The form ½uᵀHu + gᵀu with H made symmetric (the form does not change; the rounding is counted)."""
    H = np.ascontiguousarray(H, dtype=np.float64)
    if not np.array_equal(H, H.T):
        error = Error(error.matrix + 2.0 * UNIT_ROUNDOFF * norm_bound(H.ravel()), error.vector)
        H = 0.5 * (H + H.T)
    return Quadratic(H, _flat(g), _flat(center), error)


def _flat(part: FloatArray) -> FloatArray:
    return np.ascontiguousarray(part, dtype=np.float64).ravel()


def solve_quadratic(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    regularizer: Regularizer,
    constraint: Constraint,
    eta: float,
    *,
    error: Error = EXACT,
    warm: FloatArray | None = None,
) -> Solution:
    """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = vec(θ − center), proved to within η; else NotCertified.

    θ and `center` have shape (d, K), H (dK, dK) in C order; `warm` is a first guess of θ.
    """
    d, n_outputs = center.shape
    f = quadratic(H, g, center, error)
    start = f.center if warm is None else _flat(warm)
    terms = separable(regularizer, constraint, (d, n_outputs))
    theta, distance = solve_separable(f, terms, eta, start)
    return certified(theta.reshape(center.shape), distance, eta)


def certified(theta: FloatArray, distance: float, eta: float) -> Solution:
    """The solution, or NotCertified when its distance exceeds η."""
    if not distance <= eta:
        raise NotCertified(
            f"double precision cannot prove that the optimum is within eta={eta:g}; nothing is released. "
            "Pass a larger eta, or more curvature (a smaller epsilon, a larger quadratic regularizer)"
        )
    return Solution(theta, distance)


def solve_path(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    terms: Iterable[tuple[Regularizer, Constraint]],
    eta: float,
    *,
    error: Error = EXACT,
) -> list[Solution]:
    """One quadratic under a sequence of (r, C), a path in ω or in κ: each solve starts at the last optimum."""
    path: list[Solution] = []
    for regularizer, constraint in terms:
        warm = path[-1].theta if path else None
        path.append(solve_quadratic(H, g, center, regularizer, constraint, eta, error=error, warm=warm))
    return path


def solve_separable(
    f: Quadratic, terms: Separable, eta: float, start: FloatArray
) -> tuple[FloatArray, float]:
    """(θ, certified distance); the distance exceeds η only if double precision cannot do better."""
    theta, free, H = terms.minimize_on_face(f.H, f.g, f.center, start)
    tail = np.zeros_like(theta)
    element, distance = f.certify(terms, theta, tail, eta)
    if distance <= eta:
        return theta, distance
    free = free[(theta[free] > terms.low[free]) & (theta[free] < terms.high[free])]
    kinked = terms.l1 > 0.0
    try:
        factor = cho_factor(H[np.ix_(free, free)])
    except LinAlgError:
        return theta, distance
    best = theta, distance
    for _ in range(_REFINEMENTS):
        # The proof is about the point θ + tail, |tail| below the last bit of θ, so that the rounding of θ
        # costs its own size and not its size times the conditioning.
        tail[free] -= cho_solve(factor, element.s[free])
        moved = theta + tail
        crossed = kinked & (np.sign(moved) != np.sign(theta))
        if crossed.any() or np.any((moved[free] <= terms.low[free]) | (moved[free] >= terms.high[free])):
            break
        tail -= moved - theta
        theta = moved
        element, distance = f.certify(terms, theta, tail, eta)
        best = min(best, (theta, distance), key=lambda pair: pair[1])
        if distance <= eta:
            break
    return best
