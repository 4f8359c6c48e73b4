"""`private_scores`: how good a model is on private records, through the one door."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from curvedp.arrays import ColumnLike, TableLike
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.estimators.base import PrivateLinearModel, load
from curvedp.ledger import Ledger
from curvedp.neighbours import Neighbours
from curvedp.privacy.guarantee import Guarantee
from curvedp.release import execute
from curvedp.schema import Categorical
from curvedp.scores.classes import ClassScorePlan, class_score_plan
from curvedp.scores.regression import RegressionScorePlan, regression_score_plan
from curvedp.scores.results import Findings, GroupScores, Json, Score
from curvedp.scores.source import ScoreLayout, layout_of, read_scored


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
            "task": self.layout.task,
            "classes": list(self.layout.classes),
            "by": self.layout.by,
            "overall": self.overall.to_dict(),
            "levels": {name: group.to_dict() for name, group in self.levels.items()},
            "guarantee": self.privacy.to_dict(),
        }


def score_plan(layout: ScoreLayout, budget: Budget) -> ClassScorePlan | RegressionScorePlan:
    """The plan that the task of the model asks for; refuses what no theorem covers."""
    refuse_units(layout.neighbours)
    return class_score_plan(layout, budget) if layout.classes else regression_score_plan(layout, budget)


def refuse_units(neighbours: Neighbours) -> None:
    """A person with many rows moves a count by more than one."""
    if neighbours.unit is not None:
        raise InvalidInput(
            f"scores protect one row, and {neighbours.unit!r} says that a person may have several: score on "
            "public rows, or fit and score one row for each person, without unit"
        )


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
    X : data frame, mapping, array, sparse matrix or path of a CSV or Parquet file
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
        plan.enough(rows)
    book = ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)
    records = read_scored(fitted, X, y, by, delimiter=delimiter)
    released = execute(plan, records, ledger=book, label="scores", random_state=random_state)
    found: Findings = released.value
    return PrivateScores(found.overall, found.levels, plan.layout, released.privacy)
