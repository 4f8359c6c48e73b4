"""The nonsmooth part r + ι_C of an objective, as a solver and a certificate see it; certificates.

r = its quadratic part Σ l2_j θ_j²/2 and a rest r̄; θ is flattened in C order. Where r or C couples
coordinates, Douglas–Rachford splitting with Anderson acceleration. What is separable of r and C stays with
the quadratic, in the compiled kernel; each remaining term i has its own copy z_i of θ, reached through its
prox (for a set, its projection):

    z_i = prox_{r_i/ρ}(w_i),   x = argmin f + separable part + (ρ/2) Σ_i ‖x − (2z_i − w_i)‖²,
    w_i ← w_i + x − z_i.

The map of w is averaged, so plain steps converge; Anderson's extrapolation is kept while it pays.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from scipy.linalg.lapack import dpotrf

from curvedp.arrays import UNIT_ROUNDOFF, BoolArray, FloatArray
from curvedp.problems.constraints import Constraint
from curvedp.problems.regularizers import Face, Regularizer

Enough = Callable[[FloatArray], bool]  # whether a point θ will do

_STEPS = 4_000  # of the splitting for one ρ, at most
_CHECK = 5  # steps between two looks at the element
# ρ over the geometric mean of H's spectrum: smaller ones where a face is much softer than H, larger ones
# where rounding stops the method, since the copies then agree to more digits.
_SCALES = tuple(30.0**power for power in (0, -1, 1, -2, 2, -3, 3, -4, 4))
_SWEEPS = 200  # of the alternation between ∂r and N_C
_MEMORY = 30  # steps that an extrapolation looks back on
_PATIENCE = 25  # extrapolations without progress before plain steps take over
_PROGRESS = 0.9  # a residual this much smaller than the best counts as progress
_EXCESS = 2.0  # an extrapolated point may have a residual this much larger
_TINY = float(np.finfo(np.float64).tiny)


# Certificates (section 7): how far a computed point can be from the optimum, rounding included.
#
# For F = f + r + ι_C with f κ_s-strongly convex, any θ ∈ C and any s ∈ ∇f(θ) + ∂r(θ) + N_C(θ):
# ‖θ − argmin F‖ ≤ ‖s‖/κ_s and F(θ) − min F ≤ ‖s‖²/(2κ_s).


def proves_curvature(H: FloatArray, c: float) -> bool:
    """True only if λ_min(H) ≥ c: a Cholesky factorisation of H − (c + margin)I ran to its end.

    It ends only if λ_min ≥ −tr·γ/(1−γ), γ = (d+1)u/(1 − (d+1)u) (Rump 2006); the margin covers that and
    the rounding of the diagonal.
    """
    d = H.shape[0]
    diagonal = np.diagonal(H)
    trace = float(np.abs(diagonal).sum()) + d * abs(c)
    if not (math.isfinite(trace) and math.isfinite(c)):
        return False
    margin = 2.0 * (d + 4) * UNIT_ROUNDOFF * trace + d * d * _TINY
    shifted = H.copy()
    shifted.reshape(-1)[:: d + 1] -= c + margin
    _, info = dpotrf(shifted.T, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0)


def quick_curvature(H: FloatArray) -> float:
    """A proved lower bound of λ_min(H), most often by one Cholesky factorisation; 0 when there is none."""
    guess = float(np.min(np.diagonal(H))) / 64.0
    return guess if guess > 0.0 and proves_curvature(H, guess) else sharp_curvature(H)


def sharp_curvature(H: FloatArray) -> float:
    """A proved lower bound close to λ_min(H), the eigenvalues being the guess; 0 when there is none."""
    if not np.all(np.isfinite(H)):
        return 0.0
    smallest = float(eigvalsh(H, check_finite=False)[0])
    for share in (0.999, 0.5):
        if smallest > 0.0 and proves_curvature(H, share * smallest):
            return share * smallest
    return 0.0


def exact_gradient(
    H: FloatArray, g: FloatArray, center: FloatArray, l2: FloatArray, theta: FloatArray, low: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """H(θ + low − center) + g + l2·(θ + low) as an unevaluated sum hi + lo, and a bound on ‖its error‖.

    H must be symmetric. A certificate at conditioning c amplifies the rounding error of the gradient by c, so
    it is summed with error-free transformations (Ogita, Rump and Oishi 2005). The bound is that of
    compensated dot products, taken twice: 8(d+4)²u²(|H||u| + |g|).
    """
    from curvedp.solvers import kernel

    hi, lo, size = kernel.exact_gradient(H, g, center, l2, theta, low)
    error = 8.0 * ((g.size + 4) * UNIT_ROUNDOFF) ** 2 * float(np.linalg.norm(size))
    return hi, lo, error


def two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(s, e) with s = a + b rounded and s + e = a + b exactly, entry by entry."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def norm_bound(v: FloatArray) -> float:
    """‖v‖ of a flat v, rounded up, squares that underflow included."""
    return math.sqrt(float(v @ v) + v.size * _TINY) * (1.0 + 2.0 * (v.size + 8) * UNIT_ROUNDOFF)


@dataclass(frozen=True, eq=False)
class Element:
    """s, within `error` of an element of v + ∂r(θ_r) + N_C(θ_C), with θ_r and θ_C within `drift` of θ.

    A point on a curved or slanted face is there up to rounding only, so it is drawn exactly on it in thought.
    `spread` bounds the distance of any two subgradients of r; 0 when θ_r = θ_C, or when r is smooth.
    """

    s: FloatArray
    error: float = 0.0
    drift: float = 0.0
    spread: float = 0.0

    def residual(self, lipschitz: float, curvature: float) -> float:
        """κ·D without rounding errors: ‖s‖, and what a drift adds to it."""
        b = norm_bound(self.s) + lipschitz * self.drift
        root = math.sqrt(b * b + 4.0 * curvature * self.spread * self.drift)
        return curvature * self.drift + (b + root) / 2.0

    def distance(self, error: float, lipschitz: float, curvature: float) -> float:
        """D ≥ ‖θ − argmin‖ when v is ∇f(θ) up to `error`, ∇f is L-Lipschitz and f is κ-strongly convex.

        Strong monotonicity of ∇f, monotonicity of ∂r at θ_r and of N_C at θ_C, and Cauchy–Schwarz:
        κD² ≤ bD + (spread + ‖s‖)δ with b = ‖s‖ + error + Lδ, δ = drift. For δ = 0 this is D ≤ ‖s‖/κ.
        """
        if not curvature > 0.0:
            return math.inf
        b = norm_bound(self.s) + self.error + error + lipschitz * self.drift
        root = math.sqrt(b * b + 4.0 * curvature * self.spread * self.drift)
        return (self.drift + (b + root) / (2.0 * curvature)) * (1.0 + 16.0 * UNIT_ROUNDOFF)


@dataclass(frozen=True, eq=False)
class Separable:
    """r(θ) = Σ_j l1_j|θ_j| + l2_j θ_j²/2 on C = {low ≤ θ ≤ high}: every coordinate on its own."""

    l1: FloatArray
    l2: FloatArray
    low: FloatArray
    high: FloatArray

    def project(self, theta: FloatArray) -> FloatArray:
        """The point of C nearest to θ."""
        return np.minimum(np.maximum(theta, self.low), self.high)

    def minimize(
        self, H: FloatArray, g: FloatArray, center: FloatArray, start: FloatArray, enough: object = None
    ) -> FloatArray:
        """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = θ − center; as far as double precision goes, whatever
        is enough."""
        if self.l2.any():
            H = H + np.diag(self.l2)
            g = g + self.l2 * center
        from curvedp.solvers import kernel

        center, start = np.ascontiguousarray(center), np.ascontiguousarray(start)
        return np.asarray(kernel.minimize(H, g, center, self.l1, self.low, self.high, start))

    def movable(self, theta: FloatArray) -> BoolArray:
        """Coordinates that may move by less than their last bit, each on its own, and leave ∂r̄, N_C alone."""
        return np.asarray(((theta != 0.0) | (self.l1 == 0.0)) & (self.low < theta) & (theta < self.high))

    @cached_property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @property
    def subgradient_bound(self) -> float:
        """G ≥ ‖p‖ for every p ∈ ∂r̄."""
        return norm_bound(self.l1)

    @cached_property
    def plain(self) -> bool:
        """Nothing but the quadratic part of r."""
        return not (self.bounded or self.l1.any())

    def smallest_element(self, theta: FloatArray, hi: FloatArray, lo: FloatArray) -> Element:
        """The smallest element of v + ∂r̄(θ) + N_C(θ), v = hi + lo.

        In each coordinate kink and interval contribute [a, b]: ±l1 off the kink, [−l1, l1] on it, with
        a = −∞ at the lower bound and b = +∞ at the upper one.
        """
        from curvedp.solvers import kernel

        return Element(kernel.smallest_element(theta, self.l1, self.low, self.high, hi, lo))

    def slope(self, theta: FloatArray, v: FloatArray, step: FloatArray) -> float:
        """⟨v + p, step⟩ for a p ∈ ∂r̄(θ) that makes it small."""
        kinks = np.where(theta == 0.0, -np.abs(step), np.sign(theta) * step)
        return float(v @ step + self.l1 @ kinks)


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
        """A small one: s = v + p + n with p ∈ ∂r̄(θ), n ∈ N_C(θ) in turn the best for each other."""
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
        if not self.couples_r:
            return self.rest.subgradient_bound
        return self.regularizer.subgradient_bound(*self.shape) * (1.0 + 8.0 * UNIT_ROUNDOFF)

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
        """As of `Separable`, until some θ is good enough or as far as double precision goes."""
        spectrum = eigvalsh(H, check_finite=False)
        mean = float(np.sqrt(max(spectrum[0], 1e-14 * spectrum[-1]) * spectrum[-1]))
        theta = self.project(start)
        p, n, _ = self._alternate(theta, H @ (theta - center) + g + self.l2 * theta)
        duals = ([p] if self.couples_r else []) + ([n] if self.couples_C else [])
        for rho in (mean * scale for scale in _SCALES):
            splitting = _Splitting(self, H, g, center, rho, enough)
            w = np.concatenate([theta + dual / rho for dual in duals])
            w, done = fixed_point(splitting.step, w, splitting.good_enough, _CHECK, _STEPS)
            theta, duals = splitting.read(w)
            if done:
                break
        return theta


class _Splitting:
    """The map of w for one ρ."""

    def __init__(
        self, terms: Coupled, H: FloatArray, g: FloatArray, center: FloatArray, rho: float, enough: Enough
    ) -> None:
        self.terms, self.g, self.center, self.rho, self.enough = terms, g, center, rho, enough
        self.shifted = H + (terms.couples_r + terms.couples_C) * rho * np.eye(g.size)
        self.factor = cho_factor(self.shifted + np.diag(terms.l2)) if terms.rest.plain else None
        self.x = terms.rest.project(center)

    def _split(self, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(x, the copies z_i, the parts w_i), one row per copy.

        x = argmin ½uᵀ(H + kρI)u + (g − pull)ᵀu + separable part.
        """
        terms, parts = self.terms, w.reshape(-1, self.g.size)
        copies = np.empty_like(parts)  # of r̄ if it couples coordinates, of C if it does
        if terms.couples_r:
            copies[0] = terms.regularizer.prox(parts[0].reshape(terms.shape), 1.0 / self.rho).ravel()
        if terms.couples_C:
            copies[-1] = terms.project(parts[-1])
        pull = self.rho * np.sum(2.0 * copies - parts - self.center, axis=0)
        if self.factor is not None:
            moved = cho_solve(self.factor, pull - self.g - terms.l2 * self.center)
            return np.asarray(self.center + moved), copies, parts
        self.x = terms.rest.minimize(self.shifted, self.g - pull, self.center, self.x)
        return self.x, copies, parts

    def step(self, w: FloatArray) -> FloatArray:
        x, copies, parts = self._split(w)
        return (parts + x - copies).ravel()

    def read(self, w: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """θ, and the element of ∂r̄ or N_C that each copy holds."""
        x, copies, parts = self._split(w)
        return self.terms._joined(x, copies), list(self.rho * (parts - copies))

    def good_enough(self, w: FloatArray) -> bool:
        return self.enough(self.read(w)[0])


Terms = Separable | Coupled


def terms_of(regularizer: Regularizer, constraint: Constraint, shape: tuple[int, int]) -> Terms:
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
    """Good enough for `minimize`: the residual at θ is at most `tolerance`, drift included; κI ≼ H."""
    size = norm_bound(H.ravel())

    def enough(theta: FloatArray) -> bool:
        v = H @ (theta - center) + g + terms.l2 * theta
        return terms.smallest_element(theta, v, np.zeros_like(v)).residual(size, curvature) <= tolerance

    return enough


def fixed_point(
    T: Callable[[FloatArray], FloatArray], w: FloatArray, good_enough: Enough, every: int, max_steps: int
) -> tuple[FloatArray, bool]:
    """(w, whether it is good enough), from w_{k+1} = T(w_k) or an extrapolation of the last steps (Anderson).

    The residual ‖T(w) − w‖ of an averaged T never grows along plain steps and tends to 0. After `_PATIENCE`
    extrapolations without progress the method goes back to its best point and takes plain steps until there
    is some, so it converges whenever plain iteration does. It ends when the residual is down to rounding.
    """
    image = T(w)
    residual = image - w
    best, best_w = float(np.linalg.norm(residual)), w
    history: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=_MEMORY)
    idle, plain = 0, False
    for step in range(1, max_steps + 1):
        if best <= 4.0 * UNIT_ROUNDOFF * float(np.linalg.norm(w)):
            break
        candidate = image
        if history and not plain:
            differences = np.array([entry[0] for entry in history]).T
            weights = np.linalg.lstsq(differences, residual, rcond=1e-13)[0]
            candidate = image - np.array([entry[1] for entry in history]).T @ weights
        new_image = T(candidate)
        new_residual = new_image - candidate
        size = float(np.linalg.norm(new_residual))
        if candidate is not image and not size <= _EXCESS * float(np.linalg.norm(residual)):
            history.clear()
            candidate, new_image = image, T(image)
            new_residual = new_image - candidate
            size = float(np.linalg.norm(new_residual))
        history.append((new_residual - residual, new_image - image))
        w, image, residual = candidate, new_image, new_residual
        if step % every == 0 and good_enough(w):
            return w, True
        idle += 1
        if size < _PROGRESS * best:
            best, best_w, idle, plain = size, w, 0, False
        elif not plain and idle >= _PATIENCE:
            w, idle, plain = best_w, 0, True
            image = T(w)
            residual = image - w
            history.clear()
    return best_w, good_enough(best_w)
