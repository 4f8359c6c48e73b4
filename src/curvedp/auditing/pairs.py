"""Neighbouring tables on which one record, or one person, shows as much as the declarations let it.

What the proofs make extreme: a record at the norm bound whose gradient is clipped wherever a fit stands,
beside many short ones whose gradients cancel, or beside nobody; records turned round, aligned, orthogonal, of
two lengths; a long record that fits, which is all curvature; a gradient that all records share, so large that
the answer shows the noise; a person with very many rows; a weight at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.auditing.totals import Pair
from curvedp.data import Date, Ignored, Numeric, Schema
from curvedp.data.rows import Rows, make_rows
from curvedp.data.targets import CountTarget, NumericTarget, SeveralTargets, Target
from curvedp.problems import Problem
from curvedp.problems.losses.several import spread_targets

# n = κd/μ records: few bold rounds; many small ones.
_QUICK, _SLOW = 400.0, 80.0
_PLAIN = 0.05  # length of a context's records over B
_SHORT = 0.1  # likewise where they carry a shared gradient, and should carry little curvature
_MOST_ROWS = 20_000
MANY = 300  # rows of one person
_THAT_FIT = 4


@dataclass(frozen=True, eq=False)
class _Ends:
    """Records of one problem as the rows (x, y) of arrays, their targets where the loss is extreme."""

    problem: Problem
    d: int

    @cached_property
    def targets(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The steepest at θ = 0, the one that pulls against it, and the flattest."""
        loss = self.problem.loss
        spread = spread_targets(loss, self.problem.domain)
        spread = spread.reshape(len(spread), -1)
        slopes = loss.gradient(np.zeros((len(spread), loss.n_outputs)), _as_passed(spread))
        sizes = np.linalg.norm(slopes, axis=1)
        steep = int(np.argmax(sizes))
        return spread[steep], spread[int(np.argmin(slopes @ slopes[steep]))], spread[int(np.argmin(sizes))]

    def record(self, x: FloatArray, target: int) -> FloatArray:
        """One record, its target the steepest (0), the opposing one (1) or the flattest (2)."""
        return np.append(self.problem.domain.x_norm * (1 - 1e-12) * x, self.targets[target])[None]

    def none(self) -> FloatArray:
        return np.zeros((0, self.d + len(self.targets[0])))

    def axis(self, j: int) -> FloatArray:
        return np.asarray(np.eye(self.d)[j % self.d])

    def crowd(
        self, n: float, axes: Iterable[int], length: float, targets: Sequence[int] = (0, 1)
    ) -> FloatArray:
        """About n short records along the axes, their targets in turn."""
        kinds = [self.record(length * self.axis(j), target) for j, target in product(axes, targets)]
        return np.repeat(np.vstack(kinds), max(1, math.ceil(n / len(kinds))), axis=0)

    def rows(self, shared: FloatArray, hostile: FloatArray, fits: bool) -> Rows:
        """Both as rows; where a person is protected, a long hostile record is there very many times.

        One that fits a few times: the little that it does not fit would else add up to more than the clip.
        """
        domain, unit = self.problem.domain, None
        if domain.unit is not None and np.linalg.norm(hostile[:, : self.d]) > domain.x_norm / 2:
            hostile = np.repeat(hostile, _THAT_FIT if fits else MANY, axis=0)
        both = np.vstack([shared, hostile])
        if domain.unit is not None:
            unit = np.minimum(np.arange(len(both)), len(shared))
        return make_rows(both[:, : self.d], _as_passed(both[:, self.d :]), domain, unit=unit)


def _as_passed(y: FloatArray) -> FloatArray:
    return y if y.shape[1] > 1 else y[:, 0]


def record_pairs(
    problem: Problem, d: int, mu: float, pulls: Sequence[float] = (), held: bool = False
) -> list[Pair]:
    """For mechanisms on rows (x, y), `mu` the shift that is allowed; `pulls`: sizes of a shared gradient.

    With a shared gradient they are for fits whose minimiser has a law (QOP, LOP), else for sums. `held`: a
    record that is not there is one of length 0, so that the same others are sampled beside it.
    """
    ends = _Ends(problem, d)
    contexts = dict(_pulled(ends, pulls) if pulls else _crowds(ends, mu))
    return [
        Pair(f"{change}, {context}", *(ends.rows(shared, one, "fit" in change) for one in both))
        for change, *both in _changes(ends, bool(pulls), held)
        for context, shared in contexts.items()
        if "fit" not in change or context in _FOR_CURVATURE
    ]


_FOR_CURVATURE = "short records everywhere", "a flat crowd"


def _crowds(ends: _Ends, mu: float) -> Iterator[tuple[str, FloatArray]]:
    def size(kappa: float) -> float:
        return min(kappa * ends.d / mu, _MOST_ROWS)

    yield "many short records along it", ends.crowd(size(_QUICK), [0], _PLAIN)
    yield "nobody else", ends.none()
    yield "short records everywhere", ends.crowd(size(_SLOW), range(min(ends.d, 3)), _PLAIN)
    # A table to attack, the same every time: no noise, and nobody's records.
    X = np.random.default_rng(0).uniform(-0.6, 0.6, (800, ends.d)) * math.sqrt(2 / max(ends.d, 2))
    flat = np.repeat(ends.targets[2][None], len(X), axis=0)
    yield "a flat crowd", np.hstack([ends.problem.domain.x_norm * X, flat])


def _pulled(ends: _Ends, pulls: Sequence[float]) -> Iterator[tuple[str, FloatArray]]:
    """A gradient of this size along the record, or across it, carried by little curvature."""
    problem, target = ends.problem, _as_passed(ends.targets[0][None])
    slope = float(np.linalg.norm(problem.loss.gradient(np.zeros((1, problem.loss.n_outputs)), target)))

    def count(size: float) -> float:
        return min(max(1.0, size / (_SHORT * problem.domain.x_norm * slope)), _MOST_ROWS)

    yield "nobody else", ends.none()
    for size in dict.fromkeys((pulls[0], pulls[-1])):
        yield f"a gradient of {size:.3g} along it", ends.crowd(count(size), [0], _SHORT, (0,))
    if ends.d > 1:
        yield f"a gradient of {pulls[-1]:.3g} across it", ends.crowd(count(pulls[-1]), [1], _SHORT, (0,))


def _changes(ends: _Ends, tilted: bool, held: bool) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """A change of one record that makes neighbours; tilted ones too, whose slopes add up at an angle."""
    e, f = ends.axis(0), ends.axis(1)
    none = ends.record(0 * e, 2) if held else ends.none()
    if ends.problem.domain.neighbours.moves == 1:
        yield "a long record against", none, ends.record(e, 1)
        yield "a long record along", none, ends.record(e, 0)
        yield "a long record that does fit", none, ends.record(0.9 * e, 2)
        if ends.d > 1:
            yield "a record in every column", none, ends.record(np.full(ends.d, ends.d**-0.5), 1)
        return
    yield "a long record turned round", ends.record(-e, 1), ends.record(e, 1)
    yield "targets opposite", ends.record(e, 0), ends.record(e, 1)
    yield "a short record or a long one", ends.record(-_PLAIN * e, 1), ends.record(e, 1)
    if ends.d > 1:
        yield "orthogonal records", ends.record(f, 1), ends.record(e, 1)
        yield "orthogonal records that fit", ends.record(0.9 * f, 2), ends.record(0.9 * e, 2)
    if ends.d > 1 and tilted:
        near, aside = math.cos(math.radians(20)) * e, math.sin(math.radians(20)) * f
        yield "records at 40°, targets opposite", ends.record(near - aside, 0), ends.record(near + aside, 1)
        turned = -math.cos(math.radians(65)) * e + math.sin(math.radians(65)) * f
        yield "records at 115°", ends.record(e, 0), ends.record(turned, 0)


def declared_pairs(schema: Schema, target: Target) -> list[Pair]:
    """For a model with these declarations: raw tables that hold all that they allow."""
    random = np.random.default_rng(0)  # of tables to attack: no noise
    ends = {c.name: _cells(c) for c in schema.columns if not isinstance(c, Ignored)}
    low, middle, high = ({name: cell[k] for name, cell in ends.items()} for k in (0, 1, 2))
    bad = {name: 1e300 if isinstance(cell[0], float) else "?" for name, cell in ends.items()}
    near = [{name: _near_middle(cell, random) for name, cell in ends.items()} for _ in range(300)]
    least, central, most = _targets(target)
    crowd = [(row, least if i % 2 else most, 0.5) for i, row in enumerate(near)]
    few = [(row, central, 1.0) for row in near[:4]]
    contexts: dict[str, list[Any]] = {"a crowd in the middle": crowd, "four who fit": few, "nobody else": []}
    changes: list[tuple[str, Any, Any]]
    if schema.neighbours.moves == 1:
        changes = [
            ("one at every upper end, target low", None, (high, least, 1.0)),
            ("one at every upper end, target high", None, (high, most, 1.0)),
            ("one at every lower end, target high", None, (low, most, 1.0)),
            ("one at every upper end who fits", None, (high, central, 1.0)),
            ("one whose cells are no data", None, (bad, most, 1.0)),
        ]
    else:
        changes = [
            ("targets from end to end, all columns at the upper one", (high, least, 1.0), (high, most, 1.0)),
            ("every column from end to end", (low, most, 1.0), (high, most, 1.0)),
            ("from the middle to every upper end", (middle, most, 1.0), (high, least, 1.0)),
            ("weight from 0 to its largest", (high, most, 0.0), (high, most, 1.0)),
            ("cells that are no data, or the upper ends", (bad, most, 1.0), (high, least, 1.0)),
        ]
    times = 1 if schema.unit is None else MANY
    beside = None if schema.absorb is None else (low, central, 1.0)  # a mean to differ from
    return [
        Pair(
            f"{change}, {context}",
            _raw(schema, shared, before, beside, 1 if before is not None and before[0] is middle else times),
            _raw(schema, shared, after, beside, times),
        )
        for (context, shared), (change, before, after) in product(contexts.items(), changes)
    ]


@dataclass(frozen=True, eq=False)
class Raw:
    """A table, its targets, and how much every record weighs, in units of the largest weight."""

    table: dict[str, list[Any]]
    y: list[Any]
    weights: list[float]


def _raw(schema: Schema, shared: list[Any], hostile: Any, beside: Any, times: int) -> Raw:
    own = [row for row in (hostile, beside) if row is not None] * times
    rows, together = [*shared, *(own if hostile is not None else [])], 1 if beside is None else 2
    names = [c.name for c in schema.columns if not isinstance(c, Ignored)]
    table = {name: [row[name] for row, _, _ in rows] for name in names}
    y, weights = [target for _, target, _ in rows], [weight for *_, weight in rows]
    if schema.weight is not None:
        largest = next(c for c in schema.columns if c.name == schema.weight)
        assert isinstance(largest, Numeric)
        table[schema.weight] = [largest.high * weight for weight in weights]
    if schema.unit is not None:
        table[schema.unit] = [f"p{min(i, len(shared)) // together}" for i in range(len(rows))]
    if schema.target is not None:
        table[schema.target] = y
    return Raw(table, y, weights)


def _cells(column: Any) -> tuple[Any, Any, Any]:
    """The lower end, something between, and the upper end of what a column declares."""
    match column:
        case Numeric(low=low, high=high):
            return float(low), (low + high) / 2, float(high)
        case Date(low=low, high=high, format=written):
            ends = low, low + (high - low) / 2, high
            return tuple(day.strftime(written) for day in ends)  # type: ignore[return-value]
    return column.levels[0], column.levels[0], column.levels[-1]


def _near_middle(cell: tuple[Any, Any, Any], random: np.random.Generator) -> Any:
    (low, middle, high), share = cell, 0.5 + random.uniform(-0.1, 0.1)
    return low + share * (high - low) if isinstance(low, float) else middle


def _targets(target: Target) -> tuple[Any, Any, Any]:
    """The least, a middling and the largest target."""
    match target:
        case NumericTarget(low=low, high=high):
            return low, (low + high) / 2, high
        case CountTarget(high=high, rate=rate):
            return 0.0, min(rate, high), high
        case SeveralTargets(targets=several):
            return tuple([ends[k] for ends in map(_targets, several)] for k in (0, 1, 2))  # type: ignore[return-value]
    labels = target.labels.tolist()
    return labels[0], labels[len(labels) // 2], labels[-1]
