"""Every private release of the library, with tables on which it is weak, for both adjacencies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any, get_args

import numpy as np

from curvedp import catalogue
from curvedp.auditing.cases import BUDGET, Trial, mechanism_case, model_case, named
from curvedp.auditing.exam import exam
from curvedp.auditing.pairs import record_pairs
from curvedp.auditing.report import Audit
from curvedp.auditing.totals import Case, Pair, allowed_shift
from curvedp.budget import Budget
from curvedp.columns import Coding
from curvedp.domain import Domain
from curvedp.errors import CalibrationFailed, NotCovered
from curvedp.losses import Logistic, Loss, Multinomial, Squared, SquaredSeveral, Weighted
from curvedp.losses.margin import bounded_poisson
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.base import Mechanism
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.problem import Problem
from curvedp.regularizers import L2
from curvedp.schema import Boolean, Categorical, Date, Numeric, Schema
from curvedp.selection.refits import plan_refits
from curvedp.selection.trials import plan_trials

ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)
_EPSILON_OF_PAPER = 0.9  # its theorem needs ε < 1


def _mechanisms() -> Iterator[tuple[Mechanism, Loss]]:
    yield Recentered(), Squared()
    yield Recentered(), Logistic()
    yield Recentered(), bounded_poisson()
    yield Recentered(), Weighted(Squared())
    yield Recentered(), SquaredSeveral(2)
    yield Recentered(inference=True), Squared()
    numbers = Coding((0.0, 0.0), (), 0)
    told: tuple[Loss, ...] = (Squared(), Logistic(), Weighted(Squared()))
    yield from ((Recentered(coding=numbers, inference=True), loss) for loss in told)
    others: tuple[Loss, ...] = (SquaredSeveral(2), Multinomial(3), bounded_poisson())
    yield from ((Recentered(coding=numbers), loss) for loss in others)
    yield Recentered(coding=Coding((1.0, 1.0), ((0, 1),)), inference=True), Squared()
    bounded = ("qop", "lop", "output", "amp", "dp_sgd")  # tried with a loss whose gradients are bounded
    options: dict[str, tuple[dict[str, Any], ...]] = {
        "statistics": ({"noise": "gaussian"}, {"noise": "wishart"}),
        "gradient": ({"rounds": 20},),
        "lop_clip": ({"clip": 0.25},),
        "dp_sgd": ({"rounds": 20, "rate": 0.1},),
    }
    for name, entry in catalogue.MECHANISMS.items():
        if name == "recentered" or entry.study_only:  # those promise nothing
            continue
        for given, accounting in product(options.get(name, ({},)), entry.accountings or (None,)):
            made = catalogue.mechanism(name, accounting=accounting, **given)
            yield made, Logistic() if name in bounded else Squared()


def _models(budget: Budget, adjacency: Adjacency) -> Iterator[tuple[str, Any]]:
    from curvedp import estimators

    features = (
        Numeric("a", -2, 2),
        Categorical("b", ("x", "y", "rare")),
        Date("c", date(2020, 1, 1), date(2023, 12, 31)),
        Boolean("d"),
        Numeric("e", 0, 1, missing="indicator"),
    )
    number, weight = Numeric("y", 0, 5), Numeric("w", 0.1, 10)

    def of(*more: Any, **roles: Any) -> dict[str, Any]:
        schema = Schema((*features, *more), "y", adjacency, **roles)
        return {"schema": schema, "epsilon": budget.epsilon, "delta": budget.delta}

    logistic = estimators.PrivateLogisticRegression
    three, two = Categorical("y", ("no", "perhaps", "yes")), Categorical("y", ("no", "yes"))
    yield "ridge with weights", estimators.PrivateRidge(**of(weight, number, weight="w"))
    yield "lasso", estimators.PrivateLasso(**of(number))
    yield "linear regression with intervals", estimators.PrivateLinearRegression(**of(number))
    yield "counts with exposure", estimators.PrivatePoissonRegressor(**of(weight, number, exposure="w"))
    yield "three classes", logistic(**of(three))
    yield "logistic of persons", logistic(**of(two, unit="who"))


def _schema(adjacency: Adjacency) -> Schema:
    columns = Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("c", ("no", "yes"))
    return Schema(columns, "c", adjacency)


def _tables(adjacency: Adjacency, shared: dict[str, list[Any]], out: list[Any], into: list[Any]) -> Pair:
    """The shared table with one record more, and with none, or another one in its place."""
    replaced = Neighbours(adjacency).moves == 2
    left, right = (
        {name: [*shared[name], *([cell] if there else [])] for name, cell in zip(shared, record, strict=True)}
        for record, there in ((out, replaced), (into, True))
    )
    return Pair(f"{out} or {into}" if replaced else f"with {into} or without", left, right)


def _check(budget: Budget, adjacency: Adjacency, name: str) -> Case:
    from curvedp.looks.cells import cells_of
    from curvedp.looks.check import plan

    schema = _schema(adjacency)
    shared: dict[str, list[Any]] = {"a": [0.5] * 500, "b": [0.5] * 500, "c": ["yes"] * 500}
    pairs = [
        _tables(adjacency, shared, ["x", "x", "no"], [7.0, 7.0, "maybe"]),
        _tables(adjacency, shared, [None, 0.1, "yes"], [-9.0, "?", ""]),
    ]
    made = plan(schema, budget)
    return Case(name, made, pairs, read=lambda table: cells_of(schema, table))


def _describe(budget: Budget, adjacency: Adjacency, name: str) -> Case:
    from curvedp.looks.describe import DescribePlan
    from curvedp.looks.description import Description
    from curvedp.looks.tallies import tallied

    schema = _schema(adjacency)
    shared: dict[str, list[Any]] = {"a": [0.0] * 500, "b": [0.0] * 500, "c": ["yes"] * 500}
    pairs = [
        _tables(adjacency, shared, [-1, 1, "no"], [1, 1, "yes"]),
        _tables(adjacency, shared, [-1, -1, "no"], [1, 1, "yes"]),
        _tables(adjacency, shared, [0, 0, "no"], [1, 1, "yes"]),
    ]
    made = DescribePlan.calibrated(tallied(pairs[0].right, schema).layout, budget)
    return Case(
        name,
        made,
        pairs,
        read=lambda table: tallied(table, schema),
        document=lambda sums: (sums, Description.of(sums, made.guarantee)),
    )


def _scores(budget: Budget, adjacency: Adjacency, name: str) -> Case:
    from curvedp.estimators import PrivateLogisticRegression, PrivateRidge
    from curvedp.scores import score_plan
    from curvedp.scores.source import read_scored

    classes = "classes" in name
    last = Categorical("y", ("no", "yes")) if classes else Numeric("y", -1, 1)
    schema = Schema((Numeric("a", -1, 1), last), "y", adjacency)
    grid = np.linspace(-1, 1, 400).tolist()
    y = [("no", "yes")[a > 0] for a in grid] if classes else grid
    kind = PrivateLogisticRegression if classes else PrivateRidge
    model = kind(schema=schema, epsilon=50.0, random_state=0).fit({"a": grid, "y": y})
    ends = ("no", "yes") if classes else (-1.0, 1.0)
    kinds: list[tuple[list[Any], list[Any]]] = [
        ([-1.0, ends[0]], [1.0, ends[0]]),
        ([1.0, ends[1]], [1.0, ends[0]]),
        ([0.01, ends[1]], [-1.0, ends[1]]),
        ([-1.0, ends[0]], [1.0, ends[1]]),
        ([-1.0, ends[1]], [1.0, ends[0]]),
        ([0.0, None], [1.0, ends[0]]),
        ([0.0, None], [-1.0, ends[1]]),
    ]
    pairs = [_tables(adjacency, {"a": grid, "y": y}, *both) for both in kinds]
    plan = score_plan(read_scored(model, pairs[0].right).layout, budget)
    return Case(name, plan, pairs, read=lambda table: read_scored(model, table))


def _bounds(budget: Budget, adjacency: Adjacency, name: str) -> Case:
    from curvedp.looks.bounds import plan_bounds
    from curvedp.looks.numbers import ColumnNames, number_columns

    made = plan_bounds(["x"], Budget(budget.epsilon), neighbours=Neighbours(adjacency))
    layout = ColumnNames(("x",), Neighbours(adjacency))
    pairs = [
        _tables(adjacency, {"x": [*range(1, 401)]}, [1e-9], [1e9]),
        _tables(adjacency, {"x": [1.0] * 400}, [0.5], [2.0]),
    ]
    return Case(name, made, pairs, read=lambda table: number_columns(table, layout))


def _refits(budget: Budget, adjacency: Adjacency, name: str) -> Case:
    problems = _candidates(adjacency)
    plan = plan_refits(Recentered(), problems, 1, 2, budget)
    pairs = record_pairs(problems[1], 2, allowed_shift(budget))
    return Case(name, plan, pairs)


def _trial(budget: Budget, adjacency: Adjacency, name: str) -> Case:
    problems = _candidates(adjacency)
    search = plan_trials([Recentered()] * 2, problems[:2], 2, budget, 2.0)
    pairs = record_pairs(problems[0], 2, allowed_shift(budget, 2.0))
    return Case(name, Trial(search, 0), pairs, trials=search.mean)


def _candidates(adjacency: Adjacency) -> list[Problem]:
    domain = Domain(adjacency=adjacency)
    return [Problem(Squared(), L2(alpha), domain=domain) for alpha in (0.01, 1.0, 1e4)]


RELEASES: dict[str, Callable[[Budget, Adjacency, str], Case]] = {
    "check": _check,
    "describe": _describe,
    "scores of numbers": _scores,
    "scores of classes": _scores,
    "bounds": _bounds,
    "search over refits": _refits,
    "one trial of a search": _trial,
}


def everything(budget: Budget = BUDGET) -> dict[str, Callable[[], Case]]:
    """Makers of all cases by their names; one that no theorem covers raises when it is made."""
    makers: dict[str, Callable[[], Case]] = {}

    def add(name: str, make: Callable[..., Case], *arguments: Any) -> None:
        makers[name] = partial(make, *arguments, name)

    for adjacency in ADJACENCIES:
        for mechanism, loss in _mechanisms():
            spent, weighted = budget, isinstance(loss, Weighted)
            if getattr(mechanism, "accounting", "") == "paper":
                spent = Budget(min(budget.epsilon, _EPSILON_OF_PAPER), budget.delta)
            problem = Problem(loss, domain=Domain(adjacency=adjacency, weighted=weighted))
            add(named(mechanism, problem, 2), mechanism_case, mechanism, problem, 2, spent)
        wide = Problem(Squared(), domain=Domain(adjacency=adjacency))
        add(named(Recentered(), wide, 20), mechanism_case, Recentered(), wide, 20, budget)
        persons = Problem(Squared(), domain=Domain(adjacency=adjacency, unit="person"))
        numbers = Recentered(coding=Coding((0.0, 0.0), (), 0))
        for mechanism in (Recentered(), numbers, catalogue.mechanism("gradient", rounds=20)):
            add(named(mechanism, persons, 2), mechanism_case, mechanism, persons, 2, budget)
        for name, model in _models(budget, adjacency):
            add(f"{name}, {adjacency}", model_case, model)
        for name, make in RELEASES.items():
            add(f"{name}, {adjacency}", make, budget, adjacency)
    return makers


def _one(turn: tuple[str, Budget, dict[str, Any]]) -> Audit | None:
    name, budget, options = turn
    try:
        return exam(everything(budget)[name](), **options)
    except (NotCovered, CalibrationFailed):
        return None


def audit_everything(
    budget: Budget = BUDGET, *, only: str = "", processes: int | None = None, **options: Any
) -> Iterator[Audit]:
    """Every private release of the library, both adjacencies; what no theorem covers is passed over.

    Parameters
    ----------
    budget : Budget, default=Budget(1.0, 1e-3)
        The (ε, δ) that each is planned for.
    only : str, default=""
        A text that the names of what is tried have in them.
    processes : int, optional
        How many at a time; as many as there are cores, at most eight.
    **options
        As for `exam`.
    """
    turns = [(name, budget, options) for name in everything(budget) if only in name]
    count = min(processes or os.cpu_count() or 1, 8, len(turns))
    if count <= 1:
        yield from (found for found in map(_one, turns) if found is not None)
        return
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        yield from (found for found in pool.map(_one, turns) if found is not None)
