"""From user units to model units: the public map of columns, and the clipping of records."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND, UNIT_ROUNDOFF, FloatArray, as_coordinates
from curvedp.errors import InvalidInput


@dataclass(frozen=True)
class Surface:
    """Columns that are functions of the same declared ones, such as powers of a number, or products.

    `points` has a row each for places spread evenly over all that is declared. The first `plain` columns are
    declared ones; those that have levels have so many at most.
    """

    columns: tuple[int, ...]
    points: tuple[tuple[float, ...], ...]
    plain: int
    levels: int


@dataclass(frozen=True)
class Coding:
    """What is public of model columns beside their bounds.

    `jumps` has for each of the d columns the squared distance between 0 and its farthest value if it is 0 but
    for some records, such as those of a level, and 0 of other columns; empty: all are such others. `blocks`
    are columns that code the levels of one category, level minus 1/K: no record has a part along their sum.
    `constant` is the column that is 1. `surfaces` are columns that are functions of the same declared ones.
    """

    jumps: tuple[float, ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()
    constant: int | None = None
    surfaces: tuple[Surface, ...] = ()

    def longest(self, A: FloatArray, most: float) -> float:
        """About the largest ‖Ax‖ of a record x with ‖x‖ ≤ `most`: by parts, so that no corner of a box counts
        that no surface comes near."""
        rest, reach = np.ones(A.shape[1], bool), 0.0
        for surface in self.surfaces:
            rest[list(surface.columns)] = False
            reach += float(np.linalg.norm(np.array(surface.points) @ A[:, surface.columns].T, axis=1).max())
        by_parts = reach + most * float(np.linalg.norm(A[:, rest], 2)) if rest.any() else reach
        return min(by_parts, most * float(np.linalg.norm(A, 2)))

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Columns within [−1, 1] of which nothing more is known."""
        told = {self.constant, *(j for surface in self.surfaces for j in surface.columns[surface.plain :])}
        return tuple(j for j, jump in enumerate(self.jumps) if jump == 0.0 and j not in told)

    def shares(self, means: FloatArray, gone: Collection[int] = ()) -> FloatArray:
        """Of the records in every level, (d,): 1/K + the mean of its column; 0 of levels that are `gone`.

        Without a constant column all levels weigh the same.
        """
        found = np.zeros(len(means))
        for block in self.blocks:
            left = [j for j in block if j not in gone or self.constant is None]
            raw = np.clip(1.0 / len(block) + means[left] * (self.constant is not None), 1e-9, 1.0)
            found[left] = raw / raw.sum()
        return found

    def contrasts(self, means: FloatArray, gone: Collection[int] = ()) -> FloatArray:
        """C, shape (d, d): Cθ has the coefficients of every category less their mean over the records.

        Declared levels predict the same: a coded record has no part along their sum.
        """
        C, shares = np.eye(len(means)), self.shares(means, gone)
        for block in map(list, self.blocks):
            C[np.ix_(block, block)] -= shares[block]
        return C

    def check(self, d: int) -> None:
        """Refuse what does not describe d columns."""
        listed = as_coordinates(column for block in self.blocks for column in block)
        jumps = all(math.isfinite(jump) and jump >= 0.0 for jump in self.jumps)
        bent = (column for surface in self.surfaces for column in surface.columns)
        last = max((*listed, *bent, -1 if self.constant is None else self.constant), default=-1)
        if len(self.jumps) not in (0, d) or not jumps or last >= d:
            raise InvalidInput(f"a coding must name {d} jumps ≥ 0, or none, and blocks among as many columns")


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """Row map x ↦ ((clip(x, low, high) − center) / scale, intercept), then clipped to ‖·‖ ≤ x_norm.

    Every array is public. `intercept` > 0 appends a constant column of that value; 0 appends none.
    A NaN (missing or unparsable value) becomes the middle of the bounds (section 8). With `absorbed`, a row
    of the model is the difference of the mapped row from the mean of its person's (U-3).
    """

    low: FloatArray
    high: FloatArray
    center: FloatArray
    scale: FloatArray
    intercept: float = 0.0
    x_norm: float = field(default=np.inf)
    coding: Coding = field(default_factory=Coding)
    absorbed: bool = False

    def __post_init__(self) -> None:
        arrays = (self.low, self.high, self.center, self.scale)
        if any(a.ndim != 1 or a.shape != self.low.shape or not np.isfinite(a).all() for a in arrays):
            raise InvalidInput("low, high, center and scale must be finite and of one length")
        scales = (self.scale >= SMALLEST_BOUND) & (self.scale <= LARGEST_ENTRY)
        if not (np.all(self.low <= self.high) and np.all(scales) and self.x_norm >= SMALLEST_BOUND):
            raise InvalidInput("every low must be at most its high, every scale and `x_norm` positive")
        with np.errstate(over="ignore"):
            reach = np.maximum(np.abs(self.low - self.center), np.abs(self.high - self.center)) / self.scale
        if not (np.all(reach <= LARGEST_ENTRY) and 0.0 <= self.intercept <= LARGEST_ENTRY):
            raise InvalidInput("mapped cells and the intercept must be at most 1e150: pass larger scales")

    @property
    def n_inputs(self) -> int:
        return int(self.low.shape[0])

    @property
    def d(self) -> int:
        """Number of model columns: inputs plus the intercept column, if any."""
        return self.n_inputs + (1 if self.intercept else 0)

    @classmethod
    def from_bounds(
        cls,
        low: ArrayLike,
        high: ArrayLike,
        *,
        intercept: float = 1.0,
        x_norm: float | None = None,
        one_hot: Sequence[Sequence[int]] = (),
        some: Sequence[Sequence[int]] = (),
        rays: Sequence[Sequence[int]] = (),
        switched: Sequence[int] = (),
    ) -> ColumnMap:
        """Each column onto [−1, 1] by its public bounds: x ↦ (x − middle) / half range.

        `one_hot` lists blocks of K columns p ≥ 0 with Σ p_k ≤ 1, such as the levels of a categorical column:
        those keep their scale and are centred by 1/K, so that ‖p − 1/K‖² = ‖p‖² − 2Σp_k/K + 1/K, with
        s = Σ p_k at most s² − 2s/K + 1/K, which is largest at s = 0 or 1: max(1/K, 1 − 1/K). `some` lists
        blocks of such columns of which others are left out. `rays` lists blocks of columns x·p, such as a
        number for each level: those are divided by max |x| and not centred, so that a block has norm at most
        1. `switched` are further columns that are 0 but for some records. `x_norm` defaults to what the
        bounds imply, sqrt(Σ blocks and columns max² + intercept²).
        """
        low, high = (np.array(end, dtype=np.float64, ndmin=1) for end in (low, high))
        if low.ndim != 1 or low.shape != high.shape:
            raise InvalidInput("low and high must be two lists of the same length, one number per column")
        if not np.all((low >= -LARGEST_ENTRY) & (low <= high) & (high <= LARGEST_ENTRY)):
            raise InvalidInput("every low must be at most its high, both finite numbers, public constants")
        if not 0.0 <= intercept <= LARGEST_ENTRY:
            raise InvalidInput(f"intercept must be a number ≥ 0, the value of its column; got {intercept!r}")
        center, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        varies = half >= SMALLEST_BOUND
        scale, squares = np.where(varies, half, 1.0), np.where(varies, 1.0, 0.0)
        listed = as_coordinates(column for block in (*one_hot, *some, *rays) for column in block)
        if max((*listed, *switched), default=-1) >= len(low):
            raise InvalidInput(f"a block names column {max(*listed, *switched, 0)}, there are {len(low)}")
        for block in (*one_hot, *some):
            index, levels = list(block), len(block)
            if not (np.all(low[index] == 0.0) and np.all(high[index] == 1.0)):
                raise InvalidInput("the columns of a one-hot block must have bounds (0, 1)")
            center[index], scale[index] = 1.0 / levels, 1.0
            # One level set, or none (a missing value).
            squares[index] = max(1.0 - 1.0 / levels, 1.0 / levels) / levels
        for block in rays:
            index = list(block)
            reach = max(float(np.abs(low[index]).max()), float(np.abs(high[index]).max()))
            if reach >= SMALLEST_BOUND:
                center[index], scale[index], squares[index] = 0.0, reach, 1.0 / len(index)
        implied = math.sqrt(float(squares.sum()) + intercept**2) or 1.0  # nothing varies: any bound will do
        if x_norm is None:
            x_norm = implied
        elif not x_norm > 0:
            raise InvalidInput(f"`x_norm` must be a positive number, a public bound; got {x_norm!r}")
        jumps = np.zeros(len(low) + (1 if intercept else 0))
        index = sorted({*listed, *switched})
        jumps[index] = (np.maximum(np.abs(low), np.abs(high)) / scale)[index] ** 2
        constant = len(low) if intercept == 1.0 else None
        coding = Coding(tuple(jumps.tolist()), tuple(map(tuple, one_hot)), constant)
        return cls(low, high, center, scale, float(intercept), min(float(x_norm), implied), coding)

    @property
    def norm_bound(self) -> float:
        """The public bound of ‖x‖ that every row of the model meets: the B of the constants."""
        return 2.0 * self.x_norm if self.absorbed else self.x_norm

    def _as_rows(self, X: NDArray[np.generic]) -> FloatArray:
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise InvalidInput(f"rows must have {self.n_inputs} columns, one per pair of bounds")
        return np.ascontiguousarray(X, dtype=np.float64)

    def clip(self, X: NDArray[np.generic]) -> FloatArray:
        """X in user units, every entry within its bounds, a NaN in their middle."""
        rows = self._as_rows(X)
        out = np.empty_like(rows)
        kernels().clip_columns(rows, self.low, self.high, out)
        return out

    def within(self, X: NDArray[np.generic], bound: float) -> tuple[FloatArray, FloatArray]:
        """(rows, norms): the row map with `bound` in the place of x_norm, and ‖·‖ of every mapped row."""
        rows, safe = self._as_rows(X), inside(bound, self.d)
        out, norms = np.empty((len(rows), self.d)), np.empty(len(rows))
        how = self.low, self.high, self.center, 1.0 / self.scale, self.intercept, safe
        kernels().map_cells(rows, *how, out, norms)
        return out, norms

    def apply(self, X: NDArray[np.generic]) -> FloatArray:
        """The row map of every row of X, shape (n, d)."""
        return self.within(X, self.x_norm)[0]

    def at(self, kept: Sequence[int]) -> ColumnMap:
        """The map of some model columns; the norm bound stays, so that the domain does."""
        index = [j for j in kept if j < self.n_inputs]
        numbers = {name: getattr(self, name)[index] for name in ("low", "high", "center", "scale")}
        return replace(self, **numbers, coding=Coding())

    def to_user_units(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(coef, intercept) with coefᵀx + intercept = θᵀ(mapped x) for every x within the bounds.

        θ has shape (d, K); coef (n_inputs, K), intercept (K,). Exact but for rows shortened to x_norm.
        Differences have no intercept: 0.
        """
        coef = theta[: self.n_inputs] / self.scale[:, None]
        if self.absorbed:
            return coef, np.zeros(theta.shape[1])
        offset = self.intercept * theta[self.n_inputs] if self.intercept else np.zeros(theta.shape[1])
        return coef, offset - self.center @ coef


@cache
def kernels() -> ModuleType:
    """The compiled loops, loaded when they are needed first: the compiler takes long to load."""
    return import_module("curvedp.data.kernels")


def norms(X: FloatArray) -> FloatArray:
    """‖x‖ of every row; steady. No square overflows or vanishes."""
    if X.shape[1] == 1:
        return np.abs(X[:, 0])
    out = np.empty(len(X))
    kernels().norm_rows(X, out)
    return out


def capped(cells: FloatArray) -> FloatArray:
    """Cells without bounds of their own: no number becomes 0, one beyond ±1e150 that value."""
    return np.clip(np.where(np.isnan(cells), 0.0, cells), -LARGEST_ENTRY, LARGEST_ENTRY)


def inside(bound: float, d: int) -> float:
    """A little less than the bound: d numbers whose computed norm is at most this meet the bound exactly."""
    return bound * (1.0 - (d + 8) * UNIT_ROUNDOFF)


def clip_to_ball(X: FloatArray, bound: float) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """(X, norms, factors): row i of the clipped records is factors_i·X_i, of norm norms_i ≤ bound.

    Cells are `capped` first, so what a row becomes depends on no other row. X is returned itself, not a copy,
    when no cell needs it; `factors` is None when every row lies within the bound.
    """
    lengths = norms(X)
    if (odd := ~(lengths <= LARGEST_ENTRY)).any():  # a cell beyond the cap, or one that is no number
        X, rows = X.copy(), capped(X[odd])
        X[odd], lengths[odd] = rows, norms(rows)
    return X, *clip_factors(lengths, bound, X.shape[1])


def clip_factors(norms: FloatArray, bound: float, d: int) -> tuple[FloatArray, FloatArray | None]:
    """Norms after clipping and the factors min(1, bound/‖x_i‖), of rows with d entries."""
    safe = inside(bound, d)
    if not (outside := norms > safe).any():
        return norms, None
    return np.where(outside, safe, norms), np.divide(safe, norms, out=np.ones_like(norms), where=outside)
