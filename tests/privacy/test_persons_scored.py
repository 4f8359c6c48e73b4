"""Scores, searches and second moments of tables that differ in one person: all rows together move no more
than one record may; a bug that counts rows for persons is seen."""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.privacy.hostile import objects
from tests.privacy.replay import moved_by

from curvedp import Budget, Domain, PrivateLogisticRegression, PrivateRidge, Problem
from curvedp.analyses.scores import score_plan
from curvedp.analyses.scores.source import read_scored
from curvedp.analyses.search import plan_refits
from curvedp.auditing import exam
from curvedp.auditing.cases import RELEASES, Trial, mechanism_case, release_case
from curvedp.auditing.totals import Case, Pair
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.frames import Table
from curvedp.data.rows import base, make_rows, persons
from curvedp.mechanisms import Recentered, Statistics
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.curvature import Wishart
from curvedp.problems.losses import Squared
from curvedp.problems.regularizers import L2
from curvedp_studies.mechanisms.wishart import NoisyCurvature, WishartStatistics

BUDGET = Budget(1.0, 1e-6)
ADJACENCIES = ("add_remove", "replace")
ROWS = 4_000  # of the hostile person
FEATURES = (Numeric("a", -1, 1), Categorical("sex", ("f", "m")))
TARGETS = {
    "regression": Numeric("y", -4, 4),
    "two": Categorical("y", ("no", "yes")),
    "three": Categorical("y", ("0", "1", "2")),
}
ENDS: dict[str, list[Any]] = {"regression": [-4.0, 4.0, 1e9], "two": ["no", "yes"], "three": ["0", "1", "2"]}
PAIRS = [(kind, adjacency) for kind in TARGETS for adjacency in ADJACENCIES]
few = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def crowd(kind: str, persons: int = 60, seed: int = 0) -> list[list[Any]]:
    """Rows (person, a, sex, y) of persons with one to four of them, in any order."""
    random = np.random.default_rng(seed)
    who = random.permutation(np.repeat(np.arange(persons), random.integers(1, 5, persons)))
    y = random.normal(0, 1, len(who)) if kind == "regression" else random.choice(ENDS[kind], len(who))
    a, sex = random.uniform(-1, 1, len(who)), random.choice(["f", "m"], len(who))
    return [list(row) for row in zip(who.tolist(), a.tolist(), sex.tolist(), y.tolist(), strict=True)]


def table(rows: list[list[Any]]) -> dict[str, list[Any]]:
    return {name: [row[j] for row in rows] for j, name in enumerate(("who", "a", "sex", "y"))}


@cache
def fitted(kind: str, adjacency: Any) -> Any:
    schema = Schema((*FEATURES, TARGETS[kind]), "y", adjacency, unit="who")
    rows = crowd(kind, 300, 1)
    train = [[who, a, sex, 3 * a if kind == "regression" else y] for who, a, sex, y in rows]
    model = (PrivateRidge if kind == "regression" else PrivateLogisticRegression)(schema=schema, epsilon=20.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(table(train))


def moved(kind: str, adjacency: str, own: list[list[Any]], other: list[list[Any]], seed: int = 0) -> float:
    """How far a person with these records (a, sex, y) in the place of another moves all releases, over μ."""
    model, rest = fitted(kind, adjacency), crowd(kind, seed=seed)
    left = [*rest, *([-1, *row] for row in own)]
    right = [*([999, *row] for row in (other if adjacency == "replace" else [])), *rest]
    tables = [read_scored(model, table(rows), by="sex") for rows in (left, right)]
    plan = score_plan(tables[0].layout, BUDGET)
    with pytest.MonkeyPatch.context() as patch:
        return moved_by(plan, *tables, patch, seed).gaussian / plan.split.profile.mu


def hostile(kind: str) -> list[list[list[Any]]]:
    """Persons of very many rows: all at one corner of what is declared, or spread over all of them."""
    corners = [[a, sex, y] for a in (-1.0, 1e9) for sex in ("f", "m", "?") for y in ENDS[kind]]
    found = [[corner] * ROWS for corner in corners[::3]]
    return [*found, corners * (ROWS // len(corners)), [[0.0, "f", None]] * ROWS]


@pytest.mark.parametrize(("kind", "adjacency"), PAIRS)
def test_four_thousand_rows_of_a_person_move_scores_as_one_record_does(kind: str, adjacency: str) -> None:
    some = hostile(kind)
    shifts = [
        moved(kind, adjacency, own, other) for own, other in zip(some, some[1:] + some[:1], strict=True)
    ]
    assert max(shifts) <= 1.0
    assert max(shifts) > 0.4  # in a small crowd, whose noise chooses the cells
    assert moved(kind, "add_remove", some[-1], []) == 0.0  # no usable target: nothing is added


@pytest.mark.parametrize(("kind", "adjacency"), PAIRS)
@few
@given(st.data())
def test_no_hostile_person_moves_scores_by_more_than_planned(
    kind: str, adjacency: str, data: st.DataObject
) -> None:
    cell = objects | st.sampled_from([-1, 1, "f", "m"])
    record = st.tuples(cell, cell, objects | st.sampled_from(ENDS[kind])).map(list)
    own, other = (data.draw(st.lists(record, min_size=1, max_size=6)) for _ in range(2))
    assert moved(kind, adjacency, own * 3, other, data.draw(st.integers(0, 5))) <= 1.0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_rows_that_count_as_persons_are_seen(adjacency: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: parts are forgotten, and every row counts 1."""
    monkeypatch.setattr(Table, "parts", property(lambda table: np.ones(len(table))))
    some = hostile("regression")
    assert moved("regression", adjacency, some[0], some[1]) > 100.0


PERSONS = [
    name
    for name in RELEASES
    if "persons" in name and name.split()[0] in ("scores", "search", "one", "second")
]


def audited(name: str, adjacency: Any) -> Any:
    return exam(release_case(name, adjacency), replays=6 if "search" in name else 20)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", PERSONS)
def test_releases_of_persons_hold_and_come_near_their_claims(name: str, adjacency: str) -> None:
    found = audited(name, adjacency)
    assert found.verdict == "held" and found.total >= 0.7, found.sentence


def clips_rows(block, y, domain, of, clip):
    """The bug: every row is clipped by itself."""
    return base.vectors(block.block, y, domain, of, clip)


def sums_rows(block, y, domain):
    """The bug: every row counts 1 in second moments."""
    return base.moments(block.block, y, domain)


@pytest.mark.parametrize(
    ("what", "bug", "name"),
    [
        ("vectors", clips_rows, "search over refits of persons"),
        ("vectors", clips_rows, "one trial of a search of persons"),
        ("moments", sums_rows, "second moments of persons"),
    ],
)
def test_a_planted_bug_is_found(what, bug, name, monkeypatch) -> None:
    monkeypatch.setattr(persons, what, bug)
    assert audited(name, "add_remove").verdict == "refuted"


# Persons whose rows point everywhere: more than rank one.


def rows_of(adjacency: str, own: np.ndarray, seed: int = 0) -> Any:
    """A crowd of persons with some rows each, and one with these rows (x, x, y)."""
    random = np.random.default_rng(seed)
    who, rest = np.repeat(np.arange(30), 3), random.uniform(-0.6, 0.6, (90, 3))
    both = np.vstack([rest, own])
    unit = np.r_[who, np.full(len(own), 77)]
    return make_rows(both[:, :2], both[:, 2], Domain(adjacency=adjacency, unit="who"), unit=unit)


def around(k: int, y: float) -> np.ndarray:
    """k rows at the bound, in all directions."""
    angle = np.linspace(0, 2 * math.pi, k)
    return np.column_stack([np.cos(angle), np.sin(angle), np.full(k, y)]) * (1 - 1e-12)


PERSON_ROWS = {
    "one direction": np.tile([1 - 1e-12, 0.0, 1.0], (ROWS, 1)),
    "another": np.tile([0.0, 1 - 1e-12, -1.0], (ROWS, 1)),
    "all directions": around(ROWS, 1.0),
    "two rows": np.array([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]) * (1 - 1e-12),
    "no data": np.array([[np.nan, np.inf, 1.0], [1e153, -1.7e308, np.nan]]),
}


def person_pairs(adjacency: str) -> list[Pair]:
    names, nobody = list(PERSON_ROWS), np.zeros((0, 3))
    return [
        Pair(
            f"{name} or {other}",
            rows_of(adjacency, PERSON_ROWS[name]),
            rows_of(adjacency, PERSON_ROWS[other] if adjacency == "replace" else nobody),
        )
        for name, other in zip(names, names[1:] + names[:1], strict=True)
    ]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("mechanism", [Statistics(), WishartStatistics()], ids=["gaussian", "wishart"])
def test_moments_of_a_person_hold_whatever_its_rows_point_to(mechanism: Any, adjacency: Any) -> None:
    problem = Problem(Squared(), domain=Domain(adjacency=adjacency, unit="who"))
    case = mechanism_case(mechanism, problem, 2, Budget(1.0, 1e-3))
    found = exam(Case("", case.plan, person_pairs(adjacency)))
    assert found.verdict == "held", found.problems


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_searches_hold_for_persons_who_point_everywhere(adjacency: Any) -> None:
    domain, quick = Domain(adjacency=adjacency, unit="who"), Recentered(Rule(rounds=4, first_rounds=2))
    problems = [Problem(Squared(), L2(alpha), domain=domain) for alpha in (0.1, 3.0, 50.0)]
    plan = plan_refits(quick, problems, 1, 2, BUDGET)
    for pair in person_pairs(adjacency):
        with pytest.MonkeyPatch.context() as patch:
            assert moved_by(plan, pair.left, pair.right, patch).gaussian <= plan.profile.mu * (1 + 1e-9)
    trial = release_case("one trial of a search of persons", adjacency).plan
    assert isinstance(trial, Trial)
    found = exam(Case("", trial, person_pairs(adjacency), trials=trial.mean), replays=5)
    assert found.verdict == "held", found.problems


def test_wishart_noise_hides_a_mixture_of_records_better_than_one_of_them() -> None:
    """(S-1): δ(ε) is quasi-convex in what is added, so that it is largest where that has rank one."""
    problem = Problem(Squared(), domain=Domain(adjacency="add_remove"))
    plan = WishartStatistics().plan(problem, 2, Budget(1.0, 1e-3))
    zero, draws = np.zeros((2, 2)), Wishart(2, plan.m).sample(np.random.default_rng(0), 100_000)

    def deltas(added: np.ndarray) -> np.ndarray:
        here, there = (NoisyCurvature(query, plan.sigma2, plan.m, plan.profile.g) for query in (added, zero))
        values = added + plan.sigma2 * (draws - plan.m * np.eye(2))
        losses = here.log_densities(values) - there.log_densities(values)
        return np.array([np.mean(np.maximum(-np.expm1(eps - losses), 0.0)) for eps in (0.0, 0.25, 0.5)])

    one, mixed = deltas(np.diag([1.0, 0.0])), deltas(np.diag([0.5, 0.5]))
    assert (mixed < 0.95 * one).all() and mixed[0] > 0.1 * one[0]
