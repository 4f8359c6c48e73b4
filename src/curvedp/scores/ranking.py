"""AUC in one step from noisy distribution functions (V-2).

With any F₀ and F₁ near the distribution functions of the scores of negatives and positives,

    1 − AUC = E₁[1 − F₀(z)] + E₀[F₁(z)] − ∫(1 − F₀)dF₁ − (a product of both errors),

so that two means, each over bounded numbers that are mostly small, replace a sum over many noisy cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.scores.means import Estimate, Mean, Window
from curvedp.scores.sketch import Tail, distribution, find_tail

HEAVY = 16.0  # a few records are beaten by far more others than the rest


@dataclass(frozen=True, eq=False)
class Ranking:
    """Noisy counts of negatives and positives in cells of the score, noise of deviation `sigma` on each."""

    edges: FloatArray
    negatives: FloatArray
    positives: FloatArray
    sigma: float

    @cached_property
    def below(self) -> tuple[FloatArray, FloatArray]:
        """(F₀, F₁) at the edges."""
        return distribution(self.negatives), distribution(self.positives)

    @cached_property
    def start(self) -> float:
        """∫(1 − F₀)dF₁ = ∫F₁dF₀: what the cells alone say of 1 − AUC."""
        negative, positive = self.below
        middle = 0.5 * (negative[1:] + negative[:-1])
        return float(np.diff(positive) @ (1.0 - middle))

    def losses(self, score: FloatArray, positive: np.ndarray) -> FloatArray:
        """1 − F₀(z) of a positive record, F₁(z) of a negative one: the share of others that beat it."""
        below_negative, below_positive = self.below
        of_negative, of_positive = self.tails
        return np.where(
            positive,
            of_positive.values(1.0 - np.interp(score, self.edges, below_negative)),
            of_negative.values(np.interp(score, self.edges, below_positive)),
        )

    @cached_property
    def tails(self) -> tuple[Tail, Tail]:
        """Where to clip the losses of negatives and of positives: at a half, farther where more is seen."""
        below_negative, below_positive = self.below
        found = (
            find_tail(below_positive[1:], self.negatives, self.sigma, HEAVY),
            find_tail(1.0 - below_negative[:-1][::-1], self.positives[::-1], self.sigma, HEAVY),
        )
        first, second = (Tail(min(max(t.clip, 0.5), 1.0), 0.0) for t in found)
        return first, second

    def windows(self) -> tuple[Window, Window]:
        """Of the losses of negatives and of positives."""
        centre = self.start
        first, second = (Window(0.0, max(t.mean, centre), centre) for t in self.tails)
        return first, second

    def auc(self, means: tuple[Mean, Mean], counts: tuple[Estimate, Estimate]) -> Estimate:
        """AUC from the mean losses of negatives and positives, and their numbers."""
        of_negatives, of_positives = (mean.of(count) for mean, count in zip(means, counts, strict=True))
        cells, sizes = len(self.negatives), max(counts[0].value, 1.0) * max(counts[1].value, 1.0)
        product = (self.sigma**2 * cells / sizes) ** 2 / 6.0
        return Estimate(
            1.0 - (of_negatives.value + of_positives.value - self.start),
            of_negatives.noise + of_positives.noise + product,
            of_negatives.sampling + of_positives.sampling,
        )
