"""(P-2), its inverses and the discrete Gaussian against 60-digit arithmetic and brute-force sums."""

import math

import mpmath as mp
import numpy as np
import pytest

from curvedp.privacy.gaussian import calibrate_mu, discrete_gaussian_excess, epsilon_of, hockey_stick

GOLDEN = [
    (1.0, 0.3, 5.488749644612975e-05),
    (0.0, 0.5, 0.1974126513658474),
    (-1.0, 0.5, 0.6346330264143731),
    (-800.0, 0.001, 1.0),
    (3.0, 1.0, 0.0015371853694009577),
    (0.5, 0.01, 0.0),
]


def oracle(epsilon: float, mu: float) -> mp.mpf:
    with mp.workdps(60 if mu > 1e-12 else 320):
        e, m = mp.mpf(epsilon), mp.mpf(mu)
        if m == 0:
            return max(mp.mpf(0), 1 - mp.e**e)
        above = mp.erfc(-(m / 2 - e / m) / mp.sqrt(2)) / 2
        below = mp.erfc((m / 2 + e / m) / mp.sqrt(2)) / 2
        return above - mp.e**e * below


@pytest.mark.parametrize(("epsilon", "mu", "value"), GOLDEN)
def test_golden(epsilon, mu, value):
    assert hockey_stick(epsilon, mu) == pytest.approx(value, rel=1e-10, abs=1e-300)


def test_upper_bound_within_1e_11_everywhere():
    rng = np.random.default_rng(20)
    tail = rng.uniform(-36, 36, 400)
    mu = 10 ** rng.uniform(-9, 2, 400)
    epsilon = np.concatenate([(mu / 2 + tail) * mu, rng.normal(0, 3, 400), 10 ** rng.uniform(-12, 1, 400)])
    mu = np.tile(mu, 3)
    values = hockey_stick(epsilon, mu)
    for e, m, value in zip(epsilon, mu, values, strict=True):
        true = oracle(float(e), float(m))
        if true > 1e-290:
            assert true <= value <= min(true * (1 + mp.mpf("1e-11")), 1), (e, m)


def test_extreme_levels():
    assert hockey_stick(-math.inf, 0.3) == 1.0
    assert hockey_stick(math.inf, 0.3) == 0.0
    assert hockey_stick(-1e5, 1e-5) == 1.0
    assert hockey_stick(5.0, 1e-310) == 0.0
    assert hockey_stick(0.0, math.inf) == 1.0
    assert hockey_stick(2.0, 0.0) == 0.0
    assert hockey_stick(-2.0, 0.0) == pytest.approx(-math.expm1(-2.0), rel=1e-11)
    assert hockey_stick(0.0, 1e-200) == pytest.approx(1e-200 / math.sqrt(2 * math.pi), rel=1e-11)


@pytest.mark.parametrize("epsilon", [0.0, 1e-7, 0.3, 1.0, 12.0, 400.0])
@pytest.mark.parametrize("delta", [1e-250, 1e-12, 1e-6, 0.01, 0.9])
def test_calibrated_shift_is_private_and_no_smaller_than_needed(epsilon, delta):
    mu = calibrate_mu(epsilon, delta)
    assert oracle(epsilon, mu) <= delta
    assert oracle(epsilon, mu * (1 + 1e-9)) > delta
    back = epsilon_of(delta, mu)
    assert oracle(back, mu) <= delta
    assert back == pytest.approx(epsilon, rel=1e-8, abs=1e-8)


def discrete_hockey_stick(epsilon: float, v: tuple[int, ...], steps: int) -> float:
    """Σ_k (P(k) − e^ε Q(k))₊ for v + z against z, z discrete Gaussian of standard deviation `steps`."""
    k = np.arange(-45 * steps - max(v), 45 * steps + max(v) + 1)
    shifted, centred = np.ones(()), np.ones(())
    for coordinate in v:
        p = np.exp(-((k - coordinate) ** 2) / (2 * steps**2))
        q = np.exp(-(k**2) / (2 * steps**2))
        shifted = np.multiply.outer(shifted, p / p.sum())
        centred = np.multiply.outer(centred, q / q.sum())
    return float(np.maximum(shifted - math.exp(epsilon) * centred, 0).sum())


@pytest.mark.parametrize(
    ("v", "steps"),
    [((1,), 1), ((2,), 1), ((4,), 2), ((3,), 4), ((32,), 16), ((1, 2), 1), ((4, 4), 4), ((0, 3), 2)],
)
def test_discrete_gaussian_stays_within_its_excess(v, steps):
    mu = float(np.linalg.norm(v)) / steps
    excess = discrete_gaussian_excess(mu, d=len(v), steps_per_sigma=steps)
    over = [discrete_hockey_stick(e, v, steps) - oracle(e, mu) for e in np.linspace(-4, 6, 101)]
    assert max(over) <= excess
    assert max(over) > 1e-2 * excess  # and something is there to be paid for


def test_excess_scales_like_two_d_plus_mu_squared_over_24_steps_squared():
    steps = 2.0**20
    for d, mu in [(1, 0.0), (7, 0.5), (1000, 3.0)]:
        expected = (2 * d + mu**2) / (24 * steps**2)
        assert discrete_gaussian_excess(mu, d=d, steps_per_sigma=steps) == pytest.approx(expected, rel=1e-6)
