"""Exact output densities where they are known, and the δ they imply by integration: attacks without sampling.

Smooth problems without constraint only. θ ↦ a is one to one, so with u = θ − θ_c, G = ∇J(θ), H = ∇²J(θ)

    linear noise:      p(θ) = N(G + Δu; σ²I)·det(H + ΔI)                                    (section 5)
    random curvature:  p(θ) = E_W[ N(G + σ²Wu; σ0²I)·det(H + σ²W) ]                         (section 3)

For d = 1 the expectation is one integral over χ²_m. For d = 2, in the frame whose first axis is u, Bartlett's
W = (w, √w z; √w z, z² + c) leaves one integral over w ~ χ²_m: z is Gaussian given θ, and c ~ χ²_{m−1} enters
linearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import special

from curvedp.arrays import FloatArray
from curvedp.audit.records import Records
from curvedp.errors import InvalidInput
from curvedp.losses import Loss

_LOG_2PI = math.log(2 * math.pi)
_REFINEMENTS = 3  # each divides the intervals around a jump by 31
_BEND = 0.02


class Density(Protocol):
    """The log-density of θ for a dataset and a loss with one margin."""

    def log_density(self, theta: FloatArray, records: Records, loss: Loss) -> FloatArray:
        """log p(θ) for each row of θ, shape (n, d)."""
        ...


def derivatives(
    theta: FloatArray, records: Records, loss: Loss, clip: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """∇J and ∇²J at each row of θ, shapes (n, d) and (n, d, d); records' gradients clipped to norm `clip`."""
    margins = theta @ records.x.T
    shape = margins.shape
    y = np.broadcast_to(records.y, shape).ravel()
    s = margins.reshape(-1, 1)
    slopes = loss.gradient(s, y).reshape(shape)
    bends = loss.hessian(s, y).reshape(shape)
    if clip is not None:
        steepest = clip / np.maximum(np.sqrt(np.square(records.x).sum(1)), 1e-300)
        bends = np.where(np.abs(slopes) < steepest, bends, 0.0)
        slopes = np.clip(slopes, -steepest, steepest)
    curved = np.einsum("nr,ri,rj->nij", bends * records.counts, records.x, records.x, optimize=True)
    return (slopes * records.counts) @ records.x, curved


@dataclass(frozen=True, eq=False)
class LinearNoise:
    """J + (Δ/2)‖u‖² + aᵀu, a ~ N(0, σ²I): LOP in any dimension; `clip` is that of LOP-Clip."""

    Delta: float
    sigma: float
    center: FloatArray
    clip: float | None = None

    def log_density(self, theta: FloatArray, records: Records, loss: Loss) -> FloatArray:
        d = theta.shape[1]
        G, H = derivatives(theta, records, loss, self.clip)
        a = G + self.Delta * (theta - self.center)
        _, logdet = np.linalg.slogdet(H + self.Delta * np.eye(d))
        square = np.square(a).sum(1) / self.sigma**2
        return np.asarray(logdet - 0.5 * square - d * (math.log(self.sigma) + 0.5 * _LOG_2PI))


@dataclass(frozen=True, eq=False)
class RandomCurvature:
    """J + aᵀu + (σ²/2)uᵀWu: QOP for d = 1 and 2; `nodes` Gauss–Legendre nodes over w."""

    sigma2: float
    m: float
    sigma0: float
    center: FloatArray
    nodes: int = 200

    def __post_init__(self) -> None:
        if not (self.sigma0 > 0 and self.sigma2 > 0 and self.m >= 2):
            raise InvalidInput("the density needs sigma0 > 0, sigma2 > 0 and m ≥ 2")
        if len(self.center) > 2:
            raise InvalidInput("the density is known for one or two features")

    def log_density(self, theta: FloatArray, records: Records, loss: Loss) -> FloatArray:
        d = theta.shape[1]
        G, H = derivatives(theta, records, loss)
        u = theta - self.center
        length = np.linalg.norm(u, axis=1)
        if d == 2:  # the frame whose first axis is u
            with np.errstate(invalid="ignore"):
                e = np.where(length[:, None] > 0, u / length[:, None], [1.0, 0.0])
            frame = np.stack([e, np.stack([-e[:, 1], e[:, 0]], axis=1)], axis=1)
            G = np.einsum("nab,nb->na", frame, G)
            H = np.einsum("nab,nbc,ndc->nad", frame, H, frame)
        else:
            G = G * np.where(u < 0, -1.0, 1.0)
        w, log_weight = self._window(G[:, 0], length)
        step = self.sigma2 * length[:, None]
        var = self.sigma0**2
        log_f = log_weight + (self.m / 2 - 1) * np.log(w) - w / 2
        log_f -= math.lgamma(self.m / 2) + self.m / 2 * math.log(2) + 0.5 * (math.log(var) + _LOG_2PI)
        log_f -= (G[:, :1] + step * w) ** 2 / (2 * var)
        first = H[:, 0, 0, None] + self.sigma2 * w
        if d == 1:
            return np.asarray(special.logsumexp(log_f + np.log(first), axis=1))
        root = np.sqrt(w)
        spread = var + (step * root) ** 2  # variance of G_2 + step·√w·z, negated
        log_f -= 0.5 * (G[:, 1:] ** 2 / spread + np.log(spread) + _LOG_2PI)
        mean, variance = -step * root * G[:, 1:] / spread, var / spread  # of z given θ and w
        square = mean**2 + variance
        corner = H[:, 0, 1, None]
        cross = corner**2 + 2 * corner * self.sigma2 * root * mean + self.sigma2**2 * w * square
        det = first * (H[:, 1, 1, None] + self.sigma2 * (square + self.m - 1)) - cross
        return np.asarray(special.logsumexp(log_f + np.log(det), axis=1))

    def _window(self, G: FloatArray, length: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Nodes w > 0 and their log weights where w^{m/2−1} e^{−w/2} N(G + σ²‖u‖w; σ0²) lives."""
        r = (self.sigma2 * length / self.sigma0) ** 2
        l = -G * self.sigma2 * length / self.sigma0**2 - 0.5
        k = self.m / 2 - 1 + 1e-9
        root = np.sqrt(l**2 + 4 * r * k)
        positive = l > 0
        mode = np.where(
            positive, (l + root) / np.where(positive, 2 * r, 1.0), 2 * k / np.where(positive, 1.0, root - l)
        )
        width = 1 / np.sqrt(r + k / mode**2)
        low = np.maximum(mode - 14 * width, 0.0)
        high = mode + 20 * width + 40 / (0.5 + np.maximum(-l, 0))
        x, weight = special.roots_legendre(self.nodes)
        half = (high - low)[:, None] / 2
        return low[:, None] + half * (x + 1), np.log(half * weight)


@dataclass(frozen=True, eq=False)
class Integrals:
    """Both densities on a grid over θ ∈ R."""

    log_p: FloatArray  # of D'
    log_q: FloatArray  # of D
    gaps: FloatArray  # between neighbouring points

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """(∫(p − e^ε q)₊, ∫(q − e^ε p)₊), the difference linear between points."""
        return self._positive_part(self.log_p, self.log_q + epsilon), self._positive_part(
            self.log_q, self.log_p + epsilon
        )

    def _positive_part(self, log_f: FloatArray, log_g: FloatArray) -> float:
        f = np.exp(log_f) - np.exp(log_g)
        left, right = f[:-1], f[1:]
        high = np.maximum(np.maximum(left, right), 0.0)
        low = np.minimum(left, right)
        crossing = high**2 / np.maximum(high - low, 1e-300)
        return float(self.gaps @ np.where(low >= 0, left + right, crossing)) / 2


def integrate(
    density: Density,
    left: Records,
    right: Records,
    loss: Loss,
    middle: float,
    spread: float,
    points: int = 4001,
) -> Integrals:
    """The densities for d = 1 on θ = middle + spread·sinh(t), |t| ≤ 9, refined where φ'' makes them jump.

    Refuses a grid that misses mass, so that a bad one cannot hide a violation.
    """
    theta = middle + spread * np.sinh(np.linspace(-9.0, 9.0, points))
    logs = np.empty((2, 0))
    for turn in range(_REFINEMENTS + 1):
        logs = np.array([density.log_density(theta[:, None], records, loss) for records in (right, left)])
        if turn < _REFINEMENTS:
            theta = _refined(theta, logs)
    gaps = np.diff(theta)
    for log_f in logs:
        f = np.exp(log_f)
        mass = float(gaps @ (f[1:] + f[:-1])) / 2
        if abs(mass - 1.0) > 1e-3:
            raise InvalidInput(f"the grid holds {mass:.6f} of the mass; pass a spread nearer to that of θ")
    return Integrals(logs[0], logs[1], gaps)


def _refined(theta: FloatArray, logs: FloatArray) -> FloatArray:
    """The grid with 30 more points in every interval where a log-density bends sharply and carries mass."""
    bends = np.abs(np.diff(logs, 2, axis=1)) > _BEND
    seen = (logs > logs.max(axis=1, keepdims=True) - 45.0)[:, 1:-1]
    at = np.flatnonzero((bends & seen).any(0)) + 1
    intervals = np.union1d(at - 1, at)
    inside = [np.linspace(theta[i], theta[i + 1], 32)[1:-1] for i in intervals]
    return np.sort(np.concatenate([theta, *inside]))
