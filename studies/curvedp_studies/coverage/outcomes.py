"""What a user would see of many runs: estimates, standard errors, intervals, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from curvedp.arrays import BoolArray, FloatArray
from curvedp.mechanisms.base import Estimate

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Of some runs, all coefficients: arrays of shape (runs, d), and (runs,) for κ, count and clip."""

    estimate: FloatArray
    se: FloatArray
    noise: FloatArray
    half: FloatArray  # half widths of the intervals, NaN where refused
    resolved: BoolArray
    kappa: FloatArray
    count: FloatArray
    clip: FloatArray

    @classmethod
    def of(cls, runs: Sequence[Estimate], functionals: FloatArray) -> Outcomes:
        """Of the rows of `functionals`, by the library's own post-processing; a fit without intervals refuses
        them all.
        """
        rows: list[tuple[Any, ...]] = []
        for estimate in runs:
            if estimate.inference is None:
                assert estimate.local is not None
                theta, local = functionals @ np.ravel(estimate.theta.T), estimate.local
                nothing = np.full(len(theta), np.nan)
                parts = (theta, nothing, nothing, nothing, np.zeros(len(theta), bool))
                rows.append((*parts, local.kappa, local.count, np.nan))
                continue
            releases = estimate.inference
            told = estimate.inference.of(functionals)
            parts = (told.estimate, told.se, told.noise, told.half_width(LEVEL), told.resolved)
            rows.append((*parts, releases.kappa, releases.count, releases.tail.edges[1]))
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Outcomes]) -> Outcomes:
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.kappa)
