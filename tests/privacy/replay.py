"""Run a plan on a table, then on a neighbour with the SAME released values: how far did its queries move?

Every Gaussian release of the library goes through `Grid`, every released curvature through `noisy_curvature`.
The second run is handed what the first one released, so that all choices made from released numbers are the
same in both: what differs is what one record moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from curvedp import randomness
from curvedp.mechanisms import noise, recentered
from curvedp.rows.base import Rows


@dataclass
class Tape:
    """What was asked and released, in order."""

    queries: list[np.ndarray] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    released: list[np.ndarray] = field(default_factory=list)
    replaying: bool = False
    at: int = 0

    def take(self, query: np.ndarray, scale: float, draw: Any) -> np.ndarray:
        if not self.replaying:
            self.queries.append(np.array(query))
            self.scales.append(scale)
            self.released.append(np.array(draw()))
            return self.released[-1].copy()
        index, self.at = self.at, self.at + 1
        assert scale == self.scales[index], "a noise scale depends on the data"
        self.queries[index] = np.array(query) - self.queries[index]
        return self.released[index].copy()


@dataclass(frozen=True)
class Moved:
    """How far one record moved what was asked."""

    gaussian: float  # √Σ (‖Δq‖/σ)², to be at most the planned μ
    curvature: float  # the largest ‖ΔS‖ in units of its bound, to be at most 1; 0 where none was released
    rank: int  # of the change of the curvature


def moved_by(plan: Any, left: Rows, right: Rows, patch: pytest.MonkeyPatch, seed: int = 0) -> Moved:
    """Replay the plan on `right` with what it released on `left`."""
    tape, curvatures = Tape(), Tape()
    add, add_symmetric, noisy = noise.Grid.add, noise.Grid.add_symmetric, recentered.noisy_curvature

    def symmetric(grid: noise.Grid, value: np.ndarray, random: Any) -> np.ndarray:
        return tape.take((value + value.T) / 2, grid.sigma, lambda: add_symmetric(grid, value, random))

    def curvature(gram: np.ndarray, sigma2: float, m: float, random: Any) -> np.ndarray:
        return curvatures.take(gram, sigma2, lambda: noisy(gram, sigma2, m, random))

    patch.setattr(noise.Grid, "add", lambda g, v, r: tape.take(v, g.sigma, lambda: add(g, v, r)))
    patch.setattr(noise.Grid, "add_symmetric", symmetric)
    patch.setattr(recentered, "noisy_curvature", curvature)
    plan.release(left, randomness.generator(seed))
    tape.replaying = curvatures.replaying = True
    plan.release(right, randomness.generator(seed))
    patch.undo()
    assert tape.at == len(tape.released) and curvatures.at == len(curvatures.released)
    shifts = [np.linalg.norm(q) / s for q, s in zip(tape.queries, tape.scales, strict=True)]
    sizes, rank = [0.0], 0
    for change, sigma2 in zip(curvatures.queries, curvatures.scales, strict=True):
        bound2 = sigma2 / plan.parameters.sigma2
        eigenvalues = np.linalg.eigvalsh((change + change.T) / 2) / bound2
        sizes.append(float(np.abs(eigenvalues).max()))
        rank = max(rank, int(np.sum(np.abs(eigenvalues) > 1e-6)))
    return Moved(math.sqrt(math.fsum(s * s for s in shifts)), max(sizes), rank)
