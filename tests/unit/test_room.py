"""Room is proved before the charge: columns, levels and the machine decide, which are public, and no row."""

from __future__ import annotations

import math
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from curvedp import (
    Budget,
    Domain,
    Ledger,
    PrivateLinearRegression,
    PrivateRidge,
    Problem,
    Schema,
    plans,
    private_fit,
)
from curvedp import mechanisms as m
from curvedp.analyses.explore.describe import DescribePlan, describe
from curvedp.analyses.explore.noisy import LevelCounts
from curvedp.analyses.explore.tallies import TableLayout, tallied
from curvedp.analyses.search import PrivateSearch
from curvedp.data import Boolean, Categorical, Date, Numeric
from curvedp.errors import InvalidInput
from curvedp.mechanisms import make_plan
from curvedp.plans import compose, memory, require_room, room_of
from curvedp.privacy.budget import Neighbours
from curvedp.problems.losses import Logistic, Multinomial, Squared
from curvedp.release.fit import PrivateStatistics
from curvedp_studies.mechanisms.baselines import NoisyGradient
from curvedp_studies.mechanisms.dpsgd import DPSGDPlan, SubsampledProfile

BUDGET = Budget(1.0, 1e-6)
SMALL = 2.0**20  # bytes of a machine on which thirty columns have no room


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "memory", lambda: SMALL)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=9.0, delta=1e-3, adjacency="replace")


def wide(d: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1, 1, (n, d))
    return X, X[:, 0]


def columns(d: int) -> Schema:
    return Schema([Numeric(f"x{j}", -1, 1) for j in range(d)])


CHARGING = {
    "fit": lambda X, y, book: PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), ledger=book).fit(X, y),
    "inference": lambda X, y, book: PrivateLinearRegression(
        bounds=(-1, 1), target_bounds=(-1, 1), ledger=book, inference=True
    ).fit(X, y),
    "search": lambda X, y, book: PrivateSearch(
        PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)), {"alpha": [1.0, 2.0]}, ledger=book
    ).fit(X, y),
    "statistics": lambda X, y, book: PrivateStatistics.release(
        X, y, budget=BUDGET, domain=Domain(1.0), ledger=book
    ),
    "describe": lambda X, y, book: describe(X, columns(X.shape[1]), epsilon=1.0, ledger=book),
}


@pytest.mark.parametrize("name", CHARGING)
def test_without_room_nothing_is_charged(small, ledger, name):
    with pytest.raises(
        InvalidInput, match=r"take about .* GiB of memory, and this process may have .* fewer"
    ):
        CHARGING[name](*wide(200, n=9000), ledger)
    assert not ledger.history()


@pytest.mark.parametrize("name", CHARGING)
def test_with_room_it_is_released(ledger, name):
    CHARGING[name](*wide(4, n=4000), ledger)
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("rows", [1, 3000])
def test_whether_there_is_room_does_not_depend_on_the_rows(small, rows):
    told = set()
    for X, y in (wide(200, rows), wide(200, 7)):
        with pytest.raises(InvalidInput) as caught:
            CHARGING["fit"](X, y, None)
        told.add(str(caught.value))
    assert len(told) == 1


def stated(mechanism, loss, d):
    return room_of(
        [make_plan(mechanism, Problem(loss, domain=Domain(1.0, adjacency="add_remove")), d, BUDGET)]
    )


def test_what_plans_state():
    assert stated(m.Recentered(), Squared(), 10) == 8 * 22 * 10**2
    assert stated(m.Statistics(), Squared(), 10) == 8 * 20 * 10**2
    assert stated(m.Recentered(inference=True), Squared(), 10) == 8 * 28 * 10**2
    assert stated(m.QOP(accounting="spectral"), Logistic(), 10) == 8 * 12 * 10**2
    assert stated(m.QOP(accounting="spectral"), Multinomial(3), 10) == 8 * 12 * 30**2
    assert stated(NoisyGradient(), Logistic(), 10) == 0
    lone = Problem(Logistic(), domain=Domain(1.0, adjacency="add_remove"))
    assert room_of([DPSGDPlan(lone, 10, BUDGET, 5, 1.0, 1.0, SubsampledProfile(1.0, 0.1, 5, 0.0))]) == 0
    plan = make_plan(m.Recentered(), Problem(Squared(), domain=Domain(1.0)), 5, BUDGET)
    assert room_of([compose([plan, plan], delta=1e-5)]) == 8 * 22 * 5**2


def peak(work) -> float:
    """The most bytes that Python and numpy hold at once while it runs."""
    tracemalloc.start()
    try:
        work()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "mechanism",
    [m.Recentered(), m.QOP(), m.Recentered(inference=True)],
    ids=["recentered", "qop", "with intervals"],
)
def test_a_release_takes_no_more_than_its_plan_states(mechanism):
    """What is stated is not far more, either."""
    problem, d = Problem(Squared(), domain=Domain(1.0, adjacency="add_remove")), 500
    X, y = wide(d, 60)
    used = peak(lambda: private_fit(problem, X, y, budget=BUDGET, mechanism=mechanism))
    assert 0.2 < used / stated(mechanism, Squared(), d) <= 1.0


def test_the_memory_of_this_process(monkeypatch, tmp_path):
    assert 2**27 < memory() < 2**60
    container = tmp_path / "memory.max"
    monkeypatch.setattr(plans, "_CGROUPS", (str(container),))
    container.write_text("max\n")
    free = memory()
    container.write_text("123456789\n")
    assert memory() == 123456789 < free
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, resource.RLIM_INFINITY))
    assert memory() == 1000
    require_room(700)
    with pytest.raises(InvalidInput, match="Nothing was charged"):
        require_room(800)
    monkeypatch.setattr(plans, "memory", lambda: math.inf)
    require_room(1e30)


# Many levels are streamed: no matrix of levels by levels, no row of as many cells as there are levels.


def levels(count: int) -> Schema:
    return Schema(
        [Categorical("g", [f"v{k}" for k in range(count)]), Numeric("a", 0, 1)], adjacency="replace"
    )


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "in a file"])
def test_many_levels_are_described_in_little_memory(tmp_path, stored):
    count, rows = 5_000, 3000
    table = {"g": [f"v{k % 3}" for k in range(rows)], "a": np.linspace(0, 1, rows).tolist()}
    path = tmp_path / "people.csv"
    path.write_text("g,a\n" + "".join(f"{g},{a}\n" for g, a in zip(*table.values(), strict=True)))
    found = []
    schema = levels(count)
    used = peak(lambda: found.append(describe(path if stored else table, schema, epsilon=50.0)))
    shares = found[0]["g"].shares
    assert abs(shares["v1"].value - 1 / 3) < 0.1 and abs(shares[f"v{count - 1}"].value) < 0.1
    assert used < 2**25  # one-hot rows have 114 MiB, a matrix of levels by levels 190 MiB


def test_counts_of_levels_have_the_covariance_of_a_matrix():
    """Against root·rootᵀ, written out: independent noise, then given the sum."""
    random, L, sigma, deviation = np.random.default_rng(3), 7, 2.0, 0.6
    noisy = random.normal(50, 9, L)
    cells = LevelCounts.of_levels(noisy, sigma)
    covariance = sigma**2 * np.eye(L)
    for _ in range(2):
        expected = np.column_stack([np.diag(covariance), covariance.sum(axis=1)])
        np.testing.assert_allclose([cells.of_cell(i) for i in range(L)], expected, rtol=1e-12, atol=1e-14)
        assert cells.total_deviation == pytest.approx(math.sqrt(covariance.sum()))
        gain = covariance.sum(axis=1) / covariance.sum()
        covariance = covariance - np.outer(gain, gain) * (covariance.sum() - deviation**2)
        agreed = cells.given_total(400.0, deviation)
        np.testing.assert_allclose(agreed.counts, cells.counts + gain * (400.0 - cells.counts.sum()))
        cells = agreed


def test_what_is_missing_is_counted_last():
    schema = Schema(
        [
            Categorical("g", ("x", "y", "z")),
            Boolean("b"),
            Numeric("a", 0, 1),
            Date("d", "2020-01-01", "2020-12-31"),
        ]
    )
    table = {
        "g": ["x", "z", "?", None, "z", "y"],
        "b": [True, False, None, "yes", "no", "?"],
        "a": [0.5, None, "n/a", 3.0, 0.1, 1.0],
        "d": ["2020-02-01", None, "2020-05-05", "x", "2020-12-31", "2020-01-01"],
    }
    found = tallied(table, schema).sums()
    assert found["levels"].tolist() == [1, 1, 2, 2, 2, 2, 2]
    everyone, numbers = found["cells"][0, 0], found["cells"][0, -4:]  # there or missing
    assert everyone == 6 and numbers.tolist() == [4, 2, 4, 2]
    x = np.array([0.0, 1.0, -0.8, 1.0])
    assert found["squares"][0] == pytest.approx(x @ x - 0.5 * len(x))
    assert found["sums"][0] == pytest.approx(x.sum())


def test_what_a_description_states_grows_with_columns_and_levels():
    layout = TableLayout(tuple(Numeric(f"x{j}", 0, 1) for j in range(10)), Neighbours())
    few = DescribePlan.calibrated(layout, BUDGET).room
    more = DescribePlan.calibrated(
        TableLayout((*layout.columns, Categorical("g", [str(k) for k in range(1000)])), Neighbours()), BUDGET
    ).room
    assert few < 2**24 and more - few == 2000.0 * 1001  # with what has no level
