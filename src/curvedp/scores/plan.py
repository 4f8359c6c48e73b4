"""What the plans of all scores share: one run finds the scores of all records, then those by level (V-1)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.looks.noisy import GaussianPlan, Releases, Split
from curvedp.scores.results import Findings, GroupScores
from curvedp.scores.source import ScoredRecords, ScoreLayout


@dataclass(frozen=True, eq=False)
class Groups:
    """Which of `size` groups each record is in, −1: none; `share` is what a number of all of them costs, in
    units of its price for all records."""

    prefix: str
    of: NDArray[np.intp]
    size: int
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class ScorePlan(GaussianPlan):
    """All scores of a model under one (ε, δ); which parts they are made of, a run without records tells."""

    layout: ScoreLayout
    theorem = "(V-1)"

    @classmethod
    def calibrated(cls, layout: ScoreLayout, budget: Budget) -> Self:
        """From public facts alone."""
        nobody = np.zeros(0, dtype=np.intp)
        score = np.zeros((0, max(len(layout.scored), 1)))
        records = ScoredRecords(layout, score, np.zeros(0), nobody, nobody, np.zeros((0, 2)), 0)
        releases = Releases(layout.neighbours)
        cls.findings(records, releases)
        return cls(layout, budget, Split.of(releases.parts, budget))

    def accept(self, records: ScoredRecords) -> None:
        if self.layout.neighbours.count_is_public:
            self.require(records.rows)

    def require(self, rows: int) -> None:
        if rows < self.fewest_rows:
            raise InvalidInput(
                "at this epsilon the noise drowns scores of fewer than about "
                f"{math.ceil(self.fewest_rows):,} rows: raise epsilon, or score more rows"
            )

    @property
    @abstractmethod
    def fewest_rows(self) -> float:
        """With fewer, nothing could be said."""

    def release(self, records: ScoredRecords, random: np.random.Generator) -> Findings:
        return self.findings(records, Releases(self.layout.neighbours, self.split, random))

    @classmethod
    @abstractmethod
    def findings(cls, records: ScoredRecords, releases: Releases) -> Findings:
        """All scores; whatever the records are, the same parts are released."""


def scored(
    records: ScoredRecords, scores: Callable[[Groups], list[GroupScores]], share_of_levels: float
) -> Findings:
    """The scores of all records as one group, and of each level."""
    levels = records.layout.levels
    overall = scores(Groups("", np.zeros(len(records.target), dtype=np.intp), 1))[0]
    found = scores(Groups("level ", records.level, len(levels), share_of_levels)) if levels else []
    return Findings(overall, dict(zip(levels, found, strict=True)))
