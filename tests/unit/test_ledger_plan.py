"""Several plans fixed beforehand, composed numerically, charged as one and released together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from curvedp.data.rows import make_rows
from curvedp.data.rows.base import Layout, Rows
from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused
from curvedp.plans import compose
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.gaussian import pure_mu
from curvedp.privacy.guarantee import Guarantee, Parameters
from curvedp.privacy.profiles import GaussianProfile, PointProfile
from curvedp.problems.domain import Domain
from curvedp.release.door import execute
from curvedp.release.ledger import Ledger

DOMAIN = Domain(1.0, 1.0)
LAYOUT = Layout(DOMAIN, 2)


def exact_epsilon(mu: float, delta: float) -> float:
    """The ε of a Gaussian of shift mu (Balle & Wang 2018)."""

    def excess(epsilon: float) -> float:
        tail = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(norm.cdf(mu / 2 - epsilon / mu)) - tail - delta

    return float(brentq(excess, 0.0, 50.0, xtol=1e-14))


@dataclass(frozen=True, eq=False)
class Toy:
    """A plan with a given profile that releases its name and how many records there were."""

    profile: Any
    delta: float = 1e-7
    name: str = "toy"
    layout: Layout = LAYOUT
    neighbours: Neighbours = DOMAIN.neighbours
    private: bool = True
    calls: list[str] = field(default_factory=list)

    @cached_property
    def guarantee(self) -> Guarantee:
        epsilon = self.profile.epsilon_at(self.delta)
        return Guarantee(
            budget=Budget(epsilon, self.delta),
            neighbours=self.neighbours,
            mechanism=self.name,
            accounting="test",
            theorem="(P-2)",
            parameters=Parameters(),
            profile=self.profile,
            private=self.private,
        )

    def accept(self, rows: Rows) -> None:
        pass

    def release(self, rows: Rows, random: np.random.Generator) -> tuple[str, int]:
        self.calls.append(self.name)
        return self.name, rows.count()


def gaussian(mu: float, **options: Any) -> Toy:
    return Toy(GaussianProfile(mu), **options)


@pytest.fixture
def rows() -> Rows:
    X = np.linspace(-0.5, 0.5, 20).reshape(10, 2)
    return make_rows(X, X[:, 0], DOMAIN)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6, filter="basic")


def test_gaussians_together_cost_what_their_composition_costs():
    promise = compose([gaussian(0.05)] * 16, delta=1e-6).guarantee
    truth = exact_epsilon(0.2, 1e-6)
    assert truth <= promise.epsilon <= truth * 1.01
    assert promise.epsilon < 16 * exact_epsilon(0.05, 1e-7)
    assert (promise.delta, promise.mechanism) == (1e-6, "16 together: toy")
    assert promise.theorem == "composition of (P-2)"
    assert promise.costs[0].mu == pytest.approx(0.2, rel=1e-12)
    for epsilon in (0.0, 0.3, 1.0):  # the whole curve is that of one Gaussian
        truth = norm.cdf(0.1 - epsilon / 0.2) - math.exp(epsilon) * norm.cdf(-0.1 - epsilon / 0.2)
        assert truth <= promise.delta_at(epsilon) <= truth * 1.1 + 1e-12


def test_different_plans_compose_and_so_do_compositions():
    promise = compose(
        [compose([gaussian(0.3), gaussian(0.4)], delta=1e-7), gaussian(1.2)], delta=1e-6
    ).guarantee
    truth = exact_epsilon(1.3, 1e-6)
    assert truth <= promise.epsilon <= truth * 1.01


def test_a_composition_never_costs_more_than_the_sums():
    part = Toy(PointProfile(0.25, 5e-7), delta=5e-7)
    promise = compose([part, part], delta=1e-6).guarantee
    assert promise.epsilon <= 2 * part.guarantee.epsilon
    assert compose([part], delta=5e-7).guarantee.epsilon <= part.guarantee.epsilon


def test_a_composition_is_one_charge_and_releases_everything_in_order(ledger, rows):
    plan = compose([gaussian(0.05, name="first"), gaussian(0.05, name="second")], delta=1e-6)
    released = execute(plan, rows, ledger=ledger, label="both")
    assert released.value == (("first", 10), ("second", 10))
    assert released.privacy is plan.guarantee
    (charge,) = ledger.history()
    assert (charge.epsilon, charge.delta) == (plan.guarantee.epsilon, 1e-6)
    assert (charge.label, charge.mechanism) == ("both", "2 together: first, second")


def test_a_composition_that_does_not_fit_touches_nothing(ledger, rows):
    part = gaussian(0.05)
    plan = compose([part] * 4, delta=1e-6)
    execute(plan, rows, ledger=ledger)
    assert len(part.calls) == 4
    with pytest.raises(BudgetExceeded):
        execute(plan, rows, ledger=ledger)
    assert len(part.calls) == 4 and ledger.state().charges == 1


def test_one_part_that_is_not_private_makes_the_whole_not_private(ledger, rows):
    parts = [gaussian(0.05), gaussian(0.05, private=False)]
    with pytest.raises(LedgerRefused, match="seeded or study"):
        execute(compose(parts, delta=1e-7), rows, ledger=ledger)
    assert not parts[0].calls and ledger.state().charges == 0
    assert not execute(compose(parts, delta=1e-7), rows).privacy.private


def test_a_seeded_composition_is_not_charged(ledger, rows):
    with pytest.raises(LedgerRefused, match="seeded"):
        execute(compose([gaussian(0.05)], delta=1e-7), rows, ledger=ledger, random_state=0)
    assert ledger.state().charges == 0


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (gaussian(0.05, layout=Layout(Domain(1.0, 1.0, "add_remove"), 2)), "the same rows"),
        (gaussian(0.05, layout=Layout(DOMAIN, 3)), "the same rows"),
        (gaussian(0.05, neighbours=Neighbours("add_remove")), "the same neighbours"),
        (gaussian(0.05, neighbours=Neighbours("replace", "patient")), "the same neighbours"),
    ],
)
def test_plans_for_other_tables_do_not_compose(other, words):
    with pytest.raises(InvalidInput, match=words):
        compose([gaussian(0.05), other], delta=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, float("nan")])
def test_a_composition_needs_a_delta(delta):
    with pytest.raises(InvalidInput, match="delta"):
        compose([gaussian(0.1)], delta=delta)


def test_a_composition_needs_plans():
    with pytest.raises(InvalidInput, match="at least one"):
        compose([], delta=1e-6)


def test_a_delta_that_no_epsilon_reaches_is_refused_when_composing():
    part = Toy(GaussianProfile(0.1, excess=1e-6), delta=1e-5)
    with pytest.raises(InvalidInput, match="pass a larger delta"):
        compose([part] * 4, delta=2e-6)


def test_where_delta_covers_everything_a_tiny_epsilon_is_claimed():
    promise = compose([gaussian(1e-4)], delta=0.1).guarantee
    assert 0 < promise.epsilon <= 1e-9


def test_compositions_cost_the_squares_of_their_parts(tmp_path, rows):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)
    execute(compose([gaussian(0.05)] * 4, delta=1e-6), rows, ledger=ledger)
    assert ledger.state().spent.mu == pytest.approx(0.1, rel=1e-12)
    mixed = compose([gaussian(0.05), Toy(PointProfile(0.02, 1e-10), delta=1e-7)], delta=1e-6)
    execute(mixed, rows, ledger=ledger)
    assert ledger.history()[1].mu == pytest.approx(math.hypot(0.05, pure_mu(0.02)), rel=1e-12)
    assert ledger.history()[1].charged_delta == 1e-10
