"""Losses with several margins: K classes, T targets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax

from curvedp.arrays import FloatArray
from curvedp.domain import Domain
from curvedp.errors import InvalidInput, NotCovered
from curvedp.losses.margin import Logistic, Squared, SquaredHinge
from curvedp.losses.protocol import Loss


def _check_several(name: str, count: int) -> None:
    if count != int(count) or count < 2:
        raise InvalidInput(f"{name} must be an integer of at least 2, got {count!r}")


class _Classes(Loss):
    """What losses of K = n_classes classes share."""

    n_classes: int

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
        """softmax(s)."""
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

    def _signs(self, y: FloatArray) -> FloatArray:
        return np.where(y[:, None] == np.arange(self.n_classes), 1.0, -1.0)

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        signs = self._signs(y)
        return np.asarray(sum(self.base.value(s[:, [k]], signs[:, k]) for k in range(self.n_classes)))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        signs = self._signs(y)
        return np.hstack([self.base.gradient(s[:, [k]], signs[:, k]) for k in range(self.n_classes)])

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """diag(base''(s_k; ±1))."""
        signs = self._signs(y)
        out = np.zeros((len(y), self.n_classes, self.n_classes))
        for k in range(self.n_classes):
            out[:, k, k] = self.base.hessian(s[:, [k]], signs[:, k])[:, 0, 0]
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
        return domain.x_norm * (
            domain.x_norm * center_norm + math.sqrt(self.n_targets) * domain.y_bound * (1 + 1e-15)
        )
