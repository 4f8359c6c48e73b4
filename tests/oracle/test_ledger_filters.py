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
from curvedp.privacy.gaussian import Cost, boxes, hockey_stick, least_mu, pure_epsilon, pure_mu, together
from curvedp.release.ledger import Ledger
from curvedp.release.ledger.filters import Filter, Tally

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
        ledger = Ledger.create(tmp_path / f"{number}.db", epsilon=EPSILON, delta=DELTA, filter="basic")
        with pytest.raises(BudgetExceeded):
            charge_gaussians(ledger, (float(first), float(EPSILON - first)))


def test_the_basic_filter_holds_under_adaptive_choice(tmp_path):
    """Spend half on a Gaussian, then all the rest on A or on B: δ stays below the promise."""
    mu = brentq(lambda mu: gaussian(mu)(EPSILON / 2) - DELTA / 2, 0.01, 5.0)
    release = Release(EPSILON / 2, DELTA / 2)
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=EPSILON, delta=DELTA, filter="basic")
    ledger.charge(release)
    ledger.charge(release)  # the choice of A or B is free: both cost what is left
    with pytest.raises(BudgetExceeded):
        ledger.charge(replace(release, epsilon=0.0, delta=DELTA / 100))

    def failure_or_response(level):  # the extreme (ε/2, δ/2) mechanism
        return DELTA / 2 + (1 - DELTA / 2) * randomized_response(EPSILON / 2)(level)

    assert adaptive_delta(mu, [gaussian(mu), failure_or_response]) <= DELTA


class Frontier(Filter):
    """The planted bug: whatever has d + H_Φ(ε − e; μ) ≤ δ for its sums is granted."""

    def grant(self, tally, release):
        for cost in (*release.costs, Cost(0.0, release.epsilon, release.delta)):
            if tally.plus(cost).cost.delta_at(self.epsilon) <= self.delta:
                return cost
        raise BudgetExceeded


def test_the_gaussian_filter_refuses_that_game():
    """Both continuations are granted by the sums of the charges, and the second one by no box."""
    first, leak = Release(costs=(Cost(HALF),)), Release(0.0, FAILURE, costs=())
    spent = Tally().plus(Frontier("gaussian", EPSILON, DELTA * (1 + 1e-9)).grant(Tally(), first))
    for second in (first, leak):
        Frontier("gaussian", EPSILON, DELTA * (1 + 1e-9)).grant(spent, second)
        with pytest.raises(BudgetExceeded):
            Filter("gaussian", EPSILON, DELTA).grant(spent, second)


# Brute force: every adaptive choice of an attacker, with outcomes in finitely many cells, so that the
# hockey-stick divergence of the whole tree is a finite sum.


def binned_gaussian(mu, cells=15):
    """N(μ, 1) against N(0, 1), told by the cell it falls in: costs (μ, 0, 0)."""
    edges = np.concatenate([[-np.inf], np.linspace(-2.5, 3.5, cells - 1), [np.inf]])
    return np.diff(ndtr(edges - mu)), np.diff(ndtr(edges))


def response(epsilon, failure=0.0):
    """Randomized response at ε that shows the record with probability `failure`: (ε, failure)-private."""
    yes, no = (1 - failure) / (1 + math.exp(-epsilon)), (1 - failure) / (1 + math.exp(epsilon))
    return np.array([failure, 0.0, yes, no]), np.array([0.0, failure, no, yes])


def menu(rule):
    """Releases of one, two or three parts of the first box, of quarters of ε, and of all the d there is."""
    box = rule.boxes[0]
    for part in (1, 2, 3):
        mu = box.mu / math.sqrt(part) * (1 - 1e-12)
        yield Release(rule.epsilon, rule.delta, costs=(Cost(mu),)), binned_gaussian(mu)
    for epsilon, failure in (
        (rule.epsilon / 4, 0.0),
        (rule.epsilon / 2, rule.boxes[1].delta / 2),
        (rule.epsilon / 10, 0.0),
        (0.0, box.delta),
        (0.0, 0.9 * (rule.delta - hockey_stick(rule.epsilon, box.mu / math.sqrt(2)))),
    ):
        costs = (Cost(pure_mu(epsilon), 0.0, failure), Cost(0.0, epsilon, failure))
        yield Release(epsilon, failure, costs=costs), response(epsilon, failure)


def worst(rule, levels, depth, releases):
    """The largest hockey-stick divergence at each of the levels that `depth` adaptive releases reach."""
    grants = {}

    def grant(tally, number):
        if (tally, number) not in grants:
            try:
                grants[tally, number] = tally.plus(rule.grant(tally, releases[number][0]))
            except BudgetExceeded:
                grants[tally, number] = None
        return grants[tally, number]

    def value(levels, tally, depth):
        best = -np.expm1(np.minimum(levels, 0.0))  # stop here
        for number, (_, (p, q)) in enumerate(releases if depth else ()):
            after = grant(tally, number)
            if after is None:
                continue
            seen = p > 0
            with np.errstate(divide="ignore"):
                loss = np.log(p[seen]) - np.log(q[seen])
            finite = np.isfinite(loss)
            follows = value((levels[:, None] - loss[finite]).ravel(), after, depth - 1)
            total = follows.reshape(levels.size, -1) @ p[seen][finite] + p[seen][~finite].sum()
            best = np.maximum(best, total)
        return best

    return value(np.asarray(levels, dtype=float), Tally(), depth)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (2.0, 0.05), (0.5, 1e-6)])
def test_no_adaptive_tree_exceeds_the_promise(epsilon, delta):
    """The attacker sees each outcome before choosing; the boxes bound every level, not ε alone."""
    rule = Filter("gaussian", epsilon, delta)
    releases = list(menu(rule))
    levels = np.linspace(-epsilon, 2 * epsilon, 7)
    promised = np.minimum(sum(np.array([box.delta_at(x) for x in levels]) for box in rule.boxes), 1.0)
    stated = [i for i, (release, _) in enumerate(releases) if release.epsilon == epsilon]
    alone = np.max([[delta if x >= epsilon else 1.0 for x in levels] for _ in stated], axis=0)
    found = worst(rule, levels, 3, releases)
    assert np.all(found <= np.maximum(promised, alone) * (1 + 1e-9))
    at_epsilon = worst(rule, [epsilon], 4, releases[1:])[0]
    assert 0.3 * delta < at_epsilon <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (2.0, 0.05)])
def test_the_trees_find_the_planted_bug(epsilon, delta):
    """Granting by the curve of the sums breaks the promise: the trees see it."""
    rule = Frontier("gaussian", epsilon, delta)
    assert worst(rule, [epsilon], 3, list(menu(rule))[1:])[0] > 1.1 * delta


def test_a_first_charge_may_be_the_whole_and_nothing_follows_it():
    rule = Filter("gaussian", EPSILON, DELTA)
    whole = Release(EPSILON, DELTA, costs=(Cost(MU),))
    spent = Tally().plus(rule.grant(Tally(), whole))
    assert spent.cost == Cost(0.0, EPSILON, DELTA)
    for more in (Release(1e-9, 0.0, costs=(Cost(1e-9),)), Release(0.0, 0.0)):
        with pytest.raises(BudgetExceeded):
            rule.grant(spent, more)
    with pytest.raises(BudgetExceeded):
        rule.grant(Tally().plus(Cost(1e-9)), whole)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-5), (1.0, 1e-6), (0.01, 1e-12), (50.0, 0.3)])
def test_the_boxes_promise_the_budget_together(epsilon, delta):
    def exactly(level, mu):
        if mu == 0:
            return max(mpmath.mpf(0), 1 - mpmath.exp(level))
        level, mu = mpmath.mpf(level), mpmath.mpf(mu)
        return mpmath.ncdf(mu / 2 - level / mu) - mpmath.exp(level) * mpmath.ncdf(-mu / 2 - level / mu)

    with mpmath.workdps(60):
        promised = sum(
            mpmath.mpf(box.delta) + exactly(mpmath.mpf(epsilon) - mpmath.mpf(box.epsilon), box.mu)
            for box in boxes(epsilon, delta)
        )
        assert 0.999999 * delta < promised <= delta


def test_without_delta_or_use_the_only_box_is_the_basic_one():
    assert boxes(1.0, 0.0) == (Cost(0.0, 1.0, 0.0),)
    assert boxes(1e5, 1e-6) == (Cost(0.0, 1e5, 1e-6),)
    assert boxes(1.0, 1e-310) == (Cost(0.0, 1.0, 1e-310),)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 0.3, 0.999999, 1.0, 3.0, 30.0, 600.0])
def test_the_shift_of_pure_privacy(epsilon):
    with mpmath.workdps(400):
        x = mpmath.mpf(epsilon)
        value = pure_mu(epsilon)
        p = mpmath.ncdf(-mpmath.mpf(value) / 2)
        assert p <= 1 / (1 + mpmath.exp(x))  # rounded up
        assert mpmath.ncdf(-mpmath.mpf(value) * (1 - mpmath.mpf("1e-11")) / 2) >= 1 / (1 + mpmath.exp(x))
    assert pure_mu(pure_epsilon(value)) <= value
    assert pure_epsilon(value) == pytest.approx(epsilon, rel=1e-9 if value < 70 else 0.01)
    levels = np.linspace(-2 * epsilon, 2 * epsilon, 999)
    assert np.all(randomized_response(epsilon)(levels) <= np.asarray(hockey_stick(levels, value)) + 1e-15)


def pair_curve(p, q):
    """The larger of both hockey sticks of a finite pair at levels ≥ 0."""
    return lambda levels: np.max(
        [np.maximum(a - np.exp(levels)[:, None] * b, 0.0).sum(axis=1) for a, b in ((p, q), (q, p))], axis=0
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_curve_found_above_another_lies_above_it_everywhere(seed):
    """Between the points of its grid too, and at negative levels; and it is not far above."""
    random = np.random.default_rng(seed)
    p, q = (w / w.sum() for w in np.exp(random.normal(0, 0.3 + 0.2 * seed, (2, 6))))
    curve, leftover = pair_curve(p, q), [0.0, 1e-4][seed % 2]
    mu = least_mu(curve, leftover)
    levels = np.linspace(0.0, 10.0, 200_001)
    above = leftover + np.asarray(hockey_stick(levels, mu)) - curve(levels)
    assert above.min() >= -1e-15
    for one, other in ((p, q), (q, p)):
        negative = np.maximum(one - np.exp(-levels)[:, None] * other, 0.0).sum(axis=1)
        assert np.all(negative <= leftover + np.asarray(hockey_stick(-levels, mu)) + 1e-15)
    smaller = leftover + np.asarray(hockey_stick(levels, mu * 0.98)) - curve(levels)
    assert smaller.min() < 0


def test_no_curve_is_found_above_what_never_falls():
    assert least_mu(lambda levels: np.full_like(levels, 0.1), 0.01) is None
    assert least_mu(lambda levels: np.ones_like(levels), 0.01) is None


def test_costs_add_up_in_squares_and_round_up():
    total = together([Cost(0.1, 0.1, 1e-7)] * 10)
    assert (total.epsilon, total.delta) == (1.0, 1e-6)
    assert total.mu == pytest.approx(math.sqrt(0.1), rel=1e-15)
    assert Cost(0.3, 0.5, 1e-7).delta_at(1.0) >= 1e-7 + gaussian(0.3)(0.5)
    cost = Cost(0.3, 0.5, 1e-7)
    assert cost.delta_at(cost.epsilon_at(1e-5)) == pytest.approx(1e-5, rel=1e-8)
