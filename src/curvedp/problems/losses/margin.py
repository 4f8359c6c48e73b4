"""Losses with one margin, K = 1: regression, two classes, counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy.special import expit

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput, NotCovered
from curvedp.problems.domain import LARGEST_DECLARED, SMALLEST_DECLARED, Domain


@dataclass(frozen=True)
class Jump:
    """φ' is −τ where the target is far above the margin and 1 − τ far below, τ = quantile (P-11)."""

    quantile: float

    @property
    def steepest(self) -> float:
        """max(τ, 1 − τ), the largest |φ'|."""
        return max(self.quantile, 1.0 - self.quantile)

    @property
    def balance(self) -> float:
        """2τ(1 − τ): ½ for the median, and the less the fewer records lie on one side."""
        return 2.0 * self.quantile * (1.0 - self.quantile)


class Loss(Protocol):
    """ℓ(θ; z) = φ(θᵀx; y), convex and C^{1,1} in the margin s ∈ R^K. Frozen, holds no data.

    Vectorised over records: s has shape (n, K), y shape (n,). `y` is a number (regression), ±1 (binary)
    or a class index 0..K−1 (multinomial). A loss that reads more of a record has an attribute `n_targets`,
    and takes y of shape (n, n_targets); one whose slope jumps has `jump`. The constants hold for ‖x‖ ≤ B =
    domain.x_norm and |y| ≤ Y = domain.y_bound, after `clip_target` (section 6).
    A class that inherits from this one has what follows from the rest.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_outputs(self) -> int:
        """K, the number of columns of θ."""

    @property
    def rank(self) -> int:
        """ρ: the largest rank of ∇²ℓ in θ."""
        return self.n_outputs

    @property
    def is_quadratic(self) -> bool:
        """True when J depends on the data only through second moments (squared loss)."""
        return False

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """φ(s; y), shape (n,)."""

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """∂φ/∂s, shape (n, K)."""

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        """∂²φ/∂s², shape (n, K, K)."""

    def inverse_link(self, s: FloatArray) -> FloatArray:
        """What the margins predict: E[y | s], or the probability of each class; shape (n, K).

        For two classes the probability of the second, shape (n, 1).
        """
        return s

    def over(self, width: float) -> Loss:
        """Where φ' jumps: the loss smoothed over this half width. Any other as it is."""
        return self

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """y moved into the set the constants below assume (|y| ≤ Y, ±1, 0..K−1); a NaN too."""

    def curvature(self, domain: Domain, radius: float) -> float:
        """β ≥ ‖φ''‖ on margins reachable with ‖θ‖ ≤ radius (only Poisson needs the radius)."""

    def smoothness(self, domain: Domain, radius: float) -> float:
        """L = β B²."""
        return self.curvature(domain, radius) * domain.x_norm**2

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c ≥ sup_z ‖∇ℓ(θ_c; z)‖, ‖θ_c‖ ≤ center_norm."""

    def center_diameter(self, domain: Domain, center_norm: float) -> float:
        """Δ_c ≥ sup_{z,z'} ‖∇ℓ(θ_c; z) − ∇ℓ(θ_c; z')‖, at most 2γ_c."""
        return 2.0 * self.center_bound(domain, center_norm)

    def gradient_bound(self, domain: Domain, radius: float) -> float:
        """ζ ≥ ‖∇ℓ(θ; z)‖ for ‖θ‖ ≤ radius; may be infinite when radius is. It is γ_c of that radius."""
        return self.center_bound(domain, radius)


def jump_of(loss: Loss) -> Jump | None:
    """How φ' jumps where the margin passes the target, but for a smoothing; None: it does not."""
    return getattr(loss, "jump", None)


class MarginLoss(Loss):
    """What losses with one margin share: K = 1, and |y| ≤ Y, β = 1 unless it is said otherwise."""

    n_outputs = 1

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """y clipped to [−Y, Y]; a NaN becomes 0, the middle."""
        return np.clip(np.where(np.isnan(y), 0.0, y), -domain.y_bound, domain.y_bound)

    def curvature(self, domain: Domain, radius: float) -> float:
        return 1.0


class _Signed(MarginLoss):
    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """+1 where y > 0, else −1: so a NaN belongs to class −1."""
        return np.where(y > 0, 1.0, -1.0)


@dataclass(frozen=True)
class Squared(MarginLoss):
    """φ(s; y) = ½(s − y)²."""

    name = "squared"
    is_quadratic = True

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(0.5 * (s[:, 0] - y) ** 2)

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(s - y[:, None])

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.ones((len(y), 1, 1))

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B(B‖θ_c‖ + Y)."""
        return domain.x_norm * (domain.x_norm * center_norm + domain.y_bound)


@dataclass(frozen=True)
class Logistic(_Signed):
    """φ(s; y) = log(1 + e^{−ys}), y = ±1."""

    name = "logistic"

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(0.0, -y * s[:, 0]))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(-y * expit(-y * s[:, 0]))[:, None]

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(expit(s[:, 0]) * expit(-s[:, 0]))[:, None, None]

    def inverse_link(self, s: FloatArray) -> FloatArray:
        """σ(s), the probability of y = 1."""
        return np.asarray(expit(s))

    def curvature(self, domain: Domain, radius: float) -> float:
        return 0.25

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B σ(B‖θ_c‖); Δ_c ≤ 2γ_c, which is B at θ_c = 0."""
        return domain.x_norm * float(expit(domain.x_norm * center_norm))


@dataclass(frozen=True)
class Huber(MarginLoss):
    """φ(s; y) = ½r² if |r| ≤ w, else w|r| − w²/2, with r = s − y and w = width."""

    width: float = 1.0
    name = "huber"

    def __post_init__(self) -> None:
        if not SMALLEST_DECLARED <= self.width <= LARGEST_DECLARED:
            raise InvalidInput(
                f"width must be a number from 1e-60 to 1e60, the largest |φ'|; got {self.width!r}: "
                "declare the target in units nearer to 1"
            )

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        r = np.abs(s[:, 0] - y)
        q = np.minimum(r, self.width)
        return np.asarray(q * (r - 0.5 * q))

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.clip(s - y[:, None], -self.width, self.width)

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.where(np.abs(s[:, 0] - y) < self.width, 1.0, 0.0)[:, None, None]

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B min(w, B‖θ_c‖ + Y)."""
        return domain.x_norm * min(self.width, domain.x_norm * center_norm + domain.y_bound)


@dataclass(frozen=True)
class Quantile(Huber):
    """The mean of the check loss ρ_τ(y − s + u) over |u| ≤ h = width, ρ_τ(r) = r(τ − 1{r < 0}), τ = quantile.

    φ = Huber_h(r)/(2h) + h/4 + (½ − τ)r with r = s − y: φ' is −τ for targets far above, 1 − τ far below.
    """

    quantile: float = field(default=0.5, kw_only=True)
    name = "quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.quantile < 1.0:
            raise InvalidInput(f"quantile must be a number between 0 and 1, got {self.quantile!r}")

    @property
    def jump(self) -> Jump:
        return Jump(self.quantile)

    def over(self, width: float) -> Quantile:
        return replace(self, width=max(width, SMALLEST_DECLARED))

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        tilted = 0.25 * self.width + (0.5 - self.quantile) * (s[:, 0] - y)
        return np.asarray(super().value(s, y) / (2.0 * self.width) + tilted)

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(super().gradient(s, y) / (2.0 * self.width) + (0.5 - self.quantile))

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(super().hessian(s, y) / (2.0 * self.width))

    def curvature(self, domain: Domain, radius: float) -> float:
        """β = 1/(2h)."""
        return 0.5 / self.width

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B(min(½, (B‖θ_c‖ + Y)/(2h)) + |½ − τ|), at most B max(τ, 1 − τ) whatever the target is."""
        tilt = domain.x_norm * abs(0.5 - self.quantile)
        return super().center_bound(domain, center_norm) / (2.0 * self.width) + tilt


@dataclass(frozen=True)
class SquaredHinge(_Signed):
    """φ(s; y) = ½ max(0, 1 − ys)², y = ±1."""

    name = "squared_hinge"

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(0.5 * np.maximum(0.0, 1.0 - y * s[:, 0]) ** 2)

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(-y * np.maximum(0.0, 1.0 - y * s[:, 0]))[:, None]

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.where(y * s[:, 0] < 1.0, 1.0, 0.0)[:, None, None]

    def inverse_link(self, s: FloatArray) -> FloatArray:
        raise NotCovered("margins of a squared hinge are no probabilities; use the logistic loss")

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B(1 + B‖θ_c‖)."""
        return domain.x_norm * (1.0 + domain.x_norm * center_norm)


# e^600 is still a number with which one can calculate; no usable bound is anywhere near it.
LARGEST_LOG_RATE = 600.0


@dataclass(frozen=True)
class Poisson(MarginLoss):
    """φ(s; y) = e^s − ys for s ≤ s̄ = max_margin, continued quadratically above; 0 ≤ y ≤ Y.

    The curvature e^s is bounded only where the margin is: pass a bounded constraint, or a smaller
    `max_margin` (a public bound of log-rates; where C keeps margins below it, it changes nothing).
    """

    max_margin: float = LARGEST_LOG_RATE
    name = "poisson"

    def __post_init__(self) -> None:
        if not abs(self.max_margin) <= LARGEST_LOG_RATE:
            raise InvalidInput(f"max_margin must be a number, the largest log-rate; got {self.max_margin!r}")

    def _rate(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """e^{min(s, s̄)} and the part of s beyond s̄."""
        inside = np.minimum(s, self.max_margin)
        return np.exp(inside), s - inside

    def value(self, s: FloatArray, y: FloatArray) -> FloatArray:
        rate, beyond = self._rate(s[:, 0])
        return np.asarray(rate * (1.0 + beyond * (1.0 + 0.5 * beyond)) - y * s[:, 0])

    def gradient(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(self.inverse_link(s) - y[:, None])

    def hessian(self, s: FloatArray, y: FloatArray) -> FloatArray:
        return self._rate(s)[0][:, :, None]

    def inverse_link(self, s: FloatArray) -> FloatArray:
        """The expected count: e^s for s ≤ s̄, continued linearly above, as in φ' = mean − y."""
        rate, beyond = self._rate(s)
        return np.asarray(rate * (1.0 + beyond))

    def clip_target(self, y: FloatArray, domain: Domain) -> FloatArray:
        """y clipped to [0, Y]; that of the zero record, a NaN, becomes 0."""
        return np.clip(np.where(np.isnan(y), 0.0, y), 0.0, domain.y_bound)

    def _largest_rate(self, domain: Domain, radius: float) -> tuple[float, float]:
        """e^{s̄} at the largest margin that counts, and the margin beyond it."""
        reach = domain.x_norm * radius
        inside = min(reach, self.max_margin)
        if not inside < LARGEST_LOG_RATE:
            raise NotCovered(
                "the Poisson loss has no bound here: pass a public bound of the log-rate as `max_margin`, "
                "or choose another mechanism or a bounded constraint"
            )
        return math.exp(inside), max(reach - inside, 0.0)

    def curvature(self, domain: Domain, radius: float) -> float:
        """β = e^{s̄}, s̄ = min(B·radius, max_margin); `radius` must cover C and θ_c."""
        return self._largest_rate(domain, radius)[0]

    def center_bound(self, domain: Domain, center_norm: float) -> float:
        """γ_c = B max(e^{B‖θ_c‖}, Y). Δ_c = 2γ_c and no less: x' = −x flips the largest gradient."""
        rate, beyond = self._largest_rate(domain, center_norm)
        return domain.x_norm * max(rate * (1.0 + beyond), domain.y_bound)


def bounded_poisson() -> Poisson:
    """Counts in units of the largest rate: log-rates up to 0, β = 1."""
    return Poisson(max_margin=0.0)
