"""Run a plan on a table, then on a neighbour with the SAME released values: how far did its queries move?

Every Gaussian release of the library goes through `Grid`, every released curvature through `noisy_curvature`.
The second run is handed what the first one released, so that all choices made from released numbers are the
same in both: what differs is what one record moved.
"""

from __future__ import annotations

import copy
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
    """What was asked and released, in order, and how far a second run's questions are from the first's."""

    queries: list[np.ndarray] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    released: list[np.ndarray] = field(default_factory=list)
    changes: list[np.ndarray] = field(default_factory=list)
    replaying: bool = False

    def take(self, query: np.ndarray, scale: float, draw: Any) -> np.ndarray:
        if not self.replaying:
            self.queries.append(np.array(query))
            self.scales.append(scale)
            self.released.append(np.array(draw()))
            return self.released[-1].copy()
        index = len(self.changes)
        assert scale == self.scales[index], "a noise scale depends on the data"
        self.changes.append(np.array(query) - self.queries[index])
        return self.released[index].copy()


def replay(
    plan: Any, left: Rows, right: Rows, patch: pytest.MonkeyPatch, random: np.random.Generator
) -> tuple[Tape, Tape]:
    """Tapes of the Gaussian releases and of the released curvatures: on `left`, then again on `right`."""
    tape, curvatures, again = Tape(), Tape(), copy.deepcopy(random)
    add, add_symmetric, noisy = noise.Grid.add, noise.Grid.add_symmetric, recentered.noisy_curvature

    def symmetric(grid: noise.Grid, value: np.ndarray, random: Any) -> np.ndarray:
        return tape.take((value + value.T) / 2, grid.sigma, lambda: add_symmetric(grid, value, random))

    def curvature(gram: np.ndarray, sigma2: float, m: float, random: Any) -> np.ndarray:
        return curvatures.take(gram, sigma2, lambda: noisy(gram, sigma2, m, random))

    with patch.context() as patched:
        patched.setattr(noise.Grid, "add", lambda g, v, r: tape.take(v, g.sigma, lambda: add(g, v, r)))
        patched.setattr(noise.Grid, "add_symmetric", symmetric)
        patched.setattr(recentered, "noisy_curvature", curvature)
        plan.release(left, random)
        tape.replaying = curvatures.replaying = True
        plan.release(right, again)
    assert len(tape.changes) == len(tape.released) and len(curvatures.changes) == len(curvatures.released)
    return tape, curvatures


@dataclass(frozen=True)
class Moved:
    """How far one record moved what was asked."""

    gaussian: float  # √Σ (‖Δq‖/σ)², to be at most the planned μ
    curvature: float  # the largest ‖ΔS‖ in units of its bound, to be at most 1; 0 where none was released
    rank: int  # of the change of the curvature
    shifts: tuple[float, ...] = ()  # ‖Δq‖/σ of every Gaussian release, in order


def moved_by(plan: Any, left: Rows, right: Rows, patch: pytest.MonkeyPatch, seed: int = 0) -> Moved:
    """Replay the plan on `right` with what it released on `left`."""
    tape, curvatures = replay(plan, left, right, patch, randomness.generator(seed))
    shifts = [float(np.linalg.norm(q) / s) for q, s in zip(tape.changes, tape.scales, strict=True)]
    sizes, rank, parameters = [0.0], 0, getattr(getattr(plan, "walk", plan), "parameters", None)
    for change, sigma2 in zip(curvatures.changes, curvatures.scales, strict=True):
        bound2 = sigma2 / parameters.sigma2
        eigenvalues = np.linalg.eigvalsh((change + change.T) / 2) / bound2
        sizes.append(float(np.abs(eigenvalues).max()))
        rank = max(rank, int(np.sum(np.abs(eigenvalues) > 1e-6)))
    return Moved(math.sqrt(math.fsum(s * s for s in shifts)), max(sizes), rank, tuple(shifts))


def log_ratio(
    plan: Any, left: Rows, right: Rows, patch: pytest.MonkeyPatch, random: np.random.Generator, m: float
) -> float:
    """log p(released | left)/p(released | right) of all that a plan releases from `left`: the best test.

    Gaussian releases, isotropic in the norm of their query, and curvatures S = Σ x xᵀ + σ²(W − mI).
    """
    tape, curvatures = replay(plan, left, right, patch, random)
    total = 0.0
    for query, change, scale, value in zip(
        tape.queries, tape.changes, tape.scales, tape.released, strict=True
    ):
        total += float(np.sum(change * (change - 2.0 * (value - query)))) / (2.0 * scale**2)
    for query, change, sigma2, value in zip(
        curvatures.queries, curvatures.changes, curvatures.scales, curvatures.released, strict=True
    ):
        d = len(value)
        W = [(value - gram) / sigma2 + m * np.eye(d) for gram in (query, query + change)]
        signs, logs = zip(*(np.linalg.slogdet(w) for w in W), strict=True)
        if min(signs) <= 0:
            return math.inf
        total += (m - d - 1) / 2 * (logs[0] - logs[1]) - np.trace(W[0] - W[1]) / 2
    return total
