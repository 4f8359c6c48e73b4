"""Scores of a classifier: confusion, ROC, precision, calibration, Brier score, log-loss (V-1), (V-2).

One charge, Gaussian parts of fixed shares: rounds that find cells of equal mass, counts by class and cell,
the confusion matrix, and means of clipped losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.scores.class_results import class_scores
from curvedp.scores.means import Mean, Window, release_means
from curvedp.scores.noisy import Noisy, Part, Releases, Split, cell, refuse_few
from curvedp.scores.plan import ScorePlan
from curvedp.scores.ranking import Ranking
from curvedp.scores.results import Findings, GroupScores
from curvedp.scores.sketch import Tail, at_levels, equal_mass, find_tail
from curvedp.scores.source import FARTHEST, ScoredRecords, ScoreLayout

ROUNDS, COARSE, CELLS = 3, 32, 16
_AWAY = np.array([0.12, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, FARTHEST])
START = np.concatenate([-_AWAY[::-1], [0.0], _AWAY])  # of the logit, before anything is known

# Shares of μ²: of the rounds, and of what is released of every group; of squares, for the variance, less.
SKETCH = 0.09
COUNTED = {"cells": 0.22, "confusion": 0.16}
MEANS = {"auc": (0.29, 0.03), "brier": (0.07, 0.01), "log loss": (0.09, 0.01)}
POSITION = 0.03  # where in its cell a probability lies: for the whole alone
WITHOUT = 1.3  # times as much for the others where no probability is predicted
LEVELS = 0.4  # of the whole, where levels are compared


@dataclass(frozen=True, eq=False)
class ClassScorePlan(ScorePlan):
    """Calibrated noise for every part; see `class_score_plan`."""

    mechanism = "scores of classes"

    def enough(self, rows: int) -> None:
        """Refuse so few rows that nothing could be said of them: fewer than three deviations of a count."""
        sigma = self.split.count_grid("confusion").sigma
        refuse_few(rows, 3.0 * sigma * len(self.layout.classes))

    def release(self, records: ScoredRecords, random: np.random.Generator) -> Findings:
        releases = Releases(self.split, random)
        edges = [self._sketch(releases, records, c) for c in range(len(self.layout.scored))]
        everybody = np.zeros(len(records.target), dtype=np.intp)
        overall = self._groups(releases, records, edges, everybody, 1, "")[0]
        if not self.layout.levels:
            return Findings(overall)
        levels = self.layout.levels
        found = self._groups(releases, records, edges, records.level, len(levels), "level ")
        return Findings(overall, dict(zip(levels, found, strict=True)))

    def _sketch(self, releases: Releases, records: ScoredRecords, c: int) -> FloatArray:
        """Edges of cells of about equal mass of a score."""
        edges = START
        for t in range(ROUNDS):
            counts = releases.counts(f"round {t} of {c}", cell(records.score[:, c], edges)).value
            edges = at_levels(edges, counts, equal_mass(COARSE if t < ROUNDS - 1 else CELLS))
        return edges

    def _groups(
        self,
        releases: Releases,
        records: ScoredRecords,
        edges: list[FloatArray],
        group: NDArray[np.intp],
        n_groups: int,
        prefix: str,
    ) -> list[GroupScores]:
        K, own = len(self.layout.classes), records.target.astype(np.intp)
        pairs = np.where(group >= 0, (group * K + own) * K + records.predicted, -1)
        confusion = releases.counts(f"{prefix}confusion", pairs)
        rankings = [
            self._ranking(releases, records, edges[c], group, n_groups, f"{prefix}cells of {c}", c)
            for c in range(len(self.layout.scored))
        ]
        ranked = [
            self._ranked(releases, records, rankings[c], group, f"{prefix}auc of {c}", c)
            for c in range(len(self.layout.scored))
        ]
        losses: dict[str, list[Mean]] = {}
        position: Noisy | None = None
        if self.layout.probabilities:
            for column, name in enumerate(("brier", "log loss")):
                tails = [_loss_tail([r[g] for r in rankings], name, K) for g in range(n_groups)]
                values = np.zeros(len(group))
                for g, (tail, _) in enumerate(tails):
                    mine = group == g
                    values[mine] = tail.values(records.loss[mine, column])
                windows = [Window.to(tail.mean, mean) for tail, mean in tails]
                losses[name] = release_means(releases, prefix + name, values, windows, group)
            if not prefix:
                position = self._positions(releases, records, edges)
        found = []
        for g in range(n_groups):
            counts = confusion.value.reshape(n_groups, K, K)[g]
            found.append(
                class_scores(
                    self.layout,
                    Noisy(counts, confusion.sigma),
                    [r[g] for r in rankings],
                    [r[g] for r in ranked],
                    {name: means[g] for name, means in losses.items()},
                    position,
                )
            )
        return found

    def _ranking(
        self,
        releases: Releases,
        records: ScoredRecords,
        edges: FloatArray,
        group: NDArray[np.intp],
        n_groups: int,
        name: str,
        c: int,
    ) -> list[Ranking]:
        """Noisy counts by group, class (the scored one or another) and cell."""
        positive = records.target == self.layout.scored[c]
        cells = (group * 2 + positive) * CELLS + cell(records.score[:, c], edges)
        noisy = releases.counts(name, np.where(group >= 0, cells, -1))
        table = noisy.value.reshape(n_groups, 2, CELLS)
        return [Ranking(edges, table[g, 0], table[g, 1], noisy.sigma) for g in range(n_groups)]

    def _ranked(
        self,
        releases: Releases,
        records: ScoredRecords,
        rankings: list[Ranking],
        group: NDArray[np.intp],
        name: str,
        c: int,
    ) -> list[tuple[Mean, Mean]]:
        """Mean losses of negatives and positives in every group."""
        positive = records.target == self.layout.scored[c]
        windows = [window for ranking in rankings for window in ranking.windows()]
        losses = np.zeros(len(positive))
        for g, ranking in enumerate(rankings):
            mine = group == g
            losses[mine] = ranking.losses(records.score[mine, c], positive[mine])
        block = np.where(group >= 0, 2 * group + positive, -1)
        means = release_means(releases, name, losses, windows, block)
        return [(means[2 * g], means[2 * g + 1]) for g in range(len(rankings))]

    def _positions(self, releases: Releases, records: ScoredRecords, edges: list[FloatArray]) -> Noisy:
        """Σ of where in its cell a probability lies, from 0 to 1, by scored class and cell."""
        values, sigma = [], 0.0
        for c, own in enumerate(edges):
            inside = cell(records.score[:, c], own)
            low, width = expit(own[:-1]), np.maximum(np.diff(expit(own)), 1e-300)
            where = (expit(records.score[:, c]) - low[inside]) / width[inside]
            noisy = releases.sums(f"position of {c}", where, 0.0, 1.0, inside)
            values.append(noisy.value)
            sigma = noisy.sigma
        return Noisy(np.array(values), sigma)


def class_score_plan(layout: ScoreLayout, budget: Budget) -> ClassScorePlan:
    """The plan of all scores of a classifier under one (ε, δ), from public facts alone."""
    whole = 1.0 - (LEVELS if layout.levels else 0.0)
    C, more = len(layout.scored), 1.0 if layout.probabilities else WITHOUT
    parts: dict[str, Part] = {}
    for c in range(C):
        for t in range(ROUNDS):
            parts[f"round {t} of {c}"] = Part(COARSE, whole * SKETCH / (ROUNDS * C))
        if layout.probabilities:
            parts[f"position of {c}"] = Part(CELLS, whole * POSITION / C)
    parts |= _group_parts(layout, "", 1, whole * more)
    if layout.levels:
        parts |= _group_parts(layout, "level ", len(layout.levels), LEVELS * more)
    return ClassScorePlan(layout, budget, Split.of(parts, budget, layout.neighbours))


def _group_parts(layout: ScoreLayout, prefix: str, groups: int, whole: float) -> dict[str, Part]:
    """What is released of `groups` groups at a time, with `whole` of the budget."""
    C, parts = len(layout.scored), {}
    parts[f"{prefix}confusion"] = Part(groups * len(layout.classes) ** 2, whole * COUNTED["confusion"])
    for c in range(C):
        parts[f"{prefix}cells of {c}"] = Part(groups * 2 * CELLS, whole * COUNTED["cells"] / C)
    names = [(f"auc of {c}", "auc", 2 * groups, C) for c in range(C)]
    if layout.probabilities:
        names += [(name, name, groups, 1) for name in ("brier", "log loss")]
    for name, kind, dim, each in names:
        first, second = MEANS[kind]
        parts[prefix + name] = Part(dim, whole * first / each)
        parts[f"{prefix}{name} squares"] = Part(dim, whole * second / each)
    return parts


def _loss_tail(rankings: list[Ranking], name: str, classes: int) -> tuple[Tail, float]:
    """Where to clip a loss, and a first guess of its mean, from the cells of each record's own logit.

    The logarithmic loss has no bound of its own; the squared one is at most 1, or 2 with more classes.
    """
    cells = [(r.edges, r.positives) for r in rankings]
    if classes == 2:
        cells.append((-rankings[0].edges[::-1], rankings[0].negatives[::-1]))
    logits = [np.clip(edges, edges[1], edges[-2]) for edges, _ in cells]
    middle = np.concatenate([_loss(name, classes, 0.5 * (inner[1:] + inner[:-1])) for inner in logits])
    counts = np.concatenate([counts for _, counts in cells])
    tail = Tail(float(min(classes, 3) - 1), 0.0)
    if name == "log loss":
        worst = np.concatenate([_loss(name, classes, edges[:-1]) for edges, _ in cells])
        order = np.argsort(worst, kind="stable")
        tail = find_tail(worst[order], counts[order], rankings[0].sigma, 8.0).heavier(3.0, FARTHEST)
        # Wrong records that the noise hides lose as much as the model was sure: about |logit|.
        tail = tail.beyond(max(float(np.abs(inner).max()) for inner in logits), FARTHEST)
    mean = float(counts @ middle) / max(float(counts.sum()), 1.0)
    return tail, mean


def _loss(name: str, classes: int, logit: FloatArray) -> FloatArray:
    """The loss of a record by the logit of its own class; with more classes, the squared one at most."""
    if name == "log loss":
        return np.logaddexp(0.0, -logit)
    return np.asarray((1.0 if classes == 2 else 2.0) * expit(-logit) ** 2)
