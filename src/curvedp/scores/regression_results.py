"""From released moments, counts and sums to the scores of a regression; free, as all post-processing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.scores.bands import Band, Rising
from curvedp.scores.means import Estimate, Mean
from curvedp.scores.noisy import Noisy
from curvedp.scores.results import Z95, Curve, GroupScores, Score
from curvedp.scores.sketch import distribution
from curvedp.scores.source import ScoreLayout

_ENOUGH = 3.0  # times its noise: a count below it tells nothing
LEVELS_OF_RESIDUALS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True)
class FirstMoments:
    """Of a group, in half ranges of the target: means of d², r², d and |r|, r the residual and d = y − m."""

    count: Estimate
    target: Mean
    residual: Mean
    deviation: Mean
    size: Mean


@dataclass(frozen=True)
class Moments:
    """With the mean of the gain r² − ρd²; `own_ratio` says that ρ was made of these first moments."""

    ratio: float
    own_ratio: bool
    first: FirstMoments
    gain: Mean


def regression_scores(moments: Moments, unit: float, curves: Mapping[str, Curve]) -> GroupScores:
    """R², RMSE and MAE, in the units of the target."""
    first, rho = moments.first, moments.ratio
    count = first.count
    size = Score.of(count, 0.0)
    if count.value <= _ENOUGH * math.sqrt(count.noise):
        unknown = {"r2": Score.unknown(high=1.0), "rmse": Score.unknown(0.0), "mae": Score.unknown(0.0)}
        return GroupScores(size, unknown, curves=curves)
    gain, square, residual, deviation, absolute = (
        mean.of(count) for mean in (moments.gain, first.target, first.residual, first.deviation, first.size)
    )
    by_gain = Estimate(gain.value + rho * square.value, gain.noise + rho**2 * square.noise)
    mse = _at_least(_combined(by_gain, residual), 2.0, count)
    spread = max(mse.value - absolute.value**2, 0.0) / count.value
    return GroupScores(
        size,
        {
            "r2": _r2(moments, gain, square, deviation),
            "rmse": _root(mse, unit),
            "mae": Score.of(_scaled(Estimate(absolute.value, absolute.noise, spread), unit), 0.0),
        },
        curves=curves,
    )


def _at_least(found: Estimate, normal: float, count: Estimate) -> Estimate:
    """With the variance of the sample at least half of what normal residuals have, `normal`·value²/n.

    The noisy mean of squares that says it may come out as small as 0.
    """
    least = 0.5 * normal * found.value**2 / count.value
    return Estimate(found.value, found.noise, max(found.sampling, least))


def _combined(first: Estimate, second: Estimate) -> Estimate:
    """Two estimates of one number with independent noise, by their variances; the sample is the same."""
    weight = second.noise / (first.noise + second.noise)
    value = weight * first.value + (1.0 - weight) * second.value
    noise = weight**2 * first.noise + (1.0 - weight) ** 2 * second.noise
    return Estimate(max(value, 0.0), noise, second.sampling)


def _r2(moments: Moments, gain: Estimate, square: Estimate, deviation: Estimate) -> Score:
    """1 − (G + ρD)/V, G = mean(r² − ρd²), D = mean d², V = D − (mean d)²; by the delta method (V-3)."""
    variance = square.value - deviation.value**2 + deviation.noise  # noise alone makes a square larger
    spread = square.noise + 4.0 * deviation.value**2 * deviation.noise + 2.0 * deviation.noise**2
    if variance <= _ENOUGH * math.sqrt(spread):
        return Score.unknown(high=1.0)
    rho = moments.ratio
    unexplained = (gain.value + rho * square.value) / variance
    slopes = (1.0, unexplained - rho, 2.0 * deviation.value * unexplained)  # of G, D and mean d, times V
    parts = (gain, square, deviation)
    noise = math.fsum(slope**2 * part.noise for slope, part in zip(slopes, parts, strict=True)) / variance**2
    sampled = math.fsum(abs(slope) * math.sqrt(p.sampling) for slope, p in zip(slopes, parts, strict=True))
    rest = Estimate(max(unexplained, 0.0), noise, (sampled / variance) ** 2)
    rest = _at_least(rest, 4.0 * max(1.0 - unexplained, 0.0), moments.first.count)
    if moments.own_ratio:  # an error e of V is in ρ, too: 1 − R² comes out (1 − e²/V²) times as large
        squared = spread / variance**2
        value, extra = rest.value * (1.0 + squared), 2.0 * (rest.value * squared) ** 2
        rest = Estimate(value, rest.noise + extra, rest.sampling)
    found = _positive(rest)
    return Score(1.0 - found.value, 1.0 - found.high, 1.0 - found.low, found.noise, found.sampling)


def _scaled(found: Estimate, unit: float) -> Estimate:
    return Estimate(found.value * unit, found.noise * unit**2, found.sampling * unit**2)


def _root(found: Estimate, unit: float) -> Score:
    """The root of a mean square."""
    square = _positive(found)
    value, low, high = (unit * math.sqrt(v) for v in (square.value, square.low, square.high))
    steep = unit / (2.0 * math.sqrt(max(found.value, 1e-300))) if found.value > 0 else 0.0
    return Score(value, low, high, square.noise * steep, square.sampling * steep)


def _positive(found: Estimate) -> Score:
    """Of a positive number: the interval is symmetric in its logarithm, since large errors come upwards."""
    plain = Score.of(found, 0.0)
    relative = Z95 * math.sqrt(found.variance) / max(found.value, 1e-300)
    if relative > 1.0:  # hardly known to be positive
        return plain
    low, high = (found.value * math.exp(sign * relative) for sign in (-1.0, 1.0))
    return Score(plain.value, low, high, plain.noise, plain.sampling)


def levels_around(total: float, sigma: float) -> FloatArray:
    """Of the edges between which quantiles are told: 4 deviations of a noisy share off each level.

    So the nearest edge that is surely on one side of a quantile is mostly this one. Never more than half of
    the way to 0 or 1.
    """
    x, cells = np.array(LEVELS_OF_RESIDUALS), 2 * len(LEVELS_OF_RESIDUALS) + 1
    n = max(total, 1.0)
    reach = 4.0 * np.sqrt(x * (1.0 - x) * (sigma**2 * cells / n + 1.0) / n)
    reach = np.minimum(reach, 0.5 * np.minimum(x, 1.0 - x))
    return np.concatenate([[0.0], np.sort(np.concatenate([x - reach, x + reach])), [1.0]])


def residual_quantiles(edges: FloatArray, noisy: Noisy) -> Curve:
    """(level, quantile of y − prediction) and the nearest edges that are surely below and above it (V-4)."""
    counts = noisy.value
    if float(counts.sum()) <= _ENOUGH * noisy.sigma * math.sqrt(len(counts)):
        return Curve()
    x = np.array(LEVELS_OF_RESIDUALS)
    band = Band.of(Rising.shares(counts, noisy.sigma, Z95), Rising(edges, edges), x)
    y = np.clip(np.interp(x, distribution(counts), edges), band.low, band.high)
    return Curve(*(tuple(map(float, values)) for values in (x, y, band.low, band.high)))


def calibration(
    edges: FloatArray,
    counts: Noisy,
    positions: Noisy,
    errors: list[Mean],
    square: float,
    layout: ScoreLayout,
) -> Curve:
    """(mean prediction, mean target) in cells of the prediction; `square` guesses the mean squared error.

    The interval holds the mean target of the cell, and x plus how far it is off the true mean prediction.
    """
    points: list[tuple[float, Score]] = []
    for i, mean in enumerate(errors):
        count = Estimate(float(counts.value[i]), counts.sigma**2)
        if count.value <= _ENOUGH * counts.sigma:
            continue
        width = float(edges[i + 1] - edges[i])
        inside = min(max(float(positions.value[i]) / count.value, 0.0), 1.0)
        x = layout.offset + layout.unit * (float(edges[i]) + inside * width)
        error = mean.of(count)
        moved = (mean.window.size * mean.sigma) ** 2 + (width * positions.sigma) ** 2
        moved += (error.value + inside * width) ** 2 * count.noise  # of the sum of both
        noise = max(error.noise, moved / count.value**2)
        found = Estimate(
            x + layout.unit * error.value, noise * layout.unit**2, square * layout.unit**2 / count.value
        )
        points.append((x, Score.of(found)))
    return Curve.through(points)
