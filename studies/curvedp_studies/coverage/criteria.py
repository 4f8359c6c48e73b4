"""What the intervals must meet, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curvedp_studies.coverage.catalogue import CPS
from curvedp_studies.coverage.cells import Score

BAND = (0.93, 0.98)  # of a cell's mean coverage
LEAST_CELL, LEAST_COEFFICIENT = 0.90, 0.85
MOST_REFUSED = 0.10
WIDTHS = {1.0: 1.35, 3.0: 1.10}  # of gaussian-10 at n = 20,000, add_remove, by ε
_EASY = ("gaussian", "hetero", "heavy", CPS)


@dataclass(frozen=True)
class Criterion:
    asked: str
    measured: str
    met: bool


def inside(score: Score) -> bool:
    return BAND[0] <= score.coverage <= BAND[1]


def easy(score: Score) -> bool:
    """Where refusals must be rare."""
    large = score.n >= 5000 and score.epsilon >= 1.0 and score.adjacency == "add_remove"
    return large and score.population.startswith(_EASY)


def criteria(scores: Sequence[Score]) -> list[Criterion]:
    """Those that the scores can answer."""
    told = [score for score in scores if score.counts]
    found: list[Criterion] = []
    if told:
        share = float(np.mean([inside(score) for score in told]))
        low = min(told, key=lambda score: score.coverage)
        known = [score for score in told if np.isfinite(score.worst)]
        found += [
            Criterion(
                f"mean coverage of a cell in [{BAND[0]}, {BAND[1]}] in at least 95 % of cells",
                f"{100 * share:.0f} % of {len(told)}; {sum(s.coverage > BAND[1] for s in told)} above, "
                f"{sum(s.coverage < BAND[0] for s in told)} below",
                share >= 0.95,
            ),
            Criterion(
                f"no cell below {LEAST_CELL:.2f}",
                f"{sum(s.coverage < LEAST_CELL for s in told)} below; "
                f"least {low.coverage:.3f} ({cell_of(low)})",
                low.coverage >= LEAST_CELL,
            ),
        ]
        if known:
            bad = min(known, key=lambda score: score.worst)
            below = sum(s.worst < LEAST_COEFFICIENT for s in known)
            found.append(
                Criterion(
                    f"no single coefficient below {LEAST_COEFFICIENT:.2f}",
                    f"in {below} of {len(known)} cells; least {bad.worst:.2f} ({cell_of(bad)})",
                    bad.worst >= LEAST_COEFFICIENT,
                )
            )
    simple = [score for score in scores if easy(score)]
    if simple:
        most = max(simple, key=lambda score: score.refused)
        over = sum(s.refused > MOST_REFUSED for s in simple)
        found.append(
            Criterion(
                "at most 10 % refused on gaussian, hetero, heavy, cps_mixtape; n ≥ 5000, ε ≥ 1, add_remove",
                f"more in {over} of {len(simple)} cells; most {100 * most.refused:.0f} % ({cell_of(most)})",
                over == 0,
            )
        )
    for epsilon, most_width in WIDTHS.items():
        for name, limit in (("gaussian-10", most_width), (CPS, np.inf)):
            width = [s.width for s in scores if _is(s, name, epsilon)]
            if width:
                asked = f"≤ {limit:.2f}" if np.isfinite(limit) else "stated"
                what = f"width on {name}, n = 20,000, ε = {epsilon:g}: {asked}"
                found.append(Criterion(what, f"{width[0]:.2f}", width[0] <= limit))
    return found


def cell_of(score: Score) -> str:
    shown = f"{score.population}, n = {score.n:,}, ε = {score.epsilon:g}"
    return shown if score.adjacency == "add_remove" else f"{shown}, {score.adjacency}"


def _is(score: Score, name: str, epsilon: float) -> bool:
    return (score.population, score.n, score.epsilon, score.adjacency) == (
        name,
        20_000,
        epsilon,
        "add_remove",
    )
