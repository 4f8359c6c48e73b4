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

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.audit.records import Records, no_records
from curvedp.problem import Problem

# Norm of the context's records over B: their curvature is G times this. Shorter ones would have to be so many
# that the rounding of their sum, which output noise pays for, hides the answer.
_SHORT = 1e-4
_FILL = 1e3  # curvature that fills the other directions, in records


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
    if d > 1 and sizes:
        filled = empty
        for j in range(1, d):
            for y in (pulling, opposing):
                filled = filled.plus(B * _axis(d, j), y, _FILL)
        size = sizes[0]
        contexts.append((f"gradient {size:.3g} across it", pull(empty, 1, size)))
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
        changes.append(("records at 45°", (e, opposing), (spread if d == 2 else (e + f) / 2**0.5, opposing)))
    return changes
