"""Sums of what blocks contribute: a fixed order, and a count of the additions that a term has met.

Adding k numbers in any order errs by at most about k·2⁻⁵³ times the sum of their sizes, k being the longest
chain of additions behind one term. A balanced tree keeps that chain short, however many blocks there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, FloatArray

Parts = tuple[FloatArray, ...]

FAN_IN = 2**4  # sums that one task of an engine joins
# Blocks of a partition along one tree, partitions along another, ROWS_AT_MOST of each.
LEVELS_AT_MOST = math.ceil(math.log2(ROWS_AT_MOST)) + 4 * math.ceil(math.log(ROWS_AT_MOST, FAN_IN))


@dataclass(frozen=True, eq=False)
class Total:
    """Sums over some records; no record has passed through more than `additions` additions."""

    parts: Parts
    additions: int

    def __add__(self, other: Total) -> Total:
        parts = tuple(a + b for a, b in zip(self.parts, other.parts, strict=True))
        return Total(parts, max(self.additions, other.additions) + 1)


def zeros(*shapes: tuple[int, ...]) -> Total:
    """The sum over no record."""
    return Total(tuple(np.zeros(shape) for shape in shapes), 0)


def tree_sum(terms: Iterable[Total]) -> Total | None:
    """Σ terms along a balanced binary tree over their order, one sum per level in memory; None of none."""
    levels: list[tuple[int, Total]] = []
    for total in terms:
        height = 0
        while levels and levels[-1][0] == height:
            total = levels.pop()[1] + total
            height += 1
        levels.append((height, total))
    if not levels:
        return None
    _, total = levels.pop()
    for _, earlier in reversed(levels):
        total = earlier + total
    return total
