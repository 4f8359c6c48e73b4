"""How many records lie beyond a clip, and what clipping them can do: from one noisy histogram of lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.special import softmax

from curvedp.arrays import FloatArray
from curvedp.forms import Packed, Positive

_INDICES = np.geomspace(1.0, 10.0, 24)  # α of a tail N(e) ∝ e^−α
_PRIOR = -0.5 * (np.log(_INDICES / 3.5) / 0.3) ** 2  # log density over them: a priori α is about 3.5
_FIRM = 6.0  # deviations of a cell that surely holds some records
HIDDEN = 0.7  # of a deviation: so many records beyond an edge may always be hidden by noise
_HEAVIEST = 1.0 / 3.0  # of α − 1: no mean excess above three times the edge is believed


@dataclass(frozen=True, eq=False)
class Tail:
    """Noisy counts of gradient lengths in the cells cut by `edges`, each with deviation `scale`.

    From the last cell with a firm count on, the tail is taken to fall like e^−α, α with a public prior; what
    follows is its posterior mean.
    """

    edges: Annotated[FloatArray, Packed("e")]
    counts: Annotated[FloatArray, Packed("c")]  # one more than edges
    scale: Positive

    @cached_property
    def _start(self) -> int:
        """The lower edge of the last cell that holds a firm count."""
        firm = np.flatnonzero(self.counts[1:] >= _FIRM * self.scale)
        return int(firm[-1]) if firm.size else 0

    @cached_property
    def _cells(self) -> FloatArray:
        """The share of the tail in each cell beyond the start (columns) for every α (rows)."""
        fallen = (self.edges[self._start :] / self.edges[self._start]) ** -_INDICES[:, None]
        return np.asarray(fallen - np.append(fallen[:, 1:], np.zeros((len(fallen), 1)), axis=1))

    @cached_property
    def _sizes(self) -> FloatArray:
        """N(e₀) at the start e₀ for every α: least squares over the cells, so that far ones hardly count."""
        seen = self.counts[self._start + 1 :]
        return np.asarray(np.maximum(self._cells @ seen / np.sum(self._cells**2, axis=1), 0.0))

    @cached_property
    def _surviving(self) -> FloatArray:
        """N(e) at every edge (columns) for every α (rows): as counted before the start, e^−α beyond."""
        ratio = np.maximum(self.edges / self.edges[self._start], 1.0)
        between = np.cumsum(self.counts[1 : self._start + 1][::-1])[::-1]
        before = np.append(np.maximum(between, 0.0), np.zeros(len(self.edges) - self._start))
        return np.asarray(self._sizes[:, None] * ratio ** -_INDICES[:, None] + before)

    @cached_property
    def _posterior(self) -> FloatArray:
        expected = self._sizes[:, None] * self._cells
        seen = self.counts[self._start + 1 :]
        misfit = (seen - expected) ** 2 / (self.scale**2 + expected + 1.0)  # noise and Poisson variance
        return np.asarray(softmax(_PRIOR - 0.5 * misfit.sum(axis=1)))

    @property
    def expected(self) -> FloatArray:
        """The posterior mean of N(e): records longer than each edge."""
        return np.asarray(self._posterior @ self._surviving)

    @property
    def index(self) -> float:
        """The posterior mean of α."""
        return float(self._posterior @ _INDICES)

    @property
    def excess(self) -> FloatArray:
        """The posterior mean of Σ(|g| − e)⁺ beyond each edge e; a count that noise hides is not 0."""
        mean = self.edges / np.maximum(_INDICES - 1.0, _HEAVIEST)[:, None]
        return np.maximum(self._posterior @ (mean * self._surviving), HIDDEN * self.scale * self.edges)
