"""The scores of a classifier and of a regression: what is released, and what follows from it for free (V-1).

One charge each, Gaussian parts: rounds that find cells of equal mass or where to clip, counts by cell, means
of clipped losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from curvedp.analyses.explore.noisy import ENOUGH, GaussianPlan, Noisy, Releases, Split, Z, ratio_ends
from curvedp.analyses.scores import means
from curvedp.analyses.scores.means import Curve, Groups, GroupScores, Mean, Ranking, Score, Tail, Window
from curvedp.analyses.scores.source import FARTHEST, ScoredRecords, ScoreLayout
from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Budget

# What the plans of all scores share: one run finds the scores of all records, then those by level (V-1).

Findings = tuple[GroupScores, dict[str, GroupScores]]  # of all records, and of each compared level


@dataclass(frozen=True, eq=False)
class ScorePlan(GaussianPlan):
    """All scores of a model under one (ε, δ); which parts they are made of, a run without records tells."""

    layout: ScoreLayout
    theorem = "(V-1)"

    @property
    def mechanism(self) -> str:  # type: ignore[override]
        return "scores of classes" if self.layout.classes else "scores of a regression"

    @property
    def fewest_rows(self) -> float:
        """With fewer, nothing could be said: three deviations of the sum of the confusion matrix; of numbers,
        the noise of R² is about 10 records' squares."""
        factor, classes = self.layout.neighbours.histogram_factor, len(self.layout.classes)
        if classes:
            return ENOUGH * self.split.grid("confusion", factor).sigma * classes
        return 10.0 * factor / self.split.shift("gain")

    def accept(self, records: ScoredRecords) -> None:
        if records.parts is None and self.layout.neighbours.unit is not None:
            raise InvalidInput("these records say not whose they are: pass the column that does, as unit")
        super().accept(records)

    def require(self, rows: float) -> None:
        if rows < self.fewest_rows:
            who = self.layout.neighbours.counted
            raise InvalidInput(
                "at this epsilon the noise drowns scores of fewer than about "
                f"{math.ceil(self.fewest_rows):,} {who}: raise epsilon, or score more {who}"
            )

    def release(self, records: ScoredRecords, random: np.random.Generator) -> Findings:
        return findings(records, Releases(self.layout.neighbours, self.split, random, each=records.parts))


def score_plan(layout: ScoreLayout, budget: Budget) -> ScorePlan:
    """The plan that the task of the model asks for, from public facts alone."""
    score, nobody = np.zeros((0, max(len(layout.scored), 1))), np.zeros(0, dtype=np.intp)
    records = ScoredRecords(layout, score, np.zeros(0), nobody, nobody, np.zeros((0, 2)), 0)
    releases = Releases(layout.neighbours)
    findings(records, releases)
    return ScorePlan(layout, budget, Split.of(releases.parts, budget))


def findings(records: ScoredRecords, releases: Releases) -> Findings:
    """All scores; whatever the records are, the same parts are released."""
    levels, classes = records.layout.levels, bool(records.layout.classes)
    scores = (_ClassRun if classes else _NumberRun)(records, releases).scores
    (overall,) = scores(Groups(releases, np.zeros(len(records.target), dtype=np.intp)))
    by_level = Groups(releases, records.level, len(levels), "level ", 2 / 3 if classes else 0.9)
    return overall, dict(zip(levels, scores(by_level) if levels else [], strict=True))


# A classifier: confusion, ROC, precision, calibration, Brier score, log-loss (V-2).

ROUNDS, CELLS = 3, 16
_AWAY = np.array([0.12, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, FARTHEST])
START = np.concatenate([-_AWAY[::-1], [0.0], _AWAY])  # of the logit, before anything is known
Pair = tuple[Mean, Mean]  # of negatives and of positives
LOSSES = {"brier": (0.07, 0.01), "log loss": (0.09, 0.01)}  # with the prices of the mean and of its squares


@dataclass(frozen=True, eq=False)
class _ClassRun:
    """One release; a class c that has scores of its own is counted among those."""

    records: ScoredRecords
    releases: Releases

    @cached_property
    def edges(self) -> list[FloatArray]:
        """Of cells of about equal mass of each score."""
        of = len(self.records.layout.scored)
        prices, last = [0.09 / (ROUNDS * of)] * ROUNDS, means.equal_mass(CELLS)
        scores = enumerate(self.records.score.T)
        return [means.refined(self.releases, f"score {c}", own, START, prices, last) for c, own in scores]

    def scores(self, groups: Groups) -> list[GroupScores]:
        """Of every group, from what is released of all of them together."""
        edges = self.edges  # released first
        records, K, scored = self.records, len(self.records.layout.classes), range(len(edges))
        pairs = records.target.astype(np.intp) * K + records.predicted
        confusion = groups.by(pairs, K * K).counts("confusion", 0.16)
        rankings = [self._rankings(groups, edges[c], c) for c in scored]
        ranked = [self._ranked(groups, rankings[c], c) for c in scored]
        losses: dict[str, list[Mean]] = {}
        positions: list[Noisy[FloatArray] | None] = [None for _ in scored]
        if records.layout.probabilities:
            losses = {name: self._losses(groups, rankings, name) for name in LOSSES}
            if not groups.prefix:
                positions = [self._positions(edges[c], c) for c in scored]
        found = []
        for g, table in enumerate(confusion.value.reshape(groups.size, K, K)):
            count, mine = Noisy(float(table.sum()), table.size * confusion.noise), [r[g] for r in rankings]
            lost = {name: each[g] for name, each in losses.items()}
            scores = self._told(Noisy(table, confusion.noise), mine, [r[g] for r in ranked], lost)
            confused = tuple(tuple(map(float, row)) for row in table)
            found.append(GroupScores(Score.of(count, 0.0), scores, confused, self._curves(mine, positions)))
        return found

    def _rankings(self, groups: Groups, edges: FloatArray, c: int) -> list[Ranking]:
        """Noisy counts by group, class (the scored one or another) and cell."""
        scored = self.records.layout.scored
        inside = (self.records.target == scored[c]) * CELLS + means.cell(self.records.score[:, c], edges)
        noisy = groups.by(inside, 2 * CELLS, len(scored)).counts(f"cells of {c}", 0.22)
        tables = noisy.value.reshape(-1, 2, CELLS)
        return [Ranking(edges, negatives, positives, noisy.sigma) for negatives, positives in tables]

    def _ranked(self, groups: Groups, rankings: list[Ranking], c: int) -> list[Pair]:
        """Mean losses of negatives and positives in every group."""
        scored = self.records.layout.scored
        positive = np.asarray(self.records.target == scored[c])
        own = self.records.score[:, c], positive
        losses = means.piecewise(groups.place, [ranking.losses for ranking in rankings], *own)
        windows = [window for ranking in rankings for window in ranking.windows()]
        both = groups.by(positive, 2, len(scored)).means(f"auc of {c}", losses, windows, 0.29, 0.03)
        return list(zip(both[::2], both[1::2], strict=True))

    def _losses(self, groups: Groups, rankings: list[list[Ranking]], name: str) -> list[Mean]:
        """The mean loss of probabilities in every group."""
        layout, exact = self.records.layout, self.records.loss[:, list(LOSSES).index(name)]
        each = [_loss_tail(list(own), name, len(layout.classes)) for own in zip(*rankings, strict=True)]
        values = means.piecewise(groups.place, [tail.values for tail, _ in each], exact)
        return groups.means(name, values, [Window.to(tail.mean, mean) for tail, mean in each], *LOSSES[name])

    def _positions(self, edges: FloatArray, c: int) -> Noisy[FloatArray]:
        """Σ of where in its cell a probability lies, from 0 to 1, by cell; for all records alone."""
        inside = means.cell(self.records.score[:, c], edges)
        low, width = expit(edges[:-1]), np.maximum(np.diff(expit(edges)), 1e-300)
        where = (expit(self.records.score[:, c]) - low[inside]) / width[inside]
        price = 0.03 / len(self.records.layout.scored)
        return Groups(self.releases, inside, CELLS).sums(f"position of {c}", where, (0.0, 1.0), price)

    def _told(
        self, counts: Noisy[FloatArray], rankings: list[Ranking], ranked: list[Pair], losses: dict[str, Mean]
    ) -> dict[str, Score]:
        """Every score of a group, by name."""
        layout, table, sigma = self.records.layout, counts.value, counts.sigma
        K, total = len(layout.classes), float(table.sum())
        scores = {"accuracy": share(float(np.trace(table)), K, total, K * K, sigma)}
        aucs: list[Score] = []
        for ranking, pair, own in zip(rankings, ranked, layout.scored, strict=True):
            positives = Noisy(float(table[own].sum()), K * counts.noise)
            negatives = Noisy(total - positives.value, K * (K - 1) * counts.noise)
            aucs.append(ranking.auc(pair, (negatives, positives)))
        scores["auc"] = _average(aucs)
        if len(aucs) > 1:
            scores |= {f"auc of {layout.classes[k]}": s for k, s in zip(layout.scored, aucs, strict=True)}
        count = Noisy(total, K * K * counts.noise)
        for name, mean in losses.items():
            told = Score.of(mean.of(count), 0.0) if count.tells else Score.unknown(0.0)
            scores[name.replace(" ", "_")] = told
        if losses:
            scores["d2"] = means.explained_classes(losses["log loss"].of(count), counts, count)
        for k, label in enumerate(layout.classes):
            found_of, predicted = float(table[k].sum()), float(table[:, k].sum())
            scores[f"recall of {label}"] = share(table[k, k], 1, found_of, K, sigma)
            scores[f"precision of {label}"] = share(table[k, k], 1, predicted, K, sigma)
            scores[f"predicted {label}"] = share(predicted, K, total, K * K, sigma)
        return scores

    def _curves(self, rankings: list[Ranking], positions: list[Noisy[FloatArray] | None]) -> dict[str, Curve]:
        layout, curves = self.records.layout, {}
        for c, ranking in enumerate(rankings):
            name = "" if len(rankings) == 1 else f" of {layout.classes[layout.scored[c]]}"
            curves[f"roc{name}"] = means.roc(ranking)
            curves[f"precision recall{name}"] = means.precision_recall(ranking)
            if layout.probabilities:
                curves[f"calibration{name}"] = _calibration(ranking, positions[c])
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
        tail = means.find_tail(worst[order], counts[order], rankings[0].sigma, 8.0).heavier(3.0, FARTHEST)
        # Wrong records that the noise hides lose as much as the model was sure: about |logit|.
        clip = min(max(tail.clip, *(float(np.abs(inner).max()) for inner in logits)), FARTHEST)
        tail = Tail(clip, min(tail.scale, FARTHEST - clip))
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


def _calibration(ranking: Ranking, where: Noisy[FloatArray] | None) -> Curve:
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
        points.append((x, y, min(max(low, 0.0), y), max(min(high, 1.0), y)))
    return Curve(*zip(*points, strict=True))


# A regression: R², RMSE, MAE, quantiles of residuals, calibration of predictions (V-3).
#
# Everything is in half ranges of the target until it is told.

OCTAVES = 20
BINS = np.array([0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98])  # of the predictions
LEVELS_OF_RESIDUALS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
AROUND = 2 * len(LEVELS_OF_RESIDUALS) + 1  # cells between edges on both sides of every quantile

Known = tuple[FloatArray, list[Mean]]  # numbers, and their mean in each group


@dataclass(frozen=True)
class Size:
    """Released: where to clip numbers, and first guesses of their mean size and mean square."""

    tail: Tail
    mean: float
    square: float


class _NumberRun:
    """One release. Of every record y is the target, r the residual, d = y − m and m the middle of y."""

    def __init__(self, records: ScoredRecords, releases: Releases) -> None:
        self.layout, self.releases = records.layout, releases
        self.prediction, self.y = records.score[:, 0], records.target
        self.r = self.y - self.prediction
        reach, start = self.layout.reach, np.linspace(-1.0, 1.0, means.COARSE + 1)
        prices, last = (0.015, 0.015), means.equal_mass(2)
        self.middle = float(means.refined(releases, "target", self.y, start, prices, last)[1])
        self.d = self.y - self.middle
        self.of_d = self._size("size of target", self.d, 1.0 + abs(self.middle), 0.03, factor=2.0)
        self.of_r = self._size("size of residual", self.r, 1.0 + reach, 0.03, factor=2.0, heavier=1.2)
        self.r2 = self.of_r.tail.squares(np.abs(self.r))  # the mean of the tail beyond the clip
        self.d2 = self.of_d.tail.squares(np.abs(self.d))
        self.gain: dict[str, tuple[float, Tail]] = {}  # ρ ≈ 1 − R² of all records, where to clip r² − ρd²
        self.deviances: dict[str, tuple[Size, FloatArray]] = {}  # of counts, clipped

    def scores(self, groups: Groups) -> list[GroupScores]:
        """R², RMSE and MAE of every group; the curves of all records."""
        of_r, of_d = self.of_r, self.of_d
        counts = groups.counts("count", 0.02).each()
        of_square = [Window.to(of.tail.mean_square, of.square) for of in (of_d, of_r)]
        targets = groups.means("target", self.d2, of_square[0], 0.11, 0.015)
        residuals = groups.means("residual", self.r2, of_square[1], 0.08, 0.03)
        around = Window(-of_d.tail.mean, of_d.tail.mean, 0.0)
        deviations = groups.means("deviation", self.d, around, 0.03)
        sizes = of_r.tail.values(np.abs(self.r))
        absolute = groups.means("size", sizes, Window.to(of_r.tail.mean, of_r.mean), 0.025)
        known = (self.d2, targets), (self.r2, residuals)
        gain, ratio = self._gain(groups, "gain", 0.395, known, counts[0])
        curves = {"calibration": self._calibration(), "residuals": self._residuals()} if ratio[1] else {}
        three = zip(gain, targets, deviations, strict=True)
        each = zip(counts, three, residuals, absolute, strict=True)
        told = [_told(*own, ratio, self.layout.unit) for own in each]
        more = self._deviances(groups, counts, deviations) if self.layout.counts else [{} for _ in told]
        tau, r = self.layout.quantile, of_r.tail.signed(self.r)
        if tau is not None:
            window = Window.to(max(tau, 1.0 - tau) * of_r.tail.mean, 0.5 * of_r.mean)
            checks = np.where(r < 0, (tau - 1.0) * r, tau * r)
            losses = groups.means("check loss", checks, window, 0.1, 0.02)
            below = groups.means("below", (self.r <= 0).astype(float), Window(0.0, 1.0, tau), 0.05)
            more = [self._of_quantile(*own) for own in zip(counts, losses, below, strict=True)]
        found = zip(counts, told, more, strict=True)
        return [GroupScores(Score.of(n, 0.0), {**own, **also}, curves=curves) for n, own, also in found]

    def _of_quantile(self, count: Noisy[float], losses: Mean, below: Mean) -> dict[str, Score]:
        """The mean check loss, and the share of targets that are not above the predicted quantile."""
        if not count.tells:
            return {"pinball_loss": Score.unknown(0.0), "below": Score.unknown(0.0, 1.0)}
        unit, loss, share = self.layout.unit, losses.of(count), below.of(count)
        p = min(max(share.value, 0.0), 1.0)
        loss = Noisy(unit * loss.value, unit**2 * loss.noise, unit**2 * loss.sampling)
        share = replace(share, sampling=p * (1.0 - p) / count.value)
        return {"pinball_loss": Score.of(loss, 0.0), "below": Score.of(share, 0.0, 1.0)}

    def _deviances(
        self, groups: Groups, counts: list[Noisy[float]], deviations: list[Mean]
    ) -> list[dict[str, Score]]:
        """The mean deviance of every group, and D²: as R², with deviances for squares (V-3).

        Counts are 1 + y, in half ranges; the constant m that they are compared with is their mean, released.
        """
        if not self.deviances:
            mean_count = 1.0 + self.middle + deviations[0].of(counts[0]).value
            self.constant = min(max(mean_count, means.LEAST_RATE), 2.0)
            most = means.FARTHEST_DEVIANCE
            for name, expected in (("deviance", 1.0 + self.prediction), ("null deviance", self.constant)):
                values = means.deviance(1.0 + self.y, expected)
                size = self._size(f"size of {name}", values, most, 0.03, factor=3.0, heavier=1.5)
                self.deviances[name] = size, size.tail.values(values)
        model, null = (
            groups.means(name, values, Window.to(size.tail.mean, size.mean), 0.09, 0.02)
            for name, (size, values) in self.deviances.items()
        )
        (_, of_model), (_, of_null) = self.deviances.values()
        known = (of_null, null), (of_model, model)
        gain, ratio = self._gain(groups, "deviances", 0.3, known, counts[0])
        told_of, against = [], (self.constant, 1.0 + self.middle)
        for n, residual, *three in zip(counts, model, gain, null, deviations, strict=True):
            told = {"deviance": Score.unknown(0.0), "d2": Score.unknown(high=1.0)}
            if n.tells:
                mean = means.positive(means.at_least(residual.of(n), 2.0, n))  # in half ranges
                mean = Score(*(self.layout.unit * number for number in vars(mean).values()))
                told = {"deviance": mean, "d2": means.explained(n, three, ratio, against)}
            told_of.append(told)
        return told_of

    def _size(
        self, name: str, values: FloatArray, reach: float, price: float, factor: float, heavier: float = 1.0
    ) -> Size:
        """Of numbers of size ≤ reach, from counts by magnitude; clipped at `factor` times what is seen.

        The tail beyond falls more slowly than an exponential one through what is seen: `heavier` times.
        """
        edges = means.octaves(reach, OCTAVES)
        noisy = Groups(self.releases, means.cell(np.abs(values), edges), OCTAVES).counts(name, price)
        tail = means.find_tail(edges[1:], noisy.value, noisy.sigma, factor).heavier(heavier, reach)
        inside, share = np.minimum(edges, tail.mean), np.diff(means.distribution(noisy.value))
        middle = 0.5 * (inside[1:] + inside[:-1])
        square = max(float(share @ middle**2), 1e-12 * tail.mean_square)
        return Size(tail, float(share @ middle), square)

    def _gain(
        self, groups: Groups, name: str, price: float, known: tuple[Known, Known], count: Noisy[float]
    ) -> tuple[list[Mean], means.Ratio]:
        """(Means of r² − ρd² of every group, ρ) from what is known of d² and of r² (V-3)."""
        (d2, means_d2), (r2, means_r2) = known
        own_ratio = name not in self.gain
        if own_ratio:
            most_d2, most_r2 = means_d2[0].window.high, means_r2[0].window.high
            mean_d2, mean_r2 = means_d2[0].of(count).value, means_r2[0].of(count).value
            ratio = min(max(mean_r2 / max(mean_d2, 1e-6 * most_d2), 0.01), 2.0)
            reach = max(most_r2, ratio * most_d2)
            size = self._size(f"size of {name}", r2 - ratio * d2, reach, 0.04, factor=3.0, heavier=3.0)
            self.gain[name] = ratio, size.tail
        ratio, tail = self.gain[name]
        window = Window(-tail.mean, tail.mean, 0.0)
        return groups.means(name, tail.signed(r2 - ratio * d2), window, price, 0.04), (ratio, own_ratio)

    def _residuals(self) -> Curve:
        """(level, quantile of y − prediction) and the nearest edges surely below and above it (V-4)."""
        half = means.octaves(1.0 + self.layout.reach, means.COARSE // 2)
        first = np.concatenate([-half[:0:-1], half])
        all_cells = means.equal_mass(means.COARSE)
        second = means.refined(self.releases, "residual", self.r, first, (0.01,), all_cells)
        inside = Groups(self.releases, means.cell(self.r, second), means.COARSE)
        noisy = inside.counts("residual round 1", 0.02)
        sigma = self.releases.neighbours.histogram_factor / self.releases.shift("residual round 2")
        edges = means.at_levels(second, noisy.value, levels_around(float(noisy.value.sum()), sigma))
        noisy = Groups(self.releases, means.cell(self.r, edges), AROUND).counts("residual round 2", 0.02)
        counts, edges, x = noisy.value, edges * self.layout.unit, np.array(LEVELS_OF_RESIDUALS)
        if float(counts.sum()) <= ENOUGH * noisy.sigma * math.sqrt(len(counts)):
            return Curve()
        low, high = means.Rising(edges, edges).along(means.Rising.of(counts, noisy.sigma, Z), x)
        return means.told(x, np.interp(x, means.distribution(counts), edges), low, high)

    def _calibration(self) -> Curve:
        """(mean prediction, mean target) in cells of the prediction.

        The interval holds the mean target of the cell, and x plus how far it is off the true mean prediction.
        """
        reach, c, unit = self.layout.reach, self.of_r.tail.mean, self.layout.unit
        start = np.linspace(-reach, reach, means.COARSE + 1)
        edges = means.refined(self.releases, "prediction", self.prediction, start, (0.01, 0.01), BINS)
        clipped = np.clip(self.prediction, edges[0], edges[-1])
        inside, widths = means.cell(clipped, edges), np.diff(edges)
        where = (clipped - edges[inside]) / np.maximum(widths, 1e-300)[inside]
        groups, reach_of_r = Groups(self.releases, inside, len(widths)), Window(-c, c, 0.0)
        counts = groups.counts("calibration", 0.02).each()
        positions = groups.sums("calibration of predictions", where, (0.0, 1.0), 0.005).each()
        errors = groups.means("calibration of residuals", self.r, reach_of_r, 0.025)
        points = []
        each = zip(edges[:-1].tolist(), widths.tolist(), counts, positions, errors, strict=True)
        for left, width, count, position, mean in each:
            if not count.tells:
                continue
            within = min(max(position.value / count.value, 0.0), 1.0)
            x, error = self.layout.offset + unit * (left + within * width), mean.of(count)
            moved = mean.window.size**2 * mean.first.noise + width**2 * position.noise
            moved += (error.value + within * width) ** 2 * count.noise  # of the sum of both
            noise = max(error.noise, moved / count.value**2)
            sampling = self.of_r.square * unit**2 / count.value
            score = Score.of(Noisy(x + unit * error.value, noise * unit**2, sampling))
            points.append((x, score.value, score.low, score.high))
        return Curve(*zip(*points, strict=True))


def _told(
    count: Noisy[float], three: Sequence[Mean], residual: Mean, sizes: Mean, ratio: means.Ratio, unit: float
) -> dict[str, Score]:
    """R², of the `three` means that `explained` takes, RMSE and MAE, in the units of the target."""
    if not count.tells:
        return {"r2": Score.unknown(high=1.0), "rmse": Score.unknown(0.0), "mae": Score.unknown(0.0)}
    more, square, own, absolute = (mean.of(count) for mean in (*three[:2], residual, sizes))
    # Two estimates of the mean square with independent noise, by their variances; the sample is the same.
    value, noise = more.value + ratio[0] * square.value, more.noise + ratio[0] ** 2 * square.noise
    weight = own.noise / (noise + own.noise)
    value = max(weight * value + (1.0 - weight) * own.value, 0.0)
    noise = weight**2 * noise + (1.0 - weight) ** 2 * own.noise
    mse = means.at_least(Noisy(value, noise, own.sampling), 2.0, count)
    spread = max(mse.value - absolute.value**2, 0.0) / count.value
    mae = Noisy(unit * absolute.value, unit**2 * absolute.noise, unit**2 * spread)
    known = means.positive(mse)
    value, low, high = (unit * math.sqrt(v) for v in (known.value, known.low, known.high))
    steep = unit / (2.0 * math.sqrt(max(mse.value, 1e-300))) if mse.value > 0 else 0.0
    rmse = Score(value, low, high, known.noise * steep, known.sampling * steep)
    return {"r2": means.explained(count, three, ratio), "rmse": rmse, "mae": Score.of(mae, 0.0)}


def levels_around(total: float, sigma: float) -> FloatArray:
    """Of the edges between which quantiles are told: 4 deviations of a noisy share off each level.

    So the nearest edge that is surely on one side of a quantile is mostly this one. Never more than half of
    the way to 0 or 1.
    """
    x, n = np.array(LEVELS_OF_RESIDUALS), max(total, 1.0)
    reach = 4.0 * np.sqrt(x * (1.0 - x) * (sigma**2 * AROUND / n + 1.0) / n)
    reach = np.minimum(reach, 0.5 * np.minimum(x, 1.0 - x))
    return np.concatenate([[0.0], np.sort(np.concatenate([x - reach, x + reach])), [1.0]])
