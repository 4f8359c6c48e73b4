"""An attack in the making: a pair, where its fits come from, and what is counted of each of them.

Two things can be seen of a fit: everything released on the way, through L = log p₁ − log p₀, better than
which no test can be; and what leaves, θ, through a score that was learned. Both are counted in the same fits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.audit.accounted import Accounted, accounted
from curvedp.audit.fits import Backend, Bins
from curvedp.audit.pairs import Pair
from curvedp.audit.replayed import Replayed
from curvedp.audit.report import Sees
from curvedp.audit.samplers import Batches, Releases, Sampler, sampler
from curvedp.audit.scores import LikelihoodRatio, Projection, Score, ScoreCells
from curvedp.audit.state import Counts, Sample
from curvedp.plans import Plan

_ROWS = 2**16  # outputs in memory
_CELLS = 4096


@dataclass(frozen=True, eq=False)
class Target:
    """A pair and its fits."""

    pair: Pair
    outputs: Sampler | None
    accounted: Accounted | None

    @classmethod
    def of(cls, plan: Plan[Any, Any], pair: Pair, engine: Backend) -> Target:
        """The best way to fits of this plan: with L where it is known, or the fastest one."""
        found = accounted(plan, pair, engine)
        return cls(pair, sampler(plan, pair, engine) if found is None else None, found)

    @property
    def slow(self) -> bool:
        """Whether fits are released one at a time."""
        return isinstance(self.accounted or self.outputs, Releases | Replayed)

    def draw(self, side: int, n: int, seed: int) -> Sample:
        if self.accounted is not None:
            drawn = self.accounted.draw(side, n, seed)
            return Sample(drawn.theta, drawn.ratio)
        assert self.outputs is not None
        return Sample(self.outputs.sample(side, n, seed))


@dataclass(frozen=True, eq=False)
class View:
    """What is counted of a fit: its score (None: L) in cells."""

    sees: Sees
    score: Score | None
    cells: ScoreCells | Bins

    @property
    def name(self) -> str:
        return "likelihood ratio" if self.score is None else self.score.name

    @property
    def optimal(self) -> bool:
        """Whether no other score of what it sees is better."""
        return self.score is None or isinstance(self.score, LikelihoodRatio)

    def values(self, sample: Sample) -> FloatArray:
        if self.score is not None:
            return self.score(sample.theta)
        assert sample.ratio is not None
        return sample.ratio

    def histogram(self, sample: Sample) -> Counts:
        values = self.values(sample)
        if isinstance(self.cells, Bins):
            return np.bincount(self.cells.index(values), minlength=self.cells.count)
        return self.cells.histogram(values)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A target with its views; `reach` is about the ε at δ that it would prove with endless fits."""

    target: Target
    views: tuple[View, ...]
    reach: float

    @property
    def identity(self) -> str:
        """What tells this attack from any other."""
        parts = [self.target.pair.name]
        for view in self.views:
            cells = view.cells
            edges = repr(cells) if isinstance(cells, Bins) else cells.edges.tobytes().hex()
            parts += [view.name, hashlib.sha256(edges.encode()).hexdigest()[:16]]
        return "; ".join(parts)

    def counts(self, side: int, n: int, seeds: Callable[[int], int]) -> list[Counts]:
        """The histogram of each view over n fresh fits; part i of them is seeded by seeds(i)."""
        fused = self._fused(side, n, seeds(0))
        if fused is not None:
            return fused
        total = [np.zeros(view.cells.count, dtype=np.int64) for view in self.views]
        for part, start in enumerate(range(0, n, _ROWS)):
            sample = self.target.draw(side, min(_ROWS, n - start), seeds(part))
            total = [count + view.histogram(sample) for count, view in zip(total, self.views, strict=True)]
        return total

    def _fused(self, side: int, n: int, seed: int) -> list[Counts] | None:
        """Counts of a projection, and of L, over fits that are never stored; None for another score."""
        *rest, last = self.views
        if not (isinstance(last.score, Projection) and isinstance(last.cells, Bins)):
            return None
        direction = last.score.direction
        if self.target.accounted is None:
            source = self.target.outputs
            return (
                [source.project(side, direction, last.cells, n, seed)]
                if isinstance(source, Batches)
                else None
            )
        if len(rest) != 1 or not isinstance(rest[0].cells, Bins):
            return None
        return [*self.target.accounted.count(side, direction, rest[0].cells, last.cells, n, seed)]


def uniform_bins(values: FloatArray) -> Bins:
    """Equal cells over the finite pilot values and half their range beyond on both sides."""
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.001, 0.999]) if len(finite) else (-1.0, 1.0)
    margin = 0.5 * (high - low) + 1e-12 * max(abs(low), abs(high), 1e-300)
    return Bins(float(low - margin), float(high + margin), _CELLS)
