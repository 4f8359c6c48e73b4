"""A table whose histogram may choose far too wide a clip: a few records are much longer than the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from curvedp.data.rows import ArrayRows
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared

ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace")
_TRAIN = 960


def spreads(runs: int) -> Iterator[str]:
    """Quantiles of R² over noises at ε = 1, with and without `doubt`; a twentieth is eight times as long."""
    random = np.random.default_rng(0)
    X = 0.08 * random.normal(size=(1200, 7))
    X[random.random(1200) < 0.05] *= 8.0
    X = np.column_stack([np.clip(X, -1, 1), np.ones(1200)])
    y = np.clip(0.5 * X @ random.normal(size=8) + 0.12 * random.normal(size=1200), -1, 1)
    yield "| adjacency | doubt | 5 % | 25 % | median |"
    yield "|---|---|---|---|---|"
    for adjacency in ADJACENCIES:
        problem = Problem(Squared(), domain=Domain(math.sqrt(8.0), 1.0, adjacency))
        rows = ArrayRows(X[:_TRAIN], y[:_TRAIN], problem.domain)
        for doubt in (0.0, Rule().doubt):
            plan = Recentered(Rule(doubt=doubt)).plan(problem, 8, Budget(1.0, 1e-6))
            fits = [plan.release(rows, np.random.default_rng(seed)).theta[:, 0] for seed in range(runs)]
            errors = [np.mean((np.clip(X[_TRAIN:] @ theta, -1, 1) - y[_TRAIN:]) ** 2) for theta in fits]
            low, quarter, middle = np.quantile(1.0 - np.array(errors) / np.var(y[_TRAIN:]), [0.05, 0.25, 0.5])
            yield f"| `{adjacency}` | {doubt:g} | {low:.2f} | {quarter:.2f} | {middle:.2f} |"
