"""What a user would see of many runs: estimates, standard errors, intervals, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy import stats
from scipy.special import ndtr

from curvedp.arrays import BoolArray, FloatArray
from curvedp.released.inference import _MOST_BIAS, Clipping, Functionals, Inference, Releases

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Of some runs, all coefficients: arrays of shape (runs, d), and (runs,) for κ, count and clip."""

    estimate: FloatArray
    se: FloatArray
    noise: FloatArray
    half: FloatArray  # half widths of the intervals, NaN where refused
    half_worst: FloatArray  # likewise with clipping="worst"
    resolved: BoolArray
    kappa: FloatArray
    count: FloatArray
    clip: FloatArray

    @classmethod
    def of(cls, runs: Sequence[Releases]) -> Outcomes:
        """By the library's own post-processing."""
        rows = []
        for releases in runs:
            told = Inference(releases).of(np.eye(len(releases.basis)))
            clip = releases.tail.edges[releases.edge]
            spread, worst = half_width(told, "spread"), half_width(told, "worst")
            parts = (told.estimate, told.se, told.noise, spread, worst, told.resolved)
            rows.append((*parts, releases.kappa, releases.count, clip))
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Outcomes]) -> Outcomes:
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.kappa)


def half_width(told: Functionals, clipping: Clipping, level: float = LEVEL) -> FloatArray:
    """`told.half_width(level, clipping)`, for all coefficients at once.

    scipy finds a quantile of |N(b, 1)| in a millisecond: too long for the millions of them here.
    """
    bias = np.minimum(told.bias if clipping == "spread" else told.worst, _MOST_BIAS)
    low, high = np.zeros_like(bias), bias + 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = ndtr(middle - bias) - ndtr(-middle - bias) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    p = 0.5 * (1.0 - level)
    heavier = stats.t.isf(p, np.maximum(told.df, 1.0)) / stats.norm.isf(p)
    return np.where(told.resolved, told.se * high * heavier, np.nan)
