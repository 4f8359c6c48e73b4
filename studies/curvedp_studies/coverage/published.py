"""Intervals of two papers in their own settings, and the estimators' there: coverage and width.

Awan and Wang (arXiv 2303.05328): logistic, x = 2·Beta(½, ½) − 1, β = (½, 2), the slope; pure ε-DP, ours
(ε, 10⁻⁶). BinAgg (arXiv 2510.16974): X uniform on [0, 10]³, y = Xβ + N(0, 1), β = (1.5, −2, 0.5), n = 2000,
no intercept; μ-GDP, ours at the ε that the same μ gives with δ = 10⁻⁶.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from curvedp import PrivateLinearRegression, PrivateLogisticRegression
from curvedp.arrays import FloatArray
from curvedp.privacy.budget import Adjacency
from curvedp.privacy.gaussian import calibrate_mu
from curvedp_studies.coverage.cells import ADJACENCIES, NORMAL
from curvedp_studies.coverage.library import DELTA, chunks
from curvedp_studies.resume import Progress, complete_in_parts, seed_of

RUNS = 200
AWAN_WANG, BINAGG = "Awan–Wang", "BinAgg"
THEIRS: dict[tuple[str, int, float], str] = {
    (AWAN_WANG, 500, 1.0): "0.81 · 1.32; 0.99 · 1.77",
    (AWAN_WANG, 500, 3.0): "0.90 · 0.76; 0.99 · 1.11",
    (AWAN_WANG, 500, 10.0): "0.95 · 0.70; 0.99 · 1.05",
    (AWAN_WANG, 1000, 1.0): "0.82 · 0.77; 0.99 · 0.97",
    (AWAN_WANG, 1000, 3.0): "0.92 · 0.52; 0.99 · 0.77",
    (AWAN_WANG, 2000, 1.0): "0.86 · 0.46; 1.00 · 0.62",
    (AWAN_WANG, 2000, 3.0): "0.93 · 0.36; 0.99 · 0.54",
    (AWAN_WANG, 2000, 10.0): "0.95 · 0.35; 1.00 · 0.53",
    (BINAGG, 2000, 0.5): "0.917 · 0.518",
    (BINAGG, 2000, 1.0): "0.931 · 0.291",
    (BINAGG, 2000, 2.0): "0.934 · 0.181",
    (BINAGG, 2000, 5.0): "0.918 · 0.103",
}
"""(paper, n, ε or μ) → coverage · width: of DP-CI-ERM and of the repro samples; of BinAgg."""
_LOGISTIC, _LINEAR = np.array([0.5, 2.0]), np.array([1.5, -2.0, 0.5])
_TARGETS = (-25.0, 25.0)  # Xβ lies within ±20


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
class PublishedScore:
    """Coverage and mean width of the stated intervals."""

    paper: str
    n: int
    level: float
    adjacency: str
    runs: int
    coverage: float
    width: float
    refused: float  # share of (run, coefficient)
    plain: float  # width without privacy

    @property
    def point(self) -> tuple[str, int, float, str]:
        return self.paper, self.n, self.level, self.adjacency


def published(
    table: Path, runs: int = RUNS, progress: Progress | None = None, workers: int | None = None
) -> list[PublishedScore]:
    """Every cell under both adjacencies; finished ones are read back from `table`."""
    settings = [Setting(*cell, adjacency) for cell in THEIRS for adjacency in ADJACENCIES]

    def score(setting: Setting, parts: Sequence[FloatArray]) -> list[PublishedScore]:
        return [scored(setting, np.concatenate(parts))]

    return complete_in_parts(
        table,
        PublishedScore,
        settings,
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


def scored(setting: Setting, found: FloatArray) -> PublishedScore:
    """`found` has the limits of every run and coefficient, (runs, coefficients, 2)."""
    low, high = found[..., 0], found[..., 1]
    told, inside = np.isfinite(low), (low <= truth(setting.paper)) & (truth(setting.paper) <= high)
    stated = told.any()
    return PublishedScore(
        *setting.point,
        len(found),
        float(inside[told].mean()) if stated else np.nan,
        float((high - low)[told].mean()) if stated else np.nan,
        float(1.0 - told.mean()),
        plain_width(setting.paper, setting.n),
    )


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
        epsilon=brentq(lambda epsilon: calibrate_mu(epsilon, DELTA) - setting.level, 1e-3, 1e3),
        delta=DELTA,
        bounds=[(0.0, 10.0)] * 3,
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


def plain_width(paper: str, n: int) -> float:
    """Mean width of a fit without privacy, by the information of 200,000 draws."""
    X, _ = drawn(paper, 200_000, np.random.default_rng(0))
    if paper == AWAN_WANG:
        X = np.column_stack([np.ones(len(X)), X])
        p = 1.0 / (1.0 + np.exp(-X @ _LOGISTIC))
        X = X * np.sqrt(p * (1.0 - p))[:, None]
    variances = np.diag(np.linalg.inv(X.T @ X / len(X)))[-len(truth(paper)) :]
    return float(2.0 * NORMAL * np.sqrt(variances / n).mean())


def published_table(scores: Sequence[PublishedScore]) -> list[str]:
    """Theirs beside ours, one table for each paper."""
    by_point = {score.point: score for score in scores}
    lines: list[str] = []
    for paper, level, names in ((AWAN_WANG, "ε", "DP-CI-ERM; repro samples"), (BINAGG, "μ", "BinAgg")):
        lines += [
            f"| {paper}: n | {level} | {names} | ours, add_remove | ours, replace | without privacy |",
            "|---|---|---|---|---|---|",
        ]
        for cell, theirs in THEIRS.items():
            found = [by_point.get((*cell, adjacency)) for adjacency in ADJACENCIES]
            if cell[0] == paper and found[0] is not None:
                ours = " | ".join(map(_shown, found))
                lines.append(f"| {cell[1]} | {cell[2]:g} | {theirs} | {ours} | {found[0].plain:.3g} |")
        lines.append("")
    runs = " or ".join(str(number) for number in sorted({score.runs for score in scores}))
    return [*lines, f"Coverage · mean width of 95 % intervals (refused); {runs} runs each."]


def _shown(score: PublishedScore | None) -> str:
    if score is None:
        return ""
    if not np.isfinite(score.coverage):
        return "refused"
    refused = f" ({100 * score.refused:.0f} %)" if score.refused else ""
    return f"{score.coverage:.3f} · {score.width:.3g}{refused}"
