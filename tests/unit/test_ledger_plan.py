"""Plans: several releases fixed beforehand, composed numerically and charged as one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.stats import norm

from curvedp.budget import compose_plan
from curvedp.errors import BudgetExceeded, InvalidInput, LedgerRefused
from curvedp.ledger import Ledger
from curvedp.privacy.guarantee import Guarantee


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The exact δ(ε) of a Gaussian of shift mu (Balle & Wang 2018)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu)))


@dataclass(frozen=True)
class GaussianProfile:
    mu: float

    def delta_at(self, epsilon: float) -> float:
        return gaussian_delta(epsilon, self.mu)

    def epsilon_at(self, delta: float) -> float:
        return float(brentq(lambda e: self.delta_at(e) - delta, 0.0, 50.0)) + 1e-9  # to the safe side

    def to_pld(self) -> Any:
        return pld.from_gaussian_mechanism(1.0 / self.mu, value_discretization_interval=1e-3)


def gaussian(mu: float, delta: float = 1e-7) -> Guarantee:
    profile = GaussianProfile(mu)
    return Guarantee(
        epsilon=profile.epsilon_at(delta),
        delta=delta,
        adjacency="replace",
        mechanism="output",
        accounting="auto",
        theorem="(P-2)",
        parameters={"mu": mu, "zcdp_rho": mu**2 / 2},
        profile=profile,
    )


def test_a_plan_of_gaussians_costs_what_their_composition_costs():
    plan = compose_plan([gaussian(0.05)] * 16, delta=1e-6)
    truth = GaussianProfile(0.2).epsilon_at(1e-6)
    assert truth <= plan.epsilon <= truth * 1.01
    assert plan.delta == 1e-6
    assert plan.parameters["zcdp_rho"] == pytest.approx(16 * 0.05**2 / 2)
    assert plan.mechanism == "plan of 16: output" and plan.theorem == "composition of (P-2)"
    assert plan.epsilon < 16 * gaussian(0.05).epsilon


def test_a_plan_never_costs_more_than_basic_composition():
    pair = [gaussian(0.1, delta=5e-7)]
    assert compose_plan(pair, delta=5e-7).epsilon <= pair[0].epsilon


def test_a_plan_is_one_charge(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)
    charged = ledger.charge_plan([gaussian(0.05)] * 4, delta=1e-6, label="a grid")
    (line,) = ledger.history()
    assert (line.epsilon, line.delta, line.label) == (charged.epsilon, 1e-6, "a grid")
    with pytest.raises(BudgetExceeded):
        ledger.charge_plan([gaussian(0.05)] * 4, delta=1e-6)


def test_a_plan_is_refused_where_one_of_its_parts_would_be(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)
    seeded = replace(gaussian(0.05), private=False)
    with pytest.raises(LedgerRefused, match="seeded"):
        ledger.charge_plan([gaussian(0.05), seeded], delta=1e-7)
    other = replace(gaussian(0.05), adjacency="add_remove")
    with pytest.raises(LedgerRefused, match="share one adjacency"):
        ledger.charge_plan([gaussian(0.05), other], delta=1e-7)
    with pytest.raises(LedgerRefused, match="pass adjacency"):
        ledger.charge_plan([other], delta=1e-7)
    assert ledger.state().charges == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6])
def test_a_plan_needs_a_delta_and_releases(delta):
    with pytest.raises(InvalidInput, match="delta"):
        compose_plan([gaussian(0.1)], delta=delta)
    with pytest.raises(InvalidInput, match="at least one"):
        compose_plan([], delta=1e-6)
