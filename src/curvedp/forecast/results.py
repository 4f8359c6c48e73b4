"""What a forecast says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from curvedp import catalogue
from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.guarantee import Guarantee

ROWS_LIMIT = 10**9


@dataclass(frozen=True)
class Spread:
    """Scores of simulated runs: eight of ten lie between `low` and `high`, half of them above `median`.

    Attributes
    ----------
    low, median, high : float
        The 10 %, 50 % and 90 % quantiles.
    """

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, scores: FloatArray | Sequence[float]) -> Spread:
        low, median, high = np.quantile(np.asarray(scores), (0.1, 0.5, 0.9)).tolist()
        return cls(low, median, high)

    @property
    def words(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} … {self.high:.3f})"


@dataclass(frozen=True)
class Verdict:
    """Whether the noise dominates, in one sentence; `tone` is "good", "warn" or "bad".

    `caveats` are sentences on what the synthetic table has and the fit may not have.
    """

    rows: int
    rows_needed: int | None
    share: float
    caveats: tuple[str, ...] = ()

    @property
    def tone(self) -> str:
        return "bad" if self.share < 0.5 else "warn" if self.share < 0.9 else "good"

    @property
    def sentence(self) -> str:
        kept = f"about {100 * min(max(self.share, 0.0), 1.0):.0f} % of what can be learned from such a table"
        if self.share >= 0.9:
            return f"The noise is small beside the data: the private model keeps {kept}."
        if self.share >= 0.5:
            return f"The noise is visible but does not dominate: the private model keeps {kept}."
        need = f"more than {ROWS_LIMIT:,}" if self.rows_needed is None else f"about {self.rows_needed:,}"
        return f"With these settings the answer is mostly noise; you need {need} rows."


@dataclass(frozen=True)
class ForecastRow:
    """One mechanism and accounting at the asked (ε, δ)."""

    mechanism: str
    accounting: str
    guarantee: Guarantee
    scores: Spread
    share: float
    rows_needed: int | None
    utility_bound: float | None
    scores_by_epsilon: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """The median of the simulated runs."""
        return self.scores.median

    @property
    def label(self) -> str:
        return self.mechanism if self.accounting == "auto" else f"{self.mechanism} ({self.accounting})"


@dataclass(frozen=True)
class Forecast:
    """Every mechanism that covers the task, best expected score first, and why the others do not."""

    rows_declared: int
    features: int
    task: catalogue.Task
    budget: Budget
    adjacency: Adjacency
    score_name: str
    nonprivate_score: float
    constant_score: float
    runs: int
    rows: tuple[ForecastRow, ...]
    refused: tuple[tuple[str, str], ...]
    epsilons: tuple[float, ...]
    rows_limit: int = ROWS_LIMIT

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.adjacency)

    def told(self, words: Callable[[str], str]) -> Forecast:
        """The same with refusals in other words."""
        return replace(self, refused=tuple((label, words(reason)) for label, reason in self.refused))

    @property
    def verdict(self) -> Verdict:
        """Of the best mechanism."""
        best = self.rows[0]
        return Verdict(self.rows_declared, best.rows_needed, best.share)


@dataclass(frozen=True)
class Reached:
    """From which ε on a score is reached, worked out on a synthetic table.

    Attributes
    ----------
    score : float
        What was asked for.
    tried : tuple of (float, Spread)
        Every ε that was tried, in increasing order, and the scores of its runs.
    nonprivate_score : float
        The score without privacy, which no ε exceeds.
    """

    score: float
    score_name: str
    rows_declared: int
    features: int
    delta: float
    adjacency: Adjacency
    mechanism: str
    nonprivate_score: float
    runs: int
    tried: tuple[tuple[float, Spread], ...]

    @property
    def epsilon(self) -> float | None:
        """The smallest ε of which half of the runs reach the score; None: no ε that was tried."""
        return next((epsilon for epsilon, found in self.tried if found.median >= self.score), None)

    @property
    def sure_epsilon(self) -> float | None:
        """The smallest ε of which nine of ten runs do."""
        return next((epsilon for epsilon, found in self.tried if found.low >= self.score), None)

    @property
    def sentence(self) -> str:
        asked = f"{self.score_name} {self.score:g}"
        if self.score >= self.nonprivate_score:
            return f"{asked} is out of reach: such a table gives {self.nonprivate_score:.3f} without privacy."
        if self.epsilon is None:
            return f"{asked} is not reached up to ε = {self.tried[-1][0]:g}: more rows or fewer columns help."
        spread = dict(self.tried)[self.epsilon]
        sure = (
            f"nine of ten do so not even with ε = {self.tried[-1][0]:g}"
            if self.sure_epsilon is None
            else f"nine of ten from ε = {self.sure_epsilon:g} on"
        )
        return (
            f"Half of the runs reach {asked} from ε = {self.epsilon:g} on, where eight of ten lie between "
            f"{spread.low:.3f} and {spread.high:.3f}; {sure}."
        )
