"""Is the noise what it says? Residuals of many answers against N(0, 1), alone and with each other.

A run gives one vector of residuals for each answer, and all of them together are independent N(0, 1) where
every answer was drawn from the law that was stated. Each test has a chance of about `LEVEL` to reject that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy import special, stats

from curvedp.arrays import FloatArray

LEVEL = 1e-6  # of one test: an audit of everything makes some thousand
_FEW = 50  # runs in which draws that are used twice are looked for
_FINEST = 2.0**-31  # of the grids in units of their σ: as near as two equal draws are told apart


@dataclass(frozen=True, eq=False)
class Residual:
    """Of one answer in one run; `query` is what was asked and `step` the grid, in units of the noise."""

    run: int
    name: str
    z: FloatArray
    query: FloatArray
    step: float


def suspicions(residuals: Sequence[Residual]) -> Iterator[str]:
    """What is wrong with the noise, if anything: which answer, and how."""
    by_name = defaultdict(list)
    for one in residuals:
        if one.z.size:
            by_name[one.name].append(one)
    for name, some in {**by_name, "all answers": [r for r in residuals if r.z.size]}.items():
        z = np.concatenate([r.z for r in some]) if some else np.zeros(0)
        if z.size >= 2 and _two_sided_chi2(float(z @ z), z.size) < LEVEL:
            scale = math.sqrt(float(z @ z) / z.size)
            yield f"{name}: the noise has {scale:.3f} times the stated deviation, in {z.size} numbers"
        if z.size >= 50 and stats.kstest(z, special.ndtr).pvalue < LEVEL:
            yield f"{name}: the noise does not have the stated law, in {z.size} numbers"
        along = [float(r.z @ r.query) / float(np.linalg.norm(r.query)) for r in some if r.query.any()]
        if along and _tail(sum(along) / math.sqrt(len(along))) < LEVEL:
            yield f"{name}: the noise goes along with what was asked"
    yield from _together(by_name)
    yield from _twice([one for one in residuals if one.run < _FEW])


def _together(by_name: dict[str, list[Residual]]) -> Iterator[str]:
    """Noise of two answers of one run, or of one answer in two runs, that goes along with each other."""
    by_run = {name: _by_run(some) for name, some in by_name.items()}
    for (name, runs), (other, others) in combinations(by_run.items(), 2):
        if _go_along((np.hstack(runs[r]), np.hstack(others[r])) for r in runs.keys() & others.keys()):
            yield f"{name} and {other}: their noise goes along with each other"
    for name, runs in by_run.items():
        if _go_along(pair for answers in runs.values() for pair in pairwise(answers)):
            yield f"{name}: the noise of one answer goes along with that of the next"
        if _go_along(pairwise(np.hstack(answers) for answers in runs.values())):
            yield f"{name}: the noise of one run goes along with that of another"


def _by_run(some: list[Residual]) -> dict[int, list[FloatArray]]:
    found: dict[int, list[FloatArray]] = defaultdict(list)
    for one in some:
        found[one.run].append(one.z)
    return found


def _go_along(both: Iterable[tuple[FloatArray, FloatArray]]) -> bool:
    """Whether Σ zz'/√Σz'², which is N(0, 1) where z is independent of z', is too large."""
    total = square = 0.0
    for one, other in both:
        n = min(one.size, other.size)
        total += float(one[:n] @ other[:n])
        square += float(other[:n] @ other[:n])
    return square > 0 and _tail(total / math.sqrt(square)) < LEVEL


def _twice(residuals: Sequence[Residual]) -> Iterator[str]:
    """Numbers that were drawn once and used twice: equal in size, which independent noise hardly ever is."""
    sizes = np.concatenate([np.abs(r.z) for r in residuals] or [np.zeros(0)])
    places = np.repeat(np.arange(len(residuals)), [r.z.size for r in residuals])
    near = np.repeat([2.0 * max(r.step, _FINEST) for r in residuals], [r.z.size for r in residuals])
    order = np.argsort(sizes)
    gap = np.diff(sizes[order])
    reach = np.maximum(near[order][1:], near[order][:-1])
    equal = np.flatnonzero(gap <= reach)
    # Neighbours in order are apart by less than t with probability about t·N·p, p the density of |z| there.
    density = 2.0 * np.exp(-np.square(sizes[order][1:]) / 2) / math.sqrt(2.0 * math.pi)
    expected = float(np.sum(np.minimum(reach * len(sizes) * density, 1.0)))
    if len(equal) > 1 and stats.poisson.sf(len(equal) - 1, expected) < LEVEL:
        first = residuals[places[order][equal[0]]], residuals[places[order][equal[0] + 1]]
        names = " and ".join(dict.fromkeys(f"{r.name} (run {r.run + 1})" for r in first))
        yield f"{names}: one draw of noise is used twice, {len(equal)} numbers in all"


def _two_sided_chi2(square: float, n: int) -> float:
    return float(2.0 * min(stats.chi2.sf(square, n), stats.chi2.cdf(square, n)))


def _tail(z: float) -> float:
    return float(2.0 * special.ndtr(-abs(z)))
