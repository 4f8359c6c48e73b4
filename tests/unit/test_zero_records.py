"""A record whose target is missing, unreadable or undeclared adds nothing to anything but the number of rows.

What its other cells hold plays no role: two tables that differ only there give the same release, bit by bit,
and so does one in which such records are zero.
"""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.catalogue import ESTIMATORS, MECHANISMS, SEVERAL, adjacencies_of, problem_for

from curvedp import Budget, PrivateLinearRegression, PrivateLogisticRegression, PrivateRidge, private_fit
from curvedp.analyses.explore import describe
from curvedp.analyses.scores import private_scores
from curvedp.analyses.search import PrivateSearch
from curvedp.data import Boolean, Categorical, Numeric, Schema
from curvedp.data.rows import make_rows
from curvedp.mechanisms import Recentered, make_plan
from curvedp.mechanisms.rule import Rule
from curvedp.problems.domain import Domain
from curvedp.release.door import execute
from curvedp.release.fit import PrivateStatistics

N, LOST = 300, slice(0, 60)
BUDGET = Budget(5.0, 1e-3)
HOSTILE = [None, "n/a", float("nan"), "1,5", object(), [1.0], b"\xff", "", "not declared", 1 + 2j]
QUICK = Recentered(Rule(rounds=4, first_rounds=2))


def features(wild):
    """Two columns; those of lost records are far out where `wild` says so."""
    X = np.random.default_rng(0).uniform(-1, 1, (N, 2))
    X[LOST] = wild
    return X


def targets(X, lost):
    y = np.random.default_rng(1).choice([-1.0, 1.0], N) * 0.5 + 0.1
    y[LOST] = lost
    return y


CASES = [(name, adjacency) for name in MECHANISMS for adjacency in adjacencies_of(name)]


@pytest.mark.parametrize(("name", "adjacency"), CASES)
def test_every_mechanism_sees_a_lost_target_as_the_zero_record(name, adjacency):
    problem = problem_for(name, adjacency)
    plan = make_plan(MECHANISMS[name], problem, 2, BUDGET)
    rng = np.random.default_rng(1)
    y = np.where(rng.random(N) < 0.5, -1.0, 1.0)
    lost = np.arange(N) < 60
    tables = [
        (features(0.0), np.where(lost, 0.0, y)),
        (features(0.9), np.where(lost, np.nan, y)),
        (features(np.nan), np.where(lost, np.nan, y)),
        (features(-1e300), np.where(lost, np.nan, y)),
    ]
    found = [
        execute(plan, make_rows(X, t, problem.domain), random_state=3).value.theta.tobytes()
        for X, t in tables
    ]
    assert len(set(found)) == 1
    usual = execute(plan, make_rows(features(0.9), y, problem.domain), random_state=3).value.theta
    assert usual.tobytes() != found[0]  # a target that is there counts


@pytest.mark.parametrize("engine", ["dense", "sparse", "dask", "lists"])
def test_every_engine_does(engine):
    made = {
        "dense": lambda X, y: (X, y),
        "sparse": lambda X, y: (sparse.csr_array(X), y),
        "dask": lambda X, y: (da.from_array(X, chunks=(70, 2)), da.from_array(y, chunks=70)),
        "lists": lambda X, y: (X.astype(object), [None if t != t else t for t in y.tolist()]),
    }[engine]
    problem = problem_for("recentered", "replace")
    found = []
    for wild in (0.0, 0.9, -0.7):
        X = features(wild)
        X, y = made(X, targets(X, np.nan))
        fitted = private_fit(problem, X, y, budget=BUDGET, mechanism=QUICK, random_state=1)
        found.append(fitted.value.theta.tobytes())
    assert len(set(found)) == 1


def test_several_targets_and_statistics_do():
    found = []
    for wild in (0.3, 0.9):
        X = features(wild)
        Y = np.column_stack([targets(X, np.nan), targets(X, 0.2)])
        released = PrivateStatistics.release(X, Y, budget=BUDGET, domain=Domain(), random_state=0)
        found.append(
            [np.asarray(getattr(released, n)).tobytes() for n in ("xx", "xy") if hasattr(released, n)]
        )
    assert found[0] == found[1] and found[0]


COLUMNS = (Numeric("a", -1, 1), Numeric("b", -1, 1))


def table(wild, kind):
    """A raw table, its first 60 targets hostile, in another order for every `wild`."""
    X = features(wild)
    good = (
        {"number": 0.5, "level": "1", "truth": "yes"}[kind],
        {"number": -0.25, "level": "0", "truth": "no"}[kind],
    )
    picks = np.random.default_rng(1).random(N) < 0.5 + 0.4 * np.sign(X[:, 0])
    y = [good[0] if pick else good[1] for pick in picks]
    shift = 0 if wild == 0.0 else 3
    y[LOST] = [HOSTILE[(i + shift) % len(HOSTILE)] for i in range(60)]
    return {"a": X[:, 0], "b": X[:, 1], "y": y}


TARGET = {
    "number": Numeric("y", -1, 1),
    "level": Categorical("y", ["0", "1"]),
    "truth": Boolean("y"),
}
OF_KIND = [
    (cls, kind)
    for cls in ESTIMATORS
    for kind in TARGET
    if hasattr(cls, "classes") == (kind != "number") and cls.__name__ not in SEVERAL
]


@pytest.mark.parametrize(("estimator", "kind"), OF_KIND, ids=lambda value: getattr(value, "__name__", value))
def test_every_estimator_does(estimator, kind):
    target = Numeric("y", 0, 1) if hasattr(estimator, "max_rate") else TARGET[kind]
    schema = Schema((*COLUMNS, target), target="y")
    models = [
        estimator(schema=schema, mechanism=QUICK, epsilon=5.0, delta=1e-3, random_state=0).fit(
            table(wild, kind)
        )
        for wild in (0.0, 0.9)
    ]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()


@pytest.mark.parametrize("name", SEVERAL)
def test_one_lost_target_of_several_is_enough(name):
    (estimator,) = [cls for cls in ESTIMATORS if cls.__name__ == name]
    found = []
    for wild in (0.0, 0.9):
        cells = table(wild, "number")
        Y = {"one": cells["y"], "two": [0.25] * N}
        model = estimator(
            bounds=(-1, 1),
            target_bounds=[(-1, 1), (-1, 1)],
            mechanism=QUICK,
            epsilon=5.0,
            delta=1e-3,
            random_state=0,
        )
        found.append(model.fit(features(wild), pd.DataFrame(Y, dtype=object)).coef_.tobytes())
    assert found[0] == found[1]


def test_dask_tables_do():
    schema = Schema((*COLUMNS, TARGET["number"]), target="y")
    found = []
    for wild in (0.0, 0.9):
        cells = table(wild, "number") | {}
        cells["y"] = [t if isinstance(t, float) else None for t in cells["y"]]
        lazy = dd.from_pandas(pd.DataFrame(cells), npartitions=3)
        model = PrivateRidge(
            schema=schema, alpha=1.0, mechanism=QUICK, epsilon=5.0, delta=1e-3, random_state=0
        )
        found.append(model.fit(lazy).coef_.tobytes())
    assert found[0] == found[1]


def test_inference_refits_and_searches_do():
    schema = Schema((*COLUMNS, TARGET["number"]), target="y")
    told, searched, refitted = [], [], []
    for wild in (0.0, 0.9):
        cells = table(wild, "number")
        model = PrivateLinearRegression(
            schema=schema, inference=True, epsilon=20.0, delta=1e-3, random_state=0
        )
        told.append(np.asarray(model.fit(cells).conf_int()).tobytes())
        ridge = PrivateRidge(schema=schema, alpha=1.0, epsilon=20.0, delta=1e-3, random_state=0)
        refitted.append(ridge.fit(cells).refit(alpha=2.0).coef_.tobytes())
        plain = PrivateRidge(schema=schema)
        found = PrivateSearch(plain, {"alpha": [1.0, 50.0]}, epsilon=20.0, delta=1e-3, random_state=0).fit(
            cells
        )
        searched.append((found.best_params_, found.best_estimator_.coef_.tobytes()))
    assert told[0] == told[1] and refitted[0] == refitted[1] and searched[0] == searched[1]


@pytest.mark.parametrize("kind", TARGET)
def test_scores_do(kind):
    schema = Schema((*COLUMNS, TARGET[kind]), target="y")
    cls = PrivateRidge if kind == "number" else PrivateLogisticRegression
    model = cls(schema=schema, alpha=1.0, mechanism=QUICK, epsilon=5.0, delta=1e-3, random_state=0)
    model.fit(table(0.0, kind))
    found = [
        private_scores(model, table(wild, kind), epsilon=20.0, delta=1e-3, random_state=0).to_dict()
        for wild in (0.0, 0.9)
    ]
    assert found[0] == found[1]


def test_a_description_counts_them_as_missing_and_leaves_them_out_of_the_mean():
    schema = Schema((*COLUMNS, TARGET["number"]), target="y")
    many = {name: list(cells) * 20 for name, cells in table(0.0, "number").items()}
    found = describe(many, schema, epsilon=50.0, delta=1e-3, random_state=0)["y"]
    there = [t for t in many["y"] if isinstance(t, float) and t == t]
    assert abs(found.missing.value - 0.2) < 0.02
    assert abs(found.mean.value - np.mean(there)) < 0.02
    assert abs(found.mean.value) > 0.05  # the middle of the range is 0


def test_a_coefficient_does_not_move_towards_the_middle():
    """y = 2x in [−2, 2]; half of the targets are missing where x > 0. The middle would halve the slope."""
    x = np.linspace(-1, 1, 4000)
    y = [None if a > 0 and i % 2 else 2 * a for i, a in enumerate(x)]
    schema = Schema((Numeric("x", -1, 1), Numeric("y", -2, 2)), target="y")
    model = PrivateLinearRegression(schema=schema, epsilon=50.0, delta=1e-3, random_state=0).fit(
        {"x": x, "y": y}
    )
    assert abs(float(model.coef_[0]) - 2.0) < 0.1
    middle = PrivateLinearRegression(schema=schema, epsilon=50.0, delta=1e-3, random_state=0)
    middle.fit({"x": x, "y": [0.0 if t is None else t for t in y]})
    assert float(middle.coef_[0]) < 1.7
