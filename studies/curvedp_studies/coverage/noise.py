"""The noise alone: the same records fitted again and again, the spread of coefficients beside `noise`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvedp.arrays import FloatArray
from curvedp_studies.coverage.catalogue import CPS, RARE, population
from curvedp_studies.coverage.cells import Cell
from curvedp_studies.coverage.library import chunks, plan_of, releases
from curvedp_studies.coverage.outcomes import Outcomes
from curvedp_studies.resume import Progress, complete_in_parts

TABLES = (CPS, "california", "bike", "adult", RARE)
EPSILONS = (1.0, 3.0)
RIGHT = (0.8, 1.25)  # empirical over stated deviation


@dataclass(frozen=True)
class NoiseScore:
    """Of one table: empirical over stated deviations of the coefficients that are stated in most refits.

    What is stated differs from refit to refit, as the clip does. `right` and the three quantiles measure
    every refit in units of its own stated deviation; `right_of_median` takes the median of what was stated.
    """

    population: str
    n: int
    epsilon: float
    refits: int
    kappa: float
    coefficients: int
    withheld: float  # share of (refit, coefficient)
    right: float  # share of stated coefficients whose ratio is within RIGHT
    least: float
    median: float
    largest: float
    right_of_median: float
    largest_of_median: float

    @property
    def point(self) -> tuple[str, float]:
        return self.population, self.epsilon


def ratios(told: Outcomes) -> tuple[FloatArray, FloatArray]:
    """Empirical over stated deviation of every coefficient that at least half of the refits state.

    First √mean((θ̂ − θ̄)²/noise²), each refit in units of its own noise and θ̄ weighed by 1/noise²; then the
    deviation of all θ̂ over the median noise.
    """
    often = told.resolved.sum(axis=0) >= max(2, len(told) // 2)
    estimate, noise = (
        np.where(told.resolved, values, np.nan)[:, often] for values in (told.estimate, told.noise)
    )
    centre = np.nansum(estimate / noise**2, axis=0) / np.nansum(1.0 / noise**2, axis=0)
    own = np.sqrt(np.nanmean(((estimate - centre) / noise) ** 2, axis=0))
    return own, np.nanstd(estimate, axis=0, ddof=1) / np.nanmedian(noise, axis=0)


def noise_scored(name: str, n: int, epsilon: float, told: Outcomes) -> NoiseScore:
    ratio, of_median = ratios(told)
    known = ratio.size > 0
    return NoiseScore(
        population=name,
        n=n,
        epsilon=epsilon,
        refits=len(told),
        kappa=float(np.mean(told.kappa)),
        coefficients=told.estimate.shape[1],
        withheld=float(1.0 - told.resolved.mean()),
        right=_right(ratio),
        least=float(ratio.min()) if known else np.nan,
        median=float(np.median(ratio)) if known else np.nan,
        largest=float(ratio.max()) if known else np.nan,
        right_of_median=_right(of_median),
        largest_of_median=float(of_median.max()) if known else np.nan,
    )


def _right(ratio: FloatArray) -> float:
    """The share of ratios within RIGHT; NaN of none."""
    return float(np.mean((ratio >= RIGHT[0]) & (ratio <= RIGHT[1]))) if ratio.size else np.nan


@dataclass(frozen=True)
class Refits:
    """Some refits of one table."""

    name: str
    data: Path | None
    epsilon: float
    runs: range


def refit(
    names: Sequence[str],
    data: Path | None,
    table: Path,
    refits: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[NoiseScore]:
    """Every table at every ε, add_remove; finished ones are read back from `table`."""

    def score(point: tuple[str, float], parts: Sequence[Outcomes]) -> list[NoiseScore]:
        name, epsilon = point
        return [noise_scored(name, len(population(name, data).y), epsilon, Outcomes.joined(parts))]

    return complete_in_parts(
        table,
        NoiseScore,
        [(name, epsilon) for name in names for epsilon in EPSILONS],
        lambda point: [point],
        lambda point: [Refits(point[0], data, point[1], part) for part in chunks(refits)],
        refitted,
        score,
        progress=progress,
        workers=workers,
    )


def refitted(part: Refits) -> Outcomes:
    fixed = population(part.name, part.data)
    plan = plan_of(fixed, part.epsilon, "add_remove")
    seed = Cell(part.name, len(fixed.y), part.epsilon, "add_remove").seed
    return Outcomes.of(releases(fixed, plan, None, (seed + run for run in part.runs)), fixed)
