"""Wishart constants ("Lemma W") against 50-digit arithmetic."""

import math

import mpmath as mp
import numpy as np
import pytest

from curvedp.privacy.curvature import log_gammainc
from curvedp_studies.paper import Wishart

GOLDEN = [  # d, m, delta1 = delta3, log_D, alpha, alpha1
    (12, 24, 0.001, 2.27740744021186, 0.6792083160427973, 0.08041194791742223),
    (70, 140, 0.01 / 3, -42.18655822312813, 6.781188446710309, 0.14730980061076338),
    (100, 312, 5e-7, -292.11624807935766, 33.018860738386344, 0.25497245361214027),
]


@pytest.mark.parametrize(("d", "m", "delta", "log_D", "alpha", "alpha1"), GOLDEN)
def test_golden(d, m, delta, log_D, alpha, alpha1):
    constants = Wishart(d, m).constants(delta, delta)
    assert constants.log_D == pytest.approx(log_D, rel=1e-13)
    assert constants.alpha == pytest.approx(alpha, rel=1e-11)
    assert constants.alpha1 == pytest.approx(alpha1, rel=1e-10)
    assert constants.f2 == pytest.approx((m - d - 1) / alpha + 1, rel=1e-11)
    assert constants.mu == m
    assert constants.nu == pytest.approx(1 / (m - d - 1), rel=1e-15)


def log_lower_gamma(p: mp.mpf, x: mp.mpf) -> mp.mpf:
    """ln of the unregularised γ(x, p) = x^p e^−x Σ xⁿ/(p(p+1)…(p+n))."""
    return p * mp.log(x) - x - mp.log(p) + mp.log(mp.hyp1f1(1, p + 1, x))


def exact_constants(d: int, m: float, delta1: float, delta3: float) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    with mp.workdps(50):
        d_, m_, p = mp.mpf(d), mp.mpf(m), (mp.mpf(m) - d + 1) / 2
        log_D = mp.log(d_) + mp.loggamma(1.5) + mp.loggamma((m_ + 1) / 2) - mp.loggamma(d_ / 2 + 1)
        log_D -= mp.loggamma((m_ - d_ + 1) / 2) + mp.loggamma((m_ - d_ + 2) / 2)

        def inverse(log_target: mp.mpf) -> mp.mpf:
            start = (log_target + mp.log(p)) / p
            root = mp.findroot(
                lambda u: log_lower_gamma(p, mp.e**u) - log_target, (start, start + 0.2), tol=1e-60
            )
            return mp.e**root

        d1, d3 = mp.mpf(delta1), mp.mpf(delta3)
        alpha = 2 * inverse(mp.log(d3) - log_D)
        both = mp.log(d1 * (1 - d3) + mp.e ** (log_D + log_lower_gamma(p, alpha / 2))) - log_D
        return log_D, alpha, 2 * inverse(both) - alpha


@pytest.mark.parametrize("d", [1, 12, 70, 100, 500])
@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.12])
@pytest.mark.parametrize(("delta1", "delta3"), [(1e-3, 1e-3), (1e-9, 1e-6), (0.3, 0.2)])
def test_constants_at_fifty_digits(d, ratio, delta1, delta3):
    m = ratio * d + 2 if ratio == 1.0 else ratio * d + 1  # m > d+1, integer or not
    found = Wishart(d, m).constants(delta1, delta3)
    log_D, alpha, alpha1 = exact_constants(d, m, delta1, delta3)
    assert found.log_D == pytest.approx(float(log_D), rel=1e-13, abs=1e-12)
    assert 0 <= 1 - found.alpha / alpha < 1e-10  # rounded down, and hardly
    assert 0 <= 1 - found.alpha1 / alpha1 < 1e-6


def test_ten_thousand_dimensions():
    found = Wishart(10_000, 30_000).constants(1e-6, 1e-6)
    log_D, alpha, alpha1 = exact_constants(10_000, 30_000, 1e-6, 1e-6)
    assert found.alpha == pytest.approx(3345, rel=0.01)
    assert found.log_D == pytest.approx(float(log_D), rel=1e-12)
    assert 0 <= 1 - found.alpha / alpha < 1e-8
    assert 0 <= 1 - found.alpha1 / alpha1 < 1e-6


@pytest.mark.parametrize("p", [0.5, 1.0, 33.3, 5000.0])
def test_log_incomplete_gamma(p):
    x = p * np.array([1e-8, 1e-3, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0])
    found = log_gammainc(p, x)
    for point, value in zip(x, found, strict=True):
        with mp.workdps(50):
            exact = float(log_lower_gamma(mp.mpf(p), mp.mpf(point)) - mp.loggamma(p))
        assert value == pytest.approx(exact, rel=1e-12, abs=1e-12 * (1 + p))


def test_tail_is_the_chi_square_law_in_one_dimension():
    from scipy.stats import chi2

    s = np.array([0.0, 1e-6, 0.3, 1.0, 4.0, 20.0])
    tail = Wishart(1, 5.5).lambda_min_tail(s)
    np.testing.assert_allclose(tail, chi2(5.5).cdf(s), rtol=1e-12)
    assert (tail >= chi2(5.5).cdf(s)).all()


def test_davidson_szarek_takes_over_in_high_dimension():
    ensemble = Wishart(10_000, 30_000)
    quantile = 4617.0
    assert ensemble.lambda_min_tail(quantile) == pytest.approx(1e-6, rel=0.01)
    by_hand = math.exp(-((math.sqrt(30_000) - 100 - math.sqrt(quantile)) ** 2) / 2)
    assert ensemble.lambda_min_tail(quantile) == pytest.approx(by_hand, rel=1e-8)
    assert Wishart(10_000, 30_000.5).lambda_min_tail(quantile) == 1.0  # not proved for other m


def test_tail_agrees_with_the_constants():
    ensemble = Wishart(40, 97.25)
    found = ensemble.constants(2e-4, 1e-4)
    assert ensemble.lambda_min_tail(found.alpha) == pytest.approx(1e-4, rel=1e-9)
    assert ensemble.lambda_min_tail(found.alpha + found.alpha1) == pytest.approx(
        2e-4 * (1 - 1e-4) + 1e-4, rel=1e-9
    )
