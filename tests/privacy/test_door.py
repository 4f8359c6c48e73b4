"""The one door: what it refuses it refuses before the charge, and nothing leaves it by the side."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

from curvedp import Budget, Domain, Ledger, PrivateLogisticRegression, PrivateRidge, Problem, private_fit
from curvedp.analyses.explore import private_quantiles
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ChunkedRows, make_rows
from curvedp.data.rows.base import Layout
from curvedp.errors import (
    CurvedpError,
    DataError,
    InvalidInput,
    LedgerRefused,
    NotCovered,
    StoppedAfterCharge,
)
from curvedp.mechanisms import QOP, Recentered, Statistics, make_plan
from curvedp.mechanisms.statistics import GramPlan
from curvedp.plans import compose
from curvedp.problems.constraints import Affine, L2Ball
from curvedp.problems.losses import Logistic, Poisson, Squared
from curvedp.problems.regularizers import L1, OnCoordinates
from curvedp.release.door import execute
from curvedp.release.fit import PrivateStatistics
from curvedp_studies.mechanisms.baselines import OutputPerturbation
from curvedp_studies.mechanisms.dpsgd import DPSGD
from curvedp_studies.mechanisms.exponential import Exponential
from curvedp_studies.mechanisms.input import InputPerturbation
from curvedp_studies.mechanisms.lop import LOP, LOPClip
from curvedp_studies.mechanisms.pure_lop import PureLOP

BUDGET = Budget(1.0, 1e-6)
BALL = Domain(3.0, 3.0)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budget.db", epsilon=100.0, delta=0.5, filter="basic")


def table(n=200, d=5, seed=0):
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, d))
    return X, (X[:, 0] > 0).astype(float)


@pytest.mark.parametrize(
    ("domain", "d"),
    [(Domain(10.0, 5.0), 5), (Domain(3.0, 3.0, "add_remove"), 5), (Domain(3.0, 4.0), 5), (BALL, 4)],
    ids=["longer records", "another adjacency", "larger targets", "fewer columns"],
)
def test_rows_of_another_domain_are_refused(domain, d, ledger):
    X, y = table(d=d)
    plan = make_plan(Statistics(), Problem(Squared(), domain=BALL), 5, BUDGET)
    with pytest.raises(InvalidInput, match="make both with one domain"):
        execute(plan, make_rows(X, y, domain), ledger=ledger)
    assert not ledger.history()


REFUSED = {
    "a loss without bounded curvature": lambda X, y, ledger: private_fit(
        Problem(Poisson(), domain=BALL), X, y, budget=BUDGET, mechanism=Recentered(), ledger=ledger
    ),
    "a constraint of another width": lambda X, y, ledger: private_fit(
        Problem(Logistic(), constraint=Affine(np.ones((1, 9)), np.ones(1)), domain=BALL),
        X, y, budget=BUDGET, ledger=ledger,
    ),
    "a regularizer of columns that are not there": lambda X, y, ledger: private_fit(
        Problem(Logistic(), OnCoordinates(L1(1.0), (0, 7)), domain=BALL), X, y, budget=BUDGET, ledger=ledger
    ),
    "a map of another width": lambda X, y, ledger: private_fit(
        Problem(Logistic(), domain=BALL), X, y, budget=BUDGET, ledger=ledger,
        columns=ColumnMap.from_bounds([-1] * 4, [1] * 4),
    ),
    "two targets": lambda X, y, ledger: private_fit(
        Problem(Squared(), domain=BALL), X, np.c_[y, y], budget=BUDGET, mechanism=Statistics(), ledger=ledger
    ),
    "an adjacency without a proof": lambda X, y, ledger: private_fit(
        Problem(Logistic(), domain=BALL), sparse.csr_array(X), y, budget=BUDGET, mechanism=DPSGD(),
        ledger=ledger,
    ),
    "unbounded gradients": lambda X, y, ledger: private_fit(
        Problem(Squared(), domain=BALL), X, y, budget=BUDGET, mechanism=LOP(), ledger=ledger
    ),
    "an exact solve": lambda X, y, ledger: private_fit(
        Problem(Logistic(), domain=BALL), X, y, budget=BUDGET, mechanism=QOP(exact=True), ledger=ledger
    ),
    "a solve without output noise": lambda X, y, ledger: private_fit(
        Problem(Logistic(), domain=BALL), X, y, budget=BUDGET, mechanism=LOPClip(eta=0.0), ledger=ledger
    ),
    "an epsilon that no noise is small enough for": lambda X, y, ledger: private_fit(
        Problem(Logistic(), domain=BALL), X, y, budget=Budget(1e4, 1e-6), mechanism=LOP(), ledger=ledger
    ),
}  # fmt: skip


@pytest.mark.parametrize("request_", REFUSED.values(), ids=list(REFUSED))
def test_what_can_be_refused_publicly_is_refused_before_the_charge(request_, ledger):
    with pytest.raises(CurvedpError):
        request_(*table(), ledger)
    assert not ledger.history()


@pytest.mark.parametrize("epsilon", [1.0, 0.01])
@pytest.mark.parametrize("mechanism", ["output", "qop", "lop", "recentered", "gradient"])
def test_what_is_charged_is_released(mechanism, epsilon, ledger):
    X, y = table()
    model = PrivateLogisticRegression(
        epsilon=epsilon, bounds=(-1, 1), classes=[0, 1], mechanism=mechanism, ledger=ledger
    )
    assert np.all(np.isfinite(model.fit(X, y).coef_))
    assert len(ledger.history()) == 1


@pytest.mark.parametrize(
    "mechanism",
    [Exponential(), PureLOP(), InputPerturbation()],
    ids=lambda mechanism: mechanism.name,
)
def test_a_mechanism_that_releases_plain_doubles_is_refused_by_a_ledger(mechanism, ledger):
    X, y = table()
    loss = Logistic() if mechanism.name == "pure_lop" else Squared()
    problem = Problem(loss, domain=BALL)
    released = private_fit(problem, X, y, budget=BUDGET, mechanism=mechanism)
    assert not released.privacy.private
    with pytest.raises(LedgerRefused):
        private_fit(problem, X, y, budget=BUDGET, mechanism=mechanism, ledger=ledger)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_tables_of_no_one_and_two_rows_are_released_alike(n, adjacency):
    X, y = table(n=n)
    for mechanism in (Recentered(), QOP(), OutputPerturbation()):
        problem = Problem(Logistic(), constraint=L2Ball(2.0), domain=Domain(3.0, 3.0, adjacency))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            released = private_fit(problem, X, y, budget=BUDGET, mechanism=mechanism)
        assert np.all(np.isfinite(released.value.theta))


def failing_rows(error):
    def chunks():
        yield np.zeros((5, 2)), np.zeros(5)
        raise error

    return ChunkedRows(chunks, Domain(), n_features=2)


def test_what_a_row_source_says_stays_inside(ledger):
    secret = ValueError("row 17 holds secret-diagnosis")
    for plan in (
        make_plan(Recentered(), Problem(Squared()), 2, BUDGET),
        GramPlan.calibrated(Layout(Domain(), 2), BUDGET),
    ):
        with pytest.raises(DataError) as caught:
            execute(plan, failing_rows(secret), ledger=ledger)
        error = caught.value
        assert "secret" not in str(error) and error.__cause__ is None and error.__context__ is None


def test_stopping_after_the_charge_says_what_was_spent(ledger):
    plan = make_plan(Statistics(), Problem(Squared()), 2, BUDGET)
    with pytest.raises(StoppedAfterCharge, match="ε = 1, δ = 1e-06 were charged"):
        execute(plan, failing_rows(KeyboardInterrupt()), ledger=ledger)
    assert ledger.spent().epsilon == 1.0


def test_statistics_are_charged_through_the_same_door(ledger):
    X, y = table(d=2)
    PrivateStatistics.release(X, y, budget=BUDGET, ledger=ledger)
    assert [entry.label for entry in ledger.history()] == ["PrivateStatistics"]


def test_composed_plans_are_charged_once_and_for_less(ledger):
    X, y = table(d=2)
    problem = Problem(Squared())
    plans = [make_plan(Statistics(), problem, 2, Budget(0.3, 1e-6)) for _ in range(8)]
    together = compose(plans, delta=1e-5)
    released = execute(together, make_rows(X, y, problem.domain), ledger=ledger)
    assert len(released.value) == 8
    assert len(ledger.history()) == 1
    assert released.privacy.epsilon < 8 * 0.3
    assert ledger.spent().epsilon == released.privacy.epsilon


def test_a_seeded_run_is_not_private_and_repeats():
    X, y = table(d=2)
    first, again = (
        PrivateRidge(bounds=(-1, 1), target_bounds=(0, 1), random_state=7).fit(X, y) for _ in range(2)
    )
    assert np.array_equal(first.coef_, again.coef_) and not first.privacy_.private


def test_an_adjacency_that_no_theorem_covers_is_named():
    with pytest.raises(NotCovered, match="add_remove"):
        make_plan(DPSGD(), Problem(Logistic(), domain=BALL), 2, BUDGET)


@pytest.mark.parametrize("ledger", [False, True, 0, 1.5, b"budget.db", ["budget.db"]], ids=repr)
def test_what_is_no_ledger_is_refused_before_anything_is_read(ledger):
    """False is not "none": a fit that the writer thinks of as charged must not run."""
    X, y = table()
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), ledger=ledger)
    for ask in (
        lambda: model.fit(X, y),
        lambda: private_fit(Problem(Squared(), domain=BALL), X, y, budget=BUDGET, ledger=ledger),
        lambda: private_quantiles([1, 2], (0.5,), (1, 2), epsilon=1.0, ledger=ledger),
        lambda: Ledger(ledger),
        lambda: Ledger.create(ledger, epsilon=1.0, delta=0.0),
    ):
        with pytest.raises(InvalidInput, match="ledger"):
            ask()
