"""Regularizers or sets that couple coordinates: Douglas–Rachford splitting with Anderson acceleration.

What is separable of r and C stays with the quadratic, in the compiled kernel; each remaining term i has its
own copy z_i of θ, reached through its prox (for a set, its projection):

    z_i = prox_{r_i/ρ}(w_i),   x = argmin f + separable part + (ρ/2) Σ_i ‖x − (2z_i − w_i)‖²,
    w_i ← w_i + x − z_i.

The map of w is averaged, so plain steps converge; Anderson's extrapolation is kept while it pays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray
from curvedp.constraints import Constraint
from curvedp.regularizers import Face, Regularizer
from curvedp.solvers.anderson import fixed_point
from curvedp.solvers.certificate import Element, norm_bound
from curvedp.solvers.separable import Enough, Separable, to_the_end

Prox = Callable[[FloatArray, float], FloatArray]

_STEPS = 4_000
_CHECK = 5  # steps between two looks at the element
# ρ over the geometric mean of H's spectrum: smaller ones where a face is much softer than H, larger ones
# where rounding stops the method, since the copies then agree to more digits.
_SCALES = tuple(30.0**power for power in (0, -1, 1, -2, 2, -3, 3, -4, 4))
_SWEEPS = 200  # of the alternation between ∂r and N_C


@dataclass(frozen=True, eq=False)
class Coupled:
    """r + ι_C where r or C couples coordinates; `rest` holds what of them is separable, `shape` is (d, K)."""

    regularizer: Regularizer
    constraint: Constraint
    shape: tuple[int, int]
    rest: Separable
    couples_r: bool
    couples_C: bool

    @property
    def l2(self) -> FloatArray:
        return self.rest.l2

    def project(self, theta: FloatArray) -> FloatArray:
        return self.constraint.project(theta.reshape(self.shape)).ravel()

    def movable(self, theta: FloatArray) -> BoolArray:
        return np.zeros(theta.shape, dtype=bool)

    def slope(self, theta: FloatArray, v: FloatArray, step: FloatArray) -> float:
        if not self.couples_r:
            return self.rest.slope(theta, v, step)
        return float((v + self._subgradient(theta, v)) @ step)

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> Element:
        """s = v + p + n with p ∈ ∂r̄(θ), n ∈ N_C(θ) chosen in turn, each the best for the other."""
        v = hi + lo
        p, n, s = self._alternate(theta, v)
        point = theta.reshape(self.shape)
        scale = norm_bound(v) + norm_bound(p) + norm_bound(n)
        error = 4.0 * (v.size + 32) * UNIT_ROUNDOFF * scale
        drift = self.regularizer.drift(point) if self.couples_r else 0.0
        if drift > 0.0 and not self.couples_C and not self.rest.bounded:
            return Element(s, error, drift)
        face = self._face(point)
        together = self.constraint.drift(point, face.free)
        if drift == 0.0 and together < min(face.reach, 1e-9 * norm_bound(theta)):
            moved = face.stiffness * together if together > 0.0 else 0.0
            return Element(s, error + moved, together)
        apart = drift + self.constraint.drift(point, np.ones_like(face.free))
        return Element(s, error, apart, 2.0 * self.subgradient_bound)

    def _face(self, point: FloatArray) -> Face:
        """Of r̄, without the quadratic part of r, which counts as smooth."""
        if self.couples_r:
            return self.regularizer.face(point)
        kinked = self.rest.l1.reshape(self.shape) > 0
        free = ~kinked | (point != 0)
        return Face(free, 0.0, float(np.abs(point[kinked & free]).min(initial=np.inf)))

    def _alternate(self, theta: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(p, n, s = v + p + n), each of p and n in turn the best for the other.

        These are alternating projections between two convex sets, so s tends to the smallest one.
        """

        def sweep(n: FloatArray) -> FloatArray:
            p = self._subgradient(theta, v + n)
            return self._off_normals(theta, v + p) - (v + p)

        n, _ = fixed_point(sweep, np.zeros_like(v), lambda n: False, _SWEEPS, _SWEEPS)
        p = self._subgradient(theta, v + n)
        s = self._off_normals(theta, v + p)
        return p, s - (v + p), s

    def _off_normals(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """The smallest element of v + N_C(θ)."""
        return self.constraint.normal_residual(theta.reshape(self.shape), v.reshape(self.shape)).ravel()

    def _subgradient(self, theta: FloatArray, v: FloatArray) -> FloatArray:
        """argmin_{p ∈ ∂r̄(θ)} ‖v + p‖."""
        if self.couples_r:
            point, shaped = theta.reshape(self.shape), v.reshape(self.shape)
            return self.regularizer.smallest_subgradient(point, shaped).ravel()
        l1 = self.rest.l1
        return np.where(theta == 0.0, np.clip(-v, -l1, l1), np.sign(theta) * l1)

    @property
    def subgradient_bound(self) -> float:
        """G ≥ ‖p‖ for every p ∈ ∂r̄."""
        if not self.couples_r:
            return norm_bound(self.rest.l1)
        return self.regularizer.subgradient_bound(*self.shape) * (1.0 + 8.0 * UNIT_ROUNDOFF)

    def _proxes(self) -> list[Prox]:
        """The terms that keep a copy of θ: r̄ if it couples coordinates, C if it does."""
        proxes: list[Prox] = []
        if self.couples_r:
            proxes.append(lambda w, t: self.regularizer.prox(w.reshape(self.shape), t).ravel())
        if self.couples_C:
            proxes.append(lambda w, t: self.project(w))
        return proxes

    def _joined(self, x: FloatArray, copies: FloatArray) -> FloatArray:
        """One θ with the zeros and bounds of every copy."""
        if not self.couples_C:
            bound = (x <= self.rest.low) | (x >= self.rest.high)
            return self.rest.project(np.where(bound, x, copies[0]))
        kink = copies[0] == 0.0 if self.couples_r else (x == 0.0) & (self.rest.l1 > 0.0)
        inside, joined = copies[-1], np.where(kink, 0.0, copies[-1])
        agree = np.linalg.norm(joined - inside) <= 1e-6 * np.linalg.norm(inside)
        return joined if agree else inside

    def minimize(
        self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray, enough: Enough
    ) -> FloatArray:
        spectrum = eigvalsh(H, check_finite=False)
        mean = float(np.sqrt(max(spectrum[0], 1e-14 * spectrum[-1]) * spectrum[-1]))
        theta = self.project(start)
        p, n, _ = self._alternate(theta, H @ (theta - center) + g + self.l2 * theta)
        duals = ([p] if self.couples_r else []) + ([n] if self.couples_C else [])
        for rho in (mean * scale for scale in _SCALES):
            splitting = _Splitting(self, H, g, center, rho)
            w = np.concatenate([theta + dual / rho for dual in duals])
            w, done = fixed_point(splitting.step, w, partial(splitting.at, enough), _CHECK, _STEPS)
            theta, duals = splitting.read(w)
            if done:
                break
        return theta


class _Splitting:
    """The map of w for one ρ."""

    def __init__(self, terms: Coupled, H: FloatArray, g: FloatArray, center: FloatArray, rho: float) -> None:
        self.terms, self.H, self.g, self.center, self.rho = terms, H, g, center, rho
        self.proxes = terms._proxes()
        self.shifted = H + len(self.proxes) * rho * np.eye(g.size)
        self.factor = cho_factor(self.shifted + np.diag(terms.l2)) if terms.rest.plain else None
        self.x = terms.rest.project(center)

    def _resolvent(self, pull: FloatArray) -> FloatArray:
        """argmin ½uᵀ(H + kρI)u + (g − pull)ᵀu + separable part."""
        if self.factor is not None:
            return np.asarray(
                self.center + cho_solve(self.factor, pull - self.g - self.terms.l2 * self.center)
            )
        rest = self.terms.rest
        self.x = rest.minimize(self.shifted, self.g - pull, self.center, self.x, to_the_end)
        return self.x

    def _split(self, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(x, the copies z_i, the parts w_i), one row per copy."""
        parts = w.reshape(len(self.proxes), -1)
        copies = np.array([prox(part, 1.0 / self.rho) for prox, part in zip(self.proxes, parts, strict=True)])
        return self._resolvent(self.rho * np.sum(2.0 * copies - parts - self.center, axis=0)), copies, parts

    def step(self, w: FloatArray) -> FloatArray:
        x, copies, parts = self._split(w)
        return (parts + x - copies).ravel()

    def read(self, w: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """θ, and the element of ∂r̄ or N_C that each copy holds."""
        x, copies, parts = self._split(w)
        return self.terms._joined(x, copies), list(self.rho * (parts - copies))

    def at(self, enough: Enough, w: FloatArray) -> bool:
        """Whether the θ that w stands for is good enough."""
        return enough(self.read(w)[0])
