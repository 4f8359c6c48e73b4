"""Intervals of two papers' simulations, in their own settings: coverage and width of the estimators there.

Awan and Wang: logistic, x = 2·Beta(½, ½) − 1, β = (½, 2), the slope; they promise ε, ours (ε, 10⁻⁶).
BinAgg: X uniform on [0, 10]³, y = Xβ + N(0, 1), β = (1.5, −2, 0.5), no intercept; μ-GDP, ours at the ε that
the same μ gives with δ = 10⁻⁶. A fit without an intercept passes through the middle of its bounds, so that
these are [−10, 10] and ±30.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from curvedp import PrivateLinearRegression, PrivateLogisticRegression
from curvedp.arrays import FloatArray
from curvedp.privacy.budget import Adjacency
from curvedp.privacy.gaussian import calibrate_mu
from curvedp_studies.coverage.cells import ADJACENCIES, NORMAL
from curvedp_studies.coverage.library import DELTA, chunks
from curvedp_studies.others import quoted
from curvedp_studies.resume import Progress, complete_in_parts, seed_of

AWAN_WANG, BINAGG = "Awan–Wang", "BinAgg"
_LOGISTIC, _LINEAR = np.array([0.5, 2.0]), np.array([1.5, -2.0, 0.5])
_COLUMNS, _TARGETS = (-10.0, 10.0), (-30.0, 30.0)  # of BinAgg


@dataclass(frozen=True)
class Setting:
    """Some runs of one cell of a paper."""

    paper: str
    n: int
    level: float  # ε, or μ
    adjacency: Adjacency
    runs: range = range(0)

    @property
    def point(self) -> tuple[str, int, float, str]:
        return self.paper, self.n, self.level, self.adjacency


@dataclass(frozen=True)
class SimulationScore:
    """Of the stated intervals of a cell: coverage and mean width, each with its standard error."""

    paper: str
    n: int
    level: float
    adjacency: str
    runs: int
    coverage: float
    coverage_error: float
    width: float
    width_error: float
    median: float  # width
    refused: float  # share of (run, coefficient)
    plain: float  # width without privacy

    @property
    def point(self) -> tuple[str, int, float, str]:
        return self.paper, self.n, self.level, self.adjacency


def settings() -> list[Setting]:
    """Every published cell, under both adjacencies."""
    return [
        Setting(paper, n, level, adjacency)
        for paper in (BINAGG, AWAN_WANG)
        for n, level in quoted.cells(paper)
        for adjacency in ADJACENCIES
    ]


def simulated(
    wanted: Sequence[Setting],
    table: Path,
    runs: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[SimulationScore]:
    """Finished cells are read back from `table`."""

    def score(setting: Setting, parts: Sequence[FloatArray]) -> list[SimulationScore]:
        return [scored(setting, np.concatenate(parts))]

    return complete_in_parts(
        table,
        SimulationScore,
        wanted,
        lambda setting: [setting.point],
        lambda setting: [replace(setting, runs=part) for part in chunks(runs)],
        intervals,
        score,
        progress=progress,
        workers=workers,
    )


def truth(paper: str) -> FloatArray:
    """The coefficients whose intervals are compared."""
    return _LOGISTIC[1:] if paper == AWAN_WANG else _LINEAR


def scored(setting: Setting, found: FloatArray) -> SimulationScore:
    """`found` has the limits of every run and coefficient, (runs, coefficients, 2).

    Coefficients of one run are taken together for the errors: runs are independent, they are not. A coverage
    is not known better than by one run more or less.
    """
    low, high = found[..., 0], found[..., 1]
    told, inside = np.isfinite(low), (low <= truth(setting.paper)) & (truth(setting.paper) <= high)
    stated = told.any(axis=1)
    nothing = (np.nan,) * 5
    measured = nothing
    if stated.any():
        held = [float(row[there].mean()) for row, there in zip(inside, told, strict=True) if there.any()]
        widths = (high - low)[told]
        means = np.nanmean((high - low)[stated], axis=1)
        measured = (
            float(inside[told].mean()),
            max(_error(np.array(held)), 1.0 / len(held)),
            float(widths.mean()),
            _error(means),
            float(np.median(widths)),
        )
    return SimulationScore(
        *setting.point,
        len(found),
        *measured,
        float(1.0 - told.mean()),
        plain_width(setting.paper, setting.n),
    )


def _error(values: FloatArray) -> float:
    """Of the mean of independent values."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def intervals(setting: Setting) -> FloatArray:
    """Limits of the coefficients, (runs, coefficients, 2), by the estimators; NaN where refused."""
    found = []
    for run in setting.runs:
        seed = seed_of(*setting.point, run)
        X, y = drawn(setting.paper, setting.n, np.random.default_rng(seed))
        model = _model(setting, seed % 2**31)
        model.fit(X, y)
        found.append(np.asarray(model.conf_int())[: len(truth(setting.paper))])
    return np.array(found)


@cache
def epsilon_of(mu: float) -> float:
    """The ε at which μ-GDP has δ = 10⁻⁶."""
    return float(brentq(lambda epsilon: calibrate_mu(epsilon, DELTA) - mu, 1e-3, 1e3))


def _model(setting: Setting, seed: int) -> PrivateLinearRegression | PrivateLogisticRegression:
    if setting.paper == AWAN_WANG:
        return PrivateLogisticRegression(
            epsilon=setting.level,
            delta=DELTA,
            bounds=[(-1.0, 1.0)],
            classes=(0, 1),
            adjacency=setting.adjacency,
            random_state=seed,
        )
    return PrivateLinearRegression(
        epsilon=epsilon_of(setting.level),
        delta=DELTA,
        bounds=[_COLUMNS] * len(_LINEAR),
        target_bounds=_TARGETS,
        fit_intercept=False,
        adjacency=setting.adjacency,
        random_state=seed,
    )


def drawn(paper: str, n: int, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """A sample (X, y)."""
    if paper == AWAN_WANG:
        X = 2.0 * random.beta(0.5, 0.5, (n, 1)) - 1.0
        margins = _LOGISTIC[0] + _LOGISTIC[1] * X[:, 0]
        return X, (random.random(n) < 1.0 / (1.0 + np.exp(-margins))).astype(float)
    X = random.uniform(0.0, 10.0, (n, 3))
    return X, X @ _LINEAR + random.standard_normal(n)


@cache
def plain_width(paper: str, n: int) -> float:
    """Mean width of a fit without privacy, by the information of 200,000 draws."""
    X, _ = drawn(paper, 200_000, np.random.default_rng(0))
    if paper == AWAN_WANG:
        X = np.column_stack([np.ones(len(X)), X])
        p = 1.0 / (1.0 + np.exp(-X @ _LOGISTIC))
        X = X * np.sqrt(p * (1.0 - p))[:, None]
    variances = np.diag(np.linalg.inv(X.T @ X / len(X)))[-len(truth(paper)) :]
    return float(2.0 * NORMAL * np.sqrt(variances / n).mean())
