"""The nonsmooth part r + ι_C of an objective, as a solver and a certificate see it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from curvedp.arrays import BoolArray, FloatArray
from curvedp.constraints import Constraint
from curvedp.regularizers import Regularizer
from curvedp.solvers.certificate import Element, norm_bound
from curvedp.solvers.separable import Enough, Separable
from curvedp.solvers.splitting import Coupled


class Terms(Protocol):
    """r + ι_C on θ flattened in C order; r = its quadratic part Σ l2_j θ_j²/2 and a rest r̄."""

    @property
    def l2(self) -> FloatArray: ...

    @property
    def subgradient_bound(self) -> float:
        """G ≥ ‖p‖ for every p ∈ ∂r̄."""
        ...

    def project(self, theta: FloatArray) -> FloatArray:
        """The point of C nearest to θ."""
        ...

    def minimize(
        self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray, enough: Enough
    ) -> FloatArray:
        """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = θ − center, until some θ is good enough or as far as
        double precision goes."""
        ...

    def movable(self, theta: FloatArray) -> BoolArray:
        """Coordinates that may move by less than their last bit, each on its own, and leave ∂r̄, N_C alone."""
        ...

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> Element:
        """A small element of v + ∂r̄(θ) + N_C(θ), v = hi + lo; the smallest where it has a closed form."""
        ...

    def slope(self, theta: FloatArray, v: FloatArray, step: FloatArray) -> float:
        """⟨v + p, step⟩ for a p ∈ ∂r̄(θ) that makes it small."""
        ...


def terms_of(regularizer: Regularizer, constraint: Constraint, shape: tuple[int, int]) -> Separable | Coupled:
    """The pair (r, C), with whatever of it is separable told apart."""
    weights, interval = regularizer.separable(*shape), constraint.interval(*shape)
    l1, l2 = weights or (np.zeros(shape), np.zeros(shape))
    low, high = interval or (np.full(shape, -np.inf), np.full(shape, np.inf))
    rest = Separable(l1.ravel(), l2.ravel(), low.ravel(), high.ravel())
    if weights is not None and interval is not None:
        return rest
    return Coupled(regularizer, constraint, shape, rest, weights is None, interval is None)


def within(
    terms: Terms, H: FloatArray, g: FloatArray, center: FloatArray, tolerance: float, curvature: float = 0.0
) -> Enough:
    """Good enough for `Terms.minimize`: the residual at θ is at most `tolerance`, drift included; κI ≼ H."""
    size = norm_bound(H.ravel())

    def enough(theta: FloatArray) -> bool:
        v = H @ (theta - center) + g + terms.l2 * theta
        return terms.smallest_element(theta, v, np.zeros_like(v)).residual(size, curvature) <= tolerance

    return enough
