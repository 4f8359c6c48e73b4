"""The adjacent datasets on which the theory says a mechanism is weakest.

A context that both datasets share, and a change of one record. What the proofs of sections 4 and 5 make
extreme: a record at the norm bound whose gradient is parallel to the data's; no data, so that W alone holds
its direction; a gradient G known to the attacker and carried by no curvature (very many very short records),
large enough that the answer shows W, or of the one size at which curvature and gradient of the record move
the answer together; records that are aligned, opposite, orthogonal; answers at the margin where φ'' jumps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.audit.records import Records, no_records
from curvedp.problem import Problem

# Norm of the context's records over B: their curvature is G times this. Shorter ones would have to be so many
# that the rounding of their sum, which output noise pays for, hides the answer.
_SHORT = 1e-4
_FILL = 1e3  # curvature that fills the other directions, in records

# κ = nμ/d of a walk's contexts, where the rule does different things: few bold rounds; many small ones with a
# clip from the histogram, from the first look where that is noise; no pilot.
_QUICK, _SLOW, _NOISY, _PRECISE = 400.0, 80.0, 5.0, 8000.0
_PLAIN = 0.05  # length of those contexts' records over B


@dataclass(frozen=True, eq=False)
class Pair:
    """Adjacent datasets D (`left`) and D' (`right`); `directions` are those of the records that differ."""

    name: str
    left: Records
    right: Records
    directions: FloatArray


def worst_pairs(problem: Problem, d: int, sizes: Sequence[float]) -> list[Pair]:
    """Every context with every change that makes neighbours, the likeliest to succeed first.

    `sizes` are those of the shared gradient; see `FitPlan.pulls`.
    """
    return [
        _pair(f"{change}, {context}", shared, before, after)
        for context, shared in _contexts(problem, d, sizes)
        for change, before, after in _changes(problem, d)
    ]


def walk_pairs(problem: Problem, d: int, mu: float) -> list[Pair]:
    """Pairs for mechanisms that walk by clipped gradients in a metric of their own, shift μ in all.

    Both targets at many short records: their gradients cancel, so that the one record, at the norm bound and
    clipped in every round, has its full sensitivity in every release. Under `replace` a record is turned
    round and shortened: gradients are then opposite, and lengths differ.
    """
    B = problem.domain.x_norm
    labels = _labels(problem)

    def plain(kappa: float, axes: Sequence[int]) -> Records:
        records, n = no_records(problem.domain, d), kappa * d / mu
        for j, y in product(axes, labels):
            records = records.plus(_PLAIN * B * _axis(d, j), y, math.ceil(n / (2 * len(axes))))
        return records

    some, last = range(min(d, 3)), [d - 1]
    contexts = [
        (f"κ = {_QUICK:g} along it", plain(_QUICK, [0])),
        ("no data", no_records(problem.domain, d)),
        (f"κ = {_SLOW:g} along it", plain(_SLOW, [0])),
        (f"κ = {_PRECISE:g} across it", plain(_PRECISE, last)),
        (f"κ = {_NOISY:g} along it", plain(_NOISY, [0])),
        (f"κ = {_SLOW:g} everywhere", plain(_SLOW, some)),
    ]
    return [
        _pair(f"{change}, {context}", shared, before, after)
        for context, shared in contexts
        for change, before, after in _turns(problem, d)
    ]


def _turns(problem: Problem, d: int) -> list[tuple[str, Record | None, Record | None]]:
    if problem.domain.neighbours.moves == 1:
        return [change for change in _changes(problem, d) if "along" not in change[0]]
    e, (_, opposing) = problem.domain.x_norm * _axis(d, 0), _labels(problem)
    return [
        (f"record turned round, {size:g} of its length", (-size * e, opposing), (e, opposing))
        for size in (0.3, 0.1, 1.0)
    ]


Record = tuple[FloatArray, float]


def _pair(name: str, shared: Records, before: Record | None, after: Record | None) -> Pair:
    left, right = (shared if record is None else shared.plus(*record) for record in (before, after))
    spans = [x / np.linalg.norm(x) for x, _ in (r for r in (before, after) if r is not None) if x.any()]
    return Pair(name, left, right, np.unique(np.abs(np.array(spans)), axis=0))


def _labels(problem: Problem) -> tuple[float, float]:
    """(pulling, opposing): the extreme targets, the one with the steeper loss at margin 0 first."""
    ends = problem.loss.clip_target(np.array([np.inf, -np.inf]), problem.domain)
    slopes = np.linalg.norm(problem.loss.gradient(np.zeros((2, problem.loss.n_outputs)), ends), axis=1)
    first = int(np.argmax(slopes))
    return float(ends[first]), float(ends[1 - first])


def _axis(d: int, j: int) -> FloatArray:
    return np.asarray(np.eye(d)[j])


def _contexts(problem: Problem, d: int, sizes: Sequence[float]) -> list[tuple[str, Records]]:
    B = problem.domain.x_norm
    pulling, opposing = _labels(problem)
    zero = np.zeros((1, problem.loss.n_outputs))
    slope = float(np.linalg.norm(problem.loss.gradient(zero, np.array([pulling]))))
    empty = no_records(problem.domain, d)

    def pull(records: Records, axis: int, size: float) -> Records:
        count = max(1.0, np.rint(size / (_SHORT * B * slope)))
        return records.plus(_SHORT * B * _axis(d, axis), pulling, count)

    along = [(f"gradient {size:.3g} along it", pull(empty, 0, size)) for size in sizes]
    contexts = [*along[:1], ("no data", empty), *along[1:]]  # the likeliest first
    if math.isfinite(problem.gradient_bound(d)):
        middle = problem.loss.clip_target(np.zeros(1), problem.domain)[0]
        held = empty
        for y in (middle,) if middle not in (pulling, opposing) else (pulling, opposing):
            held = held.plus(B * _axis(d, 0), float(y), _FILL)
        contexts.append(("answer held at 0", held))
    if d > 1 and sizes:
        filled = empty
        for j in range(1, d):
            for y in (pulling, opposing):
                filled = filled.plus(B * _axis(d, j), y, _FILL)
        size = sizes[0]
        contexts.append((f"gradient {sizes[-1]:.3g} across it", pull(empty, 1, sizes[-1])))
        contexts.append((f"gradient {size:.3g} along it, other directions full", pull(filled, 0, size)))
    return contexts


def _changes(problem: Problem, d: int) -> list[tuple[str, Record | None, Record | None]]:
    B = problem.domain.x_norm
    pulling, opposing = _labels(problem)
    e = B * _axis(d, 0)
    # The theory is invariant under rotations, code need not be: one record touches every column.
    spread = np.full(d, B * (1 - 1e-12) / math.sqrt(d))
    changes: list[tuple[str, Record | None, Record | None]]
    if problem.domain.neighbours.moves == 1:
        changes = [("record against", None, (e, opposing)), ("record along", None, (e, pulling))]
        return changes + ([("record in every column", None, (spread, opposing))] if d > 1 else [])
    changes = [
        ("aligned records, targets opposite", (e, pulling), (e, opposing)),
        ("opposite records", (e, pulling), (-e, pulling)),
        ("zero record or one against", (0 * e, opposing), (e, opposing)),
        ("zero record or one along", (0 * e, pulling), (e, pulling)),
    ]
    if d > 1:
        f = B * _axis(d, 1)
        changes.append(("zero record or one in every column", (0 * e, opposing), (spread, opposing)))
        changes.append(("orthogonal records", (e, opposing), (f, opposing)))
        # Margins of opposite signs, though the records are nearly aligned: the steepest slopes add up.
        near, aside = math.cos(math.radians(20)) * e, math.sin(math.radians(20)) * f
        # Between opposite records, whose curvature is one, and orthogonal ones.
        turned = -math.cos(math.radians(65)) * e + math.sin(math.radians(65)) * f
        changes = [
            ("records at 115°", (e, pulling), (turned, pulling)),
            ("records at 40°, targets opposite", (near - aside, pulling), (near + aside, opposing)),
            *changes,
        ]
        changes.append(("records at 45°", (e, opposing), (spread if d == 2 else (e + f) / 2**0.5, opposing)))
    return changes
