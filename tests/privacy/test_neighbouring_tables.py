"""Two neighbouring tables with hostile cells, through every entrance: only a release tells them apart."""

from __future__ import annotations

import logging
import pickle
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests.catalogue import ADJACENCIES, MECHANISMS, adjacencies_of, problem_for
from tests.privacy.hostile import CONTAINERS, STRATEGY, Odd
from tests.privacy.replay import moved_by

from curvedp import (
    Budget,
    Domain,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    private_fit,
)
from curvedp.data import Categorical, Numeric
from curvedp.data.rows import make_rows
from curvedp.mechanisms import Recentered, make_plan
from curvedp.mechanisms.rule import Rule
from curvedp.problems import Problem
from curvedp.problems.losses import Logistic
from curvedp.release.fit import PrivateStatistics

BOUNDS = [(-1, 1), (-1, 1)]
POSITIONAL = np.ndarray | da.Array | sparse.csr_array
QUICK = Recentered(Rule(rounds=4, first_rounds=2))
few = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass
class Seen:
    """All that an outsider could see of one call, numbers of a release aside."""

    error: str = ""
    warned: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    result: Any = None

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Seen)
        mine = (self.error, self.warned, self.logged, self.attributes)
        return mine == (other.error, other.warned, other.logged, other.attributes)


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(f"{record.name}: {record.getMessage()}")


def chain(error: BaseException | None) -> str:
    """Every text that hangs on an exception."""
    parts = []
    while error is not None:
        parts.append("".join(traceback.format_exception_only(error)))
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


def observe(work: Callable[[], Any]) -> Seen:
    handler, root = Collecting(), logging.getLogger()
    root.addHandler(handler)
    seen = Seen()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                seen.result = work()
            except Exception as error:
                seen.error = chain(error)
    finally:
        root.removeHandler(handler)
    seen.warned = tuple(str(warning.message) for warning in caught)
    seen.logged = tuple(handler.records)
    seen.attributes = tuple(sorted(vars(seen.result))) if hasattr(seen.result, "__dict__") else ()
    return seen


SCHEMA = Schema((Numeric("a", -1, 1), Categorical("b", ("0", "1", "yes")), Numeric("y", -1, 1)), target="y")


def take(table: Any, names: list[str]) -> Any:
    """Some columns of any container."""
    order = {"a": 0, "b": 1, "y": 2}
    if isinstance(table, dict):
        return {name: table[name] for name in names}
    if isinstance(table, list):
        return [[row[order[name]] for name in names] for row in table]
    if isinstance(table, POSITIONAL):
        return table[:, [order[name] for name in names]]
    return table.select(names) if hasattr(table, "select") else table[names]


def column(table: Any) -> Any:
    """The target."""
    if isinstance(table, dict):
        return table["y"]
    if isinstance(table, list):
        return [row[2] for row in table]
    if sparse.issparse(table):
        return table.toarray()[:, 2]
    return table[:, 2] if isinstance(table, POSITIONAL) else table["y"]


def named(table: Any) -> bool:
    return not isinstance(table, list | POSITIONAL)


def regression(table: Any, adjacency: str) -> Any:
    model = PrivateRidge(
        bounds=BOUNDS,
        target_bounds=(-1, 1),
        adjacency=adjacency,
        mechanism=QUICK,
        random_state=0,
    )
    return model.fit(take(table, ["a", "b"]), column(table))


def classification(table: Any, adjacency: str) -> Any:
    model = PrivateLogisticRegression(
        bounds=BOUNDS,
        classes=["0", "1", "yes"],
        adjacency=adjacency,
        mechanism=QUICK,
        random_state=0,
    )
    return model.fit(take(table, ["a", "b"]), column(table))


def two_classes(table: Any, adjacency: str) -> Any:
    model = PrivateLinearSVC(
        bounds=BOUNDS, classes=["0", "1"], adjacency=adjacency, mechanism=QUICK, random_state=0
    )
    return model.fit(take(table, ["a", "b"]), column(table))


def raw_table(table: Any, adjacency: str) -> Any:
    schema = (
        Schema(SCHEMA.columns, "y", adjacency)
        if named(table)
        else Schema(SCHEMA.columns[:2], None, adjacency)
    )
    options = {} if named(table) else {"target_bounds": (-1, 1)}
    model = PrivateRidge(schema=schema, mechanism=QUICK, random_state=0, **options)
    return model.fit(table) if named(table) else model.fit(take(table, ["a", "b"]), column(table))


def core(table: Any, adjacency: str) -> Any:
    problem = Problem(Logistic(), domain=Domain(adjacency=adjacency))
    released = private_fit(
        problem,
        take(table, ["a", "b"]),
        column(table),
        budget=Budget(1.0, 1e-6),
        mechanism=QUICK,
        random_state=0,
    )
    return released


def statistics(table: Any, adjacency: str) -> Any:
    return PrivateStatistics.release(
        take(table, ["a", "b"]), column(table), budget=Budget(1.0, 1e-6), domain=Domain(adjacency=adjacency),
        random_state=0,
    )  # fmt: skip


TERMS = "I(a**2):b + spline(a, knots=[0], degree=1) + log1p(exp(a)) + I(a > 0.25)"


def formula(table: Any, adjacency: str) -> Any:
    """Derived columns, and a derived target where the table has names."""
    columns = SCHEMA.columns if named(table) else SCHEMA.columns[:2]
    text = f"exp(y) ~ {TERMS}" if named(table) else f"~ {TERMS}"
    options = {} if named(table) else {"target_bounds": (-1, 1)}
    schema = Schema(columns, adjacency=adjacency)
    model = PrivateRidge(schema=schema, formula=text, mechanism=QUICK, random_state=0, **options)
    return model.fit(table) if named(table) else model.fit(take(table, ["a", "b"]), column(table))


ENTRANCES = [regression, classification, two_classes, raw_table, formula, core, statistics]


def neighbours(data: st.DataObject, kind: str, adjacency: str) -> tuple[dict[str, list], dict[str, list]]:
    n = data.draw(st.integers(0, 6))
    cell = STRATEGY[kind]
    record = st.tuples(cell, cell, cell)
    rows = data.draw(st.lists(record, min_size=n, max_size=n))
    other = list(rows)
    if adjacency == "add_remove" or not rows:
        other.append(data.draw(record))
        if adjacency == "replace":
            rows = [*rows, data.draw(record)]
    else:
        other[data.draw(st.integers(0, n - 1))] = data.draw(record)
    return tuple({name: [row[j] for row in table] for j, name in enumerate("aby")} for table in (rows, other))  # type: ignore[return-value]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
@few
@given(data=st.data())
def test_neighbours_give_the_same_errors_warnings_logs_and_attributes(entrance, container, data):
    same_but_for_the_release(entrance, container, data)


@pytest.mark.full
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
@settings(few, max_examples=150)
@given(data=st.data())
def test_many_neighbours_give_the_same_errors_warnings_logs_and_attributes(entrance, container, data):
    same_but_for_the_release(entrance, container, data)


def same_but_for_the_release(entrance, container, data):
    kind, make = CONTAINERS[container]
    adjacency = data.draw(st.sampled_from(ADJACENCIES))
    left, right = (
        observe(lambda columns=columns: entrance(make(columns), adjacency))
        for columns in neighbours(data, kind, adjacency)
    )
    assert left == right
    assert not left.warned and not left.logged


@pytest.mark.parametrize("container", ["lists", "object array", "pandas object", "polars text", "mapping"])
@few
@given(data=st.data())
def test_predicting_hostile_cells_tells_nothing(container, data):
    kind, make = CONTAINERS[container]
    model = regression({"a": [0.1] * 9, "b": [0.2] * 9, "y": [0.3] * 9}, "replace")
    left, right = (
        observe(lambda columns=columns: model.predict(take(make(columns), ["a", "b"])))
        for columns in neighbours(data, kind, "replace")
    )
    assert left == right
    assert not left.error and not left.warned


cells = st.sampled_from([0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e153, -1.7e308, 5e-324]) | st.floats(
    -3, 3
)


@pytest.mark.parametrize(
    ("name", "adjacency"),
    [(n, a) for n in ("recentered", "gradient", "statistics") for a in adjacencies_of(n)],
)
@settings(few, max_examples=10)
@given(data=st.data())
def test_one_hostile_record_moves_no_release_by_more_than_was_planned(name, adjacency, data):
    d = 2
    problem = problem_for(name, adjacency)
    plan = make_plan(MECHANISMS[name], problem, d, Budget(1.0, 1e-6))
    record = st.tuples(*[cells] * (d + 1))
    rows = data.draw(st.lists(record, min_size=1, max_size=30))
    other = [*rows, data.draw(record)] if adjacency == "add_remove" else [data.draw(record), *rows[1:]]
    left, right = (make_rows(np.array(t)[:, :d], np.array(t)[:, d], problem.domain) for t in (rows, other))
    patch = pytest.MonkeyPatch()
    try:
        moved = moved_by(plan, left, right, patch, seed=data.draw(st.integers(0, 99)))
    finally:
        patch.undo()
    assert moved.gaussian <= plan.guarantee.profile.mu * (1 + 1e-9)
    assert moved.curvature <= 1 + 1e-9
    assert moved.rank <= problem.domain.neighbours.moves


def test_a_planted_leak_is_seen_by_the_replay(monkeypatch):
    """Records clipped to twice the bound move a Gram matrix further than was planned."""
    plan = make_plan(MECHANISMS["statistics"], problem_for("statistics", "add_remove"), 1, Budget(1.0, 1e-6))
    honest = make_rows(np.ones((5, 1)), np.ones(5), plan.problem.domain)
    leaking = make_rows(np.r_[np.ones((5, 1)), [[4.0]]], np.ones(6), Domain(4.0, 1.0, "add_remove"))
    patch = pytest.MonkeyPatch()
    assert moved_by(plan, honest, leaking, patch).gaussian > 2 * plan.guarantee.profile.mu


TOKEN = re.compile("secret-diagnosis|token-of-odd")


@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
@pytest.mark.parametrize("where", ["a", "b", "y"])
@pytest.mark.parametrize("container", ["lists", "object array", "pandas object", "mapping", "polars text"])
def test_a_planted_token_appears_nowhere(entrance, where, container):
    kind, make = CONTAINERS[container]
    for token in ("secret-diagnosis", *([Odd()] if kind == "object" else [])):
        filler = "0.25" if kind == "text" else 0.25
        columns = {name: [filler] * 20 for name in "aby"}
        columns[where][7] = token
        seen = observe(lambda columns=columns: entrance(make(columns), "replace"))
        assert not TOKEN.search(seen.error + " ".join(seen.warned) + " ".join(seen.logged))
        assert b"secret-diagnosis" not in pickle.dumps(getattr(seen.result, "__dict__", None))
