"""What a look at single columns adds to what is public of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.columns import Coding
from curvedp.mechanisms.noise import GaussianNoise, Grid
from curvedp.rows.base import Rows
from curvedp.rows.reductions import CELLS

_FILLED = 1.0 / 3.0  # of its bounds: a column that surely stays within less is stretched …
_MOST_OUTSIDE = 0.6  # … if not more than this share of the records can lie outside, for all that noise hides
_FIRM = 3.0  # deviations: a cell that surely holds records
_LONGEST = 4.0  # squared distance of two values in [−1, 1]
_MIDDLES = (np.arange(CELLS) + 0.5) * (2.0 / CELLS) - 1.0


@dataclass(frozen=True, eq=False)
class Columns:
    """Coordinates T x in which numbers fill their range, and squared jumps of all columns."""

    T: FloatArray
    inverse: FloatArray
    jumps: FloatArray

    @classmethod
    def declared(cls, coding: Coding, d: int) -> Columns:
        jumps = np.array(coding.jumps) if coding.jumps else np.zeros(d)
        return cls(np.eye(d), np.eye(d), jumps)


def looked_at(coding: Coding, d: int, rows: Rows, noise: GaussianNoise, mu: float, mass: float) -> Columns:
    """A histogram of every number, released; what follows from it and from the declarations.

    A record has one entry in every histogram: √m of them, m numbers.
    """
    found = Columns.declared(coding, d)
    numbers = coding.numbers
    if not numbers:
        return found
    counts = rows.column_cells(numbers)
    sensitivity = noise.neighbours.histogram_factor * math.sqrt(len(numbers))
    grid = Grid.of(sensitivity, mu, counts.size)
    noisy, deviation = grid.add(counts, noise.generator, "columns"), sensitivity / mu
    T, inverse, jumps = found.T.copy(), found.inverse.copy(), found.jumps.copy()
    for j, cells in zip(numbers, noisy, strict=True):
        if _has_few_values(cells, deviation):
            jumps[j] = _LONGEST
            continue
        jumps[j] = _jump(cells, deviation, mass, d)
        centre, half = _window(cells, deviation, mass, centred=coding.constant is not None)
        T[j, j], inverse[j, j] = 1.0 / half, half
        if coding.constant is not None:
            T[j, coding.constant], inverse[j, coding.constant] = -centre / half, centre
    return Columns(T, inverse, jumps)


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
    firm = np.flatnonzero(cells > _FIRM * deviation)
    if firm.size == 0:
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
