"""How long things typically are, from a noisy histogram of their lengths; no data, no privacy."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf

from curvedp.arrays import FloatArray

EDGES = 13  # of such a histogram
_MISFIT = 0.1  # of all records in any cell: lengths are not half-normal
_OCTAVES = 8.0  # that the edges span


def look_edges(largest: float, reach: float = 1.0) -> FloatArray:
    """Edges from reach·`largest` down over eight octaves, and as many more as `reach` has."""
    octaves = _OCTAVES + math.log2(reach)
    return np.asarray(largest * reach * 2.0 ** (-octaves * np.linspace(1.0, 0.0, EDGES)))


def typical_length(
    edges: FloatArray, counts: FloatArray, deviation: float, n: float, guess: float, octaves: float
) -> float:
    """A posterior mean, of the logarithm, of the root mean square s of n lengths.

    A cell is believed to hold n·P(cell | |N(0, s²)|), up to the noise and a tenth of n; log₂ s to be
    log₂ guess up to `octaves`, and s to lie between half of the smallest and half of the largest edge.
    """
    span = math.log2(edges[-1] / edges[0])
    s = edges[-1] * 2.0 ** -np.arange(1.0, span + 1.125, 0.25)
    below = erf(edges / (math.sqrt(2.0) * s[:, None]))
    cells = np.diff(below, axis=1, prepend=0.0, append=1.0)
    error = math.hypot(deviation, _MISFIT * n)
    fit = -0.5 * np.sum((counts - n * cells) ** 2, axis=1) / error**2
    fit -= 0.5 * (np.log2(s / guess) / octaves) ** 2
    posterior = np.exp(fit - fit.max())
    return float(2.0 ** (posterior @ np.log2(s) / posterior.sum()))
