"""What a look at single columns adds to what is public of them; the released curvature, and the metric it
gives: records are measured in it from then on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import erf

from curvedp.arrays import FloatArray
from curvedp.data.mapping import Coding, Surface
from curvedp.data.rows.base import CELLS, DENSE_ROWS_AT_MOST, Rows, additions_at_most, relative_error
from curvedp.mechanisms.base import GaussianNoise, Grid

_FILLED = 1.0 / 3.0  # of its bounds: a column that surely stays within less is stretched …
_MOST_OUTSIDE = 0.6  # … if not more than this share of the records can lie outside, for all that noise hides
_FIRM = 3.0  # deviations: a cell that surely holds records
_FLAT = 1.0 / 3.0  # mean square of a number that is uniform on [−1, 1]
_REPEATED = 1e-6  # of the largest variance: less of it is rounding
_ENDS = 0.75  # of the range: what is farther from its middle stands for its ends
_LONGEST = 4.0  # squared distance of two values in [−1, 1]
_MIDDLES = (np.arange(CELLS) + 0.5) * (2.0 / CELLS) - 1.0

# T and T⁻¹ of coordinates T x in which numbers fill their range, and (d, d) what Σxxᵀ of one record more of
# every level is, away from the mean: of one of all that functions of declared columns may be, so many times.
Columns = tuple[FloatArray, FloatArray, FloatArray]
# Σ x_j/Σ 1 of every column within [−1, 1], the deviation of its noise, and Σ 1; 0 without a constant column.
Means = tuple[FloatArray, FloatArray, float]


def declared_columns(coding: Coding, d: int) -> Columns:
    told = np.eye(d), np.eye(d), np.diag(coding.jumps) if coding.jumps else np.zeros((d, d))
    for surface in coding.surfaces:
        _straighten(told, surface, np.array(surface.points), coding.constant)
    return told


def _straighten(told: Columns, surface: Surface, points: FloatArray, constant: int | None) -> None:
    """Of columns that nearly repeat each other, as powers of a number do.

    Were a record anywhere among the points, they would be uncorrelated in T, and fill their range.
    """
    (T, inverse, jumps), at = told, list(surface.columns)
    own = np.ix_(at, at)
    mean = points.mean(axis=0) if constant is not None else np.zeros(len(at))
    spread = (points - mean).T @ (points - mean) / len(points)
    values, V = np.linalg.eigh(spread)
    varies = values > _REPEATED * values[-1]  # along the sum of a category's levels nothing does
    root = np.sqrt(np.where(varies, values, values[-1]) / _FLAT)
    still = np.where(np.diag(spread) > 0.0, 0.0, np.diag(jumps[own]))  # as what marks missing numbers
    jumps[own], T[own], inverse[own] = surface.levels * spread + np.diag(still), (V / root).T, V * root
    if constant is not None:
        T[at, constant], inverse[at, constant] = -(V / root).T @ mean, mean


def looked_at(coding: Coding, d: int, rows: Rows, noise: GaussianNoise, mu: float, mass: float) -> Columns:
    """A histogram of every number, released; what follows from it and from the declarations.

    A record has one entry in every histogram: √m of them, m numbers.
    """
    (T, inverse, jumps), numbers = declared_columns(coding, d), coding.numbers
    counts = rows.column_cells(numbers)
    sensitivity = noise.neighbours.histogram_factor * math.sqrt(len(numbers))
    grid = Grid.of(sensitivity, mu, counts.size)
    noisy, deviation = grid.add(counts, noise.generator, "columns"), sensitivity / mu
    bent = {j for surface in coding.surfaces for j in surface.columns}
    kept = [np.ones(len(surface.points), dtype=bool) for surface in coding.surfaces]
    for j, cells in zip(numbers, noisy, strict=True):
        few = _has_few_values(cells, deviation)
        centre, half = _window(cells, deviation, mass, centred=coding.constant is not None)
        for surface, inside in zip(coding.surfaces, kept, strict=True):
            if j in surface.columns:
                at = np.array(surface.points)[:, surface.columns.index(j)]
                inside &= np.abs(at) >= _ENDS if few else np.abs(at - centre) <= half
        if j in bent:
            continue
        jumps[j, j] = _LONGEST if few else _jump(cells, deviation, mass, d)
        if not few:
            T[j, j], inverse[j, j] = 1.0 / half, half
            if coding.constant is not None:
                T[j, coding.constant], inverse[j, coding.constant] = -centre / half, centre
    for surface, inside in zip(coding.surfaces, kept, strict=True):
        if inside.sum() > len(surface.columns):
            _straighten((T, inverse, jumps), surface, np.array(surface.points)[inside], coding.constant)
    return T, inverse, jumps


def _has_few_values(cells: FloatArray, deviation: float) -> bool:
    """Whether all that is seen lies in the first cell and the last, or in one of them, or at the middle.

    Others may be few, as of a rare 0/1; a cell that is no number is taken for the middle of its bounds.
    """
    firm = np.flatnonzero(cells > _FIRM * deviation)
    ends = bool(firm.size and np.isin(firm, (0, CELLS - 1)).all())
    return ends or firm.tolist() == [CELLS // 2]


def _jump(cells: FloatArray, deviation: float, mass: float, d: int) -> float:
    """Σ(x − m)⁴/Σ(x − m)²: the squared distance of those values that make up the variance; 0 in doubt.

    Less the part that the variance itself has of it, 2d/n·Σ(x − m)²: only columns whose few far values would
    be much longer than other records count (kurtosis above 2d).
    """
    mean = float(np.clip(cells @ _MIDDLES / max(mass, 1.0), -1.0, 1.0))
    apart = (_MIDDLES - mean) ** 2
    fourth, second = float(cells @ apart**2), float(cells @ apart)
    if fourth <= 2.0 * deviation * float(np.linalg.norm(apart**2)) or second <= 0.0:
        return 0.0
    return min(max(fourth / second - 2.0 * d * second / mass, 0.0), _LONGEST)


def _window(cells: FloatArray, deviation: float, mass: float, *, centred: bool) -> tuple[float, float]:
    """(middle, half width) of the cells that surely hold records; (0, 1) where others may."""
    if (firm := np.flatnonzero(cells > _FIRM * deviation)).size == 0:
        return 0.0, 1.0
    low, high = -1.0 + firm[0] * (2.0 / CELLS), -1.0 + (firm[-1] + 1) * (2.0 / CELLS)
    if not centred:
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    inside = (low < _MIDDLES) & (high > _MIDDLES)
    doubt = 2.0 * deviation * math.sqrt(float((~inside).sum()))
    half = 0.5 * (high - low)
    if half > _FILLED or doubt > _MOST_OUTSIDE * mass or float(cells[~inside].sum()) > doubt:
        return 0.0, 1.0
    return 0.5 * (low + high), half


@dataclass(frozen=True, eq=False)
class Pilot:
    """A metric A, its inverse, a bound B̃ of lengths, and Σ A x xᵀAᵀ of records shortened to ‖A x‖ ≤ B̃."""

    metric: FloatArray
    inverse: FloatArray
    bound: float
    gram: FloatArray  # private
    weight: float = 1.0  # about the mean weight of a record


@dataclass(frozen=True, eq=False)
class Geometry:
    """A released metric A with AᵀA = H⁻¹ and H ≽ about XᵀX; `resolved` estimates Σ‖A x_i‖² = tr(A XᵀX Aᵀ).

    What was released of XᵀX: S ≈ P XᵀX Pᵀ of shortened records, its noise τ·Sym, and P⁻¹.
    """

    metric: FloatArray
    H: FloatArray
    resolved: float
    S: FloatArray
    scale: float  # τ
    inverse: FloatArray  # P⁻¹
    means: FloatArray  # of columns …
    deviations: FloatArray  # … of their noise …
    records: float  # … and how many the constant column shows: see `Means`
    weight: float = 1.0  # about the mean weight of a record
    rows: float = 1.0  # about how many rows a unit has at most, most of them: 1 where a unit is a row

    @cached_property
    def stretch(self) -> tuple[float, float]:
        """The largest and the smallest singular value of A."""
        return stretch_of(self.metric)

    def seen_in(self, metric: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(T S Tᵀ, T Tᵀ), T = A P⁻¹: S in the coordinates of A; its noise there is τ·T Sym Tᵀ."""
        T = metric @ self.inverse
        return T @ self.S @ T.T, T @ T.T

    def squares(self, theta: FloatArray) -> tuple[float, float]:
        """(Σ‖θᵀx‖² of shortened records, deviation of its noise)."""
        along = self.inverse.T @ theta
        return float(np.vdot(along, self.S @ along)), self.scale * float(np.vdot(along, along))

    def variation(self, constant: int | None) -> tuple[FloatArray, FloatArray]:
        """(Σ(x_j − mean)², deviation of its noise) of every column, at least 0 and rough."""
        total = self.inverse @ self.S @ self.inverse.T
        own = np.sum(self.inverse**2, axis=1)
        squares = np.diag(total)
        if constant is not None:
            squares = squares - total[:, constant] ** 2 / max(total[constant, constant], 1.0)
        return np.maximum(squares, 0.0), self.scale * own


def means_of(S: FloatArray, scale: float, inverse: FloatArray, constant: int | None) -> Means:
    """By S ≈ P XᵀX Pᵀ: best where no record is shortened for what it is."""
    if constant is None:
        return np.zeros(len(S)), np.zeros(len(S)), 0.0
    one = inverse[constant]
    sums = inverse @ S @ one
    records = max(float(sums[constant]), 1.0)
    means = np.clip(sums / records, -1.0, 1.0)
    apart = inverse - np.outer(means, one)
    noise = np.sqrt((np.sum(apart**2, axis=1) * (one @ one) + (apart @ one) ** 2) / 2.0)
    return means, scale * noise / records, records


def stretch_of(metric: FloatArray) -> tuple[float, float]:
    values = np.linalg.svd(metric, compute_uv=False)
    return float(values[0]), float(values[-1])


def gram_slack(metric: FloatArray, most: float) -> float:
    """What rounding adds to the difference of two sums Σ w A x xᵀAᵀ of records, per unit of their bound.

    Sums are computed in the given coordinates: their errors grow by the square of A's condition number. A
    squared length errs by 32(d^{3/2}+1)·2⁻⁵³ of it.
    """
    largest, smallest = stretch_of(metric)
    d = len(metric)
    terms = DENSE_ROWS_AT_MOST + additions_at_most(d) + 4 * d + math.ceil(32.0 * (d**1.5 + 1.0))
    return 2.0 * most * relative_error(terms) * (largest / smallest) ** 2


def geometry_of(
    S: FloatArray, scale: float, lift: float, n: float, pilot: Pilot, levels: FloatArray, means: Means
) -> Geometry:
    """The metric of a released curvature S of n units whose noise has this scale; post-processing.

    `levels`, (d, d), is added to H.
    """
    norm = noise_norm(scale, len(S))
    lifted, U = curvature_above(S, lift, n * pilot.bound**2)
    root = np.sqrt(lifted)[:, None] * (U.T @ pilot.inverse.T)
    metric, H = (U / np.sqrt(lifted)).T @ pilot.metric, root.T @ root
    resolved = _resolved((U * (S @ U)).sum(axis=0), lifted, norm)
    if levels.any():
        # A(H + L)Aᵀ = I + A L Aᵀ: the records are that much shorter along its eigenvectors.
        values, V = np.linalg.eigh(np.eye(len(S)) + metric @ levels @ metric.T)
        seen = np.sum(V * ((U.T @ S @ U / np.sqrt(np.outer(lifted, lifted))) @ V), axis=0)
        kept = np.maximum(seen, 0.0)
        share = float(np.sum(kept / values)) / max(float(np.sum(kept)), 1e-9)
        metric, H = (V / np.sqrt(values)).T @ metric, H + levels
        resolved = max(resolved * share, 0.5)
    return Geometry(metric, H, resolved, S, scale, pilot.inverse, *means, pilot.weight)


def _resolved(values: FloatArray, lifted: FloatArray, norm: float) -> float:
    """Σ s_j/w_j, at least ½ and at most d; of eigenvalues below the noise Σ s_j times the mean of 1/w_j.

    There the noise decides which eigenvalue is large, and dividing each by its own w_j would bias the sum.
    """
    above = values > norm
    total = np.sum(values[above] / lifted[above])
    if not above.all():
        total += np.sum(values[~above]) * np.mean(1.0 / lifted[~above])
    return float(min(max(total, 0.5), len(values)))


def noise_norm(scale: float, d: int) -> float:
    """The spectral norm of symmetric Gaussian noise: about scale·√(2d)."""
    return scale * math.sqrt(2.0 * d)


def curvature_above(S: FloatArray, lift: float, ceiling: float) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues min(max(s, 0), ceiling) + min(lift, ceiling) and eigenvectors of S."""
    values, vectors = np.linalg.eigh(S)
    return np.clip(values, 0.0, ceiling) + min(lift, ceiling), vectors


# Looks at lengths: how many records are how long.

LOOK_EDGES = 13  # of a histogram of lengths
_MISFIT = 0.1  # of all records in any cell: lengths are not half-normal
_OCTAVES = 8.0  # that the edges span


def records_beyond(counts: FloatArray) -> FloatArray:
    """How many records lie beyond each edge, from the counts of all cells; never negative."""
    return np.maximum(np.cumsum(counts[::-1])[::-1][1:], 0.0)


def look_edges(largest: float, reach: float = 1.0) -> FloatArray:
    """Edges from reach·`largest` down over eight octaves, and as many more as `reach` has."""
    octaves = _OCTAVES + math.log2(reach)
    return np.asarray(largest * reach * 2.0 ** (-octaves * np.linspace(1.0, 0.0, LOOK_EDGES)))


def typical_length(
    edges: FloatArray,
    counts: FloatArray,
    deviation: float,
    n: float,
    guess: float,
    octaves: float,
    below: float = 0.0,
) -> float:
    """A posterior mean, of the logarithm, of the root mean square s of n lengths, less `below` deviations.

    A cell is believed to hold n·P(cell | |N(0, s²)|), up to the noise and a tenth of n; log₂ s to be
    log₂ guess up to `octaves`, and s to lie between half of the smallest and half of the largest edge.
    """
    span = math.log2(edges[-1] / edges[0])
    s = edges[-1] * 2.0 ** -np.arange(1.0, span + 1.125, 0.25)
    cells = np.diff(erf(edges / (math.sqrt(2.0) * s[:, None])), axis=1, prepend=0.0, append=1.0)
    error = math.hypot(deviation, _MISFIT * n)
    fit = -0.5 * np.sum((counts - n * cells) ** 2, axis=1) / error**2
    fit -= 0.5 * (np.log2(s / guess) / octaves) ** 2
    posterior = np.exp(fit - fit.max()) / np.sum(np.exp(fit - fit.max()))
    mean = float(posterior @ np.log2(s))
    spread = math.sqrt(float(posterior @ (np.log2(s) - mean) ** 2))
    return float(2.0 ** (mean - below * spread))


def leverage_beyond(edge: float, longest: float) -> float:
    """The mean square of lengths that spread evenly, on a logarithmic scale, from `edge` to `longest`, which
    the bounds allow; 0 where that is at most twice the edge."""
    return (longest**2 - edge**2) / (2.0 * math.log(longest / edge)) if longest > 2.0 * edge else 0.0
