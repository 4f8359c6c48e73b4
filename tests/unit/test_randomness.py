"""Generators, the release grid, and the exact discrete laws on it."""

import math
import random
from decimal import Decimal, localcontext

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

from curvedp import randomness
from curvedp.errors import InvalidInput
from curvedp.randomness import (
    LARGEST_SCALE,
    STEPS_PER_SIGMA,
    discrete_gaussian,
    discrete_laplace,
    generator,
    grid_step,
    power_of_two,
    round_to_grid,
)

LAWS = [discrete_gaussian, discrete_laplace]


def test_seeded_generators_repeat_and_entropy_ones_do_not():
    assert generator(5).bytes(32) == generator(5).bytes(32)
    assert generator(5).bytes(32) != generator(6).bytes(32)
    assert generator().bytes(32) != generator().bytes(32)


def test_the_noise_of_a_test_can_be_seen_again(request):
    """Users get the entropy of their system; a test gets what follows from its name (tests/conftest.py)."""
    first = np.random.Generator(ChaCha(key=random.Random(request.node.nodeid).getrandbits(256), rounds=20))
    assert np.array_equal(randomness.generator().integers(2**60, size=8), first.integers(2**60, size=8))


@pytest.mark.parametrize("bad", ["7", 1.5, True])
def test_a_seed_is_an_integer(bad):
    with pytest.raises(InvalidInput, match="`random_state` is an integer seed"):
        generator(bad)


@pytest.mark.parametrize("scale", [1e-12, 3e-4, 1.0, 7.5, 1e9, 2.0**30])
def test_grid_has_enough_steps_and_is_a_power_of_two(scale):
    step = grid_step(scale)
    assert STEPS_PER_SIGMA <= scale / step < 2 * STEPS_PER_SIGMA
    assert np.frexp(step)[0] == 0.5
    assert power_of_two(scale) <= scale < 2 * power_of_two(scale)


def test_rounding_lands_on_the_grid_within_half_a_step():
    rng = np.random.default_rng(0)
    values, step = rng.normal(size=1000), grid_step(1e-3)
    rounded = round_to_grid(values, step)
    assert np.all(np.abs(rounded - values) <= step / 2)
    assert np.all(rounded / step == np.rint(rounded / step))


class Coins:
    """Canonne, Kamath and Steinke (2020) in integers alone, one draw at a time: the oracle."""

    def __init__(self, seed):
        self.random = generator(seed)

    def below(self, bound):
        bits = (bound - 1).bit_length()
        while True:
            value = int.from_bytes(self.random.bytes((bits + 7) // 8), "little") >> (-bits % 8)
            if value < bound:
                return value

    def exp_minus(self, numerator, denominator):
        while numerator > denominator:
            if not self.exp_minus(1, 1):
                return False
            numerator -= denominator
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1

    def laplace(self, scale):
        while True:
            remainder = self.below(scale)
            if not self.exp_minus(remainder, scale):
                continue
            quotient = 0
            while self.exp_minus(1, 1):
                quotient += 1
            size, negative = remainder + scale * quotient, self.below(2)
            if size or not negative:
                return -size if negative else size

    def gaussian(self, steps):
        while True:
            k = self.laplace(steps + 1)
            gap = abs(k) * (steps + 1) - steps * steps
            if self.exp_minus(gap * gap, 2 * steps**2 * (steps + 1) ** 2):
                return k


def mass(law, scale, k):
    """The probability mass of integers k, up to normalisation."""
    x = np.abs(k) / scale
    return np.exp(-x * x / 2 if law is discrete_gaussian else -x)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [1, 2, 3, 10])
def test_draws_match_their_probability_mass(law, scale):
    draws = law(generator(11), scale, 200_000)
    cells = np.arange(-12 * scale, 12 * scale + 1)
    p = mass(law, scale, cells) / mass(law, scale, np.arange(-90 * scale, 90 * scale + 1)).sum()
    counts = np.array([(draws == k).sum() for k in cells])
    keep = p * draws.size >= 5
    expected = np.append(p[keep], 1 - p[keep].sum()) * draws.size
    observed = np.append(counts[keep], draws.size - counts[keep].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-6
    wrong = np.roll(expected, 1)  # a law shifted by one integer would be seen
    assert stats.chisquare(observed, wrong).pvalue < 1e-6


@pytest.mark.parametrize(("law", "name"), [(discrete_gaussian, "gaussian"), (discrete_laplace, "laplace")])
@pytest.mark.parametrize("scale", [4, 1000])
def test_draws_have_the_law_of_an_integer_only_sampler(law, name, scale):
    coins = Coins(5)
    slow = np.array([getattr(coins, name)(scale) for _ in range(4000)], dtype=float)
    quick = law(generator(6), scale, 40_000)
    if scale > 100:
        assert stats.ks_2samp(slow, quick).pvalue > 1e-5
    values = np.arange(-3 * scale, 3 * scale + 1, max(scale // 2, 1))
    table = np.stack([np.histogram(side, values)[0] for side in (slow, quick)])
    assert stats.chi2_contingency(table).pvalue > 1e-5


@pytest.mark.parametrize("scale", [STEPS_PER_SIGMA, 2**33, LARGEST_SCALE])
def test_draws_at_release_scale_pass_a_ks_test(scale):
    normal = discrete_gaussian(generator(4), scale, 20_000) / scale
    assert np.all(np.abs(normal) < 8)
    assert stats.kstest(normal, "norm").pvalue > 1e-6
    assert stats.kstest(normal / 1.05, "norm").pvalue < 1e-2  # a 5 % wrong scale would be seen
    laplace = discrete_laplace(generator(4), scale, 20_000) / scale
    assert stats.kstest(laplace, "laplace").pvalue > 1e-6
    assert np.all(laplace * scale == np.rint(laplace * scale))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("margin", [0.05, 0.9])
def test_the_exact_decision_agrees_with_the_quick_one(law, margin, monkeypatch):
    """With a wide margin nearly every proposal is decided in exact arithmetic: nothing changes."""
    quick = law(generator(9), 2**25 + 3, 2000)
    decided = []
    exactly = randomness._is_below
    monkeypatch.setattr(randomness, "_MARGIN", margin)
    monkeypatch.setattr(randomness, "_is_below", lambda *a: decided.append(1) or exactly(*a))
    np.testing.assert_array_equal(law(generator(9), 2**25 + 3, 2000), quick)
    assert len(decided) > 100


class Script:
    """A generator whose remainders and words are given; after them come zeros."""

    def __init__(self, remainders, tails, words):
        self.answers = [remainders, tails, words]
        self.asked = 0

    def integers(self, low, high, *, size, dtype, endpoint=False):
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else [0] * size
        return np.array(answer, dtype=dtype)


def accepted(law, scale, r, q, m):
    """Whether (r, q) is accepted at U ∈ [m, m+1)·2⁻⁵³, and how often the generator was asked."""
    script = Script([r], [2**q - 1], [m << 11])
    log_weight, halvings = (randomness._gaussian, 1) if law is discrete_gaussian else (randomness._laplace, 0)
    got = randomness._accepted(script, scale, 1, log_weight, halvings)
    assert list(got) in ([], [r + q * scale])
    return len(got) == 1, script.asked


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [1, 7, 2**20 + 1, 2**45])
def test_every_threshold_is_the_exact_one(law, scale):
    """A proposal is accepted exactly for U < p, p to sixty digits, at the values of U beside p."""
    random = np.random.default_rng(scale)
    for q in (0, 1, 2, 3, 5, 8):
        for r in {0, scale - 1, *random.integers(0, scale, 10).tolist()}:
            with localcontext() as context:
                context.prec = 60
                x = Decimal(r + q * scale) / scale
                p = (
                    Decimal(2) ** (q - 1) * ((1 - x * x) / 2).exp()
                    if law is discrete_gaussian
                    else 2**q * (-x).exp()
                )
                at = int(p * 2**53)  # p lies in [at, at + 1)·2⁻⁵³
            assert p <= 1
            if p == 1:
                assert accepted(law, scale, r, q, 2**53 - 1)[0]
                continue
            assert not accepted(law, scale, r, q, at + 1)[0]
            if at:
                assert accepted(law, scale, r, q, at - 1)[0]
            # U begins like p: more bits are asked for, and zeros put it below p
            assert accepted(law, scale, r, q, at) == (True, 4)


def test_the_tail_has_no_gaps():
    """Every integer far out can come up, unlike the values that a logarithm of a double takes there."""
    scale, q = 1000, 40
    for law in LAWS:
        assert all(accepted(law, scale, r, q, 0)[0] for r in range(0, scale, 37))
    doubles = np.rint(scale * np.log(np.arange(1, 2**12) * 2.0**-52)).astype(int)
    far = np.arange(doubles.min(), doubles.min() + scale)
    assert not np.isin(far, doubles).all()


def test_long_runs_of_heads_are_counted():
    words = [2**64 - 1, 2**64 - 1, 0b0111]
    script = Script([words[0]], [words[1]], [words[2]])
    assert randomness._geometric(script, 1)[0] == 64 + 64 + 3
    counts = np.bincount(randomness._geometric(generator(3), 100_000))[:8]
    expected = 100_000 * 0.5 ** np.arange(1, 9)
    assert (
        stats.chisquare(np.append(counts, 100_000 - counts.sum()), [*expected, 100_000 / 2**8]).pvalue > 1e-6
    )


@pytest.mark.parametrize("scale", [0, -1, 2.5, True, LARGEST_SCALE + 1])
def test_a_scale_is_an_integer_within_reach(scale):
    with pytest.raises(InvalidInput, match="scale"):
        discrete_laplace(generator(0), scale, 1)


def test_no_draws_are_no_draws():
    assert discrete_gaussian(generator(0), 5, 0).shape == (0,)
    assert math.isclose(discrete_gaussian(generator(0), 5, 100_000).std(), 5.0, rel_tol=0.02)
