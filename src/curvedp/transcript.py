"""What a release says on the way: the law of every answer, told to whoever listens.

Code that draws an answer says from which law: `told(random, law, value)`. That changes nothing unless
`random` is a `Listener`, a generator that is told. A private run has none: `execute` makes its own generator.
A law knows its distance from the law that a neighbouring table gives, in the unit of what its plan pays for
the answer, and the residuals of an answer, which are independent N(0, 1) where it was drawn from the law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from scipy import special, stats

from curvedp.arrays import FloatArray

T = TypeVar("T")
Unit = Literal["μ", "ε", "g"]  # Gaussian shift; loss of a pure answer; curvature over σ²
Derivative = Callable[[FloatArray], FloatArray]

UNSTATED = math.nan  # the share of an answer that is paid for together with others


class Law(Protocol):
    """The law of one answer, given all answers before it; `share` is what its plan pays for it."""

    unit: ClassVar[Unit]

    @property
    def name(self) -> str: ...

    @property
    def share(self) -> float: ...

    def log_density(self, value: Any) -> float:
        """log p(value) up to a constant that two neighbouring tables share; −∞ where it cannot occur."""

    def distance(self, other: Any, value: Any) -> float:
        """How far the law of a neighbouring table is, `value` being what was answered; at most `share`."""

    def residuals(self, value: Any) -> FloatArray:
        """Numbers that are independent N(0, 1) where `value` was drawn from this law."""


@runtime_checkable
class Minimum(Protocol):
    """A law of a minimiser, which draws of its own lead to."""

    def misses(self, value: FloatArray) -> float:
        """How far θ is from the minimiser that the draws give, in units of η, at most."""


@runtime_checkable
class Tried(Protocol):
    """A law whose log-ratios add up to no known law: they are drawn."""

    def log_ratios(self, other: Any, draws: int, random: np.random.Generator) -> FloatArray:
        """log p/p' of values drawn from p, at most `draws` of them; p' is the law of a neighbouring table."""


class Listener(np.random.Generator):
    """Keeps the law of every answer, and the answer; gives those of `earlier` again, where there are some."""

    def __init__(self, source: np.random.Generator, earlier: Sequence[tuple[Law, Any]] = ()) -> None:
        super().__init__(source.bit_generator)
        self.earlier = earlier
        self.answers: list[tuple[Law, Any]] = []

    def hear(self, law: Law, value: Any) -> Any:
        """What is answered, `value` having been drawn from `law`."""
        for recorded, answer in self.earlier[len(self.answers) :][:1]:
            if type(law) is type(recorded) and np.shape(answer) == np.shape(value):
                value = answer
        self.answers.append((law, value))
        return copy(value)  # a plan may go on with its own


def told(random: np.random.Generator, law: Law, value: T) -> T:
    """`value`, drawn from `law`; where a listener drew it, what the listener says."""
    return random.hear(law, value) if isinstance(random, Listener) else value


@dataclass(frozen=True, eq=False)
class Normal:
    """N(query, σ²I) on multiples of `step`; of a symmetric matrix σ on the diagonal and σ/√2 off it."""

    query: FloatArray
    sigma: float
    symmetric: bool = False
    share: float = UNSTATED  # μ_j
    name: str = ""
    step: float = 0.0
    unit: ClassVar[Unit] = "μ"

    def log_density(self, value: FloatArray) -> float:
        return -0.5 * float(np.sum(np.square((value - self.query) / self.sigma)))

    def distance(self, other: Normal, value: FloatArray) -> float:
        """‖q − q'‖/σ, the Frobenius norm of a matrix."""
        return float(np.linalg.norm(other.query - self.query)) / self.sigma

    def residuals(self, value: FloatArray) -> FloatArray:
        """(value − query)/σ; of a symmetric matrix the diagonal, then √2 times what is above it."""
        z = np.asarray((value - self.query) / self.sigma)
        if not self.symmetric:
            return z.ravel()
        return np.append(np.diag(z), math.sqrt(2.0) * z[np.triu_indices(len(z), 1)])


@dataclass(frozen=True, eq=False)
class Laplace:
    """p ∝ e^{−|value − query|₁/scale}, on multiples of `step`."""

    query: FloatArray
    scale: float
    share: float = UNSTATED  # ε_j
    name: str = ""
    step: float = 0.0
    unit: ClassVar[Unit] = "ε"

    def log_density(self, value: FloatArray) -> float:
        return -float(np.sum(np.abs(value - self.query))) / self.scale

    def distance(self, other: Laplace, value: FloatArray) -> float:
        """‖q − q'‖₁/scale: the largest log-ratio of any answer."""
        return float(np.sum(np.abs(other.query - self.query))) / self.scale

    def residuals(self, value: FloatArray) -> FloatArray:
        """Φ⁻¹ of the distribution function."""
        z = np.asarray((value - self.query) / self.scale).ravel()
        return np.asarray(-np.sign(z) * special.ndtri_exp(-np.abs(z) - math.log(2.0)))


@dataclass(frozen=True, eq=False)
class CurvedMinimum:
    """θ = argmin J(θ) + aᵀu + (σ²/2)uᵀWu given Y = ∇J(θ_c) + a, W ~ Wishart(d, m), J smooth (Theorem A).

    σ²Wu = −(Y + ∇J(θ) − ∇J(θ_c)). In a frame whose first axis is u, Bartlett's W has the first column (w, p)
    with w ~ χ²_m, p ~ N(0, wI), and W = (w, p)(w, p)ᵀ/w + W̃, W̃ ~ Wishart(d−1, m−1) on the other axes. Hence

        log p(θ|Y) = (m−d−1)/2·log w − w/2 − ‖p‖²/(2w) + log E det(∇²J(θ) + σ²W) + const.

    M̃ being the Schur complement of the part without W̃, E det(M̃ + σ²W̃) = Σ_j e_{d−1−j}(M̃)·σ^{2j}(m−1)⋯(m−j)
    with the elementary symmetric polynomials e_i of its eigenvalues.
    """

    gradient: Derivative
    hessian: Derivative
    center: FloatArray
    noisy: FloatArray  # Y
    sigma2: float
    m: float
    linear: FloatArray  # a as it was drawn
    quadratic: FloatArray  # σ²W likewise
    reach: float
    share: float = UNSTATED  # g = L/σ²
    name: str = "minimiser"
    unit: ClassVar[Unit] = "g"

    def log_density(self, value: FloatArray) -> float:
        s, d, u = self.sigma2, value.size, (value - self.center).ravel()
        length = float(np.linalg.norm(u))
        if length == 0:
            return -math.inf
        moved = self.noisy + self.gradient(value) - self.gradient(self.center)
        frame = np.linalg.qr(np.column_stack([u, np.eye(d)]))[0]
        frame[:, 0] = u / length
        column = frame.T @ (-moved.ravel() / (s * length))
        w, p = float(column[0]), column[1:]
        if not w > 0:
            return -math.inf
        H = frame.T @ self.hessian(value) @ frame
        first, cross = H[0, 0] + s * w, H[1:, 0] + s * p
        rest = H[1:, 1:] + s * np.outer(p, p) / w - np.outer(cross, cross) / first
        found = (self.m - d - 1) / 2 * math.log(w) - w / 2 - float(p @ p) / (2 * w)
        return found + math.log(float(first)) + math.log(expected_det(rest, s, self.m - 1))

    def distance(self, other: CurvedMinimum, value: FloatArray) -> float:
        """‖∇²J(θ) − ∇²J'(θ)‖/σ², the spectral norm."""
        return float(np.linalg.norm(self.hessian(value) - other.hessian(value), 2)) / self.sigma2

    def residuals(self, value: FloatArray) -> FloatArray:
        return bartlett(self.quadratic / self.sigma2, self.m)

    def misses(self, value: FloatArray) -> float:
        slope = (self.gradient(value) + self.linear).ravel() + self.quadratic @ (value - self.center).ravel()
        return float(np.linalg.norm(slope)) / float(np.linalg.eigvalsh(self.quadratic)[0]) / self.reach


def bartlett(W: FloatArray, m: float) -> FloatArray:
    """Residuals of W ~ Wishart(d, m): L Lᵀ = W has χ² on the diagonal, m, m−1, … degrees of freedom, and
    N(0, 1) below it."""
    root = np.linalg.cholesky(W)
    degrees = m - np.arange(len(root))
    law, squares = stats.chi2(degrees), np.square(np.diag(root))
    upper = squares > degrees
    z = np.where(upper, special.ndtri_exp(law.logsf(squares)), special.ndtri_exp(law.logcdf(squares)))
    return np.append(np.where(upper, -z, z), root[np.tril_indices(len(root), -1)])


def expected_det(M: FloatArray, scale: float, m: float) -> float:
    """E det(M + scale·W̃), W̃ ~ Wishart(q, m), for a symmetric M of shape (q, q)."""
    q = len(M)
    symmetric = np.zeros(q + 1)  # e_0, …, e_q
    symmetric[0] = 1.0
    for eigenvalue in np.linalg.eigvalsh(M) if q else ():
        symmetric[1:] += symmetric[:-1] * eigenvalue
    minors = np.concatenate([[1.0], np.cumprod(scale * (m - np.arange(q)))])  # of scale·W̃, expected
    return float(minors[::-1] @ symmetric)
