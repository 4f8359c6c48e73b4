"""What the accounting of objective perturbation sees, and its log-likelihood ratio, in any dimension.

QOP (Theorem A): Y = Σ∇ℓ(θ_c; z) + a and θ. Y is Gaussian. Given Y, with u = θ − θ_c,
σ²Wu = −(Y + ∇J(θ) − ∇J(θ_c)). In a frame whose first axis is u, Bartlett's W has the first column (w, p) with
w ~ χ²_m and p ~ N(0, wI), and W = (w, p)(w, p)ᵀ/w + W̃, W̃ ~ Wishart(d−1, m−1) on the other axes. Hence

    log p(θ|Y) = k log w − w/2 − ‖p‖²/(2w) + log E det(∇²J(θ) + σ²W) + const,    k = (m−d−1)/2.

M̃ being the Schur complement of the part without W̃, E det(M̃ + σ²W̃) = Σ_j e_{d−1−j}(M̃)·σ^{2j}(m−1)⋯(m−j) with
the elementary symmetric polynomials e_i of its eigenvalues.

LOP (P-8): θ alone, whose density is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.accounted import Accounted, CountedDraws, register
from curvedp.audit.densities import Density, derivatives
from curvedp.audit.fits import Backend
from curvedp.audit.fits.recentered import Drawn
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records
from curvedp.audit.samplers import Batches, density, fast_sampler, known, unpenalized
from curvedp.ensembles import Wishart
from curvedp.losses import Loss
from curvedp.mechanisms.lop import LOPPlan
from curvedp.mechanisms.qop import QOPPlan

_ROWS = 2**15  # fits in memory
_STEPS = 60  # of Newton's method, at most
_HALVINGS = 30


@register
def _(plan: QOPPlan, pair: Pair, engine: Backend) -> Accounted | None:
    p = plan.parameters
    if not unpenalized(plan.problem, plan.d) or plan.problem.loss.n_outputs != 1 or p.sigma0 == 0:
        return None
    return RandomCurvatureFits(pair, plan.problem.loss, p.sigma2, p.m, p.sigma0, plan.center.ravel())


@register
def _(plan: LOPPlan, pair: Pair, engine: Backend) -> Accounted | None:
    exact, fits = density(plan), known(fast_sampler, plan, pair, engine)
    if exact is None or not isinstance(fits, Batches):
        return None
    return ThetaAlone(Batches(fits.fits, 0.0, engine), exact, pair, plan.problem.loss)


@dataclass(frozen=True, eq=False)
class RandomCurvatureFits(CountedDraws):
    """(Y, θ) of QOP on the tables of a pair; no penalty, no constraint, one margin."""

    pair: Pair
    loss: Loss
    sigma2: float
    m: float
    sigma0: float
    center: FloatArray

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """n fresh fits: θ_priv, and log p₁ − log p₀ of (Y, θ_priv)."""
        random = randomness.generator(seed)
        parts = [self._some(side, min(_ROWS, n - start), random) for start in range(0, n, _ROWS)]
        return Drawn(np.concatenate([p.theta for p in parts]), np.concatenate([p.ratio for p in parts]))

    def _some(self, side: int, n: int, random: np.random.Generator) -> Drawn:
        d = len(self.center)
        Y = self._centers[side] + self.sigma0 * random.standard_normal((n, d))
        W = Wishart(d, self.m).sample(random, n)
        theta = solved(self._tables[side], self.loss, Y - self._centers[side], self.sigma2 * W, self.center)
        own, other = (
            self.log_density(Y, theta, table) - np.square((Y - center) / self.sigma0).sum(1) / 2
            for table, center in zip(self._tables, self._centers, strict=True)
        )
        return Drawn(theta, other - own)

    @property
    def _tables(self) -> tuple[Records, Records]:
        return self.pair.left, self.pair.right

    @cached_property
    def _centers(self) -> list[FloatArray]:
        """Σ∇ℓ(θ_c; z)."""
        return [derivatives(self.center[None], table, self.loss)[0][0] for table in self._tables]

    def log_density(self, Y: FloatArray, theta: FloatArray, records: Records) -> FloatArray:
        """log p(θ | Y) up to a function of θ alone; −∞ where no W leads there."""
        d, s = len(self.center), self.sigma2
        G, H = derivatives(theta, records, self.loss)
        G = G - derivatives(self.center[None], records, self.loss)[0]
        u = theta - self.center
        length = np.linalg.norm(u, axis=1, keepdims=True)
        column = _reflected(u, -(Y + G) / (s * length))  # (w, p)
        H = _reflected(u, _reflected(u, H).transpose(0, 2, 1))
        w = column[:, 0]
        possible = w > 0
        w, p = np.where(possible, w, 1.0), column[:, 1:]
        k = (self.m - d - 1) / 2
        first = H[:, 0, 0] + s * w
        cross = H[:, 1:, 0] + s * p
        rest = H[:, 1:, 1:] + s * _outer(p) / w[:, None, None] - _outer(cross) / first[:, None, None]
        found = k * np.log(w) - w / 2 - np.square(p).sum(1) / (2 * w)
        found += np.log(first) + np.log(_expected_det(rest, s, self.m - 1))
        return np.where(possible, found, -np.inf)


def _outer(v: FloatArray) -> FloatArray:
    return np.asarray(v[:, :, None] * v[:, None, :])


def _reflected(u: FloatArray, vectors: FloatArray) -> FloatArray:
    """The Householder reflection that takes u to the first axis, times sign, applied to axis 1.

    What changes sign is the frame: the first entry of a reflected vector is its component along u.
    """
    e = u / np.linalg.norm(u, axis=1, keepdims=True)
    sign = np.where(e[:, :1] < 0, 1.0, -1.0)
    v = e.copy()
    v[:, :1] -= sign  # no cancellation: e₁ and sign differ in sign
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    shown = vectors if vectors.ndim == 3 else vectors[:, :, None]
    turned = shown - 2 * v[:, :, None] * np.einsum("ni,nij->nj", v, shown)[:, None, :]
    turned[:, 0] *= sign
    return np.asarray(turned if vectors.ndim == 3 else turned[:, :, 0])


def _expected_det(M: FloatArray, scale: float, m: float) -> FloatArray:
    """E det(M + scale·W̃), W̃ ~ Wishart(q, m), for symmetric M of shape (n, q, q)."""
    n, q = M.shape[:2]
    values = np.linalg.eigvalsh(M) if q > 1 else M.reshape(n, q)
    symmetric = np.zeros((q + 1, n))  # e_0, …, e_q
    symmetric[0] = 1.0
    for j in range(q):
        symmetric[1:] += symmetric[:-1].copy() * values[:, j]
    minors = np.concatenate([[1.0], np.cumprod(scale * (m - np.arange(q)))])  # of scale·W̃, expected
    return np.asarray(minors[::-1] @ symmetric)


def solved(
    records: Records, loss: Loss, linear: FloatArray, quadratic: FloatArray, center: FloatArray
) -> FloatArray:
    """argmin J(θ) + aᵀu + ½uᵀQu for each a of shape (n, d) and Q of shape (n, d, d), by Newton's method."""

    def objective(theta: FloatArray) -> FloatArray:
        u, margins = theta - center, theta @ records.x.T
        y = np.broadcast_to(records.y, margins.shape).ravel()
        values = loss.value(margins.reshape(-1, 1), y).reshape(margins.shape)
        curved = np.einsum("nij,ni,nj->n", quadratic, u, u)
        return np.asarray(values @ records.counts + (linear * u).sum(1) + curved / 2)

    theta = np.broadcast_to(center, linear.shape).copy()
    for _ in range(_STEPS):
        G, H = derivatives(theta, records, loss)
        G = G + linear + np.einsum("nij,nj->ni", quadratic, theta - center)
        step = np.linalg.solve(H + quadratic, -G[:, :, None])[:, :, 0]
        if loss.is_quadratic:
            return theta + step
        now = objective(theta)
        for _ in range(_HALVINGS):
            risen = objective(theta + step) > now + 1e-12 * np.abs(now)
            if not risen.any():
                break
            step[risen] /= 2
        theta += step
        if np.linalg.norm(step, axis=1).max() <= 1e-10 * (1e-3 + np.linalg.norm(theta, axis=1).max()):
            break
    return theta


@dataclass(frozen=True, eq=False)
class ThetaAlone(CountedDraws):
    """θ_priv of fits whose density is known."""

    fits: Batches
    density: Density
    pair: Pair
    loss: Loss

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """n fresh fits: θ_priv, and its log p₁ − log p₀."""
        theta = self.fits.sample(side, n, seed)
        left, right = (
            self.density.log_density(theta, table, self.loss) for table in (self.pair.left, self.pair.right)
        )
        return Drawn(theta, right - left)
