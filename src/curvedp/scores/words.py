"""Scores in plain words: names for people, and the few that say most."""

from __future__ import annotations

from collections.abc import Iterator

from curvedp.scores.door import PrivateScores
from curvedp.scores.results import GroupScores, Score

NAMES = {
    "r2": "R², the share of the variance that is explained",
    "rmse": "RMSE, the typical error, large ones counting more",
    "mae": "mean absolute error",
    "accuracy": "accuracy, the share predicted right",
    "auc": "AUC, how often a positive record ranks above a negative one",
    "brier": "Brier score, the mean squared error of probabilities",
    "log_loss": "log-loss of probabilities",
}
SHORT = {
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
    "accuracy": "accuracy",
    "auc": "AUC",
    "brier": "Brier",
    "log_loss": "log-loss",
}


def headline(group: GroupScores) -> Iterator[tuple[str, Score]]:
    """The scores that say most, in the order of `NAMES`."""
    for name in NAMES:
        if name in group.scores:
            yield name, group[name]


def fairness(scores: PrivateScores) -> list[tuple[str, list[tuple[str, Score]]]]:
    """(level, scores) of each level: the headline, then how often each class is predicted and found."""
    found = []
    for level, group in scores.levels.items():
        rows = list(headline(group))
        for label in scores.layout.classes[-1:] if len(scores.layout.classes) == 2 else scores.layout.classes:
            rows.append((f"predicted {label}", group[f"predicted {label}"]))
            rows.append((f"recall of {label}", group[f"recall of {label}"]))
        found.append((level, rows))
    return found


def heading(name: str) -> str:
    """A short name for the head of a column."""
    return SHORT.get(name, name)
