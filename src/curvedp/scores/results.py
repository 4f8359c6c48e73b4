"""What a private score gives: numbers with intervals, curves with bands, for all records and by level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from curvedp.looks.noisy import Noisy, Z

Json = dict[str, object]


@dataclass(frozen=True)
class Score:
    """A private estimate and its 95 % interval, which covers the noise and the chance of the sample.

    Parameters
    ----------
    value : float
        The estimate; NaN where the noise leaves nothing to be said.
    low, high : float
        The interval for the value in the population that the records are a sample of.
    noise, sampling : float
        The standard deviations of the two parts: privacy noise, and another sample of the same size.

    Examples
    --------
    >>> from curvedp.scores import Score
    >>> print(Score(0.871, 0.852, 0.890, 0.006, 0.008))
    0.871 (0.852 to 0.89)
    """

    value: float
    low: float
    high: float
    noise: float = 0.0
    sampling: float = 0.0

    @classmethod
    def of(cls, found: Noisy[float], low: float = -math.inf, high: float = math.inf) -> Score:
        """The estimate and value ± 1.96 standard deviations, inside of what is possible."""
        reach = Z * math.sqrt(found.variance)
        value = min(max(found.value, low), high)
        return cls(
            value,
            min(max(found.value - reach, low), value),
            max(min(found.value + reach, high), value),
            found.sigma,
            math.sqrt(found.sampling),
        )

    @classmethod
    def unknown(cls, low: float = -math.inf, high: float = math.inf) -> Score:
        """Nothing can be said."""
        return cls(math.nan, low, high, math.inf, math.inf)

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate."""
        return math.isfinite(self.value)

    def __str__(self) -> str:
        if not self.is_known:
            return "cannot be said: too few records for this much noise"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class Curve:
    """Points (x, y) with a 95 % interval for each y; none where nothing can be said.

    ROC, and precision by recall: at any one x, named beforehand, the curve of the population lies between
    `low` and `high`, joined by straight lines, with at least 95 % (V-4); not all of it at once. Calibration:
    the interval is for y in the group of records, and for its distance from the diagonal. Residuals: the
    quantile of level x.
    """

    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @classmethod
    def through(cls, points: list[tuple[float, Score]]) -> Curve:
        known = [(x, score.value, score.low, score.high) for x, score in points if score.is_known]
        return cls(*zip(*known, strict=True))


@dataclass(frozen=True)
class GroupScores:
    """The scores of all records, or of those of one level.

    Parameters
    ----------
    count : Score
        The number of records with a usable target.
    scores : mapping of str to Score
        By name, such as "auc" or "r2".
    confusion : tuple of tuples of float
        Noisy counts, true class by predicted class; empty in a regression.
    curves : mapping of str to Curve
        By name, such as "roc" or "calibration".
    """

    count: Score
    scores: Mapping[str, Score]
    confusion: tuple[tuple[float, ...], ...] = ()
    curves: Mapping[str, Curve] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Score:
        return self.scores[name]

    def to_dict(self) -> Json:
        """Plain values, ready for JSON."""
        return {
            "count": asdict(self.count),
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "confusion": [list(row) for row in self.confusion],
            "curves": {name: asdict(curve) for name, curve in self.curves.items()},
        }


@dataclass(frozen=True)
class Findings:
    """What a plan releases: the scores of all records, and of each level of the compared column."""

    overall: GroupScores
    levels: Mapping[str, GroupScores] = field(default_factory=dict)
