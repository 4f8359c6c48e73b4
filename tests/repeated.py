"""Rows with multiplicities: tables of any length at the cost of a few rows, no more exact than real ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows import base
from curvedp.data.rows.base import Layout, Moments
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Loss


@dataclass(frozen=True, eq=False)
class Repeated:
    """Row i of (x, y) is there counts_i times. It claims the rounding errors of the longest sums that exist,
    and really is off by a share `unsteady` of them, in a direction that jumps about with θ."""

    x: FloatArray
    y: FloatArray
    counts: FloatArray
    layout: Layout
    unsteady: float = 0.05

    @property
    def magnitude(self) -> float:
        return self.layout.domain.x_norm

    @property
    def d(self) -> int:
        return self.layout.d

    def count(self) -> int:
        return int(self.counts.sum())

    def moments(self) -> Moments:
        weighted, y = self.x * self.counts[:, None], self.y[:, None]
        mass, targets = float(self.counts @ self._norms**2), float(self.counts @ self.y**2)
        error = base.moments_error(mass, targets, self._additions)
        jump = np.random.default_rng(self.count()).standard_normal((self.d, self.d))
        jump = self.unsteady * error * (jump + jump.T) / np.linalg.norm(jump + jump.T)
        return Moments(weighted.T @ self.x + jump, weighted.T @ y, np.array([[targets]]), error)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        slopes = self._slopes(loss, theta)
        if clip is not None:
            norms = self._norms * np.linalg.norm(slopes, axis=1)
            slopes = slopes * np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None]
        jump = np.random.default_rng(list(theta.tobytes())).standard_normal(theta.shape)
        jump *= self.unsteady * self.gradient_error(loss, theta) / np.linalg.norm(jump)
        return np.asarray(self.x.T @ (self.counts[:, None] * slopes) + jump)

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        second = self.counts[:, None, None] * loss.hessian(self.x @ theta, self._targets(loss))
        if clip is not None:
            second = second * (self._norms * np.abs(self._slopes(loss, theta)[:, 0]) < clip)[:, None, None]
        H = np.einsum("rkl,ri,rj->ikjl", second, self.x, self.x)
        return np.asarray(H.reshape(theta.size, theta.size))

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        slopes = np.linalg.norm(self._slopes(loss, theta), axis=1)
        masses = [float(self.counts @ part) for part in (self._norms, self._norms**2, self._norms * slopes)]
        norm = float(np.linalg.norm(theta))
        return base.gradient_error(self.layout, loss, norm, tuple(masses), self._additions)

    def _slopes(self, loss: Loss, theta: FloatArray) -> FloatArray:
        return loss.gradient(self.x @ theta, self._targets(loss))

    def _targets(self, loss: Loss) -> FloatArray:
        return loss.clip_target(self.y, self.layout.domain)

    @property
    def _norms(self) -> FloatArray:
        return np.asarray(np.linalg.norm(self.x, axis=1))

    @property
    def _additions(self) -> int:
        return base.additions_at_most(self.d)


def hostile(seed: int, d: int, n: float, domain: Domain, classes: int = 1) -> Repeated:
    """About n records: long, tiny, nearly collinear or sparse, extreme targets, uneven multiplicities."""
    random = np.random.default_rng(seed)
    r = int(random.integers(1, 12))
    x = random.standard_normal((r, d))
    match random.integers(4):
        case 0:
            x *= 10.0 ** random.uniform(-9, 0, (r, 1))
        case 1:
            x = np.outer(x[:, 0], random.standard_normal(d)) + 10.0 ** random.uniform(-9, -3) * x
        case 2:
            x *= random.random(x.shape) < 0.3
    lengths = np.linalg.norm(x, axis=1)
    if random.random() < 0.7:  # most of them as long as they may be
        lengths = lengths * random.choice([1.0, 1.0, 2.0, 1e3], r)
    else:
        lengths = np.maximum(lengths, 1.0)
    x = x / np.maximum(lengths, 1e-300)[:, None] * domain.x_norm * (1 - 1e-12)
    targets = np.array([-1.0, 1.0, 0.0, 0.3]) * domain.y_bound if classes == 1 else np.arange(classes) * 1.0
    y = random.choice(targets, r)
    counts = np.floor(random.dirichlet(np.full(r, 0.3)) * n)
    return Repeated(x, y, counts, Layout(domain, d))
