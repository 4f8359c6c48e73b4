"""Scores of a classifier: confusion, ROC, precision, calibration, Brier score, log-loss (V-1), (V-2).

One charge, Gaussian parts: rounds that find cells of equal mass, counts by class and cell, the confusion
matrix, and means of clipped losses. What follows from them is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from curvedp.analyses.explore.noisy import ENOUGH, Noisy, Releases, Z, ratio_ends
from curvedp.analyses.scores.means import (
    Curve,
    Findings,
    Groups,
    GroupScores,
    Mean,
    Ranking,
    Score,
    ScorePlan,
    Tail,
    Window,
    at_levels,
    cell,
    equal_mass,
    find_tail,
    precision_recall,
    release_means,
    roc,
    scored,
)
from curvedp.analyses.scores.source import FARTHEST, ScoredRecords
from curvedp.arrays import FloatArray

ROUNDS, COARSE, CELLS = 3, 32, 16
_AWAY = np.array([0.12, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, FARTHEST])
START = np.concatenate([-_AWAY[::-1], [0.0], _AWAY])  # of the logit, before anything is known
LOSSES = {"brier": (0.07, 0.01), "log loss": (0.09, 0.01)}  # with the prices of the mean and of its squares
BY_LEVEL = 2 / 3  # of the price for all records


class ClassScorePlan(ScorePlan):
    """Calibrated noise for every part."""

    mechanism = "scores of classes"

    @property
    def fewest_rows(self) -> float:
        """Three deviations of the sum of the confusion matrix."""
        sigma = self.split.grid("confusion", self.layout.neighbours.histogram_factor).sigma
        return ENOUGH * sigma * len(self.layout.classes)

    @classmethod
    def findings(cls, records: ScoredRecords, releases: Releases) -> Findings:
        run = _Run(records, releases)
        edges = [run.edges(c) for c in range(len(records.layout.scored))]
        return scored(records, lambda groups: run.scores(groups, edges), BY_LEVEL)


@dataclass(frozen=True, eq=False)
class _Run:
    """One release; a class c that has scores of its own is counted among those."""

    records: ScoredRecords
    releases: Releases

    def edges(self, c: int) -> FloatArray:
        """Of cells of about equal mass of a score."""
        edges, of = START, len(self.records.layout.scored)
        for t in range(ROUNDS):
            position, price = cell(self.records.score[:, c], edges), 0.09 / (ROUNDS * of)
            counts = self.releases.counts(f"round {t} of {c}", position, COARSE, price).value
            edges = at_levels(edges, counts, equal_mass(COARSE if t < ROUNDS - 1 else CELLS))
        return edges

    def scores(self, groups: Groups, edges: list[FloatArray]) -> list[GroupScores]:
        """Of every group, from what is released of all of them together."""
        layout, K = self.records.layout, len(self.records.layout.classes)
        own = self.records.target.astype(np.intp)
        pairs = np.where(groups.of >= 0, (groups.of * K + own) * K + self.records.predicted, -1)
        name, size = f"{groups.prefix}confusion", groups.size * K * K
        confusion = self.releases.counts(name, pairs, size, 0.16 * groups.share)
        rankings = [self._rankings(groups, edges[c], c) for c in range(len(edges))]
        ranked = [self._ranked(groups, rankings[c], c) for c in range(len(edges))]
        losses: dict[str, list[Mean]] = {}
        positions: list[Noisy[FloatArray]] | None = None
        if layout.probabilities:
            losses = {name: self._losses(groups, rankings, name) for name in LOSSES}
            if not groups.prefix:
                positions = [self._positions(edges[c], c) for c in range(len(edges))]
        return [
            GroupScores(
                Score.of(Noisy(float(table.sum()), table.size * confusion.noise), 0.0),
                self._told(
                    Noisy(table, confusion.noise),
                    [r[g] for r in rankings],
                    [r[g] for r in ranked],
                    {name: means[g] for name, means in losses.items()},
                ),
                tuple(tuple(map(float, row)) for row in table),
                self._curves([r[g] for r in rankings], positions),
            )
            for g, table in enumerate(confusion.value.reshape(groups.size, K, K))
        ]

    def _rankings(self, groups: Groups, edges: FloatArray, c: int) -> list[Ranking]:
        """Noisy counts by group, class (the scored one or another) and cell."""
        cells = (groups.of * 2 + self._is_positive(c)) * CELLS + cell(self.records.score[:, c], edges)
        noisy = self.releases.counts(
            f"{groups.prefix}cells of {c}",
            np.where(groups.of >= 0, cells, -1),
            groups.size * 2 * CELLS,
            0.22 * groups.share / len(self.records.layout.scored),
        )
        tables = noisy.value.reshape(groups.size, 2, CELLS)
        return [Ranking(edges, negatives, positives, noisy.sigma) for negatives, positives in tables]

    def _ranked(self, groups: Groups, rankings: list[Ranking], c: int) -> list[tuple[Mean, Mean]]:
        """Mean losses of negatives and positives in every group."""
        positive, of = self._is_positive(c), len(self.records.layout.scored)
        losses = np.zeros(len(positive))
        for g, ranking in enumerate(rankings):
            mine = groups.of == g
            losses[mine] = ranking.losses(self.records.score[mine, c], positive[mine])
        means = release_means(
            self.releases,
            f"{groups.prefix}auc of {c}",
            losses,
            [window for ranking in rankings for window in ranking.windows()],
            np.where(groups.of >= 0, 2 * groups.of + positive, -1),
            0.29 * groups.share / of,
            0.03 * groups.share / of,
        )
        return list(zip(means[::2], means[1::2], strict=True))

    def _losses(self, groups: Groups, rankings: list[list[Ranking]], name: str) -> list[Mean]:
        """The mean loss of probabilities in every group."""
        exact = self.records.loss[:, list(LOSSES).index(name)]
        values, windows = np.zeros(len(exact)), []
        for g in range(groups.size):
            tail, mean = _loss_tail([r[g] for r in rankings], name, len(self.records.layout.classes))
            values[groups.of == g] = tail.values(exact[groups.of == g])
            windows.append(Window.to(tail.mean, mean))
        prices = (groups.share * price for price in LOSSES[name])
        return release_means(self.releases, groups.prefix + name, values, windows, groups.of, *prices)

    def _positions(self, edges: FloatArray, c: int) -> Noisy[FloatArray]:
        """Σ of where in its cell a probability lies, from 0 to 1, by cell; for all records alone."""
        inside = cell(self.records.score[:, c], edges)
        low, width = expit(edges[:-1]), np.maximum(np.diff(expit(edges)), 1e-300)
        where = (expit(self.records.score[:, c]) - low[inside]) / width[inside]
        price = 0.03 / len(self.records.layout.scored)
        return self.releases.sums(f"position of {c}", where, (0.0, 1.0), inside, CELLS, price)

    def _is_positive(self, c: int) -> np.ndarray:
        return np.asarray(self.records.target == self.records.layout.scored[c])

    def _told(
        self,
        confusion: Noisy[FloatArray],
        rankings: list[Ranking],
        ranked: list[tuple[Mean, Mean]],
        losses: dict[str, Mean],
    ) -> dict[str, Score]:
        """Every score of a group, by name."""
        layout, table, sigma = self.records.layout, confusion.value, confusion.sigma
        K, total = len(layout.classes), float(table.sum())
        scores = {"accuracy": share(float(np.trace(table)), K, total, K * K, sigma)}
        aucs: list[Score] = []
        for ranking, means, own in zip(rankings, ranked, layout.scored, strict=True):
            positives = Noisy(float(table[own].sum()), K * confusion.noise)
            negatives = Noisy(total - positives.value, K * (K - 1) * confusion.noise)
            known = negatives.tells and positives.tells
            found = ranking.auc(means, (negatives, positives)) if known else None
            aucs.append(Score.unknown(0.0, 1.0) if found is None else Score.of(found, 0.0, 1.0))
        scores["auc"] = _average(aucs)
        if len(aucs) > 1:
            scores |= {f"auc of {layout.classes[k]}": s for k, s in zip(layout.scored, aucs, strict=True)}
        count = Noisy(total, K * K * confusion.noise)
        for name, mean in losses.items():
            told = Score.of(mean.of(count), 0.0) if count.tells else Score.unknown(0.0)
            scores[name.replace(" ", "_")] = told
        for k, label in enumerate(layout.classes):
            found_of, predicted = float(table[k].sum()), float(table[:, k].sum())
            scores[f"recall of {label}"] = share(table[k, k], 1, found_of, K, sigma)
            scores[f"precision of {label}"] = share(table[k, k], 1, predicted, K, sigma)
            scores[f"predicted {label}"] = share(predicted, K, total, K * K, sigma)
        return scores

    def _curves(self, rankings: list[Ranking], positions: list[Noisy[FloatArray]] | None) -> dict[str, Curve]:
        layout, curves = self.records.layout, {}
        for c, ranking in enumerate(rankings):
            name = "" if len(rankings) == 1 else f" of {layout.classes[layout.scored[c]]}"
            curves[f"roc{name}"] = roc(ranking)
            curves[f"precision recall{name}"] = precision_recall(ranking)
            if layout.probabilities:
                where = None if positions is None else positions[c]
                curves[f"calibration{name}"] = Curve.through(_calibration(ranking, where))
        return curves


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
    return tail, float(counts @ middle) / max(float(counts.sum()), 1.0)


def _loss(name: str, classes: int, logit: FloatArray) -> FloatArray:
    """The loss of a record by the logit of its own class; with more classes, the squared one at most."""
    if name == "log loss":
        return np.logaddexp(0.0, -logit)
    return np.asarray((1.0 if classes == 2 else 2.0) * expit(-logit) ** 2)


def share(part: float, cells: int, whole: float, of: int, sigma: float) -> Score:
    """part/whole of noisy counts: sums of `cells` cells, among `of`; sampled as a binomial share."""
    if whole <= ENOUGH * sigma * math.sqrt(of):
        return Score.unknown(0.0, 1.0)
    p = part / whole
    noise = sigma**2 * (cells * (1.0 - p) ** 2 + (of - cells) * p**2) / whole**2
    inside = min(max(p, 0.0), 1.0)
    return Score.of(Noisy(p, noise, inside * (1.0 - inside) / whole), 0.0, 1.0)


def _average(scores: list[Score]) -> Score:
    """The mean over classes; deviations are averaged, which covers any correlation of the samples."""
    if len(scores) == 1:
        return scores[0]
    if not all(score.is_known for score in scores):
        return Score.unknown(0.0, 1.0)
    value, sampling = (float(np.mean([getattr(s, n) for s in scores])) for n in ("value", "sampling"))
    noise = float(np.sum([s.noise**2 for s in scores])) / len(scores) ** 2  # of each class its own
    return Score.of(Noisy(value, noise, sampling**2), 0.0, 1.0)


def _calibration(ranking: Ranking, where: Noisy[FloatArray] | None) -> list[tuple[float, Score]]:
    """(mean probability, share of the class) of each cell; without a mean, the middle of the cell.

    The interval holds the share of the cell, and x plus how far that share is off the true mean probability:
    a point is read against the diagonal, so that an error of x counts in y.
    """
    edges, points, variance = expit(ranking.edges), [], ranking.sigma**2
    for i, (negatives, positives) in enumerate(zip(ranking.negatives, ranking.positives, strict=True)):
        part, n, width = float(positives), float(negatives + positives), float(edges[i + 1] - edges[i])
        if n <= ENOUGH * ranking.sigma * math.sqrt(2.0):
            continue
        terms = (variance, n - 2.0 * variance, 2.0 * variance - n)
        low, high = map(float, ratio_ends(part, n, terms, Z, (0.0, 1.0)))
        inside = 0.5
        if where is None:
            low, high = low - 0.5 * width, high + 0.5 * width
        else:
            inside = min(max(float(where.value[i]) / n, 0.0), 1.0)
            p = min(max(0.5, low), high)  # the share at which chance is largest
            known = variance + width**2 * where.noise + n * p * (1.0 - p)
            terms = (known, -2.0 * variance, 2.0 * variance)
            off = ratio_ends(part - width * float(where.value[i]), n, terms, Z, (-1.0, 1.0))
            low, high = min(low, float(off[0]) + width * inside), max(high, float(off[1]) + width * inside)
        y, x = min(max(part / n, 0.0), 1.0), float(edges[i] + inside * width)
        points.append((x, Score(y, min(max(low, 0.0), y), max(min(high, 1.0), y))))
    return points
