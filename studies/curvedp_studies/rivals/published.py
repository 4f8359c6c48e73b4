"""A promise at one level: what a paper proves for its (ε, δ), and nothing for any other ε."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.privacy.budget import Budget
from curvedp.privacy.profiles import Curve


@dataclass(frozen=True)
class PointProfile(Curve):
    """δ(e) = δ for e ≥ ε and 1 below."""

    budget: Budget

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        return np.where(np.asarray(epsilon) >= self.budget.epsilon, self.budget.delta, 1.0)
