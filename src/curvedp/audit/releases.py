"""Releases that are no fit of rows, each with two neighbouring tables on which it is weak, attacked by L.

Checks, descriptions, scores, bounds, fits of persons, fits with intervals, searches by refits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import numpy as np

from curvedp.audit import bounds
from curvedp.audit.accounted import Accounted
from curvedp.audit.others import shown
from curvedp.audit.pilot import DIRECTIONS
from curvedp.audit.power import POWER, needed_tests, reach
from curvedp.audit.report import Attack, AuditReport
from curvedp.audit.scores import ScoreCells
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Squared
from curvedp.mechanisms import Recentered, make_plan
from curvedp.mechanisms.inference import RecenteredInference
from curvedp.mechanisms.rule import Rule
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.plans import Plan
from curvedp.problem import Problem
from curvedp.regularizers import L2
from curvedp.rows import Rows, make_rows
from curvedp.schema import Categorical, Numeric, Schema

Progress = Callable[[int, int], None]  # runs done, runs planned
Table = dict[str, list[Any]]

FITS, SLOW_FITS = 1_000_000, 2_000  # in batches, and run by run
_PILOT = 0.1
_CHOOSE = 0.25
_CHUNK, _SLOW_CHUNK = 2**15, 20
_QUICK = Rule(rounds=4, first_rounds=2)  # the same releases in fewer rounds


@dataclass(frozen=True, eq=False)
class Release:
    """A plan, and two neighbouring tables that it is attacked on."""

    name: str
    plan: Plan[Any, Any]
    tables: tuple[Any, Any]


def release_cells(budget: Budget) -> Iterator[Release]:
    """Every private release of the library that is no fit of rows, at one budget, for both neighbours."""
    adjacencies: tuple[Adjacency, ...] = get_args(Adjacency)
    for adjacency, (name, make) in product(adjacencies, RELEASES.items()):
        plan, tables = make(budget, adjacency)
        yield Release(f"{name} {adjacency}", plan, tables)


def audit_release(
    release: Release,
    *,
    claimed: tuple[float, float] | None = None,
    fits: int | None = None,
    confidence: float = 0.99,
    seed: int = 0,
    time_limit: float = math.inf,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack a release by the likelihood ratio of everything released; by default with as many runs as pay.

    A tenth of the runs says in which cells L is counted, a quarter of the rest chooses events, and the others
    test them. A run that time cuts short is judged by what it has.
    """
    started = time.monotonic()
    source: Accounted | None = shown(release.plan, release.tables)
    if source is None:
        raise InvalidInput("the guarantee of this plan is not of everything that it draws")
    slow = bool(getattr(source, "slow", False))
    fits = fits or (SLOW_FITS if slow else FITS)
    guarantee, size = release.plan.guarantee, _SLOW_CHUNK if slow else _CHUNK
    epsilon, delta = claimed or (guarantee.epsilon, guarantee.delta)
    each = max(fits // 2, 100)
    pilot, done = max(int(_PILOT * each), 20), 0
    ratios = [source.draw(side, pilot, seed + side).ratio for side in (0, 1)]
    cells = ScoreCells.of(np.concatenate(ratios))
    counts = np.zeros((2, 2, cells.count), dtype=np.int64)  # chosen or tested, side
    for start in range(pilot, each, size):
        n = min(size, each - start)
        for side in (0, 1):
            ratio = source.draw(side, n, seed + 2 * start + side + 2).ratio
            cut = max(int(_CHOOSE * n), 1)
            counts[0, side] += cells.histogram(ratio[:cut])
            counts[1, side] += cells.histogram(ratio[cut:])
        done = start + n
        if progress is not None:
            progress(2 * done, 2 * each)
        if time.monotonic() - started > time_limit:
            break
    alpha = (1 - confidence) / (4 * len(DIRECTIONS))
    reached = max(reach(ratios[1], delta), reach(-ratios[0], delta))
    tests = needed_tests(min(reached, epsilon), delta, POWER * epsilon, alpha)
    return AuditReport(
        mechanism=guarantee.mechanism,
        accounting=guarantee.accounting,
        theorem=guarantee.theorem,
        adjacency=guarantee.adjacency,
        loss="",
        features=0,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        fits=2 * done,
        seconds=time.monotonic() - started,
        complete=done == each,
        pairs_tried=1,
        attacks=tuple(_attack(release.name, d, counts, epsilon, delta, alpha) for d in DIRECTIONS),
        reach=reached,
        needed=None if tests is None else math.ceil(2 * tests / (1 - _PILOT) / (1 - _CHOOSE)),
    )


def _attack(
    name: str, direction: tuple[str, int, int], counts: Any, epsilon: float, delta: float, alpha: float
) -> Attack:
    said, p, q = direction
    events = bounds.best_events(counts[0, p], counts[0, q], epsilon, delta)
    found = [bounds.evidence(counts[1, p], counts[1, q], e, epsilon, delta, alpha) for e in events]
    best = max(found, key=lambda f: f.epsilon)
    return Attack(
        pair=name,
        direction=said,
        score="likelihood ratio",
        fits=int(counts[1, p].sum()),
        p_lower=best.p_lower,
        q_upper=best.q_upper,
        epsilon=best.epsilon,
        delta=max(f.delta for f in found),
        sees="everything released",
    )


def _schema(adjacency: Adjacency) -> Schema:
    columns = Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("c", ("no", "yes"))
    return Schema(columns, "c", adjacency)


def _neighbours(adjacency: Adjacency, shared: Table, out: list[Any], into: list[Any]) -> tuple[Table, Table]:
    """The shared table with one record more, and with none, or another one in its place."""
    replaced = Neighbours(adjacency).moves == 2
    left, right = (
        {name: [*shared[name], *([cell] if there else [])] for name, cell in zip(shared, record, strict=True)}
        for record, there in ((out, replaced), (into, True))
    )
    return left, right


def _check(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    from curvedp.looks.cells import cells_of
    from curvedp.looks.check import plan

    schema = _schema(adjacency)
    shared: Table = {"a": [0.5] * 500, "b": [0.5] * 500, "c": ["yes"] * 500}
    left, right = _neighbours(adjacency, shared, ["x", "x", "no"], [7.0, 7.0, "maybe"])
    return plan(schema, budget), (cells_of(schema, left), cells_of(schema, right))


def _describe(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    from curvedp.looks.describe import DescribePlan
    from curvedp.looks.tallies import tallied

    schema = _schema(adjacency)
    shared: Table = {"a": [0.0] * 500, "b": [0.0] * 500, "c": ["yes"] * 500}
    tables = [tallied(t, schema) for t in _neighbours(adjacency, shared, [-1, 1, "no"], [1, 1, "yes"])]
    return DescribePlan.calibrated(tables[0].layout, budget), (tables[0], tables[1])


def _scores(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    from curvedp.estimators import PrivateRidge
    from curvedp.scores import score_plan
    from curvedp.scores.source import read_scored

    schema = Schema((Numeric("a", -1, 1), Numeric("y", -1, 1)), "y", adjacency)
    grid = np.linspace(-1, 1, 400).tolist()
    model = PrivateRidge(schema=schema, epsilon=50.0, random_state=0).fit({"a": grid, "y": grid})
    tables = _neighbours(adjacency, {"a": grid, "y": grid}, [-1.0, -1.0], [1.0, -1.0])
    left, right = (read_scored(model, table) for table in tables)
    return score_plan(left.layout, budget), (left, right)


def _bounds(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    from curvedp.looks.bounds import plan_bounds
    from curvedp.looks.numbers import ColumnNames, number_columns

    made = plan_bounds(["x"], Budget(budget.epsilon), neighbours=Neighbours(adjacency))
    layout = ColumnNames(("x",), Neighbours(adjacency))
    tables = _neighbours(adjacency, {"x": [*range(1, 401)]}, [1e-9], [1e9])
    return made, (number_columns(tables[0], layout), number_columns(tables[1], layout))


def _crowd(seed: int, n: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.uniform(-0.3, 0.3, (n, 2)), random.uniform(-0.2, 0.2, n)


def _persons(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    """One person with a thousand rows that all agree."""
    problem = Problem(Squared(), domain=Domain(1.0, 1.0, adjacency, unit="person"))
    X, y = _crowd(0, 40)
    replaced = problem.domain.neighbours.moves == 2

    def table(sign: float, k: int) -> Rows:
        own = np.tile([0.8, 0.6], (k, 1))
        ids = np.append(np.arange(40), np.full(k, 40))
        return make_rows(np.vstack([X, own]), np.append(y, np.full(k, sign)), problem.domain, unit=ids)

    plan = make_plan(Recentered(_QUICK), problem, 2, budget)
    return plan, (table(1.0, 1000 if replaced else 0), table(-1.0, 1000))


def _inference(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    """A record at the norm bound whose gradient is clipped wherever the walk may stand."""
    problem = Problem(Squared(), domain=Domain(1.0, 1.0, adjacency))
    X, y = _crowd(0, 12)

    def table(angle: float | None) -> Rows:
        if angle is None:
            return make_rows(X, y, problem.domain)
        x = (1 - 1e-12) * np.array([math.cos(angle), math.sin(angle)])
        return make_rows(np.vstack([X, x]), np.append(y, 1.0), problem.domain)

    replaced = problem.domain.neighbours.moves == 2
    plan = RecenteredInference(rule=_QUICK).plan(problem, 2, budget)
    return plan, (table(2.0 * math.pi / 3.0 if replaced else None), table(math.pi / 4.0))


def _refits(budget: Budget, adjacency: Adjacency) -> tuple[Plan[Any, Any], tuple[Any, Any]]:
    from curvedp.selection.refits import plan_refits

    domain = Domain(1.0, 1.0, adjacency)
    problems = [Problem(Squared(), L2(alpha), domain=domain) for alpha in (0.01, 1.0, 1e4)]
    nobody, y = np.zeros((200, 1)), np.append(np.zeros(200), -1.0)
    left, right = (make_rows(np.vstack([nobody, [[x]]]), y, domain) for x in (-0.3, 1.0))
    if domain.neighbours.moves == 1:
        left = make_rows(nobody, y[:-1], domain)
    return plan_refits(Recentered(_QUICK), problems, 1, 1, budget), (left, right)


RELEASES: dict[str, Callable[[Budget, Adjacency], tuple[Plan[Any, Any], tuple[Any, Any]]]] = {
    "check": _check,
    "describe": _describe,
    "scores": _scores,
    "bounds": _bounds,
    "persons": _persons,
    "inference": _inference,
    "refits": _refits,
}
