"""Which attacks deserve the test: every pair on a small sample, the better third on a larger one, and again.

A sample is cut in three: scores learned on the first part, events chosen on the second, judged on the third.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from curvedp.arrays import FloatArray
from curvedp.audit import bounds, scores
from curvedp.audit.densities import Density
from curvedp.audit.fits import Bins
from curvedp.audit.pairs import Pair
from curvedp.audit.samplers import Batches, Sampler
from curvedp.audit.scores import LikelihoodRatio, Projection, Score, ScoreCells
from curvedp.losses import Loss
from curvedp.privacy.gaussian import epsilon_of

Counts = NDArray[np.int64]
DIRECTIONS = (("D' against D", 1, 0), ("D against D'", 0, 1))  # name, the side of P, the side of Q

_ROUNDS = 3
_LEAST, _MOST = 30, 30_000  # fits per side of a pair and round
_ROWS = 2**16  # outputs in memory
_PROJECTION_CELLS = 4096


@dataclass(frozen=True, eq=False)
class Candidate:
    """An attack: a pair, a score, and the cells in which its values are counted."""

    pair: Pair
    score: Score
    cells: ScoreCells | Bins
    sampler: Sampler

    @property
    def identity(self) -> str:
        """What tells this attack from any other."""
        edges = repr(self.cells) if isinstance(self.cells, Bins) else self.cells.edges.tobytes().hex()
        return f"{self.pair.name}; {self.score.name}; {hashlib.sha256(edges.encode()).hexdigest()[:16]}"

    def counts(self, side: int, n: int, seeds: Callable[[int], int]) -> Counts:
        """The histogram of the score over n fresh outputs; part i of them is seeded by seeds(i)."""
        if isinstance(self.cells, Bins):
            assert isinstance(self.score, Projection) and isinstance(self.sampler, Batches)
            return self.sampler.project(side, self.score.direction, self.cells, n, seeds(0))
        total = np.zeros(self.cells.count, dtype=np.int64)
        for part, start in enumerate(range(0, n, _ROWS)):
            outputs = self.sampler.sample(side, min(_ROWS, n - start), seeds(part))
            total += self.cells.histogram(self.score(outputs))
        return total


@dataclass(frozen=True, eq=False)
class Search:
    """The search for the best attacks on one plan."""

    targets: list[tuple[Pair, Sampler]]
    loss: Loss
    density: Density | None
    delta: float
    seed: Callable[..., int]
    spend: Callable[[int], bool]  # is told of the fits made; False when time is up

    def candidates(self, fits: int, keep: int) -> list[Candidate]:
        """The best attack on each of the `keep` best pairs; with few fits only the first pairs are tried."""
        alive = list(range(min(len(self.targets), max(keep, int(fits / (3 * _LEAST))))))
        ranked: list[tuple[float, int, Candidate]] = []
        for turn in range(_ROUNDS):
            size = int(np.clip(fits / (_ROUNDS * 2 * len(alive)), _LEAST, _MOST))
            fresh = []
            for index in alive:
                value, candidate = self._best(index, turn, size)
                fresh.append((value, -index, candidate))
                if not self.spend(2 * size):
                    break
            done = len(fresh) == len(alive)
            ranked = sorted(fresh if done or not ranked else ranked, key=lambda e: e[:2], reverse=True)
            if not done:
                break
            alive = [-index for _, index, _ in ranked][: max(keep, math.ceil(len(alive) / 3))]
        return [candidate for _, _, candidate in ranked[:keep]]

    def _best(self, index: int, turn: int, size: int) -> tuple[float, Candidate]:
        """The best score for one pair, and the ε at δ that it promises."""
        pair, source = self.targets[index]
        left, right = (source.sample(side, size, self.seed("pilot", turn, index, side)) for side in (0, 1))
        third = size // 3
        found = scores.learn(pair, left[:third], right[:third])
        if self.density is not None:
            found.append(LikelihoodRatio(self.density, pair, self.loss))
        best: tuple[float, Candidate] | None = None
        for score in found:
            values = score(left), score(right)
            pooled = np.concatenate([v[:third] for v in values])
            cells = ScoreCells.of(pooled)
            choose, judge = (
                [cells.histogram(v[part]) for v in values]
                for part in (slice(third, 2 * third), slice(2 * third, None))
            )
            promise = _promise(choose, judge, self.delta)
            if best is None or promise > best[0]:
                fused = isinstance(source, Batches) and isinstance(score, Projection)
                fused = fused and bool(np.isfinite(pooled).all())
                best = promise, Candidate(pair, score, uniform_bins(pooled) if fused else cells, source)
        assert best is not None
        return best


def _promise(choose: list[Counts], judge: list[Counts], delta: float) -> float:
    """The ε at δ to hope for: what the judged counts show already, or what a Gaussian mechanism of the same
    total variation distance would have, whichever is more (tails are out of reach of a small sample)."""
    promise = -math.inf
    for _, p, q in DIRECTIONS:
        by_epsilon, by_distance = bounds.best_events(choose[p], choose[q], 0.0, delta)
        shown = bounds.evidence(judge[p], judge[q], by_epsilon, 0.0, delta, alpha=0.1).epsilon
        distance = (judge[p][by_distance].sum() / judge[p].sum()) - (
            judge[q][by_distance].sum() / judge[q].sum()
        )
        mu = 2 * float(special.ndtri((1 + min(max(distance, 0.0), 1 - 1e-12)) / 2))
        promise = max(promise, shown, epsilon_of(max(delta, 1e-9), mu) if mu > 0 else -math.inf)
    return promise


def uniform_bins(values: FloatArray) -> Bins:
    """Equal cells over the pilot's scores and half their range beyond on both sides."""
    low, high = np.quantile(values, [0.001, 0.999])
    margin = 0.5 * (high - low) + 1e-12 * max(abs(low), abs(high), 1e-300)
    return Bins(float(low - margin), float(high + margin), _PROJECTION_CELLS)
