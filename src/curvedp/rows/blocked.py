"""The reductions of `Rows` as sums over blocks. Subclasses say how blocks come about."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvedp.domain import UNIT_ROUNDOFF, ColumnMap, Domain, FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.losses import Loss, Squared
from curvedp.rows import reductions
from curvedp.rows.base import Moments
from curvedp.rows.blocks import Block
from curvedp.rows.passes import ordered_map

Load = Callable[[], tuple[Block, FloatArray]]
Contribution = Callable[[Block, FloatArray], FloatArray | float]


def rows_per_block(d: int) -> int:
    """About 4 MB of float64, between 1024 and 4096 rows: large enough for BLAS, small enough for caches."""
    return min(4096, max(1024, 2**19 // max(d, 1)))


class BlockRows(ABC):
    """Rows whose reductions add up, in a fixed order, what each block contributes."""

    def __init__(
        self, domain: Domain, columns: ColumnMap | None, d: int, n_targets: int, threads: int | None = None
    ) -> None:
        self.domain = domain
        self.columns = columns
        self.d = d
        self.n_targets = n_targets
        self.threads = threads

    @property
    def bound(self) -> float:
        """B: every record has ‖x‖ ≤ B."""
        return self.domain.x_norm if self.columns is None else min(self.domain.x_norm, self.columns.x_norm)

    @abstractmethod
    def loads(self, keep: bool) -> Iterable[Load]:
        """One callable per block, in order, each returning the block and its raw targets (n, T).

        `keep` says that more passes will follow, so that prepared blocks are worth their memory."""

    @abstractmethod
    def count(self) -> int: ...

    def moments(self) -> Moments:
        xx, xy = np.zeros((self.d, self.d)), np.zeros((self.d, self.n_targets))
        yy = np.zeros((self.n_targets, self.n_targets))
        mass, blocks = 0.0, 0

        def contribution(load: Load) -> tuple[FloatArray, FloatArray, FloatArray, float]:
            block, y = load()
            return reductions.moments(block, Squared().clip_target(y, self.domain))

        for part in ordered_map(contribution, self.loads(keep=False), self.threads):
            xx += part[0]
            xy += part[1]
            yy += part[2]
            mass += part[3]
            blocks += 1
        size = max(mass, math.sqrt(mass * float(np.trace(yy))))
        return Moments(xx, xy, yy, error=self._summation_error(blocks) * size)

    def gradient_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        return self._total(partial(reductions.gradient, loss=loss, theta=theta, clip=clip), loss, theta.shape)

    def hessian_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> FloatArray:
        self._check(loss, theta, clip)
        if clip is not None and loss.n_outputs > 1:
            raise InvalidInput("a clipped Hessian exists for losses with one output only; pass clip=None")
        shape = (theta.size, theta.size)
        return self._total(partial(reductions.hessian, loss=loss, theta=theta, clip=clip), loss, shape)

    def gradient_norm_histogram(self, loss: Loss, theta: FloatArray, edges: FloatArray) -> FloatArray:
        self._check(loss, theta, None)
        edges = np.asarray(edges, dtype=np.float64)
        if edges.ndim != 1 or not np.all(np.diff(edges) > 0):
            raise InvalidInput("edges must be an increasing list of numbers")
        shape = (len(edges) + 1,)
        return self._total(partial(reductions.histogram, loss=loss, theta=theta, edges=edges), loss, shape)

    def value_sum(self, loss: Loss, theta: FloatArray, clip: float | None = None) -> float:
        self._check(loss, theta, clip)
        return float(self._total(partial(reductions.value, loss=loss, theta=theta, clip=clip), loss, ()))

    def gradient_error(self, loss: Loss, theta: FloatArray) -> float:
        """Σ_i m_i(β·δs_i + evaluation error of φ'_i) + γ Σ_i m_i‖φ'_i‖, with |δs_i| ≤ (d+16)·2⁻⁵³·m_i‖θ‖."""
        self._check(loss, theta, None)
        masses = partial(reductions.error_masses, loss=loss, theta=theta)
        m, m2, m_slope = self._total(masses, loss, (3,))
        norm = float(np.linalg.norm(theta))
        blocks = sum(1 for _ in self.loads(keep=True))
        margin = loss.curvature(self.domain, norm) * (self.d + 16) * m2 * norm
        evaluation = 16 * loss.n_outputs * ((1.0 + self.domain.y_bound) * m + m_slope)
        return 1.01 * float(UNIT_ROUNDOFF * (margin + evaluation) + self._summation_error(blocks) * m_slope)

    def _summation_error(self, blocks: int) -> float:
        """γ = (rows per block + blocks + 16)·2⁻⁵³: relative error of a sum over blocks, in any order."""
        return 1.01 * (rows_per_block(self.d) + blocks + 16) * UNIT_ROUNDOFF

    def _total(self, contribution: Contribution, loss: Loss, shape: tuple[int, ...]) -> FloatArray:
        def part(load: Load) -> FloatArray | float:
            block, y = load()
            return contribution(block, loss.clip_target(y[:, 0], self.domain))

        total = np.zeros(shape)
        for result in ordered_map(part, self.loads(keep=True), self.threads):
            total += result
        return total

    def _check(self, loss: Loss, theta: FloatArray, clip: float | None) -> None:
        if theta.shape != (self.d, loss.n_outputs):
            raise InvalidInput(f"theta must have shape {(self.d, loss.n_outputs)}, got {theta.shape}")
        if self.n_targets != 1:
            raise InvalidInput("a loss needs one target: pass y with one column")
        if clip is not None and not clip > 0:
            raise InvalidInput(f"clip must be a positive number or None, got {clip!r}")


def as_features(X: ArrayLike) -> NDArray[np.generic]:
    """X as a two-dimensional array of real numbers, not copied."""
    array = np.asanyarray(X)
    if array.ndim != 2:
        raise DataError("X must be a table: two dimensions, one row per record")
    if array.dtype.kind not in "fiub":
        raise DataError("X must hold numbers; read tables of other kinds through a schema")
    return array


def as_targets(y: ArrayLike, n: int) -> FloatArray:
    """y as an (n, T) array of float64."""
    array = np.asanyarray(y)
    if array.dtype.kind not in "fiub":
        raise DataError("y must hold numbers: real targets, ±1, or class indices")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n:
        raise DataError("y must have one entry (or one row of targets) per row of X")
    return array.astype(np.float64, copy=False)
