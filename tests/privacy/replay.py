"""How far one record moves what a plan asks: run on a table, then on a neighbour with the same answers.

`curvedp.auditing.totals` does both runs; all choices made from released numbers are the same in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from curvedp import randomness
from curvedp.auditing import Case, Pair, exam
from curvedp.auditing.totals import Run
from curvedp.auditing.totals import replay as replayed
from curvedp.data.rows.base import Rows
from curvedp.transcript import Normal
from curvedp_studies.mechanisms.wishart import NoisyCurvature


@dataclass(frozen=True)
class Moved:
    """How far one record moved what was asked."""

    gaussian: float  # √Σ (‖Δq‖/σ)², to be at most the planned μ
    curvature: float  # the largest ‖ΔS‖ in units of its bound, to be at most 1; 0 where none was released
    rank: int  # of the change of the curvature
    shifts: tuple[float, ...] = ()  # ‖Δq‖/σ of every Gaussian release, in order
    shares: tuple[float, ...] = ()  # what the plan pays for each of them
    names: tuple[str, ...] = ()


def replay(plan: Any, left: Rows, right: Rows, random: np.random.Generator) -> Run:
    """Both runs; they ask the same number of questions, with the same noise."""
    run = replayed(plan.release, left, right, random)
    assert run.answers and len(run.others) == len(run.answers), "one table leads to another question"
    for (own, _), other in zip(run.answers, run.others, strict=True):
        scales = [[v for k, v in vars(law).items() if k in ("sigma", "sigma2", "m")] for law in (own, other)]
        assert scales[0] == scales[1], "a noise scale depends on the data"
    return run


def moved_by(plan: Any, left: Rows, right: Rows, patch: pytest.MonkeyPatch, seed: int = 0) -> Moved:
    """Replay the plan on `right` with what it released on `left`."""
    shifts, shares, names, sizes, rank = [], [], [], [0.0], 0
    run = replay(plan, left, right, randomness.generator(seed))
    for (own, _), other in zip(run.answers, run.others, strict=True):
        if isinstance(own, Normal) and isinstance(other, Normal):
            shifts.append(float(np.linalg.norm(other.query - own.query) / own.sigma))
            shares.append(own.share)
            names.append(own.name)
        if isinstance(own, NoisyCurvature) and isinstance(other, NoisyCurvature):
            change = other.query - own.query
            eigenvalues = np.linalg.eigvalsh((change + change.T) / 2) / plan.problem.domain.x_norm**2
            sizes.append(float(np.abs(eigenvalues).max()))
            rank = max(rank, int(np.sum(np.abs(eigenvalues) > 1e-6)))
    total = math.sqrt(math.fsum(s * s for s in shifts))
    return Moved(total, max(sizes), rank, tuple(shifts), tuple(shares), tuple(names))


def refuted(plan: Any, left: Any, right: Any, replays: int = 20, transcripts: int = 400) -> tuple[str, ...]:
    """The premises that do not hold on this pair of tables."""
    pair = Pair("the pair", left, right)
    return exam(Case("", plan, [pair]), replays=replays, transcripts=transcripts).problems
