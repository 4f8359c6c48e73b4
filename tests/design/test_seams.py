"""A loss, a mechanism, an accounting, an estimator and a row backend: one protocol each, no other change."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.catalogue import declared, expected_failed_checks
from tests.log_cosh import LogCosh, PrivateLogCosh

from curvedp import Budget, Domain, Ledger, Problem, private_fit
from curvedp.auditing import audit
from curvedp.data.rows.base import Layout
from curvedp.data.rows.blocked import BlockRows, Load
from curvedp.data.rows.blocks import make_block
from curvedp.mechanisms import QOP, Estimate, FitPlan, Recentered, make_plan
from curvedp.privacy.gaussian import Cost
from curvedp.privacy.guarantee import SIGMA
from curvedp.privacy.profiles import Curve
from curvedp.problems.losses import Squared
from curvedp.release.door import execute
from curvedp.transcript import Normal, told

DOMAIN = Domain(adjacency="add_remove")
BUDGET = Budget(1.0, 1e-3)


@dataclass(frozen=True)
class ConcentratedCurve(Curve):
    """A toy accounting: δ(ε) = exp(−(ε − ρ)²/(4ρ)) for ε ≥ ρ, which ρ-zCDP implies."""

    rho: float

    def gaussian_cost(self, leftover):
        return Cost(math.sqrt(2 * self.rho))

    def deltas(self, epsilon):
        gap = np.maximum(epsilon - self.rho, 0.0)
        return np.where(epsilon > self.rho, np.exp(-(gap**2) / (4 * self.rho)), 1.0) * (1 + 1e-12)


@dataclass(frozen=True)
class OneStep:
    """A toy mechanism: the mean gradient at 0, clipped, with Gaussian noise, as one gradient step."""

    clip: float = 1.0
    name = "one_step"

    def plan(self, problem, d, budget):
        log = math.log(1 / budget.delta)
        rho = (math.sqrt(log + budget.epsilon) - math.sqrt(log)) ** 2 * (1 - 1e-9)
        return OneStepPlan(problem, d, budget, self.clip, rho)


@dataclass(frozen=True, eq=False)
class OneStepPlan(FitPlan):
    clip: float
    rho: float

    @property
    def sigma(self) -> float:
        return self.problem.domain.neighbours.sum_factor * self.clip / math.sqrt(2 * self.rho)

    @cached_property
    def guarantee(self):
        curve = ConcentratedCurve(self.rho)
        return self.promise("one_step", "concentrated", "toy", curve, SIGMA(self.sigma))

    def release(self, rows, random):
        zero = np.zeros((self.d, 1))
        total = rows.gradient_sum(self.problem.loss, zero, self.clip)
        law = Normal(total, self.sigma, share=math.sqrt(2 * self.rho), name="step")
        noisy = told(random, law, total + self.sigma * random.standard_normal(zero.shape))
        return Estimate(self.problem.constraint.project(-noisy / 1000.0))


class DatabaseRows(BlockRows):
    """A toy backend: records that live in a database table and are read a block at a time."""

    def __init__(self, connection: sqlite3.Connection, domain: Domain, d: int) -> None:
        super().__init__(Layout(domain, d), magnitude=domain.x_norm, threads=1)
        self._connection = connection

    def count(self) -> int:
        return int(self._connection.execute("SELECT COUNT(*) FROM records").fetchone()[0])

    def loads(self, keep: bool) -> Iterable[Load]:
        cursor = self._connection.execute("SELECT * FROM records ORDER BY rowid")
        while rows := cursor.fetchmany(256):
            yield partial(self._load, np.array(rows, dtype=np.float64))

    def _load(self, records):
        return make_block(records[:, :-1], records[:, -1:], None, self.layout.domain.x_norm)


def table(n=2000):
    random = np.random.default_rng(0)
    X = random.uniform(-0.5, 0.5, (n, 2))
    return X, np.clip(X @ [0.9, -0.4] + 0.05 * random.normal(size=n), -1, 1)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(
        tmp_path / "budget.db", epsilon=2.0, delta=2e-3, adjacency="add_remove", filter="basic"
    )


@pytest.mark.parametrize("mechanism", [Recentered(), QOP()], ids=lambda mechanism: mechanism.name)
def test_a_toy_loss_is_fitted_charged_and_audited(mechanism, ledger):
    X, y = table()
    problem = Problem(LogCosh(), domain=DOMAIN)
    released = private_fit(problem, X, y, budget=BUDGET, mechanism=mechanism, ledger=ledger)
    assert released.value.theta.shape == (2, 1)
    assert ledger.spent().epsilon == 1.0
    small = audit(mechanism, budget=BUDGET, features=1, problem=problem, transcripts=200)
    assert "log_cosh" in small.name and small.verdict == "held"


def test_a_toy_mechanism_with_a_toy_accounting_is_fitted_charged_and_audited(ledger):
    X, y = table()
    problem = Problem(Squared(), domain=DOMAIN)
    released = private_fit(problem, X, y, budget=BUDGET, mechanism=OneStep(), ledger=ledger)
    assert released.privacy.mechanism == "one_step" and released.privacy.accounting == "concentrated"
    assert released.privacy.delta_at(1.0) <= 1e-3
    assert ledger.history()[0].mechanism == "one_step"
    assert audit(OneStep(), budget=BUDGET, features=2, problem=problem).verdict == "held"


def test_a_toy_mechanism_that_is_not_private_is_refuted_by_the_audit():
    @dataclass(frozen=True, eq=False)
    class Careless(OneStepPlan):
        @property
        def sigma(self) -> float:
            return 0.2 * super().sigma

    @dataclass(frozen=True)
    class CarelessStep(OneStep):
        def plan(self, problem, d, budget):
            return Careless(problem, d, budget, self.clip, super().plan(problem, d, budget).rho)

    problem = Problem(Squared(), domain=DOMAIN)
    assert audit(CarelessStep(), budget=BUDGET, features=1, problem=problem).verdict == "refuted"


def test_a_toy_accounting_says_what_a_gaussian_budget_is_charged(tmp_path):
    path = tmp_path / "budget.db"
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-3, adjacency="add_remove")
    X, y = table()
    private_fit(Problem(Squared(), domain=DOMAIN), X, y, budget=BUDGET, mechanism=OneStep(), ledger=ledger)
    rho = OneStep().plan(Problem(Squared()), 2, BUDGET).rho
    assert ledger.history()[0].cost == Cost(math.sqrt(2 * rho))


def test_a_toy_row_backend_gives_what_an_array_gives(ledger):
    X, y = table()
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("CREATE TABLE records (a, b, y)")
    connection.executemany("INSERT INTO records VALUES (?, ?, ?)", np.column_stack([X, y]).tolist())
    problem = Problem(Squared(), domain=DOMAIN)
    plan = make_plan(Recentered(), problem, 2, BUDGET)
    rows = DatabaseRows(connection, DOMAIN, 2)
    released = execute(plan, rows, ledger=ledger)
    assert released.privacy.private and ledger.spent().epsilon == 1.0
    seeded = execute(plan, rows, random_state=1).value.theta
    array = private_fit(problem, X, y, budget=BUDGET, random_state=1).value.theta
    np.testing.assert_allclose(seeded, array, rtol=1e-6)


def test_a_toy_estimator_learns():
    X, y = table(20_000)
    model = PrivateLogCosh(bounds=(-0.5, 0.5), target_bounds=(-1, 1), epsilon=10.0).fit(X, y)
    assert np.allclose(model.coef_, [0.9, -0.4], atol=0.05)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([declared(PrivateLogCosh)], expected_failed_checks=expected_failed_checks)
def test_a_toy_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
