"""Many private fits by torch operations, float64, on any torch device.

The whole batch moves in step: batched Cholesky factorisations, coordinate descent over coordinates with
every fit at once, Newton steps for logistic loss. Random numbers come from a torch.Generator of the
device, seeded by the caller: reproducible on one kind of device, for research only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from curvedp.audit.fits import Bins, Counts, Draws, Fits, Penalty, QuadraticFits
from curvedp.errors import InvalidInput

if TYPE_CHECKING:  # a GPU machine needs numpy, torch and CuPy only
    from curvedp.arrays import FloatArray

Tensor = Any  # torch has no stubs that mypy follows here
Terms = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
_MAX_SWEEPS = 2000
_MAX_NEWTON = 100
_MEMORY = 2**27  # doubles in flight: the factors of one chunk


@dataclass(frozen=True)
class Torch:
    """The torch backend on one device ("cpu", "cuda")."""

    device: str = "cuda"

    def sample(self, fits: Fits, n: int, seed: int) -> FloatArray:
        """n fits with fresh draws, shape (n, d)."""
        return np.concatenate([part.cpu().numpy() for part in self._parts(fits, n, seed)])

    def histogram(
        self, fits: Fits, direction: FloatArray, bins: Bins, n: int, seed: int, output_noise: float
    ) -> Counts:
        """Counts of direction·θ + output_noise·N(0, 1) over n fresh fits."""
        weights = self._tensor(direction)
        source = torch.Generator(self.device).manual_seed((seed + 1) % 2**63)
        total = torch.zeros(bins.count, dtype=torch.int64, device=self.device)
        for theta in self._parts(fits, n, seed):
            score = theta @ weights
            score = score + output_noise * _normal(score.shape, source)
            cells = torch.floor((score - bins.low) * (bins.count / (bins.high - bins.low)))
            cells = torch.nan_to_num(cells, nan=bins.count - 1).clamp(0, bins.count - 1).long()
            total += torch.bincount(cells, minlength=bins.count)
        return np.asarray(total.cpu().numpy())

    def solve_draws(self, fits: Fits, draws: Draws) -> FloatArray:
        """The fits for the given draws."""
        theta = self._solve(fits, self._tensor(draws.factor), self._tensor(draws.normal))
        return np.asarray(theta.cpu().numpy())

    def _tensor(self, values: FloatArray) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values, dtype=np.float64), device=self.device)

    def _parts(self, fits: Fits, n: int, seed: int) -> Any:
        """θ of the n fits, a chunk at a time."""
        source = torch.Generator(self.device).manual_seed(seed)
        size = max(1, _MEMORY // (8 * fits.d**2))
        for a in range(0, n, size):
            L, z = bartlett(fits.noise.m, fits.noise.sigma2 > 0, min(size, n - a), fits.d, source)
            yield self._solve(fits, L, z)

    def _solve(self, fits: Fits, L: Tensor, z: Tensor) -> Tensor:
        d, noise = fits.d, fits.noise
        center = self._tensor(np.zeros(d) if fits.center is None else fits.center)
        Q = noise.ridge * self._tensor(np.eye(d))
        Q = Q + noise.sigma2 * (L @ L.mT) if noise.sigma2 > 0 else Q.expand(z.shape[0], d, d)
        a = noise.sigma0 * z
        if isinstance(fits, QuadraticFits):
            return quadratic(Q + self._tensor(fits.gram), self._tensor(fits.linear) - a, center, fits.penalty)
        if not fits.penalty.is_smooth:
            raise InvalidInput('fits by margins with an L1 term or a box run on the CPU: pass device="cpu"')
        x, y = self._tensor(fits.x), self._tensor(fits.y)
        if fits.slopes is None:
            terms = partial(_logistic, y)
        else:
            low, high = (self._tensor(slope) for slope in fits.slopes)
            terms = partial(_clipped, y, low, high)
        return newton(x, self._tensor(fits.counts), terms, Q, a, center)


def _normal(shape: Any, source: Any) -> Tensor:
    return torch.randn(shape, generator=source, dtype=torch.float64, device=source.device)


def chi_square(df: Tensor, n: int, source: Any) -> Tensor:
    """χ²_{df_j} of shape (n, len(df)) by Marsaglia and Tsang's rejection; df < 2 through df + 2."""
    shape = df / 2
    boosted = torch.where(shape < 1, shape + 1, shape).expand(n, -1)
    b = boosted - 1 / 3
    c = 1 / torch.sqrt(9 * b)
    value = torch.full_like(boosted, math.nan)
    while True:
        missing = torch.isnan(value)
        if not bool(missing.any()):
            break
        x = _normal(value.shape, source)
        u = torch.rand(value.shape, generator=source, dtype=torch.float64, device=source.device)
        v = (1 + c * x) ** 3
        accept = (
            missing & (v > 0) & (torch.log(u) < 0.5 * x**2 + b * (1 - v + torch.log(v.clamp_min(1e-300))))
        )
        value = torch.where(accept, b * v, value)
    u = torch.rand(value.shape, generator=source, dtype=torch.float64, device=source.device)
    return 2 * torch.where(shape < 1, value * u ** (1 / shape), value)


def bartlett(m: float, curved: bool, n: int, d: int, source: Any) -> tuple[Tensor, Tensor]:
    """(L, z): LLᵀ ~ Wishart(d, m) (an empty L unless `curved`), z ~ N(0, I)."""
    z = _normal((n, d), source)
    if not curved:
        return z.new_empty((0, d, d)), z
    L = _normal((n, d, d), source).tril_(-1)
    df = m - torch.arange(d, dtype=torch.float64, device=source.device)
    L.diagonal(dim1=-2, dim2=-1).copy_(torch.sqrt(chi_square(df, n, source)))
    return L, z


def _solve_spd(A: Tensor, b: Tensor) -> Tensor:
    """A⁻¹b for every fit; NaN where A is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(A)
    x = torch.cholesky_solve(b.unsqueeze(-1), factor).squeeze(-1)
    return torch.where((info == 0).unsqueeze(-1), x, torch.full_like(x, math.nan))


def quadratic(S: Tensor, q: Tensor, center: Tensor, penalty: Penalty) -> Tensor:
    """argmin of ½uᵀSu − qᵀu + l1‖θ‖₁ over the box, u = θ − θ_c, for every fit of the batch."""
    if penalty.is_smooth:
        return center + _solve_spd(S, q)
    return composite(S, q + S @ center, penalty)


def composite(S: Tensor, q: Tensor, penalty: Penalty) -> Tensor:
    """argmin_{lower ≤ θ ≤ upper} ½θᵀSθ − qᵀθ + l1‖θ‖₁ for every fit.

    Coordinate descent with all fits in step, then a solve on each face. A fit leaves the batch when the
    minimiser on its face meets the optimality conditions.
    """
    n, d = q.shape
    result = torch.full_like(q, math.nan)
    alive = torch.arange(n, device=q.device)
    theta = torch.zeros_like(q).clamp(penalty.lower, penalty.upper)
    g = torch.einsum("nij,nj->ni", S, theta) - q
    tolerance = 1e-13 * torch.clamp(q.abs().amax(1), min=penalty.l1)
    for sweep in range(1, _MAX_SWEEPS + 1):
        for i in range(d):
            curvature = S[:, i, i]
            target = theta[:, i] - g[:, i] / curvature
            value = torch.sign(target) * (target.abs() - penalty.l1 / curvature).clamp_min(0)
            value = value.clamp(penalty.lower, penalty.upper)
            g += (value - theta[:, i]).unsqueeze(1) * S[:, i]
            theta[:, i] = value
        if sweep & (sweep - 1) and sweep % 16:
            continue  # try the face after sweeps 1, 2, 4, 8, 16, 32, 48, …
        candidate, good = _face(S, q, theta, penalty, tolerance)
        result[alive[good]] = candidate[good]
        keep = ~good
        if not bool(keep.any()):
            break
        S, q, theta, g, tolerance, alive = (t[keep] for t in (S, q, theta, g, tolerance, alive))
    return result


def _face(S: Tensor, q: Tensor, theta: Tensor, penalty: Penalty, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """The minimiser on the face of θ (its free coordinates and signs), and whether it is optimal overall."""
    l1, lower, upper = penalty.l1, penalty.lower, penalty.upper
    free = (theta > lower) & (theta < upper)
    if l1 > 0:
        free &= theta != 0
    sign = torch.sign(theta)
    both = free.unsqueeze(1) & free.unsqueeze(2)
    A = torch.where(both, S, 0.0) + torch.diag_embed((~free).to(S.dtype))  # S on the face, identity off it
    fixed = torch.where(free, torch.zeros_like(theta), theta)
    rhs = q - l1 * sign - torch.einsum("nij,nj->ni", S, fixed)
    candidate = torch.where(free, _solve_spd(A, torch.where(free, rhs, fixed)), fixed)
    inside = (candidate > lower) & (candidate < upper)
    if l1 > 0:
        inside &= candidate * sign > 0
    slope = q - torch.einsum("nij,nj->ni", S, candidate)  # must lie in l1·∂|θ_i| + the normal cone of the box
    infinity = torch.full_like(slope, math.inf)
    low = torch.where(candidate <= lower, -infinity, torch.where(fixed == 0, -l1, l1 * sign))
    high = torch.where(candidate >= upper, infinity, torch.where(fixed == 0, l1, l1 * sign))
    slack = tolerance.unsqueeze(1)
    optimal = (slope >= low - slack) & (slope <= high + slack)
    return candidate, torch.where(free, inside, optimal).all(1)


def _logistic(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(φ, φ', φ'') of log(1 + e^{−ys})."""
    p = torch.sigmoid(-y * s)
    return torch.nn.functional.softplus(-y * s), -y * p, p * (1 - p)


def _clipped(y: Tensor, low: Tensor, high: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(φ, φ', φ'') with φ' = clip(s − y, low, high)."""
    slope = torch.minimum(torch.maximum(s - y, low), high)
    return slope * (s - y - 0.5 * slope), slope, ((s - y > low) & (s - y < high)).to(s.dtype)


def newton(x: Tensor, counts: Tensor, terms: Terms, Q: Tensor, a: Tensor, center: Tensor) -> Tensor:
    """argmin of Σ counts·φ(xᵀθ; y) + aᵀu + ½uᵀQu by Newton's method, every fit in step."""

    def objective(theta: Tensor) -> Tensor:
        u = theta - center
        return terms(theta @ x.T)[0] @ counts + ((a + 0.5 * torch.einsum("nij,nj->ni", Q, u)) * u).sum(1)

    theta = center.expand_as(a).clone()
    value = objective(theta)
    for _ in range(_MAX_NEWTON):
        _, slope, bend = terms(theta @ x.T)
        gradient = a + torch.einsum("nij,nj->ni", Q, theta - center) + (counts * slope) @ x
        H = Q + torch.einsum("nr,ri,rj->nij", counts * bend, x, x)
        step = -_solve_spd(H, gradient)
        t = torch.ones_like(value)
        for _ in range(40):
            trial = objective(theta + t.unsqueeze(1) * step)
            worse = trial > value + 1e-13 * (1 + value.abs())
            if not bool(worse.any()):
                break
            t = torch.where(worse, t / 2, t)
        theta = theta + t.unsqueeze(1) * step
        value = objective(theta)
        if bool((step.abs().amax(1) <= 1e-9 * (1 + theta.abs().amax(1))).all()):
            break  # Newton converges quadratically: a step this short leaves an error of order 1e-18
    return theta
