"""Scores of a regression: R², RMSE, MAE, quantiles of residuals, calibration of predictions (V-1), (V-3).

One charge, Gaussian parts of fixed shares: rounds that find the middle of the targets, cells of the residuals
and of the predictions, sizes that say where to clip, and means of clipped, centred squares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.scores.means import Estimate, Mean, Window, release_means
from curvedp.scores.noisy import Part, Releases, Split, cell, refuse_few
from curvedp.scores.plan import ScorePlan
from curvedp.scores.regression_results import (
    LEVELS_OF_RESIDUALS,
    FirstMoments,
    Moments,
    calibration,
    levels_around,
    regression_scores,
    residual_quantiles,
)
from curvedp.scores.results import Curve, Findings
from curvedp.scores.sketch import Tail, at_levels, distribution, equal_mass, find_tail, octaves
from curvedp.scores.source import ScoredRecords, ScoreLayout

COARSE, OCTAVES = 32, 20
BINS = np.array([0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98])  # of the predictions
AROUND = 2 * len(LEVELS_OF_RESIDUALS) + 1  # cells between edges on both sides of every quantile

# Shares of μ²: of what finds quantiles and sizes, of the curves, and of the moments of every group.
ROUNDS = {"target": (0.015, 0.015), "residual": (0.01, 0.02, 0.02), "prediction": (0.01, 0.01)}
SIZES = {"size of target": 0.03, "size of residual": 0.03, "size of gain": 0.04}
CALIBRATION = {"calibration": 0.02, "calibration of predictions": 0.005, "calibration of residuals": 0.025}
MOMENTS = {
    "count": 0.02,
    "target": 0.11,
    "target squares": 0.015,
    "residual": 0.08,
    "residual squares": 0.03,
    "gain": 0.395,
    "gain squares": 0.04,
    "deviation": 0.03,
    "size": 0.025,
}
LEVELS = 0.4  # of the whole, where levels are compared


@dataclass(frozen=True)
class Size:
    """Released: where to clip numbers, and first guesses of their mean size and mean square."""

    tail: Tail
    mean: float
    square: float


@dataclass(frozen=True, eq=False)
class Scale:
    """Released: the middle m of the targets, and the sizes of r and of d = y − m. Of records: r² and d²."""

    middle: float
    residual: Size
    target: Size

    def squares(self, target: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(r², d²) of records, the mean of the tail beyond the clip."""
        r, d = np.abs(residual), np.abs(target - self.middle)
        return self.residual.tail.squares(r), self.target.tail.squares(d)


@dataclass(frozen=True)
class Gain:
    """Of the gain r² − ρd²: the ratio ρ ≈ 1 − R², whatever was released first, and where to clip (V-3)."""

    ratio: float
    tail: Tail


@dataclass(frozen=True, eq=False)
class RegressionScorePlan(ScorePlan):
    """Calibrated noise for every part; see `regression_score_plan`."""

    mechanism = "scores of a regression"

    def enough(self, rows: int) -> None:
        """Refuse so few rows that nothing could be said of R²: its noise is about 10 records' squares."""
        refuse_few(rows, 10.0 * self.split.noise_of_one("gain"))

    def release(self, records: ScoredRecords, random: np.random.Generator) -> Findings:
        releases = Releases(self.split, random)
        prediction, target = records.score[:, 0], records.target
        residual = target - prediction
        scale = self._scale(releases, target, residual)
        everybody = np.zeros(len(target), dtype=np.intp)
        first = self._first(releases, scale, target, residual, everybody, 1, "")
        gain = self._gain(releases, scale, first[0], target, residual)
        moments = self._gains(releases, scale, gain, first, target, residual, everybody, "")
        unit = self.layout.unit
        curves = {
            "calibration": self._calibration(releases, scale, prediction, residual),
            "residuals": self._quantiles(releases, residual),
        }
        overall = regression_scores(moments[0], unit, curves)
        levels = self.layout.levels
        if not levels:
            return Findings(overall)
        first = self._first(releases, scale, target, residual, records.level, len(levels), "level ")
        found = self._gains(releases, scale, gain, first, target, residual, records.level, "level ")
        return Findings(
            overall, {name: regression_scores(m, unit, {}) for name, m in zip(levels, found, strict=True)}
        )

    def _edges(
        self, releases: Releases, name: str, values: FloatArray, edges: FloatArray, last: FloatArray
    ) -> FloatArray:
        """About the quantiles of these levels, found in two rounds."""
        for t, levels in enumerate((equal_mass(COARSE), last)):
            noisy = releases.counts(f"{name} round {t}", cell(values, edges))
            edges = at_levels(edges, noisy.value, levels)
        return edges

    def _scale(self, releases: Releases, target: FloatArray, residual: FloatArray) -> Scale:
        halves = self._edges(releases, "target", target, np.linspace(-1.0, 1.0, COARSE + 1), equal_mass(2))
        middle = float(halves[1])
        of_target = self._size(releases, "size of target", target - middle, 1.0 + abs(middle), 2.0)
        of_residual = self._size(releases, "size of residual", residual, 1.0 + self.layout.reach, 2.0, 1.2)
        return Scale(middle, of_residual, of_target)

    def _size(
        self,
        releases: Releases,
        name: str,
        values: FloatArray,
        reach: float,
        factor: float,
        heavier: float = 1.0,
    ) -> Size:
        """Of numbers of size ≤ reach, from counts by magnitude; clipped at `factor` times what is seen.

        The tail beyond falls more slowly than an exponential one through what is seen: `heavier` times.
        """
        edges = octaves(reach, OCTAVES)
        noisy = releases.counts(name, cell(np.abs(values), edges))
        tail = find_tail(edges[1:], noisy.value, noisy.sigma, factor).heavier(heavier, reach)
        inside, share = np.minimum(edges, tail.mean), np.diff(distribution(noisy.value))
        middle = 0.5 * (inside[1:] + inside[:-1])
        square = max(float(share @ middle**2), 1e-12 * tail.mean_square)
        return Size(tail, float(share @ middle), square)

    def _first(
        self,
        releases: Releases,
        scale: Scale,
        target: FloatArray,
        residual: FloatArray,
        group: NDArray[np.intp],
        n_groups: int,
        prefix: str,
    ) -> list[FirstMoments]:
        """Counts and means of d², r², d and |r| in every group."""
        of_r, of_d = scale.residual, scale.target
        r2, d2 = scale.squares(target, residual)
        count = releases.counts(f"{prefix}count", group)

        def means(name: str, values: FloatArray, window: Window, squares: bool = False) -> list[Mean]:
            windows = [window] * n_groups
            return release_means(releases, prefix + name, values, windows, group, squares=squares)

        found = zip(
            means("target", d2, Window.to(of_d.tail.mean_square, of_d.square), squares=True),
            means("residual", r2, Window.to(of_r.tail.mean_square, of_r.square), squares=True),
            means("deviation", target - scale.middle, Window(-of_d.tail.mean, of_d.tail.mean, 0.0)),
            means("size", of_r.tail.values(np.abs(residual)), Window.to(of_r.tail.mean, of_r.mean)),
            strict=True,
        )
        pairs = zip(count.value, found, strict=True)
        return [FirstMoments(Estimate(float(n), count.sigma**2), *parts) for n, parts in pairs]

    def _gain(
        self, releases: Releases, scale: Scale, first: FirstMoments, target: FloatArray, residual: FloatArray
    ) -> Gain:
        of_d = max(first.target.of(first.count).value, 1e-6 * scale.target.tail.mean_square)
        ratio = min(max(first.residual.of(first.count).value / of_d, 0.01), 2.0)
        r2, d2 = scale.squares(target, residual)
        reach = max(scale.residual.tail.mean_square, ratio * scale.target.tail.mean_square)
        of_gain = self._size(releases, "size of gain", r2 - ratio * d2, reach, 3.0, 3.0)
        return Gain(ratio, of_gain.tail)

    def _gains(
        self,
        releases: Releases,
        scale: Scale,
        gain: Gain,
        first: list[FirstMoments],
        target: FloatArray,
        residual: FloatArray,
        group: NDArray[np.intp],
        prefix: str,
    ) -> list[Moments]:
        """The mean gain in every group."""
        r2, d2 = scale.squares(target, residual)
        values, most = gain.tail.signed(r2 - gain.ratio * d2), gain.tail.mean
        windows = [Window(-most, most, 0.0)] * len(first)
        means = release_means(releases, f"{prefix}gain", values, windows, group)
        return [Moments(gain.ratio, not prefix, f, mean) for f, mean in zip(first, means, strict=True)]

    def _quantiles(self, releases: Releases, residual: FloatArray) -> Curve:
        half = octaves(1.0 + self.layout.reach, COARSE // 2)
        first = np.concatenate([-half[:0:-1], half])
        noisy = releases.counts("residual round 0", cell(residual, first))
        second = at_levels(first, noisy.value, equal_mass(COARSE))
        noisy = releases.counts("residual round 1", cell(residual, second))
        sigma = self.split.noise_of_one("residual round 2")
        edges = at_levels(second, noisy.value, levels_around(float(noisy.value.sum()), sigma))
        noisy = releases.counts("residual round 2", cell(residual, edges))
        return residual_quantiles(edges * self.layout.unit, noisy)

    def _calibration(
        self, releases: Releases, scale: Scale, prediction: FloatArray, residual: FloatArray
    ) -> Curve:
        reach, c = self.layout.reach, scale.residual.tail.mean
        start = np.linspace(-reach, reach, COARSE + 1)
        edges = self._edges(releases, "prediction", prediction, start, BINS)
        clipped = np.clip(prediction, edges[0], edges[-1])
        inside = cell(clipped, edges)
        counts = releases.counts("calibration", inside)
        where = (clipped - edges[inside]) / np.maximum(np.diff(edges), 1e-300)[inside]
        positions = releases.sums("calibration of predictions", where, 0.0, 1.0, inside)
        windows = [Window(-c, c, 0.0)] * (len(BINS) - 1)
        errors = release_means(releases, "calibration of residuals", residual, windows, inside, squares=False)
        return calibration(edges, counts, positions, errors, scale.residual.square, self.layout)


def regression_score_plan(layout: ScoreLayout, budget: Budget) -> RegressionScorePlan:
    """The plan of all scores of a regression under one (ε, δ), from public facts alone."""
    whole = 1.0 - (LEVELS if layout.levels else 0.0)
    parts: dict[str, Part] = {}
    for name, shares in ROUNDS.items():
        for t, share in enumerate(shares):
            parts[f"{name} round {t}"] = Part(COARSE if t < 2 else AROUND, whole * share)
    parts |= {name: Part(OCTAVES, whole * share) for name, share in SIZES.items()}
    parts |= {name: Part(len(BINS) - 1, whole * share) for name, share in CALIBRATION.items()}
    parts |= {name: Part(1, whole * share) for name, share in MOMENTS.items()}
    if layout.levels:
        more = LEVELS / math.fsum(MOMENTS.values()) * (1 - 1e-12)
        groups = len(layout.levels)
        parts |= {f"level {name}": Part(groups, more * share) for name, share in MOMENTS.items()}
    return RegressionScorePlan(layout, budget, Split.of(parts, budget, layout.neighbours))
