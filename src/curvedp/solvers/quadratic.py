"""Quadratic objectives: min over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = θ − center, solved and certified."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from curvedp.constraints import Constraint
from curvedp.domain import FloatArray
from curvedp.errors import NotCertified
from curvedp.regularizers import Regularizer
from curvedp.solvers import exact, kernel
from curvedp.solvers.certificate import Separable, norm_bound, separable, strong_convexity
from curvedp.solvers.exact import UNIT
from curvedp.solvers.solution import EXACT, Error, Solution

_REFINEMENTS = 4


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(θ) = ½uᵀHu + gᵀu, u = θ − center, flattened in C order; H symmetric, known up to `error`."""

    H: FloatArray
    g: FloatArray
    center: FloatArray
    error: Error

    def gradient_error(self, theta: FloatArray) -> float:
        """What `error` can do to ∇f(θ)."""
        return self.error.matrix * norm_bound(theta - self.center) + self.error.vector

    def strong_convexity(self, need: float = 0.0) -> float:
        """A proved lower bound of the curvature of the exact f."""
        return max(0.0, strong_convexity(self.H, need + self.error.matrix) - self.error.matrix)


def quadratic(H: FloatArray, g: FloatArray, center: FloatArray, error: Error) -> Quadratic:
    """The form ½uᵀHu + gᵀu with H made symmetric (the form does not change; the rounding is counted)."""
    H = np.ascontiguousarray(H, dtype=np.float64)
    if not np.array_equal(H, H.T):
        error = Error(error.matrix + 2.0 * UNIT * norm_bound(H.ravel()), error.vector)
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
    terms = separable(regularizer, constraint, d, n_outputs)
    start = f.center if warm is None else np.asarray(warm, dtype=np.float64).ravel()
    theta, distance = solve_separable(f, terms, eta, start)
    if not distance <= eta:
        raise NotCertified(refusal(eta))
    return Solution(theta.reshape(center.shape), distance)


def refusal(eta: float) -> str:
    return (
        f"double precision cannot prove that the optimum is within eta={eta:g}; nothing is released. "
        "Pass a larger eta, or more curvature (a smaller epsilon, a larger quadratic regularizer)"
    )


def solve_path(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    terms: Iterable[tuple[Regularizer, Constraint]],
    eta: float,
    *,
    error: Error = EXACT,
) -> list[Solution]:
    """One quadratic under a sequence of (r, C), a path in ω or in κ: each solve starts at the last solution."""
    path: list[Solution] = []
    for regularizer, constraint in terms:
        warm = path[-1].theta if path else None
        path.append(solve_quadratic(H, g, center, regularizer, constraint, eta, error=error, warm=warm))
    return path


def solve_separable(
    f: Quadratic, terms: Separable, eta: float, start: FloatArray
) -> tuple[FloatArray, float]:
    """(θ, certified distance); the distance exceeds η only if double precision cannot do better."""
    ridge = bool(terms.l2.any())
    H = f.H + np.diag(terms.l2) if ridge else f.H
    g = f.g + terms.l2 * f.center if ridge else f.g
    u, status = kernel.minimize(
        H, g, -f.center, terms.l1, terms.low - f.center, terms.high - f.center, start - f.center
    )
    theta = np.minimum(np.maximum(f.center + u, terms.low), terms.high)
    theta[status == kernel.KINK] = 0.0
    theta[status == kernel.LOWER] = terms.low[status == kernel.LOWER]
    theta[status == kernel.UPPER] = terms.high[status == kernel.UPPER]
    tail = np.zeros_like(theta)
    s, distance = _certify(f, terms, theta, tail, eta)
    if distance <= eta:
        return theta, distance
    free = np.flatnonzero(status == kernel.FREE)
    try:
        factor = cho_factor(H[np.ix_(free, free)])
    except LinAlgError:
        return theta, distance
    best = theta, distance
    for _ in range(_REFINEMENTS):
        # The proof is about the point θ + tail, |tail| below the last bit of θ, so that the rounding of θ
        # costs its own size and not its size times the conditioning.
        tail[free] -= cho_solve(factor, s[free])
        moved = theta + tail
        if np.any((np.sign(moved) != np.sign(theta)) | (moved < terms.low) | (moved > terms.high)):
            return best
        tail -= moved - theta
        theta = moved
        s, distance = _certify(f, terms, theta, tail, eta)
        if distance < best[1]:
            best = theta, distance
        if distance <= eta:
            break
    return best


def _certify(
    f: Quadratic, terms: Separable, theta: FloatArray, tail: FloatArray, eta: float
) -> tuple[FloatArray, float]:
    """(s, proved bound of ‖θ − argmin‖) from the smallest element s at the point θ + tail."""
    hi, lo, rounding = exact.gradient(f.H, f.g, f.center, terms.l2, theta, tail)
    s = terms.smallest_element(theta, hi, lo)
    moved = norm_bound(tail)
    total = norm_bound(s) + rounding + f.gradient_error(theta) + f.error.matrix * moved
    ridge = float(terms.l2.min())
    curvature = f.strong_convexity(total / max(eta - moved, UNIT * eta)) + ridge * (1.0 - 4.0 * UNIT)
    return s, total / curvature * (1.0 + 8.0 * UNIT) + moved if curvature > 0.0 else np.inf
