"""Many private fits on the CPU: one Bartlett draw, one factorisation, one compiled solve per fit.

Every kernel releases the GIL and works on its own block of fits with its own generator, so that blocks
run on threads side by side and the numbers do not depend on how many threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.fits import Bins, Counts, Draws, Fits, QuadraticFits
from curvedp.solvers.kernel import _minimize as descent

# Reductions may be reordered and fused; infinities (open boxes) and NaN (singular fits) keep their meaning.
_FLAGS: Any = {"reassoc", "contract", "nsz"}
_BLOCK = 2**20  # entries of W in one block; a block of fits shares one generator
_CHUNK = 2**17  # doubles: the factors drawn at a time stay in the cache
_SPAN = 256  # blocks in flight
_MAX_NEWTON = 200


class Composite(NamedTuple):
    """Σ_j l1_j|θ_j| and the box low ≤ θ ≤ high; solves begin at `start`."""

    smooth: bool
    l1: FloatArray
    low: FloatArray
    high: FloatArray
    start: FloatArray


class Quadratics(NamedTuple):
    """½uᵀ(base + σ²W)u − (linear − σ0 z)ᵀu, u = θ − θ_c."""

    base: FloatArray
    linear: FloatArray
    center: FloatArray
    sigma2: float
    sigma0: float


class Margins(NamedTuple):
    """Σ counts·φ(xᵀθ; y) + ½uᵀ(base + σ²W)u + σ0 zᵀu, u = θ − θ_c. φ logistic, or of clipped slope."""

    x: FloatArray
    y: FloatArray
    counts: FloatArray
    logistic: bool
    low: FloatArray
    high: FloatArray
    base: FloatArray
    center: FloatArray
    sigma2: float
    sigma0: float


@njit(nogil=True, fastmath=_FLAGS, cache=True)
def draw(generator: np.random.Generator, m: float, L: FloatArray, z: FloatArray) -> None:
    """z[f] ~ N(0, I) and L[f] lower triangular with LLᵀ ~ Wishart(d, m) (Bartlett), for every fit f.

    L_jj² ~ χ²_{m−j}, L_ij ~ N(0, 1) below the diagonal. L may be empty: then only z is drawn."""
    d = z.shape[1]
    for f in range(L.shape[0]):
        for j in range(d):
            L[f, j, j] = math.sqrt(generator.chisquare(m - j))
            for i in range(j + 1, d):
                L[f, i, j] = generator.standard_normal()
    for f in range(z.shape[0]):
        for j in range(d):
            z[f, j] = generator.standard_normal()


@njit(nogil=True, fastmath=_FLAGS, cache=True)
def add_outer(L: FloatArray, scale: float, S: FloatArray) -> None:
    """S += scale·LLᵀ, L lower triangular."""
    d = L.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for k in range(j + 1):
                total += L[i, k] * L[j, k]
            S[i, j] += scale * total
            S[j, i] = S[i, j]


@njit(nogil=True, fastmath=_FLAGS, cache=True)
def cholesky_solve(A: FloatArray, x: FloatArray) -> bool:
    """x ← A⁻¹x, and the lower triangle of A ← its factor; False when A is not positive definite."""
    d = x.size
    for i in range(d):
        for j in range(i):
            total = 0.0
            for k in range(j):
                total += A[i, k] * A[j, k]
            A[i, j] = (A[i, j] - total) / A[j, j]
        total = 0.0
        for k in range(i):
            total += A[i, k] * A[i, k]
        pivot = A[i, i] - total
        if not pivot > 0.0:
            return False
        A[i, i] = math.sqrt(pivot)
    for i in range(d):
        total = 0.0
        for k in range(i):
            total += A[i, k] * x[k]
        x[i] = (x[i] - total) / A[i, i]
    for i in range(d - 1, -1, -1):
        x[i] /= A[i, i]
        for k in range(i):
            x[k] -= A[i, k] * x[i]
    return True


@njit(nogil=True, cache=True)
def composite_solve(
    S: FloatArray, g: FloatArray, center: FloatArray, penalty: Composite, start: FloatArray, theta: FloatArray
) -> bool:
    """θ ← argmin ½uᵀSu + gᵀu + penalty by the one-at-a-time solver's kernel; False without curvature."""
    for j in range(theta.size):
        if not S[j, j] > 0.0:
            return False
    theta[:] = descent(S, g, center, penalty.l1, penalty.low, penalty.high, start, 100 + theta.size)
    return True


@njit(nogil=True, fastmath=_FLAGS, cache=True)
def quadratic(fits: Quadratics, penalty: Composite, L: FloatArray, z: FloatArray, out: FloatArray) -> None:
    """out[f] ← argmin of `fits` + `penalty` for the draw (L[f], z[f]); NaN when S is not definite."""
    S = fits.base.copy()
    for f in range(z.shape[0]):
        if fits.sigma2 > 0.0 or penalty.smooth:
            S[:, :] = fits.base
        if fits.sigma2 > 0.0:
            add_outer(L[f], fits.sigma2, S)
        q = fits.linear - fits.sigma0 * z[f]
        if penalty.smooth:
            good = cholesky_solve(S, q)
            out[f] = fits.center + q
        else:
            good = composite_solve(S, -q, fits.center, penalty, penalty.start, out[f])
        if not good:
            out[f] = np.nan


@njit(nogil=True, cache=True)
def loss_at(fits: Margins, i: int, s: float) -> tuple[float, float, float]:
    """(φ, φ', φ'') of record i at margin s."""
    y = fits.y[i]
    if fits.logistic:
        t = -y * s
        p = 1.0 / (1.0 + math.exp(min(-t, 700.0)))
        return max(t, 0.0) + math.log1p(math.exp(-abs(t))), -y * p, p * (1.0 - p)
    slope = min(max(s - y, fits.low[i]), fits.high[i])
    return slope * (s - y - 0.5 * slope), slope, 1.0 if fits.low[i] < s - y < fits.high[i] else 0.0


@njit(nogil=True, fastmath=_FLAGS, cache=True)
def objective(fits: Margins, Q: FloatArray, a: FloatArray, penalty: Composite, theta: FloatArray) -> float:
    """The objective of one fit at θ."""
    s = fits.x @ theta
    u = theta - fits.center
    total = float((a + 0.5 * (Q @ u)) @ u + (penalty.l1 * np.abs(theta)).sum())
    for i in range(s.shape[0]):
        total += fits.counts[i] * loss_at(fits, i, s[i])[0]
    return total


@njit(nogil=True, fastmath=_FLAGS, cache=True)
def newton(fits: Margins, penalty: Composite, Q: FloatArray, a: FloatArray, theta: FloatArray) -> bool:
    """θ ← the minimiser of one fit by Newton steps on the exact Hessian, halved until the objective falls.

    The steps are proximal where the penalty bends."""
    d = theta.size
    H, target = np.empty((d, d)), np.empty(d)
    theta[:] = penalty.start
    value = objective(fits, Q, a, penalty, theta)
    for _ in range(_MAX_NEWTON):
        s = fits.x @ theta
        gradient = a + Q @ (theta - fits.center)
        H[:, :] = Q
        for i in range(fits.x.shape[0]):
            _, slope, bend = loss_at(fits, i, s[i])
            for j in range(d):
                gradient[j] += fits.counts[i] * slope * fits.x[i, j]
                for k in range(d):
                    H[j, k] += fits.counts[i] * bend * fits.x[i, j] * fits.x[i, k]
        if penalty.smooth:
            step = -gradient
            good = cholesky_solve(H, step)
        else:
            good = composite_solve(H, gradient, theta.copy(), penalty, theta, target)
            step = target - theta
        if not good:
            return False
        t = 1.0
        trial = theta + step if penalty.smooth else target.copy()
        new = objective(fits, Q, a, penalty, trial)
        while new > value + 1e-13 * (1.0 + abs(value)) and t > 1e-10:
            t *= 0.5
            trial = theta + t * step
            new = objective(fits, Q, a, penalty, trial)
        theta[:] = trial
        value = new
        # Newton converges quadratically: a full step this short leaves an error of order 1e-18.
        if t == 1.0 and np.abs(step).max() <= 1e-9 * (1.0 + np.abs(theta).max()):
            return True
    return False


@njit(nogil=True, cache=True)
def margins(fits: Margins, penalty: Composite, L: FloatArray, z: FloatArray, out: FloatArray) -> None:
    """out[f] ← argmin of `fits` + `penalty` for the draw (L[f], z[f]); NaN when no minimiser was found."""
    Q = fits.base.copy()
    for f in range(z.shape[0]):
        if fits.sigma2 > 0.0:
            Q[:, :] = fits.base
            add_outer(L[f], fits.sigma2, Q)
        if not newton(fits, penalty, Q, fits.sigma0 * z[f], out[f]):
            out[f] = np.nan


Kernel = Callable[[FloatArray, FloatArray, FloatArray], None]


def kernel(fits: Fits) -> Kernel:
    """The compiled solve (L, z, out) for these fits."""
    d, noise = fits.d, fits.noise
    center = _vector(0.0 if fits.center is None else fits.center, d)
    low, high = _vector(fits.penalty.lower, d), _vector(fits.penalty.upper, d)
    start = np.clip(center, low, high)
    penalty = Composite(fits.penalty.is_smooth, _vector(fits.penalty.l1, d), low, high, start)
    ridge = noise.ridge * np.eye(d)
    if isinstance(fits, QuadraticFits):
        base = np.ascontiguousarray(fits.gram + ridge)
        form = Quadratics(base, _vector(fits.linear, d), center, float(noise.sigma2), float(noise.sigma0))
        if not penalty.smooth:  # begin at the fit whose W is its mean
            mean = base + noise.sigma2 * noise.m * np.eye(d)
            composite_solve(mean, -form.linear, center, penalty, start.copy(), start)
        return partial(quadratic, form, penalty)
    n = len(fits.y)
    low, high = (np.zeros(n), np.zeros(n)) if fits.slopes is None else fits.slopes
    model = Margins(
        x=np.ascontiguousarray(fits.x, dtype=np.float64),
        y=_vector(fits.y, n),
        counts=_vector(fits.counts, n),
        logistic=fits.slopes is None,
        low=_vector(low, n),
        high=_vector(high, n),
        base=ridge,
        center=center,
        sigma2=float(noise.sigma2),
        sigma0=float(noise.sigma0),
    )
    return partial(margins, model, penalty)


def _vector(value: FloatArray | float, n: int) -> FloatArray:
    return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (n,)))


def _block_size(d: int) -> int:
    return min(max(_BLOCK // (d * d), 32), 4096)


def _fill(fits: Fits, solve: Kernel, seed: int, out: FloatArray) -> np.random.Generator:
    """Draw and solve out.shape[0] fits; returns the generator, for noise that is added after the solve."""
    generator = randomness.generator(seed)
    d = fits.d
    size = max(1, _CHUNK // (d * d))
    for a in range(0, out.shape[0], size):
        part = out[a : a + size]
        L = np.zeros((part.shape[0] if fits.noise.sigma2 > 0 else 0, d, d))
        z = np.empty(part.shape)
        draw(generator, fits.noise.m, L, z)
        solve(L, z, part)
    return generator


@dataclass(frozen=True)
class Threads:
    """The CPU backend: blocks of fits on `count` threads."""

    count: int = 2

    def sample(self, fits: Fits, n: int, seed: int) -> FloatArray:
        """n fits with fresh draws, shape (n, d)."""
        out, solve, size = np.empty((n, fits.d)), kernel(fits), _block_size(fits.d)
        parts = [out[a : a + size] for a in range(0, n, size)]
        with ThreadPoolExecutor(self.count) as pool:
            list(pool.map(partial(_fill, fits, solve), seeds_from(seed, len(parts)), parts))
        return out

    def histogram(
        self, fits: Fits, direction: FloatArray, bins: Bins, n: int, seed: int, output_noise: float
    ) -> Counts:
        """Counts of direction·θ + output_noise·N(0, 1) over n fresh fits."""
        solve, full = kernel(fits), _block_size(fits.d)

        def block(size: int, block_seed: int) -> Counts:
            out = np.empty((size, fits.d))
            generator = _fill(fits, solve, block_seed, out)
            score = out @ direction + output_noise * generator.standard_normal(size)
            return np.bincount(bins.index(score), minlength=bins.count)

        total = np.zeros(bins.count, dtype=np.int64)
        sizes = [full] * (n // full) + [n % full] * (n % full > 0)
        seeds = seeds_from(seed, len(sizes))
        with ThreadPoolExecutor(self.count) as pool:
            for a in range(0, len(sizes), _SPAN):
                for counts in pool.map(block, sizes[a : a + _SPAN], seeds[a : a + _SPAN]):
                    total += counts
        return total

    def solve_draws(self, fits: Fits, draws: Draws) -> FloatArray:
        """The fits for the given draws."""
        n, solve = draws.normal.shape[0], kernel(fits)
        out, size = np.empty((n, fits.d)), _block_size(fits.d)
        parts = [slice(a, a + size) for a in range(0, n, size)]
        with ThreadPoolExecutor(self.count) as pool:
            list(pool.map(lambda p: solve(draws.factor[p], draws.normal[p], out[p]), parts))
        return out


def seeds_from(seed: int, n: int) -> list[int]:
    """n seeds that follow from one."""
    return [int(s) for s in randomness.generator(seed).integers(2**63, size=n)]
