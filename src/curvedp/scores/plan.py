"""What the plans of all scores share: a layout, a budget, and its split into Gaussian parts (V-1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from curvedp.budget import Budget
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameters
from curvedp.scores.noisy import Split
from curvedp.scores.source import ScoredRecords, ScoreLayout


@dataclass(frozen=True, eq=False)
class ScorePlan(ABC):
    """Calibrated noise for every part."""

    layout: ScoreLayout
    budget: Budget
    split: Split
    mechanism: ClassVar[str]

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            budget=self.budget,
            neighbours=self.layout.neighbours,
            mechanism=self.mechanism,
            accounting="gaussian",
            theorem="(V-1)",
            parameters=Parameters(public.MU(self.split.profile.mu)),
            profile=self.split.profile,
        )

    def accept(self, records: ScoredRecords) -> None:
        """Enough rows for the noise, where their number is public."""
        if self.layout.neighbours.count_is_public:
            self.enough(records.rows)

    @abstractmethod
    def enough(self, rows: int) -> None:
        """Refuse so few rows that nothing could be said of them."""
