"""The page of private scores: one self-contained HTML file, made of released and public numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from curvedp.charts import COLOURS, Axis, Series, legend, line_chart
from curvedp.ledger import LedgerState
from curvedp.pages import environment
from curvedp.scores.door import PrivateScores
from curvedp.scores.results import Curve, Score
from curvedp.scores.words import NAMES, by_class, fairness, heading, headline

_AT_ONE_PLACE = (
    "Thin lines: at any one place of the horizontal axis, the curve of all people of whom these records are "
    "a sample lies between them with 95 %. Both numbers of a point are noisy, and the lines allow for both."
)
_AGAINST_DIAGONAL = "Thin lines: 95 % intervals, for each point and for how far it is off the diagonal."


@dataclass(frozen=True)
class Figure:
    """A chart with its title, its legend and a sentence on how to read it."""

    title: str
    chart: Markup
    legend: Markup
    words: str


def scores_page(scores: PrivateScores, target: str, record: str, ledger: LedgerState | None = None) -> str:
    """The HTML of the scores of one model."""
    levels = fairness(scores)
    context = {
        "target": target,
        "record": record,
        "headline": [(NAMES[name], name, score) for name, score in headline(scores.overall)],
        "count": scores.overall.count,
        "classes": scores.layout.classes,
        "confusion": scores.overall.confusion,
        "by_class": by_class(scores),
        "figures": figures(scores),
        "by": scores.layout.by,
        "level_names": [heading(name) for name, _ in levels[0][1]] if levels else [],
        "levels": [(level, scores.levels[level].count, rows) for level, rows in levels],
        "level_bars": [_level_chart(name, i, levels) for i, (name, _) in enumerate(levels[0][1])]
        if levels
        else [],
        "ledger": ledger,
    }
    document = scores.to_dict()
    return environment().get_template("score.html").render(s=context, g=scores.privacy, document=document)


def figures(scores: PrivateScores) -> list[Figure]:
    """ROC, precision and recall, calibration of a classifier; calibration and residuals of a regression."""
    if scores.layout.task == "regression":
        return [figure for figure in (_calibration(scores), _residuals(scores)) if figure is not None]
    share = Axis("share of the other records above the threshold", 0.0, 1.0)
    found = [
        _of_classes(scores, "roc", "ROC curve", share, "recall", diagonal=True),
        _of_classes(
            scores, "precision recall", "Precision and recall", Axis("recall", 0.0, 1.0), "precision"
        ),
        _of_classes(
            scores,
            "calibration",
            "Calibration",
            Axis("predicted probability", 0.0, 1.0),
            "share in the class",
            diagonal=True,
        ),
    ]
    return [figure for figure in found if figure is not None]


def _of_classes(
    scores: PrivateScores, kind: str, title: str, x: Axis, y: str, diagonal: bool = False
) -> Figure | None:
    curves = {name: c for name, c in scores.overall.curves.items() if name.startswith(kind) and c.x}
    if not curves:
        return None
    series: list[Series] = []
    for name, curve in list(curves.items())[:COLOURS]:
        label = (
            name.removeprefix(f"{kind} of ") if len(scores.layout.classes) > 2 else scores.layout.classes[1]
        )
        series.append(Series(label, curve.x, curve.y))
    if len(series) == 1:
        series += _band(next(iter(curves.values())))
    if diagonal:
        words = "by chance" if kind == "roc" else "as predicted"
        series.append(Series(words, [0.0, 1.0], [0.0, 1.0], reference=True))
    chart = line_chart(title, x, Axis(y, 0.0, 1.0), series)
    more = len(curves) - COLOURS
    words = _AGAINST_DIAGONAL if kind == "calibration" else _AT_ONE_PLACE
    words = words if len(curves) == 1 else ""
    return Figure(
        title, chart, legend(_named(series)), words + (f" {more} more classes." if more > 0 else "")
    )


def _band(curve: Curve) -> list[Series]:
    return [Series("", curve.x, curve.low, reference=True), Series("", curve.x, curve.high, reference=True)]


def _named(series: Sequence[Series]) -> list[Series]:
    return [one for one in series if one.label]


def _calibration(scores: PrivateScores) -> Figure | None:
    curve = scores.overall.curves["calibration"]
    if not curve.x:
        return None
    low, high = min(*curve.low, *curve.x), max(*curve.high, *curve.x)
    series = [
        Series("mean target", curve.x, curve.y),
        *_band(curve),
        Series("as predicted", [curve.x[0], curve.x[-1]], [curve.x[0], curve.x[-1]], reference=True),
    ]
    x = Axis("mean prediction", *_room(curve.x[0], curve.x[-1]))
    chart = line_chart("Calibration of predictions", x, Axis("mean target", *_room(low, high)), series)
    words = f"Records in ten groups by their prediction. {_AGAINST_DIAGONAL}"
    return Figure("Calibration of predictions", chart, legend(_named(series)), words)


def _residuals(scores: PrivateScores) -> Figure | None:
    curve = scores.overall.curves["residuals"]
    if not curve.x:
        return None
    series = [Series("target − prediction", curve.x, curve.y), *_band(curve)]
    span = curve.y[-1] - curve.y[0]  # an end that noise hides is as far as a residual can be: not drawn
    low, high = max(min(curve.low), curve.y[0] - span), min(max(curve.high), curve.y[-1] + span)
    y = Axis("target − prediction", *_room(low, high))
    chart = line_chart("Quantiles of the residuals", Axis("share of records below", 0.0, 1.0), y, series)
    words = (
        "At 0.05 the line shows what 5 % of the records fall below. Thin lines: 95 % intervals at seven "
        "levels, from 0.05 to 0.95; they follow the border of the figure where noise hides an end."
    )
    return Figure("Quantiles of the residuals", chart, legend(_named(series)), words)


def _room(low: float, high: float) -> tuple[float, float]:
    """A range with a little room; of some width."""
    width = max(high - low, 1e-6 * max(abs(low), abs(high)), 1e-300)
    return low - 0.05 * width, high + 0.05 * width


def _level_chart(
    name: str, position: int, levels: list[tuple[str, list[tuple[str, Score]]]]
) -> tuple[str, list[tuple[str, Score, Markup]]]:
    """(heading, (level, score, bar) of each level): one scale for all levels."""
    scores = [(level, rows[position][1]) for level, rows in levels]
    ends = [end for _, s in scores if s.is_known for end in (s.low, s.high) if math.isfinite(end)]
    low, high = _room(min(ends), max(ends)) if ends else (0.0, 1.0)
    return heading(name), [(level, score, _bar(score, low, high)) for level, score in scores]


def _bar(score: Score, low: float, high: float) -> Markup:
    """The interval as a line, the estimate as a mark."""
    if not score.is_known:
        return Markup("")

    def at(value: float) -> float:
        return 100.0 * min(max((value - low) / (high - low), 0.0), 1.0)

    return Markup(
        f'<svg aria-hidden="true"><rect x="{at(score.low):.2f}%" y="6" '
        f'width="{max(at(score.high) - at(score.low), 0.5):.2f}%" height="4" rx="2"/>'
        f'<circle cx="{at(score.value):.2f}%" cy="8" r="5"/></svg>'
    )
