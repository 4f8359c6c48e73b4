"""The curvature J of the loss in a released metric, estimated from two noisy looks at it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import BoolArray, FloatArray

_LEAST = 0.05  # eigenvalue below which the two looks are not expected to agree in proportion


def noise_pattern(r: int) -> FloatArray:
    """Variances of symmetric noise of scale 1: 1 on the diagonal, ½ off it."""
    return np.asarray((np.ones((r, r)) + np.eye(r)) / 2.0)


@dataclass(frozen=True, eq=False)
class Look:
    """A noisy curvature in coordinates that made its own estimate diagonal: U(G)Uᵀ = diag(raw).

    The metric divides by √lifted, so there the look is diag(raw/lifted) and its noise τ·Sym/√(lifted lifted).
    """

    raw: FloatArray
    lifted: FloatArray
    scale: float  # τ

    @property
    def diagonal(self) -> FloatArray:
        return np.asarray(self.raw / self.lifted)

    @property
    def variance(self) -> FloatArray:
        inverse = 1.0 / self.lifted
        return self.scale**2 * np.outer(inverse, inverse) * noise_pattern(len(self.raw))

    @property
    def stands_out(self) -> BoolArray:
        """Which directions stand out of the noise: raw ≥ ½ of its spectral norm τ√(2r)."""
        return np.asarray(self.raw >= 0.5 * self.scale * math.sqrt(2.0 * len(self.raw)))


@dataclass(frozen=True, eq=False)
class Bread:
    """Ĵ and the variance of each of its entries."""

    J: FloatArray
    variance: FloatArray

    @classmethod
    def weighed(cls, look: Look, second: FloatArray, scale: float) -> Bread:
        """Entry by entry, ρ·diag(raw/lifted) and a later look `second`, weighed by their precision.

        ρ is fitted. The first look is of all records with equal weights, so beyond its noise it may miss J by
        ω√(diag_i diag_j); ω² comes from how far the two are apart (method of moments).
        """
        r = len(second)
        first, pattern = np.diag(look.diagonal), noise_pattern(r)
        own, before = scale**2 * pattern, look.variance
        weights = 1.0 / (own + before)
        rho = max(float(np.sum(weights * second * first) / np.sum(weights * first**2)), 1e-3)
        before = rho**2 * before
        size = np.maximum(np.maximum(look.diagonal, 0.0), _LEAST)
        shape = rho**2 * np.outer(size, size) * pattern
        weights = shape / (own + before) ** 2
        apart = (second - rho * first) ** 2 - own - before
        omega2 = max(float(np.sum(weights * apart) / np.sum(weights * shape)), 0.0)
        before = before + omega2 * shape
        odd = (second - rho * first) ** 2  # records of one level may all be clipped: the first look misses it
        before = np.where(odd > 9.0 * (own + before), np.maximum(before, odd), before)
        share = before / (before + own)
        return cls(share * second + (1.0 - share) * rho * first, share * own)

    def resolved(self, look: Look, beta: float) -> BoolArray:
        """Directions along which Ĵ stands out: by 4 deviations and 0.3·β, or half of that if the look does.

        Where Ĵ is 0 though the look is not, all records that point there are clipped: nothing can be said.
        """
        diagonal, deviation = np.diag(self.J), np.sqrt(np.diag(self.variance))
        strong = (diagonal >= 4.0 * deviation) & (diagonal >= 0.3 * beta)
        return strong | (look.stands_out & (diagonal >= 2.0 * deviation) & (diagonal >= 0.15 * beta))

    def among(self, kept: BoolArray, floor: float) -> tuple[FloatArray, FloatArray]:
        """(Ĵ, variances) among the coordinates `kept`, eigenvalues of Ĵ at least `floor`."""
        index = np.flatnonzero(kept)
        return eigenvalues_above(self.J[np.ix_(index, index)], floor), self.variance[np.ix_(index, index)]


def eigenvalues_above(S: FloatArray, floor: float) -> FloatArray:
    """The symmetric matrix with eigenvalues max(s, floor)."""
    values, vectors = np.linalg.eigh((S + S.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def shrunk(noisy: FloatArray, target: FloatArray, scale: float) -> tuple[FloatArray, float]:
    """Positive-part James–Stein of a symmetric matrix towards ρ·target; the scale of what noise is left.

    ρ is fitted; noise of `scale` has r(r+1)/2 free entries. At least the noise of ρ is left: scale/√r.
    """
    r = max(len(noisy), 1)
    rho = max(float(np.sum(noisy * target)) / max(float(np.sum(target**2)), 1e-300), 1e-12)
    apart = noisy - rho * target
    noise = 0.5 * r * (r + 1) * scale**2
    share = max(0.0, 1.0 - noise / max(float(np.sum(apart**2)), 1e-300))
    return rho * target + share * apart, scale * max(share, r**-0.5)
