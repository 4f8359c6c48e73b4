"""Attacks on plans that release sums with Gaussian noise: counts, moments, scores.

Between N(q, σ²I) and N(q', σ²I) the likelihood ratio is an increasing function of ⟨value, q' − q⟩ alone: no
test tells the two tables apart better than a threshold of that number. Where a release is more than one sum,
any number of it may be handed in as the statistic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from curvedp.audit import bounds
from curvedp.audit.samplers import flat
from curvedp.audit.scores import ScoreCells
from curvedp.errors import InvalidInput
from curvedp.plans import Plan, Source
from curvedp.randomness import generator

S = TypeVar("S", bound=Source)
T = TypeVar("T")

_CHOOSE = 1 / 3  # of the releases choose the event, the others test it


def towards(direction: ArrayLike) -> Callable[[object], float]:
    """⟨every number of the value in order, direction⟩: the best statistic where the noise is isotropic and
    `direction` is how far the query moves from one table to its neighbour."""
    weights = np.ravel(np.asarray(direction, dtype=np.float64))
    return lambda value: float(flat(value) @ weights)


def attack(
    plan: Plan[S, T],
    source: S,
    neighbour: S,
    statistic: Callable[[T], float],
    fits: int = 20_000,
    seed: int = 0,
    confidence: float = 0.99,
) -> float:
    """The ε that `fits` releases from two neighbours prove the plan to have at least, at its own δ.

    The claim is refuted where this exceeds plan.guarantee.epsilon; a sound plan is refuted with probability
    at most 1 − confidence. The tables are the attacker's own: nothing here is private.
    """
    if not (fits >= 100 and 0 < confidence < 1):
        raise InvalidInput("an attack needs fits ≥ 100 and 0 < confidence < 1")
    random, each = generator(seed), fits // 2
    values = np.array(
        [[statistic(plan.release(side, random)) for _ in range(each)] for side in (source, neighbour)]
    )
    chosen = int(_CHOOSE * each)
    cells = ScoreCells.of(values[:, :chosen].ravel())
    choose = [cells.histogram(side[:chosen]) for side in values]
    test = [cells.histogram(side[chosen:]) for side in values]
    epsilon, delta = plan.guarantee.epsilon, plan.guarantee.delta
    alpha = (1 - confidence) / 4  # two bounds in two directions
    found = [0.0]
    for p, q in ((0, 1), (1, 0)):
        event, _ = bounds.best_events(choose[p], choose[q], epsilon, delta)
        found.append(bounds.evidence(test[p], test[q], event, epsilon, delta, alpha).epsilon)
    return max(found)
