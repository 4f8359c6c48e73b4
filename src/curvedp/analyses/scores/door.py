"""`private_scores` and `private_scorer`: how good a model is on private records, through the one door."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from sklearn.base import BaseEstimator

from curvedp.arrays import ColumnLike, TableLike
from curvedp.budget import Budget
from curvedp.errors import InvalidInput, shielded
from curvedp.estimators.base import PrivateLinearModel, load
from curvedp.ledger import Ledger
from curvedp.privacy.guarantee import Guarantee
from curvedp.receipt import Receipt
from curvedp.record import charged, keep
from curvedp.release import execute
from curvedp.schema import Categorical
from curvedp.schema.source import unreadable
from curvedp.scores.classes import ClassScorePlan
from curvedp.scores.plan import ScorePlan
from curvedp.scores.regression import RegressionScorePlan
from curvedp.scores.results import Findings, GroupScores, Json, Score
from curvedp.scores.source import ScoreLayout, layout_of, read_scored

# What scikit-learn calls a score, larger being better: the name here, the sign, whether of probabilities.
_SCORINGS = {
    "regression": {
        "r2": ("r2", 1.0, False),
        "neg_root_mean_squared_error": ("rmse", -1.0, False),
        "neg_mean_absolute_error": ("mae", -1.0, False),
    },
    "classification": {
        "accuracy": ("accuracy", 1.0, False),
        "roc_auc": ("auc", 1.0, False),
        "roc_auc_ovr": ("auc", 1.0, False),
        "neg_brier_score": ("brier", -1.0, True),
        "neg_log_loss": ("log_loss", -1.0, True),
    },
}


@dataclass(frozen=True)
class PrivateScores:
    """How good a model is on private records, with intervals for noise and chance.

    Made by `private_scores`. ``scores["auc"]`` is a score of all records, ``scores.levels["f"]["auc"]`` of
    those of one level.

    Parameters
    ----------
    overall : GroupScores
        The scores of all records.
    levels : mapping of str to GroupScores
        The scores by level of the compared column; empty without one.
    layout : ScoreLayout
        What was scored: the task, the classes, the compared column.
    privacy : Guarantee
        What the release promises.
    target : str or None
        The column that is predicted, where it has a name.
    receipt : Receipt or None
        Where it was charged; None without a ledger.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.scores import private_scores
    >>> X = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X[:2000], X[:2000, 0])
    >>> scores = private_scores(model, X[2000:], X[2000:, 0], epsilon=1.0, delta=1e-6)
    >>> sorted(scores.overall.scores)
    ['mae', 'r2', 'rmse']
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

    def to_dict(self) -> Json:
        """Plain values, ready for JSON."""
        return {
            "target": self.target,
            "task": self.layout.task,
            "classes": list(self.layout.classes),
            "by": self.layout.by,
            "overall": self.overall.to_dict(),
            "levels": {name: group.to_dict() for name, group in self.levels.items()},
            "guarantee": self.privacy.to_dict(),
            **charged(self.receipt),
        }


def score_plan(layout: ScoreLayout, budget: Budget) -> ScorePlan:
    """The plan that the task of the model asks for; refuses what no theorem covers."""
    layout.neighbours.refuse_units("scores", "score on public rows, or fit and score one row for each person")
    kind = ClassScorePlan if layout.classes else RegressionScorePlan
    return kind.calibrated(layout, budget)


def private_scores(
    model: PrivateLinearModel | str | os.PathLike[str],
    X: TableLike,
    y: ColumnLike = None,
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    by: str | Categorical | None = None,
    rows: int | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> PrivateScores:
    """Scores of a model on private records, all of them in one charge of (epsilon, delta) (V-1).

    A regression gets R², RMSE, MAE, quantiles of its residuals and a calibration curve; a classifier the
    confusion matrix, accuracy, AUC with its ROC curve, precision and recall, and, where it predicts
    probabilities, a calibration curve, the Brier score and the log-loss. Who is protected is what the
    model's schema says. Score records that the model was not fitted to: others look better than they are.

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
    ledger : Ledger or path, optional
        Charged before anything is computed from the records.
    by : str or Categorical, optional
        Compare the scores by the levels of this column: one of the model's schema, or one declared here.
        A record without a declared level counts for the whole only.
    rows : int, optional
        A number of rows that you declare. What the noise would drown is then refused before the charge.
    delimiter : str, optional
        What separates the cells of a CSV file; what the schema says if it is left out.
    random_state : int, optional
        A seed, for research: the scores are then not private.

    Returns
    -------
    scores : PrivateScores
        Every score with its 95 % interval.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateLogisticRegression
    >>> from curvedp.scores import private_scores
    >>> X = np.random.default_rng(0).uniform(-1, 1, (9000, 2))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> model = PrivateLogisticRegression(bounds=(-1, 1), classes=[False, True]).fit(X[:5000], y[:5000])
    >>> scores = private_scores(model, X[5000:], y[5000:], epsilon=1.0, delta=1e-6, random_state=0)
    >>> bool(scores["auc"].low < 1.0), scores.privacy.private
    (True, False)
    """
    fitted = load(model) if isinstance(model, str | os.PathLike) else model
    plan = score_plan(layout_of(fitted, by), Budget(epsilon, delta))
    if rows is not None:
        plan.require(rows)
    book = ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)
    records = read_scored(fitted, X, y, by, delimiter=delimiter)
    released = execute(plan, records, ledger=book, label="scores", random_state=random_state)
    found: Findings = released.value
    scores = PrivateScores(
        found.overall, found.levels, plan.layout, released.privacy, fitted.schema_.target, released.receipt
    )
    keep(book, released.receipt, scores.to_dict)
    return scores


@dataclass(frozen=True)
class PrivateScorer:
    """A scorer for scikit-learn's tools whose every call is one private, charged release (V-1).

    Made by `private_scorer`.

    Parameters
    ----------
    scoring : str or tuple of str
        What is returned, by scikit-learn's names.
    epsilon, delta : float
        What every call costs.
    ledger : Ledger or path, optional
        Charged at every call.
    """

    scoring: str | tuple[str, ...]
    epsilon: float
    delta: float
    ledger: Ledger | str | os.PathLike[str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The asked scores."""
        return (self.scoring,) if isinstance(self.scoring, str) else self.scoring

    def __call__(
        self, estimator: BaseEstimator, X: TableLike, y: ColumnLike = None
    ) -> float | dict[str, float]:
        """The score of a fitted model on these rows, or all of them where several were asked for.

        Parameters
        ----------
        estimator : fitted estimator
            A model of curvedp, a pipeline that ends in one, or a search that chose one.
        X : table
            The private rows.
        y : column of length n, optional
            Their target.

        Returns
        -------
        score : float, or dict of str to float
            NaN where the noise leaves nothing to be said.
        """
        model = getattr(estimator, "best_estimator_", estimator)
        if hasattr(model, "steps"):
            steps, model = model[:-1], model[-1]
            X = shielded(lambda: steps.transform(X), unreadable)
        layout = layout_of(model)
        known = {
            name: (own, sign)
            for name, (own, sign, probable) in _SCORINGS[layout.task].items()
            if layout.probabilities or not probable
        }
        unknown = next((name for name in self.names if name not in known), None)
        if unknown is not None:
            raise InvalidInput(
                f"{unknown!r} is no private score of {type(model).__name__}: choose among {', '.join(known)}"
            )
        scores = private_scores(model, X, y, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger)
        found = {name: known[name][1] * scores[known[name][0]].value for name in self.names}
        return found[self.scoring] if isinstance(self.scoring, str) else found


def private_scorer(
    scoring: str | Sequence[str],
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> PrivateScorer:
    """A private scorer for `scoring=` of scikit-learn's tools: every call is charged (epsilon, delta).

    It stands where scikit-learn takes a scorer: `cross_val_score`, `cross_validate`, `GridSearchCV`,
    `permutation_importance`. What such a tool costs in all is the sum over its fits and its scores, which the
    ledger shows. The promise is about the rows of one fold: it holds for the table where no record decides
    in which fold others are. A coin for every record does that, scikit-learn's own folds do not.

    Parameters
    ----------
    scoring : str or sequence of str
        By scikit-learn's names. A regression: "r2", "neg_root_mean_squared_error",
        "neg_mean_absolute_error". A classifier: "accuracy", "roc_auc" (of more than two classes
        "roc_auc_ovr"), and with probabilities "neg_brier_score", "neg_log_loss". Several cost no more than
        one: they come in one charge, as a dict.
    epsilon, delta : float
        What every call costs.
    ledger : Ledger or path, optional
        Charged at every call, before anything is computed. With `n_jobs`, pass a path.

    Returns
    -------
    scorer : PrivateScorer
        To be called with (estimator, X, y).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import PredefinedSplit, cross_val_score
    >>> from curvedp import PrivateRidge
    >>> from curvedp.scores import private_scorer
    >>> X = np.random.default_rng(0).uniform(-1, 1, (9000, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1))
    >>> coins = np.random.default_rng().integers(3, size=len(X))
    >>> scorer = private_scorer("r2", epsilon=1.0, delta=1e-6)
    >>> scores = cross_val_score(model, X, X[:, 0], cv=PredefinedSplit(coins), scoring=scorer)
    >>> scores.shape, bool(scores.min() > 0.5)
    ((3,), True)
    """
    Budget(epsilon, delta)
    asked = scoring if isinstance(scoring, str) else tuple(scoring)
    every = [name for names in _SCORINGS.values() for name in names]
    for name in (asked,) if isinstance(asked, str) else asked:
        if name not in every:
            raise InvalidInput(f"{name!r} is no private score: choose among {', '.join(every)}")
    if not asked:
        raise InvalidInput(f"name at least one score: choose among {', '.join(every)}")
    return PrivateScorer(asked, epsilon, delta, ledger)
