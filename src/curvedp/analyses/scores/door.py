"""`private_scores` and `private_scorer`: how good a model is on private records, through the one door."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from html import escape
from typing import Any

from sklearn.base import BaseEstimator

from curvedp.analyses.estimators.base import PrivateLinearModel, load
from curvedp.analyses.scores.means import Curve, GroupScores, Score
from curvedp.analyses.scores.plans import score_plan
from curvedp.analyses.scores.source import ScoreLayout, layout_of, read_scored
from curvedp.arrays import ColumnLike, TableLike
from curvedp.data.columns import Categorical
from curvedp.data.source import unreadable
from curvedp.errors import InvalidInput, shielded
from curvedp.pages import COLOURS, Axis, Series, legend, line_chart, rendered
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee
from curvedp.release.door import Payer, account, execute
from curvedp.release.ledger.storage import LedgerState, Receipt
from curvedp.release.record import charged, keep

# What scikit-learn calls a score, larger being better: the name here, the sign, and whether
# for probabilities or counts alone.
_SCORINGS = {
    "regression": {
        "r2": ("r2", 1.0, False),
        "neg_root_mean_squared_error": ("rmse", -1.0, False),
        "neg_mean_absolute_error": ("mae", -1.0, False),
        "neg_mean_poisson_deviance": ("deviance", -1.0, True),
        "d2_tweedie_score": ("d2", 1.0, True),
        "neg_mean_pinball_loss": ("pinball_loss", -1.0, False),
    },
    "classification": {
        "accuracy": ("accuracy", 1.0, False),
        "roc_auc": ("auc", 1.0, False),
        "roc_auc_ovr": ("auc", 1.0, False),
        "neg_brier_score": ("brier", -1.0, True),
        "neg_log_loss": ("log_loss", -1.0, True),
        "d2_log_loss_score": ("d2", 1.0, True),
    },
}


@dataclass(frozen=True)
class PrivateScores:
    """How good a model is on private records, with intervals for noise and chance.

    Made by `private_scores`. ``scores["auc"]`` is a score of all records, ``scores.levels["f"]["auc"]`` of
    those of one level. Where a unit is named, a score is that of persons, each counting once: a record is
    the k-th part of a person with k of them.

    Parameters
    ----------
    overall : GroupScores
        The scores of all records.
    levels : mapping of str to GroupScores
        The scores by level of the compared column; empty without one.
    layout : ScoreLayout
        What was scored: the task, the classes, the compared column.
    privacy, receipt : Guarantee, Receipt or None
        What the release promises, and where it was charged; None without a ledger.
    target : str or None
        The column that is predicted, where it has a name.
    """

    overall: GroupScores
    levels: Mapping[str, GroupScores]
    layout: ScoreLayout
    privacy: Guarantee
    target: str | None = None
    receipt: Receipt | None = None

    def __getitem__(self, name: str) -> Score:
        return self.overall[name]

    def __str__(self) -> str:
        """A line for each score, then the same for each level."""
        groups = {"": self.overall, **{f"{level}: ": group for level, group in self.levels.items()}}
        told = {f"{of}{name}": str(score) for of, g in groups.items() for name, score in g.scores.items()}
        wide = max(map(len, told), default=0)
        return "\n".join(f"{name:{wide}}  {score}" for name, score in told.items())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>{self.privacy._repr_html_()}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "target": self.target,
            "task": self.layout.task,
            "classes": list(self.layout.classes),
            "by": self.layout.by,
            "counted": self.layout.neighbours.counted,
            "overall": asdict(self.overall),
            "levels": {name: asdict(group) for name, group in self.levels.items()},
            "guarantee": self.privacy.to_dict(),
            **charged(self.receipt),
        }


def private_scores(
    model: PrivateLinearModel | str | os.PathLike[str],
    X: TableLike,
    y: ColumnLike = None,
    *,
    epsilon: float,
    delta: float,
    ledger: Payer = None,
    by: str | Categorical | None = None,
    unit: ColumnLike = None,
    exposure: ColumnLike = None,
    rows: int | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> PrivateScores:
    """Scores of a model on private records, all of them in one charge of (epsilon, delta) (V-1).

    A regression gets R², RMSE, MAE, quantiles of its residuals and a calibration curve; one of counts the
    Poisson deviance and the share D² of it that is explained, one of a quantile the mean check loss and the
    share of records not above the prediction. A classifier gets the confusion matrix, accuracy, AUC with
    its ROC curve, precision and recall, and, where it predicts probabilities, a calibration curve, the Brier
    score, the log-loss and D². Who is protected is what the model's schema says.
    Where it names a unit, persons are counted and protected, each with all records: a
    mean is over persons, of each person's mean (U-2). Score records that the model was not fitted to: others
    look better than they are.

    Parameters
    ----------
    model : fitted estimator of curvedp, or path of a model file
        What is scored.
    X : data frame, mapping, array, sparse matrix, Dask collection or path of a CSV or Parquet file
        The private records, with the columns of the model's schema.
    y : column of length n, optional
        The target. May be left out where the schema names the target and X holds it. A record whose target
        is missing, unreadable or undeclared contributes nothing.
    epsilon, delta : float
        The budget of all scores together.
    ledger, delimiter, random_state : optional
        As in `curvedp.describe`.
    by : str or Categorical, optional
        Compare the scores by the levels of this column: one of the model's schema, or one declared here.
        A record without a declared level counts for the whole only.
    unit : column of length n, optional
        Identifiers that say whose record it is, where X does not hold those that the schema names, or it
        names none. A record without one contributes nothing.
    exposure : column of length n, optional
        Of a model of counts with an exposure, where X does not hold it.
    rows : int, optional
        A number of rows, or of persons, that you declare. What the noise would drown is then refused before
        the charge.

    Returns
    -------
    scores : PrivateScores
        Every score with its 95 % interval.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateLogisticRegression
    >>> from curvedp.analyses.scores import private_scores
    >>> X = np.random.default_rng(0).uniform(-1, 1, (9000, 2))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> model = PrivateLogisticRegression(bounds=(-1, 1), classes=[False, True]).fit(X[:5000], y[:5000])
    >>> scores = private_scores(model, X[5000:], y[5000:], epsilon=1.0, delta=1e-6, random_state=0)
    >>> bool(scores["auc"].low < 1.0), scores.privacy.private
    (True, False)
    """
    fitted = load(model) if isinstance(model, str | os.PathLike) else model
    plan = score_plan(layout_of(fitted, by, unit), Budget(epsilon, delta))
    if rows is not None:
        plan.require(rows)
    book = account(ledger)
    records = read_scored(fitted, X, y, by, unit=unit, exposure=exposure, delimiter=delimiter)
    released = execute(plan, records, ledger=book, label="scores", random_state=random_state)
    target = fitted.schema_.target
    scores = PrivateScores(*released.value, plan.layout, released.privacy, target, released.receipt)
    keep(book, released.receipt, scores.to_dict)
    return scores


@dataclass(frozen=True)
class PrivateScorer:
    """A private scorer for `scoring=` of scikit-learn's tools: every call is charged (epsilon, delta) (V-1).

    It stands where scikit-learn takes a scorer: `cross_val_score`, `cross_validate`, `GridSearchCV`,
    `permutation_importance`. What such a tool costs in all is the sum over its fits and its scores, which the
    ledger shows. The promise is about the rows of one fold: it holds for the table where no record decides
    in which fold others are. A coin for every record does that, scikit-learn's own folds do not.

    Parameters
    ----------
    scoring : str or sequence of str
        By scikit-learn's names. A regression: "r2", "neg_root_mean_squared_error",
        "neg_mean_absolute_error", of counts "neg_mean_poisson_deviance", "d2_tweedie_score", of a quantile
        "neg_mean_pinball_loss". A classifier: "accuracy", "roc_auc" (of more than two classes
        "roc_auc_ovr"), and with probabilities "neg_brier_score", "neg_log_loss", "d2_log_loss_score".
        Several cost no more than one: they come in one charge, as a dict.
    epsilon, delta : float
        What every call costs.
    ledger : Ledger, path or Account, optional
        Charged at every call, before anything is computed. With `n_jobs`, pass a path.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import PredefinedSplit, cross_val_score
    >>> from curvedp import PrivateRidge
    >>> from curvedp.analyses.scores import private_scorer
    >>> X = np.random.default_rng(0).uniform(-1, 1, (9000, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1))
    >>> coins = np.random.default_rng().integers(3, size=len(X))
    >>> scorer = private_scorer("r2", epsilon=1.0, delta=1e-6)
    >>> scores = cross_val_score(model, X, X[:, 0], cv=PredefinedSplit(coins), scoring=scorer)
    >>> scores.shape, bool(scores.min() > 0.5)
    ((3,), True)
    """

    scoring: str | Sequence[str]
    _: KW_ONLY
    epsilon: float
    delta: float
    ledger: Payer = None

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        every = [name for names in _SCORINGS.values() for name in names]
        for name in self.names:
            if name not in every:
                raise InvalidInput(f"{name!r} is no private score: choose among {', '.join(every)}")
        if not self.names:
            raise InvalidInput(f"name at least one score: choose among {', '.join(every)}")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.scoring,) if isinstance(self.scoring, str) else tuple(self.scoring)

    def __call__(
        self, estimator: BaseEstimator, X: TableLike, y: ColumnLike = None
    ) -> float | dict[str, float]:
        """The score of a fitted model on these rows, or all of them where several were asked for.

        `estimator` is a model of curvedp, a pipeline that ends in one, or a search that chose one. NaN where
        the noise leaves nothing to be said.
        """
        model = getattr(estimator, "best_estimator_", estimator)
        if hasattr(model, "steps"):
            steps, model = model[:-1], model[-1]
            X = shielded(lambda: steps.transform(X), unreadable)
        layout = layout_of(model)
        known = {
            name: (own, sign)
            for name, (own, sign, probable) in _SCORINGS[layout.task].items()
            if (layout.probabilities or layout.counts or not probable)
            and (layout.quantile or own != "pinball_loss")
        }
        for name in self.names:
            if name not in known:
                of = f"{type(model).__name__}: choose among {', '.join(known)}"
                raise InvalidInput(f"{name!r} is no private score of {of}")
        scores = private_scores(model, X, y, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger)
        found = {name: known[name][1] * scores[known[name][0]].value for name in self.names}
        return found[self.scoring] if isinstance(self.scoring, str) else found


private_scorer = PrivateScorer  # it stands where scikit-learn takes a function


# Scores in plain words: names for people, and the few that say most.

NAMES = {  # for the head of a column, and in a sentence
    "pinball_loss": ("check loss", "mean check (pinball) loss"),
    "below": ("not above", "share of records not above the predicted quantile"),
    "r2": ("R²", "R², the share of the variance that is explained"),
    "rmse": ("RMSE", "RMSE, the typical error, large ones counting more"),
    "mae": ("MAE", "mean absolute error"),
    "accuracy": ("accuracy", "accuracy, the share predicted right"),
    "auc": ("AUC", "AUC, how often a positive record ranks above a negative one"),
    "brier": ("Brier", "Brier score, the mean squared error of probabilities"),
    "log_loss": ("log-loss", "log-loss of probabilities"),
    "deviance": ("deviance", "mean Poisson deviance"),
    "d2": ("D²", "D², the share of the deviance that is explained"),
}


def headline(group: GroupScores) -> Iterator[tuple[str, Score]]:
    """The scores that say most, in the order of `NAMES`."""
    yield from ((name, group[name]) for name in NAMES if name in group.scores)


def fairness(scores: PrivateScores) -> list[tuple[str, list[tuple[str, Score]]]]:
    """(level, scores) of each level: the headline, then how often each class is predicted and found."""
    classes = scores.layout.classes
    asked = classes[-1:] if len(classes) == 2 else classes
    names = [f"{what} {label}" for label in asked for what in ("predicted", "recall of")]
    each = scores.levels.items()
    return [(level, [*headline(own), *((name, own[name]) for name in names)]) for level, own in each]


# The page of private scores: one self-contained HTML file, made of released and public numbers only.

_AT_ONE_PLACE = (
    "Thin lines: at any one place of the horizontal axis, the curve of all people of whom these records are "
    "a sample lies between them with 95 %. Both numbers of a point are noisy, and the lines allow for both."
)
_AGAINST_DIAGONAL = "Thin lines: 95 % intervals, for each point and for how far it is off the diagonal."
_QUANTILES = (
    "At 0.05 the line shows what 5 % of the records fall below. Thin lines: 95 % intervals at seven "
    "levels, from 0.05 to 0.95; they follow the border of the figure where noise hides an end."
)


def _figure(title: str, x: Axis, y: Axis, series: list[Series], words: str) -> dict[str, str]:
    """A chart with its title, a legend of the curves that have a label, and how to read it."""
    named = legend([s for s in series if s.label])
    return {"title": title, "chart": line_chart(title, x, y, series), "legend": named, "words": words}


def scores_page(scores: PrivateScores, target: str, record: str, ledger: LedgerState | None = None) -> str:
    """The HTML of the scores of one model."""
    by_level = []  # (heading, (level, score) of each level, one scale for all of them)
    for own in zip(*(rows for _, rows in fairness(scores)), strict=True):
        name, each = own[0][0], list(zip(scores.levels, (score for _, score in own), strict=True))
        ends = [end for _, s in own if s.is_known for end in (s.low, s.high) if math.isfinite(end)]
        scale = Axis("", *(_room(min(ends), max(ends)) if ends else (0.0, 1.0)))
        by_level.append((NAMES.get(name, (name,))[0], each, scale))
    return rendered(
        "score.html",
        s=scores,
        g=scores.privacy,
        target=target,
        record=record,
        headline=[(NAMES[name][1], name, score) for name, score in headline(scores.overall)],
        figures=list(figures(scores)),
        by_level=by_level,
        ledger=ledger,
        document=scores.to_dict(),
    )


def figures(scores: PrivateScores) -> Iterator[dict[str, str]]:
    """ROC, precision and recall, calibration of a classifier; calibration and residuals of a regression."""
    curves = scores.overall.curves
    if scores.layout.task == "regression":
        if (curve := curves["calibration"]).x:
            first, last = curve.x[0], curve.x[-1]
            low, high = min(*curve.low, *curve.x), max(*curve.high, *curve.x)
            straight = Series("as predicted", [first, last], [first, last], reference=True)
            series = [Series("mean target", curve.x, curve.y), *_band(curve), straight]
            at, of = Axis("mean prediction", *_room(first, last)), Axis("mean target", *_room(low, high))
            words = f"Records in ten groups by their prediction. {_AGAINST_DIAGONAL}"
            yield _figure("Calibration of predictions", at, of, series, words)
        if (curve := curves["residuals"]).x:
            span = curve.y[-1] - curve.y[0]  # an end that noise hides is far beyond it: not drawn
            low, high = max(min(curve.low), curve.y[0] - span), min(max(curve.high), curve.y[-1] + span)
            series = [Series("target − prediction", curve.x, curve.y), *_band(curve)]
            at = Axis("share of records below", 0.0, 1.0)
            of = Axis("target − prediction", *_room(low, high))
            yield _figure("Quantiles of the residuals", at, of, series, _QUANTILES)
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
        yield _figure(title, Axis(x, 0.0, 1.0), Axis(y, 0.0, 1.0), series, words)


def _band(curve: Curve) -> list[Series]:
    return [Series("", curve.x, ends, reference=True) for ends in (curve.low, curve.high)]


def _room(low: float, high: float) -> tuple[float, float]:
    """A range with a little room; of some width."""
    width = max(high - low, 1e-6 * max(abs(low), abs(high)), 1e-300)
    return low - 0.05 * width, high + 0.05 * width
