"""Scores of a regression: R², RMSE, MAE, quantiles of residuals, calibration of predictions (V-1), (V-3).

One charge, Gaussian parts: rounds that find the middle of the targets, cells of the residuals and of the
predictions, sizes that say where to clip, and means of clipped, centred squares. What follows from them is
free. Everything is in half ranges of the target until it is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from curvedp.analyses.explore.noisy import ENOUGH, Noisy, Releases, Z
from curvedp.analyses.scores.means import (
    Curve,
    Findings,
    Groups,
    GroupScores,
    Mean,
    Rising,
    Score,
    ScorePlan,
    Tail,
    Window,
    at_levels,
    cell,
    distribution,
    equal_mass,
    find_tail,
    octaves,
    release_means,
    scored,
    told,
)
from curvedp.analyses.scores.source import ScoredRecords
from curvedp.arrays import FloatArray

COARSE, OCTAVES = 32, 20
BINS = np.array([0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98])  # of the predictions
LEVELS_OF_RESIDUALS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
AROUND = 2 * len(LEVELS_OF_RESIDUALS) + 1  # cells between edges on both sides of every quantile
BY_LEVEL = 0.9  # of the price for all records


class RegressionScorePlan(ScorePlan):
    """Calibrated noise for every part."""

    mechanism = "scores of a regression"

    @property
    def fewest_rows(self) -> float:
        """The noise of R² is about 10 records' squares."""
        return 10.0 * self.layout.neighbours.histogram_factor / self.split.shift("gain")

    @classmethod
    def findings(cls, records: ScoredRecords, releases: Releases) -> Findings:
        return scored(records, _Run(records, releases).scores, BY_LEVEL)


@dataclass(frozen=True)
class Size:
    """Released: where to clip numbers, and first guesses of their mean size and mean square."""

    tail: Tail
    mean: float
    square: float


@dataclass(frozen=True)
class Moments:
    """Of a group: means of d², r², d, |r| and of the gain r² − ρd², r the residual and d = y − m."""

    count: Noisy[float]
    ratio: float
    own_ratio: bool  # whether ρ was made of these means
    target: Mean
    residual: Mean
    deviation: Mean
    size: Mean
    gain: Mean


class _Run:
    """One release. Of every record y is the target, r the residual, d = y − m and m the middle of y."""

    def __init__(self, records: ScoredRecords, releases: Releases) -> None:
        self.layout, self.releases = records.layout, releases
        self.prediction, self.y = records.score[:, 0], records.target
        self.r = self.y - self.prediction
        reach, start = self.layout.reach, np.linspace(-1.0, 1.0, COARSE + 1)
        middle = float(self._quantiles("target", self.y, start, (0.015, 0.015), equal_mass(2))[1])
        self.d = self.y - middle
        self.of_d = self._size("size of target", self.d, 1.0 + abs(middle), 0.03, factor=2.0)
        self.of_r = self._size("size of residual", self.r, 1.0 + reach, 0.03, factor=2.0, heavier=1.2)
        self.r2 = self.of_r.tail.squares(np.abs(self.r))  # the mean of the tail beyond the clip
        self.d2 = self.of_d.tail.squares(np.abs(self.d))
        self.gain: tuple[float, Tail] | None = None  # ρ ≈ 1 − R² of all records, and where to clip r² − ρd²

    def scores(self, groups: Groups) -> list[GroupScores]:
        """R², RMSE and MAE of every group; the curves of all records."""
        of_r, of_d = self.of_r, self.of_d
        count = self.releases.counts(f"{groups.prefix}count", groups.of, groups.size, 0.02 * groups.share)

        def means(
            name: str, values: FloatArray, window: Window, price: float, price_of_squares: float = 0.0
        ) -> list[Mean]:
            prices = (groups.share * price, groups.share * price_of_squares)
            windows = [window] * groups.size
            return release_means(self.releases, groups.prefix + name, values, windows, groups.of, *prices)

        targets = means("target", self.d2, Window.to(of_d.tail.mean_square, of_d.square), 0.11, 0.015)
        residuals = means("residual", self.r2, Window.to(of_r.tail.mean_square, of_r.square), 0.08, 0.03)
        deviations = means("deviation", self.d, Window(-of_d.tail.mean, of_d.tail.mean, 0.0), 0.03)
        sizes = of_r.tail.values(np.abs(self.r))
        absolute = means("size", sizes, Window.to(of_r.tail.mean, of_r.mean), 0.025)
        counts, own_ratio = count.each(), self.gain is None
        if self.gain is None:
            self.gain = self._gain(targets[0].of(counts[0]).value, residuals[0].of(counts[0]).value)
        ratio, tail = self.gain
        gains = tail.signed(self.r2 - ratio * self.d2)
        gain = means("gain", gains, Window(-tail.mean, tail.mean, 0.0), 0.395, 0.04)
        curves = {"calibration": self._calibration(), "residuals": self._residuals()} if own_ratio else {}
        return [
            _told(Moments(n, ratio, own_ratio, *parts), self.layout.unit, curves)
            for n, *parts in zip(counts, targets, residuals, deviations, absolute, gain, strict=True)
        ]

    def _quantiles(
        self, name: str, values: FloatArray, edges: FloatArray, prices: tuple[float, ...], last: FloatArray
    ) -> FloatArray:
        """About the quantiles of these levels, found in as many rounds as there are prices."""
        for t, price in enumerate(prices):
            noisy = self.releases.counts(f"{name} round {t}", cell(values, edges), COARSE, price)
            edges = at_levels(edges, noisy.value, equal_mass(COARSE) if t < len(prices) - 1 else last)
        return edges

    def _size(
        self,
        name: str,
        values: FloatArray,
        reach: float,
        price: float,
        *,
        factor: float,
        heavier: float = 1.0,
    ) -> Size:
        """Of numbers of size ≤ reach, from counts by magnitude; clipped at `factor` times what is seen.

        The tail beyond falls more slowly than an exponential one through what is seen: `heavier` times.
        """
        edges = octaves(reach, OCTAVES)
        noisy = self.releases.counts(name, cell(np.abs(values), edges), OCTAVES, price)
        tail = find_tail(edges[1:], noisy.value, noisy.sigma, factor).heavier(heavier, reach)
        inside, share = np.minimum(edges, tail.mean), np.diff(distribution(noisy.value))
        middle = 0.5 * (inside[1:] + inside[:-1])
        square = max(float(share @ middle**2), 1e-12 * tail.mean_square)
        return Size(tail, float(share @ middle), square)

    def _gain(self, of_d2: float, of_r2: float) -> tuple[float, Tail]:
        """(ρ, the tail of r² − ρd²) from the means of d² and r² (V-3)."""
        most = self.of_d.tail.mean_square
        ratio = min(max(of_r2 / max(of_d2, 1e-6 * most), 0.01), 2.0)
        reach, values = max(self.of_r.tail.mean_square, ratio * most), self.r2 - ratio * self.d2
        return ratio, self._size("size of gain", values, reach, 0.04, factor=3.0, heavier=3.0).tail

    def _residuals(self) -> Curve:
        """(level, quantile of y − prediction) and the nearest edges surely below and above it (V-4)."""
        half = octaves(1.0 + self.layout.reach, COARSE // 2)
        first = np.concatenate([-half[:0:-1], half])
        noisy = self.releases.counts("residual round 0", cell(self.r, first), COARSE, 0.01)
        second = at_levels(first, noisy.value, equal_mass(COARSE))
        noisy = self.releases.counts("residual round 1", cell(self.r, second), COARSE, 0.02)
        sigma = self.releases.neighbours.histogram_factor / self.releases.shift("residual round 2")
        edges = at_levels(second, noisy.value, levels_around(float(noisy.value.sum()), sigma))
        noisy = self.releases.counts("residual round 2", cell(self.r, edges), AROUND, 0.02)
        counts, edges, x = noisy.value, edges * self.layout.unit, np.array(LEVELS_OF_RESIDUALS)
        if float(counts.sum()) <= ENOUGH * noisy.sigma * math.sqrt(len(counts)):
            return Curve()
        low, high = Rising(edges, edges).along(Rising.shares(counts, noisy.sigma, Z), x)
        return told(x, np.interp(x, distribution(counts), edges), low, high)

    def _calibration(self) -> Curve:
        """(mean prediction, mean target) in cells of the prediction.

        The interval holds the mean target of the cell, and x plus how far it is off the true mean prediction.
        """
        reach, c, unit, size = self.layout.reach, self.of_r.tail.mean, self.layout.unit, len(BINS) - 1
        start = np.linspace(-reach, reach, COARSE + 1)
        edges = self._quantiles("prediction", self.prediction, start, (0.01, 0.01), BINS)
        clipped = np.clip(self.prediction, edges[0], edges[-1])
        inside, widths = cell(clipped, edges), np.diff(edges)
        where = (clipped - edges[inside]) / np.maximum(widths, 1e-300)[inside]
        counts = self.releases.counts("calibration", inside, size, 0.02).each()
        name, windows = "calibration of predictions", [Window(-c, c, 0.0)] * size
        positions = self.releases.sums(name, where, (0.0, 1.0), inside, size, 0.005).each()
        errors = release_means(self.releases, "calibration of residuals", self.r, windows, inside, 0.025)
        points: list[tuple[float, Score]] = []
        for left, width, count, position, mean in zip(
            edges[:-1].tolist(), widths.tolist(), counts, positions, errors, strict=True
        ):
            if not count.tells:
                continue
            within = min(max(position.value / count.value, 0.0), 1.0)
            x, error = self.layout.offset + unit * (left + within * width), mean.of(count)
            moved = mean.window.size**2 * mean.first.noise + width**2 * position.noise
            moved += (error.value + within * width) ** 2 * count.noise  # of the sum of both
            noise = max(error.noise, moved / count.value**2)
            sampling = self.of_r.square * unit**2 / count.value
            points.append((x, Score.of(Noisy(x + unit * error.value, noise * unit**2, sampling))))
        return Curve.through(points)


def _told(moments: Moments, unit: float, curves: Mapping[str, Curve]) -> GroupScores:
    """R², RMSE and MAE, in the units of the target."""
    count, rho = moments.count, moments.ratio
    size = Score.of(count, 0.0)
    if not count.tells:
        unknown = {"r2": Score.unknown(high=1.0), "rmse": Score.unknown(0.0), "mae": Score.unknown(0.0)}
        return GroupScores(size, unknown, curves=curves)
    gain, square, residual, absolute = (
        mean.of(count) for mean in (moments.gain, moments.target, moments.residual, moments.size)
    )
    by_gain = Noisy(gain.value + rho * square.value, gain.noise + rho**2 * square.noise)
    mse = _at_least(_combined(by_gain, residual), 2.0, count)
    spread = max(mse.value - absolute.value**2, 0.0) / count.value
    mae = Noisy(unit * absolute.value, unit**2 * absolute.noise, unit**2 * spread)
    scores = {"r2": _r2(moments), "rmse": _root(mse, unit), "mae": Score.of(mae, 0.0)}
    return GroupScores(size, scores, curves=curves)


def _at_least(found: Noisy[float], normal: float, count: Noisy[float]) -> Noisy[float]:
    """With the variance of the sample at least half of what normal residuals have, `normal`·value²/n.

    The noisy mean of squares that says it may come out as small as 0.
    """
    least = 0.5 * normal * found.value**2 / count.value
    return Noisy(found.value, found.noise, max(found.sampling, least))


def _combined(first: Noisy[float], second: Noisy[float]) -> Noisy[float]:
    """Two estimates of one number with independent noise, by their variances; the sample is the same."""
    weight = second.noise / (first.noise + second.noise)
    value = weight * first.value + (1.0 - weight) * second.value
    noise = weight**2 * first.noise + (1.0 - weight) ** 2 * second.noise
    return Noisy(max(value, 0.0), noise, second.sampling)


def _r2(moments: Moments) -> Score:
    """1 − (G + ρD)/V, G = mean(r² − ρd²), D = mean d², V = D − (mean d)²; by the delta method (V-3)."""
    gain, square, deviation = parts = tuple(
        mean.of(moments.count) for mean in (moments.gain, moments.target, moments.deviation)
    )
    variance = square.value - deviation.value**2 + deviation.noise  # noise alone makes a square larger
    spread = square.noise + 4.0 * deviation.value**2 * deviation.noise + 2.0 * deviation.noise**2
    if variance <= ENOUGH * math.sqrt(spread):
        return Score.unknown(high=1.0)
    rho = moments.ratio
    unexplained = (gain.value + rho * square.value) / variance
    slopes = (1.0, unexplained - rho, 2.0 * deviation.value * unexplained)  # of G, D and mean d, times V
    noise = math.fsum(slope**2 * part.noise for slope, part in zip(slopes, parts, strict=True)) / variance**2
    sampled = math.fsum(abs(slope) * math.sqrt(p.sampling) for slope, p in zip(slopes, parts, strict=True))
    rest = Noisy(max(unexplained, 0.0), noise, (sampled / variance) ** 2)
    rest = _at_least(rest, 4.0 * max(1.0 - unexplained, 0.0), moments.count)
    if moments.own_ratio:  # an error e of V is in ρ, too: 1 − R² comes out (1 − e²/V²) times as large
        squared = spread / variance**2
        value, extra = rest.value * (1.0 + squared), 2.0 * (rest.value * squared) ** 2
        rest = Noisy(value, rest.noise + extra, rest.sampling)
    found = _positive(rest)
    return Score(1.0 - found.value, 1.0 - found.high, 1.0 - found.low, found.noise, found.sampling)


def _root(found: Noisy[float], unit: float) -> Score:
    """The root of a mean square."""
    square = _positive(found)
    value, low, high = (unit * math.sqrt(v) for v in (square.value, square.low, square.high))
    steep = unit / (2.0 * math.sqrt(max(found.value, 1e-300))) if found.value > 0 else 0.0
    return Score(value, low, high, square.noise * steep, square.sampling * steep)


def _positive(found: Noisy[float]) -> Score:
    """Of a positive number: the interval is symmetric in its logarithm, since large errors come upwards."""
    plain = Score.of(found, 0.0)
    relative = Z * math.sqrt(found.variance) / max(found.value, 1e-300)
    if relative > 1.0:  # hardly known to be positive
        return plain
    low, high = (found.value * math.exp(sign * relative) for sign in (-1.0, 1.0))
    return Score(plain.value, low, high, plain.noise, plain.sampling)


def levels_around(total: float, sigma: float) -> FloatArray:
    """Of the edges between which quantiles are told: 4 deviations of a noisy share off each level.

    So the nearest edge that is surely on one side of a quantile is mostly this one. Never more than half of
    the way to 0 or 1.
    """
    x, n = np.array(LEVELS_OF_RESIDUALS), max(total, 1.0)
    reach = 4.0 * np.sqrt(x * (1.0 - x) * (sigma**2 * AROUND / n + 1.0) / n)
    reach = np.minimum(reach, 0.5 * np.minimum(x, 1.0 - x))
    return np.concatenate([[0.0], np.sort(np.concatenate([x - reach, x + reach])), [1.0]])
