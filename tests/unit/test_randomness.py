"""Generators, the release grid and the exact discrete Gaussian."""

import numpy as np
import pytest
from scipy import stats

from curvedp.errors import InvalidInput
from curvedp.randomness import STEPS_PER_SIGMA, discrete_gaussian, generator, grid_step, round_to_grid


def test_seeded_generators_repeat_and_entropy_ones_do_not():
    assert generator(5).bytes(32) == generator(5).bytes(32)
    assert generator(5).bytes(32) != generator(6).bytes(32)
    assert generator().bytes(32) != generator().bytes(32)


@pytest.mark.parametrize("bad", ["7", 1.5, True])
def test_a_seed_is_an_integer(bad):
    with pytest.raises(InvalidInput, match="random_state=None"):
        generator(bad)


@pytest.mark.parametrize("scale", [1e-12, 3e-4, 1.0, 7.5, 1e9])
def test_grid_has_enough_steps_and_is_a_power_of_two(scale):
    step = grid_step(scale)
    assert STEPS_PER_SIGMA <= scale / step < 2 * STEPS_PER_SIGMA
    assert np.frexp(step)[0] == 0.5


def test_rounding_lands_on_the_grid_within_half_a_step():
    rng = np.random.default_rng(0)
    values, step = rng.normal(size=1000), grid_step(1e-3)
    rounded = round_to_grid(values, step)
    assert np.all(np.abs(rounded - values) <= step / 2)
    assert np.all(rounded / step == np.rint(rounded / step))


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_discrete_gaussian_matches_its_probability_mass(steps):
    draws = discrete_gaussian(generator(11), steps, 20_000)
    cells = np.arange(-4 * steps, 4 * steps + 1)
    mass = np.exp(-(cells**2) / (2 * steps**2))
    mass /= np.exp(-(np.arange(-60 * steps, 60 * steps + 1) ** 2) / (2 * steps**2)).sum()
    counts = np.array([(draws == k).sum() for k in cells])
    keep = mass * draws.size >= 5
    expected = np.append(mass[keep], 1 - mass[keep].sum()) * draws.size
    observed = np.append(counts[keep], draws.size - counts[keep].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_discrete_gaussian_at_release_scale_is_gaussian_to_a_ks_test():
    draws = discrete_gaussian(generator(4), STEPS_PER_SIGMA, 4000) / STEPS_PER_SIGMA
    assert np.all(np.abs(draws) < 8)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    assert stats.kstest(draws / 1.1, "norm").pvalue < 1e-2  # a 10 % wrong scale would be seen
