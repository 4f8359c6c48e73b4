"""What a forecast says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

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

    def ties(self, other: Spread) -> bool:
        """Whether one median lies where eight of ten runs of the other do."""
        return other.low <= self.median <= other.high or self.low <= other.median <= self.high


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
    """One mechanism and accounting at the asked (ε, δ); those of one `rank` tie."""

    mechanism: str
    accounting: str
    guarantee: Guarantee
    scores: Spread
    share: float
    rows_needed: int | None
    utility_bound: float | None
    scores_by_epsilon: tuple[float, ...] = ()
    rank: int = 1

    @property
    def score(self) -> float:
        """The median of the simulated runs."""
        return self.scores.median

    @property
    def label(self) -> str:
        return self.mechanism if self.accounting == "auto" else f"{self.mechanism} ({self.accounting})"


def ranked(rows: Sequence[ForecastRow]) -> tuple[ForecastRow, ...]:
    """Best expected score first; what ties with the best of the rest shares its rank, in the given order."""
    left, found = sorted(rows, key=lambda row: -row.score), list[ForecastRow]()
    while left:
        tied = list(takewhile(left[0].scores.ties, (row.scores for row in left[1:])))
        group = left[: 1 + len(tied)]
        found += [replace(row, rank=len(found) + 1) for row in sorted(group, key=rows.index)]
        left = left[len(group) :]
    return tuple(found)


@dataclass(frozen=True)
class Forecast:
    """Every mechanism that covers the task, the best first, and why the others do not."""

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

    def place(self, row: ForecastRow) -> str:
        """Its rank, with “=” where others share it."""
        return f"{row.rank}{'=' if sum(other.rank == row.rank for other in self.rows) > 1 else ''}"

    @property
    def verdict(self) -> Verdict:
        """Of the first mechanism."""
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


@dataclass(frozen=True)
class HalfWidth:
    """The expected 95 % interval of one coefficient, and the rows that would be enough.

    Attributes
    ----------
    level : float or None
        The share of a level, which is stated against the weighted mean; None: a number, for one deviation of
        it.
    class_share : float or None
        The share of the rarer class where the target has two.
    half_width : float
        In deviations of what the model leaves unexplained, or in log-odds.
    multiple : float
        Of the interval without privacy.
    df : float
        Degrees of freedom.
    why : str
        Why it would not be stated; "" where it would.
    rows_enough : int or None
        The fewest rows (two digits) at which it is stated, and as narrow as was asked for.
    """

    level: float | None
    class_share: float | None
    half_width: float
    multiple: float
    df: float
    why: str
    rows_enough: int | None

    @property
    def name(self) -> str:
        of = "a number" if self.level is None else f"a level of {100 * self.level:g} %"
        return of if self.class_share is None else f"{of}, class of {100 * self.class_share:g} %"

    @property
    def words(self) -> str:
        return "not stated" if self.why else f"± {self.half_width:.2g} ({self.multiple:.2f}×)"


@dataclass(frozen=True)
class Widths:
    """What intervals a default fit of so many rows would have.

    Attributes
    ----------
    kappa : float
        κ = nμ/d, the signal-to-noise ratio of the fit.
    intervals : tuple of HalfWidth
        A number first; empty where such fits have no intervals.
    reason : str
        Why they have none.
    too_few : float or None
        The share below which a class is too few to be told apart; None: the target is a number.
    asked : float or None
        The half-width that rows were asked for.
    """

    rows_declared: int
    features: int
    task: catalogue.Task
    budget: Budget
    adjacency: Adjacency
    kappa: float
    intervals: tuple[HalfWidth, ...]
    reason: str = ""
    too_few: float | None = None
    asked: float | None = None

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.adjacency)

    @property
    def measure(self) -> str:
        return "residual deviations" if self.task == "regression" else "log-odds"

    @property
    def tone(self) -> str:
        if not self.intervals or self.intervals[0].why:
            return "bad"
        return "good" if self.intervals[0].multiple <= 1.5 else "warn"

    @property
    def sentence(self) -> str:
        if not self.intervals:
            return f"No intervals: {self.reason}."
        first = self.intervals[0]
        if first.why:
            name = first.name[0].upper() + first.name[1:]
            return f"{name} may have no interval: {first.why}; {_enough(first)}."
        return (
            f"The interval of {first.name} would be ± {first.half_width:.2g} {self.measure}, "
            f"{first.multiple:.2f} times as wide as without privacy."
        )

    @property
    def class_sentence(self) -> str:
        """From which share on a class can be told apart; "" where the target is a number."""
        if self.too_few is None:
            return ""
        if self.too_few >= 0.5:
            return f"Too few rows to tell two classes apart, whatever their shares: κ = {self.kappa:.3g}."
        return f"A class of less than {100 * self.too_few:.2g} % is too few at κ = {self.kappa:.3g}."


def _enough(item: HalfWidth) -> str:
    if item.rows_enough is None:
        return f"not even {ROWS_LIMIT:,} rows are enough"
    return f"{item.rows_enough:,} rows would be enough"
