"""Private scores of a fitted model on private records; `private_scorer` is for scikit-learn's tools."""

from curvedp.scores.door import PrivateScorer, PrivateScores, private_scorer, private_scores, score_plan
from curvedp.scores.results import Curve, GroupScores, Score

__all__ = [
    "Curve",
    "GroupScores",
    "PrivateScorer",
    "PrivateScores",
    "Score",
    "private_scorer",
    "private_scores",
    "score_plan",
]
