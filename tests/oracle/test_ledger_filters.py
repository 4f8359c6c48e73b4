"""What a filter promises under adaptive choice, by exact computation.

The game: release Y from a Gaussian of shift μ₁, look at it, then run whichever of two mechanisms A and B the
attacker prefers. With l(Y) the privacy loss already suffered, the pair has

    δ(ε) = E_{Y ~ N(μ₁, 1)} max( H_A(ε − l(Y)), H_B(ε − l(Y)) ),   l(y) = μ₁y − μ₁²/2,

H_M the hockey-stick divergence of M at any real level.
"""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from tests.charges import Release

from curvedp.errors import BudgetExceeded
from curvedp.ledger import Ledger
from curvedp.privacy.zcdp import delta_of_rho, epsilon_of_rho, rho_within

EPSILON, DELTA = 1.0, 1e-6


def gaussian(mu):
    return lambda level: ndtr(mu / 2 - level / mu) - np.exp(level + log_ndtr(-mu / 2 - level / mu))


def catastrophe(probability):
    """Shows the record with this probability, nothing otherwise: a (0, probability) mechanism."""
    return lambda level: np.where(
        level >= 0, probability, 1 - (1 - probability) * np.exp(np.minimum(level, 0))
    )


def randomized_response(epsilon):
    """The truth with probability e^ε/(1+e^ε): the extreme ε-DP mechanism."""
    yes, no = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    return lambda level: np.maximum(0, yes - np.exp(level) * no) + np.maximum(0, no - np.exp(level) * yes)


def adaptive_delta(mu, choices):
    """δ(EPSILON) of the game; the integrand is smooth but for kinks, so a fine trapezium is exact to 1e-9."""
    y = np.linspace(mu - 12, mu + 12, 400_001)
    weight = np.exp(-((y - mu) ** 2) / 2) / math.sqrt(2 * math.pi) * (y[1] - y[0])
    level = EPSILON - (mu * y - mu**2 / 2)
    return float(np.sum(weight * np.max([choice(level) for choice in choices], axis=0)))


MU = brentq(lambda mu: gaussian(mu)(EPSILON) - DELTA, 0.01, 5.0, xtol=1e-15)
HALF = MU / math.sqrt(2)
FAILURE = brentq(lambda p: adaptive_delta(HALF, [catastrophe(p)]) - DELTA, 1e-12, DELTA, xtol=1e-22)


def test_numerical_composition_is_not_a_filter():
    """Each fixed pair composes to (ε, δ); choosing between them after the first release gives nearly 2δ."""
    first = privacy_loss_distribution.from_gaussian_mechanism(1 / HALF, value_discretization_interval=1e-4)
    leak = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.0, FAILURE), value_discretization_interval=1e-4
    )
    for second in (first, leak):  # what a PLD filter would compute, and accept
        assert first.compose(second).get_delta_for_epsilon(EPSILON) == pytest.approx(DELTA, rel=2e-3)
    assert adaptive_delta(HALF, [gaussian(HALF)]) == pytest.approx(DELTA, rel=1e-6)
    assert adaptive_delta(HALF, [catastrophe(FAILURE)]) == pytest.approx(DELTA, rel=1e-6)
    assert adaptive_delta(HALF, [gaussian(HALF), catastrophe(FAILURE)]) > 1.9 * DELTA


def charge_gaussians(ledger, epsilons):
    """Charge one Gaussian of shift HALF for each ε, stated as (ε, δ(ε))."""
    for epsilon in epsilons:
        ledger.charge(Release(epsilon, float(gaussian(HALF)(epsilon))))


def test_the_basic_filter_refuses_that_game(tmp_path):
    """However the two Gaussians are stated, they do not both fit."""
    for number, first in enumerate(np.linspace(0.05, 0.95, 19)):
        ledger = Ledger.create(tmp_path / f"{number}.db", epsilon=EPSILON, delta=DELTA)
        with pytest.raises(BudgetExceeded):
            charge_gaussians(ledger, (float(first), float(EPSILON - first)))


def test_the_basic_filter_holds_under_adaptive_choice(tmp_path):
    """Spend half on a Gaussian, then all the rest on A or on B: δ stays below the promise."""
    mu = brentq(lambda mu: gaussian(mu)(EPSILON / 2) - DELTA / 2, 0.01, 5.0)
    release = Release(EPSILON / 2, DELTA / 2)
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=EPSILON, delta=DELTA)
    ledger.charge(release)
    ledger.charge(release)  # the choice of A or B is free: both cost what is left
    with pytest.raises(BudgetExceeded):
        ledger.charge(replace(release, epsilon=0.0, delta=DELTA / 100))

    def failure_or_response(level):  # the extreme (ε/2, δ/2) mechanism
        return DELTA / 2 + (1 - DELTA / 2) * randomized_response(EPSILON / 2)(level)

    assert adaptive_delta(mu, [gaussian(mu), failure_or_response]) <= DELTA


def test_the_zcdp_filter_holds_under_adaptive_choice(tmp_path):
    """Half of ρ on a Gaussian, then a Gaussian or randomized response (ε²/2-zCDP) with the other half."""
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=EPSILON, delta=DELTA, filter="zcdp")
    rho = ledger.remaining().rho
    release = Release(0.5, DELTA, zcdp_rho=rho / 2)
    ledger.charge(release)
    ledger.charge(release)
    with pytest.raises(BudgetExceeded):
        ledger.charge(replace(release, zcdp_rho=rho * 1e-6))
    mu = math.sqrt(rho)  # μ²/2 = ρ/2
    assert adaptive_delta(mu, [gaussian(mu), randomized_response(mu)]) <= DELTA


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_zcdp_conversions_agree_with_each_other_and_cover_the_gaussian(rho, delta):
    epsilon = epsilon_of_rho(rho, delta)
    assert delta_of_rho(rho, epsilon) <= delta
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun & Steinke 2016, weaker
    if epsilon > 0:
        assert delta_of_rho(rho, epsilon * (1 - 1e-6)) > delta
        assert rho_within(epsilon, delta) == pytest.approx(rho, rel=1e-6)
        assert delta_of_rho(rho_within(epsilon, delta), epsilon) <= delta
    exact_gaussian = float(gaussian(math.sqrt(2 * rho))(epsilon))
    assert exact_gaussian <= delta_of_rho(rho, epsilon)


@pytest.mark.parametrize(("rho", "epsilon"), [(0.0244, 1.0), (0.3, 4.0), (1e-6, 0.01), (50.0, 100.0)])
def test_zcdp_delta_is_the_infimum_over_orders(rho, epsilon):
    def log_bound(order):
        a = mpmath.mpf(order)
        return (a - 1) * (a * rho - epsilon) + (a - 1) * mpmath.log(1 - 1 / a) - mpmath.log(a)

    with mpmath.workdps(40):
        start = 1 + max(0.01, (epsilon / rho - 1) / 2)
        best = mpmath.findroot(lambda a: mpmath.diff(log_bound, a), start)
        truth = mpmath.exp(log_bound(best))
    value = delta_of_rho(rho, epsilon)
    assert float(truth) <= value <= float(truth) * (1 + 1e-9)
