"""What an audit tries: a plan, and neighbouring tables on which it is weak."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any, get_args

import numpy as np
from sklearn.base import clone

from curvedp.analyses import estimators
from curvedp.analyses.explore.bounds import plan_bounds
from curvedp.analyses.explore.check import cells_of
from curvedp.analyses.explore.check import plan as plan_check
from curvedp.analyses.explore.describe import DescribePlan, GroupPlan
from curvedp.analyses.explore.description import Description, GroupedDescription
from curvedp.analyses.explore.tallies import number_columns, tallied
from curvedp.analyses.scores.plans import score_plan
from curvedp.analyses.scores.source import read_scored
from curvedp.analyses.search import TrialsPlan, plan_refits, plan_trials
from curvedp.auditing.exam import Audit, exam
from curvedp.auditing.pairs import MANY, Raw, declared_pairs, record_pairs
from curvedp.auditing.totals import Case, Pair, allowed_shift
from curvedp.data import Boolean, Categorical, Date, Numeric, Schema
from curvedp.data.mapping import Coding
from curvedp.data.rows.base import Layout, Rows
from curvedp.data.rows.blocked import Passed
from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.mechanisms.base import Estimate, Mechanism, SolvedPlan, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.statistics import GramPlan
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Loss, Multinomial, Quantile, Squared, SquaredSeveral, Weighted
from curvedp.problems.losses.margin import bounded_poisson
from curvedp.problems.regularizers import L2, NoRegularizer
from curvedp.release import catalogue, modelfile
from curvedp.release.door import Released
from curvedp.release.record import ReleaseRecord

BUDGET: Budget = Budget(1.0, 1e-3)
_BEGUN = "2000-01-01T00:00:00+00:00"  # of every release that is tried: time is no part of it


def mechanism_case(mechanism: Mechanism, problem: Problem, d: int, budget: Budget) -> Case:
    """A mechanism on the pairs that its problem makes worst."""
    plan = make_plan(mechanism, problem, d, budget)
    pulls = plan.pulls() if isinstance(plan, SolvedPlan) else []
    rate = getattr(plan.guarantee.profile, "rate", 0.0)  # of a sample, where a mechanism takes one
    pairs = record_pairs(problem, d, allowed_shift(plan.guarantee.budget) or 1.0, pulls, held=rate > 0)
    return Case(named(mechanism, problem, d), plan, pairs, sampled=rate)


def model_case(model: Any, name: str, claimed: tuple[float, float] | None = None) -> Case:
    """An unfitted estimator with a schema: its own code reads a table, releases and writes the file."""
    schema = model._given_schema
    largest = None if getattr(model, "class_weight", None) is not None else getattr(model, "weight_max", None)

    def passed(raw: Raw) -> Passed:
        return {} if largest is None else {"weight": [largest * weight for weight in raw.weights]}

    pairs = declared_pairs(schema, model._declared_target())
    declared = model._declare(pairs[0].right.table, passed(pairs[0].right))
    plan = model._plan(declared)
    if isinstance(plan, SolvedPlan):  # the law of a minimiser is known without a penalty
        plan = replace(plan, problem=replace(declared.problem, regularizer=NoRegularizer()))

    def read(raw: Raw) -> Rows:
        y = None if schema.has_target else raw.y
        rows: Rows = model._read_rows(raw.table, y, declared, passed(raw))
        return rows

    def document(value: Estimate) -> Any:
        fitted = clone(model)
        guarantee = plan.guarantee
        record = ReleaseRecord.of(declared.schema, guarantee, None, _BEGUN)
        fitted._keep_estimate(value, guarantee, declared, record)
        return {**vars(fitted), "file": modelfile.Release.of(fitted).to_json()}

    return Case(name, plan, pairs, claimed, read, document)


def file_case(document: modelfile.Release) -> tuple[Case, tuple[str, ...]]:
    """The release behind a model file, planned anew from what it says; and what that leaves open."""
    promise = document.guarantee
    model = clone(document.to_estimator())
    shorthand = {"bounds", "formula", "exposure_bounds", "absorb"} & model.get_params(deep=False).keys()
    model.set_params(schema=document.schema, **dict.fromkeys(shorthand))  # which the schema says
    case = model_case(model, f"{document.estimator}, {promise.adjacency}", (promise.epsilon, promise.delta))
    if promise.mechanism.startswith("search over"):
        return _search_case(case, promise), ()
    planned = case.plan.guarantee.parameters
    other = [
        key
        for key, value in promise.parameters.items()
        if isinstance(value, float) and not np.isclose(value, float(planned.get(key, np.nan)))
    ]
    remark = (
        f"the file states other numbers than this version plans ({', '.join(other[:3])}): "
        f"it was made by curvedp {document.version}"
    )
    return case, (remark,) if other else ()


@dataclass(frozen=True, eq=False)
class Trial(TrialsPlan):
    """One trial of a search: the fit of a candidate and its score, under the promise of the whole search."""

    def release(self, rows: Rows, random: np.random.Generator) -> Any:
        estimate = self.plans[0].release(rows, random)
        return estimate, self._score(rows, estimate, random)


def _one_trial(search: TrialsPlan) -> Trial:
    return Trial(**{part.name: getattr(search, part.name) for part in fields(search)})


def _search_case(case: Case, promise: Guarantee) -> Case:
    """A search like the one of the file, over as many candidates that differ in their penalty."""
    count = int(promise.mechanism.removeprefix("search over ").split()[0].rstrip(":"))
    plan: Any = case.plan
    problem, d, coding = plan.problem, plan.d, getattr(plan, "coding", Coding())
    problems = [replace(problem, regularizer=L2(10.0**k)) for k in range(count)]
    budget, mean = Budget(promise.epsilon, promise.delta), promise.parameters.get("mean_trials")
    if mean is None:
        refits = plan_refits(Recentered(coding=coding), problems, count // 2, d, budget)
        return replace(case, plan=refits, document=lambda choice: (choice, case.document(choice.estimate)))
    trials = plan_trials([Recentered(coding=coding)] * count, problems, d, budget, float(mean))
    return replace(case, plan=_one_trial(trials), document=lambda value: value, trials=float(mean))


def named(mechanism: Mechanism, problem: Problem, d: int) -> str:
    domain = problem.domain
    beside = ["weights"] * domain.weighted + ["persons"] * (domain.unit is not None)
    coding = getattr(mechanism, "coding", Coding())
    beside += ["levels"] * bool(coding.blocks) + ["constant"] * (coding.constant is not None)
    beside += ["intervals"] * getattr(mechanism, "inference", False)
    parts = [mechanism.name, getattr(mechanism, "accounting", ""), problem.loss.name, f"d={d}", *beside]
    return f"{' '.join(part for part in parts if part)}, {domain.adjacency}"


def audit(
    release: Any,
    *,
    budget: Budget = BUDGET,
    features: int = 2,
    problem: Problem | None = None,
    **options: Any,
) -> Audit:
    """Replay a release on worst-case neighbouring tables and check every premise of its proof; needs no data.

    Parameters
    ----------
    release : Mechanism, fitted estimator, Release or path of a model file
        What is tried. A model is tried as it was released, on tables of its own declarations.
    budget : Budget, default=Budget(1.0, 1e-3)
        The (ε, δ) that a mechanism is planned for.
    features : int, default=2
        Model columns of the tables that a mechanism is tried on.
    problem : Problem, optional
        What a mechanism solves; by default squared loss in the unit ball.
    **options
        As for `exam`.

    Returns
    -------
    audit : Audit
        `audit.verdict` is "held", on the pairs tried, or "refuted"; `remarks` say where a file does not say
        all that the release was made with.

    Examples
    --------
    >>> from curvedp import audit
    >>> from curvedp.mechanisms import Statistics
    >>> found = audit(Statistics())
    >>> found.verdict, 0.9 < found.total <= 1.0
    ('held', True)
    """
    if hasattr(release, "plan") and not hasattr(release, "fit"):  # a mechanism
        if features < 1:
            raise InvalidInput("an audit needs features > 0: the columns of the tables that are tried")
        return exam(mechanism_case(release, problem or Problem(Squared()), features, budget), **options)
    if isinstance(release, str | os.PathLike):
        release = modelfile.load(release)
    elif not isinstance(release, modelfile.Release):
        release = modelfile.Release.of(release)
    case, remarks = file_case(release)
    return replace(exam(case, **options), remarks=remarks)


# Every private release of the library, with tables on which it is weak, for both adjacencies.

_EPSILON_OF_PAPER = 0.9  # its theorem needs ε < 1


def _mechanisms() -> Iterator[tuple[Mechanism, Loss, int, str | None]]:
    """With a loss, so many columns, and the unit whose rows count together."""
    squared, weighted, numbers = Squared(), Weighted(Squared()), Coding((0.0, 0.0), (), 0)
    plain: list[Loss] = [squared, Logistic(), bounded_poisson(), weighted, SquaredSeveral(2)]
    told = [squared, Logistic(), weighted, Multinomial(3), bounded_poisson(), Quantile(quantile=0.8)]
    yield from ((Recentered(), loss, 2, None) for loss in plain)
    yield Recentered(inference=True), squared, 2, None
    yield from ((Recentered(coding=numbers, inference=True), loss, 2, None) for loss in told)
    yield Recentered(coding=numbers), SquaredSeveral(2), 2, None
    yield Recentered(coding=Coding((1.0, 1.0), ((0, 1),)), inference=True), squared, 2, None
    bounded = ("qop", "lop", "output", "amp", "dp_sgd")  # tried with a loss whose gradients are bounded
    options: dict[str, tuple[dict[str, Any], ...]] = {
        "gradient": ({"rounds": 20},),
        "lop_clip": ({"clip": 0.25},),
        "dp_sgd": ({"rounds": 20, "rate": 0.1},),
    }
    of_persons: list[Mechanism] = [Recentered(), Recentered(coding=numbers)]
    for name, entry in catalogue.MECHANISMS.items():
        if name == "recentered" or entry.role == "study" or not entry.installed:  # those promise nothing
            continue
        for given, accounting in product(options.get(name, ({},)), entry.accountings or (None,)):
            made = catalogue.mechanism(name, accounting=accounting, **given)
            of_persons += [made] if name in ("statistics", "gradient", "wishart") else []
            yield made, Logistic() if name in bounded else squared, 2, None
    yield Recentered(), squared, 20, None
    yield from ((mechanism, squared, 2, "person") for mechanism in of_persons)


def _models(budget: Budget, adjacency: Adjacency) -> Iterator[tuple[str, Any]]:
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


def _schema(neighbours: Neighbours) -> Schema:
    columns = Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("c", ("no", "yes"))
    return Schema(columns, "c", neighbours.adjacency, unit=neighbours.unit)


def _tables(neighbours: Neighbours, shared: dict[str, list[Any]], out: list[Any], into: list[Any]) -> Pair:
    """The shared table with one record more, and with none, or another one in its place.

    Among persons, each with one row, it is a person with MANY rows that are all alike.
    """
    replaced, rows = neighbours.moves == 2, 1
    pair = f"{out} or {into}" if replaced else f"with {into} or without"
    if neighbours.unit is not None:
        shared, rows = {**shared, neighbours.unit: [*range(len(next(iter(shared.values()))))]}, MANY
        out, into, pair = [*out, "x"], [*into, "x"], f"{pair}, {MANY} rows"

    def table(record: list[Any], times: int) -> dict[str, list[Any]]:
        columns = zip(shared.items(), record, strict=True)
        return {name: [*cells, *[cell] * times] for (name, cells), cell in columns}

    return Pair(pair, table(out, rows * replaced), table(into, rows))


def _check(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    schema = _schema(neighbours)
    shared: dict[str, list[Any]] = {"a": [0.5] * 500, "b": [0.5] * 500, "c": ["yes"] * 500}
    pairs = [
        _tables(neighbours, shared, ["x", "x", "no"], [7.0, 7.0, "maybe"]),
        _tables(neighbours, shared, [None, 0.1, "yes"], [-9.0, "?", ""]),
    ]
    return Case(name, plan_check(schema, budget), pairs, read=partial(cells_of, schema))


def _describe(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    schema = _schema(neighbours)
    shared: dict[str, list[Any]] = {"a": [0.0] * 500, "b": [0.0] * 500, "c": ["yes"] * 500}
    pairs = [
        _tables(neighbours, shared, [-1, 1, "no"], [1, 1, "yes"]),
        _tables(neighbours, shared, [-1, -1, "no"], [1, 1, "yes"]),
        _tables(neighbours, shared, [0, 0, "no"], [1, 1, "yes"]),
    ]
    kinds: tuple[Any, Any] = DescribePlan, Description
    read = partial(tallied, schema=schema)
    if "by group" in name:
        asked = {"by": ("c",), "quartiles": True, "rows_up_to": None if neighbours.unit is None else 10}
        kinds, read = (GroupPlan, GroupedDescription), partial(read, **asked)
    plan = kinds[0].calibrated(read(pairs[0].right).layout, budget)

    def document(sums: Any) -> Any:
        return sums, kinds[1].of(Released(sums, plan.guarantee))

    return Case(name, plan, pairs, read=read, document=document)


def _scores(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    classes, counts = "classes" in name, "counts" in name
    last = Categorical("y", ("no", "yes")) if classes else Numeric("y", 0 if counts else -1, 1)
    schema = Schema((Numeric("a", -1, 1), last), "y", neighbours.adjacency, unit=neighbours.unit)
    grid = np.linspace(-1, 1, 400).tolist()
    y = [("no", "yes")[a > 0] for a in grid] if classes else [abs(a) for a in grid] if counts else grid
    numbers = estimators.PrivatePoissonRegressor if counts else estimators.PrivateRidge
    kind = estimators.PrivateLogisticRegression if classes else numbers
    model = kind(schema=schema, epsilon=50.0, random_state=0).fit({"a": grid, "y": y, "who": [*range(400)]})
    ends = ("no", "yes") if classes else (0.0 if counts else -1.0, 1.0)
    kinds: list[tuple[list[Any], list[Any]]] = [
        ([-1.0, ends[0]], [1.0, ends[0]]),
        ([1.0, ends[1]], [1.0, ends[0]]),
        ([0.01, ends[1]], [-1.0, ends[1]]),
        ([-1.0, ends[0]], [1.0, ends[1]]),
        ([-1.0, ends[1]], [1.0, ends[0]]),
        ([0.0, None], [1.0, ends[0]]),
        ([0.0, None], [-1.0, ends[1]]),
    ]
    pairs = [_tables(neighbours, {"a": grid, "y": y}, *both) for both in kinds]
    plan = score_plan(read_scored(model, pairs[0].right).layout, budget)
    return Case(name, plan, pairs, read=partial(read_scored, model))


def _bounds(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    made = plan_bounds(["x"], Budget(budget.epsilon), neighbours=neighbours)
    pairs = [
        _tables(neighbours, {"x": [*range(1, 401)]}, [1e-9], [1e9]),
        _tables(neighbours, {"x": [1.0] * 400}, [0.5], [2.0]),
    ]
    return Case(name, made, pairs, read=lambda table: number_columns(table, made.layout))


def _refits(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    problems = _candidates(neighbours)
    plan = plan_refits(Recentered(), problems, 1, 2, budget)
    return Case(name, plan, record_pairs(problems[1], 2, allowed_shift(budget)))


def _trial(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    problems = _candidates(neighbours)
    search = plan_trials([Recentered()] * 2, problems[:2], 2, budget, 2.0)
    pairs = record_pairs(problems[0], 2, allowed_shift(budget, 2.0))
    return Case(name, _one_trial(search), pairs, trials=search.mean)


def _moments(budget: Budget, neighbours: Neighbours, name: str) -> Case:
    problem = _candidates(neighbours)[0]
    plan = GramPlan.calibrated(Layout.of(problem, 2), budget)
    return Case(name, plan, record_pairs(problem, 2, allowed_shift(budget)))


def _candidates(neighbours: Neighbours) -> list[Problem]:
    domain = Domain(1.0, 1.0, neighbours.adjacency, neighbours.unit)
    return [Problem(Squared(), L2(alpha), domain=domain) for alpha in (0.01, 1.0, 1e4)]


_MAKERS: dict[str, Callable[[Budget, Neighbours, str], Case]] = {
    "check": _check,
    "describe": _describe,
    "describe by group": _describe,
    "scores of numbers": _scores,
    "scores of classes": _scores,
    "bounds": _bounds,
    "search over refits": _refits,
    "one trial of a search": _trial,
    "second moments": _moments,
}
RELEASES = {name + who: make for name, make in _MAKERS.items() for who in ("", " of persons")}
RELEASES["scores of counts"] = _scores


def release_case(name: str, adjacency: Adjacency, budget: Budget = BUDGET) -> Case:
    """The one of `RELEASES` with this name, which says whether persons are protected."""
    neighbours = Neighbours(adjacency, "who" if name.endswith("of persons") else None)
    return RELEASES[name](budget, neighbours, f"{name}, {adjacency}")


def everything(budget: Budget = BUDGET) -> dict[str, Callable[[], Case]]:
    """Makers of all cases by their names; one that no theorem covers raises when it is made."""
    makers: dict[str, Callable[[], Case]] = {}
    for adjacency in get_args(Adjacency):
        for mechanism, loss, d, unit in _mechanisms():
            spent = budget
            if getattr(mechanism, "accounting", "") == "paper":
                spent = Budget(min(budget.epsilon, _EPSILON_OF_PAPER), budget.delta)
            domain = Domain(adjacency=adjacency, unit=unit, weighted=isinstance(loss, Weighted))
            problem = Problem(loss, domain=domain)
            makers[named(mechanism, problem, d)] = partial(mechanism_case, mechanism, problem, d, spent)
        for name, model in _models(budget, adjacency):
            makers[f"{name}, {adjacency}"] = partial(model_case, model, f"{name}, {adjacency}")
        for name in RELEASES:
            makers[f"{name}, {adjacency}"] = partial(release_case, name, adjacency, budget)
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

    `only` is a text that the names of what is tried have in them; `processes` at a time, by default as many
    as there are cores, at most eight; `options` as for `exam`.
    """
    turns = [(name, budget, options) for name in everything(budget) if only in name]
    count = min(processes or os.cpu_count() or 1, 8, len(turns))
    if count <= 1:
        yield from (found for found in map(_one, turns) if found is not None)
        return
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        yield from (found for found in pool.map(_one, turns) if found is not None)
