"""What a user would see of many runs: estimates, standard errors, intervals, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from curvedp.arrays import BoolArray, FloatArray
from curvedp.mechanisms.base import Estimate
from curvedp_studies.coverage.populations import Population

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Of some runs, all coefficients: arrays of shape (runs, d), and (runs,) for κ, count and clip."""

    estimate: FloatArray
    truth: FloatArray
    se: FloatArray
    noise: FloatArray
    half: FloatArray  # half widths of the intervals, NaN where refused
    resolved: BoolArray
    kappa: FloatArray
    count: FloatArray
    clip: FloatArray

    @classmethod
    def of(cls, runs: Sequence[Estimate], drawn_from: Population) -> Outcomes:
        """By the library's own post-processing; a fit without intervals refuses all coefficients.

        The truth is that of the levels which a fit has not left out: these have no share of its records.
        """
        rows: list[tuple[Any, ...]] = []
        levels = [j for block in drawn_from.coding.blocks for j in block]
        for estimate in runs:
            if estimate.inference is None:
                assert estimate.local is not None
                theta, local = drawn_from.differences @ np.ravel(estimate.theta.T), estimate.local
                nothing = np.full(len(theta), np.nan)
                refused = (nothing, nothing, nothing, np.zeros(len(theta), bool))
                rows.append((theta, drawn_from.theta, *refused, local.kappa, local.count, np.nan))
                continue
            releases = estimate.inference
            gone = [j for j in levels if releases.shares[j] == 0.0]
            truth = drawn_from.stated(gone) @ drawn_from.fitted if gone else drawn_from.theta
            told = releases.of(drawn_from.differences)
            parts = (told.estimate, truth, told.se, told.noise, told.half_width(LEVEL), told.resolved)
            rows.append((*parts, releases.kappa, releases.count, releases.tail.edges[1]))
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Outcomes]) -> Outcomes:
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.kappa)
