"""Losses with several margins: K classes, T targets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, softmax

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput, NotCovered
from curvedp.problems.domain import LARGEST_DECLARED, Domain
from curvedp.problems.losses.margin import Jump, Logistic, Loss, Squared, SquaredHinge, jump_of


def _check_several(name: str, count: int) -> None:
    if count != int(count) or count < 2:
        raise InvalidInput(f"{name} must be an integer of at least 2, got {count!r}")


class _Classes(Loss):
    n_classes: int  # K

    def __post_init__(self) -> None:
        _check_several("n_classes", self.n_classes)

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """The nearest class index; a NaN belongs to class 0."""
        return np.clip(np.rint(np.where(np.isnan(y), 0.0, y)), 0.0, self.n_classes - 1.0)


@dataclass(frozen=True)
class Multinomial(_Classes):
    """φ(s; y) = log Σ_k e^{s_k} − s_y, y ∈ {0, …, K−1}, K = n_classes."""

    n_classes: int
    name = "multinomial"

    @property
    def rank(self) -> int:
        """K − 1: diag(p) − ppᵀ annihilates the constant vector."""
        return self.n_classes - 1

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        own = np.take_along_axis(s, y.astype(np.intp)[:, None], axis=1)
        return np.asarray(logsumexp(s - own, axis=1))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """softmax(s) − e_y."""
        p = softmax(s, axis=1)
        p[np.arange(len(y)), y.astype(np.intp)] -= 1.0
        return np.asarray(p)

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """diag(p) − ppᵀ, p = softmax(s)."""
        p = softmax(s, axis=1)
        return np.asarray(p[:, :, None] * (np.eye(self.n_classes) - p[:, None, :]))

    def inverse_link(self, s: FloatArray) -> FloatArray:
        return np.asarray(softmax(s, axis=1))

    def curvature(self, domain: Domain, radius: float) -> float:
        return 0.5

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B min(√2, sqrt(1 − 1/K) + ½B‖θ_c‖): exact at θ_c = 0, then β-Lipschitz, never above √2 B."""
        at_zero = math.sqrt(1.0 - 1.0 / self.n_classes)
        return domain.x_norm * min(math.sqrt(2.0), at_zero + 0.5 * domain.x_norm * center_norm)


@dataclass(frozen=True)
class OneVsRest(_Classes):
    """φ(s; y) = Σ_k base(s_k; +1 if y = k else −1), y ∈ {0, …, K−1}: K binary problems released as one."""

    base: Logistic | SquaredHinge
    n_classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.base, (Logistic, SquaredHinge)):
            raise InvalidInput("one-vs-rest needs a base loss for labels ±1: Logistic() or SquaredHinge()")

    @property
    def name(self) -> str:
        return f"one_vs_rest_{self.base.name}"

    def _binary(self, s: FloatArray, y: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Margins, shape (n, 1), and labels ±1 of every class."""
        return [(s[:, [k]], np.where(y == k, 1.0, -1.0)) for k in range(self.n_classes)]

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(sum(self.base.value(*binary) for binary in self._binary(s, y)))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.hstack([self.base.gradient(*binary) for binary in self._binary(s, y)])

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """diag(base''(s_k; ±1))."""
        out = np.zeros((len(y), self.n_classes, self.n_classes))
        for k, binary in enumerate(self._binary(s, y)):
            out[:, k, k] = self.base.hessian(*binary)[:, 0, 0]
        return out

    def inverse_link(self, s: FloatArray) -> FloatArray:
        raise NotCovered("one-vs-rest margins are no probabilities of classes; use the multinomial loss")

    def curvature(self, domain: Domain, radius: float) -> float:
        return self.base.curvature(domain, radius)

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c ≤ √K · γ_c(base): each column of θ_c has norm at most ‖θ_c‖."""
        return math.sqrt(self.n_classes) * self.base.center_bound(domain, center_norm)


@dataclass(frozen=True)
class SquaredSeveral(Loss):
    """φ(s; y) = ½‖s − y‖², s and y in R^T, every |y_t| ≤ Y: T linear regressions released as one."""

    n_targets: int
    name = "squared_several"  # not quadratic: the solvers of quadratics read one target

    def __post_init__(self) -> None:
        _check_several("n_targets", self.n_targets)

    @property
    def n_outputs(self) -> int:
        return self.n_targets

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(0.5 * np.sum((s - y) ** 2, axis=1))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(s - y)

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        T = self.n_targets
        return np.ascontiguousarray(np.broadcast_to(np.eye(T), (len(s), T, T)))

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        return Squared().clip_target(y, domain)

    def curvature(self, domain: Domain, radius: float) -> float:
        return 1.0

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B(B‖θ_c‖ + √T·Y)."""
        largest = math.sqrt(self.n_targets) * domain.y_bound * (1 + 1e-15)
        return domain.x_norm * (domain.x_norm * center_norm + largest)


# Losses that read more of a record than one target: an offset of its margin, a weight.


@dataclass(frozen=True)
class _Around(Loss):
    """Another loss, whose targets have one column more; its constants are those of that loss."""

    inner: Loss

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def n_outputs(self) -> int:
        return self.inner.n_outputs

    @property
    def n_targets(self) -> int:
        return target_columns(self.inner) + 1

    @property
    def rank(self) -> int:
        return self.inner.rank

    def inverse_link(self, s: FloatArray) -> FloatArray:
        return self.inner.inverse_link(s)

    @property
    def jump(self) -> Jump | None:
        return jump_of(self.inner)

    def over(self, width: float) -> Loss:
        return replace(self, inner=self.inner.over(width))

    def _reached(self, domain: Domain, radius: float) -> float:
        """The radius at which the inner loss has its constants."""
        return radius

    def curvature(self, domain: Domain, radius: float) -> float:
        return self.inner.curvature(domain, self._reached(domain, radius))

    def smoothness(self, domain: Domain, radius: float) -> float:
        return self.inner.smoothness(domain, self._reached(domain, radius))

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        return self.inner.center_bound(domain, self._reached(domain, center_norm))

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        return self.inner.center_diameter(domain, self._reached(domain, center_norm))

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        return self.inner.gradient_bound(domain, self._reached(domain, radius))


@dataclass(frozen=True)
class Weighted(_Around):
    """φ(s; (y, v)) = v·φ(s; y), 0 ≤ v ≤ 1: a weight in units of its declared maximum (W-1).

    v is the last column of the target. Every record is a fraction of one of the inner loss, so that β, γ_c
    and ζ are those of the inner loss, and Δ_c is too where it is at least γ_c.
    """

    @property
    def is_quadratic(self) -> bool:
        return self.inner.is_quadratic

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y[:, -1] * self.inner.value(s, _before_last(y)))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y[:, -1:] * self.inner.gradient(s, _before_last(y)))

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(y[:, -1, None, None] * self.inner.hessian(s, _before_last(y)))

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        v = np.clip(np.where(np.isnan(y[:, -1]), 0.0, y[:, -1]), 0.0, 1.0)
        return np.column_stack([self.inner.clip_target(_before_last(y), domain), v])

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        """The diameter of {v·g} is that of the gradients g and 0."""
        return max(super().center_diameter(domain, center_norm), self.center_bound(domain, center_norm))


@dataclass(frozen=True)
class Offset(_Around):
    """φ(s; (y, o)) = φ(s + o; y), |o| ≤ bound: a known part of the margin, the last column of the target.

    Margins reach `bound` further: the constants are those of the inner loss at radius + bound/B. What
    `inverse_link` takes are margins that hold their offset.
    """

    bound: float

    def __post_init__(self) -> None:
        if not 0.0 < self.bound <= LARGEST_DECLARED:
            raise InvalidInput(
                f"the bound of an offset must be a positive number up to 1e60, got {self.bound!r}: "
                "declare it in units nearer to 1"
            )
        if self.inner.n_outputs != 1 or target_columns(self.inner) != 1:
            raise NotCovered("an offset is for losses with one margin and one target")

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return self.inner.value(s + y[:, 1:], y[:, 0])

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return self.inner.gradient(s + y[:, 1:], y[:, 0])

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return self.inner.hessian(s + y[:, 1:], y[:, 0])

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        o = np.clip(np.where(np.isnan(y[:, 1]), 0.0, y[:, 1]), -self.bound, self.bound)
        return np.column_stack([self.inner.clip_target(y[:, 0], domain), o])

    def _reached(self, domain: Domain, radius: float) -> float:
        return radius + self.bound / domain.x_norm


def target_columns(loss: Loss) -> int:
    """T: how many columns of the target a loss reads; 1 unless it says otherwise."""
    return int(getattr(loss, "n_targets", 1))


def offset_bound(loss: Loss) -> float:
    """The largest |margin| of a record at θ = 0."""
    while isinstance(loss, Weighted):
        loss = loss.inner
    return loss.bound if isinstance(loss, Offset) else 0.0


def clipped_targets(loss: Loss, y: FloatArray, domain: Domain) -> FloatArray:
    """Targets of shape (n, T) as the loss takes them: (n,) where it reads one column, else (n, T)."""
    if y.shape[1] != target_columns(loss):
        raise InvalidInput(f"the loss reads {target_columns(loss)} target column(s): pass y with as many")
    return loss.clip_target(y[:, 0] if y.shape[1] == 1 else y, domain)


def spread_targets(loss: Loss, domain: Domain) -> FloatArray:
    """Targets spread evenly within their bounds, with full weight and no offset: for public guesses."""
    y, inner, beside = np.linspace(-domain.y_bound, domain.y_bound, 101), loss, list[FloatArray]()
    while isinstance(inner, _Around):
        beside.insert(0, np.ones_like(y) if isinstance(inner, Weighted) else np.zeros_like(y))
        inner = inner.inner
    return clipped_targets(loss, np.column_stack([y] * target_columns(inner) + beside), domain)


def _before_last(y: FloatArray) -> FloatArray:
    return y[:, 0] if y.shape[1] == 2 else y[:, :-1]
