"""The page of private scores: one self-contained HTML file, made of released and public numbers only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from curvedp.charts import COLOURS, Axis, Series, legend, line_chart
from curvedp.ledger import LedgerState
from curvedp.pages import rendered
from curvedp.scores.door import PrivateScores
from curvedp.scores.results import Curve, Score
from curvedp.scores.words import NAMES, fairness, heading, headline

_AT_ONE_PLACE = (
    "Thin lines: at any one place of the horizontal axis, the curve of all people of whom these records are "
    "a sample lies between them with 95 %. Both numbers of a point are noisy, and the lines allow for both."
)
_AGAINST_DIAGONAL = "Thin lines: 95 % intervals, for each point and for how far it is off the diagonal."
_QUANTILES = (
    "At 0.05 the line shows what 5 % of the records fall below. Thin lines: 95 % intervals at seven "
    "levels, from 0.05 to 0.95; they follow the border of the figure where noise hides an end."
)


@dataclass(frozen=True)
class Figure:
    """A chart with its title, its legend and a sentence on how to read it."""

    title: str
    chart: Markup
    legend: Markup
    words: str

    @classmethod
    def of(cls, title: str, x: Axis, y: Axis, series: list[Series], words: str) -> Figure:
        """The legend has the curves that have a label."""
        return cls(title, line_chart(title, x, y, series), legend([s for s in series if s.label]), words)


def scores_page(scores: PrivateScores, target: str, record: str, ledger: LedgerState | None = None) -> str:
    """The HTML of the scores of one model."""
    levels = fairness(scores)
    return rendered(
        "score.html",
        s=scores,
        g=scores.privacy,
        target=target,
        record=record,
        headline=[(NAMES[name], name, score) for name, score in headline(scores.overall)],
        figures=list(figures(scores)),
        by_level=[_level_bars(i, levels) for i in range(len(levels[0][1]))] if levels else [],
        ledger=ledger,
        document=scores.to_dict(),
    )


def figures(scores: PrivateScores) -> Iterator[Figure]:
    """ROC, precision and recall, calibration of a classifier; calibration and residuals of a regression."""
    curves = scores.overall.curves
    if scores.layout.task == "regression":
        yield from (_calibration(curve) for curve in [curves["calibration"]] if curve.x)
        yield from (_residuals(curve) for curve in [curves["residuals"]] if curve.x)
        return
    for kind, title, x, y, diagonal in (
        ("roc", "ROC curve", "share of the other records above the threshold", "recall", "by chance"),
        ("precision recall", "Precision and recall", "recall", "precision", ""),
        ("calibration", "Calibration", "predicted probability", "share in the class", "as predicted"),
    ):
        known = {name: c for name, c in curves.items() if name.startswith(kind) and c.x}
        if not known:
            continue
        labels = [name.removeprefix(f"{kind} of ") for name in known]
        labels = labels if len(scores.layout.classes) > 2 else [scores.layout.classes[1]]
        shown = list(zip(labels, known.values(), strict=True))[:COLOURS]
        series = [Series(label, curve.x, curve.y) for label, curve in shown]
        words = ""
        if len(known) == 1:
            series += _band(shown[0][1])
            words = _AGAINST_DIAGONAL if kind == "calibration" else _AT_ONE_PLACE
        if diagonal:
            series.append(Series(diagonal, [0.0, 1.0], [0.0, 1.0], reference=True))
        words += f" {len(known) - COLOURS} more classes." if len(known) > COLOURS else ""
        yield Figure.of(title, Axis(x, 0.0, 1.0), Axis(y, 0.0, 1.0), series, words)


def _band(curve: Curve) -> list[Series]:
    return [Series("", curve.x, ends, reference=True) for ends in (curve.low, curve.high)]


def _calibration(curve: Curve) -> Figure:
    first, last = curve.x[0], curve.x[-1]
    low, high = min(*curve.low, *curve.x), max(*curve.high, *curve.x)
    diagonal = Series("as predicted", [first, last], [first, last], reference=True)
    series = [Series("mean target", curve.x, curve.y), *_band(curve), diagonal]
    x, y = Axis("mean prediction", *_room(first, last)), Axis("mean target", *_room(low, high))
    words = f"Records in ten groups by their prediction. {_AGAINST_DIAGONAL}"
    return Figure.of("Calibration of predictions", x, y, series, words)


def _residuals(curve: Curve) -> Figure:
    span = curve.y[-1] - curve.y[0]  # an end that noise hides is as far as a residual can be: not drawn
    low, high = max(min(curve.low), curve.y[0] - span), min(max(curve.high), curve.y[-1] + span)
    series = [Series("target − prediction", curve.x, curve.y), *_band(curve)]
    x, y = Axis("share of records below", 0.0, 1.0), Axis("target − prediction", *_room(low, high))
    return Figure.of("Quantiles of the residuals", x, y, series, _QUANTILES)


def _room(low: float, high: float) -> tuple[float, float]:
    """A range with a little room; of some width."""
    width = max(high - low, 1e-6 * max(abs(low), abs(high)), 1e-300)
    return low - 0.05 * width, high + 0.05 * width


def _level_bars(
    position: int, levels: list[tuple[str, list[tuple[str, Score]]]]
) -> tuple[str, list[tuple[str, Score]], Axis]:
    """(heading, (level, score) of each level, one scale for all of them)."""
    scores = [(level, rows[position][1]) for level, rows in levels]
    ends = [end for _, s in scores if s.is_known for end in (s.low, s.high) if math.isfinite(end)]
    scale = Axis("", *(_room(min(ends), max(ends)) if ends else (0.0, 1.0)))
    return heading(levels[0][1][position][0]), scores, scale
