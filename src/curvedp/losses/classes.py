"""Losses for several classes, K margins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax

from curvedp.arrays import FloatArray
from curvedp.domain import Domain
from curvedp.errors import InvalidInput, NotCovered
from curvedp.losses.margin import Logistic, SquaredHinge


def _class_target(y: FloatArray, n_classes: int) -> FloatArray:
    """The nearest class index; a NaN belongs to class 0."""
    return np.clip(np.rint(np.where(np.isnan(y), 0.0, y)), 0.0, n_classes - 1.0)


def _check_classes(n_classes: int) -> None:
    if n_classes != int(n_classes) or n_classes < 2:
        raise InvalidInput(f"n_classes must be an integer of at least 2, got {n_classes!r}")


@dataclass(frozen=True)
class Multinomial:
    """φ(s; y) = log Σ_k e^{s_k} − s_y, y ∈ {0, …, K−1}, K = n_classes."""

    n_classes: int
    name = "multinomial"
    is_quadratic = False

    def __post_init__(self) -> None:
        _check_classes(self.n_classes)

    @property
    def n_outputs(self) -> int:
        return self.n_classes

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

    def margin_at(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise NotCovered("the Huberised loss has one margin; clip the gradient of a multinomial loss instead")

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        return _class_target(y, self.n_classes)

    def curvature(self, domain: Domain, radius: float) -> float:
        return 0.5

    def smoothness(self, domain: Domain, radius: float) -> float:
        return 0.5 * domain.x_norm**2

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B min(√2, sqrt(1 − 1/K) + ½B‖θ_c‖): exact at θ_c = 0, then β-Lipschitz, never above √2 B."""
        at_zero = math.sqrt(1.0 - 1.0 / self.n_classes)
        return domain.x_norm * min(math.sqrt(2.0), at_zero + 0.5 * domain.x_norm * center_norm)

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        return 2.0 * self.center_bound(domain, center_norm)

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        return self.center_bound(domain, radius)


@dataclass(frozen=True)
class OneVsRest:
    """φ(s; y) = Σ_k base(s_k; +1 if y = k else −1), y ∈ {0, …, K−1}: K binary problems released as one."""

    base: Logistic | SquaredHinge
    n_classes: int
    is_quadratic = False

    def __post_init__(self) -> None:
        _check_classes(self.n_classes)
        if not isinstance(self.base, (Logistic, SquaredHinge)):
            raise InvalidInput("one-vs-rest needs a base loss for labels ±1: Logistic() or SquaredHinge()")

    @property
    def name(self) -> str:
        return f"one_vs_rest_{self.base.name}"

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    @property
    def rank(self) -> int:
        return self.n_classes

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

    def margin_at(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise NotCovered("the Huberised loss has one margin; clip the gradient of a one-vs-rest loss instead")

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        return _class_target(y, self.n_classes)

    def curvature(self, domain: Domain, radius: float) -> float:
        return self.base.curvature(domain, radius)

    def smoothness(self, domain: Domain, radius: float) -> float:
        return self.base.smoothness(domain, radius)

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c ≤ √K · γ_c(base): each column of θ_c has norm at most ‖θ_c‖."""
        return math.sqrt(self.n_classes) * self.base.center_bound(domain, center_norm)

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        return 2.0 * self.center_bound(domain, center_norm)

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        """ζ ≤ √K · ζ(base)."""
        return math.sqrt(self.n_classes) * self.base.gradient_bound(domain, radius)
