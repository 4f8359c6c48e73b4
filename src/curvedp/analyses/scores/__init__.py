"""Private scores of a fitted model on private records; `private_scorer` is for scikit-learn's tools."""

from curvedp.analyses.scores.door import PrivateScorer, PrivateScores, private_scorer, private_scores
from curvedp.analyses.scores.means import Curve, GroupScores, Score
from curvedp.analyses.scores.plans import score_plan

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
