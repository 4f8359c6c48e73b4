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

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, issymmetric

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.data.rows.base import Layout, Moments, Rows, gradient_error_bound, moments_error_bound
from curvedp.errors import InvalidInput, NotCertified, NotCovered
from curvedp.problems import Problem
from curvedp.problems.constraints import Constraint
from curvedp.problems.losses.margin import Huber, Logistic, Loss, Squared, SquaredHinge
from curvedp.problems.losses.several import Multinomial, OneVsRest, Weighted
from curvedp.problems.regularizers import Regularizer
from curvedp.solvers import terms as proved
from curvedp.solvers.terms import Coupled, Element, Terms, terms_of, within

# What a solver is given and what it hands back: an objective in, a certified point out.
#
# All of it is private: none of these objects shows its contents when printed or logged.


@dataclass(frozen=True, eq=False, repr=False)
class Perturbation:
    """⟨a, θ−θ_c⟩ + ½ vec(θ−θ_c)ᵀ Q vec(θ−θ_c), added to J (P-1).

    vec flattens in C order (row j, class k → j·K + k). QOP has Q = σ²W, LOP has Q = Δ·I.
    """

    center: FloatArray  # θ_c, shape (d, K)
    linear: FloatArray  # a, shape (d, K)
    quadratic: FloatArray  # Q ≻ 0, shape (dK, dK)


@dataclass(frozen=True, eq=False, repr=False)
class Objective:
    """J_priv(θ) = Σ_i ℓ(θ; z_i) + r(θ) + perturbation, over θ ∈ C (P-1).

    With `clip` = ζ, ℓ is the Huberised loss, whose gradient is ∇ℓ clipped to norm ζ (section 5, LOP-Clip).
    """

    problem: Problem
    rows: Rows
    perturbation: Perturbation
    clip: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """θ ∈ C of shape (d, K) with ‖θ − argmin‖ ≤ distance, proved, rounding included (section 7)."""

    theta: FloatArray
    distance: float


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
        return self.H_error + (0.0 if self.tail is None else proved.norm_bound(self.tail.ravel()))

    @cached_property
    def quick_curvature(self) -> float:
        return max(0.0, proved.quick_curvature(self.H) - self._off)

    @cached_property
    def sharp_curvature(self) -> float:
        return max(0.0, proved.sharp_curvature(self.H) - self._off)

    def certify(self, terms: Terms, theta: FloatArray, tail: FloatArray, eta: float) -> tuple[Element, float]:
        """(element at the point θ + tail, proved bound of ‖θ − argmin‖)."""
        hi, lo, rounding = proved.exact_gradient(self.H, self.g, self.center, terms.l2, theta, tail)
        if self.tail is not None:
            u = theta - self.center
            lo = lo + self.tail @ u
            rounding += (u.size + 4) * UNIT_ROUNDOFF * self._off * proved.norm_bound(u)
        element = terms.smallest_element(theta, hi, lo)
        moved = proved.norm_bound(tail)
        error = rounding + self.H_error * (proved.norm_bound(theta - self.center) + moved) + self.g_error
        ridge = float(terms.l2.min()) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        lipschitz = 0.0
        if element.drift > 0.0:
            lipschitz = proved.norm_bound(self.H.ravel()) + self._off + float(terms.l2.max())
        distance = element.distance(error, lipschitz, self.quick_curvature + ridge) + moved
        if not distance <= eta:
            distance = element.distance(error, lipschitz, self.sharp_curvature + ridge) + moved
        return element, distance


def quadratic(
    H: FloatArray, g: FloatArray, center: FloatArray, H_error: float = 0.0, g_error: float = 0.0
) -> Quadratic:
    """The form ½uᵀHu + gᵀu with H made symmetric (the form does not change; the rounding is counted)."""
    H = np.ascontiguousarray(H, dtype=np.float64)
    if not issymmetric(H):
        H_error += 2.0 * UNIT_ROUNDOFF * proved.norm_bound(H.ravel())
        H = 0.5 * (H + H.T)
    return Quadratic(H, _flat(g), _flat(center), H_error, g_error)


def _flat(part: FloatArray) -> FloatArray:
    """A writable copy in C order: the one layout that the kernels are compiled for."""
    return np.array(part, dtype=np.float64, order="C").ravel()


def solve_path(
    H: FloatArray,
    g: FloatArray,
    center: FloatArray,
    pairs: Iterable[tuple[Regularizer, Constraint]],
    eta: float,
) -> list[Solution]:
    """argmin over θ ∈ C of ½uᵀHu + gᵀu + r(θ), u = vec(θ − center), for each (r, C) of a path in ω or in κ.

    θ and `center` have shape (d, K), H (dK, dK) in C order; each solve starts at the last one.
    """
    f, path = quadratic(H, g, center), list[Solution]()
    for regularizer, constraint in pairs:
        terms, warm = terms_of(regularizer, constraint, center.shape), path[-1].theta if path else None
        path.append(solve_form(f, terms, center.shape, eta, warm))
    return path


def solve_moments(problem: Problem, moments: Moments, perturbation: Perturbation, eta: float) -> Solution:
    """Squared loss: the Hessian is XᵀX + Q, and the gradient at θ_c is g = XᵀXθ_c − Xᵀy + a."""
    p = perturbation
    data = quadratic(moments.xx, -moments.xy, np.zeros_like(p.center))
    own = quadratic(p.quadratic, p.linear, p.center)
    none = np.zeros_like(own.center)
    at_center, low, rounding = proved.exact_gradient(data.H, data.g, none, none, own.center, none)
    H, tail = proved.two_sum(data.H, own.H)
    g, g_tail = proved.two_sum(at_center, own.g)
    g = g + (g_tail + low)
    data_error = moments.error + data.H_error
    g_error = data_error * (1.0 + proved.norm_bound(own.center)) + rounding
    g_error += 2.0 * UNIT_ROUNDOFF * proved.norm_bound(g)
    f = Quadratic(H, g, own.center, data_error + own.H_error, g_error, tail)
    terms = terms_of(problem.regularizer, problem.constraint, p.center.shape)
    return solve_form(f, terms, p.center.shape, eta)


def solve_form(
    f: Quadratic, terms: Terms, shape: tuple[int, ...], eta: float, warm: FloatArray | None = None
) -> Solution:
    """argmin over θ ∈ C of f + r, θ of shape (d, K), proved to within η; `warm` is a first guess of θ."""
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
        own = proved.sharp_curvature(self.perturbation.H) - self.perturbation.H_error
        return own + float(self.terms.l2.min()) * (1.0 - 4.0 * UNIT_ROUNDOFF)

    @cached_property
    def lipschitz(self) -> float:
        """nL + ‖Q‖ + max l2 ≥ the Lipschitz constant of ∇f on C."""
        rows = self.objective.rows
        own = proved.norm_bound(self.perturbation.H.ravel()) + float(self.terms.l2.max())
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
        none = np.zeros_like(theta)
        hi, lo, rounding = proved.exact_gradient(q.H, q.g, q.center, self.terms.l2, theta, none)
        rounding += q.H_error * proved.norm_bound(theta - q.center)
        rounding += 2.0 * UNIT_ROUNDOFF * (proved.norm_bound(data) + proved.norm_bound(hi))
        element = self.terms.smallest_element(theta, data + hi, lo)
        lipschitz = self.lipschitz if element.drift > 0.0 else 0.0
        return _Point(theta, data + hi, element, rounding, element.residual(lipschitz, self.curvature))

    def distance(self, point: _Point) -> float:
        """The certified distance of the point to the optimum; one pass, for the rounding of the gradient."""
        loss = self.objective.problem.loss
        error = point.rounding + self.objective.rows.gradient_error(loss, point.theta.reshape(self.shape))
        lipschitz = self.lipschitz if point.element.drift > 0.0 else 0.0
        return point.element.distance(error, lipschitz, self.curvature)

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
        # argmin of the model (∇f, H) at the point, plus r, over C; up to a share of the point's residual.
        linear = point.gradient - f.terms.l2 * point.theta
        enough = within(f.terms, H, linear, point.theta, _INEXACT * point.residual, f.curvature)
        trial = f.at(f.terms.minimize(H, linear, point.theta, point.theta, enough))
        share = trial.residual / point.residual
        if not trial.residual <= _ENOUGH * best:
            if not fresh:
                H = None
                continue
            if (shorter := f.shortened(point, trial.theta - point.theta, trial)) is None:
                break
            trial = shorter
        step = trial.theta - point.theta
        change, image = trial.gradient - point.gradient - f.terms.l2 * step, H @ step
        model, actual = float(step @ image), float(step @ change)
        if not share <= _SLOW:
            H = None
        elif model > 0.0 and actual > 0.0:  # the next matrix (BFGS) that maps the step to this change
            H = H - np.outer(image, image) / model + np.outer(change, change) / actual
        point, fresh, best = trial, False, min(best, trial.residual)
    return certified(point.theta.reshape(p.center.shape), f.distance(point), eta)


# What double precision can certify, from public numbers alone: a bound that holds for every table.
#
# A certificate is D = (‖s‖ + rounding)/κ (section 7). Everything in it but ‖s‖ is bounded here by the
# number of rows, the public bounds of a record, and bounds of the noise that was drawn; a solver brings ‖s‖
# below that.

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
        return bool(small and proved.proves_curvature(p.quadratic, 0.999 * self.curvature))


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

    @cached_property
    def terms(self) -> Terms:
        return terms_of(self.problem.regularizer, self.problem.constraint, self.center.shape)

    def reach(self, rows: float) -> float:
        """R ≥ ‖θ_priv‖ for so many rows.

        With θ_1 the point of C next to θ_c and u = θ_priv − θ_1, optimality and convexity of r give
        κ‖u‖² ≤ −Σ⟨∇ℓ(θ_priv), u⟩ + (‖a‖ + tr Q·‖θ_1 − θ_c‖)‖u‖ + r(θ_1), and the sum has two bounds.
        """
        radius = self.problem.radius(len(self.center))
        if math.isfinite(radius):
            return radius
        noise, domain, loss = self.noise, self.problem.domain, self.problem.loss
        start = self.problem.constraint.project(self.center)
        norm, away = float(np.linalg.norm(start)), float(np.linalg.norm(start - self.center))
        slope, rest = noise.linear + noise.trace * away, self.problem.regularizer.value(start)
        gain = rows * _largest_gain(loss, domain.x_norm * norm, domain.y_bound)
        steepness = rows * loss.center_bound(domain, norm)  # ⟨∇ℓ(θ) − ∇ℓ(θ_1), u⟩ ≥ 0
        bounds = (slope, rest + gain), (slope + steepness, rest)
        return norm + min(_root(noise.curvature, *bound) for bound in bounds)

    def distance(self, rows: float, magnitude: float) -> float:
        """D for every table of so many records of this magnitude; infinite where nothing can be proved.

        At any ‖θ‖ ≤ 1.1 R + η, that is, at every θ within η or 2 D of θ_priv as long as D ≤ 0.05 R.
        """
        noise, loss, size = self.noise, self.problem.loss, self.center.size
        at_center = float(np.linalg.norm(self.center))
        reach = self.reach(rows)
        norm = max(1.1 * reach + self.eta, at_center)
        ridge = float(self.terms.l2.max())
        stiff = rows * self.problem.smoothness(len(self.center), self.center) + noise.trace + ridge
        # Sizes of the terms that cancel in s: the data's, the perturbation's, those of r.
        sizes = rows * loss.gradient_bound(self.problem.domain, norm) + noise.linear
        sizes += stiff * (norm + at_center) + self.terms.subgradient_bound
        # What a certificate counts of its own rounding, and a solver may leave of s, in units u·sizes.
        coupled = isinstance(self.terms, Coupled)
        roundings = 8.0 * (size + 32) if coupled else 16.0 * math.sqrt(size)
        error = self.data_error(rows, magnitude, norm) + roundings * UNIT_ROUNDOFF * sizes
        margin = 8.0 * (size + 4) * UNIT_ROUNDOFF * size * stiff  # of a proof of curvature
        curvature = (0.99 if margin < 1e-3 * noise.curvature else 0.45) * noise.curvature - margin
        if self._through_moments:
            curvature -= self._moments_error(rows, magnitude)
        drift = spread = 0.0
        if coupled:  # a certificate may have to take two subgradients at two points
            drift = _DRIFT * (size + 32) * UNIT_ROUNDOFF * norm
            spread = 2.0 * self.terms.subgradient_bound
        distance = Element(np.zeros(0), error, drift, spread).distance(0.0, stiff, curvature)
        inside = math.isfinite(self.problem.radius(len(self.center))) or distance <= _WIDE * reach
        return distance if inside else math.inf

    def data_error(self, rows: float, magnitude: float, norm: float) -> float:
        """Of the computed Σ∇ℓ(θ; z_i) at any ‖θ‖ ≤ norm; bounds for ROWS_AT_MOST rows are linear in them."""
        if self._through_moments:
            outside = float(np.linalg.norm(self.center))
            return self._moments_error(rows, magnitude) * (norm + 2.0 * outside + 2.0)
        layout = Layout.of(self.problem, len(self.center))
        return gradient_error_bound(layout, self.problem.loss, norm, magnitude) * rows / ROWS_AT_MOST

    @property
    def _through_moments(self) -> bool:
        return self.problem.loss.is_quadratic and not self.clipped

    def _moments_error(self, rows: float, magnitude: float) -> float:
        return moments_error_bound(Layout.of(self.problem, len(self.center)), magnitude) * rows / ROWS_AT_MOST


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
    return float(np.max([loss.value(np.full((2, 1), s), ends) for s in (reach, -reach)])) * (1 + 1e-12)
