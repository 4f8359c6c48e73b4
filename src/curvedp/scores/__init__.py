"""Private scores of a fitted model on private records: `private_scores`."""

from curvedp.scores.door import PrivateScores, private_scores, score_plan
from curvedp.scores.results import Curve, GroupScores, Score

__all__ = ["Curve", "GroupScores", "PrivateScores", "Score", "private_scores", "score_plan"]
