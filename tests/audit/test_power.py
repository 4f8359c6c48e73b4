"""What an attack reaches and how many fits it needs: against closed forms and simulated audits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from curvedp.audit import bounds
from curvedp.audit.power import POWER, expected_epsilon, needed_tests, reach
from curvedp.privacy.gaussian import calibrate_mu, hockey_stick

ALPHA = 0.01 / 16


@pytest.mark.parametrize(
    ("epsilon", "delta", "draws"), [(1.0, 1e-2, 4000), (0.3, 1e-3, 30_000), (2.0, 1e-6, 4000)]
)
def test_the_ratios_of_a_gaussian_reach_its_epsilon(epsilon, delta, draws):
    """At δ = 1e-6 no draw of 4000 is in the tail that counts: the curve of a Gaussian leads there."""
    mu = calibrate_mu(epsilon, delta)
    ratio = mu**2 / 2 + mu * np.random.default_rng(1).standard_normal(draws)
    assert reach(ratio, delta) == pytest.approx(epsilon, rel=0.06)


def test_the_ratios_of_randomised_response_reach_its_epsilon():
    told = np.where(np.random.default_rng(2).random(5000) < stats.logistic.cdf(0.7), 0.7, -0.7)
    assert reach(told, 0.0) == pytest.approx(0.7, abs=0.01)
    assert reach(told, 0.05) == pytest.approx(
        math.log((stats.logistic.cdf(0.7) - 0.05) / stats.logistic.cdf(-0.7)), abs=0.05
    )


def test_what_says_nothing_reaches_nothing():
    assert reach(np.zeros(100), 1e-3) == reach(np.full(100, np.nan), 1e-3) == reach(np.zeros(0), 1e-3) == 0.0
    assert reach(np.full(100, np.inf), 1e-3) > 50
    tiny = 1e-3 * np.random.default_rng(3).standard_normal(10_000)
    assert reach(tiny, 0.01) == 0.0  # a total variation distance of 0.0004 is within δ


def proved(mu: float, delta: float, tests: int, rng: np.random.Generator) -> float:
    """The audit of two unit Gaussians at distance μ: a third as many fits choose the event."""
    edges = np.linspace(-4, 6, 400)
    cells = [np.diff(np.concatenate([[0.0], stats.norm.cdf(edges, m), [1.0]])) for m in (mu, 0.0)]
    choose = [rng.multinomial(tests // 3, cell) for cell in cells]
    test = [rng.multinomial(tests, cell) for cell in cells]
    event, _ = bounds.best_events(*choose, 1.0, delta, ordered=True)
    return bounds.evidence(*test, event, 1.0, delta, ALPHA).epsilon


@pytest.mark.parametrize(("reached", "delta"), [(1.0, 1e-3), (0.65, 1e-3), (1.0, 1e-2)])
def test_so_many_fits_prove_half_of_the_claim_and_a_quarter_of_them_do_not(reached, delta):
    rng, mu = np.random.default_rng(4), calibrate_mu(reached, delta)
    tests = needed_tests(reached, delta, POWER * 1.0, ALPHA)
    assert tests is not None
    enough, few = (np.median([proved(mu, delta, n, rng) for _ in range(40)]) for n in (tests, tests // 4))
    assert 0.8 * POWER < enough < 1.25 * POWER
    assert few < 0.8 * POWER
    assert np.median([proved(mu, delta, 3 * tests, rng) for _ in range(20)]) > POWER


def test_no_number_of_fits_proves_what_an_attack_does_not_reach():
    assert needed_tests(0.5, 1e-3, 0.5, ALPHA) is None
    assert needed_tests(0.4, 1e-3, 0.5, ALPHA) is None
    assert expected_epsilon(0.4, 1e-3, 1e12, ALPHA) == pytest.approx(0.4, abs=0.01)


def test_more_is_needed_for_less_delta_for_more_of_it_and_for_pure_privacy_less():
    assert needed_tests(1.0, 1e-3, 0.5, ALPHA) < needed_tests(1.0, 1e-6, 0.5, ALPHA)
    assert needed_tests(1.0, 1e-3, 0.5, ALPHA) < needed_tests(1.0, 1e-3, 0.8, ALPHA)
    assert needed_tests(1.0, 0.0, 0.5, ALPHA) < needed_tests(1.0, 1e-2, 0.5, ALPHA)
    mu = calibrate_mu(1.0, 1e-3)
    assert hockey_stick(expected_epsilon(1.0, 1e-3, 1e12, ALPHA), mu) == pytest.approx(1e-3, rel=0.02)
