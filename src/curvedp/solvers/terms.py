"""The nonsmooth part r + ι_C of an objective, as a solver and a certificate see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numba import njit

from curvedp.constraints import Constraint
from curvedp.domain import FloatArray
from curvedp.regularizers import Regularizer
from curvedp.solvers import kernel
from curvedp.solvers.certificate import Element


class Terms(Protocol):
    """r + ι_C on θ flattened in C order; r = its quadratic part Σ l2_j θ_j²/2 and a rest r̄."""

    @property
    def l2(self) -> FloatArray: ...

    def project(self, theta: FloatArray) -> FloatArray:
        """The point of C nearest to θ."""
        ...

    def minimize(self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray) -> FloatArray:
        """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = θ − center, as well as double precision can."""
        ...

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> Element:
        """A small element of v + ∂r̄(θ) + N_C(θ), v = hi + lo; the smallest where it has a closed form."""
        ...

    def slope(self, theta: FloatArray, v: FloatArray, step: FloatArray) -> float:
        """⟨v + p, step⟩ for a p ∈ ∂r̄(θ) that makes it small."""
        ...


@njit(cache=True, nogil=True)
def _smallest_element(theta, l1, low, high, hi, lo):  # type: ignore[no-untyped-def]
    s = np.empty(theta.size)
    for j in range(theta.size):
        t = theta[j]
        if t > 0.0:
            a, b = l1[j], l1[j]
        elif t < 0.0:
            a, b = -l1[j], -l1[j]
        else:
            a, b = -l1[j], l1[j]
        if t <= low[j]:
            a = -np.inf
        if t >= high[j]:
            b = np.inf
        if hi[j] + a + lo[j] > 0.0:
            s[j] = (hi[j] + a) + lo[j]
        elif hi[j] + b + lo[j] < 0.0:
            s[j] = (hi[j] + b) + lo[j]
        else:
            s[j] = 0.0
    return s


@dataclass(frozen=True, eq=False)
class Separable:
    """r(θ) = Σ_j l1_j|θ_j| + l2_j θ_j²/2 on C = {low ≤ θ ≤ high}."""

    l1: FloatArray
    l2: FloatArray
    low: FloatArray
    high: FloatArray

    def project(self, theta: FloatArray) -> FloatArray:
        return np.minimum(np.maximum(theta, self.low), self.high)

    def minimize(self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray) -> FloatArray:
        return self.minimize_on_face(H, g, center, start)[0]

    def minimize_on_face(
        self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(argmin, its free coordinates, the curvature H + diag(l2))."""
        if self.ridge:
            H = H + np.diag(self.l2)
            g = g + self.l2 * center
        low, high = self.low - center, self.high - center
        u, status = kernel.minimize(H, g, -center, self.l1, low, high, start - center)
        theta = self.project(center + u)
        theta[status == kernel.KINK] = 0.0
        theta[status == kernel.LOWER] = self.low[status == kernel.LOWER]
        theta[status == kernel.UPPER] = self.high[status == kernel.UPPER]
        return theta, np.flatnonzero(status == kernel.FREE), H

    @cached_property
    def ridge(self) -> bool:
        return bool(self.l2.any())

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> Element:
        """In each coordinate kink and interval contribute [a, b]: ±l1 off the kink, [−l1, l1] on it, with
        a = −∞ at the lower bound and b = +∞ at the upper one."""
        return Element(_smallest_element(theta, self.l1, self.low, self.high, hi, lo))

    def slope(self, theta: FloatArray, v: FloatArray, step: FloatArray) -> float:
        kinks = np.where(theta == 0.0, -np.abs(step), np.sign(theta) * step)
        return float(v @ step + self.l1 @ kinks)


def terms_of(regularizer: Regularizer, constraint: Constraint, shape: tuple[int, ...]) -> Separable:
    return separable(regularizer, constraint, shape)


def separable(regularizer: Regularizer, constraint: Constraint, shape: tuple[int, ...]) -> Separable | None:
    """The pair as a `Separable`, or None when either couples coordinates."""
    weights, interval = regularizer.separable(*shape), constraint.interval(*shape)
    if weights is None or interval is None:
        return None
    return Separable(*(np.ascontiguousarray(part, dtype=np.float64).ravel() for part in weights + interval))
