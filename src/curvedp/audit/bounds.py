"""From counts to lower bounds on ε and δ, with a stated confidence.

If a mechanism is (ε, δ)-private then P(E) ≤ e^ε Q(E) + δ for every event E, P and Q the laws of its output on
adjacent datasets. A lower confidence bound of P(E) and an upper one of Q(E) therefore refute every ε below
log((P − δ)/Q) at that δ, and every δ below P − e^ε Q at that ε. The event is chosen on one sample and
tested on another, so that the choice costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

if TYPE_CHECKING:  # the same code runs beside a GPU, where numpy and scipy are all there is
    from curvedp.arrays import FloatArray

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
_SMALLEST_GROUP = 20  # counts behind an estimated likelihood ratio
_MOST_GROUPS = 400
_THRESHOLD_LEVEL, _ESTIMATED_LEVEL = 0.05, 1e-3


def proportion_lower(k: ArrayLike, n: int, alpha: float) -> FloatArray:
    """Clopper and Pearson: P(Bin(n, p) ≥ k) = alpha at the returned p; 0 for k = 0."""
    k = np.asarray(k, dtype=np.float64)
    return np.where(k > 0, special.betaincinv(np.maximum(k, 1), n - np.maximum(k, 1) + 1, alpha), 0.0)


def proportion_upper(k: ArrayLike, n: int, alpha: float) -> FloatArray:
    """Clopper and Pearson: P(Bin(n, p) ≤ k) = alpha at the returned p; 1 for k = n."""
    k = np.asarray(k, dtype=np.float64)
    return np.where(
        k < n, special.betainccinv(np.minimum(k, n - 1) + 1, n - np.minimum(k, n - 1), alpha), 1.0
    )


def epsilon_bound(p: FloatArray, q: FloatArray, delta: float) -> FloatArray:
    """log((p − δ)/q): what p ≤ e^ε q + δ forces ε to be at least; −∞ when it forces nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > delta, np.log(np.maximum(p - delta, 0.0)) - np.log(q), -math.inf)


def delta_bound(p: FloatArray, q: FloatArray, epsilon: float) -> FloatArray:
    """p − e^ε q."""
    return np.asarray(p - math.exp(min(epsilon, 700.0)) * q)


@dataclass(frozen=True)
class Evidence:
    """Bounds on P(E) and Q(E) that hold together with probability 1 − 2·alpha, and what they refute."""

    p_lower: float
    q_upper: float
    epsilon: float  # lower bound at the claimed δ
    delta: float  # lower bound at the claimed ε


def evidence(
    p_counts: Counts, q_counts: Counts, event: Mask, epsilon: float, delta: float, alpha: float
) -> Evidence:
    """What the test sample says of one event, each of its two bounds failing with probability alpha."""
    p_total, q_total = int(p_counts.sum()), int(q_counts.sum())
    if min(p_total, q_total) == 0:
        return Evidence(0.0, 1.0, -math.inf, -math.inf)
    p = proportion_lower(p_counts[event].sum(), p_total, alpha)
    q = proportion_upper(q_counts[event].sum(), q_total, alpha)
    return Evidence(float(p), float(q), float(epsilon_bound(p, q, delta)), float(delta_bound(p, q, epsilon)))


def best_events(
    p_counts: Counts, q_counts: Counts, epsilon: float, delta: float, *, ordered: bool = False
) -> tuple[Mask, Mask]:
    """The events of the choosing sample with the best bound on ε at δ, and on δ at ε.

    Candidates: all cells above a threshold, all below one, and, unless the cells are `ordered` by likelihood
    ratio, those of largest estimated ratio. Confidence bounds rather than frequencies keep a lucky handful of
    counts from winning; stricter ones where luck has more to choose from.
    """
    p_total, q_total = int(p_counts.sum()), int(q_counts.sum())
    none = np.zeros(len(p_counts), dtype=bool)
    best: list[tuple[float, Mask]] = [(-math.inf, none), (-math.inf, none)]
    if min(p_total, q_total) == 0:
        return none, none
    for order, alpha in _orders(p_counts, q_counts, ordered):
        p = proportion_lower(np.cumsum(p_counts[order]), p_total, alpha)
        q = proportion_upper(np.cumsum(q_counts[order]), q_total, alpha)
        for which, value in enumerate((epsilon_bound(p, q, delta), delta_bound(p, q, epsilon))):
            top = int(np.argmax(value))
            if value[top] > best[which][0]:
                event = none.copy()
                event[order[: top + 1]] = True
                best[which] = (float(value[top]), event)
    return best[0][1], best[1][1]


def _orders(p_counts: Counts, q_counts: Counts, ordered: bool) -> Iterator[tuple[NDArray[np.intp], float]]:
    """Orders in which cells join an event, and the level of their bounds: from the top, from the bottom, by
    estimated likelihood ratio."""
    cells = np.arange(len(p_counts))
    yield cells[::-1], _THRESHOLD_LEVEL
    yield cells, _THRESHOLD_LEVEL
    if ordered:
        return
    total = p_counts + q_counts
    size = max(_SMALLEST_GROUP, int(total.sum()) // _MOST_GROUPS)
    # Neighbouring cells share one estimate until enough counts stand behind it.
    group = np.minimum(np.cumsum(total) - total, total.sum() - 1).astype(np.int64) // size
    p, q = (np.bincount(group, weights=c) for c in (p_counts, q_counts))
    ratio = np.log((p + 0.5) / p.sum()) - np.log((q + 0.5) / q.sum())
    yield np.argsort(-ratio[group], kind="stable"), _ESTIMATED_LEVEL
