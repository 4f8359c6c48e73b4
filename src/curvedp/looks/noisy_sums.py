"""The released sums of a description, and means, deviations and correlations as functions of them (D-1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.looks.estimates import Estimate, Z, ratio
from curvedp.looks.histograms import CellCounts, LevelCounts, pooled_total, tree
from curvedp.looks.tallies import TableLayout

Part = Literal["levels", "nodes", "sums", "squares", "pairs"]
PARTS: tuple[Part, ...] = get_args(Part)

_STEADY = 3.0  # a variance of fewer deviations of its noise carries no correlation
_TURNS, _NEGATIVE = 100, 1e-12


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Noisy sums by part, the deviation of each part's noise, and the number of records if public."""

    layout: TableLayout
    values: Mapping[Part, FloatArray]
    scales: Mapping[Part, float]
    public_count: float | None = None

    @cached_property
    def cells(self) -> dict[str, CellCounts]:
        """The cells of every numeric column by its name, with sums that agree."""
        return {name: column.given_total(*self.total) for name, column in self._numbers.items()}

    @cached_property
    def levels(self) -> dict[str, LevelCounts]:
        """Those of every other column."""
        return {name: column.given_total(*self.total) for name, column in self._levels.items()}

    @cached_property
    def total(self) -> tuple[float, float]:
        """The number of records and the deviation of its noise."""
        if self.public_count is not None:
            return self.public_count, 0.0
        return pooled_total([*self._numbers.values(), *self._levels.values()])

    @property
    def count(self) -> Estimate:
        """The number of records."""
        total, deviation = self.total
        reach = Z * deviation
        found = Estimate.within(total, total - reach, total + reach, (0.0, math.inf))
        return replace(found, resolved=reach < total or reach == 0)

    def share(self, name: str, cell: int) -> Estimate:
        """Of the records whose column falls into this cell; −1 is the missing one."""
        cells = self.cells[name] if name in self.cells else self.levels[name]
        variance, shared = cells.of_cell(cell)
        return ratio(
            float(cells.counts[cell]), self.total[0], variance, self.total[1] ** 2, shared, (0.0, 1.0)
        )

    def mean(self, j: int) -> Estimate:
        """Of what is present in the j-th numeric column, on [−1, 1]."""
        present, deviation = self._present(j)
        scale = self.scales["sums"]
        return ratio(float(self.values["sums"][j]), present, scale**2, deviation**2, 0.0, (-1.0, 1.0))

    def deviation(self, j: int) -> Estimate:
        """The standard deviation of what is present in the j-th numeric column, on [−1, 1].

        From s² = Q/n + ½ − (S/n)² + (σ_S/n)², Q = Σ(x² − ½), by the derivatives in Q, S and n. Not resolved
        where it is not told from 0.
        """
        present, spread = self._present(j)
        n = max(present, 1.0)
        m, q = (float(self.values[part][j]) / n for part in ("sums", "squares"))
        noise_s, noise_q = self.scales["sums"] / n, self.scales["squares"] / n
        square = q + 0.5 - m * m + noise_s**2
        variance = noise_q**2 + 4 * m * m * noise_s**2 + 2 * noise_s**4 + ((q - 2 * m * m) * spread / n) ** 2
        reach = Z * math.sqrt(variance)
        low, value, high = (math.sqrt(max(v, 0.0)) for v in (square - reach, square, square + reach))
        found = Estimate.within(value, low, high, (0.0, 1.0))
        return replace(found, resolved=found.resolved and low > 0)

    @cached_property
    def correlations(self) -> tuple[FloatArray, FloatArray]:
        """(r, deviations of its noise), a missing cell counted as the middle of its bounds; NaN where the
        variance of a column is not told from its noise. Derivatives of r in every noisy sum (D-1)."""
        d = len(self.layout.numeric)
        n, n_noise = max(self.total[0], 1.0), self.total[1] / max(self.total[0], 1.0)
        present = np.array([self._present(j)[0] for j in range(d)]) / n
        missing = np.array([self._missing_noise(j) for j in range(d)]) / n
        sigma = {part: self.scales.get(part, 0.0) / n for part in PARTS}
        m, q = self.values["sums"] / n, self.values["squares"] / n + 0.5 * present
        products = np.zeros((d, d))
        if d > 1:
            products[np.triu_indices(d, 1)] = self.values["pairs"] / n
        products += products.T
        v = q - m * m + sigma["sums"] ** 2
        v_by_n = q - 2 * m * m - 0.5
        v_noise = np.sqrt(
            sigma["squares"] ** 2
            + (2 * m * sigma["sums"]) ** 2
            + (missing / 2) ** 2
            + (v_by_n * n_noise) ** 2
        )
        v = np.where(v > _STEADY * v_noise, v, np.nan)
        roots = np.sqrt(np.outer(v, v))
        r = (products - np.outer(m, m)) / roots
        by_sum = (r * (m / v)[:, None]) - m[None, :] / roots  # of r_jk in S_j; its transpose in S_k
        by_square = r / (2 * v)[:, None]
        by_count = by_square * v_by_n[:, None]
        by_count = by_count + by_count.T - (products - 2 * np.outer(m, m)) / roots
        own = (by_sum * sigma["sums"]) ** 2 + by_square**2 * (
            sigma["squares"] ** 2 + (missing[:, None] / 2) ** 2
        )
        noise = np.sqrt(own + own.T + (sigma["pairs"] / roots) ** 2 + (by_count * n_noise) ** 2)
        np.fill_diagonal(r, 1.0)
        np.fill_diagonal(noise, 0.0)
        return r, noise

    def _present(self, j: int) -> tuple[float, float]:
        cells = self.cells[self.layout.numeric[j].name]
        return float(cells.present @ cells.counts), float(cells.deviation(cells.present))

    def _missing_noise(self, j: int) -> float:
        cells = self.cells[self.layout.numeric[j].name]
        return float(cells.deviation(cells.ones - cells.present))

    @cached_property
    def _numbers(self) -> dict[str, CellCounts]:
        """The cells of every numeric column as it was released."""
        sizes = [bins.size for bins in self.layout.bins]
        trees = _split(self.values.get("nodes"), [len(tree(size)) for size in sizes])
        return {
            column.name: CellCounts.of_tree(part, size, self.scales["nodes"])
            for column, size, part in zip(self.layout.numeric, sizes, trees, strict=True)
        }

    @cached_property
    def _levels(self) -> dict[str, LevelCounts]:
        """Those of every other column."""
        named = self.layout.categorical
        parts = _split(self.values.get("levels"), [len(column.levels) + 1 for column in named])
        return {
            column.name: LevelCounts.of_levels(part, self.scales["levels"])
            for column, part in zip(named, parts, strict=True)
        }


def _split(values: FloatArray | None, sizes: list[int]) -> list[FloatArray]:
    return [] if values is None else np.split(values, np.cumsum(sizes)[:-1])


def valid_correlations(r: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """A correlation matrix near r: in turn, negative eigenvalues become 0, entries return to [low, high]."""
    found = np.asarray(r)
    for _ in range(_TURNS):
        values, vectors = np.linalg.eigh(found)
        if values[0] >= -_NEGATIVE:
            break
        found = np.clip((vectors * np.maximum(values, 0.0)) @ vectors.T, low, high)
    values, vectors = np.linalg.eigh(found)
    near = (vectors * np.maximum(values, 0.0)) @ vectors.T
    size = np.sqrt(np.diag(near))
    return np.asarray(np.clip(near / np.outer(size, size), -1.0, 1.0))
