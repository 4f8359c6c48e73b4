"""Exact sums of floats, and a ledger against a model of itself."""

from __future__ import annotations

import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import example, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.charges import Release

from curvedp.errors import BudgetExceeded
from curvedp.numbers import exact, round_down, round_up
from curvedp.privacy.gaussian import Cost, root_down, root_up
from curvedp.release.ledger import Ledger
from curvedp.release.ledger.filters import Tally

AMOUNTS = st.floats(min_value=1e-300, max_value=1e12, allow_nan=False)


@given(AMOUNTS)
def test_a_float_stands_for_itself_to_fifteen_digits(x):
    assert abs(exact(x) - Fraction(x)) <= Fraction(x) * Fraction(11, 10**16) * Fraction(2)


@given(st.integers(1, 10**9), st.integers(-12, 0))
def test_a_short_decimal_stands_for_itself(digits, exponent):
    assert exact(float(f"{digits}e{exponent}")) == Fraction(Decimal(digits).scaleb(exponent))


@given(st.integers(1, 5000), st.integers(1, 999), st.sampled_from([1, 10, 100, 1e4, 1e7, 1e10]))
def test_equal_parts_add_up_to_the_whole(parts, digits, scale):
    total = digits / scale
    assert parts * exact(total / parts) == exact(total)


@given(AMOUNTS, AMOUNTS)
def test_exact_keeps_the_order(x, y):
    low, high = sorted((x, y))
    assert exact(low) <= exact(high)


@given(st.fractions(min_value=0, max_value=1000))
def test_rounding_is_to_the_safe_side_and_by_little(value):
    down, up = round_down(value), round_up(value)
    assert exact(down) <= value <= exact(up)
    assert Fraction(up) - Fraction(down) <= value * Fraction(1, 10**14)


@given(st.lists(st.builds(Cost, st.floats(0, 100), AMOUNTS, st.floats(0, 0.5)), max_size=30))
def test_a_tally_is_the_exact_sum(costs):
    tally = Tally()
    for cost in costs:
        tally = tally.plus(cost)
    assert tally.charges == len(costs)
    assert tally.squares == sum((Fraction(cost.mu) ** 2 for cost in costs), Fraction(0))
    assert tally.epsilon == sum((exact(cost.epsilon) for cost in costs), Fraction(0))
    assert tally.delta == sum((exact(cost.delta) for cost in costs), Fraction(0))
    stated = tally.cost
    assert Fraction(stated.mu) ** 2 >= tally.squares and exact(stated.epsilon) >= tally.epsilon


@given(st.floats(0, 1e150, allow_subnormal=True))
@example(1e-170)  # its square is no float
@example(5e-324)
def test_roots_are_next_to_the_root_whatever_its_size(mu):
    assert root_up(Fraction(mu) ** 2) == root_down(Fraction(mu) ** 2) == mu
    more = Fraction(mu) ** 2 + Fraction(1, 2**4000)
    assert Fraction(root_down(more)) ** 2 <= more <= Fraction(root_up(more)) ** 2
    assert root_up(more) == math.nextafter(root_down(more), math.inf)


def test_a_tally_of_unlike_fractions_stays_short_and_errs_upwards_only():
    tally, truth = Tally(), Fraction(0)
    for k in range(1, 4000):
        tally, truth = tally.plus(Cost(0.0, 1 / k)), truth + exact(1 / k)
    assert truth.denominator.bit_length() > 5000  # without a bound it would grow with the number of charges
    assert tally.epsilon.denominator.bit_length() <= 4097
    assert truth <= tally.epsilon <= truth + Fraction(4000, 2**4096)


class LedgerMachine(RuleBasedStateMachine):
    """Random charges in hundredths, so that the model is integer arithmetic."""

    @initialize(epsilon=st.integers(1, 300), delta=st.integers(0, 100))
    def create(self, epsilon, delta):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "budget.db"
        Ledger.create(self.path, epsilon=epsilon / 100, delta=delta * 1e-8, filter="basic")
        self.left = (epsilon, delta)
        self.lines = []

    @rule(epsilon=st.integers(0, 60), delta=st.integers(0, 30), label=st.sampled_from(["", "b", "'; --"]))
    def charge(self, epsilon, delta, label):
        fits = epsilon <= self.left[0] and delta <= self.left[1]
        release = Release(epsilon / 100, delta * 1e-8)
        try:
            Ledger(self.path).charge(release, label=label)
        except BudgetExceeded:
            assert not fits
        else:
            assert fits
            self.left = (self.left[0] - epsilon, self.left[1] - delta)
            self.lines.append((epsilon / 100, delta * 1e-8, label))

    @invariant()
    def file_and_model_agree(self):
        if not hasattr(self, "path"):
            return
        ledger = Ledger(self.path)
        assert [(c.epsilon, c.delta, c.label) for c in ledger.history()] == self.lines
        remaining = ledger.remaining()
        assert (exact(remaining.epsilon), exact(remaining.delta)) == (
            Fraction(self.left[0], 100),
            Fraction(self.left[1], 10**8),
        )

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


LedgerMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
