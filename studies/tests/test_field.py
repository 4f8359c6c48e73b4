"""Published code that is not private: the stated laws against simulations of what the code does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from curvedp.errors import InvalidInput
from curvedp.privacy.gaussian import calibrate_mu, epsilon_of
from curvedp_studies import field


def boosted_thetas(sigma, extra, rounds, runs, n=10_000):
    """One column, x = 1, y = 0 but for one y = `extra`; every statistic with noise of deviation sigma."""
    random = np.random.default_rng(5)
    theta = np.zeros(runs)
    gram = n + sigma * random.standard_normal(runs)
    for _ in range(rounds):
        residuals = (n - 1) * np.clip(-theta, -1, 1) + np.clip(extra - theta, -1, 1)
        theta = theta + (residuals + sigma * random.standard_normal(runs)) / gram
    return theta


@pytest.mark.parametrize("rounds", [1, 100])
def test_boosting_with_sigma_equal_to_mu_shows_a_record(rounds):
    mu = calibrate_mu(1.0, 1e-6)
    assert (round(mu, 3), round(1 / mu, 2)) == (0.237, 4.22)  # as the page says
    without, with_record = (boosted_thetas(mu, y, rounds, 20_000) for y in (0.0, 1.0))
    shift = (with_record.mean() - without.mean()) / without.std()
    assert shift == pytest.approx(1 / mu, rel=0.03)
    assert field.boosted_adassp_epsilon(1.0, 1e-6) == pytest.approx(epsilon_of(1e-6, shift), rel=0.06)
    right = boosted_thetas(1 / mu, 1.0, 1, 20_000)  # the noise that one release needs
    assert (right.mean() - boosted_thetas(1 / mu, 0.0, 1, 20_000).mean()) / right.std() == pytest.approx(
        mu, rel=0.03
    )


def test_the_test_of_tukeyem_tells_neighbours_apart():
    epsilon, delta = 1.0, 1e-6
    random = np.random.default_rng(0)
    threshold = field.ptr_threshold(epsilon, delta)
    assert threshold == pytest.approx(math.log(5e5) / 0.5)
    best = 0.0
    for k in range(math.floor(threshold) - 3, math.ceil(threshold) + 3):
        noise = random.laplace(scale=epsilon / 2, size=(2, 400_000))
        fails = [np.mean(~(k + move + part > threshold)) for move, part in enumerate(noise)]
        best = max(best, fails[0] - math.exp(epsilon) * fails[1])
        best = max(best, (1 - fails[1]) - math.exp(epsilon) * (1 - fails[0]))
    assert field.tukey_delta(epsilon, delta) == pytest.approx(best, abs=0.01)
    assert field.tukey_delta(epsilon, delta) > 1e5 * delta
    for e in (0.1, 1.0, 3.0):
        assert field.tukey_delta(e, delta, 2.0 / e) == 0.0  # with scale 1/(ε/2): ε/2 < ε, nothing is left
    assert field.tukey_delta(0.1, delta) > 0.99
    assert field.tukey_delta(3.0, delta) == 0.0  # above ε = 2 the noise is larger than needed


def test_a_sum_of_squares_without_noise_tells_neighbours_apart():
    epsilon, random = 1.0, np.random.default_rng(1)
    w, other = (random.laplace(scale=3.0, size=400_000) / total for total in (1.0001, 0.0002))
    cuts = np.quantile(np.abs(w), np.linspace(0.01, 0.9999, 200))
    best = max(np.mean(np.abs(w) < c) - math.e * np.mean(np.abs(other) < c) for c in cuts)
    assert field.diffprivlib_linear_delta(epsilon) == pytest.approx(best, abs=0.002)
    assert field.diffprivlib_linear_parts(1.0, 1) == 1.5


def logistic_theta(b, R, a):
    """The zero of aθ + b − R·σ(−Rθ)."""
    return brentq(lambda t: a * t + b - R * expit(-R * t), -1e6, 1e6, xtol=1e-14)


def test_the_law_of_diffprivlibs_coefficient():
    """Draws of b, the equation solved for each: the density ratio at its maximum is as stated."""
    epsilon, R, random = 1.0, 12.0, np.random.default_rng(2)
    a = 0.25 * R / math.expm1(epsilon / 4)
    b = random.laplace(scale=2 * R / (epsilon / 2), size=60_000)
    with_record = np.array([logistic_theta(value, R, a) for value in b])
    without = -b / a
    width = 0.4 / R
    p, q = (np.mean(np.abs(part) < width) for part in (with_record, without))
    assert field.diffprivlib_logistic_epsilon(epsilon, R) == pytest.approx(math.log(p / q), abs=0.1)


def test_the_promise_of_diffprivlib_is_kept_at_norm_one_and_broken_beyond():
    assert field.diffprivlib_logistic_epsilon(1.0, 1.0) <= 1.0
    assert field.diffprivlib_logistic_epsilon(1.0, 100.0) > 3.0
    norm = field.diffprivlib_logistic_norm(1.0, 2.0)
    assert field.diffprivlib_logistic_epsilon(1.0, norm) == pytest.approx(2.0, rel=1e-4)


def test_numbers_of_the_page_come_from_here(tmp_path):
    page = tmp_path / "field.md"
    parts = ("numbers", "curvature")
    page.write_text("a\n" + "".join(f"<!-- {p} -->\nstale\n<!-- end of {p} -->\nb\n" for p in parts))
    field.main([str(page)])
    text = page.read_text()
    assert text.startswith("a\n") and text.endswith("b\n") and "stale" not in text
    assert str(field.lines()[0]) in text and all(row in text for row in field.rulers())
    page.write_text("nothing")
    with pytest.raises(InvalidInput, match="marks"):
        field.document(page)
