"""The scale of a column: which signed powers of two its numbers lie between, by a noisy histogram (Q-2).

Scale 0 holds 0; scale i > 0 holds 2^{i−1075} ≤ x < 2^{i−1074}, scale −i the same with x negative: all doubles
up to 1e150.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curvedp.amounts import exact
from curvedp.arrays import LARGEST_ENTRY, FloatArray
from curvedp.errors import InvalidInput
from curvedp.neighbours import Neighbours
from curvedp.randomness import LARGEST_SCALE, discrete_laplace
from curvedp.transcript import UNSTATED, Laplace, told

Scales = NDArray[np.int64]

_SMALLEST = -1074  # the exponent of the smallest double
LARGEST = math.frexp(LARGEST_ENTRY)[1] - _SMALLEST
COUNT = 2 * LARGEST + 1
NEAR = 2  # scales on either side of an occupied one that have candidates, too
MOST_STEPS, LEAST_STEPS = 2**13, 2**10  # candidates at an occupied scale, by how many there are
ROUND_STEPS = 2**8  # round numbers, which are repeated until they are as many
FEWER = 16  # times fewer at a scale near one
_GRID = 2**10  # steps of the noise for each record


@dataclass(frozen=True)
class CountNoise:
    """Discrete Laplace noise for counts: a record is in one cell, so that they are ε-private (Q-2)."""

    scale: int
    epsilon: float = UNSTATED

    @classmethod
    def of(cls, epsilon: float, neighbours: Neighbours) -> CountNoise:
        scale = math.ceil(_GRID * neighbours.moves / exact(epsilon))
        if scale > LARGEST_SCALE:
            raise InvalidInput(f"epsilon is too small to count anything, {epsilon:g}: ask for more")
        return cls(scale, epsilon)

    def added_to(self, counts: Scales, random: np.random.Generator) -> FloatArray:
        """The counts with noise, in records."""
        noisy = np.asarray(counts + discrete_laplace(random, self.scale, len(counts)) / _GRID)
        law = Laplace(counts.astype(np.float64), self.scale / _GRID, self.epsilon, "counts", 1.0 / _GRID)
        return told(random, law, noisy)

    def quantile(self, chance: float) -> float:
        """The least t, to rounding, with P(noise ≥ t) ≤ chance, in records."""
        return self.scale / _GRID * max(-math.log(chance) - math.log1p(math.exp(-1 / self.scale)), 0.0)


def histogram(values: FloatArray) -> Scales:
    """How many of the values lie at each scale, from −LARGEST to LARGEST."""
    exponent = np.frexp(values)[1].astype(np.int64) - _SMALLEST
    scale = np.where(values == 0, 0, np.where(values < 0, -exponent, exponent))
    return np.bincount(scale + LARGEST, minlength=COUNT)


def candidates(occupied: Scales) -> FloatArray:
    """Numbers in equal steps through every occupied scale, and fewer at those near it, in order.

    A public function of the scales. Fewer, because numbers beyond all values are equally good lower (or
    upper) quantiles. Round numbers, the integers among them, come several times: columns hold them.
    """
    filled = occupied[occupied != 0]
    steps = max(MOST_STEPS >> max(len(filled) - 1, 0).bit_length(), LEAST_STEPS)
    reach = np.arange(-NEAR, NEAR + 1)
    near = np.setdiff1d(np.clip(np.add.outer(filled, reach), -LARGEST, LARGEST), np.append(occupied, 0))
    zero = np.zeros(int(np.any(occupied == 0)))
    fine = [_numbers(filled, steps), _numbers(near, steps // FEWER), zero]
    coarse = [_numbers(filled, ROUND_STEPS), _numbers(near, ROUND_STEPS // FEWER), zero]
    return np.sort(np.concatenate([*fine, *(coarse * (steps // ROUND_STEPS))]))


def _numbers(scales: Scales, steps: int) -> FloatArray:
    """`steps` equal steps through every scale but 0, both ends included."""
    with np.errstate(over="ignore", under="ignore"):
        sizes = np.ldexp(1 + np.arange(steps + 1) / steps, np.abs(scales)[:, None] + (_SMALLEST - 1))
    signed = np.clip(np.sign(scales)[:, None] * sizes, -LARGEST_ENTRY, LARGEST_ENTRY)
    return np.asarray(signed, dtype=np.float64).ravel()
