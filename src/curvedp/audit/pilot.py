"""Which attacks deserve the test: every pair on a small sample, the better third on a larger one, and again.

Where the likelihood ratio L of everything released is known, pairs are ranked by what it reaches. Scores of
what leaves are learned on the first third of a sample, events chosen on the second, judged on the third.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from curvedp.audit import bounds, scores
from curvedp.audit.densities import Density
from curvedp.audit.power import reach
from curvedp.audit.samplers import Batches
from curvedp.audit.scores import LikelihoodRatio, Projection, Score, ScoreCells
from curvedp.audit.state import Counts, Sample, State
from curvedp.audit.views import Candidate, Target, View, uniform_bins
from curvedp.losses import Loss
from curvedp.privacy.gaussian import epsilon_of

DIRECTIONS = (("D' against D", 1, 0), ("D against D'", 0, 1))  # name, the side of P, the side of Q

_ROUNDS = 3
_LEAST, _MOST = 30, 30_000  # fits per side of a pair and round
_BLOCK, _SLOW_BLOCK = 2**13, 5  # fits between two looks at the clock
_PLAIN = 0.8  # of the best promise is enough for a projection, whose fits need not be stored


@dataclass(frozen=True, eq=False)
class Search:
    """The search for the best attacks on one plan."""

    targets: list[Target]
    loss: Loss
    density: Density | None
    delta: float
    seed: Callable[..., int]
    spend: Callable[[int], bool]  # is told of the fits made; False when the pilot's time is up
    state: State

    def candidates(self, fits: int, keep: int) -> list[Candidate] | None:
        """The best attack on each of the `keep` best pairs; with few fits only the first pairs are tried.

        None when time is up and the state can be resumed: what is chosen must not depend on the clock then.
        """
        alive = list(range(min(len(self.targets), max(keep, int(fits / (3 * _LEAST))))))
        ranked: list[tuple[float, int, int]] = []  # promise, -pair, turn
        for turn in range(_ROUNDS):
            size = int(np.clip(fits / (_ROUNDS * 2 * len(alive)), _LEAST, _MOST))
            fresh = []
            for index in alive:
                if not self._drawn(turn, index, size):
                    break
                if (turn, index) not in self.state.promises:
                    self.state.promises[turn, index] = self._promised(turn, index)
                fresh.append((self.state.promises[turn, index], -index, turn))
            done = len(fresh) == len(alive)
            if not done and self.state.resumable:
                return None
            ranked = sorted(fresh if done or not ranked else ranked, reverse=True)
            if not done:
                break
            alive = [-index for _, index, _ in ranked][: max(keep, math.ceil(len(alive) / 3))]
            kept = set(alive[:keep] if turn == _ROUNDS - 1 else alive)
            self.state.samples = {
                at: sample
                for at, sample in self.state.samples.items()
                if at[0] > turn or (at[0] == turn and at[1] in kept)
            }
        return [self._candidate(turn, -index) for _, index, turn in ranked[:keep]]

    def _drawn(self, turn: int, index: int, size: int) -> bool:
        """Whether the state has a promise, or `size` draws of both tables; it gets them until time is up."""
        if (turn, index) in self.state.promises:
            return True
        target, samples = self.targets[index], self.state.samples
        block = _SLOW_BLOCK if target.slow else _BLOCK
        for start in range(0, size, block):
            for side in (0, 1):
                known = samples.get((turn, index, side))
                if known is not None and len(known) > start:
                    continue
                n = min(block, size - start)
                if not self.spend(0):
                    return False
                fresh = target.draw(side, n, self.seed("pilot", turn, index, side, start))
                samples[turn, index, side] = fresh if known is None else Sample.join([known, fresh])
                self.state.pilot_fits += n
                self.spend(n)
                self.state.save()
        return True

    def _promised(self, turn: int, index: int) -> float:
        """The ε at δ that the draws of one pair promise."""
        sides = self._sides(turn, index)
        return self._reached(sides) if sides[0].ratio is not None else self._leaves(index, sides)[0]

    def _candidate(self, turn: int, index: int) -> Candidate:
        """One pair, with what is to be counted of its fits."""
        sides = self._sides(turn, index)
        promise, leaves = self._leaves(index, sides)
        ratios = [side.ratio for side in sides if side.ratio is not None]
        if not ratios:
            return Candidate(self.targets[index], (leaves,), promise)
        everything = View("everything released", None, uniform_bins(np.concatenate(ratios)))
        return Candidate(self.targets[index], (everything, leaves), self._reached(sides))

    def _sides(self, turn: int, index: int) -> list[Sample]:
        return [self.state.samples[turn, index, side] for side in (0, 1)]

    def _reached(self, sides: list[Sample]) -> float:
        left, right = (side.ratio for side in sides)
        assert left is not None and right is not None
        return max(reach(right, self.delta), reach(-left, self.delta))

    def _leaves(self, index: int, sides: list[Sample]) -> tuple[float, View]:
        """The best score of what leaves, and the ε at δ that it promises."""
        target = self.targets[index]
        left, right = (side.theta for side in sides)
        third = len(left) // 3
        found: list[Score]
        if self.density is None:
            found = scores.learn(target.pair, left[:third], right[:third])
        else:  # nothing is better
            found = [LikelihoodRatio(self.density, target.pair, self.loss)]
        judged: list[tuple[float, Score, ScoreCells]] = []
        for score in found:
            values = score(left), score(right)
            cells = ScoreCells.of(np.concatenate([v[:third] for v in values]))
            choose, judge = (
                [cells.histogram(v[part]) for v in values]
                for part in (slice(third, 2 * third), slice(2 * third, None))
            )
            if isinstance(score, LikelihoodRatio):
                promise = max(reach(values[1], self.delta), reach(-values[0], self.delta))
            else:
                promise = promised(choose, judge, self.delta)
            judged.append((promise, score, cells))
        best = max(judged, key=lambda j: j[0])
        fused = target.accounted is not None or isinstance(target.outputs, Batches)
        plain = [j for j in judged if isinstance(j[1], Projection) and j[0] >= _PLAIN * best[0]]
        if fused and plain:
            promise, score, _ = max(plain, key=lambda j: j[0])
            pooled = np.concatenate([score(side)[:third] for side in (left, right)])
            if np.isfinite(pooled).all():
                return promise, View("what leaves", score, uniform_bins(pooled))
        return best[0], View("what leaves", best[1], best[2])


def promised(choose: Sequence[Counts], judge: Sequence[Counts], delta: float) -> float:
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
