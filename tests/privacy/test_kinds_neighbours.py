"""Dates, truth values and numbers as people write them: a hostile cell of any kind never raises or shows."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogue import ADJACENCIES
from tests.privacy.hostile import KIND_CONTAINERS, OddDay
from tests.privacy.replay import moved_by
from tests.privacy.test_neighbouring_tables import QUICK, column, named, neighbours, observe, take

from curvedp import Budget, PrivateLogisticRegression
from curvedp.analyses.explore import describe
from curvedp.analyses.explore.check import cells_of, check, plan
from curvedp.data import Boolean, Categorical, Date, Numeric, Schema
from curvedp.data.dates import PARTS

few = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
DATE = Date("a", "2020-01-01", "2021-12-31", parts=PARTS, missing="indicator")
WRITTEN = Numeric("b", 0, 10, decimal=",", thousands=".", missing_codes=[-9], missing="indicator")
LEVELS = Categorical("y", ["2020-02-29", "1", "ja"])
MERGED = Categorical("b", {"ja": ["1"], "nein": ["0"]}, missing="level", fold_case=True, other="rest")


def schemas(container: str, adjacency: str, target: str | None = "y") -> list[Schema]:
    """Every kind in some place; of typed dates only what their type can hold."""
    if KIND_CONTAINERS[container][0] == "day":
        written = Date("b", "2020-01-01", "2020-12-31", format="%d.%m.%Y")
        return [Schema([DATE, written, LEVELS], target, adjacency)]
    words = Boolean("y", ["nein", "ja"], missing="indicator")
    more = Schema(
        [Boolean("a"), MERGED, Boolean("y", missing="indicator")],
        target,
        adjacency,
    )
    return [Schema([DATE, WRITTEN, words], target, adjacency), more]


def fitted(table: Any, schema: Schema) -> Any:
    model = PrivateLogisticRegression(
        schema=schema if named(table) else Schema(schema.columns[:2], adjacency=schema.adjacency),
        classes=None if named(table) else [0, 1],
        mechanism=QUICK,
        random_state=0,
    )
    return model.fit(table) if named(table) else model.fit(take(table, ["a", "b"]), column(table))


def checked(table: Any, schema: Schema) -> Any:
    options = {"epsilon": 1e4, "delta": 0.5, "random_state": 0}
    if named(table):
        return check(schema, table, **options)
    return check(schema, take(table, ["a", "b"]), column(table), **options)


def described(table: Any, schema: Schema) -> Any:
    shown = schema if named(table) else Schema(schema.columns[:2], adjacency=schema.adjacency)
    own = table if named(table) else take(table, ["a", "b"])
    return describe(own, shown, epsilon=1e4, delta=0.5, random_state=0)


ENTRANCES = [fitted, checked, described]


@pytest.mark.parametrize("container", KIND_CONTAINERS)
@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
@few
@given(data=st.data())
def test_neighbours_give_the_same_errors_warnings_logs_and_attributes(entrance, container, data):
    kind, make = KIND_CONTAINERS[container]
    adjacency = data.draw(st.sampled_from(ADJACENCIES))
    pair = neighbours(data, kind, adjacency)
    for schema in schemas(container, adjacency):
        left, right = (
            observe(lambda columns=columns, schema=schema: entrance(make(columns), schema))
            for columns in pair
        )
        assert left == right
        assert not left.warned and not left.logged
        assert not left.error or "no rows" in left.error or "fewer than" in left.error


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("container", KIND_CONTAINERS)
@few
@given(data=st.data())
def test_one_hostile_record_moves_the_counts_by_the_planned_shift_at_most(container, adjacency, data):
    kind, make = KIND_CONTAINERS[container]
    tables = [make(columns) for columns in neighbours(data, kind, adjacency)]
    for schema in schemas(container, adjacency):
        made = plan(schema, Budget(1.0, 1e-6))
        left, right = (
            cells_of(schema, t) if named(t) else cells_of(schema, take(t, ["a", "b"]), column(t))
            for t in tables
        )
        assert moved_by(made, left, right, pytest.MonkeyPatch()).gaussian <= made.split.profile.mu


@pytest.mark.parametrize("container", KIND_CONTAINERS)
@few
@given(data=st.data())
def test_one_record_never_changes_how_another_is_read_or_predicted(container, data):
    kind, make = KIND_CONTAINERS[container]
    left, right = neighbours(data, kind, "replace")
    same = [i for i in range(len(left["a"])) if all(left[n][i] is right[n][i] for n in "aby")]
    for schema in schemas(container, "replace", target=None):
        tables = [make(columns) for columns in (left, right)]
        one, two = (schema.read(table) for table in tables)
        assert one[same].tobytes() == two[same].tobytes()
        mapped = schema.column_map().apply(np.vstack([one, two]))
        assert np.isfinite(mapped).all()
        assert np.linalg.norm(mapped, axis=1).max(initial=0.0) <= schema.column_map().norm_bound


TOKEN = re.compile("secret-diagnosis|token-of-odd")


@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
@pytest.mark.parametrize("where", ["a", "b", "y"])
@pytest.mark.parametrize("token", ["secret-diagnosis", OddDay(2020, 2, 29)], ids=["text", "date"])
def test_a_planted_token_appears_nowhere(entrance, where, token):
    for schema in schemas("mapping", "replace"):
        columns = {"a": ["2020-02-29"] * 20, "b": ["1,5"] * 20, "y": ["ja", "nein"] * 10}
        columns[where][7] = token
        seen = observe(lambda columns=columns, schema=schema: entrance(columns, schema))
        assert not seen.error
        assert not TOKEN.search(seen.error + " ".join(seen.warned) + " ".join(seen.logged))
        assert b"secret-diagnosis" not in pickle.dumps(getattr(seen.result, "__dict__", None))
