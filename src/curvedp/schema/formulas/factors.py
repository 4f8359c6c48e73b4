"""What a term multiplies: a number, or parts of one whole.

Parts are columns p_1 … p_K ≥ 0 of each row with Σ p_k = 1, or all 0 where a level is missing: one-hot levels,
bins, B-splines. Products of parts are parts again, and ‖p‖₂ ≤ Σ p_k ≤ 1 whatever K is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.schema.formulas.numbers import Number, Sources

ROWS_AT_A_TIME = 50_000


@dataclass(frozen=True)
class Scalar:
    """One number."""

    number: Number
    name: str = field(compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def sources(self) -> frozenset[str]:
        return self.number.sources


@dataclass(frozen=True)
class Levels:
    """The levels of a declared column, or of a part of dates."""

    column: str
    names: tuple[str, ...]
    part: str = ""

    @property
    def sources(self) -> frozenset[str]:
        return frozenset([self.column])

    def of(self, rows: Sources) -> FloatArray:
        return rows.levels(self.column, self.part)


@dataclass(frozen=True)
class Bins:
    """[low, b_1], (b_1, b_2], …, (b_m, high] of a number."""

    number: Number
    breaks: tuple[float, ...]
    name: str = field(compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        interval = self.number.interval
        ends = [interval.low, *self.breaks, interval.high]
        first = f"{self.name} in [{ends[0]:g}, {ends[1]:g}]"
        others = pairwise(ends[1:])
        return (first, *(f"{self.name} in ({low:g}, {high:g}]" for low, high in others))

    @property
    def sources(self) -> frozenset[str]:
        return self.number.sources

    def of(self, rows: Sources) -> FloatArray:
        place = np.searchsorted(self.breaks, self.number.of(rows), side="left")
        return np.asarray(place[:, None] == np.arange(len(self.breaks) + 1), dtype=np.float64)


@dataclass(frozen=True)
class Spline:
    """B-splines of a degree at declared knots; the bounds of the number are the boundary knots."""

    number: Number
    knots: tuple[float, ...]
    degree: int
    name: str = field(compare=False)

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.knots) + self.degree + 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}[{k}]" for k in range(1, self.size + 1))

    @property
    def sources(self) -> frozenset[str]:
        return self.number.sources

    @cached_property
    def _all_knots(self) -> FloatArray:
        low, high = self.number.interval.low, self.number.interval.high
        ends = self.degree + 1
        return np.array([low] * ends + list(self.knots) + [high] * ends)

    def of(self, rows: Sources) -> FloatArray:
        from scipy.interpolate import BSpline

        interval, values = self.number.interval, self.number.of(rows)
        found = np.empty((len(values), self.size))
        for start in range(0, len(values), ROWS_AT_A_TIME):
            part = slice(start, start + ROWS_AT_A_TIME)
            inside = np.clip(values[part], interval.low, interval.high)
            found[part] = BSpline.design_matrix(inside, self._all_knots, self.degree).toarray()
        return np.clip(found, 0.0, 1.0, out=found)


Parts = Levels | Bins | Spline
Factor = Scalar | Levels | Bins | Spline
