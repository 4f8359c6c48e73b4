"""The curvature J of the loss in a released metric, estimated from two noisy looks at it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray

_DOUBT = 0.25  # relative prior deviation of ρ
_FARTHEST = 3.0  # it is believed to be from its guess, as a factor
_LEAST = 0.05  # eigenvalue below which the two looks are not expected to agree in proportion


def noise_pattern(r: int) -> FloatArray:
    """Variances of symmetric noise of scale 1: 1 on the diagonal, ½ off it."""
    return np.asarray((np.ones((r, r)) + np.eye(r)) / 2.0)


@dataclass(frozen=True, eq=False)
class Bread:
    """Ĵ and the variance of each of its entries."""

    J: FloatArray
    variance: FloatArray

    @classmethod
    def weighed(
        cls, look: FloatArray, before: FloatArray, second: FloatArray, scale: float, guess: float
    ) -> Bread:
        """Entry by entry, ρ·diag(look) and a later look `second`, weighed by their precision.

        ρ is fitted, a priori `guess` up to a quarter; what noise adds to squares of the first look is taken
        off. The first look is of all records with equal weights, so beyond its noise it may miss J by
        ω√(diag_i diag_j); ω² comes from how far the two are apart (method of moments).
        """
        r = len(second)
        first, pattern = np.diag(look), noise_pattern(r)
        own = scale**2 * pattern
        weights = np.diag(1.0 / (own + guess**2 * before))
        prior = (_DOUBT * guess) ** -2
        seen = np.maximum(look**2 - np.diag(before), 0.0)
        rho = (float(weights @ (np.diag(second) * look)) + prior * guess) / (float(weights @ seen) + prior)
        rho = min(max(rho, guess / _FARTHEST), guess * _FARTHEST)
        before = rho**2 * before
        size = np.maximum(np.maximum(look, 0.0), _LEAST)
        shape = rho**2 * np.outer(size, size) * pattern
        weights = shape / (own + before) ** 2
        apart = (second - rho * first) ** 2 - own - before
        omega2 = max(float(np.sum(weights * apart) / np.sum(weights * shape)), 0.0)
        before = before + omega2 * shape
        odd = (second - rho * first) ** 2  # records of one level may all be clipped: the first look misses it
        before = np.where(odd > 9.0 * (own + before), np.maximum(before, odd), before)
        share = before / (before + own)
        return cls(share * second + (1.0 - share) * rho * first, share * own)


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
