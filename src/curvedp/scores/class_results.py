"""From the released counts and means of one group of records to its scores; free, as all post-processing."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from curvedp.scores.bands import precision_recall, ratio, roc
from curvedp.scores.means import Estimate, Mean
from curvedp.scores.noisy import Noisy
from curvedp.scores.ranking import Ranking
from curvedp.scores.results import Z95, Curve, GroupScores, Score
from curvedp.scores.source import ScoreLayout

_ENOUGH = 3.0  # times its noise: a count below it tells nothing


def class_scores(
    layout: ScoreLayout,
    confusion: Noisy,
    rankings: list[Ranking],
    ranked: list[tuple[Mean, Mean]],
    losses: dict[str, Mean],
    position: Noisy | None,
) -> GroupScores:
    """Every score of a group, by name."""
    table, sigma = confusion.value, confusion.sigma
    K = len(layout.classes)
    count = Estimate(float(table.sum()), K * K * sigma**2)
    scores = {"accuracy": share(float(np.trace(table)), K, count.value, K * K, sigma)}
    aucs: list[Score] = []
    for ranking, means, own in zip(rankings, ranked, layout.scored, strict=True):
        positives = Estimate(float(table[own].sum()), K * sigma**2)
        negatives = Estimate(count.value - positives.value, K * (K - 1) * sigma**2)
        aucs.append(_auc(ranking, means, (negatives, positives)))
    if len(aucs) == 1:
        scores["auc"] = aucs[0]
    else:
        scores["auc"] = _average(aucs)
        scores |= {f"auc of {layout.classes[k]}": score for k, score in zip(layout.scored, aucs, strict=True)}
    for name, mean in losses.items():
        known = _is_enough(count)
        scores[name.replace(" ", "_")] = Score.of(mean.of(count), 0.0) if known else Score.unknown(0.0)
    for k, label in enumerate(layout.classes):
        scores[f"recall of {label}"] = share(table[k, k], 1, float(table[k].sum()), K, sigma)
        scores[f"precision of {label}"] = share(table[k, k], 1, float(table[:, k].sum()), K, sigma)
        scores[f"predicted {label}"] = share(float(table[:, k].sum()), K, count.value, K * K, sigma)
    return GroupScores(
        Score.of(Estimate(count.value, count.noise), 0.0),
        scores,
        tuple(tuple(map(float, row)) for row in table),
        _curves(layout, rankings, position),
    )


def share(part: float, cells: int, whole: float, of: int, sigma: float) -> Score:
    """part/whole of noisy counts: sums of `cells` cells, among `of`; sampled as a binomial share."""
    if whole <= _ENOUGH * sigma * math.sqrt(of):
        return Score.unknown(0.0, 1.0)
    p = part / whole
    noise = sigma**2 * (cells * (1.0 - p) ** 2 + (of - cells) * p**2) / whole**2
    inside = min(max(p, 0.0), 1.0)
    return Score.of(Estimate(p, noise, inside * (1.0 - inside) / whole), 0.0, 1.0)


def _is_enough(count: Estimate) -> bool:
    return count.value > _ENOUGH * math.sqrt(count.noise)


def _auc(ranking: Ranking, means: tuple[Mean, Mean], counts: tuple[Estimate, Estimate]) -> Score:
    if not all(map(_is_enough, counts)):
        return Score.unknown(0.0, 1.0)
    return Score.of(ranking.auc(means, counts), 0.0, 1.0)


def _average(scores: list[Score]) -> Score:
    """The mean over classes; deviations are averaged, which covers any correlation of the samples."""
    known = [score for score in scores if score.is_known]
    if len(known) < len(scores):
        return Score.unknown(0.0, 1.0)
    value, sampling = (float(np.mean([getattr(s, n) for s in known])) for n in ("value", "sampling"))
    noise = float(np.sum([s.noise**2 for s in known])) / len(known) ** 2  # of each class its own
    return Score.of(Estimate(value, noise, sampling**2), 0.0, 1.0)


def _curves(layout: ScoreLayout, rankings: list[Ranking], position: Noisy | None) -> dict[str, Curve]:
    curves = {}
    for c, (ranking, own) in enumerate(zip(rankings, layout.scored, strict=True)):
        name = "" if len(rankings) == 1 else f" of {layout.classes[own]}"
        curves[f"roc{name}"] = roc(ranking)
        curves[f"precision recall{name}"] = precision_recall(ranking)
        if layout.probabilities:
            where = None if position is None else Noisy(position.value[c], position.sigma)
            curves[f"calibration{name}"] = Curve.through(_calibration(ranking, where))
    return curves


def _calibration(ranking: Ranking, where: Noisy | None) -> list[tuple[float, Score]]:
    """(mean probability, share of the class) of each cell; without a mean, the middle of the cell.

    The interval holds the share of the cell, and x plus how far that share is off the true mean probability:
    a point is read against the diagonal, so that an error of x counts in y.
    """
    edges, points, variance = expit(ranking.edges), [], ranking.sigma**2
    for i, (negatives, positives) in enumerate(zip(ranking.negatives, ranking.positives, strict=True)):
        part, n, width = float(positives), float(negatives + positives), float(edges[i + 1] - edges[i])
        if n <= _ENOUGH * ranking.sigma * math.sqrt(2.0):
            continue
        low, high = map(
            float, ratio(part, n, (variance, n - 2.0 * variance, 2.0 * variance - n), Z95, (0.0, 1.0))
        )
        inside = 0.5
        if where is None:
            low, high = low - 0.5 * width, high + 0.5 * width
        else:
            inside = min(max(float(where.value[i]) / n, 0.0), 1.0)
            p = min(max(0.5, low), high)  # the share at which chance is largest
            known = variance + (width * where.sigma) ** 2 + n * p * (1.0 - p)
            off = ratio(
                part - width * float(where.value[i]),
                n,
                (known, -2.0 * variance, 2.0 * variance),
                Z95,
                (-1.0, 1.0),
            )
            low, high = min(low, float(off[0]) + width * inside), max(high, float(off[1]) + width * inside)
        y, x = min(max(part / n, 0.0), 1.0), float(edges[i] + inside * width)
        points.append((x, Score(y, min(max(low, 0.0), y), max(min(high, 1.0), y))))
    return points
